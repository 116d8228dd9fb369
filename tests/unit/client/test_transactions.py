"""Goal: a transaction that could not be ended in time is ended later, and a close leaves none open.
Method: a scripted coordinator, time as a number.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.errors import TimedOutError
from ottla.client.producer_machine import ProducerMachine
from ottla.client.producer_settings import ProducerSettings
from ottla.client.settings import read_settings
from ottla.client.transactions import ABORTING, OPEN, PREPARED, READY, Transactions
from ottla.protocol import api_keys as keys
from ottla.protocol.primitives import NULL_UUID
from tests.unit.client.pure_world import FIRST_PORT, HOST, Later, World, metadata, versions

TOPIC = "t"
LATE_MS = 10_000.0


class Coordinator:
    """A cluster of one broker; each kind of answer takes as long as `delays` says."""

    def __init__(self, version: int) -> None:
        settings = {"bootstrap.servers": f"{HOST}:{FIRST_PORT}", "transactional.id": "x"}
        read = read_settings(ProducerSettings, settings, {})
        self.machine = ProducerMachine(read, lambda: 0.5, lambda: self.world.now_ms)
        self.delays: dict[int, float] = {}
        self.epoch = 0
        self.ends: list[bool] = []
        answers = {
            keys.METADATA: self._metadata,
            keys.FIND_COORDINATOR: self._find,
            keys.INIT_PRODUCER_ID: self._init,
            keys.ADD_PARTITIONS_TO_TXN: self._add,
            keys.PRODUCE: self._produce,
            keys.END_TXN: self._end,
        }
        scripted = {key: self._delayed(key, answer) for key, answer in answers.items()}
        features = versions(features={"transaction.version": version})
        self.world = World(self.machine.core, {**scripted, keys.API_VERSIONS: features})
        self.run(self.transactions.initialize(1e9))
        self.run(self.machine.room(TOPIC, None, 0, 1e9))

    @property
    def transactions(self) -> Transactions:
        return self.machine.transaction()

    def run(self, flow: Any) -> Any:
        return self.world.run(flow)

    def begin(self, *, sends: bool = True) -> None:
        self.transactions.begin()
        if sends:
            self.machine.append(TOPIC, b"a", None, None, 0, 1000, on_delivery=None)
            self.world.advance(100)

    def _delayed(self, key: int, answer: Any) -> Any:
        return lambda request, version: Later(self.delays.get(key, 0.0), answer(request))

    def _metadata(self, request: Any) -> Any:
        return metadata({TOPIC: [0]})

    def _find(self, request: Any) -> Any:
        found = {
            "key": request.coordinator_keys[0],
            "node_id": 0,
            "host": HOST,
            "port": FIRST_PORT,
            "error_code": 0,
            "error_message": None,
        }
        return {"throttle_time_ms": 0, "coordinators": [found]}

    def _init(self, request: Any) -> Any:
        fields = {"producer_id": 5, "producer_epoch": self.epoch}
        ongoing = {"ongoing_txn_producer_id": -1, "ongoing_txn_producer_epoch": -1}
        return {"throttle_time_ms": 0, "error_code": 0, **fields, **ongoing}

    def _add(self, request: Any) -> Any:
        results = [{"partition_index": 0, "partition_error_code": 0}]
        return {
            "throttle_time_ms": 0,
            "error_code": 0,
            "results_by_topic_v3_and_below": [{"name": TOPIC, "results_by_partition": results}],
            "results_by_transaction": [],
        }

    def _produce(self, request: Any) -> Any:
        one = {
            "index": 0,
            "error_code": 0,
            "base_offset": 0,
            "log_append_time_ms": -1,
            "log_start_offset": 0,
            "record_errors": [],
            "error_message": None,
        }
        topic = {"name": TOPIC, "topic_id": NULL_UUID, "partition_responses": [one]}
        return {"responses": [topic], "throttle_time_ms": 0, "node_endpoints": []}

    def _end(self, request: Any) -> Any:
        self.ends.append(request.committed)
        self.epoch += 1
        fields = {"producer_id": 5, "producer_epoch": self.epoch}
        return {"throttle_time_ms": 0, "error_code": 0, **fields}


@pytest.fixture(params=[1, 2])
def coordinator(request: pytest.FixtureRequest) -> Coordinator:
    return Coordinator(request.param)


def test_a_close_aborts_what_is_open(coordinator: Coordinator) -> None:
    coordinator.begin()
    coordinator.run(coordinator.machine.close(1e9))
    assert coordinator.ends == [False]


def test_a_close_without_a_record_has_nothing_to_abort(coordinator: Coordinator) -> None:
    coordinator.begin(sends=False)
    coordinator.run(coordinator.machine.close(1e9))
    assert coordinator.ends == []


def test_a_close_asks_again_for_a_commit_of_unknown_outcome(coordinator: Coordinator) -> None:
    coordinator.begin()
    coordinator.delays[keys.END_TXN] = LATE_MS
    with pytest.raises(TimedOutError):
        coordinator.run(coordinator.transactions.commit(coordinator.world.now_ms + 1_000))
    coordinator.delays.clear()
    coordinator.run(coordinator.machine.close(1e9))
    assert set(coordinator.ends) == {True}, "never an abort"
    assert coordinator.transactions.state == READY


def test_a_close_leaves_a_prepared_transaction_alone(coordinator: Coordinator) -> None:
    coordinator.begin()
    coordinator.run(coordinator.transactions.prepare(1e9))
    coordinator.run(coordinator.machine.close(1e9))
    assert coordinator.ends == []
    assert coordinator.transactions.state == PREPARED


def test_a_close_that_cannot_abort_ends_all_the_same(coordinator: Coordinator) -> None:
    coordinator.begin()
    coordinator.delays[keys.END_TXN] = LATE_MS
    coordinator.run(coordinator.machine.close(coordinator.world.now_ms + 1_000))
    assert coordinator.transactions.state == ABORTING


@pytest.mark.parametrize("commit", [True, False])
def test_what_timed_out_is_finished_before_the_next(coordinator: Coordinator, commit: bool) -> None:
    coordinator.begin()
    coordinator.delays[keys.END_TXN] = LATE_MS
    transactions = coordinator.transactions
    end = transactions.commit if commit else transactions.abort
    with pytest.raises(TimedOutError):
        coordinator.run(end(coordinator.world.now_ms + 1_000))
    assert transactions.is_unfinished
    coordinator.delays.clear()
    coordinator.run(transactions.finish(1e9))
    assert set(coordinator.ends) == {commit}
    transactions.begin()
    assert transactions.state == OPEN


def test_an_abort_waits_for_partitions_that_are_being_added() -> None:
    """Else the coordinator has a transaction that this producer knows nothing of."""
    coordinator = Coordinator(1)
    coordinator.delays[keys.ADD_PARTITIONS_TO_TXN] = 500.0
    coordinator.begin()
    coordinator.run(coordinator.transactions.abort(1e9))
    assert coordinator.ends == [False]
