"""One job of the outside tester: hvdruns on the hosts, what they and the ranks say, and their processes."""

import os
import subprocess
import threading
import time

import hosts


class Job:
    """Starts the job that `plan` describes. What the ranks write to the FIFO is in `said`."""

    def __init__(self, plan, machines, folder, programs):
        self.plan = plan
        self.weak = False  # while the ranks still met, one named another rank or none
        self.stuck = []  # what did not happen in time though nothing had been done that keeps it from happening
        self.news = threading.Condition()
        self.said = {rank: [] for rank in range(plan.size)}
        self.fifo = os.path.join(folder, "fifo")
        os.mkfifo(self.fifo)
        # It is opened for reading and writing, so that it has no end of file, however many ranks come and go.
        self.fifo_fd = os.open(self.fifo, os.O_RDWR | os.O_CLOEXEC)
        self.clock = os.path.join(folder, "clock")
        self.set_clock(0)
        secret = os.path.join(folder, "secret")
        with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(os.urandom(32))
        self.first_machine = machines[0]
        self.logs = os.path.join(self.first_machine.tmp, "logs")
        self.runs = []
        self.outputs = []  # of each node the lines of stdout and stderr
        threads = [threading.Thread(target=self._listen, daemon=True)]
        for node, count in enumerate(plan.counts):
            command = [programs.hvdrun] + plan.options
            if plan.output_files and node == 0:
                command += ["--output-filename", self.logs]
            if len(plan.counts) == 1:
                command += ["-np", str(count)]
            else:
                command += ["--nnodes", str(len(plan.counts)), "--node-rank", str(node), "--nproc-per-node",
                            str(count), "--master-addr", machines[0].address, "--master-port", "29500"]
            leaver = plan.leaver
            command += [programs.rank, str(plan.seed), str(plan.rounds), self.fifo,
                        "catches" if plan.catches else "aborts",
                        "%d:%d" % (leaver.victim, leaver.round) if leaver else "-1:-1"]
            environment = {"PATH": os.environ["PATH"], "TMPDIR": machines[node].tmp, "HVD_SECRET_FILE": secret,
                           **plan.environment}
            if "HVD_TIMELINE" in environment:
                environment["HVD_TIMELINE"] = os.path.join(machines[node].tmp, environment["HVD_TIMELINE"])
            if plan.shifts_clock:
                environment.update(LD_PRELOAD=programs.clock, OUTSIDE_CLOCK=self.clock)
            # nsenter executes hvdrun, which so has the pid of this child.
            words = ["env", "-i"] + ["%s=%s" % pair for pair in environment.items()] + command
            run = subprocess.Popen(machines[node].inside(*words), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder)
            self.runs.append(run)
            self.outputs.append([[], []])
            for stream, pipe in enumerate((run.stdout, run.stderr)):
                threads.append(threading.Thread(target=self._read, args=(pipe, self.outputs[node][stream])))
        for thread in threads:
            thread.start()
        self.readers = threads[1:]

    def _read(self, pipe, lines):
        for line in pipe:
            lines.append(line.decode(errors="replace").rstrip("\n"))
        pipe.close()
        with self.news:
            self.news.notify_all()

    def _listen(self):
        rest = b""
        while True:
            *lines, rest = (rest + os.read(self.fifo_fd, 1 << 16)).split(b"\n")
            with self.news:
                for line in lines:
                    rank, _, text = line.decode(errors="replace").partition(" ")
                    if text == "tester ends":
                        return
                    self.said[int(rank)].append(text)
                self.news.notify_all()

    def over(self):
        return all(run.poll() is not None for run in self.runs)

    def begun(self):
        """Returns how often ranks have begun to meet the others."""
        return sum(lines.count("begins") for lines in self.said.values())

    def meeting(self):
        """Returns the ranks that have not met the others yet, or that meet them again."""
        return {rank for rank, lines in self.said.items() if not lines.count("begins") == lines.count("ready") > 0}

    def wait(self, ready, seconds):
        """Waits until `ready()` is true. Returns False if the job ends or the time passes first."""
        deadline = time.monotonic() + seconds
        with self.news:
            while not ready():
                if self.over() or time.monotonic() > deadline:
                    return False
                self.news.wait(0.1)
        return True

    def end(self, seconds):
        """Waits for all hvdruns; returns the exit codes, with None for one that still runs."""
        deadline = time.monotonic() + seconds
        for run in self.runs:
            try:
                run.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
        return [run.returncode for run in self.runs]

    def close(self):
        """Ends what still runs, and the threads."""
        for run in self.runs:
            if run.poll() is None:
                run.kill()
                run.wait()
        for thread in self.readers:
            thread.join(20)
        os.write(self.fifo_fd, b"0 tester ends\n")

    def in_files(self):
        """Returns for each rank the lines that hvdrun has written to the rank's file, or None without files."""
        if not self.plan.output_files:
            return None
        found = {}
        for rank in self.said:
            try:
                with open(self.first_machine.path("%s/rank.%d/stdout" % (self.logs, rank))) as file:
                    found[rank] = file.read().splitlines()
            except OSError:
                found[rank] = None
        return found

    def set_clock(self, seconds):
        """Sets by how much the wall clock of the job's processes is wrong."""
        with open(self.clock, "r+b" if os.path.exists(self.clock) else "wb") as file:
            file.write(int(seconds).to_bytes(8, "little", signed=True))

    def rank_pid(self, rank):
        """Returns the process of a rank, or None."""
        for pid, (name, _) in hosts.processes().items():
            if name != "outside_rank":
                continue
            try:
                with open("/proc/%d/environ" % pid, "rb") as file:
                    if b"HVD_RANK=%d" % rank in file.read().split(b"\0"):
                        return pid
            except OSError:
                pass
        return None

    def agent_pid(self, node):
        """Returns the agent of a node, or None."""
        for pid, (name, parent) in hosts.processes().items():
            if name == "hvdrun-agent" and parent == self.runs[node].pid:
                return pid
        return None
