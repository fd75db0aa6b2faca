"""What a cycle does, all of it drawn from its seed, and what may come of it."""

import random
from dataclasses import dataclass, field

# PEER_TIMEOUT is in ms, and longer than the default of 1,800, because a rank on a busy machine may get no processor
# for that long. HOST_TIMEOUT is in seconds; its default is 10.
PEER_TIMEOUT = 5000
HOST_TIMEOUT = 8
LONG_GRACE = 300  # longer than the tester waits


@dataclass
class Fault:
    kind: str
    victim: int  # a rank, or a node
    round: int  # the victim has begun this round; -1: the job has just started
    delay: float  # seconds after that
    amount: float = 0  # seconds that a pause lasts, seconds of a jump, a signal, …
    how: str = ""
    struck: bool = False
    was_late: bool = False  # the victim had finished its program, or nobody needed it any more
    begun: int = 0  # how often ranks had begun to meet when it struck; 0: some had not met the others yet
    pid: int = 0

    def __str__(self):
        at = "at the start" if self.round < 0 else "in round %d" % self.round
        return "%s %d %s +%.3f s %s%g" % (self.kind, self.victim, at, self.delay, self.how and self.how + " ",
                                          self.amount)


# Of a rank, of a node, and of a node in a job on several hosts. A fault
# `leave` is not drawn: `make` turns some of the kind `kill` into it.
OF_RANKS = ["kill", "kill", "kill", "stop", "pause", "descriptors", "memory", "leave"]
DRAWN_OF_RANKS = [kind for kind in OF_RANKS if kind != "leave"]
OF_NODES = ["kill_hvdrun", "kill_agent", "pause_hvdrun", "signal", "clock", "full_tmp", "stall_tmp", "slow_tmp",
            "full_shm", "descriptors_hvdrun"]
OF_HOSTS = ["cut", "cut", "outage", "slow"]
# After these a job goes on as if nothing had happened.
HARMLESS = {"pause", "pause_hvdrun", "clock", "outage", "slow", "stall_tmp", "slow_tmp", "full_shm"}
# During these a rank may be late to notice an error, and hvdrun ends it a second after the first one has failed.
DELAYING = {"pause", "outage", "slow", "stall_tmp", "slow_tmp"}


@dataclass
class Plan:
    seed: int
    counts: list = field(default_factory=list)  # ranks of each node
    rounds: int = 0
    options: list = field(default_factory=list)
    environment: dict = field(default_factory=dict)
    faults: list = field(default_factory=list)
    output_files: bool = False  # node 0's hvdrun has --output-filename
    catches: bool = True  # the program catches errors; otherwise they end it with SIGABRT
    grace: int = 2  # seconds

    @property
    def size(self):
        return sum(self.counts)

    @property
    def leaver(self):
        """Returns the fault of the rank that leaves the job without a shutdown, or None."""
        return next((fault for fault in self.faults if fault.kind == "leave"), None)

    @property
    def shifts_clock(self):
        return any(fault.kind == "clock" for fault in self.faults)

    def node_of(self, rank):
        node = 0
        while rank >= sum(self.counts[:node + 1]):
            node += 1
        return node

    def ranks_of(self, node):
        first = sum(self.counts[:node])
        return set(range(first, first + self.counts[node]))

    def __str__(self):
        return "seed %d: ranks %s, %d rounds, %s%s; %s" % (
            self.seed, "+".join(map(str, self.counts)), self.rounds, ("" if self.catches else "errors abort, ")
            + ("" if self.grace != LONG_GRACE else "long grace, "),
            " ".join("%s=%s" % pair for pair in self.environment.items()),
            "; ".join(map(str, self.faults)) or "no fault")


def make(seed):
    draw = random.Random(seed)
    plan = Plan(seed)
    nodes = draw.choice([1, 1, 2, 3])
    size = draw.randint(max(2, nodes), 8 if draw.random() < 0.3 else 5)
    plan.counts = [1] * nodes
    for _ in range(size - nodes):
        plan.counts[draw.randrange(nodes)] += 1
    plan.rounds = draw.randint(20, 120)
    plan.options = ["--host-timeout", str(HOST_TIMEOUT), "--bind-to", "none"]
    plan.environment = {"HVD_PEER_TIMEOUT_MS": str(PEER_TIMEOUT), "OMP_NUM_THREADS": "1"}
    for name, values in (("HVD_TRANSPORT", ["tcp"]), ("HVD_FREEZE_AFTER", ["0", "1"]), ("HVD_CONTROL_FANOUT", ["2"]),
                         ("HVD_TCP_STREAMS", ["1", "4"]), ("HVD_FUSION_THRESHOLD", ["1K", "64K"])):
        if draw.random() < 0.25:
            plan.environment[name] = draw.choice(values)
    for _ in range(draw.choices([0, 1, 2], [5, 75, 20])[0]):
        plan.faults.append(make_fault(draw, plan))
    if {fault.victim for fault in plan.faults if fault.kind == "stop"} == set(range(plan.size)):
        plan.faults.pop()  # one rank must be left to notice that another has stopped
    cuts = [fault.victim for fault in plan.faults if fault.kind in ("cut", "outage")]
    if len(set(cuts)) < len(cuts) and any(fault.kind == "cut" for fault in plan.faults):
        plan.faults.pop()  # a cut lasts: an outage would end it, and there is nothing more to cut
    if any(fault.kind.endswith("_tmp") for fault in plan.faults):
        plan.environment["HVD_TIMELINE"] = "timeline.json"  # in the node's TMPDIR
        # These files are in node 0's temporary folder. If that were full, hvdrun would end the job.
        plan.output_files = all(fault.kind != "full_tmp" for fault in plan.faults)
    plan.faults.sort(key=lambda fault: fault.round)
    plan.catches = draw.random() < 0.67
    if draw.random() < 0.5:
        plan.grace = LONG_GRACE
        if any(fault.kind == "signal" for fault in plan.faults):
            plan.rounds *= 1000  # the ranks do not come to their end before the second signal
    plan.options += ["--grace", str(plan.grace)]
    if draw.random() < 0.5:
        for fault in plan.faults:
            if fault.kind == "kill" and fault.round >= 0 and plan.leaver is None:
                fault.kind = "leave"
    return plan


def make_fault(draw, plan):
    kinds = DRAWN_OF_RANKS * 2 + OF_NODES + (OF_HOSTS * 3 if len(plan.counts) > 1 else [])
    kind = draw.choice(kinds)
    victim = draw.randrange(plan.size if kind in OF_RANKS else len(plan.counts))
    early = draw.random() < 0.2
    fault = Fault(kind, victim, -1 if early else draw.randrange(plan.rounds),
                  draw.uniform(0, 0.3) if early else draw.choice([0, draw.uniform(0, 0.02)]))
    if kind in ("pause", "pause_hvdrun", "outage"):
        fault.amount = draw.uniform(0.05, 1.5)
    if kind == "stall_tmp":
        fault.amount = draw.uniform(0.05, 1.5 * PEER_TIMEOUT / 1000)
    if kind == "slow_tmp":
        fault.amount = draw.uniform(0.5, 5)
    if kind == "clock":
        fault.amount = draw.choice([-1, 1]) * draw.choice([1, 60, 86400, 3e8])
    if kind == "signal":
        fault.amount = draw.choice([1, 2, 15])
    if kind == "slow":
        fault.amount = draw.choice([50, 200])
    if kind.startswith(("descriptors", "memory")):
        fault.amount = draw.choice([0, 0, 1, 4])
    if kind in ("cut", "outage"):
        fault.how = draw.choice(["unplugged", "silent", "mute"])
        if kind == "outage" and fault.how == "mute":
            fault.amount = max(0.5, fault.amount)  # long enough for what the host has sent to be sent again in vain
    return fault
