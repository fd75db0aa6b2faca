#!/usr/bin/env python3
"""An outside attacker and a rank that lies (SECURITY.md), on jobs of two hosts with real processes.

    tests/outside/attack.py build/release/bin                    # each kind of attack, and three lies
    tests/outside/attack.py build/release/bin --lies 100 --first-lie 1000

The attacker is a third host that reaches the ports of the job and has no secret. It replays streams that were recorded
from the wire. The job must go on with the right results. A rank that lies changes one bit of what it sends over streams.
That job must end, on every node, with an error or because all ranks are done, and no rank may crash.
"""

import argparse
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from types import SimpleNamespace

import hosts
import plan as plans
from job import Job
from judge import CRASHES, crashed
from outside import leftovers

PATIENCE = 120
MASTER_PORT = 29500
KINDS = ["silent", "slow", "garbage", "truncated", "replay"]
MOST_GROWTH = 64 << 10  # KiB of memory that an hvdrun may take for strangers


class Recorder(threading.Thread):
    """Records what a host sends over TCP, from the bridge."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind((port, 0))
        self.socket.settimeout(0.2)
        self.streams = {}  # by addresses and ports: sequence number to bytes
        self.over = threading.Event()

    def run(self):
        while not self.over.is_set():
            try:
                packet = self.socket.recv(65536)
            except OSError:
                continue
            if packet[12:14] != b"\x08\x00" or packet[23] != socket.IPPROTO_TCP:
                continue
            ip = packet[14:14 + struct.unpack(">H", packet[16:18])[0]]
            tcp = ip[(ip[0] & 15) * 4:]
            data = tcp[(tcp[12] >> 4) * 4:]
            pieces = self.streams.setdefault(ip[12:20] + tcp[:4], {})
            if data and len(pieces) < 20:
                pieces.setdefault(struct.unpack(">I", tcp[4:8])[0], data)

    def recorded(self, most):
        """Returns the beginnings of the streams that clients have sent."""
        self.over.set()
        self.join()
        self.socket.close()
        streams = [b"".join(data for _, data in sorted(pieces.items())) for pieces in self.streams.values()]
        return [stream for stream in streams if stream.startswith(b"hvd!\x01\x00\x01\x00")][:most]


def listeners(machine):
    """Returns the addresses at which a host listens, as a scan of its ports from another host would."""
    found = []
    with open("/proc/%d/net/tcp" % machine.pid) as file:
        for line in file.readlines()[1:]:
            _, local, _, state = line.split()[:4]
            address, port = (int(word, 16) for word in local.split(":"))
            if state == "0A" and socket.inet_ntoa(struct.pack("=I", address)) in ("0.0.0.0", machine.address):
                found.append("%s:%d" % (machine.address, port))
    return found


def attack(machine, kind, seconds, targets, recorded):
    command = machine.inside(sys.executable, "-B", os.path.join(os.path.dirname(__file__), "attacker.py"), kind,
                             str(seconds), *targets)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdin.write("\n".join(stream.hex() for stream in recorded))
    process.stdin.close()
    process.stdin = None
    return process


def memory(pid):
    with open("/proc/%d/status" % pid) as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def make_plan(seed, rounds):
    plan = plans.Plan(seed, counts=[2, 2], rounds=rounds)
    plan.options = ["--host-timeout", str(plans.HOST_TIMEOUT), "--bind-to", "none", "--grace", "2"]
    plan.environment = {"HVD_PEER_TIMEOUT_MS": str(plans.PEER_TIMEOUT), "OMP_NUM_THREADS": "1",
                        "HVD_STALL_ABORT_S": "5"}
    return plan


def finish(job, machines, own):
    """Ends the job; returns its exit codes and what it has left."""
    ended = job.end(PATIENCE)
    job.close()
    left = leftovers(machines, own)
    for pid in set(hosts.processes()) - own:
        os.kill(pid, signal.SIGKILL)
    os.close(job.fifo_fd)
    return ended, left


def judge_attack(kind, output, targets, still):
    """Returns what an attacker did not reach, or should not have; `still` are the ports that are open after it."""
    made, answered, payloads, *missed = (output or "0 0 0").split()
    what = "read to the end" if kind == "slow" else "answered"
    print("%s: %s connections to %d ports, %s of them %s" % (kind, made, len(targets), answered, what))
    # A port that was closed meanwhile may have got less, but some have to be open all the time.
    open_throughout = set(targets) & set(still)
    broken = ["%s: %s did not get all %s payloads" % (kind, target, payloads)
              for target in missed if target in open_throughout]
    if int(made) == 0 or not open_throughout:
        broken.append("%s: nothing was sent to a port that stayed open" % kind)
    if kind == "slow" and int(answered):
        broken.append("slow: servers took %s hellos that lasted longer than the limit" % answered)
    return broken


def under_attack(machines, folder, programs, seconds):
    """Attacks a job from before its start until its end; returns the promises that it has broken."""
    own = set(hosts.processes())
    first = attack(machines[2], "silent", PATIENCE, ["%s:%d" % (machines[0].address, MASTER_PORT)], [])
    recorder = Recorder(machines[1].port)
    recorder.start()
    job = Job(make_plan(7, 1_000_000), machines, folder, programs)
    broken = []
    if not job.wait(lambda: all("round 0" in lines for lines in job.said.values()), PATIENCE):
        broken.append("the job did not start while strangers held connections open")
    first.kill()
    first.communicate()
    recorded = recorder.recorded(8)
    before = [memory(run.pid) for run in job.runs if run.poll() is None]
    for kind in KINDS:
        targets = listeners(machines[0]) + listeners(machines[1])
        attacker = attack(machines[2], kind, seconds, targets, recorded)
        try:
            output, _ = attacker.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            attacker.kill()
            attacker.communicate()
            output = ""  # which says that nothing was sent
        broken += judge_attack(kind, output, targets, listeners(machines[0]) + listeners(machines[1]))
        if job.over():
            broken.append("the job has ended during %s" % kind)
            break
    after = [memory(run.pid) for run in job.runs if run.poll() is None]
    broken += ["an hvdrun grew from %d to %d KiB" % pair for pair in zip(before, after) if pair[1] > pair[0] + MOST_GROWTH]
    reached = {rank: len(lines) for rank, lines in job.said.items()}
    if not job.wait(lambda: all(len(lines) > reached[rank] for rank, lines in job.said.items()), PATIENCE):
        broken.append("the job stands still after the attacks")
    said = [(rank, line) for rank, lines in job.said.items() for line in lines]
    if not job.over():
        job.runs[0].send_signal(signal.SIGINT)
    ended, left = finish(job, machines, own)
    broken += left
    if ended != [130, 130]:
        broken.append("hvdrun exits with %s" % ended)
    broken += ["rank %d: %s" % pair for pair in said if pair[1].startswith(("wrong", "error", "exception"))]
    return broken, job


def is_told(job):
    """Tells whether a rank of the job has lied."""
    return any("the liar lies" in line for _, err in job.outputs for line in err)


def under_a_lie(machines, folder, programs, seed):
    """Lets one rank change one bit; returns the promises that the job has broken."""
    draw = random.Random(seed)
    own = set(hosts.processes())
    plan = make_plan(seed, 30)
    plan.environment["LD_PRELOAD"] = programs.liar
    plan.environment["OUTSIDE_LIAR"] = "%d:%d:%d" % (draw.randrange(plan.size), draw.randrange(draw.choice([20, 400])),
                                                     draw.randrange(1 << 20))
    job = Job(plan, machines, folder, programs)
    ended, left = finish(job, machines, own)
    broken = left + ["node %d: hvdrun does not end" % node for node, code in enumerate(ended) if code is None]
    done = [rank for rank, lines in job.said.items() if "done" in lines]
    if all(code == 0 for code in ended) and len(done) < plan.size:
        broken.append("hvdrun exits with 0, but only ranks %s are done" % done)
    for node, code in enumerate(ended):
        if code and not any("hvdrun: " in line for line in job.outputs[node][1]):
            broken.append("node %d: exit code %d and no error" % (node, code))
        if code and (code < 0 or code - 128 in CRASHES):
            broken.append("node %d: exit code %d" % (node, code))
        # The exit code may be that of another rank than the one that crashed.
        broken += ["node %d: %s" % (node, line) for line in job.outputs[node][1] if crashed(plan, line) is not None]
    told = is_told(job)
    print("lie %d (%s): %s, exit codes %s" % (seed, plan.environment["OUTSIDE_LIAR"],
                                              "told" if told else "not told", ended))
    return broken, job


def inside(options):
    programs = SimpleNamespace(hvdrun=os.path.join(options.bin, "hvdrun"),
                               rank=os.path.join(options.bin, "outside_rank"),
                               liar=os.path.join(options.bin, "outside_liar.so"))
    machines = hosts.make(options.work)
    cycles = [lambda folder: under_attack(machines, folder, programs, options.seconds)]
    for seed in range(options.first_lie, options.first_lie + options.lies):
        cycles.append(lambda folder, seed=seed: under_a_lie(machines, folder, programs, seed))
    failures = told = 0
    for cycle in cycles:
        folder = tempfile.mkdtemp(dir=options.work)
        broken, job = cycle(folder)
        shutil.rmtree(folder)
        failures += bool(broken)
        told += is_told(job)
        for line in broken:
            print("BROKEN " + line)
        if broken:
            for node, (_, err) in enumerate(job.outputs):
                print("\n".join("  node %d: %s" % (node, line) for line in err[:30]))
            for rank, lines in job.said.items():
                print("  rank %d: %s" % (rank, " / ".join(lines[-3:])))
        sys.stdout.flush()
    if options.lies and not told:
        # Then messages may no longer be sent by the function that liar.cpp replaces. Lie 2 changes the third message of
        # rank 0, which every rank sends to meet the others, so one of the suite's lies is always told.
        print("BROKEN none of the %d lies was told" % options.lies)
        failures += 1
    print("%d jobs, %d broke a promise" % (len(cycles), failures))
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=os.path.abspath, help="the folder with hvdrun and outside_rank")
    parser.add_argument("--seconds", type=float, default=0.5, help="at least, of each kind of attack")
    parser.add_argument("--lies", type=int, default=3)
    parser.add_argument("--first-lie", type=int, default=1)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return inside(options)
    return hosts.run_again()


if __name__ == "__main__":
    sys.exit(main())
