"""Defines HvdEstimator, which trains a C++ model on a DataFrame, as a stage of Spark ML."""

import json
import os

from pyspark.ml import Estimator
from pyspark.ml.param import Param, Params
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader
from pyspark.ml.util import MLWritable, MLWriter

from .columns import check_shapes, check_types, names, numbers, shapes
from .distributor import HvdDistributor, as_variables
from .errors import HvdError
from .estimator_model import HvdModel
from .intermediate import IntermediateData
from .store import Store


def _text(value):
    return os.fspath(value)


def _words(value):
    if isinstance(value, str):
        raise TypeError("args is %r: expected a list" % value)
    return [str(word) for word in value]


def _number(name, least=1):
    return lambda value: numbers(value, name, least)


def _verbose(value):
    if numbers(value, "verbose", 0) > 2:
        raise ValueError("verbose is %d: expected 0, 1 or 2" % value)
    return value


def _run_id(value):
    """Returns the text if hvd::EstimatorStore accepts it as the name of a run."""
    value = _text(value)
    strange = "/" in value or "\\" in value or not value.isprintable()
    if value in ("", ".", "..") or strange or len(value.encode()) > 200:
        raise ValueError("run_id is %.200r: expected the name of a folder, of 200 bytes" % value)
    return value


def _flag(name):
    def convert(value):
        if not isinstance(value, bool):
            raise TypeError("%s is %r: expected True or False" % (name, value))
        return value

    return convert


def _columns(name):
    return lambda value: names(value, name)


def _validation(value):
    """Returns None, a fraction, or the name of a column."""
    if value is None or isinstance(value, str) and value:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise ValueError(
            "validation is %r: expected a fraction from 0 to below 1, or a column's name" % (value,)
        )
    return float(value) or None


_LONGEST_VARIABLE = 128 << 10  # in bytes, with its name; a longer one prevents a program's start

# Each parameter has a name, a function that checks and converts its value, a flag that says whether
# the program gets it, and a description.
_PARAMETERS = [
    ("program", _text, False, "the program on the executors: a name on the PATH, or a path"),
    ("args", _words, False, "arguments of the program, when it trains and when it scores"),
    ("num_proc", _number("num_proc"), False, "number of ranks"),
    ("feature_cols", _columns("feature_cols"), True, "columns that are the inputs of the model"),
    ("label_cols", _columns("label_cols"), True, "columns that the model learns to predict"),
    (
        "input_shapes",
        lambda value: [list(shape) for shape in value],
        True,
        "shapes of the model's inputs for one row",
    ),
    (
        "label_shapes",
        lambda value: [list(shape) for shape in value],
        True,
        "shapes of the labels for one row",
    ),
    ("output_cols", _columns("output_cols"), True, "names of the columns that HvdModel appends"),
    ("batch_size", _number("batch_size"), True, "greatest number of rows per rank in a step"),
    (
        "val_batch_size",
        _number("val_batch_size"),
        True,
        "greatest number of rows per rank in a batch of the validation",
    ),
    ("epochs", _number("epochs"), True, "number of passes over the training rows"),
    (
        "validation",
        _validation,
        True,
        "fraction of the rows to validate with, or a column that is true or above 0 for them",
    ),
    ("verbose", _verbose, True, "0: nothing, 1: a progress bar, 2: a line per epoch"),
    ("shuffle", _flag("shuffle"), True, "whether the rows are shuffled anew in each epoch"),
    (
        "seed",
        _number("seed", 0),
        True,
        "seed of the order of rows and of the choice of validation rows",
    ),
    (
        "partitions_per_process",
        _number("partitions_per_process"),
        False,
        "number of Parquet files per rank to which the DataFrame is written",
    ),
    (
        "backward_passes_per_step",
        _number("backward_passes_per_step"),
        True,
        "number of batches whose gradients are reduced together",
    ),
    (
        "scale_learning_rate",
        _flag("scale_learning_rate"),
        True,
        "whether the optimizer's learning rate is multiplied by the number of ranks",
    ),
    ("run_id", _run_id, True, "name of the run; a run that the store already has is continued"),
    ("resume", _flag("resume"), True, "whether the run must already exist"),
    ("hvdrun", _text, False, "name or path of hvdrun on the driver and the executors"),
    ("use_gpu", _flag("use_gpu"), False, "whether ranks and scorers see the GPUs of their tasks"),
    (
        "prefix_output_with_timestamp",
        _flag("prefix_output_with_timestamp"),
        False,
        "whether each line of the ranks' output begins with the time",
    ),
]


def _with_parameters(cls):
    """Adds to the class, for each parameter, a Param and methods such as setNumProc and getNumProc.
    """
    for name, convert, _, doc in _PARAMETERS:
        setattr(cls, name, Param(Params._dummy(), name, doc, convert))
        camel = "".join(word.capitalize() for word in name.split("_"))

        def setter(self, value, _name=name):
            return self._set(**{_name: value})

        def getter(self, _name=name):
            return self.getOrDefault(_name)

        setter.__doc__ = getter.__doc__ = doc
        setattr(cls, "set" + camel, setter)
        setattr(cls, "get" + camel, getter)
    return cls


@_with_parameters
class HvdEstimator(Estimator, MLReadable, MLWritable):
    """Trains the estimator of a C++ program (hvd::estimator_main) on a DataFrame.

    fit(dataframe) writes the columns to the store as Parquet, runs `program fit` as num_proc tasks
    of a barrier stage, and returns an HvdModel. The program chooses the parameters that are not
    given here.

    There are arguments beside the parameters, which explainParams lists: store is a Store,
    environment a dict of further variables for the ranks, stdout and stderr are text streams for
    their output, and slot_timeout is the seconds to wait for executors. Of these, only the store's
    URI and save_runs are saved with the estimator.
    """

    def __init__(
        self,
        program=None,
        store=None,
        *,
        environment=None,
        stdout=None,
        stderr=None,
        slot_timeout=10.0,
        **parameters
    ):
        super().__init__()
        self._setDefault(
            args=[],
            num_proc=1,
            validation=None,
            partitions_per_process=10,
            hvdrun="hvdrun",
            use_gpu=False,
            prefix_output_with_timestamp=False,
        )
        known = {name for name, *_ in _PARAMETERS}
        for name, value in {"program": program, **parameters}.items():
            if name not in known:
                raise TypeError("HvdEstimator has no parameter %r" % name)
            if value is not None:
                self._set(**{name: value})
        self._store = self._environment = None
        self.setStore(store).setEnvironment(environment)
        self._streams = (stdout, stderr)
        self._slot_timeout = slot_timeout

    def setStore(self, value):
        if value is not None and not isinstance(value, Store):
            raise TypeError("store is %r: expected a Store (Store.create)" % (value,))
        self._store = value
        return self

    def getStore(self):
        return self._store

    def setEnvironment(self, value):
        as_variables(value or {})
        self._environment = dict(value or {})
        return self

    def _given(self, name):
        """Returns the value that the user has set, or else the default, or else None."""
        return self.getOrDefault(name) if self.isDefined(name) else None

    def _need(self, name):
        value = self._given(name)
        if value is None:
            raise ValueError("HvdEstimator needs %s" % name)
        return value

    def _fit(self, dataset):
        program, store = self._need("program"), self._store
        if store is None:
            raise ValueError("HvdEstimator needs store (Store.create)")
        columns, lengths = self._checked_columns(dataset.schema)
        data = IntermediateData(store, self._given("validation") is not None)
        distributor = self._distributor(data)
        self._check_run()
        distributor.wait_for_slots()
        with data:
            data.write(
                dataset,
                columns,
                lengths,
                self._given("num_proc") * self._given("partitions_per_process"),
                self._given("validation"),
                self._given("seed") or 0,
            )
            result = distributor.run(program, "fit", *self._given("args"))
        return self._model(result)

    def _checked_columns(self, schema):
        """Returns the columns to write, and how many numbers a row of each column has, if that is
        known."""
        features, labels = self._need("feature_cols"), self._need("label_cols")
        both = next((name for name in features if name in labels), None)
        if both is not None:
            raise ValueError("column %r is in feature_cols and in label_cols" % both)
        check_types(schema, features, "feature_cols")
        check_types(schema, labels, "label_cols")
        validation = self._given("validation")
        if isinstance(validation, str):
            check_types(schema, [validation], "validation", only_numbers=True)
        if self._given("label_shapes"):
            shapes(self._given("label_shapes"), labels, "label")
        given = self._given("input_shapes")
        lengths = check_shapes(schema, features, shapes(given, features) if given else [])
        return features + labels, lengths

    def _check_run(self):
        run_id = self._given("run_id")
        if self._given("resume"):
            if run_id is None:
                raise ValueError("resume=True needs run_id")
            self._store.check_run(run_id)

    def _distributor(self, data):
        train, val = data.uris()
        settings = {
            name: self._given(name)
            for name, _, told, _ in _PARAMETERS
            if told and self._given(name) is not None
        }
        settings.update(
            store=self._store.uri,
            storage_options=self._store.storage_options,
            train_data=train,
            val_data=val,
            save_runs=True,  # `_model` reads the model and then removes the run
        )
        text = json.dumps(settings)
        if len("HVD_ESTIMATOR=" + text) >= _LONGEST_VARIABLE:
            raise ValueError(
                "the parameters take %d bytes, and the ranks can be told less than %d: put many "
                "feature_cols into one column of arrays" % (len(text), _LONGEST_VARIABLE)
            )
        return HvdDistributor(
            self._given("num_proc"),
            local_mode=False,
            use_gpu=self._given("use_gpu"),
            hvdrun=self._given("hvdrun"),
            # The settings may hold credentials, so they do not go into the arguments.
            environment={**self._environment, "HVD_ESTIMATOR": text},
            slot_timeout=self._slot_timeout,
            stdout=self._streams[0],
            stderr=self._streams[1],
            prefix_output_with_timestamp=self._given("prefix_output_with_timestamp"),
        )

    def _model(self, result):
        program = self._given("program")
        told = result if isinstance(result, dict) else {}
        if not all(isinstance(told.get(name), str) for name in ("run_id", "model")):
            raise HvdError(
                "%s fit ended well, but handed back %.100r: is it made with hvd::estimator_main?"
                % (program, result)
            )
        run_id = result["run_id"]
        summary = {name: result.get(name) for name in ("learning_rate", "ranks", "resumed_epochs")}
        model = HvdModel(
            program,
            self._store.read_uri(result["model"]),
            history=result.get("history"),
            run_id=run_id,
            summary=summary,
            environment=self._environment,
            use_gpu=self._given("use_gpu"),
            args=self._given("args"),
        )
        if self._given("output_cols") is not None:
            model.setOutputCols(self._given("output_cols"))
        if not self._store.save_runs:
            self._store.remove("runs/" + run_id)
        return model

    def write(self):
        return _Writer(self)

    @classmethod
    def read(cls):
        return _Reader()


class _Writer(MLWriter):
    def __init__(self, instance):
        super().__init__()
        self._instance = instance

    def saveImpl(self, path):
        store = self._instance.getStore()
        more = {"store": store and {"uri": store.uri, "saveRuns": store.save_runs}}
        DefaultParamsWriter.saveMetadata(self._instance, path, self.sparkSession, more)


class _Reader(MLReader):
    """Loads an estimator. Storage options are not saved: the user sets such a store again with
    setStore."""

    def load(self, path):
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        estimator = HvdEstimator()
        estimator._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(estimator, metadata)
        store = metadata["store"]
        if store is not None:
            estimator.setStore(Store.create(store["uri"], store["saveRuns"]))
        return estimator
