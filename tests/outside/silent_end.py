#!/usr/bin/env python3
"""A host sends nothing for a second while its rank tells the others that all have shut down. In one job this is
rank 0, in another one a relay. Every rank must get the message. Later the host of node 0 sends nothing while the ranks
end. Every node must be told that the job has succeeded."""

import os
import sys
import time
from types import SimpleNamespace

import hosts
import plan as plans
from job import Job

PATIENCE = 120
SILENCE = 1.0  # seconds
SILENCE_OF_NODE_0 = 3.0


class GatedJob(Job):
    """Its ranks wait at a gate before they shut down, and before they end."""

    def __init__(self, counts, environment, machines, folder, programs):
        os.mkdir(folder)
        name = os.path.join(folder, "gate")
        self.gates = []
        for gate in (name + ".0", name + ".others", name + ".end"):
            os.mkfifo(gate)
            self.gates.append(os.open(gate, os.O_RDWR))
        # Only the message that is lost may end a rank, and not the silence.
        environment = {"HVD_PEER_TIMEOUT_MS": "60000", "HVD_HOST_TIMEOUT_S": "60", **environment}
        options = ["--host-timeout", "60", "--bind-to", "none"]
        plan = plans.Plan(name, counts=counts, options=options, environment=environment)
        super().__init__(plan, machines, folder, programs)

    def leave(self, ranks):
        """Lets rank 0, or all others, shut down."""
        os.write(self.gates[0 if 0 in ranks else 1], bytes(len(ranks)))
        return self.say("leaves", ranks)

    def release(self):
        """Lets all ranks end."""
        os.write(self.gates[2], bytes(self.plan.size))

    def say(self, text, ranks):
        return self.wait(lambda: all(text in self.said[rank] for rank in ranks), PATIENCE)


def inside(programs, work):
    programs = SimpleNamespace(hvdrun=os.path.join(programs, "hvdrun"),
                               rank=os.path.join(programs, "outside_gated_rank"))
    machines = hosts.make(work, 5)
    star = GatedJob([1, 1], {}, machines[:2], os.path.join(work, "star"), programs)
    # Rank 1 is a relay between rank 0 and rank 2.
    tree = GatedJob([1, 1, 2], {"HVD_CONTROL_FANOUT": "2"}, machines[2:], os.path.join(work, "tree"), programs)
    jobs = [star, tree]
    silent = [machines[0], machines[3]]
    passed = all([job.say("ready", range(job.plan.size)) for job in jobs])
    # The requests of the others shall come to rank 0 before its answer is lost. One that is still under way after this
    # time makes the test weaker, but cannot make it fail.
    passed = all([job.leave(range(1, job.plan.size)) for job in jobs]) and passed
    time.sleep(0.3)
    for machine in silent:
        machine.cut("mute")
    passed = all([job.leave([0]) for job in jobs]) and passed
    time.sleep(SILENCE)  # that is the fault
    for machine in silent:
        machine.heal()
    passed = all([job.say("has left", range(job.plan.size)) for job in jobs]) and passed
    first = [machines[0], machines[2]]
    for machine in first:
        machine.cut("mute")
    for job in jobs:
        job.release()
    time.sleep(SILENCE_OF_NODE_0)
    for machine in first:
        machine.heal()
    for job in jobs:
        ended = job.end(PATIENCE)
        job.close()
        if any(code != 0 for code in ended):
            passed = False
            print("hvdruns exit with %s" % ended)
        for lines in job.outputs:
            print("\n".join(lines[1]))
    return 0 if passed else 1


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(inside(sys.argv[1], sys.argv[3]))
    sys.exit(hosts.run_again())
