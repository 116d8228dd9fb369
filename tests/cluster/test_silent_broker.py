"""Goal: what is known is shown while a broker is away; that is when people look.
Method: a cluster of `ottla.testing` with a leader that is paused, or that is new and knows no
watermark yet; the view that the commands show.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.cli.connection import Connection
from ottla.cli.group_view import latest_offsets
from ottla.cli.model import NewTopic
from ottla.cli.topic_view import describe_topics
from ottla.testing import Cluster
from tests.cluster.raw import end_of_log, until_told
from tests.cluster.waiting import until
from tests.patience import SECONDS_MAX

ORDERS = "orders"


def test_offsets_of_a_silent_leader_are_unknown_and_those_of_others_shown(
    capsys: pytest.CaptureFixture[str], lasting_sessions: dict[str, object]
) -> None:
    # Commands wait for the silent one, and it must be the leader for as long as they do.
    with Cluster(3, lasting_sessions) as cluster:
        connection = Connection(cluster.bootstrap, {}, SECONDS_MAX)
        connection.create_topic(NewTopic(ORDERS, 3, 3, None, {}))
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for partition in range(3):
            producer.produce(ORDERS, b"3 cups", partition=partition)
        assert producer.flush(60) == 0
        del producer  # it would complain of the end on stderr, where the commands speak
        connection.close()
        silent = cluster.leader(ORDERS, 0)
        # The one that it is connected to, whom it asks first about anything.
        connection = Connection(f"127.0.0.1:{cluster.port(silent)}", {})
        cluster.pause(silent)

        (topic,) = describe_topics(connection, [ORDERS])
        seen: list[dict[str, Any]] = topic["partitions"]
        assert {one["leader"] for one in seen} == set(cluster.broker_ids)
        for one in seen:
            assert one["high_watermark"] == (None if one["leader"] == silent else 1)
        living = {(ORDERS, one["partition"]): 1 for one in seen if one["leader"] != silent}
        assert latest_offsets(connection, [(ORDERS, partition) for partition in range(3)]) == living
        assert capsys.readouterr().err.splitlines() == [
            f"broker {silent} at 127.0.0.1:{cluster.port(silent)} does not answer:"
            " what it leads is not known in full"
        ]
        connection.close()


def test_a_new_leader_that_knows_no_watermark_yet_hides_nothing_else(
    lasting_sessions: dict[str, object],
) -> None:
    # Who is cut off stays in sync: without it the new leader would know its watermark.
    with Cluster(3, lasting_sessions) as cluster:
        connection = Connection(cluster.bootstrap, {}, SECONDS_MAX)
        connection.create_topic(NewTopic(ORDERS, 3, 3, None, {}))
        until_told(cluster, ORDERS)
        connection.refresh()
        (place,) = connection.places([ORDERS])
        first, second, cut_off = place.partitions[0].replicas
        cluster.cut(first, cut_off)
        cluster.cut(second, cut_off)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "1", "log_level": 0})
        producer.produce(ORDERS, b"3 cups", partition=0)
        assert producer.flush(60) == 0
        until(lambda: end_of_log(cluster, second, ORDERS) == 1, "it is copied, and not committed")
        cluster.kill(first)
        until(lambda: cluster.leader(ORDERS) == second, "another one leads")
        connection.refresh()

        (topic,) = describe_topics(connection, [ORDERS])
        seen: list[dict[str, Any]] = topic["partitions"]
        assert [one["high_watermark"] for one in seen] == [None, 0, 0]
        assert seen[0]["leader_epoch"] == 1
        cluster.kill(second)
        cluster.kill(cut_off)
        cluster.start(first)
        until(lambda: cluster.leader(ORDERS) == -1, "nobody leads")
        connection.refresh()

        (topic,) = describe_topics(connection, [ORDERS])
        assert topic["partitions"][0]["leader"] is None
        assert topic["partitions"][0]["leader_epoch"] >= 1
        connection.close()
