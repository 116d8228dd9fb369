"""The controller: everything it can decide, each decision from one image to writes and an answer.

A facade; the decisions themselves are in the modules named here. They are functions and know no
store: whoever runs them commits the writes, applies the change and only then gives the answer.
"""

from __future__ import annotations

from ottla.metadata.config_control import (
    ConfigChange,
    ConfigResult,
    ThisBroker,
    decide_alter_configs,
    decide_incremental_alter_configs,
)
from ottla.metadata.decision import Decision
from ottla.metadata.elections import PartitionResult, decide_elect_leaders
from ottla.metadata.features import FeaturesResult, FeatureUpdate, decide_update_features
from ottla.metadata.producer_ids import decide_producer_id_block
from ottla.metadata.reassignment import Reassignment, decide_alter_reassignments
from ottla.metadata.registrations import decide_unregister
from ottla.metadata.topics_control import (
    CreateResult,
    DeleteResult,
    MorePartitions,
    NamedResult,
    NewTopic,
    TopicDefaults,
    TopicSelection,
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
)

__all__ = [
    "ConfigChange",
    "ConfigResult",
    "CreateResult",
    "Decision",
    "DeleteResult",
    "FeatureUpdate",
    "FeaturesResult",
    "MorePartitions",
    "NamedResult",
    "NewTopic",
    "PartitionResult",
    "Reassignment",
    "ThisBroker",
    "TopicDefaults",
    "TopicSelection",
    "decide_alter_configs",
    "decide_alter_reassignments",
    "decide_create_partitions",
    "decide_create_topics",
    "decide_delete_topics",
    "decide_elect_leaders",
    "decide_incremental_alter_configs",
    "decide_producer_id_block",
    "decide_unregister",
    "decide_update_features",
]
