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
_AT_ONCE = 1_000
_LANES = 16
"""Connections to each coordinator: Kafka takes the next request when the last is replicated."""
_POLL_S = 0.01
_NOT_YET = (COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)


def make_ids(bootstrap: str, count: int) -> None:
    """Each has a producer id afterwards, and has done nothing with it."""
    names = [f"reload-{number}" for number in range(count)]
    deadline = time.monotonic() + SECONDS_MAX
    lanes: dict[str, list[Connection]] = {}
    with ExitStack() as opened:
        any_broker = opened.enter_context(Connection(bootstrap))
        while names:
            if time.monotonic() > deadline:
                raise AnswerError(f"{len(names)} of {count} ids are left after {SECONDS_MAX} s")
            by_coordinator = _by_coordinator(any_broker, names[:_AT_ONCE])
            again = by_coordinator.pop("", [])
            asked: list[tuple[Connection, list[str]]] = []
            for address, some in by_coordinator.items():
                if address not in lanes:
                    lanes[address] = [
                        opened.enter_context(Connection(address)) for _ in range(_LANES)
                    ]
                asked += [(one, some[lane::_LANES]) for lane, one in enumerate(lanes[address])]
            for connection, some in asked:
                _ask_for(connection, some)
            for connection, some in asked:
                again += _not_made(connection, some)
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


def _ask_for(connection: Connection, names: list[str]) -> None:
    fields = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    connection.socket.sendall(
        b"".join(
            frame(api_keys.INIT_PRODUCER_ID, _INIT_VERSION, {"transactional_id": name, **fields})
            for name in names
        )
    )


def _not_made(connection: Connection, names: list[str]) -> list[str]:
    """Those that have to be asked for again."""
    again = []
    for name in names:
        answer = answer_of(api_keys.INIT_PRODUCER_ID, _INIT_VERSION, connection.receive())
        if answer.error_code in _NOT_YET:
            again.append(name)
        elif answer.error_code != NONE:
            raise AnswerError(f"a new transactional id: {name_of(answer.error_code)}")
    return again


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
