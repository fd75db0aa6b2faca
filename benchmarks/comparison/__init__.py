"""Contains the parts of benchmarks/compare."""
