"""Holds the version of hvd to which this package belongs. An hvdrun of another version is refused.
"""

VERSION = "0.1.0"
# Spark 3.5 lacks DataType.fromDDL and the time zone of to_arrow_schema, and writes the metadata of
# Spark ML in another way. Spark 3.4 also lacks job tags and SparkSession.active.
_OLDEST_SPARK = 4


def check_spark():
    """Raises ImportError, which names the version, if the pyspark that is installed is too old."""
    try:
        from pyspark import __version__ as found
    except ImportError:
        return  # some modules need no Spark
    if int(found.split(".")[0]) < _OLDEST_SPARK:
        raise ImportError(
            "hvd_spark needs Spark %d or newer, and this is pyspark %s" % (_OLDEST_SPARK, found)
        )
