"""Measurements beside named peers; run by hand: `python -m benchmarks`."""
