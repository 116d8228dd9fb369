"""Topics of the benchmark: made, counted and removed over the wire, without starting a JVM."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from bench.wire import AnswerError, Connection
from ottla.protocol import api_keys
from ottla.protocol.error_codes import NONE, name_of

CREATE_SECONDS_MAX = 300
LATEST = -1
TOPIC, SET = 2, 0
_POLL_S = 0.05


def create_topic(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    """Returns when every partition has a leader."""
    _create(bootstrap, name, partitions, 1, configs)


def create_replicated(bootstrap: str, name: str, partitions: int, replicas: int) -> None:
    _create(bootstrap, name, partitions, replicas, {})


def _create(
    bootstrap: str, name: str, partitions: int, replicas: int, configs: Mapping[str, str]
) -> None:
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }
    fields = {"topics": [topic], "timeout_ms": CREATE_SECONDS_MAX * 1000, "validate_only": False}
    with Connection(bootstrap, CREATE_SECONDS_MAX) as connection:
        answer = connection.call(api_keys.CREATE_TOPICS, 5, fields)
        _expect_none(answer.topics[0].error_code, f"create topic {name}")
        deadline = time.monotonic() + CREATE_SECONDS_MAX
        while not _is_led(connection, name, partitions):
            if time.monotonic() > deadline:
                raise AnswerError(f"topic {name} has no leaders after {CREATE_SECONDS_MAX} s")
            time.sleep(_POLL_S)


def alter_topic(bootstrap: str, name: str, configs: Mapping[str, str]) -> None:
    changes = [
        {"name": key, "config_operation": SET, "value": value} for key, value in configs.items()
    ]
    resource = {"resource_type": TOPIC, "resource_name": name, "configs": changes}
    with Connection(bootstrap) as connection:
        fields = {"resources": [resource], "validate_only": False}
        answer = connection.call(api_keys.INCREMENTAL_ALTER_CONFIGS, 0, fields)
        _expect_none(answer.responses[0].error_code, f"alter topic {name}")


def delete_topics(bootstrap: str, *names: str) -> None:
    with Connection(bootstrap) as connection:
        fields = {"topic_names": list(names), "timeout_ms": 30_000}
        for response in connection.call(api_keys.DELETE_TOPICS, 4, fields).responses:
            _expect_none(response.error_code, f"delete topic {response.name}")


def topic_id(bootstrap: str, name: str) -> Any:
    with Connection(bootstrap) as connection:
        fields = {"topics": [{"topic_id": None, "name": name}], "allow_auto_topic_creation": False}
        return connection.call(api_keys.METADATA, 10, _with_flags(fields)).topics[0].topic_id


def end_offset(bootstrap: str, topic: str, partition: int = 0) -> int:
    """The offset after the last committed record: how many records a new topic has taken."""
    wanted = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": LATEST}
    topics = [{"name": topic, "partitions": [wanted]}]
    with Connection(bootstrap) as connection:
        fields: Mapping[str, Any] = {"replica_id": -1, "isolation_level": 0, "topics": topics}
        found = connection.call(api_keys.LIST_OFFSETS, 4, fields).topics[0].partitions[0]
    _expect_none(found.error_code, f"end of {topic}-{partition}")
    return int(found.offset)


def leaders_of(bootstrap: str, name: str) -> list[int]:
    """By partition; -1 where there is none."""
    return [leader for _, leader, _ in _partitions(bootstrap, name)]


def in_sync_counts(bootstrap: str, name: str) -> list[int]:
    return [count for _, _, count in _partitions(bootstrap, name)]


def _partitions(bootstrap: str, name: str) -> list[tuple[int, int, int]]:
    with Connection(bootstrap) as connection:
        fields = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        topic = connection.call(api_keys.METADATA, 4, fields).topics[0]
    return sorted(
        (one.partition_index, one.leader_id, len(one.isr_nodes)) for one in topic.partitions
    )


def _with_flags(fields: dict[str, Any]) -> dict[str, Any]:
    flags = ("include_cluster_authorized_operations", "include_topic_authorized_operations")
    return fields | dict.fromkeys(flags, False)


def _is_led(connection: Connection, name: str, partitions: int) -> bool:
    fields = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    topic = connection.call(api_keys.METADATA, 4, fields).topics[0]
    leaders = [partition.leader_id for partition in topic.partitions]
    return len(leaders) == partitions and min(leaders) >= 0


def _expect_none(error_code: int, what: str) -> None:
    if error_code != NONE:
        raise AnswerError(f"{what}: {name_of(error_code)}")
