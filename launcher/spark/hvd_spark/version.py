"""The version of hvd that this package belongs to. An hvdrun of another version is refused."""

VERSION = "0.1.0"
