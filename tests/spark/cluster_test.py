"""HvdDistributor on local-cluster[2,1,1024]: two executors of one slot each, and one session for
all cases."""

import hashlib
import os
import runpy
import secrets
import shutil
import signal
import tempfile
import threading
import time
import unittest
from unittest import mock

import pyarrow

from hvd_spark import HvdDistributor, HvdError, ProgramError, StartError

import support

SECRET = b"0123456789 the secret of a job -"


def setUpModule():
    global folder, spark
    folder, spark = support.local_cluster()


def distributor(processes=2, local_mode=False, **options):
    return HvdDistributor(processes, local_mode, use_gpu=False, hvdrun=support.HVDRUN, **options)


class Running(threading.Thread):
    """distributor.run on a thread of its own, as some users do."""

    def __init__(self, runner, *command):
        super().__init__()
        self._run_it = lambda: runner.run(*command)
        self.error = None

    def run(self):
        try:
            self._run_it()
        except HvdError as error:
            self.error = error


class Programs(support.LeavesNothing):
    local_mode = False

    def run_program(self, *command, **options):
        with support.Streams().taken() as self.streams:
            return distributor(local_mode=self.local_mode, **options).run(support.RANK, *command)

    def test_ranks_know_their_place_and_their_arguments_and_hand_back_json(self):
        result = self.run_program(
            "place", "a b", "", "'ö\"$x", 7, environment={"OF_THE_JOB": "v w"}
        )
        self.assertEqual(result, {"sum": 3, "text": "ä"})
        expected = "gpus '' variable 'v w' arguments (a b)()('ö\"$x)(7)"
        self.assertEqual(
            self.streams.lines(),
            [
                "[%d]<stdout>:rank %d of 2 local %d/%d of 2 %s" % (rank, rank, rank, rank, expected)
                for rank in (0, 1)
            ],
        )

    def test_results_of_any_size_and_none(self):
        for size in (0, 1, 20 << 20):
            result = self.run_program("bytes", size)
            self.assertIsInstance(result, bytes)
            self.assertEqual(len(result), size)
            self.assertEqual(result, (bytes(range(256)) * (size // 256 + 1))[:size])
            self.assertEqual(self.streams.lines(), ["[0]<stdout>:asked 1", "[1]<stdout>:asked 0"])
        self.assertIsNone(self.run_program("flood", 1))

    def test_text_that_is_no_json_is_an_error(self):
        with self.assertRaisesRegex(HvdError, "no JSON"):
            self.run_program("text", "{")

    def test_big_output_arrives_whole_and_once(self):
        self.run_program("flood", 100000)
        lines = [line.partition(":") for line in self.streams.out().splitlines()]
        for rank in ("[0]<stdout>", "[1]<stdout>"):
            self.assertEqual(
                [text for name, _, text in lines if name == rank],
                ["%d of 100000" % i for i in range(100000)],
            )

    def test_a_failing_rank_is_named_with_its_code_and_last_lines(self):
        with self.assertRaises(ProgramError) as caught:
            self.run_program("fail", 1, 7)
        error = caught.exception
        self.assertEqual((error.rank, error.code, len(error.lines)), (1, 7, 100), str(error))
        self.assertEqual(error.lines[-2:], ["[1]<stderr>:line 149", "[1]<stderr>:this is why"])
        self.assertEqual(self.streams.errors().count("this is why"), 1)

    def test_a_killed_rank_is_blamed(self):
        with self.assertRaises(ProgramError) as caught:
            self.run_program("fail", 0, -signal.SIGKILL)
        self.assertEqual((caught.exception.rank, caught.exception.code), (0, 137))

    def test_what_cannot_be_started_is_named(self):
        runner = distributor(local_mode=self.local_mode)
        with self.assertRaisesRegex(StartError, "'./not_there'.*not found"):
            runner.run("./not_there")
        with self.assertRaisesRegex(StartError, "cannot be executed"):
            runner.run(__file__)
        with self.assertRaisesRegex(StartError, "'no_hvdrun'"):
            HvdDistributor(2, self.local_mode, use_gpu=False, hvdrun="no_hvdrun").run(support.RANK)
        with self.assertRaisesRegex(TypeError, "hvd::spawn"):
            runner.run(lambda: None)

    def test_a_program_that_spark_distributes_is_found_by_its_name(self):
        added = os.path.join(folder, "added_program")
        shutil.copy(support.RANK, added)
        spark.sparkContext.addFile(added)
        with support.Streams().taken():
            result = distributor(local_mode=self.local_mode).run("added_program", "place")
        self.assertEqual(result["sum"], 3)

    def test_hvdrun_status_shows_a_running_job(self):
        with support.Streams().taken():
            running = Running(distributor(local_mode=self.local_mode), support.RANK, "fail", 2, 0)
            running.start()
            pids, table = support.wait_until(self.status, 60, "hvdrun status shows both ranks")
            os.kill(pids[0], signal.SIGKILL)
            running.join(60)
        self.assertFalse(running.is_alive())
        self.assertRegex(table, r"^job \S+, 2 ranks, running for ")
        self.assertEqual((running.error.rank, running.error.code), (0, 137), table)

    @staticmethod
    def status():
        """Once both ranks have answered: the last column says how long ago."""
        ours = support.processes_with("HVD_SPARK_TEST=" + folder)
        return support.job_status(ours, r"\d+\.\d s")

    def test_gpus_that_spark_does_not_know_are_an_error_before_a_job(self):
        with self.assertRaisesRegex(ValueError, "use_gpu"):
            HvdDistributor(1, self.local_mode)


class ManyRanksPerTask(support.LeavesNothing):
    def test_a_task_with_two_gpus_has_two_ranks(self):
        runner = distributor(4)
        runner._ranks_per_task = 2  # as spark.task.resource.gpu.amount would make it
        with support.Streams().taken() as streams:
            self.assertEqual(runner.run(support.RANK, "place")["sum"], 10)
        places = [line.partition(" gpus")[0] for line in streams.lines()]
        self.assertEqual(
            places,
            [
                "[%d]<stdout>:rank %d of 4 local %d/%d of 4" % (rank, rank, rank, rank)
                for rank in range(4)
            ],
        )
        with self.assertRaisesRegex(ValueError, "one process per task"):
            runner.run_on(spark.range(4), support.RANK, "rows", folder)


class LocalPrograms(Programs):
    local_mode = True


class Secret(unittest.TestCase):
    def test_the_secret_is_nowhere_to_be_read_and_nothing_is_left(self):
        real = secrets.token_bytes
        known = lambda size=None: SECRET if size == len(SECRET) else real(size)
        with mock.patch("secrets.token_bytes", known):
            with support.Streams().taken() as streams:
                marked = distributor(environment={"OF_THE_JOB": folder})
                running = Running(marked, support.RANK, "wait")
                running.start()
                processes = support.wait_until(
                    lambda: support.waiting_processes(streams.out(), 2), 60, "ranks run"
                )
                found = list(self.places_of_the_secret())
                self.assertEqual(len(support.processes_with("OF_THE_JOB=" + folder)), 4)
                os.kill(processes[0][0], signal.SIGTERM)
                running.join(30)
        self.assertFalse(running.is_alive())
        self.assertEqual(running.error.code, 143)
        self.assertEqual(found, [])
        for pid in sum(processes, ()):
            support.wait_until(lambda: not support.is_running(pid), 10, "process %d is gone" % pid)
        support.wait_until(
            lambda: not support.processes_with("OF_THE_JOB=" + folder),
            10,
            "no process of the job is left",
        )

    def places_of_the_secret(self):
        spellings = [SECRET, SECRET.hex().encode(), SECRET.hex().upper().encode()]
        files = [
            "/proc/%s/%s" % (pid, name)
            for pid in os.listdir("/proc")
            if pid.isdigit()
            for name in ("cmdline", "environ")
        ]
        files += [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
        self.assertTrue(
            any(name.endswith("stderr") for name in files), "the executors' logs are looked through"
        )
        for name in files:
            data = support.read_bytes(name)
            if any(spelling in data for spelling in spellings):
                yield name


class Slots(support.LeavesNothing):
    def test_too_few_slots_fail_in_seconds_with_the_counts(self):
        begin = time.monotonic()
        with self.assertRaisesRegex(StartError, "needs 5 slots at once, and the cluster has 2"):
            distributor(5, slot_timeout=1).run(support.RANK, "flood", 1)
        self.assertLess(time.monotonic() - begin, 10)


class Partitions(support.LeavesNothing):
    def rows_of(self, table):
        """Runs two ranks on it; what each was handed."""
        copies = tempfile.mkdtemp(dir=folder)
        with support.Streams().taken() as streams:
            self.assertIsNone(distributor().run_on(table, support.RANK, "rows", copies))
        files = [
            pyarrow.ipc.open_file(os.path.join(copies, "%d.arrow" % rank)).read_all()
            for rank in (0, 1)
        ]
        self.assertEqual(
            streams.lines(),
            ["[%d]<stdout>:rows %d" % (rank, files[rank].num_rows) for rank in (0, 1)],
        )
        return files

    @staticmethod
    def digests(table):
        rows = [(row["id"], row["a"], row["s"], row["t"].timestamp()) for row in table.to_pylist()]
        return [hashlib.sha256(repr(row).encode()).hexdigest() for row in rows]

    def test_the_shares_are_disjoint_and_complete(self):
        table = spark.range(0, 1001, 1, 3).selectExpr(
            "id", "array(id, id * id) as a", "cast(id as string) as s", "timestamp_seconds(id) as t"
        )
        shares = self.rows_of(table)
        parts = [set(self.digests(share)) for share in shares]
        self.assertEqual(sum(map(len, parts)), 1001)
        self.assertEqual(parts[0] & parts[1], set())
        self.assertTrue(
            parts[0] | parts[1] == set(self.digests(table.toArrow())),
            "each row is one of the table's",
        )
        for share in shares:
            self.assertLess(abs(share.num_rows - 500), 5)

    def test_an_empty_share_has_the_columns_of_the_others(self):
        shares = self.rows_of(
            spark.range(1).selectExpr("id", "array(id) as a", "timestamp_seconds(id) as t")
        )
        self.assertEqual(sorted(share.num_rows for share in shares), [0, 1])
        self.assertEqual(shares[0].schema.remove_metadata(), shares[1].schema.remove_metadata())

    def test_rows_that_spark_cannot_compute_start_nothing(self):
        table = spark.range(4).selectExpr("raise_error('this row') as x")
        with self.assertRaisesRegex(StartError, "did not start: .*this row"):
            distributor().run_on(table, support.RANK, "rows", folder)

    def test_partitions_stay_on_the_executors(self):
        with self.assertRaisesRegex(ValueError, "local_mode=False"):
            distributor(local_mode=True).run_on(spark.range(1), support.RANK, "rows", folder)


class Examples(unittest.TestCase):
    """The scripts of examples/spark, on this session."""

    def setUp(self):
        program = os.path.join(support.BIN, "fit_line")
        if not os.path.exists(program):
            self.skipTest("needs the examples")
        folder_of_examples = os.path.join(
            os.path.dirname(os.path.abspath(__file__)), "../../examples/spark"
        )
        for name in ("existing_program", "returned_result"):
            setattr(self, name, runpy.run_path(os.path.join(folder_of_examples, name + ".py")))
        self.program = program

    def test_an_existing_program_with_arguments(self):
        with support.Streams().taken() as streams:
            result = self.existing_program["run"](self.program, ["41"], 2, support.HVDRUN)
        self.assertEqual(set(result), {"slope", "intercept"})
        steps = [line for line in streams.lines() if "step" in line]
        self.assertEqual(len(steps), 3, streams.out())

    def test_a_result_that_is_used(self):
        with support.Streams().taken():
            rows = self.returned_result["run"](spark, self.program, 2, support.HVDRUN).collect()
        self.assertEqual([row.x for row in rows], list(range(5)))
        for row in rows:
            self.assertAlmostEqual(row.y, 3 * row.x + 1, delta=0.1)


class ZLostExecutor(unittest.TestCase):
    """Last, by its name: the cluster has to start another executor afterwards."""

    def test_a_lost_executor_is_named_and_nothing_of_it_is_left(self):
        with support.Streams().taken() as streams:
            running = Running(distributor(), support.RANK, "wait")
            running.start()
            processes = support.wait_until(
                lambda: support.waiting_processes(streams.out(), 2), 60, "ranks run"
            )
            os.kill(self.executor_of(processes[0][0]), signal.SIGKILL)
            running.join(60)
        self.assertFalse(running.is_alive())
        self.assertIsInstance(running.error, ProgramError)
        self.assertIsNone(running.error.code)
        self.assertIn("lost with its task", str(running.error))
        for pid in sum(processes, ()):
            support.wait_until(lambda: not support.is_running(pid), 10, "process %d is gone" % pid)

    @staticmethod
    def executor_of(pid):
        while b"CoarseGrainedExecutorBackend" not in support.read_bytes("/proc/%d/cmdline" % pid):
            pid = support.parent_of(pid)
        return pid


if __name__ == "__main__":
    unittest.main()
