"""HvdEstimator and HvdModel on local-cluster[2,1,1024]: with the program stand_in.py, with the
tutorial's, and on three executors with that of the C++ tests."""

import concurrent.futures
import ctypes
import glob
import hashlib
import io
import os
import runpy
import shutil
import struct
import subprocess
import tempfile
import unittest

import pyarrow
import pyarrow.parquet
from hvd_spark import HvdError, HvdEstimator, HvdModel, ProgramError, StartError, Store
from pyspark.errors import PythonException
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.sql.functions import expr, monotonically_increasing_id

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


class Fitting(support.LeavesNothing):
    def setUp(self):
        super().setUp()
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
                "validation": 0.2,
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

    def test_fits_on_threads_as_spark_tunes_parameters(self):
        estimator = self.estimator(num_proc=1)
        choices = [{estimator.epochs: 2}, {estimator.epochs: 3}]
        fits = estimator.fitMultiple(rows, choices)
        with support.Streams().taken(), concurrent.futures.ThreadPoolExecutor(2) as threads:
            models = dict(threads.map(lambda _: next(fits), choices))
        epochs = [models[at].getHistory()[0]["request"]["epochs"] for at in range(2)]
        self.assertEqual(epochs, [2, 3])

    def test_parameters_of_one_fit(self):
        estimator = self.estimator()
        with support.Streams().taken():
            model = estimator.fit(rows.limit(1), {estimator.epochs: 7})
        (epoch,) = model.getHistory()
        self.assertEqual(epoch["request"]["epochs"], 7)
        self.assertFalse(estimator.isDefined(estimator.epochs))
        self.assertEqual(len(epoch["train_data"]["files"]), 1, "one of two partitions is empty")
        self.assertEqual(len(epoch["train_data"]["rows"]), 1)


class Wrong(Fitting):
    """Each a named error, before a rank starts where that is possible."""

    def test_parameters(self):
        for error, text, changes in (
            (TypeError, "no parameter 'optimizer'", {"optimizer": 1}),
            (TypeError, "epochs is 1.5", {"epochs": 1.5}),
            (ValueError, "batch_size is 0", {"batch_size": 0}),
            (ValueError, "validation is 1", {"validation": 1}),
            (ValueError, "verbose is 3", {"verbose": 3}),
            (ValueError, "run_id is 'a/b'", {"run_id": "a/b"}),
            (TypeError, "store is '/x'", {"store": "/x"}),
            (ValueError, "needs program", {"program": None}),
            (ValueError, "needs feature_cols", {"feature_cols": None}),
            (ValueError, "resume=True needs run_id", {"resume": True}),
            (ValueError, "'y' is in feature_cols and", {"feature_cols": ["x", "y"]}),
            (ValueError, "3 shapes for 2", {"input_shapes": [[1]] * 3}),
            (ValueError, "label_shapes has 2 shapes for 1", {"label_shapes": [[1]] * 2}),
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


class Tutorial(support.LeavesNothing):
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
        cls.at = tempfile.mkdtemp(dir=folder)
        cls.one, cls.share_of_one = cls.run_it(1, Store.create(cls.at), epochs=3)
        cls.two, cls.share = cls.run_it(2, Store.create(cls.at), epochs=3, run_id="a run")

    @classmethod
    def run_it(cls, processes, store, **more):
        with support.Streams().taken():
            return cls.tutorial["run"](
                spark,
                cls.program,
                store,
                processes,
                rows=cls.ROWS,
                test_rows=400,
                partitions_per_process=2,
                batch_size=16,
                hvdrun=support.HVDRUN,
                **more
            )

    def images(self, rows):
        return self.tutorial["images"](spark, self.tutorial["DATA"], "t10k", rows)

    def test_two_ranks_learn_what_one_learns(self):
        print("accuracy %.3f of one rank, %.3f of two" % (self.share_of_one, self.share))
        self.assertGreater(self.share, 0.4)
        self.assertLess(abs(self.share - self.share_of_one), 0.15)
        self.assertAlmostEqual(self.two.getSummary()["learning_rate"], 0.02)
        self.assertAlmostEqual(self.one.getSummary()["learning_rate"], 0.01)
        self.assertEqual([epoch["ranks"] for epoch in self.two.getHistory()], [2] * 3)
        self.assertEqual(glob.glob(self.at + "/intermediate_*"), [])

    def test_a_run_goes_on_but_not_with_a_damaged_checkpoint(self):
        store = Store.create(self.at)
        resumed, _ = self.run_it(1, store, epochs=4, run_id="a run", resume=True)
        self.assertEqual(resumed.getSummary()["resumed_epochs"], 3)
        self.assertAlmostEqual(resumed.getSummary()["learning_rate"], 0.01)

        for path in glob.glob(self.at + "/runs/a run/checkpoint/*"):
            with open(path, "r+b") as file:
                file.seek(os.path.getsize(path) // 2)
                file.write(b"damage" * 10)
        with self.assertRaisesRegex(
            ProgramError, r"epoch-4\.hvd is damaged.*delete it to go on after epoch 3"
        ):
            self.run_it(1, store, epochs=5, run_id="a run")
        self.assertEqual(glob.glob(self.at + "/intermediate_*"), [])

    def test_a_store_on_s3(self):
        store = Store.create("s3://bucket/runs", False, support.s3_server(type(self)))
        model, _ = self.run_it(2, store, epochs=1)
        self.assertEqual(model.getSummary()["ranks"], 2)
        self.assertEqual(store.names("runs"), [])
        self.assertEqual(store.names(""), ["runs"])

    def test_predictions_of_the_readers_are_the_same_bits(self):
        """Of Model::transform(ParquetSource) and of HvdModel.transform, on files of Spark's. Each
        file is a partition, so that what the network is given at a time is equal as well."""
        at = tempfile.mkdtemp(dir=folder)
        parts = self.images(3300).repartition(3).withColumn("id", monotonically_increasing_id())
        parts.write.parquet(at + "/rows")
        alone = "spark.sql.files.openCostInBytes"
        spark.conf.set(alone, 1 << 30)
        self.addCleanup(spark.conf.unset, alone)
        table = spark.read.parquet(at + "/rows")
        self.assertEqual(table.rdd.getNumPartitions(), 3)
        name = self.two.getOutputCols()[0]
        theirs = self.two.transform(table).select("id", name).toArrow()

        model = os.path.join(at, "model.hvd")
        with open(model, "wb") as file:
            file.write(self.two._model)
        command = [self.program, "score", model, at + "/rows", at + "/scored"]
        said = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120).stdout
        self.assertEqual(said, b"3300 rows\n")
        ours = pyarrow.parquet.read_table(at + "/scored")
        self.assertEqual(ours.column_names, ["features", "label", "id", "prediction"])
        self.assertEqual(sorted_bits(ours, "prediction"), sorted_bits(theirs, name))

    def test_predictions_of_spark_are_those_of_the_program(self):
        """Of each partition, what the program gives for its rows without Spark."""
        model, test = self.two, self.images(400)
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


def sorted_bits(table, name):
    """Of a column of equally long lists, by rows in the order of "id"."""
    lists = table.sort_by("id").column(name).combine_chunks()
    values = lists.flatten().to_numpy(zero_copy_only=False)
    return len(lists), values.dtype, values.tobytes()


class ZThreeExecutors(support.LeavesNothing):
    """Last, by its name: on a cluster of its own, with a program that leaves the rows which each
    rank is given."""

    @classmethod
    def setUpClass(cls):
        global spark
        cls.program = support.REGRESSION
        if not os.path.exists(cls.program):
            raise unittest.SkipTest("needs estimator_program (builds with Arrow)")
        spark = support.local_cluster_in(folder, 3, **{"spark.task.maxFailures": "2"})

    def setUp(self):
        super().setUp()
        self.at = tempfile.mkdtemp(dir=folder)
        # Six numbers that a float holds exactly.
        of_one = "cast((id * %d %% 1024) / 1024 as float)"
        features = "array(%s) as features" % ", ".join(of_one % k for k in range(1, 13, 2))
        self.table = spark.range(0, 601, 1, 3).selectExpr(features, "id as label")

    def fit(self, size, **changes):
        parameters = {
            "store": Store.create(self.at + "/store"),
            "num_proc": size,
            "feature_cols": ["features"],
            "label_cols": ["label"],
            "partitions_per_process": 2,
            "hvdrun": support.HVDRUN,
            "slot_timeout": 60,
            **changes,
        }
        with support.Streams().taken():
            return HvdEstimator(self.program, **parameters).fit(self.table)

    def test_every_row_is_with_one_rank_and_the_learning_rate_that_of_so_many(self):
        expected = [self.digest(row.label, row.features) for row in self.table.collect()]
        held_out = []
        for epoch, size in enumerate((2, 3, 1), 1):
            seen = tempfile.mkdtemp(dir=folder)
            model = self.fit(
                size, args=["witness", seen], validation=0.2, run_id="r", epochs=epoch
            )
            last = model.getHistory()[-1]
            self.assertEqual((last["epoch"], last["ranks"]), (epoch, size))
            self.assertAlmostEqual(last["learning_rate"], 0.1 * size)
            summary = {"learning_rate": 0.1 * size, "ranks": size, "resumed_epochs": epoch - 1}
            self.assertEqual(model.getSummary(), summary)

            shares = self.shares(seen)
            self.assertEqual(len(shares), size)
            together = [row for share in shares for row in share]
            self.assertEqual(len(together), 601, "disjoint")
            self.assertEqual({digest for _, digest in together}, set(expected), "complete")
            held_out.append({digest for use, digest in together if use == "v"})
            self.assertAlmostEqual(len(held_out[-1]), 120, delta=40)
            self.assertEqual(last["validation"]["rows"], len(held_out[-1]))
            for share in shares:
                self.assertAlmostEqual(len(share), 601 / size, delta=2)
        self.assertEqual(held_out, held_out[:1] * 3, "never trained with")

    def test_labels_have_the_shape_of_the_output_or_the_one_that_is_given(self):
        def loss(**changes):
            with support.Streams().taken():
                return support.regression(spark, self.at + "/store", **changes)

        self.assertLess(loss(), support.SMALL_LOSS)
        both = r"the output has the shape \[\d+, 3\], and the label \[\d+\]. Give label_shapes"
        with self.assertRaisesRegex(ProgramError, both):
            loss(args=["regression", 3])
        self.assertGreater(loss(args=["regression", 3], label_shapes=[[1]], epochs=1), 0)

    @staticmethod
    def shares(seen):
        """By process: what each row was for, and its digest."""
        found = []
        for name in os.listdir(seen):
            with open(os.path.join(seen, name)) as file:
                rows_of_one = [line.split() for line in file]
            if rows_of_one:  # else it was asked for its columns only
                hashed = lambda *words: hashlib.sha256(" ".join(words).encode()).hexdigest()
                found.append([(use, hashed(number, bits)) for use, number, bits in rows_of_one])
        return found

    @staticmethod
    def digest(label, features):
        bits = "".join("%08x" % struct.unpack("<I", struct.pack("<f", x)) for x in features)
        return hashlib.sha256(("%d %s" % (label, bits)).encode()).hexdigest()

    def test_a_disk_that_fills_up_with_checkpoints(self):
        if full is None:
            self.skipTest("needs the right to mount")
        self.addCleanup(shutil.rmtree, full + "/store")
        self.table = self.table.limit(24).selectExpr("features", "label % 3 as label")
        common = {"run_id": "r", "partitions_per_process": 1}
        with self.assertRaisesRegex(ProgramError, "No space left on device") as caught:
            self.fit(3, store=Store.create(full + "/store"), epochs=50, **common)
        self.assertRegex(str(caught.exception), full + r"/store/runs/r/\S+")
        self.assertEqual(os.listdir(full + "/store"), ["runs"])
        saved = len(os.listdir(full + "/store/runs/r/checkpoint"))
        self.assertGreater(saved, 0)
        # What was saved before is whole, and goes on where there is room.
        shutil.copytree(full + "/store", self.at + "/store")
        model = self.fit(2, epochs=saved + 1, **common)
        self.assertEqual(model.getSummary()["resumed_epochs"], saved)


if __name__ == "__main__":
    unittest.main()
