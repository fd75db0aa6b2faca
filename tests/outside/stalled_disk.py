#!/usr/bin/env python3
"""The disk to which one rank writes a file stalls while the rank starts, for longer than a rank may be silent."""

import os
import subprocess
import sys
import time

import hosts

PEER_TIMEOUT = 0.5  # seconds


def start(machine, programs, rank, settings):
    """Runs two ranks, of which one has these settings, while the disk stalls. Returns how the job failed, or None."""
    one_rank = 'test "$HVD_RANK" != %d || export %s; exec "$0" 10' % (rank, settings)
    command = machine.inside("env", "HVD_PEER_TIMEOUT_MS=%d" % (PEER_TIMEOUT * 1000), programs + "/hvdrun", "-np", "2",
                             "--bind-to", "none", "sh", "-c", one_rank, programs + "/outside_scale_rank")
    with machine.stalled_disk():
        job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True)
        time.sleep(6 * PEER_TIMEOUT)  # that is the fault: the other rank has time to miss this one
        waited = job.poll() is None
    output = job.communicate(timeout=60)[0]
    written = os.listdir(machine.path(machine.tmp))
    if waited and job.returncode == 0 and "ran steps 10" in output and len(written) == 1:
        os.remove(machine.path(os.path.join(machine.tmp, written[0])))
        return None
    return "%s%s: hvdrun exits with %d, %s the disk; written: %s" % (
        output, settings, job.returncode, "after" if waited else "without waiting for", written)


def inside(programs, work):
    machine = hosts.make(work, 1)[0]
    file = os.path.join(machine.tmp, "file")
    try:
        with machine.stalled_disk():
            pass
    except OSError as error:
        print("skipped: needs a loop device with a file system that can be stopped: %s" % error)
        return 77
    failures = [start(machine, programs, 1, "HVD_TIMELINE=" + file),
                start(machine, programs, 0, "HVD_AUTOTUNE=1 HVD_AUTOTUNE_LOG=" + file)]
    print("\n".join(filter(None, failures)))
    return 1 if any(failures) else 0


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(inside(sys.argv[1], sys.argv[3]))
    sys.exit(hosts.run_again())
