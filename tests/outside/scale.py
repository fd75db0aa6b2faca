#!/usr/bin/env python3
"""A job of many real ranks on several hosts of this machine, without LibTorch.

    tests/outside/scale.py build/release/bin --ranks 1024

One job starts, freezes its schedule, runs steps and ends; another loses a rank by SIGKILL after its steps. It prints a
line of Markdown: seconds and rank 0's control messages until the start and the freeze and in the steps, messages of the
store until the start, packets of the first host, memory, and how long it took until every hvdrun had ended after the
loss.
"""

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time

import hosts
from outside import leftovers

LINE = re.compile(r"(started|frozen|ran) steps (\d+) seconds ([\d.]+) sent (\d+) received (\d+)")


def available():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) / 2**20


def packets(machine):
    with open("/proc/%d/net/dev" % machine.pid) as file:
        words = next(line for line in file if "eth0:" in line).split(":")[1].split()
    return int(words[1]) + int(words[9])


def messages_of_store(machine):
    """Returns how many TCP segments with data the agent of the first host, which has the store, has received and sent:
    each request and each small reply is sent at once and fits into one; a list of many addresses takes several."""
    own = os.readlink("/proc/%d/ns/net" % machine.pid)
    agent = next(pid for pid, (name, _) in hosts.processes().items()
                 if name == "hvdrun-agent" and os.readlink("/proc/%d/ns/net" % pid) == own)
    files = set()
    for file in os.listdir("/proc/%d/fd" % agent):
        with contextlib.suppress(FileNotFoundError):  # it has closed that file since
            files.add(os.readlink("/proc/%d/fd/%s" % (agent, file)))
    # `ss -p` would look for the processes of all sockets first, and 2,048 ranks can have ended when it has found them.
    lines = subprocess.run(machine.inside("ss", "-Htine"), check=True, stdout=subprocess.PIPE, text=True).stdout
    of_agent = [line for inode, line in re.findall(r"\bino:(\d+)\b.*\n(.*)", lines) if "socket:[%s]" % inode in files]
    return [sum(int(number) for line in of_agent for number in re.findall(r"\bdata_segs_%s:(\d+)" % way, line))
            for way in ("in", "out")]


class Nodes:
    """hvdrun in node mode on every host. `on_line` gets each line of node 0's output."""

    def __init__(self, machines, programs, per_host, arguments, folder, on_line):
        secret = os.path.join(folder, "secret")
        if not os.path.exists(secret):
            with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(os.urandom(32))
        self.lines = []
        self.runs = []
        for index, machine in enumerate(machines):
            # So many processes keep one another waiting for longer than a rank that trains may be silent. The
            # default of ten heartbeats a second from each of 2,048 ranks would take all time of two cores.
            words = ["env", "-i", "PATH=" + os.environ["PATH"], "TMPDIR=" + machine.tmp, "HVD_SECRET_FILE=" + secret,
                     "HVD_PEER_TIMEOUT_MS=300000", "HVD_HEARTBEAT_INTERVAL_MS=5000", "HVD_START_TIMEOUT=300",
                     "OMP_NUM_THREADS=1",
                     programs + "/hvdrun", "--nnodes", str(len(machines)), "--node-rank", str(index),
                     "--nproc-per-node", str(per_host), "--master-addr", machines[0].address, "--bind-to", "none",
                     "--start-timeout", "300", "--host-timeout", "300", programs + "/outside_scale_rank"]
            self.runs.append(subprocess.Popen(machine.inside(*words, *map(str, arguments)), stdin=subprocess.DEVNULL,
                                              stdout=subprocess.PIPE if index == 0 else subprocess.DEVNULL,
                                              stderr=subprocess.STDOUT if index == 0 else subprocess.DEVNULL,
                                              text=True, errors="replace"))
        self.reader = threading.Thread(target=self._read, args=(on_line,))
        self.reader.start()

    def _read(self, on_line):
        for line in self.runs[0].stdout:
            self.lines.append(line.rstrip("\n"))
            on_line(self.lines[-1])

    def end(self, deadline):
        """Returns the exit codes; an hvdrun that still runs is killed, and has None."""
        codes = []
        for run in self.runs:
            try:
                codes.append(run.wait(max(0.1, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                run.kill()
                run.wait()
                codes.append(None)
        self.reader.join()
        return codes


def rank_pid(rank):
    for pid, (name, _) in hosts.processes().items():
        if name != "outside_scale_r":  # the kernel keeps 15 characters
            continue
        with open("/proc/%d/environ" % pid, "rb") as file:
            if b"HVD_RANK=%d" % rank in file.read().split(b"\0"):
                return pid
    return None


def inside(options):
    machines = hosts.make(options.work, options.hosts)
    per_host = options.ranks // len(machines)
    free, least, phases, marks = available(), available(), {}, {}

    def on_line(line):
        nonlocal least
        found = LINE.search(line)
        if found:
            least = min(least, available())
            marks[found.group(1)] = packets(machines[0])
            if found.group(1) == "started":
                marks["store"] = messages_of_store(machines[0])
            phases[found.group(1)] = found.groups()[1:]
            print(line, file=sys.stderr, flush=True)  # so that one sees progress in a long run

    own = set(hosts.processes())
    before = packets(machines[0])
    began = time.monotonic()
    job = Nodes(machines, options.bin, per_host, [options.steps], options.work, on_line)
    ended = job.end(began + options.patience)
    whole = time.monotonic() - began
    is_counted = len(phases) == 3 and 0 not in marks["store"]
    if any(code != 0 for code in ended) or not is_counted or any("wrong" in line for line in job.lines):
        print("\n".join(job.lines[:20] + job.lines[-20:]))
        print("the job ended with %s" % ended)
        return 1

    struck = []

    def kill(line):
        found = LINE.search(line)
        if found and found.group(1) == "ran":
            struck.append(time.monotonic())
            os.kill(rank_pid(options.ranks // 2), signal.SIGKILL)

    job = Nodes(machines, options.bin, per_host, [10, "until-lost"], options.work, kill)
    ended = job.end(time.monotonic() + options.patience)
    over = time.monotonic() - struck[0] if struck else 0
    told = [line for line in job.lines if re.search(r"\blost -?\d+$", line)]
    right = [line for line in told if line.endswith("lost %d" % (options.ranks // 2))]
    left = leftovers(machines, own)
    print("| ranks | start s | freeze s | steps | s | control messages of rank 0: start, freeze, steps | "
          "messages of the store: in, out | packets of the first host: start, freeze, steps | GiB | whole job s | "
          "after a kill s | survivors that name it |")
    print("| %d | %s | %s | %s | %s | %s | %d, %d | %s | %.1f | %.0f | %.1f | %d of %d |" % (
        options.ranks, phases["started"][1], phases["frozen"][1], phases["ran"][0], phases["ran"][1],
        ", ".join("%s/%s" % phases[phase][2:] for phase in ("started", "frozen", "ran")),
        *marks["store"], ", ".join(str(marks[phase] - before) for phase in ("started", "frozen", "ran")),
        free - least, whole, over, len(right), options.ranks - 1))
    wrong = [line for line in job.lines if "wrong" in line] + [line for line in told if line not in right]
    if set(ended) != {137} or len(right) != options.ranks - 1 or wrong or left:
        print("\n".join(job.lines[-20:] + wrong[:5] + left[:5]))
        print("the job with a loss ended with %s" % ended)
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=os.path.abspath, help="the folder with hvdrun and outside_scale_rank")
    parser.add_argument("--ranks", type=int, default=1024, help="a multiple of --hosts")
    parser.add_argument("--hosts", type=int, default=8, help="at most %d" % len(hosts.NAMES))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--patience", type=float, default=2400, help="seconds that a job may take")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not 1 <= options.hosts <= len(hosts.NAMES) or options.ranks % options.hosts:
        parser.error("--ranks %d on --hosts %d" % (options.ranks, options.hosts))
    if options.work:
        return inside(options)
    return hosts.run_again()


if __name__ == "__main__":
    sys.exit(main())
