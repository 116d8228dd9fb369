"""The figures that the processes of a cluster serve on `/metrics`.

`cluster up` on free ports gives the figures a free one, too, and tells nobody: it is looked for
among those on which the process listens.
"""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

LISTENING = "0A"
Figures = dict[str, float]


def listening_ports(pid: int) -> Iterator[int]:
    links = []
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            links.append(os.readlink(one))
    sockets = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *rest = line.split()
        if state == LISTENING and rest[5] in sockets:
            yield int(local.partition(":")[2], 16)


def scrape(port: int) -> Figures | None:
    """Those without labels; None where it is another kind of port."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
    except (OSError, HTTPException):
        return None
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.labels
    }


def metrics_port(pid: int) -> int:
    return next(port for port in listening_ports(pid) if scrape(port) is not None)
