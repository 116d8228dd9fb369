"""Goal: a new cluster gets an id once; a store that is empty or another's is never taken for it.
Method: the five cases that there are.
"""

from __future__ import annotations

import pytest

from ottla.metadata import nodes, paths
from ottla.metadata.bootstrap import (
    decide_cluster_id,
    decide_shared_settings,
    ignored_setting,
)
from ottla.metadata.changes import image_from_snapshot
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.features import FINALIZED
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Node, StoreRefused

STORED = Node(nodes.cluster_id("ours"), 0, 1)


def test_everything_new() -> None:
    store = MemoryStore()
    store.commit(decide_cluster_id(None, None, "fresh"))
    image = image_from_snapshot(store.load())
    assert image.cluster_id == "fresh"
    assert image.features == FINALIZED
    node = store.load().nodes[paths.CLUSTER_ID]
    assert decide_cluster_id(node, "fresh", "other") == []


def test_new_directories_join_the_store_they_find() -> None:
    assert decide_cluster_id(STORED, None, "fresh") == []


def test_an_emptied_store_is_refused() -> None:
    with pytest.raises(StoreRefused, match=r"empty.*ours"):
        decide_cluster_id(None, "ours", "fresh")


def test_another_clusters_store_is_refused() -> None:
    with pytest.raises(StoreRefused, match=r"ours.*theirs"):
        decide_cluster_id(STORED, "theirs", "fresh")


def test_the_first_number_of_in_sync_replicas_is_everybodys_and_others_are_told() -> None:
    one, two = (BrokerConfig({"min.insync.replicas": number}) for number in ("1", "2"))
    store = MemoryStore()
    store.commit(decide_cluster_id(None, None, "fresh"))
    store.commit(decide_shared_settings(store.load().nodes, two))
    assert decide_shared_settings(store.load().nodes, one) == []
    image = image_from_snapshot(store.load())
    assert image.broker_configs[""] == {"min.insync.replicas": "2"}
    assert ignored_setting(image, two) is None
    assert ignored_setting(image, BrokerConfig({})) is None, "nobody has set it"
    told = ignored_setting(image, one)
    assert told is not None
    assert told.startswith("min.insync.replicas=1 of this broker's own settings is not used")
