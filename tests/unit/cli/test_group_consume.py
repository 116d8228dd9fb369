"""Goal: what is shown and what is committed come in the order that the guarantee needs, whatever
the group does meanwhile.
Method: a reader that plays prepared turns; shows, flushes and commits go into one list.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping

import pytest

from ottla.base.ids import TopicPartition
from ottla.cli.failure import Failure
from ottla.cli.group_consume import Commit, Consumption, GroupConsuming, Ownership
from ottla.cli.group_model import CommitOvertaken
from ottla.cli.model import EndReached, ReceivedRecord
from ottla.cli.record_format import compile_format
from tests.unit.cli.records import a_record

Event = ReceivedRecord | EndReached
Turn = list[Event] | Callable[[], None]
FIRST, SECOND = ("orders", 0), ("orders", 1)


class Interrupted(Exception):
    """Ends a reading that would go on."""


class Target(io.BytesIO):
    def __init__(self, journal: list[str]) -> None:
        super().__init__()
        self._journal = journal
        self._waiting: list[str] = []

    def write(self, content: object) -> int:
        assert isinstance(content, bytes)
        self._waiting.append(content.decode())
        return len(content)

    def flush(self) -> None:
        if self._waiting:
            self._journal.append("show " + "".join(self._waiting).strip())
        self._waiting = []


class PlayedReader:
    """A turn is a list of events, or something that happens while it reads."""

    def __init__(self, journal: list[str], turns: list[Turn]) -> None:
        self.connection_lost: str | None = None
        self.refusing: type[Exception] | None = None
        self._journal = journal
        self._turns = turns
        self._rest: list[Event] = []

    def read(self, timeout_s: float, records_max: int) -> list[Event]:
        while not self._rest:
            if not self._turns:
                raise Interrupted
            turn = self._turns.pop(0)
            if isinstance(turn, list):
                self._rest = turn
                break
            turn()
            return []
        given, self._rest = self._rest[:records_max], self._rest[records_max:]
        return given

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.refusing is not None:
            raise self.refusing("the group has gone on")
        self._journal.append("commit " + _places(offsets))

    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._journal.append("rewind " + _places(offsets))


def _places(offsets: Mapping[TopicPartition, int]) -> str:
    return " ".join(f"{one[1]}@{offset}" for one, offset in sorted(offsets.items()))


def at(one: TopicPartition, *offsets: int) -> list[Event]:
    return [a_record(topic=one[0], partition=one[1], offset=offset) for offset in offsets]


class Play:
    """A member that has both partitions from the start."""

    def __init__(self, **options: object) -> None:
        self.journal: list[str] = []
        self.turns: list[Turn] = []
        self.consumption = Consumption(**options)  # type: ignore[arg-type]
        self.ownership = Ownership(self.consumption)
        self.reader = PlayedReader(self.journal, self.turns)
        self.work = GroupConsuming(
            self.reader,
            self.ownership,
            compile_format("%p@%o "),
            Target(self.journal),
            self.consumption,
        )
        self.ownership.on_assigned([FIRST, SECOND])

    def run(self, *turns: Turn) -> list[str]:
        self.turns += turns
        try:
            self.work.run()
        except Interrupted:
            self.journal.append("...")
        return self.journal


# -------------------------------------------------------------------------------------- in order


def test_after_shows_first() -> None:
    journal = Play(commit=Commit.after).run(at(FIRST, 0, 1) + at(SECOND, 5), at(FIRST, 2))
    assert journal == ["show 0@0 0@1 1@5", "commit 0@2 1@6", "show 0@2", "commit 0@3", "..."]


def test_before_commits_first() -> None:
    journal = Play(commit=Commit.before).run(at(FIRST, 0, 1) + at(SECOND, 5), at(FIRST, 2))
    assert journal == ["commit 0@2 1@6", "show 0@0 0@1 1@5", "commit 0@3", "show 0@2", "..."]


def test_manual_never_commits() -> None:
    play = Play(commit=Commit.manual, max_records=2)
    assert play.run(at(FIRST, 0, 1)) == ["show 0@0 0@1"]


def test_every_so_many_exactly_when_shown_first() -> None:
    play = Play(commit=Commit.after, commit_every=3)
    journal = play.run(at(FIRST, 0, 1), at(FIRST, 2, 3), at(FIRST, 4, 5, 6))
    assert [line for line in journal if "commit" in line] == ["commit 0@3", "commit 0@6"]
    assert journal[-2:] == ["show 0@6", "..."]


def test_at_most_so_many_when_committed_first() -> None:
    journal = Play(commit=Commit.before, commit_every=2).run(at(FIRST, 0, 1, 2))
    assert journal == ["commit 0@2", "show 0@0 0@1", "commit 0@3", "show 0@2", "..."]


def test_the_rest_is_committed_at_the_end_but_not_by_hand() -> None:
    after = Play(commit=Commit.after, commit_every=2, max_records=3)
    assert after.run(at(FIRST, 0, 1, 2))[-2:] == ["show 0@2", "commit 0@3"]
    manual = Play(commit=Commit.manual, commit_every=2, max_records=3)
    assert manual.run(at(FIRST, 0, 1, 2)) == ["show 0@0 0@1", "commit 0@2", "show 0@2"]


@pytest.mark.parametrize(
    ("commit", "expected"),
    [
        (Commit.after, ["show 0@0 0@1", "commit 0@2"]),
        (Commit.before, ["commit 0@2", "show 0@0 0@1"]),
    ],
)
def test_no_more_is_committed_than_is_shown(commit: Commit, expected: list[str]) -> None:
    assert Play(commit=commit, max_records=2).run(at(FIRST, 0, 1, 2, 3)) == expected


def test_a_crash_while_showing_leaves_it_uncommitted() -> None:
    play = Play(commit=Commit.after)

    class Broken(io.BytesIO):
        def flush(self) -> None:
            raise BrokenPipeError

    play.work._target = Broken()
    with pytest.raises(BrokenPipeError):
        play.run(at(FIRST, 0))
    assert play.journal == []


# ------------------------------------------------------------------------- the group goes its way


def test_what_is_shown_is_committed_before_it_is_handed_over() -> None:
    play = Play(commit=Commit.after, commit_every=10)
    play.run(at(FIRST, 0) + at(SECOND, 5), lambda: play.ownership.on_revoked([FIRST]))
    assert play.journal == ["show 0@0 1@5", "commit 0@1 1@6", "..."]
    assert play.ownership.owned == {SECOND}


def test_by_hand_nothing_is_committed_on_the_way_out() -> None:
    play = Play(commit=Commit.manual, commit_every=10)
    play.run(at(FIRST, 0), lambda: play.ownership.on_revoked([FIRST]))
    assert play.journal == ["show 0@0", "..."]


def test_what_is_lost_is_not_committed_any_more() -> None:
    play = Play(commit=Commit.after, commit_every=2)
    play.run(at(FIRST, 7), lambda: play.ownership.on_lost([FIRST]), at(SECOND, 5, 6))
    assert [line for line in play.journal if "commit" in line] == ["commit 1@6"]


def test_an_overtaken_commit_after_showing_goes_with_the_next() -> None:
    play = Play(commit=Commit.after, verbose=True)
    play.reader.refusing = CommitOvertaken

    def settle() -> None:
        play.reader.refusing = None

    play.run(at(FIRST, 0), settle, at(SECOND, 5))
    assert play.journal == ["show 0@0", "show 1@5", "commit 0@1 1@6", "..."]


def test_an_overtaken_commit_before_showing_shows_nothing() -> None:
    play = Play(commit=Commit.before)
    play.reader.refusing = CommitOvertaken
    assert play.run(at(FIRST, 3, 4) + at(SECOND, 5)) == ["rewind 0@3 1@5", "..."]


@pytest.mark.parametrize("commit", [Commit.before, Commit.after])
def test_a_commit_that_fails_otherwise_is_the_end(commit: Commit) -> None:
    play = Play(commit=commit)
    play.reader.refusing = Failure
    with pytest.raises(Failure):
        play.run(at(FIRST, 0))
    assert play.journal == ([] if commit is Commit.before else ["show 0@0"])


def test_partitions_and_commits_are_told_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    play = Play(commit=Commit.after, verbose=True)
    play.run(
        at(FIRST, 0),
        lambda: play.ownership.on_assigned([]),
        lambda: play.ownership.on_revoked([FIRST]),
        lambda: play.ownership.on_lost([SECOND]),
        lambda: play.ownership.on_revoked([]),
        lambda: play.ownership.on_assigned([]),
    )
    assert capsys.readouterr().err.splitlines() == [
        "assigned orders-0, orders-1",
        "committed orders-0@1",
        "revoked orders-0",
        "lost orders-1",
        "assigned nothing",
    ]


# -------------------------------------------------------------------------------------- the end


def test_it_ends_when_its_partitions_are_at_the_end_they_had() -> None:
    play = Play(ends={FIRST: 2, SECOND: 6})
    journal = play.run(at(FIRST, 0, 1, 2), at(SECOND, 5))
    assert journal == ["show 0@0 0@1", "commit 0@2", "show 1@5", "commit 1@6"]


def test_an_end_without_a_record_is_an_end() -> None:
    play = Play(ends={FIRST: 2, SECOND: 6})
    assert play.run([EndReached(FIRST, 0)], [EndReached(SECOND, 0)]) == []


def test_a_group_that_has_read_everything_lags_behind_nothing() -> None:
    """Aborted records at the end are shown to nobody, and would stay uncommitted for ever."""
    play = Play(ends={FIRST: 5, SECOND: 6})
    journal = play.run([*at(FIRST, 0, 1), EndReached(FIRST, 5)], [EndReached(SECOND, 6)])
    assert journal == ["show 0@0 0@1", "commit 0@2", "commit 0@5", "commit 1@6"]


def test_an_end_is_committed_once() -> None:
    play = Play()
    journal = play.run([EndReached(FIRST, 5)], [EndReached(FIRST, 5)], [EndReached(FIRST, 7)])
    assert journal == ["commit 0@5", "commit 0@7", "..."]


def test_no_commit_goes_beyond_the_end_that_is_shown() -> None:
    """What was written since is left to the next reader, although we know it by now."""
    play = Play(ends={FIRST: 5, SECOND: 6})
    journal = play.run([*at(FIRST, 2, 6), EndReached(FIRST, 7), EndReached(SECOND, 6)])
    assert journal == ["show 0@2", "commit 0@3", "commit 0@5 1@6"]


def test_whoever_commits_first_passes_the_end_with_what_it_has_shown() -> None:
    play = Play(commit=Commit.before, ends={FIRST: 5, SECOND: 0})
    journal = play.run([*at(FIRST, 2), EndReached(FIRST, 5), EndReached(SECOND, 0)])
    assert journal == ["commit 0@3", "show 0@2", "commit 0@5"]


def test_by_hand_no_end_is_committed() -> None:
    play = Play(commit=Commit.manual, ends={FIRST: 5, SECOND: 6})
    assert play.run([EndReached(FIRST, 5), EndReached(SECOND, 6)]) == []


def test_by_so_many_an_end_waits_for_the_next_commit() -> None:
    play = Play(commit_every=2)
    journal = play.run([*at(FIRST, 0), EndReached(FIRST, 5)], at(FIRST, 6))
    assert journal == ["show 0@0", "show 0@6", "commit 0@7", "..."]


def test_an_end_behind_what_was_not_shown_is_not_passed() -> None:
    play = Play(rate=1_000_000.0)

    def stop() -> None:
        play.work.stopping = True

    play.work._wait = stop
    assert play.run([*at(FIRST, 0), EndReached(FIRST, 5)]) == []


def test_an_end_behind_what_could_not_be_committed_is_not_passed() -> None:
    play = Play(commit=Commit.before)
    play.reader.refusing = CommitOvertaken
    journal = play.run([*at(FIRST, 0), EndReached(FIRST, 5)])
    assert journal == ["rewind 0@0", "..."]


def test_a_partition_of_others_is_not_waited_for() -> None:
    play = Play(ends={FIRST: 2, SECOND: 6})
    play.ownership.on_revoked([SECOND])
    assert play.run(at(FIRST, 1)) == ["show 0@1", "commit 0@2"]


def test_a_partition_that_comes_back_is_read_again() -> None:
    play = Play(ends={FIRST: 2, SECOND: 6})
    # Somebody else had it in between, and may not have come as far.
    play.run(
        [EndReached(SECOND, 5)],
        lambda: play.ownership.on_revoked([SECOND]),
        lambda: play.ownership.on_assigned([SECOND]),
        [EndReached(FIRST, 0)],
        at(SECOND, 5),
    )
    assert play.journal == ["commit 1@5", "show 1@5", "commit 1@6"]


def test_a_member_without_a_partition_waits_for_one() -> None:
    play = Play(ends={FIRST: 2, SECOND: 6})
    play.ownership.on_revoked([FIRST, SECOND])
    assert play.run(lambda: None) == ["..."]


def test_following_has_no_end() -> None:
    assert Play().run([EndReached(FIRST, 0), EndReached(SECOND, 0)], at(FIRST, 0))[-1] == "..."


def test_whoever_stops_while_showing_commits_what_was_shown() -> None:
    play = Play(commit=Commit.after, rate=1_000_000.0)
    shown = []

    def stop_at_the_second() -> None:
        shown.append(1)
        play.work.stopping = len(shown) == 2

    play.work._wait = stop_at_the_second
    assert play.run(at(FIRST, 0, 1, 2)) == ["show 0@0", "commit 0@1"]


def test_whoever_stops_shows_what_is_committed_already() -> None:
    play = Play(commit=Commit.before, rate=1_000_000.0)

    def stop() -> None:
        play.work.stopping = True

    play.work._wait = stop
    assert play.run(at(FIRST, 0, 1, 2)) == ["commit 0@3", "show 0@0 0@1 0@2"]


def test_a_lost_connection(capsys: pytest.CaptureFixture[str]) -> None:
    play = Play()

    def lose() -> None:
        play.reader.connection_lost = "all brokers are down"

    assert play.run(lose, lambda: None) == ["..."]
    assert capsys.readouterr().err.count("the connection is lost (all brokers are down)") == 1
    play = Play(ends={FIRST: 2, SECOND: 6})
    with pytest.raises(Failure, match="lost before the end: all brokers are down"):
        play.run(lose)
