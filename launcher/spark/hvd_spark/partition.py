"""Writes a partition of a DataFrame to an Arrow IPC file without a name, which disappears when the
last process has closed it."""

import os
import tempfile


class PartitionFile:
    """A file in Spark's local directory. The rank inherits its descriptor and opens /dev/fd/N."""

    def __init__(self, batches, schema):
        """batches: an iterator of pyarrow.RecordBatch. schema: the schema of the file when there is
        no batch."""
        import pyarrow

        folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
        self._file = tempfile.TemporaryFile(dir=folder)
        self.fd = self._file.fileno()
        self._rows = 0
        writer = None
        for batch in batches:
            if writer is None:
                writer = pyarrow.ipc.new_file(self._file, batch.schema)
            writer.write_batch(batch)
            self._rows += batch.num_rows
        if writer is None:
            writer = pyarrow.ipc.new_file(self._file, schema)
        writer.close()
        self._file.flush()

    def variables(self):
        return ["HVD_ARROW_PARTITION=%d /dev/fd/%d" % (self._rows, self.fd)]

    def close(self):
        self._file.close()
