"""Compares what a job did with what the documentation promises: docs/reference/errors.md and hvdrun.md."""

import re
import signal

import plan as plans

CRASHES = {int(number) for number in (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)}
FIRST_LINE = re.compile(r"hvdrun: rank (\d+) on ")
KILLED = re.compile(r"hvdrun: (?:then )?rank (\d+) on .* was killed by signal (\d+) ")


def failed(plan):
    """Returns the exit code of a rank that had an error."""
    return 3 if plan.catches else 128 + signal.SIGABRT


def blamable(job, fault, rank):
    """Returns the ranks that `rank` may name because of a fault."""
    plan = job.plan
    everyone = set(range(plan.size))
    if fault.kind in plans.OF_RANKS:
        return {fault.victim}
    mine = plan.ranks_of(fault.victim)
    if fault.kind == "cut":  # each side of the cut loses the other
        return everyone - mine if rank in mine else mine
    if fault.kind == "full_tmp" and not may_lack_a_timeline(fault, job):
        return set()
    # The ranks of all nodes are ended, in any order; or some of them cannot begin a timeline.
    return everyone if fault.kind in ("kill_hvdrun", "kill_agent", "descriptors_hvdrun", "signal",
                                      "full_tmp") else set()


def may_lack_a_timeline(fault, job):
    """Tells whether a rank had still to begin a timeline when the temporary folder became full."""
    return fault.begun < job.plan.size or fault.begun < job.begun()


def crashed(plan, line):
    """Returns the rank that has crashed if hvdrun's line says so, or None. SIGABRT is no crash where it ends a program
    that does not catch an error."""
    killed = KILLED.match(line)
    by = int(killed[2]) if killed else 0
    return int(killed[1]) if by in CRASHES and 128 + by != failed(plan) else None


def came_back(plan, lines):
    """Tells whether a rank's calls all came back: it is done, or it has reported an error and, if it catches
    errors, has also shut down."""
    end = "over" if plan.catches else "error "
    return any(line.startswith(("done", end)) for line in lines)


def survivors(plan, fault):
    """Returns the ranks that see a loss themselves: all others of a lost rank, and those cut off from node 0."""
    everyone = set(range(plan.size))
    if fault.kind in plans.OF_RANKS:
        return everyone - {fault.victim}
    if fault.kind != "cut":
        return set()
    if fault.victim == 0:
        return everyone - plan.ranks_of(0)
    # A mute host is given up by node 0, which closes the connection to its agent.
    return set() if fault.how == "mute" else plan.ranks_of(fault.victim)


def codes(job, fault, node):
    """Returns the exit codes that hvdrun may have on a node because of a fault."""
    several = len(job.plan.counts) > 1
    if fault.kind == "kill":
        return {137}
    if fault.kind == "leave":
        # When it ends it first writes its timeline, and the others take it for frozen if the disk hangs for long.
        return {70} | ({failed(job.plan)} if any(each.kind == "stall_tmp" for each in job.plan.faults) else set())
    if fault.kind == "stop":
        return {failed(job.plan), 137}  # that of a survivor, or of the victim, which hvdrun kills at the end
    if fault.kind in ("descriptors", "memory"):
        # Its own error, or 127 when the program cannot be loaded. Without memory the program itself may fail, and the
        # system ends a process whose stack cannot grow.
        return {0, failed(job.plan), 71, 127} | ({4, 134, 139} if fault.kind == "memory" else set())
    if fault.kind == "cut":
        # The others give a mute node up and end their ranks. Its own ranks may see these connections close before its
        # hvdrun knows of the cut.
        return {69, failed(job.plan)} if fault.how == "mute" and node == fault.victim else {69}
    if fault.kind == "kill_hvdrun":
        return {-9} if node == fault.victim else {69}
    if fault.kind == "kill_agent":
        return {69, 70} if several else {70}
    if fault.kind == "signal":
        return {128 + int(fault.amount)}
    if fault.kind == "descriptors_hvdrun":
        return {0, 69, 70, 71, 77, 127}  # 77 when it cannot open the secret file, 127 when it cannot be loaded
    if fault.kind == "full_tmp" and may_lack_a_timeline(fault, job):
        return {0, failed(job.plan)}
    return {0}


def judge(plan, job, ended, in_files, left):
    """Returns the promises that the job has broken, one on a line."""
    broken = []
    struck = [fault for fault in plan.faults if fault.struck]
    harmful = [fault for fault in struck if fault.kind not in plans.HARMLESS]
    done = {rank for rank, lines in job.said.items() if "done" in lines}
    lack_memory = {fault.victim for fault in harmful if fault.kind == "memory"}
    for rank, lines in job.said.items():
        broken += ["rank %d: %s" % (rank, line) for line in lines if line.startswith("wrong")]
        broken += ["rank %d: %s" % (rank, line) for line in lines
                   if line.startswith(("exception", "error internal", "error protocol")) and rank not in lack_memory]
    broken += left

    # Every hvdrun has ended, with a code that one of the faults explains. A cut may keep from a node how a victim that
    # its ranks know to be lost has ended. While a rank still meets the others, or when hvdrun itself was paused, ranks
    # may give others up before hvdrun knows of the cut. Then the code is that of a survivor.
    victims = {fault.victim for fault in harmful if fault.kind in plans.OF_RANKS}
    some_meet = bool(job.meeting() - victims)
    is_hidden = any(fault.kind == "cut" for fault in harmful) and (
        some_meet or any(fault.kind in ("kill", "leave", "pause_hvdrun") for fault in struck))
    for node, code in enumerate(ended):
        allowed = set().union(*(codes(job, fault, node) for fault in harmful))
        if not harmful or len(done) == plan.size or any(fault.was_late for fault in harmful):
            allowed.add(0)
        if is_hidden:
            allowed.add(failed(plan))
        none_began = not any(job.said.values())
        if none_began:
            for fault in harmful:
                if fault.kind == "signal":
                    # The signal may have come before hvdrun handles it, which a shell shows as the same code. The
                    # other nodes wait in vain for this one.
                    allowed.add(-int(fault.amount) if node == fault.victim else 69)
        if code not in allowed:
            broken.append("node %d: hvdrun exits with %s, not one of %s" % (node, code, sorted(allowed)))
    if all(code == 0 for code in ended) and len(done) != plan.size:
        broken.append("hvdrun exits with 0, but only ranks %s are done" % sorted(done))

    if not harmful:
        ends = {line for lines in job.said.values() for line in lines if line.startswith("pending ")}
        if len({line.split()[1] for line in ends}) < len(ends):
            broken.append("ranks differ in which operations fail at the shutdown: %s" % sorted(ends))

    # Errors name the culprit, and all of them the same one while rank 0 is there to decide.
    errors = {}
    for rank, lines in job.said.items():
        for line in lines:
            if not line.startswith("error "):
                continue
            code, culprit, text = line[len("error "):].split(" | ", 2)
            allowed = set().union(*(blamable(job, fault, rank) for fault in harmful))
            if rank in victims:
                continue  # it may not know better
            errors[rank] = (int(culprit), text)
            if harmful and int(culprit) not in allowed and some_meet:
                job.weak = True
                if code in ("peer lost", "timeout", "resource"):
                    continue
            if int(culprit) not in allowed:
                broken.append("rank %d blames rank %s, not one of %s: %s: %s" % (rank, culprit, sorted(allowed),
                                                                              code, text))
    # While the ranks meet, rank 0 decides nothing yet: each names the one that it waits for or whose connection
    # ended, which may be a victim (errors.md).
    decided = set() if some_meet else set(errors.values())
    if len(harmful) == 1 and harmful[0].kind in ("kill", "leave", "stop") and harmful[0].victim != 0:
        # The members of a relay notice its loss themselves.
        if len(decided) > 1 and "HVD_CONTROL_FANOUT" not in plan.environment:
            broken.append("survivors differ: %s" % errors)

    # All survivors come back from their calls before hvdrun or their agent ends them, which is more than a second after
    # the loss of a rank, and a second after the loss of node 0.
    if (len(harmful) == 1 and any(ended) and not some_meet
            and all(fault.kind not in plans.DELAYING for fault in struck)):
        broken += ["rank %d does not come back from its calls: %s" % (rank, job.said[rank][-1:])
                   for rank in sorted(survivors(plan, harmful[0])) if not came_back(plan, job.said[rank])]
    for node, (_, err) in enumerate(job.outputs):
        broken += ["node %d: %s" % (node, line) for line in err if crashed(plan, line) not in victims | {None}]

    # hvdrun's report begins with the culprit.
    if len(harmful) == 1 and harmful[0].kind in plans.OF_RANKS:
        for node, (_, err) in enumerate(job.outputs):
            named = next((match for match in map(FIRST_LINE.match, err) if match), None)
            if harmful[0].kind != "kill" and errors and not decided:
                continue  # they still met
            if ended[node] and (named is None or int(named[1]) != harmful[0].victim):
                broken.append("node %d: hvdrun names %s, not rank %d" % (node, named and named[0], harmful[0].victim))
    for node, (_, err) in enumerate(job.outputs):
        if ended[node] and ended[node] > 0 and not any("hvdrun: " in line for line in err):
            broken.append("node %d: hvdrun exits with %d and says nothing" % (node, ended[node]))

    # Every line of a rank came through, once and in order.
    if all(code == 0 for code in ended):
        for rank, lines in job.said.items():
            prefix = "[%d]<stdout>:" % rank
            if [line[len(prefix):] for line in job.outputs[0][0] if line.startswith(prefix)] != lines:
                broken.append("rank %d: hvdrun's output is not what it wrote" % rank)
            if in_files and in_files[rank] != lines:
                broken.append("rank %d: hvdrun's file is not what it wrote" % rank)
    return broken
