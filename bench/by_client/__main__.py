"""`python -m bench.by_client`: what `make bench-clients` runs.

One Ottla broker, every client in turn, each load in a process of its own; the median of the rounds,
and ours divided by theirs. More is better for records a second, less for CPU and latency.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.brokers import Ottla
from bench.errors import BenchError
from bench.kafka_jars import REPOSITORY
from bench.kafka_tools import consumer_performance, producer_performance
from bench.topics import create_topic

LOAD_SECONDS_MAX = 600
JAVA = "java"


class Case(NamedTuple):
    title: str
    ours: str
    theirs: tuple[str, ...]
    size: int
    records: int
    """In a full run; a quick one takes a tenth."""
    bounds: dict[str, float]
    """Of each figure: what is wanted of ours divided by the best of theirs."""


_PRODUCERS = ("produce_aiokafka", "produce_kafka_python")
_CONSUMERS = ("consume_aiokafka", "consume_kafka_python")

CASES = (
    Case("produce 100 B", "produce_ottla", _PRODUCERS, 100, 300_000, {"records_per_s": 2.0}),
    Case("produce 1 KB", "produce_ottla", _PRODUCERS, 1_000, 200_000, {"records_per_s": 2.0}),
    Case("consume 100 B", "consume_ottla", _CONSUMERS, 100, 1_000_000, {"records_per_s": 1.2}),
    Case("consume 1 KB", "consume_ottla", _CONSUMERS, 1_000, 300_000, {"records_per_s": 1.2}),
    Case(
        "a table of 100 B rows to a topic",
        "send_table_ottla",
        ("produce_confluent",),
        100,
        2_000_000,
        {"cpu_us": 0.25, "records_per_s": 2.0},
    ),
    Case(
        "a topic of 100 B records to a table",
        "fetch_table_ottla",
        ("fetch_table_confluent",),
        100,
        2_000_000,
        {"cpu_us": 0.2, "records_per_s": 2.0},
    ),
    Case(
        "a table of 1 KB rows to a topic",
        "send_table_ottla",
        (JAVA,),
        1_000,
        500_000,
        {"records_per_s": 1.0},
    ),
    Case(
        "a topic of 1 KB records to a table",
        "fetch_table_ottla",
        (JAVA,),
        1_000,
        500_000,
        {"records_per_s": 1.0},
    ),
    Case(
        "a topic of 1 KB records to a table, none kept",
        "fetch_table_and_drop_ottla",
        (JAVA,),
        1_000,
        500_000,
        {"records_per_s": 1.0},
    ),
    Case(
        "one synchronous send of 100 B",
        "sync_ottla",
        ("sync_confluent",),
        100,
        2_000,
        {"latency_ms": 1.0},
    ),
)


class Bench:
    def __init__(self, broker: Ottla, rounds: int, scale: float) -> None:
        self._broker = broker
        self._rounds = rounds
        self._scale = scale
        self._topics = 0

    def run(self, case: Case) -> None:
        records = max(2_000, int(case.records * self._scale) // 1_000 * 1_000)
        if case.bounds.keys() == {"latency_ms"}:
            records = max(200, int(case.records * self._scale))
        kept = self._topic()
        if case.ours.startswith(("consume", "fetch")):
            self._load("send_table_ottla", kept, records + 5_000, case.size)
        found: dict[str, list[dict[str, float]]] = {}
        for _ in range(self._rounds):
            for name in (case.ours, *case.theirs):
                topic = kept if name.startswith(("consume", "fetch")) else self._topic()
                if name == JAVA:
                    figures = self._java(case, kept, records)
                else:
                    figures = self._load(name, topic, records, case.size)
                found.setdefault(name, []).append(figures)
        self._show(case, found)

    def _topic(self) -> str:
        self._topics += 1
        name = f"bench-{self._topics}"
        create_topic(self._broker.bootstrap, name)
        return name

    def _load(self, name: str, topic: str, records: int, size: int) -> dict[str, float]:
        arguments = {
            "bootstrap": self._broker.bootstrap,
            "topic": topic,
            "records": records,
            "size": size,
        }
        done = subprocess.run(
            [sys.executable, "-m", "bench.by_client.loads", name, json.dumps(arguments)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=LOAD_SECONDS_MAX,
            check=False,
        )
        if done.returncode != 0:
            raise BenchError(f"{name}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        figures: dict[str, float] = json.loads(done.stdout)
        return figures

    def _java(self, case: Case, kept: str, records: int) -> dict[str, float]:
        """Kafka's own perf tools say megabytes a second."""
        if case.ours.startswith("fetch"):
            figures = consumer_performance(self._broker, kept, records=records, size=case.size)
        else:
            figures = producer_performance(
                self._broker, self._topic(), records=records, size=case.size
            )
        return {"records_per_s": figures["mb_per_s"] * 2**20 / case.size}

    def _show(self, case: Case, found: dict[str, list[dict[str, float]]]) -> None:
        print(f"\n{case.title}")
        for figure in ("records_per_s", "cpu_us", "latency_ms"):
            if not all(figure in one for rounds in found.values() for one in rounds):
                continue
            middle = {name: median(one[figure] for one in all_) for name, all_ in found.items()}
            more_is_better = figure == "records_per_s"
            theirs = [middle[name] for name in case.theirs]
            ratio = middle[case.ours] / (max(theirs) if more_is_better else min(theirs))
            verdict = ""
            if figure in case.bounds:
                bound = case.bounds[figure]
                holds = ratio >= bound if more_is_better else ratio <= bound
                wanted = f"{'at least' if more_is_better else 'at most'} {bound}"
                verdict = f"{wanted}: {'yes' if holds else 'no'}"
            values = ", ".join(f"{name} {value:,.2f}" for name, value in middle.items())
            print(f"  {figure:<14}{ratio:6.2f}  {verdict:<20}{values}")
        sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser("bench.by_client", description=__doc__)
    parser.add_argument("--quick", action="store_true", default=bool(os.environ.get("QUICK")))
    parser.add_argument("--only", default="", help="cases whose title contains this")
    parser.add_argument("--rounds", type=int, help="instead of five, or of one in a quick run")
    options = parser.parse_args()
    rounds, scale = (1, 0.1) if options.quick else (5, 1.0)
    rounds = options.rounds or rounds
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the broker is ended then, too
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        broker = Ottla(Path(directory) / "ottla", {})
        try:
            broker.start()
            bench = Bench(broker, rounds, scale)
            for case in CASES:
                if options.only in case.title:
                    bench.run(case)
        except BenchError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("bench: stopped, the broker too", file=sys.stderr)
            return 1
        finally:
            broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
