"""Runs `program transform`, which answers each record batch with one of as many rows.

The program runs in a task and ends with it. The caller's thread passes batches and reads the
answers. Another thread writes the batches to the pipe, so that two full pipes cannot block each
other.
"""

import collections
import ctypes
import io
import os
import queue
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from .agent import added_files, own_environment
from .errors import HvdError
from .task import visible_gpus

TAIL_LINES = 100
_AHEAD = 2  # batches that the program has been given and has not answered
_END_SECONDS = 10.0  # the time that the program has to end after its last batch
_PR_SET_PDEATHSIG = 1


class ScorerError(HvdError):
    """The program failed or gave a wrong answer."""


class Scoring(NamedTuple):
    """The settings with which a task starts the program."""

    program: str
    args: list  # arguments that follow those of hvd_spark
    directory: str  # the driver's working directory
    seconds: float  # the longest wait for an answer
    environment: list  # further variables, "NAME=value"
    folder: str = ""  # a folder that is searched for the program after PATH

    def in_task(self, gpus):
        """Returns a copy for the task that runs now. gpus: the addresses of its GPUs."""
        return self._replace(
            environment=visible_gpus(gpus) + self.environment, folder=added_files()
        )

    def command(self, what, model):
        """Returns the command line with the path of the program. Raises FileNotFoundError when
        there is no such program."""
        name = self.program
        if os.sep in name:
            name = os.path.join(
                self.directory if os.path.isdir(self.directory) else os.getcwd(), name
            )
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), self.folder])
        found = shutil.which(name, path=path)
        if found is None:
            raise FileNotFoundError(
                "%r was not found, or cannot be executed, on %s"
                % (self.program, os.uname().nodename)
            )
        return [found, what, "--model", model.path(), *self.args]

    def variables(self):
        variables = own_environment()
        variables.update(entry.split("=", 1) for entry in self.environment)
        return variables


class ModelDescriptor:
    """The bytes of the model in a file without a name."""

    def __init__(self, model):
        self.fd = os.memfd_create("hvd-model")
        try:
            with open(self.fd, "wb", closefd=False) as file:
                file.write(model)
        except BaseException:
            os.close(self.fd)
            raise

    def path(self):
        return "/dev/fd/%d" % self.fd

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)


def columns_of(scoring, model):
    """Returns the text that `program columns` writes. Raises FileNotFoundError and ScorerError."""
    with ModelDescriptor(model) as file:
        command = scoring.command("columns", file)
        try:
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=scoring.variables(),
                pass_fds=[file.fd],
                timeout=scoring.seconds,
            )
        except subprocess.TimeoutExpired:
            text = "%s did not end within %g s" % (_named(command), scoring.seconds)
            raise ScorerError(text) from None
    if ended.returncode:
        lines = ended.stderr.decode("utf-8", "replace").splitlines()[-TAIL_LINES:]
        raise ScorerError(_ended(command, ended.returncode, lines))
    return ended.stdout.decode("utf-8", "replace")


class Scorer:
    """Runs the program while it is open, as a context manager. `answer` and `finish` raise
    ScorerError."""

    def __init__(self, scoring, model, schema):
        """schema: the pyarrow.Schema of the batches that will be passed to `ask`."""
        import pyarrow

        self._schema = schema
        self._seconds = scoring.seconds
        self._questions = queue.Queue()
        self._lines = collections.deque(maxlen=TAIL_LINES)
        with ModelDescriptor(model) as file:
            self._command = scoring.command("transform", file)
            # The kernel kills the program when its task ends, also when the task is killed.
            die_with = ctypes.CDLL(None).prctl
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=scoring.variables(),
                pass_fds=[file.fd],
                preexec_fn=lambda: die_with(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
            )
        self._waits = _Answers(self._process.stdout.fileno(), self._seconds)
        self._source = pyarrow.PythonFile(io.BufferedReader(self._waits, 1 << 20), mode="r")
        self._reader = None
        self._threads = [
            threading.Thread(target=work, daemon=True, name="hvd-spark-scorer")
            for work in (self._write, self._listen)
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, batch):
        self._questions.put(batch)

    def answer(self):
        """Returns the answer to the oldest batch that has no answer yet."""
        import pyarrow

        try:
            if self._reader is None:
                self._reader = pyarrow.ipc.open_stream(self._source)
            return self._reader.read_next_batch()
        except TimeoutError:
            raise self._late("answer") from None
        except (StopIteration, OSError, pyarrow.ArrowException) as error:
            raise self._failure("its answer is no record batch: %s" % error) from None

    def finish(self):
        """Ends the program. Must be called after the last answer."""
        import pyarrow

        self._questions.put(None)
        try:
            self._reader.read_next_batch()
            raise self._failure("it answered more than it was asked")
        except TimeoutError:
            raise self._late("end") from None
        except StopIteration:
            pass
        except (OSError, pyarrow.ArrowException) as error:
            raise self._failure("its last answer is no record batch: %s" % error) from None
        if self._wait() != 0:
            raise self._failure("it did not end")

    def _wait(self):
        """Returns the exit status of the program, or None when it does not end in time."""
        try:
            return self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return None

    def _failure(self, otherwise):
        """Returns the error for a missing answer. It names the exit status of the program, if that
        is not 0, rather than `otherwise`."""
        self._questions.put(None)
        status = self._wait()
        lines = self._last_lines()
        if status:
            return ScorerError(_ended(self._command, status, lines))
        return ScorerError(_with_lines("%s: %s" % (_named(self._command), otherwise), lines))

    def _late(self, what):
        text = "%s did not %s within %g s" % (_named(self._command), what, self._seconds)
        return ScorerError(_with_lines(text, self._last_lines()))

    def _last_lines(self):
        self._process.kill()
        self._threads[1].join(_END_SECONDS)
        return list(self._lines)

    def _write(self):
        import pyarrow

        try:
            with self._process.stdin as pipe, pyarrow.ipc.new_stream(pipe, self._schema) as stream:
                while (batch := self._questions.get()) is not None:
                    stream.write_batch(batch)
                    pipe.flush()
        except (OSError, ValueError, pyarrow.ArrowException):
            pass  # the program has ended, which `answer` notices

    def _listen(self):
        with self._process.stderr as pipe:
            for line in pipe:
                self._lines.append(line.decode("utf-8", "replace").rstrip("\r\n"))
                sys.stderr.write(self._lines[-1] + "\n")  # goes to the executor's log

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._questions.put(None)
        for thread in self._threads:
            thread.join()
        self._process.stdout.close()


class _Answers(io.RawIOBase):
    """The program's standard output. A read raises TimeoutError when no byte arrives in time."""

    def __init__(self, fd, seconds):
        self._fd, self._seconds = fd, seconds
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    def readable(self):
        return True

    def readinto(self, buffer):
        deadline = time.monotonic() + self._seconds
        while not self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            if time.monotonic() >= deadline:
                raise TimeoutError
        return os.readv(self._fd, [buffer])


def score(scoring, model, features, outputs, kept, batches):
    """Yields the batches with a column appended for each name in `outputs`. Raises ScorerError.

    model: a function that returns the bytes of the model, called only if there are rows.
    features: a dict from the name of each feature column in the batches to the name that the
    program uses.
    kept: how many of the first columns are passed on.
    """
    import pyarrow

    scorer = None
    waiting = collections.deque()

    def answered():
        batch = waiting.popleft()
        answer = scorer.answer()
        if (answer.num_columns, answer.num_rows) != (len(outputs), batch.num_rows):
            raise ScorerError(
                "%s answered %d columns of %d rows to %d rows: %d columns were expected"
                % (
                    scoring.program,
                    answer.num_columns,
                    answer.num_rows,
                    batch.num_rows,
                    len(outputs),
                )
            )
        columns = batch.columns[:kept] + answer.columns
        return pyarrow.RecordBatch.from_arrays(columns, batch.schema.names[:kept] + outputs)

    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            question = pyarrow.RecordBatch.from_arrays(
                [batch.column(name) for name in features], list(features.values())
            )
            if scorer is None:
                scorer = Scorer(scoring, model(), question.schema)
            scorer.ask(question)
            waiting.append(batch)
            if len(waiting) > _AHEAD:
                yield answered()
        while waiting:
            yield answered()
        if scorer is not None:
            scorer.finish()
    finally:
        if scorer is not None:
            scorer.__exit__()


def _named(command):
    return "%s %s" % (command[0], command[1])


def _ended(command, status, lines):
    how = "exited %d" % status if status > 0 else "was killed by signal %d" % -status
    return _with_lines("%s %s" % (_named(command), how), lines)


def _with_lines(text, lines):
    return text + ("; its last lines:\n" + "\n".join(lines) if lines else "; it wrote nothing")
