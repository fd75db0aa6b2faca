"""HvdEstimator and HvdModel on local-cluster[2,1,1024], with the program stand_in.py."""

import ctypes
import glob
import io
import os
import runpy
import subprocess
import tempfile
import unittest

import pyarrow
from hvd_spark import HvdError, HvdEstimator, HvdModel, ProgramError, StartError, Store
from pyspark.errors import PythonException
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.sql.functions import expr

import support

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
_PRIVATE = 0x4000 | (1 << 18)  # MS_REC, MS_PRIVATE
_DETACHED = 2  # MNT_DETACH


def setUpModule():
    global folder, spark, program, full, rows
    folder = tempfile.mkdtemp(prefix="hvd-spark-test-")
    unittest.addModuleCleanup(support.remove, folder)
    full = mount_a_small_disk(os.path.join(folder, "full"))
    spark = support.local_cluster_in(folder, **{"spark.task.maxFailures": "2"})
    program = support.stand_in(folder)
    rows = spark.range(0, 1001, 1, 3).selectExpr(
        "id", "cast(id as float) as x", "array(1f, 2f) as a", "cast(id + 3 as double) y"
    )


def mount_a_small_disk(at):
    """In mounts of our own, which our children see, and which end with us. None without the right
    to."""
    os.mkdir(at)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_MOUNTS) or libc.mount(b"none", b"/", None, _PRIVATE, None):
        return None
    if libc.mount(b"none", at.encode(), b"tmpfs", 0, b"size=64k"):
        return None
    unittest.addModuleCleanup(libc.umount2, at.encode(), _DETACHED)
    return at


class Fitting(unittest.TestCase):
    def setUp(self):
        self.at = tempfile.mkdtemp(dir=folder)

    def estimator(self, **changes):
        parameters = {
            "program": program,
            "store": Store.create(self.at),
            "num_proc": 2,
            "feature_cols": ["x", "a"],
            "label_cols": ["y"],
            "input_shapes": [[1], [-1, 2]],
            "partitions_per_process": 1,
            "hvdrun": support.HVDRUN,
            **changes,
        }
        return HvdEstimator(**parameters)

    def fit(self, table=None, **changes):
        with support.Streams().taken() as self.streams:
            return self.estimator(**changes).fit(rows if table is None else table)

    def left(self):
        return glob.glob(os.path.join(self.at, "intermediate_*"))

    def fails(self, error, text, *arguments, **changes):
        with self.assertRaisesRegex(error, text) as caught:
            self.fit(*arguments, **changes)
        self.assertEqual(self.left(), [])
        return caught.exception


class Good(Fitting):
    def test_every_row_is_written_once_and_what_is_asked_for_is_passed_on(self):
        options = {"batch_size": 8, "epochs": 3, "seed": 5, "run_id": "a run", "verbose": 0}
        splits = []
        for table in (rows, rows.repartition(5)):
            model = self.fit(table, validation=0.2, **options)
            (epoch,) = model.getHistory()
            parts = [
                {(row["x"], tuple(row["a"]), row["y"]) for row in epoch[name]["rows"]}
                for name in ("train_data", "val_data")
            ]
            self.assertEqual(
                parts[0] | parts[1], {(float(x), (1.0, 2.0), x + 3.0) for x in range(1001)}
            )
            self.assertEqual(len(parts[0]) + len(parts[1]), 1001)
            self.assertAlmostEqual(len(parts[1]), 200, delta=40)
            splits.append(parts)
        self.assertEqual(splits[0], splits[1], "the same rows, however they lie")
        self.assertEqual(epoch["train_data"]["files"], ["part-00000.parquet", "part-00001.parquet"])
        request = dict(epoch["request"])
        self.assertRegex(request.pop("train_data"), self.at + r"/intermediate_train_data\.\w+$")
        self.assertRegex(request.pop("val_data"), self.at + r"/intermediate_val_data\.\w+$")
        self.assertEqual(
            request,
            {
                "store": self.at,
                "storage_options": {},
                "feature_cols": ["x", "a"],
                "label_cols": ["y"],
                "input_shapes": [[1], [-1, 2]],
                "save_runs": True,
                **options,
            },
        )
        self.assertEqual((model.getRunId(), model.getSummary()["learning_rate"]), ("a run", 0.5))
        self.assertEqual(self.left(), [])
        again = HvdModel.of_run(program, Store.create(self.at), "a run")
        self.assertEqual(again.getHistory(), model.getHistory())
        with self.assertRaisesRegex(HvdError, "no run 'another'; it has: a run"):
            HvdModel.of_run(program, Store.create(self.at), "another")

    def test_a_validation_column_and_a_run_that_is_not_kept(self):
        table = rows.selectExpr("*", "if(id = 1, null, id >= 1000) as check")
        model = self.fit(table, validation="check", store=Store.create(self.at, save_runs=False))
        (epoch,) = model.getHistory()
        self.assertEqual([row["x"] for row in epoch["val_data"]["rows"]], [1000.0])
        self.assertEqual(len(epoch["train_data"]["rows"]), 1000)
        self.assertEqual(os.listdir(self.at + "/runs"), [])

    def test_scoring(self):
        model = self.fit()
        scored = model.transform(rows)
        self.assertEqual(scored.columns, ["id", "x", "a", "y", "sum", "both"])
        found = scored.collect()
        self.assertEqual([row["sum"] for row in found], [row.y for row in found])
        self.assertEqual([row.both for row in found], [[row.y, 2 * row.y] for row in found])
        self.assertEqual(sorted(row.id for row in found), list(range(1001)))

        self.assertEqual(model.transform(rows.limit(0)).collect(), [])
        self.assertEqual(len(model.transform(rows.repartition(7)).limit(3).collect()), 3)
        with self.assertRaisesRegex(ValueError, "already has a column 'sum'; setOutputCols"):
            model.transform(scored)
        with self.assertRaisesRegex(ValueError, "'p'.*2 outputs"):
            model.setOutputCols(["p"])
        twice = model.copy().setOutputCols(["p", "q"]).transform(scored).where("p = sum")
        self.assertEqual(twice.count(), 1001)
        with self.assertRaisesRegex(ValueError, "no column 'a'"):
            model.transform(rows.drop("a"))

        saved = os.path.join(self.at, "saved")
        model.setOutputCols(["p", "q"]).write().save(saved)
        loaded = HvdModel.load(saved)
        self.assertEqual(loaded.getOutputCols(), ["p", "q"])
        self.assertEqual(
            (loaded.uid, loaded.getHistory(), loaded.getRunId(), loaded.getSummary()),
            (model.uid, model.getHistory(), model.getRunId(), model.getSummary()),
        )
        self.assertEqual(loaded.transform(rows.limit(10)).where("p = y").count(), 10)

    def test_in_a_pipeline_with_vectors_and_an_evaluator(self):
        table = spark.range(30).selectExpr("id % 3d as u", "0d as v", "id % 3 as label")
        estimator = self.estimator(
            feature_cols=["features"],
            label_cols=["label"],
            input_shapes=[[2]],
            output_cols=["prediction", "both"],
        )
        assembler = VectorAssembler(inputCols=["u", "v"], outputCol="features")
        pipeline = Pipeline(stages=[assembler, estimator])
        pipeline.write().save(self.at + "/pipeline")
        loaded = Pipeline.load(self.at + "/pipeline")
        self.assertEqual(loaded.getStages()[1].extractParamMap(), estimator.extractParamMap())
        self.assertEqual(loaded.getStages()[1].getStore().uri, self.at)
        with support.Streams().taken():
            loaded.fit(table).write().save(self.at + "/model")
        scored = PipelineModel.load(self.at + "/model").transform(table)
        self.assertEqual(scored.schema["features"].dataType.typeName(), "vectorudt")
        scored = scored.withColumn("prediction", scored.prediction.cast("double"))
        self.assertEqual(
            MulticlassClassificationEvaluator(metricName="accuracy").evaluate(scored), 1
        )

    def test_parameters_of_one_fit(self):
        estimator = self.estimator()
        with support.Streams().taken():
            model = estimator.fit(rows.limit(4), {estimator.epochs: 7})
        self.assertEqual(model.getHistory()[0]["request"]["epochs"], 7)
        self.assertFalse(estimator.isDefined(estimator.epochs))


class Wrong(Fitting):
    """Each a named error, before a rank starts where that is possible."""

    def test_parameters(self):
        for error, text, changes in (
            (TypeError, "no parameter 'optimizer'", {"optimizer": 1}),
            (TypeError, "epochs is 1.5", {"epochs": 1.5}),
            (ValueError, "batch_size is 0", {"batch_size": 0}),
            (ValueError, "validation is 1", {"validation": 1}),
            (TypeError, "store is '/x'", {"store": "/x"}),
            (ValueError, "needs program", {"program": None}),
            (ValueError, "needs feature_cols", {"feature_cols": None}),
            (ValueError, "resume=True needs run_id", {"resume": True}),
            (ValueError, "'y' is in feature_cols and", {"feature_cols": ["x", "y"]}),
            (ValueError, "3 shapes for 2", {"input_shapes": [[1]] * 3}),
            (HvdError, "no run 'b'; it has: none", {"resume": True, "run_id": "b"}),
            (ValueError, "use_gpu", {"use_gpu": True}),
        ):
            self.fails(error, text, **changes)
        self.assertEqual(os.listdir(self.at), [])

    def test_columns(self):
        for text, changes in (
            ("label_cols: the DataFrame has no column 'z'; it has 'id'", {"label_cols": ["z"]}),
            ("column 'x' has one number a row, and.*4", {"input_shapes": [[4], [2]]}),
            ("validation: column 'a' is array", {"validation": "a"}),
        ):
            self.fails(ValueError, text, **changes)
        table = rows.selectExpr("x", "cast(id as string) as a", "y")
        self.fails(ValueError, "column 'a' is string: expected a number", table)
        self.assertEqual(os.listdir(self.at), [])

    def test_rows(self):
        short = "column 'a': 1001 of 1001 rows do not have 784 numbers; the first has 2"
        self.fails(ValueError, short, input_shapes=[[1], [28, 28]])
        table = rows.selectExpr("x", "a", "if(id = 70, null, y) as y")
        self.fails(ValueError, "column 'y': 1 of 1001 rows do not have numbers; .* null", table)
        self.fails(ValueError, "no rows", rows.limit(0))
        few = rows.limit(3)
        none = "validation=1e-09 leaves none of 3 rows to validate with"
        self.fails(ValueError, none, few, validation=1e-9)
        table = rows.selectExpr("x", "a", "cast(raise_error('this row') as double) as y")
        self.fails(Exception, "this row", table)

    def test_slots(self):
        few = "needs 5 slots at once, and the cluster has 2"
        self.fails(StartError, few, num_proc=5, slot_timeout=1)
        self.assertEqual(os.listdir(self.at), [])

    def test_ranks(self):
        error = self.fails(
            ProgramError, r"exited 1 after .*\n.*\n.*the loss is not", args=["exit", 1]
        )
        self.assertEqual((error.rank, error.code), (1, 1))
        for how in ("silent", "empty"):
            self.fails(HvdError, "handed back .*estimator_main", args=[how])
        self.fails(StartError, "'no_program'.*not found", program="no_program")
        self.fails(HvdError, "columns exited 1.*\nthe model is damaged", args=["columns"])
        errors = io.StringIO()
        self.fails(
            ProgramError,
            "exited 1",
            args=["exit", 0],
            stderr=errors,
            prefix_output_with_timestamp=True,
        )
        self.assertRegex(errors.getvalue(), r"^\d{4}-.* \[0\]<stderr>:the loss")

    def test_a_disk_that_is_full(self):
        if full is None:
            self.skipTest("needs the right to mount")
        wide = rows.selectExpr("x", "transform(sequence(1, 500), i -> rand()) as a", "y")
        changes = {"store": Store.create(full), "input_shapes": [[1], [500]]}
        self.fails(HvdError, "write intermediate_train_data.*No space left", wide, **changes)
        self.assertEqual(glob.glob(full + "/intermediate_*"), [])

    def test_scorers(self):
        for how, seconds, text in (
            ("die 0", 60, "transform exited 1; its last lines:\nrow 17 cannot be scored"),
            ("hang", 2, "did not answer within 2 s"),
        ):
            model = self.fit(args=[how]).setTimeout(seconds)
            model.setEnvironment({"OF_THE_TEST": self.at})
            with self.assertRaisesRegex(PythonException, text):
                model.transform(rows).collect()
            support.wait_until(
                lambda: not support.processes_with("OF_THE_TEST=" + self.at), 20, "none is left"
            )
        model.setProgram("no_program")
        with self.assertRaisesRegex(PythonException, "'no_program' was not found"):
            model.transform(rows).collect()


class Tutorial(unittest.TestCase):
    """examples/spark/synapse_tutorial.py with its own program, on fewer images."""

    ROWS = 1200

    @classmethod
    def setUpClass(cls):
        found = support.tutorial()
        if found is None:
            raise unittest.SkipTest(
                "needs mnist_estimator (builds with Arrow) and Debian's dataset-fashion-mnist"
            )
        cls.tutorial, cls.program = runpy.run_path(found.script), found.program

    def run_it(self, processes, store, **more):
        with support.Streams().taken() as self.streams:
            return self.tutorial["run"](
                spark,
                self.program,
                store,
                processes,
                rows=self.ROWS,
                test_rows=400,
                partitions_per_process=2,
                batch_size=16,
                hvdrun=support.HVDRUN,
                **more
            )

    def test_two_ranks_learn_what_one_learns(self):
        at = tempfile.mkdtemp(dir=folder)
        one, share_of_one = self.run_it(1, Store.create(at), epochs=3)
        model, share = self.run_it(2, Store.create(at), epochs=3, run_id="a run")
        print("accuracy %.3f of one rank, %.3f of two" % (share_of_one, share))
        self.assertGreater(share, 0.4)
        self.assertLess(abs(share - share_of_one), 0.15)
        self.assertAlmostEqual(model.getSummary()["learning_rate"], 0.02)
        self.assertAlmostEqual(one.getSummary()["learning_rate"], 0.01)
        self.assertEqual([epoch["ranks"] for epoch in model.getHistory()], [2] * 3)
        self.assertEqual(glob.glob(at + "/intermediate_*"), [])

        test = self.tutorial["images"](spark, self.tutorial["DATA"], "t10k", 400)
        self.check_predictions(model, test)

        resumed, _ = self.run_it(1, Store.create(at), epochs=4, run_id="a run", resume=True)
        self.assertEqual(resumed.getSummary()["resumed_epochs"], 3)
        self.assertAlmostEqual(resumed.getSummary()["learning_rate"], 0.01)

        for path in glob.glob(at + "/runs/a run/checkpoint/*"):
            with open(path, "r+b") as file:
                file.seek(os.path.getsize(path) // 2)
                file.write(b"damage" * 10)
        with self.assertRaisesRegex(ProgramError, "checkpoint"):
            self.run_it(1, Store.create(at), epochs=5, run_id="a run")
        self.assertEqual(glob.glob(at + "/intermediate_*"), [])

    def check_predictions(self, model, test):
        """Of each partition, what the program gives for its rows without Spark."""
        table = test.repartition(3).withColumn("part", expr("spark_partition_id()")).cache()
        scored = model.transform(table).collect()
        asked = pyarrow.schema([("features", pyarrow.list_(pyarrow.float32()))])
        question = io.BytesIO()
        with pyarrow.ipc.new_stream(question, asked) as stream:
            for part in range(3):
                rows_of_part = [row.features for row in scored if row.part == part]
                stream.write_batch(pyarrow.record_batch([rows_of_part], schema=asked))
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(model._model)
            file.flush()
            answer = subprocess.run(
                [self.program, "transform", "--model", file.name],
                input=question.getvalue(),
                stdout=subprocess.PIPE,
                check=True,
                timeout=120,
            ).stdout
        alone = pyarrow.ipc.open_stream(answer).read_all().column(0).to_pylist()
        scored.sort(key=lambda row: row.part)  # stable
        name = model.getOutputCols()[0]
        self.assertEqual([row[name] for row in scored], alone)
        self.assertEqual(len(alone), 400)


if __name__ == "__main__":
    unittest.main()
