"""One task of the barrier stage: starts an agent for its ranks, and relays between it and the
driver.

Sent to the executors by value: nothing of this package has to be installed there.
"""

import json
import os
import socket
import threading
from typing import NamedTuple, Optional

from . import frames
from .agent import Agent
from .link import Link, key_of
from .partition import PartitionFile
from .result import ResultDescriptor
from .version import VERSION


class Spec(NamedTuple):
    """What all tasks of a job are told, through Spark."""

    address: tuple  # of the driver: host, port
    secret: bytes
    hvdrun: str
    program: list
    directory: str
    environment: list  # "NAME=value"
    interfaces: str
    use_gpu: bool
    schema: Optional[object] = None  # of the DataFrame, in Arrow's terms

    def __repr__(self):
        return "Spec of %r" % self.program[0]  # without the secret


def host_key():
    """Equal for processes that can share memory and Unix sockets, as the library compares them."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    return "%s %d" % (boot, os.stat("/proc/self/ns/net").st_ino)


def visible_gpus(addresses):
    """Addresses count what is visible already, if anything is named."""
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if named and all(address.isdigit() and int(address) < len(named) for address in addresses):
        addresses = [named[int(address)] for address in addresses]
    return ["CUDA_VISIBLE_DEVICES=" + ",".join(addresses)]


def run_task(spec, batches=None):
    """The bytes of the result for task 0, else none. Whatever the program does is told to the
    driver and is no failure of the task, which Spark would run again."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    partition = None if batches is None else PartitionFile(batches, spec.schema)
    link = Link.of_task(spec.address, key_of(spec.secret))
    try:
        hello = {"task": context.partitionId(), "host": host_key(), "name": socket.gethostname()}
        link.send(json.dumps(hello).encode())
        place = link.receive()
        if place is None:
            return b""  # the job is over
        return _run_ranks(spec, json.loads(place), context, partition, link)
    finally:
        link.close()
        if partition is not None:
            partition.close()


def _run_ranks(spec, place, context, partition, link):
    with ResultDescriptor() as result:
        inherited = [result] if place["ranks"][0] == 0 else []
        inherited += [partition] if partition is not None else []
        try:
            agent = _prepared_agent(spec, place, context, inherited)
        except (OSError, RuntimeError, ValueError) as error:
            link.send(
                frames.refused(127 if isinstance(error, FileNotFoundError) else 70, str(error))
            )
            link.receive()  # until the driver has heard it
            return b""
        return result.take() if relay(agent, link) else b""


def _prepared_agent(spec, place, context, inherited):
    from pyspark import SparkFiles

    directory = spec.directory if os.path.isdir(spec.directory) else os.getcwd()
    # What SparkContext.addFile brought is found by its name alone.
    path = os.environ.get("PATH", os.defpath) + os.pathsep + SparkFiles.getRootDirectory()
    gpus = context.resources()["gpu"].addresses if spec.use_gpu else []
    variables = place["variables"]
    variables[0] = variables[0] + [entry for part in inherited for entry in part.variables()]
    agent = Agent(spec.hvdrun, directory, path, [part.fd for part in inherited])
    try:
        agent.send(
            frames.prepare(
                version=VERSION,
                job_id=place["job"],
                meeting=place["meeting"],
                interfaces=spec.interfaces,
                directory=directory,
                program=spec.program,
                environment=visible_gpus(gpus) + spec.environment,
                ranks=[frames.Rank(*rank) for rank in zip(place["ranks"], variables)],
                secret=spec.secret,
            )
        )
    except BaseException:
        agent.close()
        raise
    return agent


def relay(agent, link):
    """Passes on what the one says to the other until either has ended, and with it the ranks. True
    when the agent said that all is done."""

    def pass_orders():
        while (frame := link.receive()) is not None:
            try:
                agent.send(frame)
            except OSError:
                pass  # it has ended, and the driver does not know yet
        agent.close()

    orders = threading.Thread(target=pass_orders, daemon=True, name="hvd-spark-orders")
    orders.start()
    whole = False
    while (frame := agent.receive()) is not None:
        try:
            link.send(frame)
        except OSError:  # the driver is gone
            link.close()  # and so ends the agent
            continue
        if frame[0] == frames.DONE:
            whole = True
            agent.close()
    link.finish()
    orders.join()  # until the driver has heard all, or is gone
    return whole
