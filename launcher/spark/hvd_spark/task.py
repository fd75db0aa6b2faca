"""One task of the barrier stage: starts an agent for its ranks, and relays between it and the
driver's hvdrun.

Sent to the executors by value: nothing of this package has to be installed there.
"""

import json
import os
import socket
import threading
from typing import NamedTuple, Optional

from .agent import Agent
from .link import Link, key_of
from .own_part import own_part
from .partition import PartitionFile
from .result import ResultDescriptor


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
        inherited = [result] if place["first"] else []
        inherited += [partition] if partition is not None else []
        try:
            agent = _start_agent(spec, context, inherited)
        except (OSError, ValueError) as error:
            # In the place of an agent's greeting: hvdrun says that this is what came.
            link.send(str(error).encode())
            link.finish()
            while link.receive() is not None:  # until the driver has heard it
                pass
            return b""
        relay(agent, link)
        return result.take()


def _start_agent(spec, context, inherited):
    from pyspark import SparkFiles

    directory = spec.directory if os.path.isdir(spec.directory) else os.getcwd()
    # What SparkContext.addFile brought is found by its name alone.
    path = os.environ.get("PATH", os.defpath) + os.pathsep + SparkFiles.getRootDirectory()
    gpus = context.resources()["gpu"].addresses if spec.use_gpu else []
    own = own_part(
        program=spec.program,
        directory=directory,
        environment=visible_gpus(gpus) + spec.environment,
        interfaces=spec.interfaces,
        secret=spec.secret,
        of_first_rank=[entry for part in inherited for entry in part.variables()],
    )
    return Agent(spec.hvdrun, directory, path, own, [part.fd for part in inherited])


def relay(agent, link):
    """Passes on what the one says to the other until either has ended, and with it the ranks."""

    def pass_orders():
        while (data := link.receive()) is not None:
            try:
                agent.send(data)
            except OSError:
                pass  # it has ended, and the driver does not know yet
        agent.close()

    orders = threading.Thread(target=pass_orders, daemon=True, name="hvd-spark-orders")
    orders.start()
    while (data := agent.receive()) is not None:
        try:
            link.send(data)
        except OSError:  # the driver is gone
            link.close()  # and so ends the agent
    link.finish()
    orders.join()  # until the driver has heard all, or is gone
