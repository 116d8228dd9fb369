"""Goal: reading ends where it should, shows each record once, and tells of a lost connection.
Method: a reader that plays prepared events.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping

import pytest

from ottla.base.ids import TopicPartition
from ottla.cli.consume import Consuming
from ottla.cli.failure import Failure
from ottla.cli.model import EndReached, ReceivedRecord
from ottla.cli.record_format import compile_format
from ottla.cli.starting_points import Stretch
from tests.unit.cli.records import a_record

Event = ReceivedRecord | EndReached
FIRST, SECOND = ("orders", 0), ("orders", 1)


class Interrupted(Exception):
    """Ends a reading that would go on."""


class PlayedReader:
    """Gives one prepared list of events per read; a text in its place is a lost connection."""

    def __init__(self, *turns: list[Event] | str) -> None:
        self.connection_lost: str | None = None
        self.assigned: Mapping[TopicPartition, int] | None = None
        self._turns = list(turns)

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        self.assigned = starts

    def read(self, timeout_s: float) -> list[Event]:
        if not self._turns:
            raise Interrupted
        turn = self._turns.pop(0)
        if isinstance(turn, str):
            self.connection_lost = turn
            return []
        self.connection_lost = None
        return turn

    def close(self) -> None:
        pass


def at(one: TopicPartition, offset: int) -> ReceivedRecord:
    return a_record(topic=one[0], partition=one[1], offset=offset)


def shown(
    reader: PlayedReader,
    stretches: dict[TopicPartition, Stretch],
    *,
    max_records: int | None = None,
    follow: bool = False,
) -> str:
    target = io.BytesIO()
    work = Consuming(
        reader,  # type: ignore[arg-type]
        compile_format("%p@%o "),
        target,
        stretches,
        max_records,
        follow,
    )
    try:
        work.run()
    except Interrupted:
        target.write(b"...")
    return target.getvalue().decode()


def test_it_ends_when_every_partition_is_at_the_end_it_had() -> None:
    reader = PlayedReader([at(FIRST, 8), at(FIRST, 9), at(SECOND, 4)], [at(FIRST, 10)])
    assert shown(reader, {FIRST: Stretch(0, 10, 8), SECOND: Stretch(0, 5, 4)}) == "0@8 0@9 1@4 "
    assert reader.assigned == {FIRST: 8, SECOND: 4}


def test_an_end_without_a_last_record_is_an_end() -> None:
    # The last offsets may be a transaction's marker, or compacted away.
    reader = PlayedReader([at(FIRST, 7)], [EndReached(FIRST, 8)])
    assert shown(reader, {FIRST: Stretch(0, 10, 7)}) == "0@7 "


def test_a_record_past_the_end_is_not_shown() -> None:
    reader = PlayedReader([at(FIRST, 7), at(FIRST, 12)])
    assert shown(reader, {FIRST: Stretch(0, 10, 7)}) == "0@7 "


def test_nothing_to_read_asks_for_nothing() -> None:
    reader = PlayedReader()
    assert shown(reader, {FIRST: Stretch(5, 5, 5), SECOND: Stretch(0, 9, 9)}) == ""
    assert reader.assigned is None


def test_following_goes_past_every_end() -> None:
    reader = PlayedReader([at(FIRST, 4), EndReached(FIRST, 5)], [at(FIRST, 5)], [at(FIRST, 6)])
    assert shown(reader, {FIRST: Stretch(0, 5, 4)}, follow=True) == "0@4 0@5 0@6 ..."
    assert reader.assigned == {FIRST: 4}


def test_following_assigns_empty_partitions_too() -> None:
    reader = PlayedReader([at(FIRST, 5)])
    assert shown(reader, {FIRST: Stretch(5, 5, 5)}, follow=True) == "0@5 ..."


@pytest.mark.parametrize("follow", [False, True])
def test_enough_is_enough(follow: bool) -> None:
    reader = PlayedReader([at(FIRST, 0), at(FIRST, 1), at(FIRST, 2)])
    assert shown(reader, {FIRST: Stretch(0, 9, 0)}, max_records=2, follow=follow) == "0@0 0@1 "


def test_a_lost_connection_ends_a_reading_that_has_an_end() -> None:
    reader = PlayedReader([at(FIRST, 0)], "all brokers are down")
    with pytest.raises(Failure, match="lost before the end: all brokers are down"):
        shown(reader, {FIRST: Stretch(0, 9, 0)})


def test_a_lost_connection_is_told_once_when_following(capsys: pytest.CaptureFixture[str]) -> None:
    reader = PlayedReader("gone", "gone", [at(FIRST, 0)], "gone again")
    assert shown(reader, {FIRST: Stretch(0, 9, 0)}, follow=True) == "0@0 ..."
    told = capsys.readouterr().err.splitlines()
    assert [line.count("gone") for line in told] == [1, 1]
    assert "gone again" in told[1]


class ReaderOfAHeadOnly(PlayedReader):
    """Whoever reads the output goes after the first records."""

    def __init__(self, reading: int, *turns: list[Event] | str) -> None:
        super().__init__(*turns)
        self._reading: int | None = reading

    def read(self, timeout_s: float) -> list[Event]:
        events = super().read(timeout_s)
        if not events and self._reading is not None:
            os.close(self._reading)
            self._reading = None
        return events


def test_who_follows_a_quiet_topic_notices_that_nobody_reads_any_more() -> None:
    reading, writing = os.pipe()
    reader = ReaderOfAHeadOnly(reading, [at(FIRST, 0)], [], [])
    with open(writing, "wb") as target:
        work = Consuming(
            reader,  # type: ignore[arg-type]
            compile_format("%v\\n"),
            target,
            {FIRST: Stretch(0, 0, 0)},
            None,
            True,
        )
        with pytest.raises(BrokenPipeError):
            work.run()
