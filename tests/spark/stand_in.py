"""stand_in.py fit|transform|columns ...: what hvd::estimator_main makes, in a few lines of Python
and without a network, so that a test can tell it how to go wrong.

Its model is JSON: the columns, and `how` transform is to go wrong. `transform` gives the sum of a
row's numbers, and of that the double.
"""

import json
import os
import subprocess
import sys
import time


def fit(how="", *arguments):
    request = json.loads(os.environ["HVD_ESTIMATOR"])
    rank = int(os.environ["HVD_RANK"])
    if how == "exit" and rank == int(arguments[0]):
        sys.exit("the loss is not a number")
    if how == "wait":
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        print("waiting %d %d" % (os.getpid(), child.pid), flush=True)
        time.sleep(600)
    if rank != 0:
        return
    run_id = request.get("run_id", "run")
    rows = {name: _rows(request[name]) for name in ("train_data", "val_data")}
    model = {
        "feature_cols": request["feature_cols"],
        "label_cols": request["label_cols"],
        "input_shapes": request.get("input_shapes", []),
        "output_cols": ["sum", "both"],
        "output_types": ["float", "array<float>"],
        "how": how,
    }
    folder = os.path.join(request["store"], "runs", run_id)
    os.makedirs(os.path.join(folder, "logs"), exist_ok=True)
    path = os.path.join(folder, "model.hvd")
    with open(path, "w") as file:
        json.dump(model, file)
    history = [{"epoch": 1, "request": request, **rows}]
    with open(os.path.join(folder, "logs", "history.json"), "w") as file:
        json.dump(history, file)
    result = {"run_id": run_id, "model": path, "history": history, "learning_rate": 0.5}
    if how != "silent":
        with open("/proc/self/fd/" + os.environ["HVD_RESULT_FD"], "wb") as file:
            file.write(b"j" + json.dumps({} if how == "empty" else result).encode())


def _rows(folder):
    import pyarrow.parquet  # here, because most ranks end sooner

    if folder is None:
        return None
    names = sorted(name for name in os.listdir(folder) if name.endswith(".parquet"))
    tables = [pyarrow.parquet.read_table(os.path.join(folder, name)) for name in names]
    return {"files": names, "rows": sum((table.to_pylist() for table in tables), [])}


def transform(option, path, *_):
    import pyarrow

    how, *rest = _model(path)["how"].split(" ")
    pyarrow.set_cpu_count(1)
    with pyarrow.ipc.open_stream(sys.stdin.buffer) as source:
        pair = pyarrow.list_(pyarrow.float32())
        schema = pyarrow.schema([("sum", pyarrow.float32()), ("both", pair)])
        out = pyarrow.ipc.new_stream(sys.stdout.buffer, schema)
        for at, batch in enumerate(source):
            if how == "die" and at == int(rest[0]):
                sys.exit("row 17 cannot be scored")
            if how == "hang":
                print("hangs %d" % os.getpid(), file=sys.stderr, flush=True)
                time.sleep(600)
            sums = [float(_sum(row)) for row in batch.to_pylist()]
            if how == "short":
                sums = sums[1:]
            if how == "noise":
                sys.stdout.buffer.write(b"hello\n" * 10)
            both = [[value, 2 * value] for value in sums]
            out.write_batch(
                pyarrow.record_batch(
                    [pyarrow.array(sums, "float"), pyarrow.array(both, pair)], schema=schema
                )
            )
            sys.stdout.buffer.flush()
            if how == "talk":
                sys.stderr.write("line\n" * 50000)
        out.close()
        if how == "late":
            sys.stdout.buffer.flush()
            sys.exit("at the end")


def _sum(row):
    return sum(sum(value) if isinstance(value, list) else value for value in row.values())


def columns(option, path, *_):
    model = _model(path)
    if model["how"] == "columns":
        sys.exit("the model is damaged")
    del model["how"]
    print(json.dumps(model))


def _model(path):
    with open(path) as file:
        return json.load(file)


if __name__ == "__main__":
    {"fit": fit, "transform": transform, "columns": columns}[sys.argv[1]](*sys.argv[2:])
