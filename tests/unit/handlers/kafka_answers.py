"""Recorded conversations with Apache Kafka 4.3.1, and how to hold one with our handlers.

Each line of `kafka_answers/*.jsonl` is a request and what Kafka answered, in the order in which
they were sent to one fresh cluster. `$id:NAME` stands for the id of topic NAME. The settings that a
new topic got are kept short: how many there are, and those that are no default. Documentation of
settings is not kept.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from ottla.handlers import (
    api_19_create_topics,
    api_20_delete_topics,
    api_32_describe_configs,
    api_33_alter_configs,
    api_37_create_partitions,
    api_43_elect_leaders,
    api_44_incremental_alter_configs,
    api_45_alter_partition_reassignments,
    api_46_list_partition_reassignments,
    api_57_update_features,
    api_74_list_config_resources,
)
from tests.unit.handlers.fakes import FakeServices, ask

NO_ID = uuid.UUID(int=0)
DEFAULT_SOURCE = 5
MODULES: dict[int, ModuleType] = {
    module.API_KEY: module
    for module in (
        api_19_create_topics,
        api_20_delete_topics,
        api_32_describe_configs,
        api_33_alter_configs,
        api_37_create_partitions,
        api_43_elect_leaders,
        api_44_incremental_alter_configs,
        api_45_alter_partition_reassignments,
        api_46_list_partition_reassignments,
        api_57_update_features,
        api_74_list_config_resources,
    )
}

# Lists whose order says nothing: Kafka's is that of a hash table.
SORT_KEYS = ("name", "topic", "resource_name", "resource_type", "feature")
ORDER_MATTERS = ("synonyms", "replicas", "adding_replicas", "removing_replicas")


def recorded(name: str) -> list[dict[str, Any]]:
    path = Path(__file__).parent / "kafka_answers" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def reply(services: FakeServices, entry: Mapping[str, Any]) -> dict[str, Any]:
    """What our handler answers, written as the recorded answers are."""
    ids = {name: topic.topic_id for name, topic in services.image.topics.items()}
    request = _with_ids(entry["request"], ids)
    answer = ask(services, MODULES[entry["api_key"]], entry["version"], **request)
    if entry["api_key"] == 19:
        ids |= {topic["name"]: topic["topic_id"] for topic in answer["topics"]}
        _shorten_configs(answer, entry["response"])
    names = {str(topic_id): f"$id:{name}" for name, topic_id in ids.items()}
    return cast(dict[str, Any], _shortened(answer, names))


def compared(ours: Any, kafkas: Any) -> tuple[Any, Any]:
    """Both in one order; of ours only what the recorded one has: the rest is of other versions."""
    kafkas = _ordered(kafkas)
    return _reduced(_ordered(ours), kafkas), kafkas


def _reduced(ours: Any, kafkas: Any) -> Any:
    if isinstance(kafkas, dict):
        return {key: _reduced(ours[key], value) for key, value in kafkas.items()}
    if isinstance(kafkas, list) and len(ours) == len(kafkas):
        return [_reduced(own, theirs) for own, theirs in zip(ours, kafkas, strict=True)]
    return ours


def _ordered(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _ordered(item, name) for name, item in value.items()}
    if not isinstance(value, list) or key in ORDER_MATTERS:
        return value
    return sorted((_ordered(item) for item in value), key=_sort_key)


def _sort_key(item: Any) -> str:
    return str([item.get(key) for key in SORT_KEYS] if isinstance(item, dict) else "")


def _shorten_configs(answer: dict[str, Any], kafkas: dict[str, Any]) -> None:
    full = {
        topic["name"]
        for topic in kafkas["topics"]
        if len(topic.get("configs", {}).get("set", ())) == topic.get("configs", {}).get("count")
    }
    for topic in answer["topics"]:
        configs = topic["configs"]
        if configs is None:
            continue
        assert not any(config["read_only"] or config["is_sensitive"] for config in configs)
        topic["configs"] = {
            "count": len(configs),
            "set": {
                config["name"]: [config["value"], config["config_source"]]
                for config in configs
                if topic["name"] in full or config["config_source"] != DEFAULT_SOURCE
            },
        }


def _with_ids(value: Any, ids: Mapping[str, uuid.UUID]) -> Any:
    if isinstance(value, dict):
        return {
            key: _topic_id(item, ids) if key == "topic_id" else _with_ids(item, ids)
            for key, item in value.items()
        }
    return [_with_ids(item, ids) for item in value] if isinstance(value, list) else value


def _topic_id(text: str, ids: Mapping[str, uuid.UUID]) -> uuid.UUID:
    return ids[text[4:]] if text.startswith("$id:") else uuid.UUID(text)


def _shortened(value: Any, names: Mapping[str, str]) -> Any:
    """Ids by the names of their topics, documentation by dots."""
    if isinstance(value, list):
        return [_shortened(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    short = {key: _shortened(item, names) for key, item in value.items()}
    if "topic_id" in short:
        topic_id = short["topic_id"]
        short["topic_id"] = None if topic_id == str(NO_ID) else names.get(topic_id, topic_id)
    if short.get("documentation"):
        short["documentation"] = "..."
    return short
