"""Goal: the stories of the cluster end by themselves without a terminal, with the figures that they
promise, and leave nothing behind (features, rows 10 to 18, 29, 31 and 32).
Method: the command as a process, with brokers and a ZooKeeper of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

OTTLA = (sys.executable, "-m", "ottla.cli.main")


def told(demo: str, directory: Path) -> list[str]:
    environment = {**os.environ, "TMPDIR": str(directory)}
    done = subprocess.run(
        [*OTTLA, "demo", demo], capture_output=True, env=environment, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert list(directory.iterdir()) == [], "nothing stays behind"
    return done.stdout.splitlines()


def test_order_events_loses_nothing_when_the_leader_is_killed(tmp_path: Path) -> None:
    lines = told("order-events", tmp_path)
    figures = re.fullmatch(
        r"order-events: acknowledged (\d+), delivered (\d+), lost (\d+), failed (\d+);"
        r" gap [\d.]+ s; [\d.]+ s",
        lines[-1],
    )
    assert figures is not None, lines[-1]
    acknowledged, delivered, lost, failed = map(int, figures.groups())
    assert acknowledged >= 300
    # What was not acknowledged may be there all the same; what was is.
    assert acknowledged <= delivered <= acknowledged + failed
    assert lost == 0
    text = "\n".join(lines)
    assert re.search(r"leader \d -> \d, epoch \d+ -> \d+, in sync \d", text)
    assert "in the log twice: 0" in text


def test_acks_shows_what_each_choice_loses(tmp_path: Path) -> None:
    last = told("acks", tmp_path)[-1]
    assert last.startswith("acks: lost ")
    lost = {name: int(count) for name, count in re.findall(r"([\w-]+) (\d+)[,;]", last)}
    assert list(lost) == [
        *("acks-0", "acks-1", "acks-all"),
        *("unclean-on", "unclean-off", "two-in-sync"),
    ]
    assert lost["acks-0"] > 0
    assert lost["acks-1"] > 0
    assert lost["unclean-on"] > 0
    assert (lost["acks-all"], lost["unclean-off"], lost["two-in-sync"]) == (0, 0, 0)
