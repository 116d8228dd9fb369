"""Readers of a query that was started again: what Spark asks of them, and what the checkpoint says.

On a real broker, called as Spark calls them, without Spark.
"""

from __future__ import annotations

from typing import Any

import confluent_kafka as ck
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ottla.spark.errors import DataLoss
from tests.spark.batches import through_text, values_between
from tests.spark.topics import Topics


def test_a_restarted_reader_reads_the_same_records(stream: Any, topics: Topics) -> None:
    """Of the batch that Spark repeats; and it asks for nothing before."""
    topic = topics.create("in")
    topics.fill("in", range(100))
    first = stream(subscribe=topic)
    start = first.initialOffset()
    end = through_text(first.latestOffset(start, ReadMaxRows(60)))
    topics.fill("in", range(100, 200))
    again = stream(subscribe=topic)
    assert values_between(again, start, end) == values_between(first, start, end)
    rest = again.latestOffset(end, ReadAllAvailable())
    assert sorted(values_between(again, start, end) + values_between(again, end, rest)) == list(
        range(200)
    )


def test_a_first_batch_that_is_repeated_begins_where_it_began(stream: Any, topics: Topics) -> None:
    """Spark keeps no start of the first batch: it asks for one anew, when records have come, or are
    gone. Taken for the start of the batch, what lies before it would be lost without a word."""
    topic = topics.create("in")
    topics.fill("in", range(10))
    late = stream(subscribe=topic, startingOffsets="latest")
    earliest = stream(subscribe=topic)
    starts = {late: late.initialOffset(), earliest: earliest.initialOffset()}
    topics.fill("in", range(10, 20))
    ends = {
        reader: through_text(reader.latestOffset(start, ReadAllAvailable()))
        for reader, start in starts.items()
    }
    topics.fill("in", range(20, 30))
    again = stream(subscribe=topic, startingOffsets="latest")
    assert values_between(again, again.initialOffset(), ends[late]) == list(range(10, 20))
    delete_before(topics, topic, 7)
    again = stream(subscribe=topic)
    with pytest.raises(DataLoss, match=f"{topic}-0: 7 offsets from 0 on are deleted"):
        values_between(again, again.initialOffset(), ends[earliest])
    # Only where Spark does not know it.
    later = through_text(late.latestOffset(ends[late], ReadAllAvailable()))
    assert "first" not in later["$ottla"]
    assert values_between(late, ends[late], later) == list(range(20, 30))


def delete_before(topics: Topics, topic: str, offset: int) -> None:
    before = [ck.TopicPartition(topic, partition, offset) for partition in (0, 1)]
    for done in topics.admin.delete_records(before).values():
        done.result(60)


def test_group_and_brokers_are_those_of_the_options_whatever_the_checkpoint_has(
    stream: Any, topics: Topics
) -> None:
    """Of its first run a checkpoint has others: the query was given a new name, or the cluster. The
    listener commits what the offsets say, so a wrong address there would hold up all groups."""
    topic = topics.create("in")
    topics.fill("in", range(100))
    first = stream(subscribe=topic, **{"kafka.group.id": topics("one")})
    end = first.latestOffset(first.initialOffset(), ReadMaxRows(60))
    end["$ottla"]["servers"] = "127.0.0.1:1"
    end = through_text(end)
    silent = stream(subscribe=topic, commitOffsets="false")
    quiet = through_text(silent.latestOffset(end, ReadMaxRows(20)))
    assert topics.committed(topics("one"), "in") == {0: 0, 1: 0}
    assert "group" not in quiet["$ottla"]
    named = stream(subscribe=topic, **{"kafka.group.id": topics("two")})
    for before in (end, quiet):
        later = named.latestOffset(before, ReadAllAvailable())
        committed = topics.committed(topics("two"), "in")
        assert {str(number): offset for number, offset in committed.items()} == before[topic]
        assert (later["$ottla"]["group"], later["$ottla"]["servers"]) == (
            topics("two"),
            topics.bootstrap,
        )
    # Nothing is new: no batch for the sake of a name.
    done = through_text(first.latestOffset(end, ReadAllAvailable()))
    assert named.latestOffset(done, ReadAllAvailable()) == done
    made = stream(subscribe=topic, groupIdPrefix="lag")
    groups = {made.latestOffset(quiet, ReadMaxRows(10))["$ottla"]["group"] for _ in range(2)}
    assert len(groups) == 1
    assert groups.pop().startswith("lag-")
