"""Goal: an admin says of a transaction what has become of it, also if an answer is lost or late.
Method: a core without sockets (`pure_world`), and a coordinator that answers as each case says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client.admin_machine import AdminMachine
from ottla.client.core import Core
from ottla.client.errors import BrokerError
from ottla.client.settings import AdminSettings, read_settings
from ottla.protocol import api_keys
from tests.unit.client.pure_world import FIRST_PORT, HOST, Answer, World, metadata, versions

KEYS = {
    api_keys.METADATA: (0, 12),
    api_keys.FIND_COORDINATOR: (0, 4),
    api_keys.INIT_PRODUCER_ID: (0, 6),
    api_keys.END_TXN: (0, 5),
    api_keys.DESCRIBE_TRANSACTIONS: (0, 0),
}
LOST = OSError("lost")
NO_TIMEOUT = 2**31 - 1


class Played:
    """Answers one after the other, or loses them; `asked` has the requests."""

    def __init__(self, *codes: int | Exception) -> None:
        self._codes: Iterator[int | Exception] = iter(codes)
        self.asked: list[Any] = []

    def __call__(self, request: Any, version: int) -> Any:
        self.asked.append(request)
        code = next(self._codes)
        if isinstance(code, Exception):
            return code
        return {
            "throttle_time_ms": 0,
            "error_code": code,
            "producer_id": 1000,
            "producer_epoch": 2,
            "ongoing_txn_producer_id": 1000 if getattr(request, "keep_prepared_txn", False) else -1,
            "ongoing_txn_producer_epoch": 0,
        }


def coordinator(request: Any, version: int) -> dict[str, Any]:
    place = {"key": "x", "node_id": 0, "host": HOST, "port": FIRST_PORT}
    found = {**place, "error_code": 0, "error_message": None}
    return {"throttle_time_ms": 0, "coordinators": [found]}


def described(*states: str, timeout_ms: int = 60_000) -> Answer:
    waiting = iter(states)

    def answer(request: Any, version: int) -> dict[str, Any]:
        one = {
            "error_code": 0,
            "transactional_id": "x",
            "transaction_state": next(waiting),
            "transaction_timeout_ms": timeout_ms,
            "transaction_start_time_ms": 5,
            "producer_id": 1000,
            "producer_epoch": 0,
            "topics": [],
        }
        return {"throttle_time_ms": 0, "transaction_states": [one]}

    return answer


def admin_of(answers: dict[int, Answer]) -> tuple[World, AdminMachine]:
    settings = read_settings(AdminSettings, {"bootstrap.servers": f"{HOST}:{FIRST_PORT}"}, {})
    core = Core(settings, lambda: 0.5, auto_create=False)
    known: dict[int, Answer] = {
        api_keys.API_VERSIONS: versions(KEYS),
        api_keys.METADATA: lambda request, version: metadata({}),
        api_keys.FIND_COORDINATOR: coordinator,
    }
    return World(core, {**known, **answers}), AdminMachine(settings, core)


def complete(ends: Played, *, forget: bool) -> None:
    world, admin = admin_of({api_keys.END_TXN: ends})
    world.run(admin.complete_transaction("x", 1000, 1, commit=True, forget=forget))


def test_a_first_end_says_already_that_the_id_is_to_be_forgotten() -> None:
    ends = Played(0)
    complete(ends, forget=True)
    assert [one.forget_transactional_id for one in ends.asked] == [True]


@pytest.mark.parametrize("before", [(LOST,), (51,), (7,), (14, LOST), (15, 51), (16, 14)])
def test_forgotten_by_what_was_asked_before(before: tuple[int | Exception, ...]) -> None:
    complete(Played(*before, 49), forget=True)


@pytest.mark.parametrize("before", [(), (14,), (14, 14)])
def test_an_id_that_nobody_knew_is_refused(before: tuple[int | Exception, ...]) -> None:
    with pytest.raises(BrokerError, match="INVALID_PRODUCER_ID_MAPPING"):
        complete(Played(*before, 49), forget=True)


def test_what_was_not_to_be_forgotten_has_to_be_there() -> None:
    with pytest.raises(BrokerError, match="INVALID_PRODUCER_ID_MAPPING"):
        complete(Played(LOST, 49), forget=False)


@pytest.mark.parametrize(
    ("states", "inits", "is_aborted"),
    [
        (("Ongoing", "PrepareAbort"), (51, 51, 0), True),
        (("Ongoing", "CompleteAbort"), (51, 0), True),
        (("Ongoing", "PrepareCommit"), (51, 51, 0), False),
        (("Ongoing", "CompleteCommit"), (51, 0), False),
        (("PrepareCommit", "PrepareCommit"), (51, 0), False),
        (("PrepareAbort", "PrepareAbort"), (51, 0), True),
        (("Ongoing",), (0,), False),  # its producer was faster
        (("Ongoing",), (LOST, 0), True),
        (("Empty",), (LOST, 0), False),
        (("CompleteCommit",), (0,), False),
    ],
)
def test_whether_something_was_aborted(
    states: tuple[str, ...], inits: tuple[int | Exception, ...], is_aborted: bool
) -> None:
    world, admin = admin_of(
        {
            api_keys.DESCRIBE_TRANSACTIONS: described(*states),
            api_keys.INIT_PRODUCER_ID: Played(*inits),
        }
    )
    assert world.run(admin.abort_transaction("x")) is is_aborted


def test_the_coordinator_has_time_to_take_it_over() -> None:
    """Kafka gives the replicas of its own log no longer than the transaction would have."""
    inits = Played(0)
    world, admin = admin_of(
        {
            api_keys.DESCRIBE_TRANSACTIONS: described("Empty"),
            api_keys.INIT_PRODUCER_ID: inits,
        }
    )
    world.run(admin.abort_transaction("x"))
    assert [one.transaction_timeout_ms for one in inits.asked] == [30_000]


def test_what_is_kept_is_taken_over_and_decided() -> None:
    ends = Played(0)
    world, admin = admin_of(
        {
            api_keys.DESCRIBE_TRANSACTIONS: described("Ongoing", timeout_ms=NO_TIMEOUT),
            api_keys.INIT_PRODUCER_ID: Played(51, 0),
            api_keys.END_TXN: ends,
        }
    )
    assert world.run(admin.abort_transaction("x")) is True
    (asked,) = ends.asked
    assert (asked.producer_id, asked.producer_epoch, asked.committed) == (1000, 2, False)
