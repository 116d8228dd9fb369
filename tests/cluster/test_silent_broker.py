"""Goal: what is known is shown while a broker is away; that is when people look.
Method: a cluster of `ottla.testing` with a leader that is paused; the view that the commands show.
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

ORDERS = "orders"


def test_offsets_of_a_silent_leader_are_unknown_and_those_of_others_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Cluster(brokers=3) as cluster:
        connection = Connection(cluster.bootstrap, {})
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
