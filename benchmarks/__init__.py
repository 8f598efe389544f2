"""Benchmarks: each module is a script, run with ``python -m benchmarks.NAME``."""
