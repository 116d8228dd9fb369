"""Ottla: a Kafka-compatible, replicated event log in Python."""

__version__ = "0.1.0"
