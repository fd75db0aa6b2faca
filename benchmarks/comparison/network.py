"""Makes two hosts on one machine, as network namespaces with a veth pair that tc slows down."""
import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import tempfile
import time

from comparison import contenders
from comparison.contenders import Contender
from comparison.processes import Failed, Start

HOSTS = 2
RATES = ("1gbit", "10gbit", "none")
SECONDS = 2  # the time that iperf3 measures in each round
BURST = {"1gbit": "128kb", "10gbit": "1mb"}  # tbf must hold the rate between two ticks
PREFIX = "hvd-compare-"


def call(*command):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=30, check=False)
    except subprocess.SubprocessError as error:
        raise Failed(str(error)) from error
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def missing():
    """Returns what this machine lacks for two hosts, or an empty text."""
    if os.geteuid() != 0:
        return "two hosts need root"
    for program in ("ip", "tc", "unshare"):
        if not shutil.which(program):
            return f"two hosts need {program}"
    return ""


class Hosts:
    """The namespaces `hvd-compare-<pid>-<host>`. Host h has address 10.77.0.<h + 1>."""

    def __init__(self, rate):
        self.names = [f"{PREFIX}{os.getpid()}-{host}" for host in range(HOSTS)]
        self.rate = rate

    def interface(self, host):
        return f"hvdcmp{host}"

    def address(self, host):
        return f"10.77.0.{host + 1}"

    def inside(self, host, command):
        """Returns the command that runs `command` on this host."""
        return ["ip", "netns", "exec", self.names[host], *command]

    def __enter__(self):
        remove_stale()
        try:
            for name in self.names:
                call("ip", "netns", "add", name)
            call("ip", "link", "add", self.interface(0), "netns", self.names[0], "type", "veth",
                 "peer", "name", self.interface(1), "netns", self.names[1])
            for host, name in enumerate(self.names):
                device = self.interface(host)
                call("ip", "-n", name, "addr", "add", self.address(host) + "/24", "dev", device)
                call("ip", "-n", name, "link", "set", "lo", "up")
                call("ip", "-n", name, "link", "set", device, "up")
                if self.rate != "none":
                    call("tc", "-n", name, "qdisc", "add", "dev", device, "root", "tbf", "rate",
                         self.rate, "burst", BURST[self.rate], "latency", "50ms")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            remove(name)


def remove(name):
    """Kills the processes in the namespace, and removes it with its devices."""
    with contextlib.suppress(Failed):
        for pid in call("ip", "netns", "pids", name).split():
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
    with contextlib.suppress(Failed):
        call("ip", "netns", "del", name)


def remove_stale():
    """Removes the namespaces of comparisons that were killed."""
    for line in call("ip", "netns", "list").splitlines():
        name = line.split()[0]
        if name.startswith(PREFIX) and not os.path.exists(f"/proc/{name.split('-')[2]}"):
            remove(name)


@contextlib.contextmanager
def background(command, needle, patience=20):
    """Starts a server, which is ready once its output has `needle`. Yields that line, and ends the
    server afterwards."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as server:
        try:
            seen, deadline = "", time.monotonic() + patience
            while not (found := [line for line in seen.splitlines() if needle in line]):
                left = max(deadline - time.monotonic(), 0)
                ready = select.select([server.stdout], [], [], left)[0]
                piece = os.read(server.stdout.fileno(), 4096) if ready else b""
                if not piece:
                    raise Failed(f"{' '.join(command)} did not start: {seen.strip()}")
                seen += piece.decode(errors="replace")
            yield found[0]
        finally:
            server.kill()


def iperf3_rate(on_server, on_client, address):
    """Returns the bytes per second of the slower direction while both directions are used."""
    port = str(contenders.free_port())
    server = on_server(["iperf3", "-s", "-1", "-p", port, "--forceflush"])
    with background(server, "Server listening"):
        client = on_client(["iperf3", "-c", address, "-p", port, "--bidir", "-t", str(SECONDS),
                            "-O", "1", "-J"])
        try:
            done = subprocess.run(client, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=SECONDS + 30, check=False)
        except subprocess.SubprocessError as error:
            raise Failed(str(error)) from error
    try:
        end = json.loads(done.stdout)["end"]
        ways = [end["sum_received"], end["sum_received_bidir_reverse"]]
        return min(way["bits_per_second"] for way in ways) / 8
    except (ValueError, KeyError) as error:
        raise Failed(f"iperf3: {done.stdout[-200:]}{done.stderr[-200:]}") from error


def bound_rows(rate, sizes, ranks, hosts):
    """Returns the rows that the link allows. 2(h−1)/h of the bytes leave and reach each of h hosts
    once."""
    rows = []
    for size in sizes:
        us = 1e6 * 2 * (hosts - 1) / hosts * size / rate
        algbw = size / us / 1e3
        rows.append({
            "op": "allreduce", "bytes": size, "count": size // 4, "dtype": "f32", "redop": "sum",
            "backend": f"iperf3 --bidir, {8 * rate / 1e9:.2f} Gbit/s each way", "ranks": ranks,
            "p50_us": us, "p99_us": us, "algbw_gbs": algbw,
            "busbw_gbs": algbw * 2 * (ranks - 1) / ranks, "wrong": 0,
        })
    return rows


def ours(setup, hosts, place):
    """Yields hvd. Its ranks are started by hand on both hosts."""
    bench = contenders.built(setup.bin_dir, "hvd_bench")
    server = contenders.built(setup.bin_dir, "store_server")
    local = setup.ranks // HOSTS
    secret = os.path.join(setup.folder, "secret")
    with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(secrets.token_bytes(32))

    def starts(extra, options, rows):
        job = f"compare-{secrets.token_hex(8)}"
        command = hosts.inside(0, [server, "--listen", f"tcp:{hosts.address(0)}:0", "--job", job,
                                   "--secret-file", secret])
        store = setup.stack.enter_context(background(command, "tcp:")).strip()
        return [
            Start(place(rank, [bench, "allreduce", *extra, *options, "--op", "sum", "--dtype",
                               setup.dtype, "--json", rows]), {
                "HVD_RANK": str(rank), "HVD_SIZE": str(setup.ranks),
                "HVD_LOCAL_RANK": str(rank % local), "HVD_LOCAL_SIZE": str(local),
                "HVD_CROSS_RANK": str(rank // local), "HVD_CROSS_SIZE": str(HOSTS),
                "HVD_JOB_ID": job, "HVD_STORE": store, "HVD_SECRET_FILE": secret,
                "HVD_NETWORK_INTERFACES": hosts.interface(rank // local), "OMP_NUM_THREADS": "1"})
            for rank in range(setup.ranks)]

    for who in ("hvd-arena", "hvd-private"):
        yield Contender(
            who,
            lambda options, rows, extra=who.replace("hvd", "-"): starts([extra], options, rows),
            needs="" if bench and server else "the build has no hvd_bench or no store_server",
            uncertain=who == "hvd-arena",
        )


def open_mpi(setup, hosts):
    """Yields Open MPI. Its mpirun reaches the other host through a script that replaces ssh."""
    agent = os.path.join(setup.folder, "agent")
    cases = "\n".join(f"  {hosts.address(h)}) space={hosts.names[h]} name=compare-{h} ;;"
                      for h in range(HOSTS))
    with open(os.open(agent, os.O_WRONLY | os.O_CREAT, 0o700), "w", encoding="utf-8") as file:
        file.write(f"""#!/bin/sh
# agent HOST COMMAND...: runs it on this host, under a host name of its own
case $1 in
{cases}
  *) exit 69 ;;
esac
shift
exec ip netns exec "$space" unshare --uts sh -c 'hostname "$0" && exec sh -c "$1"' "$name" "$*"
""")
    slots = ",".join(f"{hosts.address(h)}:{setup.ranks // HOSTS}" for h in range(HOSTS))
    bench = contenders.built(setup.bin_dir, "mpi_bench")
    network = hosts.address(0).rpartition(".")[0] + ".0/24"
    tuned, text = contenders.tuned_open_mpi(setup)

    def starts(options, rows):
        command = ["mpirun", "-H", slots, "-np", str(setup.ranks), "--bind-to", "none",
                   "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", agent,
                   "--mca", "oob_tcp_if_include", network, "--mca", "btl", "tcp,vader,self",
                   "--mca", "pml", "ob1", "--mca", "btl_tcp_if_include", network,
                   *(f for name in tuned for f in ("-x", name)), bench, *options, "--json", rows]
        quoted = " ".join(f"'{word}'" for word in command)
        return [Start([agent, hosts.address(0), quoted],
                      {**contenders.OPEN_MPI, **tuned})]

    yield Contender("openmpi-tuned", starts, needs=contenders.open_mpi_missing(setup.bin_dir),
                    setting=f"TCP between the hosts, {text}")


@contextlib.contextmanager
def two_hosts(setup):
    """Yields all contenders, with half of the ranks on each of two hosts."""
    local = setup.ranks // HOSTS
    with Hosts(setup.rate) as hosts:
        setup.hosts = hosts

        def place(rank, command):
            return hosts.inside(rank // local, command)

        # Each host's end of the link has another interface name, which these libraries need for
        # each rank. So `named` replaces @IF@ in a command by the name on the rank's host.
        def named(rank, command):
            return place(rank, [word.replace("@IF@", hosts.interface(rank // local))
                                for word in command])

        def for_c10d(rank, command):
            return named(rank, ["env", "GLOO_SOCKET_IFNAME=@IF@", *command])

        yield [*ours(setup, hosts, place), *open_mpi(setup, hosts),
               *contenders.gloo(setup, "@IF@", named),
               *contenders.c10d(setup, hosts.address(0), "", lambda: 29_577, for_c10d)]
