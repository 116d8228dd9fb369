"""What the next batch reads, and what is said when records are gone."""

from __future__ import annotations

import logging

import pytest

from ottla.spark.cluster_view import TopicFacts
from ottla.spark.errors import DataLoss
from ottla.spark.offsets import Position
from ottla.spark.source_options import Subscription
from ottla.spark.stream_plan import (
    Losses,
    after_cut,
    backlog,
    check_new_partitions,
    next_position,
    receded,
    without_lost_topics,
)

TOPICS = {"t": TopicFacts("id", (0, 1))}
HERE = Position({("t", 0): 5, ("t", 1): 7}, {"t": "id"}, {}, "group", "query", "servers")
T = Subscription(topics=("t",))
STRICT, LENIENT = Losses(fail=True), Losses(fail=False)


def test_a_batch_goes_to_the_ends_or_to_the_limit() -> None:
    ends = {("t", 0): 25, ("t", 1): 87}
    assert next_position(HERE, TOPICS, {}, ends, None).next_offsets == ends
    limited = next_position(HERE, TOPICS, {}, ends, 10)
    assert limited.next_offsets == {("t", 0): 7, ("t", 1): 15}
    assert (limited.group_id, limited.query, limited.servers) == ("group", "query", "servers")
    assert backlog(HERE, {}, ends) == 100


def test_a_partition_is_never_moved_back() -> None:
    ends = {("t", 0): 3, ("t", 1): 9}
    assert next_position(HERE, TOPICS, {}, ends, None).next_offsets == {("t", 0): 5, ("t", 1): 9}
    assert receded(HERE, ends) == {("t", 0): 3}
    with pytest.raises(DataLoss, match="t-0 ends at offset 3, but this query is at 5"):
        after_cut(HERE, receded(HERE, ends), STRICT)
    # What comes after the cut is new, and was never read.
    assert after_cut(HERE, receded(HERE, ends), LENIENT).next_offsets == {("t", 0): 3, ("t", 1): 7}
    assert after_cut(HERE, {}, LENIENT) is HERE


def test_a_new_partition_is_read_from_its_first_record() -> None:
    ends = {("t", 0): 5, ("t", 1): 7, ("t", 2): 4}
    found = next_position(HERE, TOPICS, {("t", 2): 0}, ends, None)
    assert found.next_offsets[("t", 2)] == 4
    assert found.first_offsets == {("t", 2): 0}


def test_a_new_partition_that_has_lost_records_is_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    check_new_partitions({("t", 2): 0}, STRICT)
    with pytest.raises(DataLoss, match=r"t-2 .* begins at offset 9.*new checkpointLocation"):
        check_new_partitions({("t", 2): 9}, STRICT)
    with caplog.at_level(logging.WARNING):
        check_new_partitions({("t", 2): 9}, LENIENT)
    assert "t-2" in caplog.text


def test_nothing_lost_changes_nothing() -> None:
    assert without_lost_topics(HERE, TOPICS, STRICT, T) is HERE


def test_a_topic_that_was_created_again_is_a_loss() -> None:
    again = {"t": TopicFacts("other", (0,))}
    with pytest.raises(DataLoss, match="exist no more: t-1"):
        without_lost_topics(HERE, again, STRICT, T)
    whole = {"t": TopicFacts("other", (0, 1))}
    with pytest.raises(
        DataLoss, match=r"topic t was deleted and created again.*id, now other.*\{0: 5, 1: 7\}"
    ):
        without_lost_topics(HERE, whole, STRICT, T)
    left = without_lost_topics(HERE, whole, LENIENT, T)
    assert left.next_offsets == {}
    assert left.group_id == "group"


def test_a_topic_that_is_gone_is_a_loss() -> None:
    says = r"exist no more: t-0, t-1; it had read up to \{'t-0': 5, 't-1': 7\}.*checkpointLocation"
    with pytest.raises(DataLoss, match=says):
        without_lost_topics(HERE, {"u": TopicFacts("id", (0,))}, STRICT, T)


@pytest.mark.parametrize(
    ("subscription", "says"),
    [
        (Subscription(topics=("u",)), "read t-0, t-1, and this one subscribes to u"),
        (Subscription(pattern="u.*"), "read t-0, t-1, and this one subscribes to the pattern u"),
        (
            Subscription(partitions={"t": (0,), "u": (0,)}),
            "read t-1, and this one subscribes to t-0, u-0",
        ),
    ],
)
def test_a_checkpoint_of_another_query_is_called_that(
    subscription: Subscription, says: str
) -> None:
    topics = {"u": TopicFacts("id", (0,)), "t": TopicFacts("id", (0,))}
    if not subscription.partitions:
        del topics["t"]
    with pytest.raises(DataLoss, match=f"{says}.*checkpointLocation of its own"):
        without_lost_topics(HERE, topics, STRICT, subscription)
    left = without_lost_topics(HERE, topics, LENIENT, subscription).next_offsets
    assert left == ({("t", 0): 5} if subscription.partitions else {})


def test_the_stock_connectors_checkpoint_has_no_ids_to_compare() -> None:
    stock = Position({("t", 0): 5, ("t", 1): 7}, {})
    assert without_lost_topics(stock, TOPICS, STRICT, T) is stock
