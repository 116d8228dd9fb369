"""How many requests of each kind there were and how long they took; cheap enough for every one.

Plain lists, no locks: only the event loop writes. `/metrics` turns them into histograms.
"""

from __future__ import annotations

from bisect import bisect_left

# Upper bounds in nanoseconds: 50 µs to 10 s.
BUCKETS_NS = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    500_000_000,
    1_000_000_000,
    10_000_000_000,
]


class ApiStats:
    __slots__ = ("buckets", "count", "total_ns")

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0
        self.buckets = [0] * (len(BUCKETS_NS) + 1)

    def observe(self, elapsed_ns: int) -> None:
        self.count += 1
        self.total_ns += elapsed_ns
        self.buckets[bisect_left(BUCKETS_NS, elapsed_ns)] += 1

    def observe_run(self, elapsed_ns: int, requests: int) -> None:
        """Handled together, so each of them took as long as all."""
        self.count += requests
        self.total_ns += elapsed_ns * requests
        self.buckets[bisect_left(BUCKETS_NS, elapsed_ns)] += requests


class RequestStats:
    __slots__ = ("by_key", "bytes_in", "bytes_out")

    def __init__(self) -> None:
        self.by_key: dict[int, ApiStats] = {}
        self.bytes_in = 0
        self.bytes_out = 0

    def of(self, api_key: int) -> ApiStats:
        stats = self.by_key.get(api_key)
        if stats is None:
            stats = self.by_key[api_key] = ApiStats()
        return stats
