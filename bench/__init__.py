"""Ottla against Apache Kafka on one machine, in one run: `make bench`.

Not in the wheel. docs/internals/benchmarks.md says what is measured, how, and why so.
"""
