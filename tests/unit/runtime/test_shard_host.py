"""Goal: a host answers in order, after the commit and only then, and never loses its head.
Method: a shard that keeps a list, over the simulated log, with each fault by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.coordinator.shard import Outcome, Record
from ottla.protocol.error_codes import UNKNOWN_SERVER_ERROR
from ottla.replication.partition import Partition
from ottla.runtime.shard_host import HostTimers, ShardHost
from sim.groups.simulated_log import SimulatedPartition, SimulatedServices
from sim.groups.virtual import VirtualTime

TIMEOUT_MS = 5000


class ListShard:
    """What was replayed, and how often it was unloaded."""

    def __init__(self) -> None:
        self.replayed: list[bytes] = []
        self.unloaded = 0

    def replay(self, record: Record) -> None:
        self.replayed.append(record.key)

    def unload(self) -> None:
        self.unloaded += 1


class Hosted:
    def __init__(self) -> None:
        self.time = VirtualTime()
        self.partition = SimulatedPartition()
        self.services = SimulatedServices(self.time)
        self.shard = ListShard()
        self.timers = HostTimers(self.time)
        self.told: list[str] = []
        self.host: ShardHost[ListShard] = ShardHost(
            cast(Partition, self.partition),
            self.shard,
            cast(Any, self.services),
            self.timers,
            lambda: TIMEOUT_MS,
        )

    def write(self, name: str, records: int = 1, **options: Any) -> None:
        """Writes `records` records under this name; what comes back is told as `name=...`."""
        keys = [b"%s%d" % (name.encode(), number) for number in range(records)]
        outcome = Outcome([Record(key, b"v") for key in keys], "done", **options)
        self.tell(name, self.host.write(lambda shard: outcome))

    def tell(self, name: str, answer: Deferred[Any]) -> None:
        def done(outcome: Deferred[Any]) -> None:
            try:
                self.told.append(f"{name}={outcome.result()}")
            except ProtocolError as refused:
                self.told.append(f"{name}!{refused.code}")

        answer.when_done(done)


@pytest.fixture
def hosted() -> Hosted:
    return Hosted()


def test_an_answer_comes_with_the_commit(hosted: Hosted) -> None:
    hosted.write("a")
    assert hosted.told == ["a=done"]
    assert hosted.shard.replayed == [b"a0"]
    hosted.partition.holds_back = True
    hosted.write("b", 2)
    assert hosted.shard.replayed == [b"a0", b"b0", b"b1"], "the next decision sees them at once"
    assert hosted.told == ["a=done"]
    hosted.partition.commit_all()
    assert hosted.told == ["a=done", "b=done"]


def test_an_answer_at_once_or_not_at_all(hosted: Hosted) -> None:
    def at_once() -> str | None:
        outcome = Outcome([Record(b"at once", b"v")], "done")
        return hosted.host.write_at_once(lambda shard: outcome)

    assert at_once() == "done"
    assert hosted.shard.replayed == [b"at once"]
    hosted.partition.fail_code = 19
    assert at_once() is None, "nothing could be stored"
    hosted.partition.fail_code = 0
    hosted.partition.holds_back = True
    assert at_once() is None, "it would have to wait"
    hosted.write("a")
    hosted.partition.holds_back = False
    assert at_once() is None, "an answer waits that is older"
    hosted.partition.commit_all()
    assert hosted.told == ["a=done"]
    hosted.host.run(
        lambda shard: Outcome((), None, lambda code: hosted.told.append(str(at_once())))
    )
    assert hosted.told == ["a=done", "None"], "another decision is under way"
    hosted.partition.times_led += 1
    assert at_once() is None, "it does not know what happened meanwhile"
    hosted.partition.times_led -= 1
    hosted.host.close()
    assert at_once() is None
    assert hosted.shard.replayed == [b"at once", b"a0"]


def test_whoever_looks_waits_for_what_it_may_have_seen(hosted: Hosted) -> None:
    hosted.tell("before", hosted.host.read(lambda shard: len(shard.replayed)))
    hosted.partition.holds_back = True
    hosted.write("a")
    hosted.tell("look", hosted.host.read(lambda shard: len(shard.replayed)))
    hosted.write("nothing", 0)
    assert hosted.told == ["before=0"]
    hosted.partition.commit_all()
    assert hosted.told == ["before=0", "a=done", "look=1", "nothing=done"]


def test_what_nobody_waits_for_is_settled_with_what_it_has_seen(hosted: Hosted) -> None:
    """A coordinator that begins markers must not do so for a decision that may yet be lost."""
    hosted.partition.holds_back = True
    hosted.write("a")
    settled: list[int] = []
    hosted.host.run(lambda shard: Outcome((), None, settled.append))
    assert settled == []
    hosted.partition.commit_all()
    assert settled == [0] and hosted.told == ["a=done"]


@pytest.mark.parametrize(
    ("code", "told"), [(3, 15), (7, 15), (19, 15), (20, 15), (6, 16), (56, 16), (10, -1), (45, 45)]
)
def test_a_failed_append_changes_nothing(hosted: Hosted, code: int, told: int) -> None:
    settled: list[int] = []
    hosted.partition.fail_code = code
    hosted.write("a", on_settled=settled.append)
    assert hosted.told == [f"a!{told}"]
    assert settled == [told]
    assert hosted.shard.replayed == []


def test_a_failing_disk_is_reported(hosted: Hosted) -> None:
    hosted.partition.fails_on_disk = True
    hosted.write("a")
    assert hosted.told == ["a!16"]
    assert len(hosted.services.failures) == 1


def test_nothing_is_written_without_enough_replicas(hosted: Hosted) -> None:
    hosted.partition.has_enough = False
    hosted.write("a")
    assert hosted.told == ["a!15"]
    assert hosted.partition.batches == []


def test_nothing_is_written_in_another_epoch(hosted: Hosted) -> None:
    hosted.partition.leader_epoch += 1
    hosted.write("a")
    hosted.partition.leader_epoch -= 1
    hosted.partition.log = None
    hosted.write("b")
    assert hosted.told == ["a!16", "b!16"]


def test_what_is_settled_comes_before_the_answer(hosted: Hosted) -> None:
    hosted.partition.holds_back = True
    hosted.write("a", on_settled=lambda code: hosted.told.append(f"settled {code}"))
    assert hosted.told == []
    hosted.partition.commit_all()
    assert hosted.told == ["settled 0", "a=done"]


def test_a_batch_that_is_too_large_is_refused_whole(hosted: Hosted) -> None:
    hosted.partition.config.max_message_bytes = 100
    hosted.write("a", 10)
    assert hosted.told == ["a!-1"]
    assert hosted.partition.batches == []


def test_what_need_not_be_whole_goes_into_several_batches(hosted: Hosted) -> None:
    hosted.partition.config.max_message_bytes = 150
    hosted.write("a", 10, is_atomic=False)
    assert hosted.told == ["a=done"]
    assert len(hosted.partition.batches) > 1
    assert all(len(batch) <= 150 for batch in hosted.partition.batches)
    assert len(hosted.shard.replayed) == 10


def test_a_commit_that_takes_too_long_is_told_so(hosted: Hosted) -> None:
    settled: list[int] = []
    hosted.partition.holds_back = True
    hosted.write("a", on_settled=settled.append)
    hosted.time.advance(TIMEOUT_MS - 1)
    hosted.write("b")
    hosted.time.advance(1)
    assert (hosted.told, settled) == (["a!15"], [15])
    hosted.partition.commit_all()
    assert hosted.told == ["a!15", "b=done"]
    assert settled == [15]
    assert hosted.shard.replayed == [b"a0", b"b0"], "it is in the log all the same"


def test_an_answer_waits_for_the_disk_where_the_topic_asks_for_it(hosted: Hosted) -> None:
    hosted.partition.config.flush_messages = 2
    hosted.write("a")
    assert hosted.told == ["a=done"]
    hosted.write("b")
    hosted.tell("look", hosted.host.read(lambda shard: len(shard.replayed)))
    assert hosted.told == ["a=done"]
    hosted.services.finish_flushes()
    assert hosted.told == ["a=done", "b=done", "look=2"]


def test_what_is_asked_in_an_answer_waits_for_its_turn(hosted: Hosted) -> None:
    """A client that gets its answer may ask on at once, in the middle of what we do."""
    order: list[str] = []

    def first(shard: ListShard) -> Outcome[str]:
        waiting: Deferred[str] = Deferred()
        waiting.when_done(lambda done: ask("second"))
        order.append("first begins")
        waiting.resolve("one")
        order.append("first ends")
        return Outcome([Record(b"first", b"")], "first")

    def ask(name: str) -> None:
        def decide(shard: ListShard) -> Outcome[str]:
            order.append(name)
            return Outcome([Record(name.encode(), b"")], name)

        hosted.tell(name, hosted.host.write(decide))

    hosted.tell("first", hosted.host.write(first))
    assert order == ["first begins", "first ends", "second"]
    assert sorted(hosted.told) == ["first=first", "second=second"]
    assert hosted.shard.replayed == [b"first", b"second"]


def test_an_answer_that_waits_for_others(hosted: Hosted) -> None:
    later: Deferred[str] = Deferred()
    hosted.tell("a", hosted.host.write(lambda shard: Outcome((), later)))
    assert hosted.told == []
    later.resolve("at last")
    assert hosted.told == ["a=at last"]


def test_a_mistake_costs_only_who_made_it(hosted: Hosted, caplog: pytest.LogCaptureFixture) -> None:
    def wrong(shard: ListShard) -> Outcome[str]:
        raise KeyError("oops")

    answer = hosted.host.write(wrong)
    with pytest.raises(ProtocolError) as refused:
        answer.result()
    assert refused.value.code == UNKNOWN_SERVER_ERROR
    hosted.host.run(wrong)
    hosted.write("a")
    assert hosted.told == ["a=done"]
    assert sum("oops" in (record.exc_text or "") for record in caplog.records) == 2


def test_a_mistake_at_once_is_left_to_the_long_way(
    hosted: Hosted, caplog: pytest.LogCaptureFixture
) -> None:
    """There it gets its answer; out of here it would close the connection that brought it."""

    def fail(shard: ListShard) -> Outcome[str]:
        raise ValueError("seven")

    assert hosted.host.write_at_once(fail) is None
    assert "seven" in caplog.text
    assert hosted.host.write_at_once(lambda shard: Outcome((), "done")) == "done"


def test_a_mistake_at_the_end_costs_only_who_made_it(
    hosted: Hosted, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(code: int) -> None:
        raise KeyError("oops")

    later: Deferred[str] = Deferred()
    answers = [
        hosted.host.write(lambda shard: Outcome((), "done", wrong)),
        hosted.host.write(lambda shard: Outcome[str]((), later, wrong)),
    ]
    hosted.host.run(lambda shard: Outcome((), None, wrong))
    hosted.write("a")
    assert hosted.told == ["a=done"]
    assert [cast(ProtocolError, one.error()).code for one in answers] == [UNKNOWN_SERVER_ERROR] * 2
    later.resolve("nobody waits for it any more")
    assert sum("oops" in (record.exc_text or "") for record in caplog.records) == 3


def test_timers(hosted: Hosted) -> None:
    def fires(name: str) -> Callable[[], Outcome[None]]:
        def operation() -> Outcome[None]:
            hosted.told.append(f"{name} at {hosted.time.monotonic_ms()}")
            return Outcome([Record(name.encode(), b"")], None)

        return operation

    hosted.timers.schedule("one", 100, fires("one"))
    hosted.timers.schedule("one", 300, fires("one"))
    hosted.timers.schedule("two", 200, fires("two"))
    hosted.timers.schedule("three", 200, fires("three"))
    hosted.timers.cancel("three")
    hosted.timers.cancel("four")
    assert len(hosted.timers) == 2
    hosted.time.advance(1000)
    assert hosted.told == ["two at 200", "one at 300"]
    assert hosted.shard.replayed == [b"two", b"one"]
    assert len(hosted.timers) == 0


def test_closing_answers_everybody(hosted: Hosted) -> None:
    settled: list[int] = []
    hosted.partition.holds_back = True
    hosted.write("a", on_settled=settled.append)
    hosted.tell("look", hosted.host.read(lambda shard: 1))
    hosted.timers.schedule("timer", 10, lambda: Outcome([Record(b"late", b"")], None))
    hosted.host.close()
    assert hosted.told == ["a!16", "look!16"]
    assert (settled, hosted.shard.unloaded) == ([16], 1)
    hosted.write("b")
    hosted.host.close()
    hosted.time.advance(1000)
    assert hosted.told[2:] == ["b!16"]
    assert hosted.shard.unloaded == 1
    assert hosted.shard.replayed == [b"a0"]


def test_a_partition_that_goes_away_closes_its_host(hosted: Hosted) -> None:
    hosted.partition.holds_back = True
    hosted.write("a")
    hosted.partition.lose_leadership()
    assert hosted.told == ["a!16"]
    assert hosted.shard.unloaded == 1
