"""Which API keys are served, in which versions, and by which module.

Owns the table that answers ApiVersions without importing a handler: a module is imported by the
first request for its key, because all of them together would cost start-up time that most runs
never need. The table repeats each module's API_KEY and VERSIONS; a test compares the two.
"""

from __future__ import annotations

from importlib import import_module

from ottla.handlers.context import Handler

RAW_BODY_KEYS = frozenset({0, 1})
"""Produce and Fetch read the body themselves; every other handler takes a decoded request."""

# api key -> (module, lowest version, highest version), in the order in which ApiVersions lists them
SERVED: dict[int, tuple[str, int, int]] = {
    0: ("api_00_produce", 3, 13),
    1: ("api_01_fetch", 4, 18),
    2: ("api_02_list_offsets", 1, 11),
    3: ("api_03_metadata", 0, 13),
    8: ("api_08_offset_commit", 2, 10),
    9: ("api_09_offset_fetch", 1, 10),
    10: ("api_10_find_coordinator", 0, 6),
    11: ("api_11_join_group", 0, 9),
    12: ("api_12_heartbeat", 0, 4),
    13: ("api_13_leave_group", 0, 5),
    14: ("api_14_sync_group", 0, 5),
    15: ("api_15_describe_groups", 0, 6),
    16: ("api_16_list_groups", 0, 5),
    17: ("api_17_sasl_handshake", 0, 1),
    18: ("api_18_api_versions", 0, 4),
    19: ("api_19_create_topics", 2, 7),
    20: ("api_20_delete_topics", 1, 6),
    21: ("api_21_delete_records", 0, 2),
    22: ("api_22_init_producer_id", 0, 6),
    23: ("api_23_offset_for_leader_epoch", 2, 4),
    24: ("api_24_add_partitions_to_txn", 0, 5),
    25: ("api_25_add_offsets_to_txn", 0, 4),
    26: ("api_26_end_txn", 0, 5),
    27: ("api_27_write_txn_markers", 1, 2),
    28: ("api_28_txn_offset_commit", 0, 5),
    29: ("api_29_describe_acls", 1, 3),
    30: ("api_30_create_acls", 1, 3),
    31: ("api_31_delete_acls", 1, 3),
    32: ("api_32_describe_configs", 1, 4),
    33: ("api_33_alter_configs", 0, 2),
    34: ("api_34_alter_replica_log_dirs", 1, 2),
    35: ("api_35_describe_log_dirs", 1, 5),
    36: ("api_36_sasl_authenticate", 0, 2),
    37: ("api_37_create_partitions", 0, 3),
    42: ("api_42_delete_groups", 0, 2),
    43: ("api_43_elect_leaders", 0, 2),
    44: ("api_44_incremental_alter_configs", 0, 1),
    45: ("api_45_alter_partition_reassignments", 0, 1),
    46: ("api_46_list_partition_reassignments", 0, 0),
    47: ("api_47_offset_delete", 0, 0),
    55: ("api_55_describe_quorum", 0, 2),
    57: ("api_57_update_features", 0, 2),
    60: ("api_60_describe_cluster", 0, 2),
    61: ("api_61_describe_producers", 0, 0),
    64: ("api_64_unregister_broker", 0, 0),
    65: ("api_65_describe_transactions", 0, 0),
    66: ("api_66_list_transactions", 0, 2),
    68: ("api_68_consumer_group_heartbeat", 0, 1),
    69: ("api_69_consumer_group_describe", 0, 1),
    74: ("api_74_list_config_resources", 0, 1),
    75: ("api_75_describe_topic_partitions", 0, 0),
}

# librdkafka of old turns compression off when it sees Produce begin above 0 (KAFKA-18659), so the
# versions 0 to 2 are told and, like every version that is not served, refused.
ADVERTISED_LOWEST = {0: 0}

# What Kafka calls unstable is served to those who know of it. It is told only where the settings
# let every client use it: for InitProducerId v6, `transaction.two.phase.commit.enable`.
ADVERTISED_HIGHEST = {22: 5}

_handlers: dict[int, Handler] = {}


def is_served(api_key: int, version: int) -> bool:
    entry = SERVED.get(api_key)
    return entry is not None and entry[1] <= version <= entry[2]


def handler_of(api_key: int) -> Handler:
    """The function that answers `api_key`, which must be in SERVED."""
    handler = _handlers.get(api_key)
    if handler is None:
        module = import_module(f"ottla.handlers.{SERVED[api_key][0]}")
        handler = _handlers[api_key] = module.handle
    return handler


def advertised_apis(*, two_phase_commit: bool = False) -> list[tuple[int, int, int]]:
    """(api key, lowest version, highest version) as ApiVersions tells them."""
    stable = {} if two_phase_commit else ADVERTISED_HIGHEST
    return [
        (api_key, ADVERTISED_LOWEST.get(api_key, lowest), stable.get(api_key, highest))
        for api_key, (_, lowest, highest) in SERVED.items()
    ]
