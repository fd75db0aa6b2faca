"""HvdDistributor on a standalone master with two workers on the loopback, which claim to have a GPU
each."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

import pyspark

import support

HOME = os.path.dirname(pyspark.__file__)


class Process:
    """A child whose output is kept; killed at the end of the test."""

    def __init__(self, case, command, environment):
        self._text = ""
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        case.addCleanup(self.kill)

    def _read(self):
        for line in self._process.stdout:
            self._text += line

    def wait_for(self, found, seconds):
        def look():
            if self._process.poll() is not None and not found(self._text):
                raise AssertionError("it ended:\n" + self._text)
            return found(self._text)

        try:
            return support.wait_until(look, seconds, "it says so")
        except AssertionError as error:
            raise AssertionError("%s\n%s" % (error, self._text)) from None

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()


class Standalone(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hvd-spark-test-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.common = {
            "SPARK_HOME": HOME,
            "SPARK_DAEMON_JAVA_OPTS": support.JAVA_OPTIONS,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOG_DIR": self.folder,
        }
        self.master = self.spark_class("master.Master", ["--host", "127.0.0.1"])
        address = re.compile(r"Starting Spark master at (spark://\S+)")
        self.address = self.master.wait_for(address.search, 60).group(1)
        workers = [self.worker("3"), self.worker("5")]
        for worker in workers:
            worker.wait_for(lambda text: "Successfully registered with master" in text, 60)

    def spark_class(self, name, arguments, **environment):
        command = [os.path.join(HOME, "bin", "spark-class"), "org.apache.spark.deploy." + name]
        command += ["--port", "0", "--webui-port", "0", *arguments]
        return Process(self, command, {**self.common, **environment})

    def worker(self, gpu):
        script = os.path.join(self.folder, "gpu" + gpu)
        with open(script, "w") as file:
            file.write('#!/bin/sh\necho \'{"name": "gpu", "addresses": ["%s"]}\'\n' % gpu)
        os.chmod(script, 0o700)
        options = (
            "-Dspark.worker.resource.gpu.amount=1 -Dspark.worker.resource.gpu.discoveryScript="
            + script
        )
        arguments = [
            "--host",
            "127.0.0.1",
            "--cores",
            "1",
            "--memory",
            "1g",
            "--work-dir",
            self.folder + "/work" + gpu,
        ]
        return self.spark_class(
            "worker.Worker", [*arguments, self.address], SPARK_WORKER_OPTS=options
        )

    def test_tasks_have_their_gpus_and_nothing_is_left_when_the_driver_is_killed(self):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "standalone_driver.py")
        driver = Process(self, [sys.executable, script, self.address, self.folder], {})

        text = driver.wait_for(lambda text: text if "\nresult {'sum': 3" in text else None, 120)
        lines = re.findall(r"^\[\d\]<stdout>:(rank .*) variable", text, re.MULTILINE)
        places = ["rank %d of 2 local %d/%d of 2 gpus " % (rank, rank, rank) for rank in (0, 1)]
        for gpus in ("'3'", "'5'"), ("'5'", "'3'"):
            if sorted(lines) == [place + gpu for place, gpu in zip(places, gpus)]:
                break
        else:
            self.fail("one GPU for each rank: %s" % lines)

        waiting = driver.wait_for(lambda text: support.waiting_processes(text, 2), 60)
        agents = [support.parent_of(rank) for rank, _ in waiting]
        processes = [*sum(waiting, ()), *agents, *map(support.parent_of, agents)]
        self.assertTrue(all(map(support.is_running, processes)))
        driver.kill()
        for pid in processes:
            support.wait_until(lambda: not support.is_running(pid), 15, "process %d is gone" % pid)
        self.assertEqual(self.names_left(), [])

    def names_left(self):
        """What lies in the executors' folders, but for what Spark itself puts there."""
        names = [name for _, _, files in os.walk(self.folder + "/work3") for name in files]
        names += [name for _, _, files in os.walk(self.folder + "/work5") for name in files]
        return [
            name
            for name in names
            if not re.fullmatch(r"std(out|err)|resource-executor-\d+\.json", name)
        ]


if __name__ == "__main__":
    unittest.main()
