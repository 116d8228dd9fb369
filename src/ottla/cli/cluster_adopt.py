"""`ottla cluster adopt` for people: from its options to what is to be done next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from ottla.base.errors import ConfigError, OttlaError
from ottla.broker.adopt import adopt as move
from ottla.broker.config_file import load_broker_config
from ottla.cli.failure import Failure
from ottla.cli.output import plural
from ottla.metadata.configs.zookeeper import parse_zookeeper


def adopt(data: Path, zookeeper: str, overrides: Sequence[str]) -> None:
    try:
        loaded = load_broker_config(None, [*overrides, f"zookeeper.connect={zookeeper}"])
        settings = parse_zookeeper(loaded.config)
    except ConfigError as wrong:
        raise typer.BadParameter(str(wrong)) from wrong
    if settings is None:
        raise typer.BadParameter("names no server", param_hint="--zookeeper")
    try:
        adoption = move(str(data), settings)
    except (OttlaError, OSError) as refused:
        raise Failure(str(refused)) from refused
    print(f"adopted {plural(adoption.topic_count, 'topic')} of cluster {adoption.cluster_id}")
    settled = f"--override node.id={adoption.broker_id} --override zookeeper.connect={zookeeper}"
    print(f"next: ottla serve --data {data} {settled}")
