"""HvdDistributor and HvdEstimator on a standalone master with two workers on the loopback, which
claim to have a GPU each."""

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
    """A child whose output is kept; killed at the end of the test, which `at_end` is told."""

    def __init__(self, at_end, command, environment):
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
        at_end(self.kill)

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
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="hvd-spark-test-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.common = {
            "SPARK_HOME": HOME,
            "SPARK_DAEMON_JAVA_OPTS": support.JAVA_OPTIONS,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOG_DIR": cls.folder,
        }
        cls.master = cls.spark_class("master.Master", ["--host", "127.0.0.1"])
        address = re.compile(r"Starting Spark master at (spark://\S+)")
        cls.address = cls.master.wait_for(address.search, 60).group(1)
        workers = [cls.worker("3"), cls.worker("5")]
        for worker in workers:
            worker.wait_for(lambda text: "Successfully registered with master" in text, 60)

    @classmethod
    def spark_class(cls, name, arguments, **environment):
        command = [os.path.join(HOME, "bin", "spark-class"), "org.apache.spark.deploy." + name]
        command += ["--port", "0", "--webui-port", "0", *arguments]
        return Process(cls.addClassCleanup, command, {**cls.common, **environment})

    @classmethod
    def worker(cls, gpu):
        script = os.path.join(cls.folder, "gpu" + gpu)
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
            "2",
            "--memory",
            "1g",
            "--work-dir",
            cls.folder + "/work" + gpu,
        ]
        return cls.spark_class(
            "worker.Worker", [*arguments, cls.address], SPARK_WORKER_OPTS=options
        )

    def driver(self, name, *arguments):
        here = os.path.dirname(os.path.abspath(__file__))
        command = [sys.executable, os.path.join(here, name), self.address, *arguments]
        return Process(self.addCleanup, command, {})

    def gone(self, *processes):
        for pid in processes:
            support.wait_until(lambda: not support.is_running(pid), 15, "process %d is gone" % pid)

    def test_gpus_a_tutorial_and_nothing_is_left_when_the_driver_is_killed(self):
        store = tempfile.mkdtemp(dir=self.folder)
        driver = self.driver("standalone_driver.py", self.folder, store)

        text = driver.wait_for(lambda text: text if "\nresult {'sum': 3" in text else None, 120)
        lines = re.findall(r"^\[\d\]<stdout>:(rank .*) variable", text, re.MULTILINE)
        places = ["rank %d of 2 local %d/%d of 2 gpus " % (rank, rank, rank) for rank in (0, 1)]
        for gpus in ("'3'", "'5'"), ("'5'", "'3'"):
            if sorted(lines) == [place + gpu for place, gpu in zip(places, gpus)]:
                break
        else:
            self.fail("one GPU for each rank: %s" % lines)

        driver.wait_for(re.compile("^missing .*'?no_program'?.*not found", re.MULTILINE).search, 120)

        if support.tutorial() is not None:
            share = driver.wait_for(re.compile(r"^accuracy (\S+)$", re.MULTILINE).search, 240)
            print(share.group())
            self.assertGreater(float(share.group(1)), 0.25, "ten classes")

        if os.path.exists(support.REGRESSION):
            loss = driver.wait_for(re.compile(r"^regression (\S+)$", re.MULTILINE).search, 240)
            self.assertLess(float(loss.group(1)), support.SMALL_LOSS)
            shaped = driver.wait_for(re.compile(r"^shaped (\S+)$", re.MULTILINE).search, 240)
            self.assertGreater(float(shaped.group(1)), 0)
            both = r"the output has the shape \[\d+, 3\], and the label \[\d+\]. Give label_shapes"
            driver.wait_for(re.compile("^refused .*" + both, re.MULTILINE).search, 240)

        waiting = driver.wait_for(lambda text: support.waiting_processes(text, 2), 120)
        self.assertEqual(
            sorted(name.split(".")[0] for name in os.listdir(store)),
            ["intermediate_train_data", "intermediate_val_data", "runs"],
        )
        ranks = [rank for rank, _ in waiting]
        _, table = support.wait_until(
            lambda: support.job_status(ranks, "has not joined the job"),  # stand_in.py has no hvd
            60,
            "hvdrun status shows both ranks",
        )
        self.assertRegex(table, r"^job \S+, 2 ranks, running for ")
        scorers = support.wait_until(lambda: self.scorers(store), 60, "two tasks score")
        agents = [support.parent_of(rank) for rank, _ in waiting]
        processes = [*sum(waiting, ()), *agents, *map(support.parent_of, agents), *scorers]
        self.assertEqual(len(set(processes)), 10)
        self.assertTrue(all(map(support.is_running, processes)))
        driver.kill()
        for pid in processes:
            support.wait_until(lambda: not support.is_running(pid), 15, "process %d is gone" % pid)
        support.wait_until(lambda: os.listdir(store) == ["runs"], 30, "the data is removed")
        self.assertEqual(os.listdir(store + "/runs"), [], "the one before was not to be kept")
        support.wait_until(
            lambda: not support.processes_with("OF_THE_TEST=" + store), 30, "no keeper is left"
        )
        self.assertEqual(self.names_left(), [])

    @staticmethod
    def scorers(store):
        """Once there are two."""
        found = support.processes_with("OF_THE_TEST=" + store)
        found = [pid for pid, command in found.items() if " transform --model " in command]
        return found if len(found) == 2 else None

    def names_left(self):
        """What lies in the executors' folders, but for what Spark itself puts there, which includes
        the added files."""
        names = [name for _, _, files in os.walk(self.folder + "/work3") for name in files]
        names += [name for _, _, files in os.walk(self.folder + "/work5") for name in files]
        return [
            name
            for name in names
            if not re.fullmatch(r"std(out|err)|resource-executor-\d+\.json|spark_rank|stand_in", name)
        ]


if __name__ == "__main__":
    unittest.main()
