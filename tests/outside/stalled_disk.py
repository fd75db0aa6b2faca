#!/usr/bin/env python3
"""The disk to which one rank writes a timeline stalls while the rank starts, for longer than a rank may be silent."""

import os
import subprocess
import sys
import time

import hosts

PEER_TIMEOUT = 0.5  # seconds


def inside(programs, work):
    machine = hosts.make(work, 1)[0]
    timeline = os.path.join(machine.tmp, "timeline.json")
    only_rank_1 = 'test "$HVD_RANK" = 0 || export HVD_TIMELINE=%s; exec "$0" 10' % timeline
    command = machine.inside("env", "HVD_PEER_TIMEOUT_MS=%d" % (PEER_TIMEOUT * 1000), programs + "/hvdrun", "-np", "2",
                             "--bind-to", "none", "sh", "-c", only_rank_1, programs + "/outside_scale_rank")
    try:
        with machine.stalled_disk():
            job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True)
            time.sleep(6 * PEER_TIMEOUT)  # that is the fault: rank 0 has time to miss rank 1
    except OSError as error:
        print("skipped: needs a loop device with a file system that can be stopped: %s" % error)
        return 77
    output = job.communicate(timeout=60)[0]
    written = os.path.exists(machine.path(timeline.replace(".json", ".rank1.json")))
    if job.returncode == 0 and "ran steps 10" in output and written:
        return 0
    print("%shvdrun exits with %d; rank 1 has %s timeline" % (output, job.returncode, "a" if written else "no"))
    return 1


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(inside(sys.argv[1], sys.argv[3]))
    sys.exit(hosts.run_again())
