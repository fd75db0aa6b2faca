"""What the Spark tests share."""

import contextlib
import io
import os
import re
import time

BIN = os.environ["HVD_TEST_BIN"]
HVDRUN = os.path.join(BIN, "hvdrun")
RANK = os.path.join(BIN, "spark_rank")
# Short programs: what a compiler would win costs more than it saves.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:CICompilerCount=1"


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
