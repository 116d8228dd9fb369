"""What can go wrong in a measurement without being a mistake of the harness."""

from __future__ import annotations


class BenchError(Exception):
    """The case has no figure this time; the reason is for people."""
