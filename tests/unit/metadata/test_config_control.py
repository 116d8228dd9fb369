"""Goal: settings are kept where they belong, changed whole or not at all, resource by resource.
Method: changes of every kind of resource over a small cluster, and what the store holds after them.
What each refusal is told to a client is in the conversations recorded with Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.metadata import paths
from ottla.metadata.config_control import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    ConfigChange,
    ConfigResult,
    ThisBroker,
    decide_alter_configs,
    decide_incremental_alter_configs,
)
from ottla.metadata.configs.alter import APPEND, DELETE, SET, Operation
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.controller import NewTopic, TopicSelection, decide_delete_topics
from ottla.metadata.store import VersionConflict
from ottla.protocol.error_codes import (
    INVALID_CONFIG,
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from tests.unit.metadata.builders import Cluster

HERE = ThisBroker(1, BrokerConfig({"node.id": "1"}))


def a_cluster() -> Cluster:
    cluster = Cluster()
    cluster.create(NewTopic("t", configs=[("retention.ms", "5")]), NewTopic("u"))
    return cluster


def change(
    cluster: Cluster, *changes: ConfigChange, validate_only: bool = False
) -> list[ConfigResult]:
    return cluster.run(
        lambda image: decide_incremental_alter_configs(
            image, changes, broker=HERE, validate_only=validate_only
        )
    )


def replace(cluster: Cluster, *changes: ConfigChange) -> list[ConfigResult]:
    return cluster.run(lambda image: decide_alter_configs(image, changes, broker=HERE))


def one(kind: int, name: str, *operations: Operation) -> ConfigChange:
    return ConfigChange(kind, name, operations)


def codes(results: Sequence[ConfigResult]) -> list[int]:
    return [result.error_code for result in results]


def test_a_topics_settings() -> None:
    cluster = a_cluster()
    change(
        cluster,
        one(TOPIC, "t", ("cleanup.policy", APPEND, "compact"), ("retention.ms", SET, "7")),
        one(TOPIC, "u", ("retention.ms", SET, "8")),
    )
    assert cluster.image.topics["t"].configs == {
        "cleanup.policy": "delete,compact",
        "retention.ms": "7",
    }
    assert cluster.image.topics["u"].configs == {"retention.ms": "8"}
    change(cluster, one(TOPIC, "u", ("retention.ms", DELETE, None)))
    assert cluster.image.topics["u"].configs == {}
    assert paths.topic_configs("u") not in cluster.store.load().nodes
    assert cluster.same_as_store()


def test_all_of_them_replaced() -> None:
    cluster = a_cluster()
    replace(cluster, one(TOPIC, "t", ("cleanup.policy", SET, "compact")))
    assert cluster.image.topics["t"].configs == {"cleanup.policy": "compact"}
    replace(cluster, one(TOPIC, "t"))
    assert cluster.image.topics["t"].configs == {}


def test_brokers_one_and_all() -> None:
    cluster = a_cluster()
    results = change(
        cluster,
        one(BROKER, "", ("log.retention.ms", SET, "9000")),
        one(BROKER, "1", ("num.io.threads", SET, "9")),
    )
    assert codes(results) == [NONE, NONE]
    assert cluster.image.broker_configs == {
        "": {"log.retention.ms": "9000"},
        "1": {"num.io.threads": "9"},
    }
    replace(cluster, one(BROKER, ""), one(BROKER, "01"))
    assert cluster.image.broker_configs == {}
    assert cluster.same_as_store()


def test_a_brokers_limits_are_those_of_what_it_runs_with() -> None:
    """A pool may only double: from 8 to 16, then to 32."""
    cluster = a_cluster()
    for count, code in (("17", INVALID_REQUEST), ("16", NONE), ("32", NONE), ("65", 42)):
        (result,) = change(cluster, one(BROKER, "1", ("num.io.threads", SET, count)))
        assert result.error_code == code, count


def test_client_metrics_and_groups() -> None:
    cluster = a_cluster()
    change(
        cluster,
        one(CLIENT_METRICS, "a/b", ("interval.ms", SET, "1000")),
        one(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")),
    )
    assert cluster.image.client_metrics_configs == {"a/b": {"interval.ms": "1000"}}
    assert cluster.image.group_configs == {"g": {"consumer.session.timeout.ms": "50000"}}
    assert cluster.same_as_store()


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (one(TOPIC, "t", ("no.such", SET, "1")), INVALID_CONFIG),
        (one(TOPIC, "t", ("retention.ms", SET, "x")), INVALID_CONFIG),
        (one(TOPIC, "t", ("retention.ms", SET, None)), INVALID_REQUEST),
        (one(TOPIC, "t", ("retention.ms", 9, "1")), INVALID_REQUEST),
        (one(TOPIC, "nope", ("retention.ms", SET, "1")), UNKNOWN_TOPIC_OR_PARTITION),
        (one(TOPIC, "a/b", ("retention.ms", SET, "1")), INVALID_TOPIC_EXCEPTION),
        (one(TOPIC, "", ("retention.ms", SET, "1")), INVALID_REQUEST),
        (one(BROKER, "2", ("num.io.threads", SET, "9")), INVALID_REQUEST),
        (one(BROKER, "x", ("num.io.threads", SET, "9")), INVALID_REQUEST),
        (one(BROKER, "1", ("num.partitions", SET, "9")), INVALID_REQUEST),
        (one(CLIENT_METRICS, "", ("interval.ms", SET, "1000")), INVALID_REQUEST),
        (one(CLIENT_METRICS, "c", ("interval.ms", SET, "1")), INVALID_REQUEST),
        (one(GROUP, "", ("consumer.session.timeout.ms", SET, "50000")), INVALID_REQUEST),
        (one(GROUP, "g", ("consumer.session.timeout.ms", SET, "1")), INVALID_CONFIG),
        (one(8, "1", ("root", SET, "INFO")), INVALID_REQUEST),
        (one(99, "x"), INVALID_REQUEST),
    ],
)
def test_a_refusal_spoils_no_other_and_leaves_nothing(refused: ConfigChange, code: int) -> None:
    cluster = a_cluster()
    before = cluster.image
    good = one(TOPIC, "u", ("retention.ms", SET, "44"))
    assert codes(change(cluster, refused)) == [code]
    assert cluster.image is before
    assert codes(change(cluster, refused, good)) == [code, NONE]
    assert cluster.image.topics["u"].configs == {"retention.ms": "44"}
    assert cluster.image.topics["t"] is before.topics["t"]


def test_a_resource_named_twice_is_refused_twice() -> None:
    cluster = a_cluster()
    results = change(
        cluster,
        one(TOPIC, "t", ("retention.ms", SET, "1")),
        one(TOPIC, "u", ("retention.ms", SET, "2")),
        one(TOPIC, "t", ("cleanup.policy", SET, "compact")),
        one(BROKER, "t"),
    )
    assert codes(results) == [INVALID_REQUEST, NONE, INVALID_REQUEST, INVALID_REQUEST]
    assert cluster.image.topics["t"].configs == {"retention.ms": "5"}


def test_validate_only_and_no_change_write_nothing() -> None:
    cluster = a_cluster()
    before = cluster.image
    valid = one(TOPIC, "t", ("retention.ms", SET, "6"))
    assert codes(change(cluster, valid, validate_only=True)) == [NONE]
    assert codes(change(cluster, one(TOPIC, "t", ("retention.ms", SET, "5")))) == [NONE]
    assert codes(change(cluster, one(TOPIC, "u"))) == [NONE]
    assert cluster.image is before


def test_settings_do_not_outlive_a_topic_deleted_meanwhile() -> None:
    cluster = a_cluster()
    late = decide_incremental_alter_configs(
        cluster.image, [one(TOPIC, "u", ("retention.ms", SET, "1"))], broker=HERE
    )
    cluster.run(lambda image: decide_delete_topics(image, [TopicSelection("u")]))
    with pytest.raises(VersionConflict):
        cluster.store.commit(late.writes)
    assert cluster.same_as_store()


def test_two_changes_of_one_resource_do_not_overwrite_each_other() -> None:
    cluster = a_cluster()
    operation = one(BROKER, "", ("log.retention.ms", SET, "1000"))
    first = decide_incremental_alter_configs(cluster.image, [operation], broker=HERE)
    second = decide_incremental_alter_configs(
        cluster.image, [one(BROKER, "", ("num.io.threads", SET, "9"))], broker=HERE
    )
    cluster.store.commit(first.writes)
    with pytest.raises(VersionConflict):
        cluster.store.commit(second.writes)
