"""`python -m bench`: what `make bench` runs."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Container, Sequence
from pathlib import Path

from bench.case import Case
from bench.cases import ALL_CASES
from bench.chart import to_svg
from bench.errors import BenchError
from bench.facts import machine_facts
from bench.progress import Steps
from bench.report import print_report, to_markdown
from bench.results import KAFKA, OTTLA, Results, read_results, to_json
from bench.runner import Plan, Runner
from bench.side import Side
from bench.sizes import FULL, QUICK, QUICK_ROUNDS, QUICK_SECONDS_MAX, ROUNDS
from bench.wire import advertised

RESULTS_DIRECTORY = Path(__file__).parent / "results"
# Starting, stopping, and the longest case, which may have begun just before the time was up.
_QUICK_SECONDS_SPARE = 70
LOAD_PER_CORE_MAX = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.list:
        print("\n".join(f"{case.name:<20} {case.title}" for case in ALL_CASES))
        return 0
    if options.render:
        print_report(read_results(options.render, ALL_CASES))
        return 0
    # A stop request must end the brokers too, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        results = run(options)
    except KeyboardInterrupt:
        print("bench: stopped, the brokers too", file=sys.stderr)
        return 1
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print_report(results)
    for path in write(results):
        print(f"written: {os.path.relpath(path)}")
    return 1 if results.errors() else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What make passes as a variable (QUICK=1, CASES=...) also comes by the environment."""
    parser = argparse.ArgumentParser("bench", description="Ottla against Apache Kafka.")
    parser.add_argument("--quick", action="store_true", default=bool(os.environ.get("QUICK")))
    parser.add_argument("--cases", nargs="+", default=os.environ.get("CASES", "").split())
    parser.add_argument("--rounds", type=int, help=f"{ROUNDS} by default, {QUICK_ROUNDS} if quick")
    parser.add_argument("--list", action="store_true", help="names of the cases")
    parser.add_argument(
        "--render", type=Path, metavar="JSON", help="print the table of a run again"
    )
    parser.add_argument("--data", type=Path, help="where data directories are made")
    parser.add_argument(
        "--subject",
        choices=(OTTLA, KAFKA),
        default=OTTLA,
        help="kafka: Kafka against itself, which shows how far ratios stray from 1",
    )
    options = parser.parse_args(arguments)
    known = {case.name for case in ALL_CASES}
    if unknown := [name for name in options.cases if name not in known]:
        parser.error(f"no case {', '.join(unknown)}; --list names them")
    return options


def chosen_cases(names: Sequence[str], api_keys: Container[int]) -> list[Case]:
    """What was asked for, or everything; without what the broker does not serve yet."""
    asked = [case for case in ALL_CASES if not names or case.name in names]
    return [case for case in asked if case.needs_api is None or case.needs_api in api_keys]


def run(options: argparse.Namespace) -> Results:
    facts = machine_facts()
    if facts["load_before"] > LOAD_PER_CORE_MAX * (facts["cores"] or 1):
        print(f"bench: the machine is busy (load {facts['load_before']:.1f})", file=sys.stderr)
    if options.data is not None:
        options.data.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=options.data))
    sides = (
        Side(OTTLA, options.subject, directory / OTTLA),
        Side(KAFKA, KAFKA, directory / KAFKA),
    )
    try:
        for side in sides:
            side.start()
        plan = Plan(
            chosen_cases(options.cases, advertised(sides[0].broker.bootstrap)),
            options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS),
            QUICK if options.quick else FULL,
            QUICK_SECONDS_MAX - _QUICK_SECONDS_SPARE if options.quick else None,
        )
        with Steps(plan.step_count()) as steps:
            runner = Runner(sides, plan, steps)
            runner.warm_up()
            outcomes = runner.measure()
    finally:
        for side in sides:
            side.close()
        shutil.rmtree(directory, ignore_errors=True)
    return Results(
        {**facts, "rounds": plan.rounds, "subject": options.subject}, options.quick, outcomes
    )


def write(results: Results) -> list[Path]:
    """JSON, the table as Markdown and the chart, named by time and commit."""
    RESULTS_DIRECTORY.mkdir(exist_ok=True)
    stamp = str(results.facts["started"])[:16].replace(":", "")
    name = f"{'quick-' if results.quick else ''}{stamp}-{results.facts['commit']}"
    texts = {"json": to_json(results), "md": to_markdown(results), "svg": to_svg(results)}
    paths = []
    for ending, text in texts.items():
        path = RESULTS_DIRECTORY / f"{name}.{ending}"
        path.write_text(text)
        paths.append(path)
    return paths


if __name__ == "__main__":
    sys.exit(main())
