"""`ottla cluster status`: the processes, and what each leads, asked of the cluster itself."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from ottla.cli.cluster_control import ask_state
from ottla.cli.failure import Failure
from ottla.cli.options import connect
from ottla.cli.output import OutputFormat, print_json, until_nobody_reads
from ottla.cli.tables import console, print_table, table_of

COLUMNS = ("BROKER", "ADDRESS", "STATE", "LEADS", "PID", "DATA")
INTERVAL_S = 1.0
CLIENT_SECONDS_MAX = 5.0


def take(directory: Path) -> dict[str, Any]:
    """What `--output json` prints."""
    state = ask_state(directory)
    running = [broker.address for broker in state.brokers if broker.state == "running"]
    leads = count_leads(running)
    brokers = [
        {
            "id": broker.id,
            "address": broker.address,
            "pid": broker.pid,
            "data_dir": broker.data_dir,
            "leads": None if leads is None else leads.get(broker.id, 0),
            "state": broker.state,
        }
        for broker in state.brokers
    ]
    return {"brokers": brokers, "zookeeper": state.zookeeper, "pid": state.pid}


def count_leads(addresses: list[str]) -> dict[int, int] | None:
    """Partitions that each broker leads; None when nobody answers."""
    if not addresses:
        return None
    try:
        return connect(",".join(addresses), None, CLIENT_SECONDS_MAX).lead_counts()
    except Failure:
        return None


def show(directory: Path, output: OutputFormat) -> None:
    status = take(directory)
    if output is OutputFormat.json:
        print_json(status)
        return
    print_table(COLUMNS, _rows(status))
    sys.stdout.write(f"ZooKeeper at {', '.join(status['zookeeper'])}\n")


def watch(
    directory: Path, output: OutputFormat, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Until Ctrl-C, or until the cluster is down."""
    with until_nobody_reads(), _screen(output) as draw:
        while True:
            draw(take(directory))
            sleep(INTERVAL_S)


@contextmanager
def _screen(output: OutputFormat) -> Iterator[Callable[[dict[str, Any]], None]]:
    if output is OutputFormat.json:
        yield _print_line
    elif not sys.stdout.isatty():
        yield _print_lines
    else:
        with Live(console=console(), auto_refresh=False) as live:

            def draw(status: dict[str, Any]) -> None:
                foot = f"ZooKeeper at {', '.join(status['zookeeper'])}  Ctrl-C ends"
                table = table_of(COLUMNS, _rows(status))
                live.update(Group(table, Text(foot, style="dim")), refresh=True)

            yield draw


def _print_line(status: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(status) + "\n")
    sys.stdout.flush()


def _print_lines(status: dict[str, Any]) -> None:
    for broker in status["brokers"]:
        leads = "-" if broker["leads"] is None else broker["leads"]
        sys.stdout.write(f"broker {broker['id']} {broker['state']} leads {leads}\n")
    sys.stdout.flush()


def _rows(status: dict[str, Any]) -> list[tuple[object, ...]]:
    return [
        (one["id"], one["address"], one["state"], one["leads"], one["pid"], one["data_dir"])
        for one in status["brokers"]
    ]
