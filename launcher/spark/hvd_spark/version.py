"""Holds the version of hvd to which this package belongs. An hvdrun of another version is refused.
"""

VERSION = "0.1.0"
