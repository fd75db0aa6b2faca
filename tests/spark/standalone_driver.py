"""standalone_driver.py MASTER FOLDER STORE: a driver that a test kills. Ranks with GPUs hand back a
result; the tutorial is gone through, where its program was built; and then there are, until the
end, a fit and a transform at once."""

import os
import runpy
import sys
import threading

from hvd_spark import HvdDistributor, HvdEstimator, ProgramError, StartError, Store

import support

master, folder, store = sys.argv[1:]
os.environ["OF_THE_TEST"] = store
gpu = {
    "spark.executor.resource.gpu.amount": "1",
    "spark.task.resource.gpu.amount": "1",
    "spark.executor.cores": "1",
}
spark = support.session(master, folder, **gpu)
distributor = HvdDistributor(2, local_mode=False, hvdrun=support.HVDRUN, slot_timeout=60)
spark.sparkContext.addFile(support.RANK)
print("result", distributor.run("spark_rank", "place"), flush=True)
try:
    distributor.run("no_program")
except StartError as error:
    print("missing", error, flush=True)
spark.stop()

none = {name: "0" for name in gpu if "gpu" in name}
spark = support.session(master, folder, **none, **{"spark.executor.cores": "2"})
tutorial = support.tutorial()
if tutorial is not None:
    _, share = runpy.run_path(tutorial.script)["run"](
        spark,
        tutorial.program,
        Store.create(folder + "/tutorial"),
        2,
        rows=900,
        test_rows=400,
        batch_size=16,
        partitions_per_process=2,
        hvdrun=support.HVDRUN,
        slot_timeout=60,
    )
    print("accuracy %.3f" % share, flush=True)


spark.sparkContext.addFile(support.stand_in(folder))


def fit(how):
    return HvdEstimator(
        "stand_in",
        Store.create(store, save_runs=False),
        num_proc=2,
        args=[how],
        feature_cols=["x"],
        label_cols=["y"],
        validation=0.5,
        partitions_per_process=1,
        hvdrun=support.HVDRUN,
        slot_timeout=60,
    ).fit(spark.range(100).selectExpr("id as x", "id as y"))


if os.path.exists(support.REGRESSION):
    print("regression", support.regression(spark, folder + "/regression"), flush=True)
    shaped = {"args": ["regression", 3], "label_shapes": [[1]], "epochs": 1}
    print("shaped", support.regression(spark, folder + "/shaped", **shaped), flush=True)
    try:
        support.regression(spark, folder + "/shaped", args=["regression", 3])
    except ProgramError as error:
        print("refused", " ".join(str(error).split()), flush=True)
model = fit("hang").setEnvironment({"OF_THE_TEST": store})
scored = model.transform(spark.range(0, 100, 1, 2).selectExpr("id as x"))
threading.Thread(target=scored.collect, daemon=True).start()
fit("wait")
