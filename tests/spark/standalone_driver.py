"""standalone_driver.py MASTER FOLDER: a driver that a test kills. Its ranks have GPUs."""

import sys

from hvd_spark import HvdDistributor

import support

master, folder = sys.argv[1:]
gpu = {
    "spark.executor.resource.gpu.amount": "1",
    "spark.task.resource.gpu.amount": "1",
    "spark.executor.cores": "1",
}
support.session(master, folder, **gpu)
distributor = HvdDistributor(2, local_mode=False, hvdrun=support.HVDRUN, slot_timeout=60)
print("result", distributor.run(support.RANK, "place"), flush=True)
distributor.run(support.RANK, "wait")
