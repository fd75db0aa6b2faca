"""HvdEstimator's parts without a Spark: the Store, what tasks write to it, and the scorer that they
run. The program is stand_in.py."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import hvd_spark
import pyarrow
import pyarrow.parquet

from hvd_spark import HvdError, HvdEstimator, Store, file_system
from hvd_spark.columns import names, numbers, shapes
from hvd_spark.intermediate import IntermediateData, _Task
from hvd_spark.keeper import Keeper
from hvd_spark.scorer import Scorer, ScorerError, Scoring, columns_of, score

import support


class InFolder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hvd-spark-test-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)


class Package(InFolder):
    """launcher/spark as pip installs it, for a Python that knows nothing else of it."""

    def test_is_installed_and_needs_no_torch(self):
        python = next(filter(self.can_build, (sys.executable, "/usr/bin/python3")), None)
        if python is None:
            self.skipTest("needs a Python with pip, setuptools and wheel")
        here = os.path.dirname(os.path.abspath(__file__))
        source = os.path.join(self.folder, "source")  # pip writes beside what it installs
        shutil.copytree(os.path.join(here, "../../launcher/spark"), source)
        into = os.path.join(self.folder, "installed")
        alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
            + ["--no-build-isolation", "--disable-pip-version-check", "--target", into, source],
            stdin=subprocess.DEVNULL,
            check=True,
            timeout=120,
            env={**alone, "PIP_ROOT_USER_ACTION": "ignore"},
        )
        script = (
            "import sys, hvd_spark\n"
            "from hvd_spark import HvdDistributor, HvdEstimator, HvdModel, Store\n"
            "print(hvd_spark.__file__, hvd_spark.__version__, 'torch' in sys.modules)\n"
        )
        told = subprocess.run(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            check=True,
            timeout=60,
            env={**alone, "PYTHONPATH": into},
            cwd=self.folder,
            text=True,
        ).stdout
        version = hvd_spark.__version__
        self.assertEqual(told.split(), [into + "/hvd_spark/__init__.py", version, "False"])
        written = [name for name in os.listdir(into) if name.endswith(".dist-info")]
        self.assertEqual(written, ["hvd_spark-%s.dist-info" % version])
        self.assertFalse(
            [name for _, _, names in os.walk(into) for name in names if name.endswith(".so")]
        )

    @staticmethod
    def can_build(python):
        """Without asking an index for anything."""
        look = "sys.exit(not all(map(importlib.util.find_spec, ('pip', 'setuptools', 'wheel'))))"
        command = [python, "-c", "import importlib.util, sys; " + look]
        try:
            return subprocess.run(command, timeout=60).returncode == 0
        except OSError:
            return False


class Stores(InFolder):
    def test_uris(self):
        for uri, train in (
            ("/a b", "/a b/x/y"),
            ("/a?b/", "/a?b/x/y"),
            ("s3://bucket/p/", "s3://bucket/p/x/y"),
            ("s3://bucket?scheme=http", "s3://bucket/x/y?scheme=http"),
            ("file:/a", "file:///a/x/y"),
        ):
            self.assertEqual(Store.create(uri).uri_of("x/y"), train)
        self.assertEqual(Store.create("s").uri, os.path.abspath("s"))

    def test_what_cannot_work_is_named(self):
        for error, arguments, text in (
            (ValueError, ("",), "empty"),
            (ValueError, ("ftp://x",), "ftp.*s3"),
            (ValueError, ("s3://b", True, {"kee": "x"}), "'kee'.*key"),
            (ValueError, ("/a", True, {"key": "x"}), "'key'"),
            (ValueError, ("s3://key:geheim@b",), "credentials"),
            (ValueError, ("abfs://c@a/p?enable_tls=true&sig=geheim",), "'sig' is not taken"),
            (ValueError, ("s3://b?secret=geheim",), "'secret' is not taken"),
            (
                ValueError,
                ("abfs://c@a/p?enable_tls=false", True, {"account_key": "geheim"}),
                "'enable_tls' is not taken in a URI beside storage options",
            ),
            (ValueError, ("s3://b", True, {"anon": "yes"}), "'anon' is true or false"),
            (ValueError, ("gs://b", True, {"json_credentials": "geheim"}), "'json_credentials'"),
            (TypeError, ("s3://b", True, {"key": ["x"]}), "'key'"),
        ):
            with self.assertRaisesRegex(error, text) as caught:
                Store.create(*arguments)
            self.assertNotIn("geheim", str(caught.exception))
        self.assertNotIn("geheim", repr(Store.create("s3://b", True, {"key": "geheim"})))

    def test_files_and_folders(self):
        for uri in (self.folder, "file://" + self.folder):
            store = Store.create(uri)
            store.create_folder("runs/1")
            with self.assertRaisesRegex(HvdError, "runs/1/model.hvd"):
                store.read_model("1")
            with open(os.path.join(self.folder, "runs/1/model.hvd"), "wb") as file:
                file.write(b"model")
            self.assertEqual(store.read_model("1"), b"model")
            self.assertEqual(store.names("nothing"), [])
            with self.assertRaisesRegex(HvdError, "no run 'two'; it has: 1"):
                store.read_model("two")
            store.remove("runs")
            store.remove("runs")
            self.assertEqual(os.listdir(self.folder), [])

    def test_googles_storage_is_not_tried_for_minutes(self):
        uri = "gs://bucket/a%20b"
        for query, options, seconds in (
            ("", {}, 30),
            ("?scheme=http&endpoint_override=127.0.0.1:1", {}, 30),
            ("?retry_limit_seconds=7", {}, 7),
            ("", {"anon": "true"}, 30),
        ):
            files, path = file_system.locate(uri + query, options)
            self.assertEqual(path, "bucket/a b")
            (state,) = files.__reduce__()[1]
            self.assertEqual(state["retry_time_limit"].total_seconds(), seconds, query)

    def test_the_query_of_a_uri_counts_beside_options(self):
        query = "?blob_storage_authority=127.0.0.1:1"
        options = {"account_key": "a2V5", "scheme": "http"}
        files, path = file_system.locate("abfs://c@a/p" + query, options)
        self.assertEqual(path, "c/p")
        (state,) = files.__reduce__()[1]
        self.assertEqual(state["account_name"], "a")
        self.assertEqual(state["blob_storage_authority"], "127.0.0.1:1")
        files, _ = file_system.locate("gs://b?endpoint_override=127.0.0.1:1", {"anon": "true"})
        (state,) = files.__reduce__()[1]
        self.assertEqual(state["endpoint_override"], "127.0.0.1:1")

    def test_a_store_that_does_not_answer_is_named(self):
        options = {"endpoint_url": "http://127.0.0.1:1", "key": "k", "secret": "s", "region": "r"}
        with self.assertRaisesRegex(HvdError, "s3://bucket.*cannot create"):
            Store.create("s3://bucket", True, options).create_folder("x")


class Parameters(unittest.TestCase):
    def test_numbers_names_and_shapes(self):
        self.assertEqual(numbers(3, "n"), 3)
        for wrong in (True, 1.5, "1", None):
            with self.assertRaisesRegex(TypeError, "n is"):
                numbers(wrong, "n")
        with self.assertRaisesRegex(ValueError, "n is 0"):
            numbers(0, "n")
        self.assertEqual(names(("a", "b"), "cols"), ["a", "b"])
        for error, wrong in ((TypeError, "ab"), (ValueError, []), (ValueError, ["a", "a"])):
            with self.assertRaisesRegex(error, "cols"):
                names(wrong, "cols")
        self.assertEqual(shapes([[-1, 1, 28, 28], []], ["a", "b"]), [[1, 28, 28], []])
        self.assertEqual(shapes([[3]], ["a", "b", "c"]), [[3]])
        with self.assertRaisesRegex(ValueError, "2 shapes for 3"):
            shapes([[1], [1]], ["a", "b", "c"])
        with self.assertRaisesRegex(ValueError, "-1"):
            shapes([[1, -1]], ["a"])


class TooManyColumns(InFolder):
    def test_they_are_told_before_anything_is_written(self):
        columns = ["a_column_with_number_%d" % column for column in range(8000)]
        store = Store.create(self.folder)
        estimator = HvdEstimator("p", store, feature_cols=columns, label_cols=["y"])
        with self.assertRaisesRegex(ValueError, "take [0-9]+ bytes.*one column of arrays"):
            estimator._distributor(IntermediateData(store, False))
        self.assertEqual(os.listdir(self.folder), [])


def write(store, folders, attempt, batches, lengths={}):
    """What an attempt of the task of partition 0 does; its report."""
    context = mock.Mock()
    context.partitionId.return_value = 0
    context.taskAttemptId.return_value = attempt
    with mock.patch.dict(sys.modules, pyspark=mock.Mock()) as modules:
        modules["pyspark"].TaskContext.get.return_value = context
        (report,) = _Task(store, tuple(folders), lengths).write_partition(batches)
    return json.loads(report["report"][0].as_py())


class Writing(InFolder):
    """What a task does, and what the driver makes of it."""

    def write(self, attempt, batches, lengths={}):
        return write(self.store, self.folders, attempt, batches, lengths)

    def setUp(self):
        super().setUp()
        self.store = Store.create(self.folder)
        self.folders = ["train", "val"]
        for name in self.folders:
            os.mkdir(os.path.join(self.folder, name))

    @staticmethod
    def batch(rows, validation):
        return pyarrow.RecordBatch.from_pydict({"x": rows, "v": validation})

    def rows(self, folder):
        """As a reader sees it: names that begin with a dot are none of its business."""
        path = os.path.join(self.folder, folder)
        found = sorted(name for name in os.listdir(path) if not name.startswith("."))
        tables = [pyarrow.parquet.read_table(os.path.join(path, name)) for name in found]
        return [table["x"].to_pylist() for table in tables]

    def test_of_two_attempts_one_counts(self):
        batches = [self.batch([[1], [2]], [False, True]), self.batch([[3]], [False])]
        reports = [self.write(attempt, batches) for attempt in (7, 8)]
        self.write(9, batches[:1])  # one that was killed before its end, or comes after all others
        self.assertEqual([self.rows(name) for name in self.folders], [[], []])
        data = IntermediateData(self.store, True)
        data._folders = self.folders
        data._commit(reports[1:])
        self.assertEqual([self.rows(name) for name in self.folders], [[[[1], [3]]], [[[2]]]])

    def test_a_partition_without_rows_has_no_file(self):
        report = self.write(1, [])
        self.assertEqual((report["rows"], report["written"]), ([0, 0], [None, None]))
        report = self.write(2, [self.batch([[1]], [False])])
        self.assertEqual(report["rows"], [1, 0])
        self.assertIsNone(report["written"][1])

    def test_rows_that_do_not_fit_are_counted(self):
        rows = [[1.0, 2.0], [1.0], None, [1.0, None], [3.0, 4.0]]
        report = self.write(1, [self.batch(rows, [False] * 5)], {"x": 2})
        self.assertEqual(report["wrong"], {"x": [3, "has 1"]})
        report = self.write(1, [self.batch([1, None], [False] * 2)])
        self.assertEqual(report["wrong"], {"x": [1, "is null"]})
        report = self.write(1, [self.batch([[1, 2], [1]], [False] * 2)])
        self.assertEqual(report["wrong"], {}, "lengths that nobody said")

    def test_a_store_that_cannot_be_written_is_told(self):
        self.store = Store.create(os.path.join(self.folder, "not_there"))
        report = self.write(1, [self.batch([[1]], [False])])
        self.assertRegex(report["error"], "not_there.*cannot write train")

    def test_row_groups_are_small(self):
        self.write(1, [self.batch([[0.0] * 1000] * 2000, [False] * 2000)])
        (name,) = os.listdir(os.path.join(self.folder, "train"))
        file = pyarrow.parquet.ParquetFile(os.path.join(self.folder, "train", name))
        self.assertGreaterEqual(file.num_row_groups, 3)


class OnS3(unittest.TestCase):
    """The same on a server."""

    def test_what_is_written_is_committed_read_and_removed(self):
        options = support.s3_server(self)
        store = Store.create("s3://bucket/a folder/", storage_options=options)
        with IntermediateData(store, True) as data:
            folders = data._folders
            for folder in folders:
                store.create_folder(folder)
            batch = pyarrow.RecordBatch.from_pydict({"x": [1, 2, 3], "v": [False, False, True]})
            reports = [write(store, folders, attempt, [batch]) for attempt in (1, 2)]
            data._commit(reports[1:])
            files, path = store.folder(folders[0] + "/part-00000.parquet")
            self.assertEqual(
                pyarrow.parquet.read_table(path, filesystem=files)["x"].to_pylist(), [1, 2]
            )
            self.assertEqual(
                len(store.names(folders[1])), 2, "one of an attempt that does not count"
            )
        self.assertEqual(store.names(""), [])
        files, path = store.folder("runs/1/model.hvd")
        with files.open_output_stream(path) as stream:
            stream.write(b"model")
        self.assertEqual(store.read_model("1"), b"model")
        with self.assertRaisesRegex(HvdError, "no run '2'; it has: 1"):
            store.read_model("2")
        query = "?region=us-east-1&scheme=http&endpoint_override=" + options["endpoint_url"][7:]
        rest = {"key": "k", "secret": "s"}
        by_uri = Store.create("s3://bucket/a folder" + query, storage_options=rest)
        self.assertEqual(by_uri.read_model("1"), b"model")
        nobodys = Store.create("s3://nobodys/x", storage_options=options)
        with self.assertRaisesRegex(HvdError, "s3://nobodys/x.*cannot"):
            nobodys.create_folder("y")


class Keepers(InFolder):
    def test_what_a_killed_driver_leaves_is_removed(self):
        script = (
            "import sys\nfrom hvd_spark.keeper import Keeper\nfrom hvd_spark import Store\n"
            "keeper = Keeper(Store.create(sys.argv[1]), ['a', 'b'])\n"
            "print('kept', flush=True)\nsys.stdin.read()\n"
        )
        for name in ("a", "b", "c"):
            os.mkdir(os.path.join(self.folder, name))
        driver = subprocess.Popen(
            [sys.executable, "-c", script, self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with driver:
            self.assertEqual(driver.stdout.readline(), b"kept\n")
            driver.kill()
        support.wait_until(lambda: os.listdir(self.folder) == ["c"], 20, "it is removed")

    def test_nothing_is_removed_otherwise(self):
        os.mkdir(os.path.join(self.folder, "a"))
        Keeper(Store.create(self.folder), ["a"]).close()
        self.assertEqual(os.listdir(self.folder), ["a"])


class Scorers(InFolder):
    def setUp(self):
        super().setUp()
        self.scoring = Scoring(support.stand_in(self.folder), [], self.folder, 60.0, [])

    def model(self, how=""):
        columns = {"feature_cols": ["x"], "output_cols": ["sum", "both"]}
        return json.dumps({**columns, "how": how}).encode()

    def scored(self, how="", batches=8, rows=100, **changes):
        table = pyarrow.record_batch({"x": [[float(row), 1.0] for row in range(rows)]})
        extra = pyarrow.record_batch({"k": ["é"] * rows, "__x": table.column(0)})
        with support.Streams().taken() as self.streams:
            scoring = self.scoring._replace(**changes)
            return list(
                score(
                    scoring, lambda: self.model(how), {"__x": "x"}, ["a", "b"], 1, [extra] * batches
                )
            )

    def fails(self, how, text, **changes):
        with self.assertRaisesRegex(ScorerError, text):
            self.scored(how, **changes)
        self.assertEqual(support.processes_with("OF_THE_TEST=" + self.folder), {})

    def test_columns_are_appended_and_nothing_else_is_changed(self):
        found = self.scored(rows=3)
        self.assertEqual(len(found), 8)
        self.assertEqual(found[0].schema.names, ["k", "a", "b"])
        self.assertEqual(found[7].column("k").to_pylist(), ["é"] * 3)
        self.assertEqual(found[7].column("a").to_pylist(), [1.0, 2.0, 3.0])
        self.assertEqual(found[7].column("b").to_pylist(), [[1, 2], [2, 4], [3, 6]])

    def test_no_rows_start_nothing(self):
        self.assertEqual(self.scored(batches=0, program="not_there"), [])
        self.assertEqual(self.scored(rows=0, program="not_there"), [])

    def test_more_than_pipes_hold_goes_both_ways_and_to_the_log(self):
        found = self.scored("talk", batches=6, rows=20000)
        self.assertEqual([batch.num_rows for batch in found], [20000] * 6)

    def test_failures_have_a_name(self):
        self.scoring = self.scoring._replace(environment=["OF_THE_TEST=" + self.folder])
        self.fails("die 0", r"transform exited 1; its last lines:\nrow 17 cannot be scored")
        self.fails("die 5", "row 17 cannot be scored")
        self.fails("late", "exited 1; its last lines:\nat the end")
        self.fails("short", "answered 2 columns of 99 rows to 100 rows")
        self.fails("noise", "did not answer within 3 s|no record batch", seconds=3)
        self.fails("hang", r"did not answer within 3 s; its last lines:\nhangs", seconds=3)

    def test_a_program_that_is_not_there_is_named(self):
        for program in ("not_there", "./not_there"):
            with self.assertRaisesRegex(FileNotFoundError, "not_there.*was not found"):
                self.scored(program=program)

    def test_programs_beside_the_driver_and_in_the_folder_are_found(self):
        for changes in ({"program": "./stand_in"}, {"program": "stand_in", "folder": self.folder}):
            self.assertEqual(len(self.scored(batches=1, **changes)), 1)

    def test_a_reader_that_stops_ends_the_program(self):
        scoring = self.scoring._replace(environment=["OF_THE_TEST=" + self.folder])
        batches = [pyarrow.record_batch({"x": [[1.0]]})] * 100
        answers = score(scoring, self.model, {"x": "x"}, ["a", "b"], 1, batches)
        next(answers)
        self.assertEqual(len(support.processes_with("OF_THE_TEST=" + self.folder)), 1)
        answers.close()
        self.assertEqual(support.processes_with("OF_THE_TEST=" + self.folder), {})

    def test_the_program_dies_with_its_task(self):
        script = (
            "import sys, estimator_parts_test as t\n"
            "case = t.Scorers()\ncase.setUp()\n"
            "print(case.folder, flush=True)\n"
            "import pyarrow\nbatch = pyarrow.record_batch({'x': [[1.0]]})\n"
            "model = lambda: case.model('hang')\n"
            "list(t.score(case.scoring, model, {'x': 'x'}, ['a'], 1, [batch]))\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as task:
            self.addCleanup(shutil.rmtree, task.stdout.readline().strip(), ignore_errors=True)
            found = task.stderr.readline()
            self.assertRegex(found, r"^hangs \d+$")
            task.send_signal(signal.SIGKILL)
        pid = int(found.split()[1])
        support.wait_until(lambda: not support.is_running(pid), 10, "the program is gone")

    def test_columns(self):
        told = json.loads(columns_of(self.scoring, self.model()))
        self.assertEqual(told["output_cols"], ["sum", "both"])
        with self.assertRaisesRegex(ScorerError, "columns exited 1; .*\nthe model is damaged"):
            columns_of(self.scoring, self.model("columns"))


if __name__ == "__main__":
    unittest.main()
