"""Transactional ids made and looked for over the wire, many at once, on one broker or several."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack

from bench.wire import AnswerError, Connection, answer_of, frame
from ottla.protocol import api_keys
from ottla.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NONE,
    NOT_COORDINATOR,
    name_of,
)

SECONDS_MAX = 300
_TRANSACTION_KEY = 1
_FIND_VERSION = 4
_INIT_VERSION = 4
_LIST_VERSION = 1
_AT_ONCE = 500
_POLL_S = 0.01
_NOT_YET = (COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)


def make_ids(bootstrap: str, count: int) -> None:
    """Each has a producer id afterwards, and has done nothing with it."""
    names = [f"reload-{number}" for number in range(count)]
    deadline = time.monotonic() + SECONDS_MAX
    coordinators: dict[str, Connection] = {}
    with ExitStack() as opened:
        any_broker = opened.enter_context(Connection(bootstrap))
        while names:
            if time.monotonic() > deadline:
                raise AnswerError(f"{len(names)} of {count} ids are left after {SECONDS_MAX} s")
            by_coordinator = _by_coordinator(any_broker, names[:_AT_ONCE])
            again = by_coordinator.pop("", [])
            for address, some in by_coordinator.items():
                if address not in coordinators:
                    coordinators[address] = opened.enter_context(Connection(address))
                again += _make_some(coordinators[address], some)
            if again:
                time.sleep(_POLL_S)
            names = again + names[_AT_ONCE:]


def _by_coordinator(connection: Connection, names: list[str]) -> dict[str, list[str]]:
    """The ids of each coordinator, those without one under no address. Makes the topic of the
    coordinators, too."""
    fields = {"key_type": _TRANSACTION_KEY, "coordinator_keys": names}
    found = connection.call(api_keys.FIND_COORDINATOR, _FIND_VERSION, fields)
    ids = defaultdict(list)
    for one in found.coordinators:
        ids["" if one.error_code else f"{one.host}:{one.port}"].append(one.key)
    return ids


def _make_some(connection: Connection, names: list[str]) -> list[str]:
    """Those that have to be asked for again."""
    key, version = api_keys.INIT_PRODUCER_ID, _INIT_VERSION
    connection.socket.sendall(
        b"".join(
            frame(
                key,
                version,
                {
                    "transactional_id": name,
                    "transaction_timeout_ms": 60_000,
                    "producer_id": -1,
                    "producer_epoch": -1,
                },
            )
            for name in names
        )
    )
    codes = [answer_of(key, version, connection.receive()).error_code for _ in names]
    for code in codes:
        if code not in (NONE, *_NOT_YET):
            raise AnswerError(f"a new transactional id: {name_of(code)}")
    return [name for name, code in zip(names, codes, strict=True) if code != NONE]


def wait_until_loaded(brokers: Sequence[str], count: int) -> None:
    """Returns when so many ids are known, by all brokers together."""
    deadline = time.monotonic() + SECONDS_MAX
    with ExitStack() as opened:
        connections = [opened.enter_context(Connection(one)) for one in brokers]
        while sum(map(_known_ids, connections)) < count:
            if time.monotonic() > deadline:
                raise AnswerError(f"not all ids are loaded after {SECONDS_MAX} s")
            time.sleep(_POLL_S)


def _known_ids(connection: Connection) -> int:
    """A coordinator that loads says so in few bytes; only a whole list is long."""
    fields = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    answer = connection.call(api_keys.LIST_TRANSACTIONS, _LIST_VERSION, fields)
    if answer.error_code not in (NONE, *_NOT_YET):
        raise AnswerError(f"the list of transactions: {name_of(answer.error_code)}")
    return len(answer.transaction_states)
