"""Defines the folder of a file system, named by a URI, that holds an estimator's data and models.
docs/how-to/estimator.md has its layout.

A Store is used on the driver and in tasks. It is sent by value and holds no connection.
"""

import os
import urllib.parse

from . import file_system
from .errors import HvdError


class Store:
    """A folder of a file system. Store.create makes one."""

    def __init__(self, uri, save_runs, storage_options):
        self.uri = uri
        self.save_runs = save_runs
        self.storage_options = storage_options

    @staticmethod
    def create(uri, save_runs=True, storage_options=None):
        """uri: a folder that driver, executors and ranks all reach: a path, file://, s3://,
        abfs://, gs:// or hdfs://.
        storage_options: a dict of texts, the same as for hvd::EstimatorStore
        (docs/how-to/spark.md). It may hold credentials and is never written to a file.
        save_runs: whether runs/<run_id> is kept after a fit that succeeded.

        Raises TypeError and ValueError. It does not access the file system yet.
        """
        uri = os.fspath(uri)
        if uri.startswith("file:/") and not uri.startswith("file://"):
            uri = "file://" + uri[len("file:") :]  # Spark writes file:/path
        if not uri:
            raise ValueError("the Store's URI is empty")
        options = {}
        for name, value in (storage_options or {}).items():
            if not isinstance(name, str) or not isinstance(value, (str, bool, int)):
                raise TypeError("storage_options: %r is no text" % name)
            options[name] = str(value).lower() if isinstance(value, bool) else str(value)
        file_system.check(uri, options)
        if not file_system.scheme_of(uri):
            uri = os.path.abspath(uri)
        return Store(uri.rstrip("/") or "/", bool(save_runs), options)

    def __repr__(self):
        return "Store(%r)" % self.uri  # the options may hold credentials

    def uri_of(self, name):
        if not file_system.scheme_of(self.uri):
            return os.path.join(self.uri, name)
        base, mark, query = self.uri.partition("?")
        return base.rstrip("/") + "/" + urllib.parse.quote(name) + mark + query

    def folder(self, name):
        """Returns the file system and the path of `name` on it. Raises HvdError."""
        return self._locate(self.uri_of(name))

    def _locate(self, uri):
        try:
            files, path = file_system.locate(uri, self.storage_options)
            return files, path.rstrip("/") or "/"
        except Exception as error:  # each file system raises exceptions of its own
            raise HvdError("%r cannot be opened: %s" % (self, error)) from error

    def create_folder(self, name):
        files, path = self.folder(name)
        with self.naming("create", name):
            files.create_dir(path, recursive=True)

    def remove(self, name):
        """Removes a file, or a folder with its content. Does nothing when there is none."""
        from pyarrow import fs

        files, path = self.folder(name)
        with self.naming("remove", name):
            kind = files.get_file_info(path).type
            if kind == fs.FileType.Directory:
                files.delete_dir(path)
            elif kind == fs.FileType.File:
                files.delete_file(path)

    def read(self, name):
        """Returns the bytes of the file `name`. Raises HvdError, which names the file."""
        return self.read_uri(self.uri_of(name))

    def read_uri(self, uri):
        """Returns the bytes of the file with this URI, such as one that a program has returned."""
        files, path = self._locate(uri)
        with self.naming("read", uri), files.open_input_stream(path) as stream:
            return stream.read()

    def names(self, name):
        """Returns the sorted names in the folder `name`, or none when there is no such folder."""
        from pyarrow import fs

        files, path = self.folder(name)
        with self.naming("list", name):
            found = files.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(info.base_name for info in found)

    def check_run(self, run_id):
        """Raises HvdError, which lists the existing runs, when there is no such run."""
        runs = self.names("runs")
        if run_id not in runs:
            raise HvdError(
                "%r has no run %r; it has: %s" % (self, run_id, ", ".join(runs) or "none")
            )

    def read_model(self, run_id):
        """Returns the bytes of the model of a run. Raises HvdError."""
        self.check_run(run_id)
        return self.read("runs/%s/model.hvd" % run_id)

    def naming(self, what, name):
        return _Naming("%r: cannot %s %s: %%s" % (self, what, name))


class _Naming:
    """A context manager that turns the exceptions of file systems into HvdError."""

    def __init__(self, text):
        self._text = text

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        import pyarrow

        if isinstance(error, (OSError, pyarrow.ArrowException, ValueError)):
            raise HvdError(self._text % error) from error
