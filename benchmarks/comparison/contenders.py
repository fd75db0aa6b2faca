"""Finds the contenders on one host. For each that cannot be measured, it gives the reason."""
import contextlib
import dataclasses
import os
import shutil
import socket
import subprocess
import tempfile
from typing import Callable

from comparison.processes import Start

PEERS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "peers")

OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
ONECCL = {"CCL_ATL_TRANSPORT": "ofi", "CCL_PROCESS_LAUNCHER": "none"}
# Without these, glibc gets memory for large messages from the system and returns it in each call.
KEEP_MEMORY = {
    "MALLOC_TOP_PAD_": str(256 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
}


@dataclasses.dataclass
class Contender:
    """A library or a bound that is measured. `starts(options, rows)` returns the processes to
    start, where `options` are those of the measuring programs and rank 0 writes the file `rows`.
    `needs` says what is missing, and is empty when nothing is. `setting` says how it was run, for
    the reader of the table. If it is `uncertain`, a trial run shows whether it works, because not
    every engine has an arena."""

    who: str
    starts: Callable = None
    needs: str = ""
    setting: str = ""
    uncertain: bool = False


def cores():
    return len(os.sched_getaffinity(0))


def output_of(command):
    """Returns the output of the command, and whether its exit status is 0."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return "", False
    return done.stdout + done.stderr, done.returncode == 0


def free_port(address="127.0.0.1"):
    with socket.socket() as chooser:
        chooser.bind((address, 0))
        return chooser.getsockname()[1]


def built(bin_dir, name):
    path = os.path.join(os.path.abspath(bin_dir), name)
    return path if os.access(path, os.X_OK) else None


def torch_missing(python):
    """Returns why this Python cannot run c10d over gloo, or an empty text if it can."""
    check = "import torch.distributed as d; assert d.is_gloo_available()"
    return "" if output_of([python, "-c", check])[1] else f"{python} cannot import torch with gloo"


def horovod_missing(python):
    """Returns why this Python cannot run Horovod's allreduce of PyTorch tensors on the host, or an
    empty text if it can."""
    check = "import horovod.torch as h; assert h.gloo_built() or h.mpi_built()"
    if output_of([python, "-c", check])[1]:
        return ""
    return f"{python} cannot import horovod.torch with gloo or MPI"


def bounds(setup):
    bench = built(setup.bin_dir, "bench_bounds")
    for kind in ("arena", "private"):
        yield Contender(
            f"bound-{kind}",
            lambda options, rows, kind=kind: [
                Start([bench, kind, "--np", str(setup.ranks), "--timeout", str(setup.timeout),
                       *(["--bind"] if setup.bind else []), *options, "--json", rows])],
            needs="" if bench else "the build has no bench_bounds",
            setting="each process on a core of its own" if setup.bind else "",
        )


def ours(setup, environment=None, names=("hvd-arena", "hvd-private")):
    bench = built(setup.bin_dir, "hvd_bench")
    hvdrun = built(setup.bin_dir, "hvdrun")
    # By default hvdrun would bind its ranks, and nobody binds those of the bounds and of gloo.
    binding = [] if setup.bind else ["--bind-to", "none"]
    for who in names:
        extra = [who.replace("hvd", "-")]
        yield Contender(
            who,
            lambda options, rows, extra=extra: [
                Start([hvdrun, "-np", str(setup.ranks), *binding, bench, "allreduce", *extra,
                       *options, "--op", "sum", "--dtype", setup.dtype, "--json", rows],
                      environment or {})],
            needs="" if bench and hvdrun else "the build has no hvdrun or no hvd_bench",
            setting="bound by hvdrun" if setup.bind else "",
            uncertain=who != "hvd-private",
        )


def open_mpi_missing(bin_dir):
    if not shutil.which("mpirun"):
        return "no mpirun"
    if "Open MPI" not in output_of(["mpirun", "--version"])[0]:
        return "mpirun is not Open MPI's"
    return "" if built(bin_dir, "mpi_bench") else "the build has no mpi_bench"


def tuned_open_mpi(setup):
    """Returns the environment of a tuned Open MPI, and its description."""
    idle = {"OMPI_MCA_mpi_yield_when_idle": "1"} if setup.ranks >= cores() else {}
    tuned = {**KEEP_MEMORY, **idle}
    return tuned, ", ".join(name.replace("OMPI_MCA_", "") for name in tuned)


def open_mpi(setup, extra=()):
    """Yields Open MPI with its defaults, and tuned."""
    needs = open_mpi_missing(setup.bin_dir)
    bench = built(setup.bin_dir, "mpi_bench")
    tuned, text = tuned_open_mpi(setup)
    for who, environment, setting in (("openmpi", {}, ""), ("openmpi-tuned", tuned, text)):
        yield Contender(
            who,
            lambda options, rows, environment=environment: [
                Start(["mpirun", "--oversubscribe", *extra, "-np", str(setup.ranks), bench,
                       *options, "--json", rows], {**OPEN_MPI, **environment})],
            needs=needs,
            setting=setting,
        )


def mpich(setup):
    bench = built(setup.bin_dir, "mpich_bench")
    launcher = next((path for name in ("mpiexec.mpich", "mpirun.mpich", "mpiexec.hydra")
                     if (path := shutil.which(name))), None)
    needs = "" if bench else "the build has no mpich_bench"
    yield Contender(
        "mpich",
        lambda options, rows: [
            Start([launcher, "-np", str(setup.ranks), bench, *options, "--json", rows])],
        needs=needs or ("" if launcher else "no mpiexec.mpich"),
    )


def gloo(setup, interface="lo", wrap=lambda rank, command: command):
    """Yields Gloo. `wrap(rank, command)` returns the command that runs the rank on its host."""
    bench = built(setup.bin_dir, "gloo_bench")

    def starts(options, rows):
        store = tempfile.mkdtemp(dir=setup.folder)
        return [
            Start(wrap(rank, [bench, "--rank", str(rank), "--ranks", str(setup.ranks), "--store",
                              store, "--interface", interface, *options, "--json", rows]))
            for rank in range(setup.ranks)]

    yield Contender("gloo", starts, needs="" if bench else "the build has no gloo_bench",
                    setting="the better of ring and bcube at each size")


def c10d(setup, address="127.0.0.1", interface="lo", port=free_port,
         wrap=lambda rank, command: command):
    program = os.path.join(PEERS, "c10d_bench.py")

    def starts(options, rows):
        environment = {
            "WORLD_SIZE": str(setup.ranks),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port()),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": interface,
        }
        return [Start(wrap(rank, [setup.python, program, *options, "--json", rows]),
                      {**environment, "RANK": str(rank)})
                for rank in range(setup.ranks)]

    yield Contender("c10d", starts, needs=torch_missing(setup.python))


def horovod(setup):
    """Yields Horovod. Its own launcher chooses MPI or gloo."""
    program = os.path.join(PEERS, "horovod_bench.py")
    launcher = [setup.python, "-m", "horovod.runner.launch", "-np", str(setup.ranks)]
    yield Contender(
        "horovod",
        lambda options, rows: [
            Start([*launcher, setup.python, program, *options, "--json", rows],
                  {**OPEN_MPI, "OMP_NUM_THREADS": "1"})],
        needs=horovod_missing(setup.python),
    )


def oneccl(setup):
    """Yields oneCCL over libfabric. Its ranks are started by hand, because with its MPI transport
    it would use an MPI library that is bundled with it."""
    bench = built(setup.bin_dir, "oneccl_bench")
    crowded = 2 * setup.ranks > cores()  # each rank has a worker that spins as well
    alone = {"CCL_WORKER_OFFLOAD": "0"} if crowded else {}

    def starts(options, rows):
        store = tempfile.mkdtemp(dir=setup.folder)
        return [
            Start([bench, "--rank", str(rank), "--ranks", str(setup.ranks), "--store", store,
                   *options, "--json", rows],
                  {**ONECCL, **alone, "CCL_LOCAL_RANK": str(rank),
                   "CCL_LOCAL_SIZE": str(setup.ranks)})
            for rank in range(setup.ranks)]

    yield Contender("oneccl", starts, needs="" if bench else "the build has no oneccl_bench",
                    setting="CCL_WORKER_OFFLOAD=0" if crowded else "")


@contextlib.contextmanager
def one_host(setup):
    """Yields all contenders, over shared memory where they can use it."""
    names = ("hvd-arena", "hvd-private", "hvd-engine")
    yield [*bounds(setup), *ours(setup, names=names), *open_mpi(setup), *mpich(setup),
           *oneccl(setup), *gloo(setup), *c10d(setup), *horovod(setup)]


@contextlib.contextmanager
def loopback(setup):
    """Yields all contenders that can use TCP, on the loopback interface."""
    tcp = ("--mca", "btl", "tcp,self", "--mca", "pml", "ob1")
    yield [*ours(setup, {"HVD_TRANSPORT": "tcp"}), *open_mpi(setup, tcp), *gloo(setup),
           *c10d(setup)]
