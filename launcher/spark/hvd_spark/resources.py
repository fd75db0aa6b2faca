"""Finds the slots and GPUs that Spark knows of."""

import threading
import time
import warnings

from .errors import StartError

_POLL_SECONDS = 0.2


def wait_for_slots(context, needed, seconds):
    """Waits up to `seconds` for the executors of a session that has just begun. Spark itself checks
    only every 15 s, and for ten minutes. Raises StartError, which says how many slots there are."""
    scala = context._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    deadline = time.monotonic() + seconds
    while True:
        slots = scala.maxNumConcurrentTasks(profile)
        if slots >= needed:
            return
        if time.monotonic() >= deadline:
            raise StartError(
                "a barrier stage of %d tasks needs %d slots at once, and the cluster has %d "
                "(executor cores over spark.task.cpus, and GPUs where tasks need some)"
                % (needed, needed, slots)
            )
        threading.Event().wait(_POLL_SECONDS)


def warn_of_plain_output(context):
    conf = context.getConf()
    for name in ("spark.network.crypto.enabled", "spark.ssl.enabled", "spark.ssl.rpc.enabled"):
        if conf.get(name, "false").lower() == "true":
            warnings.warn(
                "%s is true: Spark encrypts its connections, but what the ranks print and what "
                "they exchange with each other is authenticated only" % name
            )
            return


def gpus_per_task(context):
    """Returns the number of GPUs of each task. Raises ValueError when it is 0."""
    amount = context.getConf().get("spark.task.resource.gpu.amount", "0")
    if float(amount) < 1:
        raise ValueError(
            "use_gpu=True needs spark.task.resource.gpu.amount to be 1 or more; it is %s. "
            "use_gpu=False trains without" % amount
        )
    return int(float(amount))


def driver_gpus(context, needed):
    """Returns the addresses of `needed` GPUs of the driver. Raises ValueError when it has fewer."""
    resources = context.resources
    addresses = list(resources["gpu"].addresses) if "gpu" in resources else []
    if len(addresses) < needed:
        raise ValueError(
            "use_gpu=True and local_mode=True need a GPU of the driver for each of %d processes, "
            "and Spark knows "
            "of %d (spark.driver.resource.gpu.amount); use_gpu=False trains without"
            % (needed, len(addresses))
        )
    return addresses[:needed]
