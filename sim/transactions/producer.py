"""The clients: producers that may die, sleep or be taken over, and sinks whose driver decides.

A client is a generator: it yields a `Call` and gets what the broker answered, None if it heard
nothing in time; or it yields a number of milliseconds to wait. It asks again as real clients do,
with the same sequence or epoch, while the first question may still be under way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

from ottla.base.deferred import Deferred
from ottla.base.ids import TopicPartition
from ottla.handlers import (
    api_00_produce,
    api_22_init_producer_id,
    api_24_add_partitions_to_txn,
    api_25_add_offsets_to_txn,
    api_26_end_txn,
    api_28_txn_offset_commit,
)
from ottla.protocol.messages import decode_response, encode_request
from ottla.records.batch_builder import RecordToWrite, build_batch
from sim.transactions.cluster import TOPIC, Cluster
from sim.transactions.ledger import Attempt, Ledger, Violation

# What may be asked again: loading, away, moving, under way, not enough replicas, timed out.
RETRIABLE = (None, 3, 6, 7, 14, 15, 16, 19, 20, 51, 56)
TRIES_MAX = 12
TIMEOUT_MS = 4000

Script = Generator["Call | int", Any, None]
Answer = Generator["Call | int", Any, Any]


class Call(NamedTuple):
    act: Callable[[], Any]
    may_be_late: bool


class Versions(NamedTuple):
    """What a client speaks: with an epoch per transaction (KIP-890), or without."""

    produce: int
    end: int
    offsets: int

    @property
    def is_new(self) -> bool:
        return self.produce >= 12


NEW = Versions(12, 5, 5)
OLD = Versions(11, 4, 3)


class Client:
    """A producer of one transactional id."""

    def __init__(
        self, cluster: Cluster, ledger: Ledger, dice: Random, name: str, versions: Versions
    ) -> None:
        self.cluster = cluster
        self.ledger = ledger
        self.dice = dice
        self.name = name
        self.versions = versions
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[TopicPartition, int] = {}
        self.added: set[TopicPartition] = set()

    # -- one transaction after the other ----------------------------------------------------

    def produce_for_ever(self) -> Script:
        while True:
            if self.producer_id < 0:
                yield from self.init()
                continue
            attempt = self.ledger.begin(self.name)
            is_good = yield from self.fill(attempt)
            if is_good and self.dice.random() < 0.5:
                is_good = yield from self.commit_offset(attempt)
            yield self.dice.choice((0, 0, 5, 200, TIMEOUT_MS * 2))
            committed = bool(is_good) and self.dice.random() < 0.7
            yield from self.end(attempt, committed)
            if not is_good and not self.versions.is_new:
                self.producer_id = -1  # which sequence is the next is not known (KIP-360)
            yield self.dice.choice((0, 10, 300))

    def fill(self, attempt: Attempt) -> Answer:
        places = self.dice.sample(
            self.cluster.data_places, self.dice.randint(1, len(self.cluster.data_places))
        )
        for place in places:
            for _ in range(self.dice.randint(1, 3)):
                is_good = yield from self.write(attempt, place)
                if not is_good:
                    return False
            yield self.dice.choice((0, 0, 0, 1000))
        return True

    # -- requests ---------------------------------------------------------------------------

    def init(self) -> Answer:
        fields = yield self._init(transaction_timeout_ms=TIMEOUT_MS)
        if fields is None or fields["error_code"] in RETRIABLE:
            yield self.dice.randint(5, 100)
            return False
        if fields["error_code"] != 0:
            raise Violation(f"InitProducerId of {self.name}: {fields['error_code']}")
        self._take(fields)
        return True

    def _init(self, **changed: Any) -> Call:
        request = SimpleNamespace(
            **{
                "transactional_id": self.name,
                "transaction_timeout_ms": TIMEOUT_MS,
                "producer_id": -1,
                "producer_epoch": -1,
                "enable2_pc": False,
                "keep_prepared_txn": False,
                **changed,
            }
        )
        context = self.cluster.at_coordinator(6)
        return self._call(lambda: api_22_init_producer_id.handle(context, request))

    def _take(self, fields: dict[str, Any]) -> None:
        if (self.producer_id, self.epoch) != (fields["producer_id"], fields["producer_epoch"]):
            self.producer_id, self.epoch = fields["producer_id"], fields["producer_epoch"]
            self.sequences.clear()
        self.added.clear()

    def write(self, attempt: Attempt, place: TopicPartition) -> Answer:
        """Whether it is acknowledged; asked again with the same sequence until it is known."""
        if not self.versions.is_new and place not in self.added:
            if not (yield from self.add(place)):
                return False
        values = [attempt.next_value() for _ in range(self.dice.randint(1, 2))]
        sequence = self.sequences.get(place, 0)
        for _ in range(TRIES_MAX):
            code = yield self.produce(place, sequence, values)
            if code == 0:
                self.sequences[place] = sequence + len(values)
                attempt.written.update(dict.fromkeys(values, place))
                return True
            if code not in RETRIABLE or self._gives_up(code):
                return False
            yield self.dice.randint(5, 300)
        return False

    def _gives_up(self, code: int | None) -> bool:
        """A client's own time is over while the broker may still be at it."""
        return code is None and self.dice.random() < 0.5

    def produce(self, place: TopicPartition, sequence: int, values: list[bytes]) -> Call:
        now_ms = self.cluster.time.wall_ms()
        batch = build_batch(
            [RecordToWrite(now_ms, None, value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        fields = {
            "transactional_id": self.name,
            "acks": -1,
            "timeout_ms": 1000,
            "topic_data": [
                {
                    "name": place[0],
                    "partition_data": [{"index": place[1], "records": batch}],
                }
            ],
        }
        version = self.versions.produce
        body = encode_request(0, version, fields)
        context = self.cluster.leader(version)

        def act() -> Any:
            return code_of_produce(api_00_produce.handle(context, memoryview(body)), version)

        return self._call(act)

    def add(self, place: TopicPartition) -> Answer:
        request = SimpleNamespace(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[SimpleNamespace(name=place[0], partitions=[place[1]])],
        )
        context = self.cluster.at_coordinator(3)

        def code(fields: dict[str, Any]) -> int:
            (topic,) = fields["results_by_topic_v3_and_below"]
            return int(topic["results_by_partition"][0]["partition_error_code"])

        is_added = yield from self._until_known(
            lambda: api_24_add_partitions_to_txn.handle(context, request), code
        )
        if is_added:
            self.added.add(place)
        return is_added

    def commit_offset(self, attempt: Attempt) -> Answer:
        """The number of the attempt is the offset that it commits, in a group of its own."""
        if not self.versions.is_new:
            owner = self._owner(group_id=self.name)
            context = self.cluster.at_coordinator(4)
            is_added = yield from self._until_known(
                lambda: api_25_add_offsets_to_txn.handle(context, owner),
                lambda fields: fields["error_code"],
            )
            if not is_added:
                return False
        one = SimpleNamespace(
            partition_index=0,
            committed_offset=attempt.number,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        request = self._owner(
            group_id=self.name,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[SimpleNamespace(name=TOPIC, partitions=[one])],
        )
        leader = self.cluster.leader(self.versions.offsets)
        is_good = yield from self._until_known(
            lambda: api_28_txn_offset_commit.handle(leader, request),
            lambda fields: fields["topics"][0]["partitions"][0]["error_code"],
        )
        if is_good:
            attempt.offset = attempt.number
        return is_good

    def end(self, attempt: Attempt, committed: bool) -> Answer:
        attempt.may_be_committed = committed
        for _ in range(TRIES_MAX):
            fields = yield self._end(committed)
            code = None if fields is None else fields["error_code"]
            if code == 0:
                (self.ledger.on_committed if committed else self.ledger.on_aborted)(attempt)
                if self.versions.is_new:
                    self._take(fields)
                self.added.clear()
                return True
            if code not in RETRIABLE:
                break
            yield self.dice.randint(5, 300)
        # Fenced, or not known: it begins again, and what was open is aborted.
        self.producer_id = -1
        return False

    def _end(self, committed: bool, *, forgets: bool = False) -> Call:
        request = self._owner(committed=committed, forget_transactional_id=forgets)
        context = self.cluster.at_coordinator(self.versions.end)
        return self._call(lambda: api_26_end_txn.handle(context, request))

    def _owner(self, **fields: Any) -> SimpleNamespace:
        return SimpleNamespace(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            **fields,
        )

    def _until_known(
        self, act: Callable[[], Any], code_of: Callable[[dict[str, Any]], int]
    ) -> Answer:
        for _ in range(TRIES_MAX):
            fields = yield self._call(act)
            code = None if fields is None else code_of(fields)
            if code == 0:
                return True
            if code not in RETRIABLE or self._gives_up(code):
                return False
            yield self.dice.randint(5, 300)
        return False

    def _call(self, act: Callable[[], Any]) -> Call:
        # Without an epoch per transaction nothing tells a late request from the next one.
        return Call(act, may_be_late=self.versions.is_new)


class Sink(Client):
    """A transaction that is prepared by its writer and ended by its driver, on an id used once."""

    def write_and_prepare(self) -> Script:
        while not (yield from self.init()):
            pass
        attempt = self.ledger.begin(self.name)
        if not (yield from self.fill(attempt)):
            return
        writer = (self.producer_id, self.epoch)
        while True:
            fields = yield self._init(
                producer_id=writer[0],
                producer_epoch=writer[1],
                enable2_pc=True,
                keep_prepared_txn=True,
            )
            code = None if fields is None else fields["error_code"]
            if code == 0:
                break
            if code not in RETRIABLE:
                return
            yield self.dice.randint(5, 300)
        self._check_prepared(fields, writer)
        yield from self._write_too_late(attempt, writer)
        yield self.dice.choice((0, 100, TIMEOUT_MS * 3))
        yield from self.drive(attempt, fields)

    def _check_prepared(self, fields: dict[str, Any], writer: tuple[int, int]) -> None:
        kept = (fields["ongoing_txn_producer_id"], fields["ongoing_txn_producer_epoch"])
        if kept != writer:
            raise Violation(f"{self.name} prepared {writer}, kept is {kept}")

    def _write_too_late(self, attempt: Attempt, writer: tuple[int, int]) -> Answer:
        """Its writer does not know that it is over."""
        for place in self.dice.sample(self.cluster.data_places, 1):
            value = attempt.next_value()
            attempt.forbidden.add(value)
            code = yield self.produce(place, self.sequences.get(place, 0), [value])
            if code == 0:
                raise Violation(f"T3: {self.name} was prepared, and {place} took {value!r}")

    def drive(self, attempt: Attempt, prepared: dict[str, Any]) -> Answer:
        """Decides, and asks until it is done; what it decided is never taken back."""
        self.producer_id, self.epoch = prepared["producer_id"], prepared["producer_epoch"]
        committed = self.dice.random() < 0.7
        forgets = self.dice.random() < 0.7
        attempt.may_be_committed = committed
        told = self.ledger.on_committed if committed else self.ledger.on_aborted
        while True:
            fields = yield self._end(committed, forgets=forgets)
            code = None if fields is None else fields["error_code"]
            # Nobody else can end it, so an id that is forgotten or was begun anew has been ended.
            if code in (0, 90) or (code == 49 and forgets):
                break
            if code not in RETRIABLE:
                raise Violation(f"T1: {self.name} was prepared, its end is refused: {code}")
            yield self.dice.randint(5, 300)
        told(attempt)
        if forgets:
            self.ledger.forgotten[self.name] = prepared["ongoing_txn_producer_id"]
        for _ in range(self.dice.randint(0, 2)):
            yield self.dice.choice((0, 50, 3000))
            fields = yield self._end(not committed)
            if fields is not None and fields["error_code"] == 0:
                raise Violation(f"T1: {self.name} was decided, and the opposite is accepted")


def code_of_produce(answer: Any, version: int) -> Any:
    if not isinstance(answer, Deferred):
        return _code_in(answer, version)
    code: Deferred[int] = Deferred()
    answer.when_done(lambda done: code.resolve(_code_in(done.result(), version)))
    return code


def _code_in(reply: Any, version: int) -> int:
    body = b"".join(bytes(part) for part in reply.parts)
    (topic,) = decode_response(0, version, body).responses
    return int(topic.partition_responses[0].error_code)
