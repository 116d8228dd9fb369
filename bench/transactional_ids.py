"""Transactional ids made and looked for over the wire, many at once."""

from __future__ import annotations

import time

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
    with Connection(bootstrap) as connection:
        _find(connection, names[0])
        while names:
            if time.monotonic() > deadline:
                raise AnswerError(f"{len(names)} of {count} ids are left after {SECONDS_MAX} s")
            names = _make_some(connection, names[:_AT_ONCE]) + names[_AT_ONCE:]


def _find(connection: Connection, name: str) -> None:
    """Makes the topic of the coordinators, too."""
    fields = {"key_type": _TRANSACTION_KEY, "coordinator_keys": [name]}
    connection.call(api_keys.FIND_COORDINATOR, _FIND_VERSION, fields)


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


def wait_until_loaded(bootstrap: str, count: int) -> None:
    """Returns when so many ids are known."""
    deadline = time.monotonic() + SECONDS_MAX
    fields = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    request = frame(api_keys.LIST_TRANSACTIONS, _LIST_VERSION, fields)
    with Connection(bootstrap) as connection:
        # A coordinator that loads says so in few bytes; only a whole list is long.
        while True:
            response = connection.exchange(request)
            answer = answer_of(api_keys.LIST_TRANSACTIONS, _LIST_VERSION, response)
            if answer.error_code == NONE and len(answer.transaction_states) >= count:
                return
            if answer.error_code not in (NONE, *_NOT_YET):
                raise AnswerError(f"the list of transactions: {name_of(answer.error_code)}")
            if time.monotonic() > deadline:
                raise AnswerError(f"not all ids are loaded after {SECONDS_MAX} s")
            time.sleep(_POLL_S)
