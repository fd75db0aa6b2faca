"""Compares what a job did with what the documentation promises: docs/reference/errors.md and hvdrun.md."""

import re

import plan as plans

FIRST_LINE = re.compile(r"hvdrun: rank (\d+) on ")


def blamable(plan, fault, rank):
    """Returns the ranks that `rank` may name because of a fault."""
    everyone = set(range(plan.size))
    if fault.kind in plans.OF_RANKS:
        return {fault.victim}
    mine = plan.ranks_of(fault.victim)
    if fault.kind == "cut":  # each side of the cut loses the other
        return everyone - mine if rank in mine else mine
    # The ranks of all nodes are ended, in any order; or some of them cannot begin a timeline.
    return everyone if fault.kind in ("kill_hvdrun", "kill_agent", "descriptors_hvdrun", "signal",
                                      "full_tmp") else set()


def still_meets(text):
    """Tells whether an error is from the time in which the ranks find each other. Rank 0 decides nothing yet: a
    rank names the one that it waits for or whose connection ended, which may be a victim (errors.md)."""
    return ", during " not in text or ", during init" in text


def was_ended(job, rank):
    """Tells whether hvdrun ended a rank before that was done or had thrown an error."""
    return rank in job.said and not any(line == "done" or line.startswith("error ") for line in job.said[rank])


def codes(plan, fault, node):
    """Returns the exit codes that hvdrun may have on a node because of a fault."""
    several = len(plan.counts) > 1
    if fault.kind == "kill":
        return {137}
    if fault.kind == "stop":
        return {3, 137}  # that of a survivor, or of the victim, which hvdrun kills at the end
    if fault.kind in ("descriptors", "memory"):
        # Its own error, an exception that nobody catches, a crash, or 127 when the program cannot be loaded.
        return {0, 3, 4, 71, 127, 134, 139}
    if fault.kind == "cut":
        # The others give a mute node up and end their ranks. Its own ranks may see these connections close before its
        # hvdrun knows of the cut.
        return {69, 3} if fault.how == "mute" and node == fault.victim else {69}
    if fault.kind == "kill_hvdrun":
        return {-9} if node == fault.victim else {69}
    if fault.kind == "kill_agent":
        return {69, 70} if several else {70}
    if fault.kind == "signal":
        return {128 + int(fault.amount)}
    if fault.kind == "descriptors_hvdrun":
        return {0, 69, 70, 71, 127}  # 127 when hvdrun itself cannot be loaded
    if fault.kind == "full_tmp":
        return {0, 3}
    return {0}


def judge(plan, job, ended, in_files, left):
    """Returns the promises that the job has broken, one on a line."""
    broken = []
    struck = [fault for fault in plan.faults if fault.struck]
    harmful = [fault for fault in struck if fault.kind not in plans.HARMLESS]
    done = {rank for rank, lines in job.said.items() if "done" in lines}
    for rank, lines in job.said.items():
        broken += ["rank %d: %s" % (rank, line) for line in lines if line.startswith("wrong")]
    broken += left

    # Every hvdrun has ended, with a code that one of the faults explains. A cut may keep from a node how a victim that
    # its ranks know to be lost has ended, and while a rank still meets the others these may give it up before hvdrun
    # knows of the cut; then the code is that of a survivor.
    victims = {fault.victim for fault in harmful if fault.kind in plans.OF_RANKS}
    some_meet = any("ready" not in lines for rank, lines in job.said.items() if rank not in victims)
    is_hidden = any(fault.kind == "cut" for fault in harmful) and (
        some_meet or any(fault.kind == "kill" for fault in harmful))
    for node, code in enumerate(ended):
        allowed = set().union(*(codes(plan, fault, node) for fault in harmful))
        if not harmful or len(done) == plan.size or any(fault.was_late for fault in harmful):
            allowed.add(0)
        if is_hidden:
            allowed.add(3)
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

    # Errors name the culprit, and all of them the same one while rank 0 is there to decide.
    errors = {}
    for rank, lines in job.said.items():
        for line in lines:
            if not line.startswith("error "):
                continue
            code, culprit, text = line[len("error "):].split(" | ", 2)
            allowed = set().union(*(blamable(plan, fault, rank) for fault in harmful))
            if rank in victims:
                continue  # it may not know better
            errors[rank] = (int(culprit), text)
            if harmful and int(culprit) not in allowed and (some_meet or still_meets(text)):
                job.weak = True
                if code in ("peer lost", "timeout", "resource"):
                    continue
            if harmful and "HVD_CONTROL_FANOUT" in plan.environment and was_ended(job, int(culprit)):
                continue  # its relay could not pass on the verdict
            if int(culprit) not in allowed:
                broken.append("rank %d blames rank %s, not one of %s: %s: %s" % (rank, culprit, sorted(allowed),
                                                                              code, text))
    decided = {error for error in errors.values() if not still_meets(error[1])}
    if len(harmful) == 1 and harmful[0].kind in ("kill", "stop") and harmful[0].victim != 0:
        # The members of a relay notice its loss themselves.
        if len(decided) > 1 and "HVD_CONTROL_FANOUT" not in plan.environment:
            broken.append("survivors differ: %s" % errors)

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
