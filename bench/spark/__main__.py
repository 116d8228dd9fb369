"""`python -m bench.spark`: our source and sink on Ottla against the stock connector on Kafka.

One machine, one run, one Spark session (local[2], warm), 1 KB rows; sides take turns, and the
median of the rounds counts. What a micro-batch costs is measured against an empty Python source and
sink, in a session with Spark's own checkpoint files and in one with ours (`--tuned` is the second).
Reading is also measured against Spark's own Parquet reader, and both against themselves by rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.brokers import SHARED_SETTINGS, Kafka, Ottla
from bench.errors import BenchError
from bench.kafka_jars import REPOSITORY
from bench.spark.cases import Bench, Figures, Side
from bench.spark.connector import connector_jars
from bench.spark.rows import NAME as ROWS
from bench.spark.rows import RowSource
from bench.spark.session import open_session

OURS, STOCK = "ottla", "stock"
# What is wanted of ours divided by theirs.
AT_LEAST, AT_MOST = "at least", "at most"
# Of micro-batches, ours and empty ones in turn.
ROUNDS, BATCHES_IN_ROUND = 3, 60


def show(title: str, figure: str, ours: float, theirs: float, bound: str, limit: float) -> None:
    ratio = ours / theirs
    holds = ratio >= limit if bound == AT_LEAST else ratio <= limit
    verdict = f"{bound} {limit:g}: {'yes' if holds else 'no'}"
    print(f"{title:<38}{figure:<20}{ratio:6.2f}  {verdict:<18}{ours:,.2f} : {theirs:,.2f}")
    sys.stdout.flush()


def show_bound(title: str, figure: str, found: float, limit: float) -> None:
    verdict = f"{AT_MOST} {limit:g}: {'yes' if found <= limit else 'no'}"
    print(f"{title:<38}{figure:<20}{found:6.2f}  {verdict}")
    sys.stdout.flush()


def middle(rounds: list[Figures], figure: str) -> float:
    return median(one[figure] for one in rounds)


def throughput(bench: Bench, sides: dict[str, Side], rows: int, rounds: int) -> None:
    for side in sides.values():
        bench.fill(side, "rows", rows)
    cases: dict[str, Callable[[Side], Figures]] = {
        "batch read": lambda side: bench.batch_read(side, "rows", rows),
        "streaming read, available now": lambda side: bench.stream_read(side, "rows", rows),
        "streaming write, exactly once": lambda side: bench.stream_write(side, rows),
    }
    for title, case in cases.items():
        found: dict[str, list[Figures]] = {label: [] for label in sides}
        for round_number in range(rounds + 1):
            for label, side in sides.items():
                figures = case(side)
                if round_number:  # the first is warm-up
                    found[label].append(figures)
        for figure, bound in (("rows_per_s", AT_LEAST), ("cpu_s_per_million", AT_MOST)):
            ours, stock = (middle(found[label], figure) for label in (OURS, STOCK))
            show(title, figure, ours, stock, bound, 1.0)


def own_measures(bench: Bench, ours: Side, rows: int, rounds: int) -> None:
    """Against Spark's Parquet reader, and against our own source and sink without Arrow.

    The bars are of a machine without a broker on Spark's two cores, and half as high by the clock
    where there is one, as here. What the rates would be with the broker elsewhere is told by what
    the JVM and Python take: for that the whole bar holds."""
    bench.spark.dataSource.register(RowSource)
    by_rows = Side("rows", ROWS, ours.broker)
    cases: dict[str, tuple[Callable[[], Figures], Callable[[], Figures], float]] = {
        "batch read, Parquet's is 1": (
            lambda: bench.batch_read(ours, "rows", rows),
            lambda: bench.parquet_read(ours, "rows", rows),
            0.5,
        ),
        "batch read, tuples' is 1": (
            lambda: bench.batch_read(ours, "rows", rows),
            lambda: bench.batch_read(by_rows, "rows", rows),
            1.8,
        ),
        "batches written, a row writer's is 1": (
            lambda: bench.write_batches(ours, rows // 5),
            lambda: bench.write_batches(by_rows, rows // 5),
            2.0,
        ),
    }
    for title, (case, other, limit) in cases.items():
        found = [(case(), other()) for _ in range(rounds + 1)][1:]  # the first is warm-up
        one = [first for first, _ in found]
        two = [second for _, second in found]
        rate, cpu, alone = "rows_per_s", "cpu_s_per_million", "spark_cpu_s_per_million"
        show(title, rate, middle(one, rate), middle(two, rate), AT_LEAST, limit / 2)
        print(f"{'':<38}{cpu:<20}{'':28}{middle(one, cpu):,.2f} : {middle(two, cpu):,.2f}")
        each, other_each = 1 / middle(one, alone), 1 / middle(two, alone)
        show(title, "rows a CPU second", each * 1e6, other_each * 1e6, AT_LEAST, limit)


def fixed_cost(directory: Path, batches: int, is_tuned: bool) -> None:
    """In a process of its own: whose checkpoint files a session writes cannot be changed."""
    arguments = ["--batches", str(batches), *(["--tuned"] if is_tuned else [])]
    with subprocess.Popen(
        [sys.executable, "-m", "bench.spark", "--fixed-cost", str(directory), *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            printed, _ = process.communicate()
        except BaseException:
            process.terminate()  # it has a broker of its own to end, so it is not killed
            raise
    if process.returncode:
        raise BenchError("the fixed cost was not measured")
    found = json.loads(printed.splitlines()[-1])
    title = f"a micro-batch, {'tuned' if is_tuned else 'default'}"
    show(title, "batch_ms", found[OURS]["batch_ms"], found["empty"]["batch_ms"], AT_MOST, 1.3)
    for figure in sorted(found["empty"]):
        if figure != "batch_ms":
            ours, empty = found[OURS].get(figure, 0.0), found["empty"][figure]
            print(f"{'':<38}{figure:<20}{'':28}{ours:,.2f} : {empty:,.2f}")
    for figure in ("growth", "memory_growth", "python_memory_growth"):
        show_bound(f"{title}, {batches} batches", figure, found[OURS][figure], 1.3)


def measure_fixed_cost(directory: Path, batches: int, is_tuned: bool) -> None:
    with Ottla(directory / "ottla", SHARED_SETTINGS) as broker:
        broker.start()
        spark = open_session(directory, [], is_tuned=is_tuned)
        bench = Bench(spark, directory, [broker])
        ours = Side(OURS, "ottla", broker)
        bench.empty_batches(30)
        bench.our_batches(ours, 30)
        # In turn, since a JVM goes on getting faster and a machine is now busy, now idle.
        rounds = [
            (bench.empty_batches(BATCHES_IN_ROUND), bench.our_batches(ours, BATCHES_IN_ROUND))
            for _ in range(ROUNDS)
        ]
        found = {
            "empty": middles([empty for empty, _ in rounds]),
            OURS: {**bench.our_batches(ours, batches), **middles([one for _, one in rounds])},
        }
        spark.stop()
    print(json.dumps(found))


def middles(rounds: list[Figures]) -> Figures:
    """What a batch costs, and each part of it as Spark names them."""
    figures = [name for name in rounds[0] if name.endswith("_ms")]
    return {figure: middle(rounds, figure) for figure in figures}


def measure(directory: Path, options: argparse.Namespace) -> None:
    rows, rounds = (200_000, 1) if options.quick else (1_000_000, 3)
    jars = connector_jars()
    with (
        Ottla(directory / "ottla", SHARED_SETTINGS) as ottla,
        Kafka(directory / "kafka", SHARED_SETTINGS) as kafka,
    ):
        ottla.start()
        kafka.start()
        spark = open_session(directory, jars, is_tuned=True)
        bench = Bench(spark, directory, [ottla, kafka])
        sides = {STOCK: Side(STOCK, "kafka", kafka), OURS: Side(OURS, "ottla", ottla)}
        throughput(bench, sides, options.rows or rows, rounds)
        own_measures(bench, sides[OURS], options.rows or rows, rounds)
        seconds = 20 if options.quick else 60
        found = bench.latency(sides[OURS], seconds)
        show_bound("topic to topic, 1 s trigger", "p50_s", found["p50_s"], 1.2)
        spark.stop()
    for is_tuned in (False, True):
        place = directory / ("tuned" if is_tuned else "default")
        place.mkdir()
        fixed_cost(place, options.batches or (100 if options.quick else 2_000), is_tuned)


def main() -> int:
    parser = argparse.ArgumentParser("bench.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", default=bool(os.environ.get("QUICK")))
    parser.add_argument("--rows", type=int, help="of each side, instead of 1,000,000")
    parser.add_argument("--batches", type=int, help="of the fixed cost, instead of 2,000")
    parser.add_argument("--fixed-cost", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--tuned", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the brokers are ended then, too
    try:
        if options.fixed_cost is not None:
            measure_fixed_cost(options.fixed_cost, options.batches, options.tuned)
            return 0
        directory = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
        try:
            measure(directory, options)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: stopped, the brokers too", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
