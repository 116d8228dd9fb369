"""Goal: an offset is explained rightly, also where compaction has been at work, markers are far
away or coordinators have forgotten; and in words that people understand.
Method: batches as a leader would give them, and a cluster that answers from memory.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla.cli import explain_facts
from ottla.cli.explain_facts import Inquiry
from ottla.cli.explain_words import lines_of
from ottla.cli.failure import Failure
from ottla.cli.words import duration_of, shown, time_of
from ottla.client.admin import Admin
from ottla.client.admin_values import (
    LATEST,
    BatchRange,
    CommittedOffset,
    FoundOffset,
    GroupListing,
    PartitionDescription,
    ProducerDescription,
    TopicDescription,
    TransactionListing,
)
from ottla.protocol.primitives import NULL_UUID
from ottla.records.batch_builder import RecordToWrite, build_batch
from ottla.records.batch_header import (
    BASE_OFFSET,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LENGTH_END,
    read_header,
)

TOPIC = "bills"
PLACE = (TOPIC, 0)
COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"


class PlayedLog:
    """One partition; stands in for `Admin`."""

    def __init__(self, *batches: bytes) -> None:
        self.batches = list(batches)
        self.start = 0
        self.end = 1 + max((last_of(one) for one in batches), default=-1)
        self.stable = self.end
        self.aborted: list[tuple[int, int]] = []
        self.open: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self.committed: dict[str, int] = {}
        self.leader: int | None = 1

    def list_topics(self) -> list[TopicDescription]:
        partition = PartitionDescription(0, self.leader, 4, [1], [1], [])
        return [TopicDescription(TOPIC, NULL_UUID, False, [partition])]

    def list_offsets(self, wanted: dict[Any, int], *, committed: bool) -> dict[Any, FoundOffset]:
        latest = self.stable if committed else self.end
        return {PLACE: FoundOffset(latest if wanted[PLACE] == LATEST else self.start, -1, 4)}

    def list_groups(self) -> list[GroupListing]:
        return [GroupListing(name, "consumer", "Empty", "classic") for name in self.committed]

    def list_group_offsets(self, group: str, places: list[Any]) -> dict[Any, CommittedOffset]:
        return {PLACE: CommittedOffset(self.committed[group], -1, "")}

    def list_transactions(self, *, producer_ids: list[int]) -> list[TransactionListing]:
        return [
            TransactionListing(self.names[one], one, "Ongoing", 1)
            for one in producer_ids
            if one in self.names
        ]

    def describe_producers(self, places: list[Any]) -> dict[Any, list[ProducerDescription]]:
        return {
            PLACE: [ProducerDescription(one, 0, 0, 0, 0, start) for one, start in self.open.items()]
        }

    def fetch_batches(
        self, place: Any, offset: int, *, committed: bool = False, max_bytes: int = 200
    ) -> BatchRange:
        found = [one for one in self.batches if last_of(one) >= offset]
        aborted = self.aborted if committed else []
        return BatchRange(self.start, self.stable, self.end, aborted, found[:1])


def last_of(batch: bytes) -> int:
    header = read_header(batch)
    return header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]


def batch(offset: int, *values: bytes | None, **of_producer: Any) -> bytes:
    records = [RecordToWrite(1_000 + index, b"k", value, ()) for index, value in enumerate(values)]
    return build_batch(records, base_offset=offset, leader_epoch=3, **of_producer)


def written(offset: int, producer_id: int, *values: bytes, sequence: int = 0) -> bytes:
    return batch(
        offset,
        *values,
        producer_id=producer_id,
        producer_epoch=7,
        base_sequence=sequence,
        transactional=True,
    )


def marker(offset: int, producer_id: int, key: bytes) -> bytes:
    value = b"\0\0" + (5).to_bytes(4, "big")
    return build_batch(
        [RecordToWrite(2_000, key, value, ())],
        base_offset=offset,
        leader_epoch=3,
        producer_id=producer_id,
        producer_epoch=7,
        transactional=True,
        control=True,
    )


def explained(log: PlayedLog, offset: int) -> dict[str, Any]:
    return Inquiry(cast("Admin", log), TOPIC, 0, offset).answer()


def verdict(log: PlayedLog, offset: int) -> str:
    return lines_of(explained(log, offset))[0]


def facts(log: PlayedLog, offset: int) -> dict[str, str]:
    lines = lines_of(explained(log, offset))[1:]
    return {line[2:14].strip(): line[15:] for line in lines}


def test_a_record_without_a_producer() -> None:
    log = PlayedLog(batch(0, b"one", None))
    told = explained(log, 1)
    assert (told["producer"], told["transaction"]) == (None, None)
    assert told["visible"] == {"read_uncommitted": True, "read_committed": True}
    assert verdict(log, 1) == "bills-0 offset 1: a record"
    assert facts(log, 1)["record"].startswith("key k (1 B), value null")
    assert facts(log, 1)["time"] == "1970-01-01T00:00:01.001Z, from the producer"
    assert "producer" not in facts(log, 1)
    assert facts(log, 1)["groups past"] == "none"


def test_sequences_are_counted_from_the_batch_and_wrap() -> None:
    log = PlayedLog(written(0, 9, b"a", b"b", b"c", sequence=2**31 - 2), marker(3, 9, COMMIT))
    sequences = [explained(log, offset)["producer"]["sequence"] for offset in range(4)]
    assert sequences == [2**31 - 2, 2**31 - 1, 0, None]
    assert facts(log, 0)["producer"] == "9, epoch 7, sequence 2147483646"


def test_what_compaction_took() -> None:
    """A record out of the middle of a batch, and a whole batch."""
    whole = batch(0, b"a", b"b", b"c")
    assert explained(PlayedLog(whole), 1)["status"] == "record"
    log = PlayedLog(batch(0, b"a"), batch(5, b"f"))
    for offset in (1, 4):
        assert explained(log, offset)["status"] == "compacted"
        assert verdict(log, offset).endswith(
            "missing, compacted away: its key has a newer record, or it was aborted"
        )
    # An empty batch stays, to keep what it says of its producer.
    empty = HEADER.pack(2, HEADER_SIZE - LENGTH_END, 3, 2, 0, 0, 0, -1, -1, 9, 7, 0, 0)
    told = explained(PlayedLog(batch(0, b"a", b"b"), empty, batch(3, b"d")), 2)
    assert told["status"] == "compacted"


def test_an_aborted_record_is_known_by_the_list_even_without_its_marker() -> None:
    log = PlayedLog(written(0, 9, b"a"), written(1, 8, b"b"))
    log.aborted = [(9, 0)]
    assert explained(log, 0)["transaction"]["outcome"] == "aborted"
    assert facts(log, 0)["transaction"] == (
        "of an id that no coordinator knows any more, aborted: its marker is gone, or far away"
    )
    assert explained(log, 1)["transaction"]["outcome"] == "committed"


def test_a_later_abort_of_the_same_producer_is_another_transaction() -> None:
    log = PlayedLog(
        written(0, 9, b"a"), marker(1, 9, COMMIT), written(2, 9, b"b"), marker(3, 9, ABORT)
    )
    log.aborted = [(9, 2)]
    log.names = {9: "billing"}
    outcomes = [explained(log, offset)["transaction"]["outcome"] for offset in range(4)]
    assert outcomes == ["committed", "committed", "aborted", "aborted"]
    assert facts(log, 0)["transaction"] == "billing, committed: marker at offset 1"
    assert verdict(log, 3).endswith("a marker that a transaction was aborted")
    assert facts(log, 3)["transaction"] == "billing, aborted; coordinator epoch 5"


def test_behind_an_open_transaction_everything_waits() -> None:
    log = PlayedLog(written(0, 9, b"a"), written(1, 8, b"b"), marker(2, 8, COMMIT), batch(3, b"c"))
    log.stable, log.open, log.names = 0, {9: 0}, {8: "other"}
    assert verdict(log, 0).endswith(
        "a record of an open transaction: read_committed readers wait for its end"
    )
    assert "a record, committed, above the last stable offset" in verdict(log, 1)
    assert "a record, above the last stable offset" in verdict(log, 3)
    assert facts(log, 3)["waits for"] == "producer 9, open from offset 0 on"
    assert not explained(log, 3)["visible"]["read_committed"]


def test_a_marker_that_is_too_far_away_to_look_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_facts, "SCAN_BYTES_MAX", 1)
    log = PlayedLog(written(0, 9, b"a"), written(1, 8, b"b"), batch(2, b"c"), marker(3, 8, COMMIT))
    log.stable, log.open = 0, {9: 0}
    assert explained(log, 1)["transaction"]["outcome"] == "ended"
    assert "a record, ended, above the last stable offset" in verdict(log, 1)
    assert explained(log, 0)["transaction"]["outcome"] == "open"


def test_outside_of_the_log() -> None:
    log = PlayedLog(batch(5, b"f"))
    log.start, log.committed = 5, {"quick": 7, "slow": 5}
    assert "missing, below the log start 5" in verdict(log, 4)
    assert verdict(log, 6) == "bills-0 offset 6: not there yet: the high watermark is 6"
    assert facts(log, 6)["groups past"] == "quick"
    assert facts(log, 6)["not yet past"] == "slow (at 5)"


def test_many_groups_are_not_all_named() -> None:
    log = PlayedLog(batch(0, b"a"))
    log.committed = {f"g{number:02}": 1 for number in range(14)}
    assert facts(log, 0)["groups past"].endswith("g11 and 2 more")


def test_what_cannot_be_asked() -> None:
    log = PlayedLog()
    with pytest.raises(Failure, match="topic bill does not exist; did you mean bills"):
        Inquiry(cast("Admin", log), "bill", 0, 0).answer()
    with pytest.raises(Failure, match="has the partitions 0 to 0, and no 1"):
        Inquiry(cast("Admin", log), TOPIC, 1, 0).answer()
    log.leader = None
    with pytest.raises(Failure, match="bills-0 has no leader now"):
        explained(log, 0)


def test_words() -> None:
    assert shown(b"a\n\xff") == "a\\n\\xff"
    assert shown(None) == "null"
    assert (time_of(-1), time_of(2**62)) == ("-", str(2**62))
    assert [duration_of(one) for one in (5, 1_500, 90_000, 5_400_000)] == [
        "5 ms",
        "1.5 s",
        "1.5 min",
        "1.5 h",
    ]
