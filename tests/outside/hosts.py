"""Up to 16 hosts on one machine. Each has its own network, name, mounts and monotonic clock; a bridge
connects them. All processes are in one process namespace, in which the tester sees them."""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile

NAMES = "abcdefghijklmnop"
FREEZE, THAW = 0xC0045877, 0xC0045878  # FIFREEZE and FITHAW of linux/fs.h, for a whole file system
UNSHARE = ["unshare"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
ALONE = UNSHARE + ["--pid", "--fork", "--kill-child", "--mount-proc", "--mount", "--net", "--uts"]
# The shell stays: as process 1 it inherits orphans, and reaps them while it waits.
STAY = ["sh", "-c", '"$@"; exit $?', "sh"]

# Makes a host; its arguments are the name, the address, a folder that becomes its temporary one, and a file that
# becomes the disk of that folder. Without loop devices the folder is in memory.
INIT = """
set -e
hostname "$1"
mount -t tmpfs -o size=256m none /dev/shm
if mkfs.ext4 -q -m 0 -O ^has_journal "$4" 16m && mount -o loop "$4" "$3"; then
  rmdir "$3/lost+found"
else
  mount -t tmpfs -o size=16m none "$3"
fi > /dev/null 2>&1
ip link set lo up
echo up
read go
ip address add "$2/24" dev eth0
ip link set eth0 up
echo ready
exec sleep infinity
"""


def run(*command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def missing():
    """Returns what this machine lacks; empty: nothing."""
    probe = ("ip link add br0 type bridge && ip link add x type veth peer name y && mount -t tmpfs none /mnt"
             " && tc qdisc add dev x root tbf rate 1mbit burst 64kb latency 50ms")
    command = ALONE + ["--time", "--monotonic", "9"] + STAY + ["sh", "-c", probe]
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    except FileNotFoundError as error:
        return error.filename
    return "" if result.returncode == 0 else "namespaces with veth, bridge, tbf and mounts"


def process(pid):
    """Returns name, parent and state of a process, or None."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            text = file.read()
    except OSError:
        return None
    name = text[text.index("(") + 1:text.rindex(")")]
    state, parent = text[text.rindex(")") + 2:].split()[:2]
    return name, int(parent), state


def processes():
    """Returns the table of the processes of this namespace that have not ended: pid to name and parent."""
    found = {int(entry): process(int(entry)) for entry in os.listdir("/proc") if entry.isdigit()}
    return {pid: each[:2] for pid, each in found.items() if each and each[2] not in "ZX"}


class Host:
    def __init__(self, index, work):
        self.name = NAMES[index]
        self.address = "10.77.0.%d" % (index + 1)
        self.port = "veth_" + self.name  # of the bridge
        self.tmp = os.path.join(work, "tmp_" + self.name)
        os.mkdir(self.tmp)
        clock = str(index * 100000)  # each host was started at another time
        self.init = subprocess.Popen(
            UNSHARE[:1] + ["--net", "--uts", "--mount", "--ipc", "--time", "--monotonic", clock,
                           "--boottime", clock, "--fork", "--kill-child", "sh", "-c", INIT, "init", self.name,
                           self.address, self.tmp, self.tmp + ".disk"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.init.stdout.readline() == "up\n"
        self.pid = next(pid for pid, (_, parent) in processes().items() if parent == self.init.pid)
        run("ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid))
        run("ip", "link", "set", self.port, "master", "br0", "up")
        self.init.stdin.write("go\n")
        self.init.stdin.flush()
        assert self.init.stdout.readline() == "ready\n"

    def inside(self, *command):
        return ["nsenter", "-t", str(self.pid), "-n", "-u", "-m", "-i", "-T", *command]

    def path(self, name):
        """Returns the name by which this process reaches a file of the host."""
        return "/proc/%d/root%s" % (self.pid, name)

    def cut(self, how):
        """Disconnects the host; "mute": it still receives."""
        if how == "unplugged":
            run("ip", "link", "set", self.port, "down")
        elif how == "silent":
            run("ip", "link", "set", self.port, "nomaster")
        else:
            for index in range(len(NAMES)):
                if NAMES[index] != self.name:
                    run(*self.inside("ip", "route", "add", "blackhole", "10.77.0.%d/32" % (index + 1)))

    def slow(self, megabits):
        run("tc", "qdisc", "replace", "dev", self.port, "root", "tbf", "rate", "%dmbit" % megabits, "burst", "64kb",
            "latency", "200ms")

    @contextlib.contextmanager
    def stalled_disk(self):
        """Makes all that write to the temporary folder wait. Throws OSError if the folder is in memory."""
        folder = os.open(self.path(self.tmp), os.O_RDONLY)
        try:
            fcntl.ioctl(folder, FREEZE, 0)
            try:
                yield
            finally:
                fcntl.ioctl(folder, THAW, 0)
        finally:
            os.close(folder)

    def heal(self):
        subprocess.run(self.inside("ip", "route", "flush", "type", "blackhole"), stderr=subprocess.DEVNULL)
        subprocess.run(["tc", "qdisc", "del", "dev", self.port, "root"], stderr=subprocess.DEVNULL)
        run("ip", "link", "set", self.port, "master", "br0", "up")

    def left(self):
        """Lists the sockets and files that a job has left here."""
        with open("/proc/%d/net/unix" % self.pid) as file:
            lines = ["socket " + line.split()[-1] for line in file if "@" in line or "/" in line]
        with open("/proc/%d/net/tcp" % self.pid) as file:
            lines += ["listener " + line for line in file if line.split()[3] == "0A"]
        for folder in ("/dev/shm", self.tmp):
            lines += ["%s/%s" % (folder, name) for name in os.listdir(self.path(folder))]
        return ["%s: %s" % (self.name, line) for line in lines]


def make(work, count=3):
    run("ip", "link", "add", "br0", "type", "bridge")
    run("ip", "link", "set", "br0", "up")
    return [Host(index, work) for index in range(count)]


def stop_ignoring():
    """Lets signals end what this process starts. In the background it may ignore some of them, as under nohup, and
    hvdrun would go on ignoring them."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def run_again():
    """Runs this program again, with --work FOLDER, where it can make hosts. Returns its exit code, 77 if it cannot."""
    lacks = missing()
    if lacks:
        print("skipped: needs " + lacks)
        return 77
    work = tempfile.mkdtemp(prefix="outside-")
    try:
        return subprocess.run(ALONE + STAY + [sys.executable] + sys.argv + ["--work", work],
                              stdin=subprocess.DEVNULL, preexec_fn=stop_ignoring).returncode
    finally:
        shutil.rmtree(work, ignore_errors=True)
