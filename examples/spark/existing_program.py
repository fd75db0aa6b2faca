"""Runs an existing program with its arguments as the tasks of a barrier stage.

    python existing_program.py --hvdrun build/release/bin/hvdrun \\
        build/release/bin/train_mnist --epochs 1
    spark-submit --master spark://... existing_program.py --processes 8 \\
        /shared/train_mnist --epochs 3

The script prints what the ranks print, and fails when the program fails.
"""

import argparse

from hvd_spark import HvdDistributor
from pyspark.sql import SparkSession


def run(program, arguments, processes, hvdrun="hvdrun"):
    # With use_gpu=True every task gets the GPUs that Spark assigns to it.
    distributor = HvdDistributor(
        num_processes=processes, local_mode=False, use_gpu=False, hvdrun=hvdrun
    )
    return distributor.run(program, *arguments)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--hvdrun", default="hvdrun", help="where it is on the executors")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()

    spark = SparkSession.builder.appName("existing program").getOrCreate()
    run(options.program, options.arguments, options.processes, options.hvdrun)
    spark.stop()
