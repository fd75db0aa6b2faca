"""Holds the version of hvd to which this package belongs. An hvdrun of another version is refused.
"""

VERSION = "0.1.0"
_OLDEST_SPARK = 4  # older ones lack a time zone in to_arrow_schema, job tags, SparkSession.active


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
