#!/usr/bin/env python3
"""A host sends nothing for a second while its rank tells the others that all have shut down, or that a rank has aborted
the job. The silent host is that of rank 0, of a relay, or of a rank that aborts and ends. Every rank that has not ended
must get the message. In the jobs that shut down, the host of node 0 later sends nothing while the ranks end, and every
node must be told that the job has succeeded. In the last job a node is missing, and the host of node 0 sends nothing
while node 0 refuses the others, which must be told why."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import hosts
import plan as plans
from job import Job

PATIENCE = 120
SILENCE = 1.0  # seconds
SILENCE_OF_NODE_0 = 3.0
START_TIMEOUT = 3  # seconds; the nodes connect in a fraction of it
NODES = 6


class GatedJob(Job):
    """Its ranks wait at a gate before they shut down, and before they end."""

    def __init__(self, counts, environment, machines, folder, programs):
        os.mkdir(folder)
        name = os.path.join(folder, "gate")
        self.gates = {}
        for gate in list(range(sum(counts))) + ["end"]:
            os.mkfifo("%s.%s" % (name, gate))
            self.gates[gate] = os.open("%s.%s" % (name, gate), os.O_RDWR)
        # Only the message that is lost may end a rank, and not the silence.
        environment = {"HVD_PEER_TIMEOUT_MS": "60000", "HVD_HOST_TIMEOUT_S": "60", **environment}
        options = ["--host-timeout", "60", "--bind-to", "none"]
        plan = plans.Plan(name, counts=counts, options=options, environment=environment)
        super().__init__(plan, machines, folder, programs)

    def leave(self, ranks):
        """Lets these ranks shut down."""
        for rank in ranks:
            os.write(self.gates[rank], b"\0")
        return self.say("leaves", ranks)

    def abort(self, order):
        """Makes the last rank abort the job (1), or abort it and end (2)."""
        os.write(self.gates[self.plan.size - 1], bytes([order]))
        return self.say("aborts", [self.plan.size - 1])

    def release(self):
        """Lets all ranks end."""
        os.write(self.gates["end"], bytes(self.plan.size))

    def say(self, text, ranks):
        return self.wait(lambda: all(text in self.said[rank] for rank in ranks), PATIENCE)


def refused(programs, work, machines):
    """Returns whether every node that has come is told that another is missing."""
    reason = "hvdrun: %d of %d nodes came within %.1f s" % (len(machines), NODES, START_TIMEOUT)
    secret = os.path.join(work, "secret")
    with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(os.urandom(32))
    runs = []
    for node, machine in enumerate(machines):
        command = ["env", "HVD_SECRET_FILE=" + secret, programs.hvdrun, "--verbose", "--host-timeout", "60",
                   "--start-timeout", str(START_TIMEOUT if node == 0 else 60), "--nnodes", str(NODES), "--node-rank",
                   str(node), "--nproc-per-node", "1", "--master-addr", machines[0].address, "true"]
        runs.append(subprocess.Popen(machine.inside(*command), stderr=subprocess.PIPE, text=True))
    for _ in machines[1:]:
        runs[0].stderr.readline()  # a node has joined
    machines[0].cut("silent")
    time.sleep(SILENCE_OF_NODE_0)
    machines[0].heal()
    said = [run.communicate(timeout=PATIENCE)[1] for run in runs]
    for text in said:
        print(text, end="")
    return all(reason in text for text in said)


def inside(programs, work):
    programs = SimpleNamespace(hvdrun=os.path.join(programs, "hvdrun"),
                               rank=os.path.join(programs, "outside_gated_rank"))
    machines = hosts.make(work, 12)
    few = lambda name, those: GatedJob([1, 1], {}, those, os.path.join(work, name), programs)
    # Rank 1 is a relay between rank 0 and rank 2.
    tree = lambda name, those: GatedJob([1, 1, 2], {"HVD_CONTROL_FANOUT": "2"}, those, os.path.join(work, name),
                                        programs)
    leaving = [few("few", machines[:2]), tree("tree", machines[2:5])]
    failing = [few("failing_few", machines[5:7]), tree("failing_tree", machines[7:10])]
    ending = few("ending", machines[10:])
    silent = [machines[0], machines[3], machines[5], machines[8], machines[11]]
    passed = all([job.say("ready", range(job.plan.size)) for job in leaving + failing + [ending]])
    # The requests of the others shall come to rank 0 before its answer is lost. One that is still under way after this
    # time makes the test weaker, but cannot make it fail.
    passed = all([job.leave(range(1, job.plan.size)) for job in leaving]) and passed
    passed = all([job.leave(range(job.plan.size - 1)) for job in failing + [ending]]) and passed
    time.sleep(0.3)
    for machine in silent:
        machine.cut("mute")
    passed = all([job.leave([0]) for job in leaving]) and passed
    passed = all([job.abort(1) for job in failing]) and ending.abort(2) and passed
    time.sleep(SILENCE)  # that is the fault
    for machine in silent:
        machine.heal()
    passed = all([job.say("has left", range(job.plan.size)) for job in leaving]) and passed
    for job in failing + [ending]:
        heard = range(job.plan.size - 1 if job is ending else job.plan.size)
        job.wait(lambda: all(len(job.said[rank]) == 3 for rank in heard), PATIENCE)
        if any(job.said[rank][-1:] != ["has lost %d: aborted" % (job.plan.size - 1)] for rank in heard):
            passed = False
            print("after the abort of rank %d: %s" % (job.plan.size - 1, job.said))
        job.release()
        job.end(PATIENCE)
        job.close()
    first = [machines[0], machines[2]]
    for machine in first:
        machine.cut("mute")
    for job in leaving:
        job.release()
    time.sleep(SILENCE_OF_NODE_0)
    for machine in first:
        machine.heal()
    for job in leaving:
        ended = job.end(PATIENCE)
        job.close()
        if any(code != 0 for code in ended):
            passed = False
            print("hvdruns exit with %s" % ended)
        for lines in job.outputs:
            print("\n".join(lines[1]))
    passed = refused(programs, work, machines[:NODES - 1]) and passed
    return 0 if passed else 1


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(inside(sys.argv[1], sys.argv[3]))
    sys.exit(hosts.run_again())
