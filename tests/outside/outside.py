#!/usr/bin/env python3
"""The outside tester (docs/internals/outside_tester.md): runs cycles, each a random job with random faults."""

import argparse
import collections
import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from types import SimpleNamespace

import hosts
import judge
import plan as plans
from job import Job

# Nothing here takes as long on an idle machine; only what hangs exceeds it.
PATIENCE = 120
TIME_TO_END = 10  # seconds that processes may still run after the last hvdrun has ended


def exhaust(pid, fault):
    """Leaves a process `amount` descriptors, or as many MiB of address space, more than it has."""
    if fault.kind == "memory":
        with open("/proc/%d/statm" % pid) as file:
            size = int(file.read().split()[0]) * resource.getpagesize() + (int(fault.amount) << 20)
        resource.prlimit(pid, resource.RLIMIT_AS, (size, size))
    else:
        used = [int(name) for name in os.listdir("/proc/%d/fd" % pid)]
        if not used:  # it has just ended
            raise ProcessLookupError
        count = max(used) + 1 + int(fault.amount)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (count, count))


def send(pid, number):
    if pid is None:
        raise ProcessLookupError
    os.kill(pid, number)


def send_again(job, run, number):
    """Repeats a signal until the hvdrun has ended: the ranks have so much time that only a second signal ends them."""
    deadline = time.monotonic() + PATIENCE
    while run.poll() is None and time.monotonic() < deadline:
        job.wait(lambda: run.poll() is not None, 0.5)
        run.send_signal(number)


def fill(folder):
    with open(os.path.join(folder, "ballast"), "wb") as file:
        try:
            while True:
                file.write(bytes(1 << 20))
        except OSError:
            pass


def strike(job, fault, machines):
    """Does harm. Throws OSError when there is nobody any more to whom it could be done."""
    node = fault.victim if fault.kind not in plans.OF_RANKS else job.plan.node_of(fault.victim)
    host = machines[node]
    run = job.runs[node]
    kind = fault.kind
    if kind == "leave":  # the rank does so itself
        if "round %d" % fault.round not in job.said[fault.victim]:
            raise ProcessLookupError
        return
    if run.poll() is not None:
        raise ProcessLookupError
    if kind in ("pause", "pause_hvdrun"):
        pid = job.rank_pid(fault.victim) if kind == "pause" else run.pid
        send(pid, signal.SIGSTOP)
        time.sleep(fault.amount)
        send(pid, signal.SIGCONT)
    elif kind == "kill":
        send(job.rank_pid(fault.victim), signal.SIGKILL)
    elif kind == "stop":
        fault.pid = job.rank_pid(fault.victim)
        send(fault.pid, signal.SIGSTOP)
    elif kind in ("descriptors", "memory"):
        pid = job.rank_pid(fault.victim)
        if pid is None:
            raise ProcessLookupError
        exhaust(pid, fault)
    elif kind == "descriptors_hvdrun":
        exhaust(run.pid, fault)
    elif kind == "kill_hvdrun":
        send(run.pid, signal.SIGKILL)
    elif kind == "kill_agent":
        send(job.agent_pid(node), signal.SIGKILL)
    elif kind == "signal":
        send(run.pid, int(fault.amount))
        if job.plan.grace == plans.LONG_GRACE:
            send_again(job, run, int(fault.amount))
    elif kind == "clock":
        job.set_clock(fault.amount)
    elif kind == "full_tmp":
        fill(host.path(host.tmp))
    elif kind == "stall_tmp":
        with host.stalled_disk():
            time.sleep(fault.amount)
    elif kind == "slow_tmp":
        deadline = time.monotonic() + fault.amount
        while time.monotonic() < deadline:
            with host.stalled_disk():
                time.sleep(0.2)
            time.sleep(0.01)  # for so long it works
    elif kind == "full_shm":
        fill(host.path("/dev/shm"))
    elif kind == "slow":
        host.slow(int(fault.amount))
    elif kind == "outage":
        host.cut(fault.how)
        time.sleep(fault.amount)
        host.heal()
    elif kind == "cut":
        host.cut(fault.how)


def release(job, stopped):
    """Continues the stopped ranks if nobody needs them any more: hvdrun would wait for them for ever."""
    victims = {fault.victim for fault in stopped}
    others = [lines for rank, lines in job.said.items() if rank not in victims]
    needless = lambda: all("done" in lines for lines in others)
    failed = lambda: any(line.startswith("error") for lines in others for line in lines)
    if not job.wait(lambda: needless() or failed(), PATIENCE) and not job.over():
        job.stuck.append("no rank notices that %s are stopped" % sorted(victims))
    if needless() and not job.over():
        for fault in stopped:
            fault.was_late = True
            try:
                os.kill(fault.pid, signal.SIGCONT)
            except ProcessLookupError:
                pass


def note_if_stuck(job, what):
    """Notes that the job hangs, which the next fault would hide, unless it may wait for a rank that was stopped."""
    if not job.over() and not any(fault.kind == "stop" and fault.struck for fault in job.plan.faults):
        job.stuck.append(what)


def processes_left(own):
    """Lists the processes that are left of the job; they get TIME_TO_END."""
    deadline = time.monotonic() + TIME_TO_END
    while True:
        left = ["left: process %d %s" % (pid, name) for pid, (name, _) in hosts.processes().items() if pid not in own]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)  # nothing else tells when a stranger's process is over


def leftovers(machines, own):
    """Lists the processes, sockets and files that are left of the job."""
    left = processes_left(own)
    for machine in machines:
        for ballast in (machine.tmp + "/ballast", "/dev/shm/ballast"):
            if os.path.exists(machine.path(ballast)):
                os.remove(machine.path(ballast))
    return left + ["left: " + line for machine in machines for line in machine.left()]


def cycle(seed, machines, folder, programs):
    """Runs one cycle; returns its plan, the job and the promises that it has broken."""
    plan = plans.make(seed)
    own = set(hosts.processes())
    job = Job(plan, machines, folder, programs)
    began = time.monotonic()
    for fault in plan.faults:
        target = fault.victim if fault.kind in plans.OF_RANKS else min(plan.ranks_of(fault.victim))
        mark = "round %d" % fault.round
        if fault.round >= 0 and not job.wait(lambda: mark in job.said[target], PATIENCE):
            note_if_stuck(job, "rank %d does not reach %s" % (target, mark))
        time.sleep(fault.delay)  # where in the round it strikes
        fault.begun = 0 if job.meeting() else job.begun()
        try:
            strike(job, fault, machines)
            fault.struck = True
        except OSError:
            fault.struck = False
        # It had no effect if the rank had nothing more to do for the others.
        fault.was_late = fault.kind in plans.OF_RANKS and "done" in job.said[fault.victim]
    stopped = [fault for fault in plan.faults if fault.kind == "stop" and fault.struck]
    if stopped:
        release(job, stopped)
    ended = job.end(PATIENCE)
    job.seconds = time.monotonic() - began
    job.close()
    in_files = job.in_files()
    for machine in machines:
        for name in os.listdir(machine.path(machine.tmp)):
            if name.startswith("timeline"):
                os.remove(machine.path(os.path.join(machine.tmp, name)))
        shutil.rmtree(machine.path(job.logs), ignore_errors=True)
    left = leftovers(machines, own)
    for machine in machines:
        machine.heal()
    for pid in set(hosts.processes()) - own:
        os.kill(pid, signal.SIGKILL)
    os.close(job.fifo_fd)
    return plan, job, job.stuck + judge.judge(plan, job, ended, in_files, left), ended


def report(plan, job, ended, verbose):
    print("  exit codes %s after %.1f s" % (ended, job.seconds))
    for rank, lines in job.said.items():
        print("  rank %d: %d lines, the last: %s" % (rank, len(lines), " / ".join(lines[-2:])))
    for node, (_, err) in enumerate(job.outputs):
        for line in err[:200 if verbose else 12]:
            print("  node %d: %s" % (node, line))


def load(path, programs):
    """Returns the counts of earlier runs of the same programs."""
    digest = hashlib.sha256()
    for program in (programs.hvdrun, programs.rank):
        with open(program, "rb") as file:
            digest.update(file.read())
    counts = {"programs": digest.hexdigest(), "cycles": 0, "broken": [], "weak": 0, "faults": {}, "seconds": 0}
    if path and os.path.exists(path):
        with open(path) as file:
            earlier = json.load(file)
        if earlier.get("programs") != counts["programs"]:
            sys.exit("outside.py: %s has counts of other programs" % path)
        return earlier
    return counts


def inside(options):
    programs = SimpleNamespace(hvdrun=os.path.join(options.bin, "hvdrun"),
                               rank=os.path.join(options.bin, "outside_rank"),
                               clock=os.path.join(options.bin, "outside_clock.so"))
    machines = hosts.make(options.work)
    counts = load(options.resume, programs)
    seed = counts.setdefault("first", options.first_seed) + counts["cycles"]
    faults = collections.Counter(counts["faults"])
    began = time.monotonic()
    stop = began + options.minutes * 60 if options.minutes else None
    broken_before = len(counts["broken"])
    for _ in range(options.cycles):
        if stop and time.monotonic() > stop:
            break
        folder = tempfile.mkdtemp(dir=options.work)
        plan, job, broken, ended = cycle(seed, machines, folder, programs)
        shutil.rmtree(folder)
        if broken or options.verbose:
            print("%s%s" % ("BROKEN " if broken else "", plan))
            for line in broken:
                print("  " + line)
            report(plan, job, ended, options.verbose)
            sys.stdout.flush()
        if broken:
            counts["broken"].append(seed)
        counts["weak"] += job.weak
        faults.update(fault.kind for fault in plan.faults if fault.struck and not fault.was_late)
        counts["cycles"] += 1
        counts["faults"] = dict(faults)
        seed += 1
        if options.resume:
            counts["seconds"] += time.monotonic() - began
            began = time.monotonic()
            with open(options.resume + ".new", "w") as file:
                json.dump(counts, file)
            os.replace(options.resume + ".new", options.resume)
    if not options.resume:
        counts["seconds"] = time.monotonic() - began
    print("%d cycles from seed %d in %d s, %d faults (%s), in %d a rank named another or none while the ranks met, "
          "%d broke a promise: %s" % (
              counts["cycles"], counts["first"], counts["seconds"], sum(faults.values()),
              ", ".join("%s %d" % pair for pair in sorted(faults.items())), counts["weak"], len(counts["broken"]),
              counts["broken"]))
    return 1 if len(counts["broken"]) > broken_before else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=os.path.abspath, help="the folder with hvdrun and outside_rank")
    parser.add_argument("--cycles", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="begin no cycle after this time")
    parser.add_argument("--resume", help="a file of counts: go on where the run that wrote it ended")
    parser.add_argument("--verbose", action="store_true", help="report cycles that broke no promise, too")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return inside(options)
    return hosts.run_again()


if __name__ == "__main__":
    sys.exit(main())
