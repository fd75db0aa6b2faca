"""A partition of a DataFrame as an Arrow IPC file without a name, so that nothing is left of it."""

import os
import tempfile


class PartitionFile:
    """Lies in Spark's local directory; the rank opens it as /dev/fd/N, which it inherits."""

    def __init__(self, batches, schema):
        """batches: an iterator of pyarrow.RecordBatch. schema: for a partition without any."""
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
