"""Our own admin client for the commands: opened from their options, closed behind them.

Whatever goes wrong inside leaves as a Failure with one line for people. `--command-config` keeps
librdkafka's names for every command; those that our client calls differently are translated.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ottla.base.errors import ConfigError
from ottla.cli.addresses import check_anybody_listens, parse_addresses
from ottla.cli.failure import Failure
from ottla.cli.options import read_properties
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.admin_values import TopicDescription

TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
OUR_NAMES = {
    "ssl.ca.location": "ssl.cafile",
    "ssl.certificate.location": "ssl.certfile",
    "ssl.key.location": "ssl.keyfile",
    "sasl.mechanisms": "sasl.mechanism",
}


def client_settings(bootstrap: str, command_config: Path | None) -> dict[str, str]:
    """What each of our clients needs to reach the brokers."""
    given = {} if command_config is None else read_properties(command_config)
    settings = {OUR_NAMES.get(name, name): value for name, value in given.items()}
    if "security.protocol" in settings:
        settings["security.protocol"] = settings["security.protocol"].upper()
    return settings | {"bootstrap.servers": bootstrap, "client.id": "ottla-cli"}


@contextmanager
def open_admin(bootstrap: str, command_config: Path | None) -> Iterator[Admin]:
    try:
        addresses = parse_addresses(bootstrap)
    except ValueError as cause:
        raise typer.BadParameter(str(cause), param_hint="--bootstrap-server") from cause
    settings = client_settings(",".join(map(str, addresses)), command_config)
    check_anybody_listens(addresses, CONNECT_TIMEOUT_S)
    from ottla.client.admin import Admin  # noqa: PLC0415 (help and completion do without)

    try:
        admin = Admin(settings, default_api_timeout_ms=int(TIMEOUT_S * 1_000))
    except ConfigError as cause:
        raise Failure(f"bad client settings: {cause}") from cause
    try:
        yield admin
    except ClientError as cause:
        raise Failure(str(cause)) from cause
    finally:
        admin.close()


def existing_topic(admin: Admin, name: str) -> TopicDescription:
    """Of all topics: asking for one by name could make it."""
    topics = {topic.name: topic for topic in admin.list_topics()}
    if name not in topics:
        near = difflib.get_close_matches(name, topics, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise Failure(f"topic {name} does not exist{hint}")
    return topics[name]
