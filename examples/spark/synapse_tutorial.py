"""Follows Azure Synapse's tutorial "Distributed training with Horovod and PyTorch" step by step.
The network is that of mnist_estimator, a program in C++; the images are those of Fashion-MNIST.

    python synapse_tutorial.py --hvdrun build/release/bin/hvdrun build/release/bin/mnist_estimator
    spark-submit --master spark://... synapse_tutorial.py --processes 8 --store s3://bucket/runs \\
        /shared/mnist_estimator

Prints the accuracy on images that were not used for training.
"""

import argparse
import gzip
import os
import tempfile

import numpy
import pyarrow
from hvd_spark import HvdEstimator, Store
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

MEAN, DEVIATION = 0.2860, 0.3530  # of the training pixels, divided by 255
DATA = "/usr/share/datasets/fashion-mnist"  # from Debian's package dataset-fashion-mnist


def images(spark, folder, name, rows=None):
    """Returns a DataFrame with the columns `features`, 784 numbers, and `label`."""

    def read(kind, header):
        with gzip.open(os.path.join(folder, "%s-%s-ubyte.gz" % (name, kind))) as file:
            return numpy.frombuffer(file.read(), numpy.uint8, offset=header)

    labels = read("labels-idx1", 8)[:rows]
    pixels = read("images-idx3", 16).reshape(-1, 784)[: len(labels)]
    table = {"image": [image.tobytes() for image in pixels], "label": labels.astype(numpy.int64)}

    def decode(batches):  # runs on the executors, which get one byte per pixel
        for batch in batches:
            values = numpy.frombuffer(b"".join(batch["image"].to_pylist()), numpy.uint8)
            values = (values.astype(numpy.float32) / 255 - MEAN) / DEVIATION
            ends = numpy.arange(batch.num_rows + 1, dtype=numpy.int32) * 784
            features = pyarrow.ListArray.from_arrays(ends, pyarrow.array(values))
            yield pyarrow.RecordBatch.from_arrays([features, batch["label"]], ["features", "label"])

    raw = spark.createDataFrame(pyarrow.table(table))
    return raw.mapInArrow(decode, "features array<float>, label long")


def estimator(program, store, processes, **other):
    """Returns the estimator. The program defines network, optimizer (SGD with momentum 0.5) and
    loss. other: parameters that differ from those of the tutorial."""
    parameters = {
        "feature_cols": ["features"],
        "label_cols": ["label"],
        "input_shapes": [[-1, 1, 28, 28]],
        "batch_size": 128,
        "epochs": 3,
        "validation": 0.1,
        "verbose": 1,
    }
    return HvdEstimator(program, store, num_proc=processes, **{**parameters, **other})


def accuracy(model, test):
    scored = model.setOutputCols(["label_prob"]).transform(test)
    # The prediction is the class with the largest output.
    best = expr("cast(array_position(label_prob, array_max(label_prob)) - 1 as double)")
    scored = scored.withColumn("label_pred", best)
    evaluator = MulticlassClassificationEvaluator(
        predictionCol="label_pred", labelCol="label", metricName="accuracy"
    )
    return evaluator.evaluate(scored)


def run(spark, program, store, processes, folder=DATA, rows=None, test_rows=None, **other):
    """Returns the model and its accuracy."""
    train = images(spark, folder, "train", rows)
    test = images(spark, folder, "t10k", test_rows)
    model = estimator(program, store, processes, **other).fit(train)
    return model, accuracy(model, test)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--store", help="a folder by URI that all machines reach")
    parser.add_argument("--data", default=DATA, help="the folder of Fashion-MNIST")
    parser.add_argument("--rows", type=int, help="to train with: fewer than 60000")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--hvdrun", default="hvdrun", help="where it is on the executors")
    parser.add_argument("program", help="mnist_estimator")
    options = parser.parse_args()

    spark = SparkSession.builder.appName("synapse tutorial").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        store = Store.create(options.store or folder)
        model, share = run(
            spark,
            options.program,
            store,
            options.processes,
            options.data,
            options.rows,
            epochs=options.epochs,
            hvdrun=options.hvdrun,
        )
    print("learning rate %g" % model.getSummary()["learning_rate"])
    print("accuracy %.4f" % share)
    spark.stop()
