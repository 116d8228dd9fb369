"""Bugs to plant: each breaks one rule of the real machines, and the world has to find it.

They are patches, undone afterwards; nothing of them is in the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from ottla.base.deferred import Deferred
from ottla.handlers import api_00_produce, replica_fetch
from ottla.log.partition_log import PartitionLog
from ottla.metadata import decision, duties, in_sync, nodes
from ottla.metadata.decision import Decision
from ottla.metadata.duties import Duties
from ottla.metadata.image import MetadataImage
from ottla.metadata.partition_rules import PartitionChange
from ottla.metadata.partition_writes import PartitionWrites
from ottla.metadata.topic_settings import TopicSettings
from ottla.protocol.fetch_request import NO_HIGH_WATERMARK
from ottla.protocol.replica_fetch import pack_joining
from ottla.replication import follower_fetch, partition, replica_session
from ottla.replication.effects import Outcome
from ottla.replication.follower_fetch import FollowerFetch
from ottla.replication.in_sync_tracker import InSyncTracker
from ottla.replication.leader_progress import LeaderProgress
from ottla.replication.partition import Partition
from ottla.runtime.flusher import Flusher
from ottla.runtime.in_sync_keeper import InSyncKeeper
from ottla.runtime.local_replicas import LocalReplicas
from ottla.runtime.replica_fetchers import ReplicaFetchers

Patch = tuple[Any, str, Any]


def _done(value: Any = None) -> Deferred[Any]:
    done: Deferred[Any] = Deferred()
    done.resolve(value)
    return done


# -- the watermark and the in-sync set ----------------------------------------------------------


def _only_the_committed_set_counts() -> list[Patch]:
    """Who is about to join is counted for another reason too, so that must go as well."""
    return [
        (LeaderProgress, "on_in_sync_proposed", lambda progress, members: None),
        (LeaderProgress, "on_awaited", lambda progress, members: None),
    ]


def _join_before_the_start_of_the_epoch() -> list[Patch]:
    def may_join(progress: Any, follower: Any) -> bool:
        return bool(follower.log_end >= progress.high_watermark)

    return [(LeaderProgress, "may_join", may_join)]


def _a_refused_set_is_forgotten() -> list[Patch]:
    real = InSyncTracker.on_outcome

    def on_outcome(tracker: Any, proposal: Any, outcome: Outcome) -> bool:
        if outcome is not Outcome.STORED and proposal is tracker._under_way:
            tracker._progress._proposed = frozenset()
            tracker._progress._settle()
        return real(tracker, proposal, outcome)

    return [
        (InSyncTracker, "on_outcome", on_outcome),
        (LeaderProgress, "on_awaited", lambda progress, members: None),
    ]


def _the_watermark_moves_with_too_few() -> list[Patch]:
    real = LeaderProgress._settle

    def settle(progress: Any) -> None:
        real(progress)
        progress._has_enough = True

    return [(LeaderProgress, "_settle", settle)]


def _a_follower_is_believed_before_it_is_compared() -> list[Patch]:
    real = replica_session._divergence

    def divergence(partition: Any, log: Any, asked: Any) -> Any:
        follower = partition._progress.followers.get(2)
        for follower in partition._progress.followers.values():
            if follower.pulse.fetched_ms and follower.log_end < asked.fetch_offset:
                partition._progress.on_follower_fetch(follower, asked.fetch_offset, 0)
        return real(partition, log, asked)

    return [(replica_session, "_divergence", divergence)]


def _answers_before_it_is_committed() -> list[Patch]:
    return [(api_00_produce._Work, "_wait_if_needed", lambda work, *rest: None)]


def _who_waits_is_kept_when_another_leads() -> list[Patch]:
    return [(Partition, "_release_waiters", lambda partition: None)]


def _who_stepped_down_stays_down() -> list[Patch]:
    """Until a newer state comes, which may be never."""
    return [(Partition, "resume", lambda partition, now_ms: None)]


def _who_resumes_forgets_what_it_proposed() -> list[Patch]:
    real = Partition.resume

    def resume(partition: Any, now_ms: int) -> Any:
        progress, tracker = partition._resting
        progress._proposed = frozenset()
        progress._settle()
        tracker._under_way = None
        return real(partition, now_ms)

    return [
        (Partition, "resume", resume),
        (LeaderProgress, "on_awaited", lambda progress, members: None),
    ]


# -- followers ----------------------------------------------------------------------------------


def _cut_to_the_watermark() -> list[Patch]:
    real = FollowerFetch.add

    def add(fetch: Any, partition: Any) -> None:
        if partition.log is not None:
            partition.log.truncate_to(partition.high_watermark)
        real(fetch, partition)

    return [(FollowerFetch, "add", add)]


def _logs_are_not_compared() -> list[Patch]:
    return [(replica_session, "_divergence", lambda partition, log, asked: None)]


def _only_ends_are_compared() -> list[Patch]:
    def divergence(partition: Any, log: Any, asked: Any) -> Any:
        if asked.fetch_offset > log.log_end_offset:
            return partition.leader_epoch, log.log_end_offset
        return None

    return [(replica_session, "_divergence", divergence)]


def _cut_without_a_look_at_the_own_epochs() -> list[Patch]:
    def cut(partition: Any, log: Any, epoch: int, end_offset: int) -> bool:
        before = log.recovery_point
        log.truncate_to(min(log.log_end_offset, end_offset))
        partition.high_watermark = min(partition.high_watermark, log.log_end_offset)
        return bool(log.recovery_point != before)

    return [(follower_fetch, "cut_to_common", cut)]


def _unmatched_answers_are_taken() -> list[Patch]:
    def take(fetch: Any, followed: Any, one: Any, now_ms: int, effects: Any) -> None:
        partition, log = followed.partition, followed.partition.log
        if log is None:
            return
        if one.error_code == 0 and one.diverging is None:
            fetch._follow(followed, log, one, now_ms, effects)
        elif one.error_code == 0:
            log.truncate_to(min(log.log_end_offset, one.diverging[1]))
            partition.high_watermark = min(partition.high_watermark, log.log_end_offset)
            fetch._changed[followed] = None
        else:
            fetch._delay(followed, one.error_code, now_ms, effects)

    return [(FollowerFetch, "_take", take)]


def _an_answer_tells_of_the_next_request() -> list[Patch]:
    real = replica_fetch._ParkedFetch.__init__

    def init(parked: Any, context: Any, request: Any, session: Any) -> None:
        real(parked, context, request, session)
        session.answer_waiting = parked._on_news

    return [(replica_fetch._ParkedFetch, "__init__", init)]


# -- elections and states -----------------------------------------------------------------------


def _anybody_is_elected() -> list[Patch]:
    return [
        (TopicSettings, "is_unclean_allowed", lambda settings, topic: True),
        (PartitionChange, "_unclean_epoch", lambda change, *rest: change.state.unclean_epoch),
    ]


def _elections_do_not_rest_on_the_controller() -> list[Patch]:
    def decided(image: Any, writes: Any, response: Any) -> Any:
        return Decision(list(writes), response)

    return [(duties, "decided", decided), (decision, "decided", decided)]


def _another_leader_in_the_same_epoch() -> list[Patch]:
    real = PartitionChange.built

    def built(change: Any) -> Any:
        state = real(change)
        object.__setattr__(state, "leader_epoch", change.state.leader_epoch)
        return state

    return [(PartitionChange, "built", built)]


def _who_leaves_a_large_set_is_eligible() -> list[Patch]:
    real = PartitionChange._eligible

    def eligible(change: Any, known: Any, members: Any) -> Any:
        with patch.object(PartitionChange, "_is_enough", lambda change, members: False):
            return real(change, known, members)

    return [(PartitionChange, "_eligible", eligible)]


def _any_life_may_join() -> list[Patch]:
    real = PartitionWrites.check

    def check(writes: Any, path: str) -> None:
        if not path.startswith("/brokers/"):
            real(writes, path)

    return [
        (in_sync, "_may_join", lambda image, broker, epoch: True),
        (InSyncKeeper, "may_be_member", lambda keeper, broker, epoch: True),
        (PartitionWrites, "check", check),
    ]


def _who_starts_is_not_fenced() -> list[Patch]:
    real = nodes.broker_content

    def content(*arguments: Any, **flags: Any) -> bytes:
        return real(*arguments, **{**flags, "fenced": False})

    return [(nodes, "broker_content", content)]


def _a_loss_of_power_is_not_told() -> list[Patch]:
    real = nodes.broker_content

    def content(*arguments: Any, **flags: Any) -> bytes:
        return real(*arguments, **{**flags, "unclean": False})

    return [(nodes, "broker_content", content)]


def _who_has_no_disk_is_elected() -> list[Patch]:
    return [(MetadataImage, "lost_by", lambda image, topic, index: frozenset())]


def _an_election_that_was_lost_is_forgotten() -> list[Patch]:
    real = Duties.next

    def next_of(machine: Any, settings: Any) -> Any:
        decided = real(machine, settings)
        machine._topics.clear()
        return decided

    return [(Duties, "next", next_of)]


# -- disks and lives ----------------------------------------------------------------------------


def _a_life_leads_what_the_last_one_led() -> list[Patch]:
    real = LocalReplicas._assume_role

    def assume(replicas: Any, partition: Any, state: Any) -> None:
        replicas._led_before = {}
        real(replicas, partition, state)

    return [(LocalReplicas, "_assume_role", assume)]


def _a_topic_is_known_by_its_name() -> list[Patch]:
    def is_ours(replicas: Any, image: Any, found: Any, log_dir: Any) -> bool:
        return found.topic in image.topics

    return [(LocalReplicas, "_is_ours", is_ours)]


def _what_was_told_is_taken_for_known() -> list[Patch]:
    real = pack_joining

    def pack(place: Any, high_watermark: int) -> bytes:
        return real(place, NO_HIGH_WATERMARK)

    return [(follower_fetch, "pack_joining", pack)]


def _what_is_not_synced_is_committed() -> list[Patch]:
    return [(partition, "counted_end", lambda log: log.log_end_offset)]


def _all_ask_in_the_life_of_the_newest() -> list[Patch]:
    def on_registered(fetchers: Any) -> None:
        asking = list(fetchers._fetchers.values())
        epoch = fetchers._broker_epoch()
        if all(one.fetch.broker_epoch != epoch for one in asking):
            for one in asking:
                one.start_over(fetchers._new_fetch())

    return [(ReplicaFetchers, "on_registered", on_registered)]


def _a_flush_does_nothing() -> list[Patch]:
    return [(Flusher, "flush", lambda flusher, log: _done())]


def _a_restart_cuts_to_the_watermark() -> list[Patch]:
    real = LocalReplicas._take_checkpoints

    def take(replicas: Any, partition: Any, held: Any, log_dir: Any) -> None:
        real(replicas, partition, held, log_dir)
        held.truncate_to(partition.high_watermark)

    return [(LocalReplicas, "_take_checkpoints", take)]


def _every_sequence_is_taken() -> list[Patch]:
    return [(PartitionLog, "_seen_before", lambda log, header, from_client: None)]


MUTANTS: dict[str, Callable[[], list[Patch]]] = {
    one.__name__.removeprefix("_"): one
    for one in (
        _only_the_committed_set_counts,
        _join_before_the_start_of_the_epoch,
        _a_refused_set_is_forgotten,
        _the_watermark_moves_with_too_few,
        _a_follower_is_believed_before_it_is_compared,
        _answers_before_it_is_committed,
        _who_waits_is_kept_when_another_leads,
        _who_stepped_down_stays_down,
        _who_resumes_forgets_what_it_proposed,
        _cut_to_the_watermark,
        _logs_are_not_compared,
        _only_ends_are_compared,
        _cut_without_a_look_at_the_own_epochs,
        _unmatched_answers_are_taken,
        _an_answer_tells_of_the_next_request,
        _anybody_is_elected,
        _elections_do_not_rest_on_the_controller,
        _another_leader_in_the_same_epoch,
        _who_leaves_a_large_set_is_eligible,
        _any_life_may_join,
        _who_starts_is_not_fenced,
        _a_loss_of_power_is_not_told,
        _who_has_no_disk_is_elected,
        _an_election_that_was_lost_is_forgotten,
        _a_life_leads_what_the_last_one_led,
        _a_topic_is_known_by_its_name,
        _all_ask_in_the_life_of_the_newest,
        _what_is_not_synced_is_committed,
        _what_was_told_is_taken_for_known,
        _a_flush_does_nothing,
        _a_restart_cuts_to_the_watermark,
        _every_sequence_is_taken,
    )
}


STORIES = {
    "a_refused_set_is_forgotten": (
        "tests/unit/replication/test_in_sync_tracker.py"
        "::test_a_refused_member_is_counted_until_a_newer_state"
    ),
    "unmatched_answers_are_taken": (
        "tests/unit/replication/test_follower_fetch.py"
        "::test_an_answer_of_the_epoch_before_changes_nothing"
    ),
    "cut_without_a_look_at_the_own_epochs": (
        "tests/unit/replication/test_follower_fetch.py"
        "::test_an_order_to_lose_what_is_committed_stops_the_replica"
    ),
    "who_waits_is_kept_when_another_leads": (
        "tests/unit/replication/test_partition.py::test_who_waits_is_told_when_the_role_changes"
    ),
    "who_resumes_forgets_what_it_proposed": (
        "tests/unit/replication/test_partition.py"
        "::test_who_leads_on_counts_whom_it_had_proposed_until_a_newer_state"
    ),
    "an_answer_tells_of_the_next_request": (
        "tests/unit/handlers/test_replica_fetch.py"
        "::test_an_answer_tells_nothing_of_what_only_the_next_request_names"
    ),
    "all_ask_in_the_life_of_the_newest": (
        "tests/unit/runtime/test_replica_fetcher.py"
        "::test_each_leader_hears_of_another_life_whoever_was_followed_since_it_began"
    ),
    "what_is_not_synced_is_committed": (
        "tests/unit/replication/test_partition.py"
        "::test_what_has_to_be_synced_first_is_not_committed_before"
    ),
    "what_was_told_is_taken_for_known": (
        "tests/unit/replication/test_follower_fetch.py"
        "::test_who_comes_into_the_session_says_up_to_where_it_knows_what_is_committed"
    ),
    "an_election_that_was_lost_is_forgotten": (
        "tests/unit/metadata/test_duties.py"
        "::test_an_election_that_could_not_be_written_is_decided_again"
    ),
}
"""Bugs that hardly a seed shows, because another rule stands behind the broken one or the order of
events that it takes is rare: each has a test that tells its story, and fails."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    with ExitStack() as stack:
        for where, attribute, bug in MUTANTS[name]():
            stack.enter_context(patch.object(where, attribute, bug))
        yield
