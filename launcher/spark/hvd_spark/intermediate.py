"""Writes a DataFrame to a Store as Parquet. The tasks of a Spark stage write it through Arrow's
file systems, so that every URI works alike and Spark needs no connector.

Each attempt of a task writes files with names of its own. When the stage is over, the driver
renames the files of the attempts whose results Spark has returned. Thus no row is there twice when
Spark repeats a task or runs it twice.
"""

import concurrent.futures
import json
import secrets
from typing import NamedTuple

from .columns import as_numbers, quoted
from .errors import HvdError
from .keeper import Keeper
from .shipping import send_by_value
from .store import Store

_VALIDATION = "__hvd_validation"
_GROUP_BYTES = 4 << 20  # the size of a row group, the unit that ranks shuffle and read
_GROUP_ROWS = (128, 64 << 10)
_SPLIT = 1 << 32  # the resolution of a fraction
_MOVES = 8  # the number of files that are renamed at a time


class IntermediateData:
    """The folders with the training and validation rows of one fit. It is a context manager, which
    removes the folders at its end; they are also removed when the driver is killed."""

    def __init__(self, store, with_validation):
        self._store = store
        name = secrets.token_hex(8)
        self._folders = ["intermediate_train_data." + name]
        if with_validation:
            self._folders.append("intermediate_val_data." + name)
        self._keeper = None

    def uris(self):
        """Returns the URIs of the training rows and of the validation rows. The second one is None
        when there is no validation."""
        found = [self._store.uri_of(folder) for folder in self._folders]
        return (found + [None])[:2]

    def __enter__(self):
        self._keeper = Keeper(self._store, self._folders)
        return self

    def __exit__(self, kind, *_):
        try:
            for folder in self._folders:
                self._store.remove(folder)
        except HvdError:
            if kind is None:
                raise
        finally:
            self._keeper.close()

    def write(self, dataframe, columns, lengths, files, validation, seed):
        """Writes `columns` into at most `files` files per folder and returns the number of rows in
        each folder.

        lengths: how many numbers a row has, by the name of the column.
        validation: None, the name of a column, or a fraction. A fraction selects rows by a hash of
        their values and the seed, so the choice does not depend on the DataFrame's partitions.

        Raises HvdError when the Store cannot be written, and ValueError for rows that do not fit
        and for a folder without rows.
        """
        for folder in self._folders:
            self._store.create_folder(folder)
        send_by_value()
        table = dataframe.select(
            *(as_numbers(dataframe, name).alias(name) for name in columns),
            _is_validation(dataframe, columns, validation, seed).alias(_VALIDATION)
        )
        task = _Task(self._store, tuple(self._folders), dict(lengths))
        reports = [
            json.loads(row.report)
            for row in table.repartition(files)
            .mapInArrow(task.write_partition, "report string")
            .collect()
        ]
        self._refuse(reports, lengths)
        rows = [sum(report["rows"][at] for report in reports) for at in range(len(self._folders))]
        if not sum(rows):
            raise ValueError("the DataFrame has no rows")
        for count, what in zip(rows, ("train", "validate")):
            if not count:
                raise ValueError(
                    "validation=%r leaves none of %d rows to %s with"
                    % (validation, sum(rows), what)
                )
        self._commit(reports)
        return rows

    def _refuse(self, reports, lengths):
        for report in reports:
            if report["error"]:
                raise HvdError(report["error"])
        total = sum(report["total"] for report in reports)
        for column in sorted({name for report in reports for name in report["wrong"]}):
            found = [report["wrong"][column] for report in reports if column in report["wrong"]]
            expected = "%d numbers" % lengths[column] if column in lengths else "numbers"
            raise ValueError(
                "column %r: %d of %d rows do not have %s; the first %s"
                % (column, sum(count for count, _ in found), total, expected, found[0][1])
            )

    def _commit(self, reports):
        renames = [
            (folder, written, "part-%05d.parquet" % report["partition"])
            for report in reports
            for folder, written in zip(self._folders, report["written"])
            if written is not None
        ]
        with concurrent.futures.ThreadPoolExecutor(_MOVES) as pool:
            for done in [pool.submit(self._rename, *rename) for rename in renames]:
                done.result()

    def _rename(self, folder, written, name):
        files, path = self._store.folder(folder)
        with self._store.naming("rename", written):
            files.move(path + "/" + written, path + "/" + name)


def _is_validation(dataframe, columns, validation, seed):
    from pyspark.sql import functions, types

    if validation is None:
        return functions.lit(False)
    if not isinstance(validation, str):
        parts = [functions.lit(str(seed)), *(as_numbers(dataframe, name) for name in columns)]
        chosen = functions.pmod(functions.xxhash64(*parts), functions.lit(_SPLIT))
        return chosen < int(validation * _SPLIT)
    column = dataframe[quoted(validation)]
    if not isinstance(dataframe.schema[validation].dataType, types.BooleanType):
        column = column > 0
    return functions.coalesce(column, functions.lit(False))


class _Task(NamedTuple):
    """The settings of one task."""

    store: Store
    folders: tuple
    lengths: dict

    def write_partition(self, batches):
        """Yields one row, the report. An error of the Store goes into the report and does not make
        the task fail, because Spark would run a failed task again."""
        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        name = ".part-%05d-%d" % (context.partitionId(), context.taskAttemptId())
        outputs = [_Output(self.store, folder, name) for folder in self.folders]
        wrong = {}
        total = 0
        error = None
        try:
            for batch in batches:
                total += batch.num_rows
                self._look_through(batch, wrong)
                if not wrong:
                    for output, part in zip(outputs, self._split(batch)):
                        output.write(part)
            for output in outputs:
                output.close()
        except HvdError as caught:
            error = str(caught)
            for output in outputs:
                output.abandon()
        report = {
            "partition": context.partitionId(),
            "total": total,
            "rows": [output.rows for output in outputs],
            "written": [output.written() for output in outputs],
            "wrong": wrong,
            "error": error,
        }
        yield pyarrow.RecordBatch.from_pydict({"report": [json.dumps(report)]})

    def _split(self, batch):
        import pyarrow.compute

        data = batch.select(batch.schema.names[:-1])
        if len(self.folders) == 1:
            return [data]
        chosen = batch.column(batch.num_columns - 1)
        return [data.filter(pyarrow.compute.invert(chosen)), data.filter(chosen)]

    def _look_through(self, batch, wrong):
        """Counts, by column, the rows that have no value or another number of numbers than
        expected. It leaves nested lists to the program, which checks them itself."""
        import pyarrow
        from pyarrow import compute

        for name, column in zip(batch.schema.names[:-1], batch.columns):
            is_list = pyarrow.types.is_list(column.type) or pyarrow.types.is_large_list(column.type)
            if is_list:
                sizes = compute.list_value_length(column)
                good = compute.is_valid(column)
                if name in self.lengths:
                    full = compute.equal(sizes, self.lengths[name]).fill_null(False)
                    good = compute.and_(good, full)
                if column.flatten().null_count:
                    good = compute.and_(good, _lists_without_nulls(column))
            else:
                good = compute.is_valid(column)
            count = len(column) - compute.sum(good).as_py() if len(column) else 0
            if count:
                before = wrong.get(name, (0, None))
                wrong[name] = (before[0] + count, before[1] or _say(column, good, is_list))


def _lists_without_nulls(column):
    import pyarrow

    return pyarrow.array([row is None or None not in row for row in column.to_pylist()])


def _say(column, good, is_list):
    first = column[good.index(False).as_py()].as_py()
    if first is None:
        return "is null"
    return "has %d" % len(first) if is_list and None not in first else "has a null"


class _Output:
    """One file, which is created when the first row arrives."""

    def __init__(self, store, folder, name):
        self._store, self._folder, self._name = store, folder, name
        self._files = self._path = self._stream = self._writer = None
        self.rows = 0

    def written(self):
        return self._name if self._path is not None else None

    def write(self, batch):
        import pyarrow.parquet

        self.rows += batch.num_rows
        if not batch.num_rows:
            return
        with self._store.naming("write", self._folder):
            if self._writer is None:
                files, path = self._store.folder(self._folder)
                self._files, self._path = files, path + "/" + self._name
                self._stream = files.open_output_stream(self._path)
                self._writer = pyarrow.parquet.ParquetWriter(self._stream, batch.schema)
            self._writer.write_batch(batch, row_group_size=_rows_per_group(batch))

    def close(self):
        if self._writer is not None:
            with self._store.naming("write", self._folder):
                self._writer.close()
                self._stream.close()

    def abandon(self):
        """Removes the file. Errors are dropped, because the report already has the first error."""
        self._writer = None
        try:
            if self._stream is not None:
                self._stream.close()
                self._files.delete_file(self._path)
        except Exception:
            pass


def _rows_per_group(batch):
    least, most = _GROUP_ROWS
    return max(least, min(most, _GROUP_BYTES * batch.num_rows // max(1, batch.nbytes)))
