"""Runs one task of the barrier stage, which starts an agent for its ranks and passes data between
the agent and the driver's hvdrun.

The code is sent to the executors by value, so this package need not be installed there.
"""

import json
import os
import socket
import threading
from typing import NamedTuple, Optional

from .agent import Agent, added_files
from .link import Link, key_of
from .own_part import own_part
from .partition import PartitionFile
from .result import ResultDescriptor


class Spec(NamedTuple):
    """The settings that Spark sends to all tasks of a job."""

    address: tuple  # host and port of the driver
    secret: bytes
    hvdrun: str
    program: list
    directory: str
    environment: list  # strings "NAME=value"
    interfaces: str
    use_gpu: bool
    schema: Optional[object] = None  # the Arrow schema of the DataFrame

    def __repr__(self):
        return "Spec of %r" % self.program[0]  # the secret must not appear in logs


def host_key():
    """Returns a text that is equal for processes that can share memory and Unix sockets. The
    library compares hosts in the same way."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    return "%s %d" % (boot, os.stat("/proc/self/ns/net").st_ino)


def visible_gpus(addresses):
    """Returns the variable that shows these GPUs to a rank. When CUDA_VISIBLE_DEVICES is set here,
    the addresses are indices into its list."""
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if named and all(address.isdigit() and int(address) < len(named) for address in addresses):
        addresses = [named[int(address)] for address in addresses]
    return ["CUDA_VISIBLE_DEVICES=" + ",".join(addresses)]


def run_task(spec, batches=None):
    """Returns the bytes of the result in task 0, and no bytes in other tasks. A failure of the
    program is reported to the driver and does not make the task fail, because Spark would run a
    failed task again."""
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
            # hvdrun expects an agent's greeting, and reports this text in its place.
            link.send(str(error).encode())
            link.finish()
            while link.receive() is not None:  # ends when the driver has read the text
                pass
            return b""
        relay(agent, link)
        return result.take()


def _start_agent(spec, context, inherited):
    directory = spec.directory if os.path.isdir(spec.directory) else os.getcwd()
    path = os.environ.get("PATH", os.defpath) + os.pathsep + added_files()
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
    """Passes on messages in both directions until one side ends, which ends the ranks too."""

    def pass_orders():
        while (data := link.receive()) is not None:
            try:
                agent.send(data)
            except OSError:
                pass  # the agent has ended, and the driver does not know it yet
        agent.close()

    orders = threading.Thread(target=pass_orders, daemon=True, name="hvd-spark-orders")
    orders.start()
    while (data := agent.receive()) is not None:
        try:
            link.send(data)
        except OSError:  # the driver is gone
            link.close()  # then `pass_orders` closes the agent
    link.finish()
    orders.join()  # ends when the driver has read everything or is gone
