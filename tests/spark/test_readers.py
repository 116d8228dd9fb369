"""The source's readers on a real broker, called as Spark calls them, without Spark.

Here is what depends on the broker: partitions that appear, topics that are created again, records
that are deleted, transactions. That Spark itself calls them so is `test_source`'s business.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from typing import Any

import confluent_kafka as ck
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ottla.base.errors import OttlaError
from ottla.client import Admin
from ottla.spark.client_sink import ClientSinkCluster
from ottla.spark.errors import DataLoss, OptionError, ReadStalled
from ottla.spark.sink_options import parse_sink_options
from ottla.spark.source import batch_reader, schema_of
from ottla.testing import Broker
from tests.spark.batches import COLUMNS, through_text, values_between
from tests.spark.topics import Topics

# Of a busy machine; a request may take 30 seconds, and that for each range.
NOTICED_SECONDS_MAX = 10


def test_batches_follow_each_other_without_gap_or_overlap(stream: Any, topics: Topics) -> None:
    topic = topics.create("in")
    topics.fill("in", range(1000))
    reader = stream(subscribe=topic)
    start = reader.initialOffset()
    found, steps = [], 0
    while (end := reader.latestOffset(start, ReadMaxRows(300))) != start:
        values = values_between(reader, start, through_text(end))
        assert len(values) <= 300
        found += values
        start = through_text(end)
        steps += 1
    assert sorted(found) == list(range(1000))
    assert steps == 4
    assert reader.reportLatestOffset() == end


def test_new_partitions_and_topics_are_read_from_their_first_record(
    stream: Any, topics: Topics
) -> None:
    topics.create("in-1", 1)
    topics.fill("in-1", range(10), partitions=1)
    pattern = topics("in-1")[:-1] + r"\d"
    reader = stream(subscribePattern=pattern)
    start = reader.initialOffset()
    end = through_text(reader.latestOffset(start, ReadAllAvailable()))
    topics.grow("in-1", 2)
    topics.create("in-2", 1)
    topics.fill("in-1", range(10, 20))
    topics.fill("in-2", range(20, 30), partitions=1)
    later = through_text(reader.latestOffset(end, ReadAllAvailable()))
    assert values_between(reader, end, later) == list(range(10, 30))
    assert reader.latestOffset(later, ReadAllAvailable()) == later
    # Another life of the driver knows where the new ones began from the checkpoint alone.
    assert values_between(stream(subscribePattern=pattern), end, later) == list(range(10, 30))


def test_available_now_ends_where_the_log_ended_when_it_began(stream: Any, topics: Topics) -> None:
    topic = topics.create("in")
    topics.fill("in", range(100))
    reader = stream(subscribe=topic)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    topics.grow("in", 3)
    topics.fill("in", range(100, 200), partitions=3)
    found = []
    while (end := reader.latestOffset(start, ReadMaxRows(30))) != start:
        values = values_between(reader, start, end)
        assert len(values) <= 30
        found += values
        start = end
    assert sorted(found) == list(range(100))
    after = stream(subscribe=topic)
    assert values_between(after, start, after.latestOffset(start, ReadAllAvailable())) == list(
        range(100, 200)
    )


def test_a_topic_created_again_is_an_error_that_says_so(stream: Any, topics: Topics) -> None:
    topic = topics.create("in")
    topics.fill("in", range(10))
    reader = stream(subscribe=topic)
    start = reader.initialOffset()
    end = through_text(reader.latestOffset(start, ReadAllAvailable()))
    topics.delete("in")
    topics.create("in")
    topics.fill("in", range(100, 120))
    # Planned before, read after.
    with pytest.raises(DataLoss, match=f"topic {topic} was deleted and created again"):
        values_between(reader, start, end)
    with pytest.raises(DataLoss, match=f"topic {topic} was deleted and created again"):
        reader.latestOffset(end, ReadAllAvailable())
    lenient = stream(subscribe=topic, failOnDataLoss="false")
    # The batch that Spark repeats reads nothing, and the next one is of the new topic.
    assert values_between(lenient, start, end) == []
    later = lenient.latestOffset(end, ReadAllAvailable())
    assert values_between(lenient, end, later) == list(range(100, 120))


def test_a_topic_deleted_while_it_is_read_is_called_that(
    stream: Any, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create("in")
    topics.fill("in", range(10))
    reader = stream(subscribe=topic)
    start = reader.initialOffset()
    end = through_text(reader.latestOffset(start, ReadAllAvailable()))
    # One has read of it and knows where it was, the other comes too late; each reads two ranges.
    small = {"kafka.fetch.max.bytes": "1", "kafka.max.poll.records": "1"}
    for_all = [stream(subscribe=topic, failOnDataLoss="false", **more) for more in ({}, small)]
    begun = for_all[1].read(reader.partitions(start, end)[0])
    assert next(begun).column("value").to_pylist() == [b"0"]
    topics.delete("in")
    began = time.monotonic()
    what = (
        rf"topic {topic} was deleted while it was read: {topic}-0 from 0 to 5 is lost from offset"
    )
    with pytest.raises(DataLoss, match=what + r" 0 on\. Start again with a new checkpointLocation"):
        values_between(reader, start, end)
    for lenient in for_all:
        caplog.clear()
        assert values_between(lenient, start, end) == []
        assert re.search(what + " 0 on; going on, as failOnDataLoss=false says", caplog.text)
    list(begun)
    assert time.monotonic() - began < NOTICED_SECONDS_MAX
    # Less time than it takes to be sure.
    impatient = stream(subscribe=topic, **{"kafkaConsumer.pollTimeoutMs": "150"})
    with pytest.raises((DataLoss, ReadStalled), match=topic):
        values_between(impatient, start, end)


# Longer than any test: what the reader knows of topics is as old as it may be.
OLD_LIST = {"partition.metadata.cache.ttl.ms": "600000"}


def test_a_topic_deleted_between_two_batches_is_named(stream: Any, topics: Topics) -> None:
    topic = topics.create("in")
    topics.fill("in", range(10))
    other = topics.create("in2")
    strict = stream(subscribe=topic, **OLD_LIST)
    end = strict.latestOffset(strict.initialOffset(), ReadAllAvailable())
    lenient = stream(subscribePattern=re.escape(topic) + "2?", failOnDataLoss="false", **OLD_LIST)
    both = lenient.latestOffset(lenient.initialOffset(), ReadAllAvailable())
    topics.delete("in")
    with pytest.raises(DataLoss, match=f"exist no more: {topic}-0, {topic}-1"):
        strict.latestOffset(end, ReadAllAvailable())
    topics.fill("in2", range(100, 120))
    later = lenient.latestOffset(both, ReadAllAvailable())
    assert topic not in later
    assert values_between(lenient, both, later) == list(range(100, 120))
    assert sum(topics.committed(both["$ottla"]["group"], "in2").values()) == 0
    # What it has read of the other is committed, though one of its topics is gone.
    lenient.latestOffset(later, ReadAllAvailable())
    assert topics.committed(both["$ottla"]["group"], "in2") == {0: 10, 1: 10}
    assert later[other] == {"0": 10, "1": 10}


def test_a_topic_created_again_with_fewer_records_is_no_log_that_was_cut(
    stream: Any, topics: Topics
) -> None:
    topic = topics.create("in")
    topics.fill("in", range(10))
    quick = {"fetchOffset.numRetries": "0", **OLD_LIST}
    strict = stream(subscribe=topic, **quick)
    lenient = stream(subscribe=topic, failOnDataLoss="false", **quick)
    end = strict.latestOffset(strict.initialOffset(), ReadAllAvailable())
    same = lenient.latestOffset(lenient.initialOffset(), ReadAllAvailable())
    topics.delete("in")
    topics.create("in")
    topics.fill("in", range(100, 104))
    with pytest.raises(DataLoss, match=f"topic {topic} was deleted and created again"):
        strict.latestOffset(end, ReadAllAvailable())
    later = lenient.latestOffset(same, ReadAllAvailable())
    assert values_between(lenient, same, later) == [100, 101, 102, 103]


def test_deleted_records_are_an_error_with_offsets_and_remedy(stream: Any, topics: Topics) -> None:
    topic = topics.create("in")
    topics.fill("in", range(100))
    reader = stream(subscribe=topic)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    before = [ck.TopicPartition(topic, 1, 20)]
    for done in topics.admin.delete_records(before).values():
        done.result(60)
    with pytest.raises(DataLoss, match=rf"{topic}-1: 20 offsets from 0 on are deleted.*retention"):
        values_between(reader, start, end)
    lenient = stream(subscribe=topic, failOnDataLoss="false")
    assert values_between(lenient, start, end) == sorted(set(range(100)) - set(range(1, 41, 2)))


def test_a_log_that_ends_before_the_query_is_read_on_from_its_end_if_loss_is_no_failure(
    stream: Any, topics: Topics
) -> None:
    topic = topics.create("in", 1)
    topics.fill("in", range(5), partitions=1)
    options = {
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: {"0": 100}}),
        "fetchOffset.numRetries": "0",
    }
    strict = stream(**options)
    with pytest.raises(DataLoss, match=f"{topic}-0 ends at offset 5, .* at 100: .*startingOffsets"):
        strict.latestOffset(strict.initialOffset(), ReadAllAvailable())
    lenient = stream(**options, failOnDataLoss="false")
    start = lenient.initialOffset()
    end = through_text(lenient.latestOffset(start, ReadAllAvailable()))
    assert end[topic] == {"0": 5}
    assert values_between(lenient, start, end) == []
    topics.fill("in", range(5, 8), partitions=1)
    found = lenient.latestOffset(end, ReadAllAvailable())
    assert values_between(lenient, end, found) == [5, 6, 7]


def test_only_committed_records_are_read_and_gaps_are_no_loss(
    stream: Any, topics: Topics, broker: Broker
) -> None:
    topic = topics.create("in", 1)
    sender = ck.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": f"t-{uuid.uuid4()}"}
    )
    sender.init_transactions(60)
    for number in range(6):
        sender.begin_transaction()
        for value in range(number * 10, number * 10 + 10):
            sender.produce(topic, b"%d" % value)
        sender.flush(60)
        (sender.abort_transaction if number % 2 else sender.commit_transaction)(60)
    sender.begin_transaction()
    sender.produce(topic, b"999")
    sender.flush(60)
    committed = [value for value in range(60) if value // 10 % 2 == 0]
    reader = stream(subscribe=topic)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert values_between(reader, start, end) == committed
    everything = stream(subscribe=topic, **{"kafka.isolation.level": "read_uncommitted"})
    end = everything.latestOffset(start, ReadAllAvailable())
    assert values_between(everything, start, end) == [*range(60), 999]
    sender.abort_transaction(60)
    # The last offsets hold nothing but aborted records and markers: read, and found empty.
    last = reader.latestOffset(end, ReadAllAvailable())
    assert values_between(reader, end, last) == []


def test_a_plain_query_commits_where_its_batch_began(stream: Any, topics: Topics) -> None:
    """Over a restart the group is where the last finished batch ended."""
    topic = topics.create("in")
    topics.fill("in", range(100))
    reader = stream(subscribe=topic, groupIdPrefix="lag")
    start = reader.initialOffset()
    group = start["$ottla"]["group"]
    assert group.startswith("lag-")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert topics.committed(group, "in") == {0: 0, 1: 0}
    reader.stop()
    again = stream(subscribe=topic, groupIdPrefix="lag")
    again.latestOffset(through_text(end), ReadAllAvailable())
    assert topics.committed(group, "in") == {0: 50, 1: 50}


def test_a_named_group_is_taken_and_can_be_started_from(stream: Any, topics: Topics) -> None:
    topic = topics.create("in")
    topics.fill("in", range(100))
    group = topics("readers")
    reader = stream(subscribe=topic, **{"kafka.group.id": group})
    start = reader.initialOffset()
    reader.latestOffset(reader.latestOffset(start, ReadMaxRows(60)), ReadAllAvailable())
    assert topics.committed(group, "in") == {0: 30, 1: 30}
    after = stream(subscribe=topic, startingOffsets="group", **{"kafka.group.id": group})
    start = after.initialOffset()
    assert values_between(after, start, after.latestOffset(start, ReadAllAvailable())) == list(
        range(60, 100)
    )


def test_a_reset_to_offsets_is_for_each_source_of_a_pipeline(
    stream: Any, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two", "three"):
        topics.create(name)
        topics.fill(name, range(20))
    offsets = {topics("one"): {"0": 3, "1": 4}, topics("two"): {"0": 5, "1": -1}}
    monkeypatch.setenv("OTTLA_SPARK_STARTING_OFFSETS", json.dumps(offsets))

    def start_of(**options: str) -> Any:
        found = stream(**options).initialOffset()
        return {topic: found[topic] for topic in found if topic != "$ottla"}

    assert start_of(subscribe=topics("one")) == {topics("one"): {"0": 3, "1": 4}}
    assert start_of(subscribe=topics("two")) == {topics("two"): {"0": 5, "1": 10}}
    assert start_of(assign=json.dumps({topics("two"): [0]})) == {topics("two"): {"0": 5}}
    # Of a topic that the reset does not name: as the source's own options say.
    assert start_of(subscribe=topics("three")) == {topics("three"): {"0": 0, "1": 0}}
    with pytest.raises(OptionError, match=r"startingOffsets must name every partition.*three-0"):
        start_of(subscribe=f"{topics('one')},{topics('three')}")


def test_a_preview_begins_with_the_first_record(
    stream: Any, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create("in")
    topics.fill("in", range(100))
    monkeypatch.setenv("OTTLA_SPARK_PREVIEW_ROWS", "10")
    latest = stream(subscribe=topic, startingOffsets="latest")
    middle = stream(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 20, "1": 20}}))
    for reader, expected in ((latest, range(10)), (middle, range(40, 50))):
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert values_between(reader, start, end) == list(expected)


def test_a_preview_leaves_the_group_of_the_query_alone(
    stream: Any, topics: Topics, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create("in")
    topics.fill("in", range(10))
    monkeypatch.setenv("OTTLA_SPARK_PREVIEW_ROWS", "4")
    for options in ({"kafka.group.id": f"previewed-{topic}"}, {"groupIdPrefix": f"own-{topic}"}):
        reader = stream(subscribe=topic, **options)
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        reader.latestOffset(start, ReadAllAvailable())
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert [one for one in admin.list_groups() if topic in one.group_id] == []


def test_a_batch_that_ends_behind_the_last_record_is_refused_at_once(
    topics: Topics, broker: Broker
) -> None:
    topic = topics.create("in", 1)
    topics.fill("in", range(10), partitions=1)
    sender = ck.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": f"t-{uuid.uuid4()}"}
    )
    sender.init_transactions(60)
    sender.begin_transaction()
    sender.produce(topic, b"10")
    sender.flush(60)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    for end, is_there in ((10, True), (11, True), (12, False)):
        options["endingOffsets"] = json.dumps({topic: {"0": end}})
        reader = batch_reader(options, COLUMNS)
        if is_there:  # the eleventh is written and undecided: a task waits for its end
            (task,) = reader.partitions()
            assert task.wanted.end == end
        else:
            with pytest.raises(OptionError, match=f"endingOffsets.*{topic}-0 .* 11.*12"):
                reader.partitions()
    sender.abort_transaction(60)


def test_the_sinks_own_topic_is_in_no_pattern(stream: Any, topics: Topics, broker: Broker) -> None:
    cluster = ClientSinkCluster(
        parse_sink_options({"kafka.bootstrap.servers": broker.bootstrap}, streaming=True)
    )
    assert cluster.decision("any") is None
    cluster.wire.close()
    topic = topics.create("in")
    found = stream(subscribePattern=".*").initialOffset()
    assert topic in found
    assert "__ottla_sinks" not in found


def test_a_batch_reads_between_its_boundaries(topics: Topics, broker: Broker) -> None:
    topic = topics.create("in")
    topics.fill("in", range(100))
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "assign": json.dumps({topic: [1]}),
        "startingOffsets": json.dumps({topic: {"1": 10}}),
        "endingOffsets": json.dumps({topic: {"1": 20}}),
        "columns": "offset,value",
        "minPartitions": "4",
    }
    reader = batch_reader(options, ["offset", "value"])
    tasks = reader.partitions()
    assert len(tasks) == 4
    rows = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    assert rows == [{"offset": n, "value": b"%d" % (2 * n + 1)} for n in range(10, 20)]
    assert schema_of(options) == "offset bigint, value binary"


def test_settings_of_fetches_count_and_boundaries_must_not_cross(
    topics: Topics, broker: Broker
) -> None:
    topic = topics.create("in", 1)
    topics.fill("in", range(100), partitions=1)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "kafka.max.poll.records": "7",
        "kafka.fetch.max.bytes": "200",
        "kafka.fetch.min.bytes": "100",
        "kafka.fetch.max.wait.ms": "100",
    }
    reader = batch_reader(options, COLUMNS)
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    assert [one for batch in batches for one in batch.column("offset").to_pylist()] == list(
        range(100)
    )
    assert max(batch.num_rows for batch in batches) == 7
    options["startingOffsets"] = json.dumps({topic: {"0": 101}})
    with pytest.raises(
        OptionError, match=f"{topic}-0 is to be read from offset 101 on, but up to 100"
    ):
        batch_reader(options, COLUMNS).partitions()


def test_times_that_cross_are_refused_as_offsets_are(topics: Topics, broker: Broker) -> None:
    topic = topics.create("in", 1, retention_ms="-1")
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for moment in (100, 200, 300):
        producer.produce(topic, b"", timestamp=moment)
    assert producer.flush(60) == 0
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "startingOffsetsByTimestamp": json.dumps({topic: {"0": 250}}),
    }
    for name, end in (("endingTimestamp", "150"), ("endingOffsets", json.dumps({topic: {"0": 1}}))):
        with pytest.raises(
            OptionError, match=f"{topic}-0 is to be read from offset 2 on, but up to 1"
        ):
            batch_reader({**options, name: end}, COLUMNS).partitions()


def test_a_record_without_headers_has_null_for_them(topics: Topics, broker: Broker) -> None:
    """As in the stock connector; an empty array would be neither."""
    topic = topics.create("in", 1)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(4):
        producer.produce(topic, b"", headers=[("n", b"%d" % number)] if number % 2 else None)
    assert producer.flush(60) == 0
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "columns": "headers",
    }

    def found() -> list[Any]:
        reader = batch_reader(options, ["headers"])
        read = [batch for task in reader.partitions() for batch in reader.read(task)]
        return [one for batch in read for one in batch.column("headers").to_pylist()]

    first, third = ([{"key": "n", "value": b"%d" % number}] for number in (1, 3))
    assert found() == [None, first, None, third]
    options["startingOffsets"] = json.dumps({topic: {"0": 2}})
    options["endingOffsets"] = json.dumps({topic: {"0": 3}})
    assert found() == [None]


def test_a_batch_from_deleted_records_says_where_the_log_begins(
    topics: Topics, broker: Broker
) -> None:
    topic = topics.create("in", 1)
    topics.fill("in", range(10), partitions=1)
    for done in topics.admin.delete_records([ck.TopicPartition(topic, 0, 4)]).values():
        done.result(60)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: {"0": 1}}),
    }
    with pytest.raises(DataLoss, match=f"{topic}-0 begins at offset 4.*Start at 4 or later"):
        batch_reader(options, COLUMNS).partitions()
    options["endingOffsets"] = json.dumps({topic: {"0": 3}})
    # Nothing of it is left, which is what failOnDataLoss=false is to go on with.
    assert batch_reader({**options, "failOnDataLoss": "false"}, COLUMNS).partitions() == []
    del options["startingOffsets"]
    with pytest.raises(
        DataLoss, match=f"{topic}-0 begins at offset 4.*before 3.*End at 4 or later"
    ):
        batch_reader(options, COLUMNS).partitions()
    assert batch_reader({**options, "failOnDataLoss": "false"}, COLUMNS).partitions() == []
    options["startingOffsets"] = options["endingOffsets"]
    assert batch_reader(options, COLUMNS).partitions() == []


def test_what_is_not_there_is_named(stream: Any, topics: Topics) -> None:
    with pytest.raises(OptionError, match=f"no topic is there for {topics('nothing')}"):
        stream(subscribe=topics("nothing")).initialOffset()
    topic = topics.create("in", 1)
    # One of two is as wrong as both: it would be read as if it were empty.
    with pytest.raises(OptionError, match=f"no topic is there for {topics('nothing')} on"):
        stream(subscribe=f"{topic},{topics('nothing')}").initialOffset()
    with pytest.raises(OptionError, match="no topic is there for the pattern nothing-here"):
        stream(subscribePattern="nothing-here").initialOffset()
    with pytest.raises(OptionError, match="has no partition 7"):
        stream(assign=json.dumps({topic: [7]})).initialOffset()
    with pytest.raises(OptionError, match="is no pattern"):
        stream(subscribePattern="(").initialOffset()


def test_a_broker_that_is_away_ends_in_a_message_not_in_silence(topics: Topics) -> None:
    with Broker() as lost:
        other = Topics(lost.bootstrap, "away")
        topic = other.create("in", 1)
        other.fill("in", range(10), partitions=1)
        options = {
            "kafka.bootstrap.servers": lost.bootstrap,
            "subscribe": topic,
            "kafkaConsumer.pollTimeoutMs": "1500",
        }
        reader = batch_reader(options, COLUMNS)
        (task,) = reader.partitions()
        lost.stop()
        with pytest.raises(ReadStalled, match=rf"{topic}-0 from 0 to 10.*within 1500 ms.*brokers"):
            list(reader.read(task))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscibe": "t"}, "no option 'subscibe'; did you mean subscribe"),
        ({"subscribe": "t", "assign": "{}"}, "exactly one of"),
        ({"subscribe": "t", "maxOffsetsPerTrigger": "some"}, "maxOffsetsPerTrigger: 'some' is not"),
        ({"subscribe": "t", "endingOffsets": "some"}, "endingOffsets: 'some' is not JSON"),
        ({"subscribe": "t", "kafka.acks": "all"}, "no setting acks"),
    ],
)
def test_what_no_query_takes_is_refused_when_spark_asks_for_the_schema(
    options: dict[str, str], says: str
) -> None:
    """In `load`. A stream that is refused later is one that has started and died."""
    with pytest.raises(OttlaError, match=says):
        schema_of(options)


def test_what_some_query_takes_has_a_schema() -> None:
    """Which one it is for, and on which brokers, is known later."""
    for options in ({"startingOffsets": "latest"}, {"endingOffsets": "latest"}, {}):
        assert schema_of({"subscribe": "t", "columns": "key", **options}) == "key binary"


def test_a_schema_of_the_users_own_is_refused(broker: Broker) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t"}
    with pytest.raises(OptionError, match="a schema of its own"):
        batch_reader(options, ["id", "name"])
