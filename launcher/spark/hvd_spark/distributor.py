"""HvdDistributor runs C++ programs as Spark's TorchDistributor runs Python functions."""

import os
import secrets
import socket

from .agent import Agent, added_files
from .errors import HvdError, StartError
from .job import Job
from .link import LinkServer, key_of
from .own_part import SECRET_SIZE, own_part
from .resources import driver_gpus, gpus_per_task, wait_for_slots, warn_of_plain_output
from .result import ResultDescriptor, to_object
from .shipping import send_by_value
from .task import Spec, host_key, run_task, visible_gpus

_STAGE_END_SECONDS = 10.0  # the time that Spark has to end a stage whose tasks must end


class HvdDistributor:
    """Runs a C++ program of hvd as `num_processes` ranks: on the driver's machine (local_mode), or
    as the tasks of a barrier stage.

    use_gpu: each process sees the GPUs that Spark has assigned to it, by CUDA_VISIBLE_DEVICES;
    without it, a process sees no GPU.
    hvdrun: the path of hvdrun on the driver and on the machines that run ranks, or a name that is
    searched for in PATH.
    environment: a dict of further variables for all ranks.
    slot_timeout: the seconds to wait for executors of a session that has just begun.
    stdout, stderr: the text streams for the output of the ranks, in place of the driver's own.
    prefix_output_with_timestamp: whether each line begins with the time.

    Raises TypeError and ValueError for wrong arguments, before anything starts.
    """

    def __init__(
        self,
        num_processes=1,
        local_mode=True,
        use_gpu=True,
        *,
        hvdrun="hvdrun",
        environment=None,
        slot_timeout=10.0,
        stdout=None,
        stderr=None,
        prefix_output_with_timestamp=False,
        **unknown,
    ):
        if unknown:
            raise TypeError(
                "HvdDistributor has no parameter %r; the number of ranks is num_processes"
                % next(iter(unknown))
            )
        if isinstance(num_processes, bool) or not isinstance(num_processes, int):
            raise TypeError("num_processes is %r: expected a whole number" % (num_processes,))
        if num_processes < 1:
            raise ValueError("num_processes is %d: expected 1 or more" % num_processes)
        self.num_processes = num_processes
        self.local_mode = bool(local_mode)
        self.use_gpu = bool(use_gpu)
        self._hvdrun = os.fspath(hvdrun)
        self._environment = as_variables(environment or {})
        self._streams = (stdout, stderr)
        self._timestamps = bool(prefix_output_with_timestamp)
        self._slot_timeout = slot_timeout
        self._context = spark_context()
        self._ranks_per_task = 1
        if not self.local_mode:
            warn_of_plain_output(self._context)
        if self.use_gpu and self.local_mode:
            driver_gpus(self._context, num_processes)
        elif self.use_gpu:
            self._ranks_per_task = gpus_per_task(self._context)
            if num_processes % self._ranks_per_task:
                raise ValueError(
                    "num_processes is %d: with spark.task.resource.gpu.amount %d every task has as "
                    "many processes, so it must be a multiple"
                    % (num_processes, self._ranks_per_task)
                )

    def run(self, program, *args):
        """Runs `program` with `args`, prints what its ranks write, and returns what rank 0 passed
        to hvd::set_result: bytes, the object that its JSON describes, or None.

        Raises ProgramError when a rank fails, and StartError when no rank has started.
        """
        command = _command(program, args)
        if self.local_mode:
            return self._run_here(command)
        return self._run_stage(command, self._plain_stage, None)

    def run_on(self, dataframe, program, *args):
        """Does what `run` does; in addition each rank gets a share of the rows, which it reads with
        hvd::ArrowPartition. Needs local_mode=False, pyarrow on driver and executors, and one
        process per task."""
        command = _command(program, args)
        if self.local_mode:
            raise ValueError(
                "run_on hands over partitions where they are: it needs local_mode=False"
            )
        if self._ranks_per_task != 1:
            raise ValueError(
                "run_on has one process per task, and spark.task.resource.gpu.amount is %d"
                % self._ranks_per_task
            )
        from pyspark.sql.pandas.types import to_arrow_schema

        zone = dataframe.sparkSession.conf.get("spark.sql.session.timeZone")
        schema = to_arrow_schema(dataframe.schema, timezone=zone)

        def stage(spec, tasks):
            def run_partition(batches):
                import pyarrow

                yield pyarrow.RecordBatch.from_pydict(
                    {"result": pyarrow.array([run_task(spec, batches)], pyarrow.binary())}
                )

            table = dataframe.repartition(tasks).mapInArrow(
                run_partition, "result binary", barrier=True
            )
            return [row.result for row in table.collect()]

        return self._run_stage(command, stage, schema)

    # ---- on the driver's machine

    def _run_here(self, command):
        job = self._job()
        gpus = driver_gpus(self._context, self.num_processes) if self.use_gpu else []
        with ResultDescriptor() as result:
            own = own_part(
                program=command,
                directory=os.getcwd(),
                environment=visible_gpus(gpus) + self._environment,
                interfaces=self._interfaces(),
                secret=secrets.token_bytes(SECRET_SIZE),
                of_first_rank=result.variables(),
            )
            path = os.environ.get("PATH", os.defpath) + os.pathsep + added_files()
            try:
                agent = Agent(self._hvdrun, os.getcwd(), path, own, [result.fd])
            except OSError as error:
                raise StartError(str(error)) from None
            try:
                job.attach(agent, self.num_processes, socket.gethostname(), host_key())
                job.adopt(agent)
                _carry_out(job)
            finally:
                job.close()
            return to_object(result.take())

    # ---- on the executors

    def _plain_stage(self, spec, tasks):
        partitions = self._context.parallelize(range(tasks), tasks).barrier()
        return partitions.mapPartitions(lambda _: [run_task(spec)]).collect()

    def wait_for_slots(self):
        """Waits until Spark can run the tasks of all ranks at once. `run` calls it. Raises
        StartError, which says how many slots there are."""
        wait_for_slots(self._context, self._tasks(), self._slot_timeout)

    def _tasks(self):
        return self.num_processes // self._ranks_per_task

    def _run_stage(self, command, stage, schema):
        from pyspark import InheritableThread

        tasks = self._tasks()
        self.wait_for_slots()
        job = self._job()
        secret = secrets.token_bytes(SECRET_SIZE)
        conf = self._context.getConf()
        host = conf.get("spark.driver.host")
        server = LinkServer(conf.get("spark.driver.bindAddress", host), key_of(secret), job.adopt)
        spec = Spec(
            address=(host, server.port),
            secret=secret,
            hvdrun=self._hvdrun,
            program=command,
            directory=os.getcwd(),
            environment=self._environment,
            interfaces=self._interfaces(),
            use_gpu=self.use_gpu,
            schema=schema,
        )
        results = []
        thread = InheritableThread(target=self._spark_job, args=(job, stage, spec, tasks, results))
        thread.daemon = True  # the driver can exit although Spark hangs
        try:
            thread.start()
            job.meet(tasks, self._ranks_per_task)
            server.close()  # all tasks are connected, and a second attempt is not accepted
            _carry_out(job)
            thread.join()
        finally:
            server.close()
            job.close()
            self._end_of(thread, job)
        if isinstance(results[0], BaseException):
            raise HvdError(
                "the ranks ended well, but their stage did not: %s" % results[0]
            ) from results[0]
        return to_object(results[0])

    def _spark_job(self, job, stage, spec, tasks, results):
        """Runs on a thread of its own, so that the caller's thread can print and be interrupted."""
        try:
            send_by_value()
            self._context.addJobTag(job.id)
            results.extend(stage(spec, tasks))
            job.put("spark", "the stage is over")
        except BaseException as error:
            results.insert(0, error)
            job.put("spark", error)

    def _end_of(self, thread, job):
        """Waits for the end of the Spark job. The tasks end when their links are closed. Spark may
        have started a second attempt before that, which is cancelled."""
        thread.join(_STAGE_END_SECONDS)
        if thread.is_alive():
            self._context.cancelJobsWithTag(job.id)
            thread.join(_STAGE_END_SECONDS)

    def _job(self):
        return Job(self._hvdrun, self._streams, self._timestamps)

    def _interfaces(self):
        name = "HVD_NETWORK_INTERFACES="
        return next(
            (entry[len(name) :] for entry in self._environment if entry.startswith(name)), ""
        )


def _carry_out(job):
    try:
        job.run()
    except KeyboardInterrupt:
        job.interrupt()
        raise


def spark_context():
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.active()  # the default session, on a thread without one of its own
    except PySparkRuntimeError as error:
        raise HvdError("hvd_spark needs an active SparkSession") from error
    try:
        return session.sparkContext
    except Exception as error:
        raise HvdError(
            "hvd_spark needs a SparkContext, which Spark Connect does not have"
        ) from error


def _command(program, args):
    if callable(program):
        raise TypeError(
            "run starts a program; functions run on several processes with hvd::spawn, in C++"
        )
    words = [os.fspath(program), *(str(word) for word in args)]
    for word in words:
        if "\0" in word or not words[0]:
            raise ValueError("%r cannot be a program or an argument" % word)
    return words


def as_variables(environment):
    """Returns a list of "NAME=value". Raises ValueError for a name that is not allowed."""
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name + str(value):
            raise ValueError("%r cannot be a variable of the environment" % name)
        if name in (
            "HVD_RANK",
            "HVD_SIZE",
            "HVD_STORE",
            "HVD_SECRET_FD",
            "HVD_RESULT_FD",
            "HVD_ARROW_PARTITION",
        ):
            raise ValueError("%s is set by HvdDistributor itself" % name)
    return ["%s=%s" % (name, value) for name, value in environment.items()]
