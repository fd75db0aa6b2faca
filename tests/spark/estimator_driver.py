"""estimator_driver.py MASTER FOLDER STORE: a driver that a test kills while its ranks train. Where
its program was built, it goes through the tutorial before."""

import os
import runpy
import sys

from hvd_spark import HvdEstimator, Store

import support

master, folder, store = sys.argv[1:]
os.environ["OF_THE_TEST"] = store
spark = support.session(master, folder, **{"spark.executor.cores": "1"})
tutorial = support.tutorial()
if tutorial is not None:
    _, share = runpy.run_path(tutorial.script)["run"](
        spark,
        tutorial.program,
        Store.create(folder + "/tutorial"),
        2,
        rows=600,
        test_rows=200,
        epochs=2,
        partitions_per_process=2,
        hvdrun=support.HVDRUN,
        slot_timeout=60,
    )
    print("accuracy %.3f" % share, flush=True)
HvdEstimator(
    support.stand_in(folder),
    Store.create(store),
    num_proc=2,
    args=["wait"],
    feature_cols=["x"],
    label_cols=["y"],
    validation=0.5,
    partitions_per_process=1,
    hvdrun=support.HVDRUN,
    slot_timeout=60,
).fit(spark.range(100).selectExpr("id as x", "id as y"))
