"""The version of hvd this package belongs to: an hvdrun of another one is refused."""

VERSION = "0.1.0"
