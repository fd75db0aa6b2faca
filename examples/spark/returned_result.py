"""Runs a program that returns what it has learnt, and uses the result on a DataFrame.

    python returned_result.py --hvdrun build/release/bin/hvdrun build/release/bin/fit_line
"""

import argparse

from hvd_spark import HvdDistributor
from pyspark.sql import SparkSession


def run(spark, program, processes, hvdrun="hvdrun"):
    distributor = HvdDistributor(
        num_processes=processes, local_mode=False, use_gpu=False, hvdrun=hvdrun
    )
    line = distributor.run(program, 200)  # what rank 0 passed to hvd::set_result
    points = spark.range(5).withColumnRenamed("id", "x")
    return points.selectExpr("x", "%r * x + %r as y" % (line["slope"], line["intercept"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--hvdrun", default="hvdrun", help="where it is on the executors")
    parser.add_argument("program", help="fit_line")
    options = parser.parse_args()

    spark = SparkSession.builder.appName("returned result").getOrCreate()
    run(spark, options.program, options.processes, options.hvdrun).show()
    spark.stop()
