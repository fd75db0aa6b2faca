"""What the Spark tests share."""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from typing import NamedTuple

BIN = os.environ["HVD_TEST_BIN"]
HVDRUN = os.path.join(BIN, "hvdrun")
RANK = os.path.join(BIN, "spark_rank")
# Short programs: what a compiler would win costs more than it saves.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:CICompilerCount=1"


def stand_in(folder):
    """stand_in.py as a program, in the folder."""
    path = os.path.join(folder, "stand_in")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stand_in.py")
    with open(path, "w") as file:
        file.write('#!/bin/sh\nexec "%s" "%s" "$@"\n' % (sys.executable, script))
    os.chmod(path, 0o755)
    return path


class Tutorial(NamedTuple):
    script: str
    program: str


def tutorial():
    """synapse_tutorial.py and its program; None where that or its data are not there."""
    here = os.path.dirname(os.path.abspath(__file__))
    script = os.path.join(here, "../../examples/spark/synapse_tutorial.py")
    program = os.path.join(BIN, "mnist_estimator")
    there = os.path.exists(program) and os.path.exists("/usr/share/datasets/fashion-mnist")
    return Tutorial(script, program) if there else None


REGRESSION = os.path.join(BIN, "estimator_program")
SMALL_LOSS = 0.05  # the variance of the labels of `regression` is 0.5 and more


def regression(spark, store, **changes):
    """The loss after a fit of sums of six numbers to an output [B, 1], with labels [B]."""
    from hvd_spark import HvdEstimator, Store

    x = "(rand(%d) - 0.5)"
    six = "array(%s)" % ", ".join("cast(%s as float)" % (x % seed) for seed in range(6))
    table = spark.range(0, 256, 1, 2).selectExpr(six + " as features")
    parameters = {
        "store": Store.create(store),
        "num_proc": 2,
        "args": ["regression", 1],
        "feature_cols": ["features"],
        "label_cols": ["label"],
        "epochs": 4,
        "partitions_per_process": 1,
        "hvdrun": HVDRUN,
        "slot_timeout": 60,
        **changes,
    }
    table = table.selectExpr(
        "features", "cast(aggregate(features, cast(0 as float), (a, b) -> a + b) as float) as label"
    )
    model = HvdEstimator(REGRESSION, **parameters).fit(table)
    return model.getHistory()[-1]["train"]["loss"]


def session(master, folder, **options):
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("hvd_spark_test")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": os.path.join(folder, "warehouse"),
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.memory": "512m",
        **options,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def remove(folder):
    shutil.rmtree(folder, ignore_errors=True)


def local_cluster():
    """A session with two executors of one slot each, until the end of the module's tests; and the
    folder of all that it writes."""
    folder = tempfile.mkdtemp(prefix="hvd-spark-test-")
    unittest.addModuleCleanup(remove, folder)
    return folder, local_cluster_in(folder)


def local_cluster_in(folder, executors=2, **options):
    """In the place of the one before, if there was one in the folder."""
    import pyspark
    from pyspark.sql import SparkSession

    home = os.path.join(folder, "home")
    before = SparkSession.getActiveSession()
    if before is not None:
        before.stop()
    else:
        # A Spark whose work folder is ours: everything else is the package's.
        package = os.path.dirname(pyspark.__file__)
        os.mkdir(home)
        for name in os.listdir(package):
            if name != "work":
                os.symlink(os.path.join(package, name), os.path.join(home, name))
        os.environ["SPARK_HOME"] = home  # not one of the ranks' variables
        os.environ[_OF_US] = folder  # of all processes from here on
        os.mkdir(os.path.join(folder, "tmp"))
        os.environ["TMPDIR"] = tempfile.tempdir = os.path.join(folder, "tmp")
        unittest.addModuleCleanup(setattr, tempfile, "tempdir", None)
    spark = session("local-cluster[%d,1,1024]" % executors, folder, **options)
    unittest.addModuleCleanup(spark.stop)
    return spark


_OF_US = "HVD_SPARK_TEST"
_SPARKS_OWN = re.compile(r"java |pyspark[./]daemon|moto")


class LeavesNothing(unittest.TestCase):
    """After each test there are no more ports that the driver listens at, processes on the driver
    and the executors, and names in the folder for temporary files than there were before."""

    def setUp(self):
        super().setUp()
        before = traces()

        def compare():
            try:
                wait_until(lambda: traces() <= before, 20, "nothing is left")
            except AssertionError:
                self.assertEqual(traces() - before, set())

        self.addCleanup(compare)


def traces():
    """What a job could leave, as a set."""
    ports = {"port %d" % port for port in listening_ports()}
    folder = os.environ[_OF_US]
    processes = {
        "process %d %s" % (pid, command)
        for pid, command in processes_with("%s=%s" % (_OF_US, folder)).items()
        if not _SPARKS_OWN.search(command)
    }
    # Spark's own have names of their own.
    names = {name for name in os.listdir(tempfile.gettempdir()) if not name.startswith("spark")}
    return ports | processes | names


def listening_ports():
    """Of this process, over TCP."""
    own = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            own.add(os.readlink("/proc/self/fd/" + name))
        except OSError:
            pass  # of the listing itself
    ports = []
    for name in ("tcp", "tcp6"):
        for line in read_bytes("/proc/self/net/" + name).decode().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and "socket:[%s]" % words[9] in own:
                ports.append(int(words[1].rpartition(":")[2], 16))
    return ports


class Streams:
    """Both streams of the driver, while a job prints to them."""

    def __init__(self):
        self._out, self._err = io.StringIO(), io.StringIO()

    @contextlib.contextmanager
    def taken(self):
        with contextlib.redirect_stdout(self._out), contextlib.redirect_stderr(self._err):
            yield self

    def out(self):
        return self._out.getvalue()

    def lines(self):
        return sorted(self.out().splitlines())

    def errors(self):
        return self._err.getvalue()


# Takes a free port, makes a bucket, and tells the port; ends with its standard input.
_S3_SERVER = """
import sys, urllib.request
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
url = "http://127.0.0.1:%d" % server._server.server_port
signed = "AWS4-HMAC-SHA256 Credential=k/20200101/us-east-1/s3/aws4_request, "
signed += "SignedHeaders=host, Signature=x"
bucket = urllib.request.Request(url + "/bucket", method="PUT", headers={"Authorization": signed})
urllib.request.urlopen(bucket, timeout=30)
print(url, flush=True)
sys.stdin.read()
"""


def s3_server(case):
    """The storage options of a server with a bucket named bucket, until the end of the class's
    tests; skips without one."""
    python = os.environ.get("HVD_TEST_S3_PYTHON", "")
    if not os.path.exists(python):
        raise unittest.SkipTest("needs an S3 server (scripts/install_deps --tests)")
    environment = {
        name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
    }
    environment.pop("PYTHONPATH", None)
    server = subprocess.Popen(
        [python, "-c", _S3_SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    )
    case.addClassCleanup(server.communicate, timeout=30)
    url = server.stdout.readline().strip()
    return {"key": "k", "secret": "s", "region": "us-east-1", "endpoint_url": url}


def wait_until(condition, seconds, what):
    """The first true thing that condition returns."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError("%s within %s s" % (what, seconds))
        time.sleep(0.02)


def waiting_processes(text, ranks):
    """The processes that `spark_rank wait` named, once all ranks have."""
    found = re.findall(r"waiting (\d+) (\d+)", text)
    return [tuple(map(int, pair)) for pair in found] if len(found) == ranks else None


def job_status(ours, end):
    """The process of each rank and the table of `hvdrun status`, once the rows of both ranks end
    so. There may be jobs of other tests on this machine: the ranks are among the processes `ours`.
    """
    for job in re.findall(
        r"@hvd-status-%d-(\S+)" % os.getuid(), read_bytes("/proc/net/unix").decode()
    ):
        asked = subprocess.run(
            [HVDRUN, "status", job], stdout=subprocess.PIPE, text=True, timeout=60
        )
        # Its columns: rank, host, pid, cpu, memory (two words), steps, steps/s, exposed, heard.
        found = re.findall(r"^ +([01]) \S+ +(\d+) .* %s$" % end, asked.stdout, re.MULTILINE)
        pids = {int(rank): int(pid) for rank, pid in found}
        if len(pids) == 2 and set(pids.values()) <= set(ours):
            return pids, asked.stdout
    return None


def is_running(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def parent_of(pid):
    with open("/proc/%d/stat" % pid) as file:
        return int(file.read().rpartition(")")[2].split()[1])


def read_bytes(path):
    """Empty for what has ended, or is somebody else's."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def processes_with(variable):
    """Of this user's processes, those whose environment has NAME=value, and their command lines."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        if variable.encode() in read_bytes("/proc/%s/environ" % name).split(b"\0") and is_running(
            int(name)
        ):
            found[int(name)] = (
                read_bytes("/proc/%s/cmdline" % name)
                .replace(b"\0", b" ")
                .decode("utf-8", "replace")
            )
    return found
