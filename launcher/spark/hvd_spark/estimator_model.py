"""Defines HvdModel, the result of HvdEstimator.fit. It is a stage of Spark ML that scores
DataFrames with a C++ program."""

import json
import os

from pyspark.ml import Model
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import (
    DefaultParamsReader,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)

from .columns import as_numbers, check_shapes, check_types, is_vector, names, shapes
from .distributor import as_variables, spark_context
from .errors import HvdError
from .scorer import Scoring, columns_of, score
from .shipping import send_by_value

_CHUNK_BYTES = 8 << 20  # the bytes of a saved model that one task writes
_FEATURE = "__hvd_feature_%d"


class HvdModel(Model, MLReadable, MLWritable):
    """A trained model with the program that can use it. transform(dataframe) appends a column for
    each output.

    HvdEstimator.fit, HvdModel.of_run and HvdModel.load return one.
    """

    output_cols = Param(
        Params._dummy(),
        "output_cols",
        "names of the columns that transform appends, one for each output",
        TypeConverters.toListString,
    )
    program = Param(
        Params._dummy(),
        "program",
        "the program on the executors: a name on the PATH, or a path",
        TypeConverters.toString,
    )
    args = Param(Params._dummy(), "args", "arguments of the program", TypeConverters.toListString)
    timeout = Param(
        Params._dummy(),
        "timeout",
        "seconds to wait for an answer of the program before it counts as failed",
        TypeConverters.toFloat,
    )
    use_gpu = Param(
        Params._dummy(),
        "use_gpu",
        "whether the program sees the GPUs of its task",
        TypeConverters.toBoolean,
    )

    def __init__(
        self,
        program,
        model,
        columns=None,
        *,
        history=None,
        run_id=None,
        summary=None,
        environment=None,
        use_gpu=False,
        args=()
    ):
        """program, args: the same as in HvdEstimator.
        model: the bytes of a model.hvd.
        columns: what `program columns` prints for this model. Without it, a Spark task runs
        `program columns`.
        """
        super().__init__()
        self._setDefault(timeout=600.0, use_gpu=use_gpu)
        self._set(program=os.fspath(program), args=[str(word) for word in args])
        self.setEnvironment(environment)
        self._model = bytes(model)
        self._broadcast = None
        self._history, self._run_id, self._summary = history, run_id, summary
        self._columns = Columns.of(self._ask_columns() if columns is None else columns, program)
        self._set(output_cols=self._columns.output_cols)

    @staticmethod
    def of_run(program, store, run_id, args=()):
        """Returns the model of a run whose folder is still in the store. Raises HvdError, which
        lists the existing runs."""
        model = store.read_model(run_id)
        history = json.loads(store.read("runs/%s/logs/history.json" % run_id))
        return HvdModel(program, model, history=history, run_id=run_id, args=args)

    def setOutputCols(self, value):
        value = names(value, "output_cols")
        if len(value) != len(self._columns.output_cols):
            raise ValueError(
                "output_cols is %r, and the model has %d outputs"
                % (value, len(self._columns.output_cols))
            )
        return self._set(output_cols=value)

    def getOutputCols(self):
        return self.getOrDefault(self.output_cols)

    def setTimeout(self, value):
        return self._set(timeout=value)

    def setProgram(self, value):
        """Sets the path of the program, which may be another one after `load`."""
        return self._set(program=os.fspath(value))

    def setUseGpu(self, value):
        return self._set(use_gpu=value)

    def setEnvironment(self, value):
        """Sets further variables of the program, a dict. They are not saved."""
        self._environment = as_variables(value or {})
        return self

    def getFeatureCols(self):
        return self._columns.feature_cols

    def getLabelCols(self):
        return self._columns.label_cols

    def getHistory(self):
        """Returns the losses and metrics per epoch, as in runs/<run_id>/logs/history.json."""
        return self._history

    def getRunId(self):
        return self._run_id

    def getSummary(self):
        """Returns a dict about the fit: the effective learning_rate, ranks, and resumed_epochs."""
        return self._summary

    def _transform(self, dataset):
        from pyspark.sql import types

        schema = dataset.schema
        features = self._columns.feature_cols
        outputs = self.getOutputCols()
        check_types(schema, features, "feature_cols")
        check_shapes(schema, features, self._columns.input_shapes)
        for name in outputs:
            if name in schema.names:
                raise ValueError(
                    "the DataFrame already has a column %r; setOutputCols gives the model's output "
                    "another name" % name
                )
        given = {}  # the program's name of a feature, by the name of its column in the table
        table = dataset
        for at, name in enumerate(features):
            if is_vector(schema[name].dataType):
                table = table.withColumn(_FEATURE % at, as_numbers(dataset, name))
                given[_FEATURE % at] = name
            else:
                given[name] = name
        added = [
            types.StructField(name, kind) for name, kind in zip(outputs, self._columns.types())
        ]
        use_gpu = self.getOrDefault(self.use_gpu)
        task = _task(self._scoring(), use_gpu, self._shared(), given, outputs, len(schema))
        send_by_value()
        return table.mapInArrow(task, types.StructType(schema.fields + added))

    def _scoring(self):
        return Scoring(
            self.getOrDefault(self.program),
            self.getOrDefault(self.args),
            os.getcwd(),
            self.getOrDefault(self.timeout),
            self._environment,
        )

    def _shared(self):
        """Returns the broadcast model, of which each executor gets one copy. Copies of this object
        share it."""
        context = spark_context()
        if self._broadcast is None or self._broadcast._sc is not context:
            self._broadcast = context.broadcast(self._model)
        return self._broadcast

    def _ask_columns(self):
        """Runs `program columns` in a task, because the program may exist on executors only."""
        send_by_value()
        scoring, shared = self._scoring(), self._shared()

        def ask(_):
            try:
                return [(True, columns_of(scoring.in_task([]), shared.value))]
            except (OSError, HvdError) as error:
                return [(False, str(error))]  # Spark would run a failed task four times

        ((good, text),) = spark_context().parallelize([0], 1).mapPartitions(ask).collect()
        if not good:
            raise HvdError(text)
        try:
            return json.loads(text)
        except ValueError as error:
            raise HvdError("%s columns wrote no JSON: %s" % (scoring.program, error)) from None

    def write(self):
        return _Writer(self)

    @classmethod
    def read(cls):
        return _Reader()


class Columns:
    """The columns of a model, as `program columns` prints them."""

    KEYS = ("feature_cols", "label_cols", "input_shapes", "output_cols", "output_types")

    @staticmethod
    def of(told, program):
        """Raises HvdError when `told` does not describe columns."""
        try:
            return Columns(told)
        except (KeyError, TypeError, ValueError) as error:
            raise HvdError(
                "%s columns does not say what it should (%s): is it made with hvd::estimator_main?"
                % (program, error)
            ) from error

    def __init__(self, told):
        self._told = {key: told[key] for key in self.KEYS}
        self.feature_cols = names(told["feature_cols"], "feature_cols")
        self.label_cols = names(told["label_cols"], "label_cols")
        given = told["input_shapes"]
        self.input_shapes = shapes(given, self.feature_cols) if given else []
        self.output_cols = names(told["output_cols"], "output_cols")
        if len(self.types()) != len(self.output_cols):
            raise ValueError("output_types")

    def types(self):
        """Returns Spark's types of the outputs."""
        return [_spark_type(text) for text in self._told["output_types"]]

    def to_json(self):
        return self._told


def _spark_type(text):
    from pyspark.sql.types import DataType

    return DataType.fromDDL(text)


def _task(scoring, use_gpu, shared, given, outputs, kept):
    """Returns the function that mapInArrow runs. It does not refer to an HvdModel, because Spark
    would then send the model a second time."""

    def run(batches):
        from pyspark import TaskContext

        resources = TaskContext.get().resources()
        gpus = resources["gpu"].addresses if use_gpu and "gpu" in resources else []
        told = scoring.in_task(gpus)
        yield from score(told, lambda: shared.value, given, outputs, kept, batches)

    return run


class _Writer(MLWriter):
    """Writes the folders `metadata`, with JSON as for all stages of Spark ML, and `model`, with the
    bytes of the model in pieces."""

    def __init__(self, instance):
        super().__init__()
        self._instance = instance

    def saveImpl(self, path):
        ours = self._instance
        more = {
            "columns": ours._columns.to_json(),
            "history": ours._history,
            "runId": ours._run_id,
            "summary": ours._summary,
        }
        spark = self.sparkSession
        DefaultParamsWriter.saveMetadata(ours, path, spark, extraMetadata=more)
        data = ours._model
        pieces = [
            (at, bytearray(data[at : at + _CHUNK_BYTES]))
            for at in range(0, max(1, len(data)), _CHUNK_BYTES)
        ]
        table = spark.createDataFrame(
            spark.sparkContext.parallelize(pieces, len(pieces)), "at long, bytes binary"
        )
        table.write.parquet(os.path.join(path, "model"))


class _Reader(MLReader):
    def load(self, path):
        spark = self.sparkSession
        metadata = DefaultParamsReader.loadMetadata(path, spark)
        table = spark.read.parquet(os.path.join(path, "model"))
        pieces = sorted((row.at, bytes(row.bytes)) for row in table.collect())
        model = HvdModel(
            metadata["paramMap"]["program"],
            b"".join(piece for _, piece in pieces),
            metadata["columns"],
            history=metadata["history"],
            run_id=metadata["runId"],
            summary=metadata["summary"],
        )
        model._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(model, metadata)
        return model
