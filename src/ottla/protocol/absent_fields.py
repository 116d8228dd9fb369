"""Fields that not every version of their struct has, and what stands in for them.

Made from kio by tests/unit/protocol/make_absent_fields.py; a test compares the two. It is here so
that the first request of a kind costs the import of one version of a message, not of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.protocol.primitives import NULL_UUID


@dataclass(slots=True)
class DefaultStruct:
    """A struct in its default state."""

    name: str
    fields: dict[str, Any]


# By API key, struct and field. () is an empty array.

REQUESTS: dict[int, dict[str, dict[str, Any]]] = {
    0: {  # Produce
        "TopicProduceData": {"name": "", "topic_id": NULL_UUID},
    },
    1: {  # Fetch
        "FetchRequest": {
            "replica_id": -1,
            "session_id": 0,
            "session_epoch": -1,
            "forgotten_topics_data": (),
            "rack_id": "",
            "cluster_id": None,
            "replica_state": DefaultStruct("ReplicaState", {"replica_id": -1, "replica_epoch": -1}),
        },
        "FetchTopic": {"topic": "", "topic_id": NULL_UUID},
        "FetchPartition": {
            "log_start_offset": -1,
            "current_leader_epoch": -1,
            "last_fetched_epoch": -1,
            "replica_directory_id": NULL_UUID,
            "high_watermark": 9223372036854775807,
        },
        "ForgottenTopic": {"topic": "", "topic_id": NULL_UUID},
    },
    2: {  # ListOffsets
        "ListOffsetsRequest": {"isolation_level": 0, "timeout_ms": 0},
        "ListOffsetsPartition": {"current_leader_epoch": -1},
    },
    3: {  # Metadata
        "MetadataRequest": {
            "allow_auto_topic_creation": True,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        },
        "MetadataRequestTopic": {"topic_id": NULL_UUID},
    },
    8: {  # OffsetCommit
        "OffsetCommitRequest": {"retention_time_ms": -1, "group_instance_id": None},
        "OffsetCommitRequestTopic": {"name": "", "topic_id": NULL_UUID},
        "OffsetCommitRequestPartition": {"committed_leader_epoch": -1},
    },
    9: {  # OffsetFetch
        "OffsetFetchRequest": {"group_id": "", "topics": (), "require_stable": False, "groups": ()},
        "OffsetFetchRequestGroup": {"member_id": None, "member_epoch": -1},
        "OffsetFetchRequestTopics": {"name": "", "topic_id": NULL_UUID},
    },
    10: {  # FindCoordinator
        "FindCoordinatorRequest": {"key": "", "key_type": 0, "coordinator_keys": ()},
    },
    11: {  # JoinGroup
        "JoinGroupRequest": {"rebalance_timeout_ms": -1, "group_instance_id": None, "reason": None},
    },
    12: {  # Heartbeat
        "HeartbeatRequest": {"group_instance_id": None},
    },
    13: {  # LeaveGroup
        "LeaveGroupRequest": {"member_id": "", "members": ()},
        "MemberIdentity": {"reason": None},
    },
    14: {  # SyncGroup
        "SyncGroupRequest": {
            "group_instance_id": None,
            "protocol_type": None,
            "protocol_name": None,
        },
    },
    15: {  # DescribeGroups
        "DescribeGroupsRequest": {"include_authorized_operations": False},
    },
    16: {  # ListGroups
        "ListGroupsRequest": {"states_filter": (), "types_filter": ()},
    },
    18: {  # ApiVersions
        "ApiVersionsRequest": {"client_software_name": "", "client_software_version": ""},
    },
    20: {  # DeleteTopics
        "DeleteTopicsRequest": {"topic_names": (), "topics": ()},
    },
    22: {  # InitProducerId
        "InitProducerIdRequest": {
            "producer_id": -1,
            "producer_epoch": -1,
            "enable2_pc": False,
            "keep_prepared_txn": False,
        },
    },
    23: {  # OffsetForLeaderEpoch
        "OffsetForLeaderEpochRequest": {"replica_id": -2},
    },
    24: {  # AddPartitionsToTxn
        "AddPartitionsToTxnRequest": {
            "v3_and_below_transactional_id": "",
            "v3_and_below_producer_id": 0,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": (),
            "transactions": (),
        },
    },
    26: {  # EndTxn
        "EndTxnRequest": {"forget_transactional_id": False},
    },
    27: {  # WriteTxnMarkers
        "WritableTxnMarker": {"transaction_version": 0},
    },
    28: {  # TxnOffsetCommit
        "TxnOffsetCommitRequest": {"generation_id": -1, "member_id": "", "group_instance_id": None},
        "TxnOffsetCommitRequestPartition": {"committed_leader_epoch": -1},
    },
    32: {  # DescribeConfigs
        "DescribeConfigsRequest": {"include_documentation": False},
    },
    38: {  # CreateDelegationToken
        "CreateDelegationTokenRequest": {"owner_principal_type": "", "owner_principal_name": ""},
    },
    43: {  # ElectLeaders
        "ElectLeadersRequest": {"election_type": 0},
    },
    45: {  # AlterPartitionReassignments
        "AlterPartitionReassignmentsRequest": {"allow_replication_factor_change": True},
    },
    52: {  # Vote
        "VoteRequest": {"voter_id": -1},
        "PartitionData": {
            "replica_directory_id": NULL_UUID,
            "voter_directory_id": NULL_UUID,
            "pre_vote": False,
        },
    },
    53: {  # BeginQuorumEpoch
        "BeginQuorumEpochRequest": {"voter_id": -1, "leader_endpoints": ()},
        "PartitionData": {"voter_directory_id": NULL_UUID},
    },
    54: {  # EndQuorumEpoch
        "EndQuorumEpochRequest": {"leader_endpoints": ()},
        "PartitionData": {"preferred_successors": (), "preferred_candidates": ()},
    },
    56: {  # AlterPartition
        "PartitionData": {"new_isr": (), "new_isr_with_epochs": ()},
    },
    57: {  # UpdateFeatures
        "UpdateFeaturesRequest": {"validate_only": False},
        "FeatureUpdateKey": {"allow_downgrade": False, "upgrade_type": 1},
    },
    59: {  # FetchSnapshot
        "PartitionSnapshot": {"replica_directory_id": NULL_UUID},
    },
    60: {  # DescribeCluster
        "DescribeClusterRequest": {"endpoint_type": 1, "include_fenced_brokers": False},
    },
    62: {  # BrokerRegistration
        "BrokerRegistrationRequest": {
            "is_migrating_zk_broker": False,
            "log_dirs": (),
            "previous_broker_epoch": -1,
        },
    },
    63: {  # BrokerHeartbeat
        "BrokerHeartbeatRequest": {"offline_log_dirs": (), "cordoned_log_dirs": None},
    },
    66: {  # ListTransactions
        "ListTransactionsRequest": {"duration_filter": -1, "transactional_id_pattern": None},
    },
    68: {  # ConsumerGroupHeartbeat
        "ConsumerGroupHeartbeatRequest": {"subscribed_topic_regex": None},
    },
    74: {  # ListConfigResources
        "ListConfigResourcesRequest": {"resource_types": ()},
    },
    78: {  # ShareFetch
        "ShareFetchRequest": {"share_acquire_mode": 0, "is_renew_ack": False},
    },
    79: {  # ShareAcknowledge
        "ShareAcknowledgeRequest": {"is_renew_ack": False},
    },
    80: {  # AddRaftVoter
        "AddRaftVoterRequest": {"ack_when_committed": True},
    },
    85: {  # WriteShareGroupState
        "PartitionData": {"delivery_complete_count": -1},
    },
}


RESPONSES: dict[int, dict[str, dict[str, Any]]] = {
    0: {  # Produce
        "ProduceResponse": {"node_endpoints": ()},
        "TopicProduceResponse": {"name": "", "topic_id": NULL_UUID},
        "PartitionProduceResponse": {
            "log_start_offset": -1,
            "record_errors": (),
            "error_message": None,
            "current_leader": DefaultStruct(
                "LeaderIdAndEpoch", {"leader_id": -1, "leader_epoch": -1}
            ),
        },
    },
    1: {  # Fetch
        "FetchResponse": {"error_code": 0, "session_id": 0, "node_endpoints": ()},
        "FetchableTopicResponse": {"topic": "", "topic_id": NULL_UUID},
        "PartitionData": {
            "log_start_offset": -1,
            "preferred_read_replica": -1,
            "diverging_epoch": DefaultStruct("EpochEndOffset", {"epoch": -1, "end_offset": -1}),
            "current_leader": DefaultStruct(
                "LeaderIdAndEpoch", {"leader_id": -1, "leader_epoch": -1}
            ),
            "snapshot_id": DefaultStruct("SnapshotId", {"end_offset": -1, "epoch": -1}),
        },
    },
    2: {  # ListOffsets
        "ListOffsetsResponse": {"throttle_time_ms": 0},
        "ListOffsetsPartitionResponse": {"leader_epoch": -1},
    },
    3: {  # Metadata
        "MetadataResponse": {
            "controller_id": -1,
            "cluster_id": None,
            "throttle_time_ms": 0,
            "cluster_authorized_operations": -2147483648,
            "error_code": 0,
        },
        "MetadataResponseBroker": {"rack": None},
        "MetadataResponseTopic": {
            "is_internal": False,
            "topic_authorized_operations": -2147483648,
            "topic_id": NULL_UUID,
        },
        "MetadataResponsePartition": {"offline_replicas": (), "leader_epoch": -1},
    },
    8: {  # OffsetCommit
        "OffsetCommitResponse": {"throttle_time_ms": 0},
        "OffsetCommitResponseTopic": {"name": "", "topic_id": NULL_UUID},
    },
    9: {  # OffsetFetch
        "OffsetFetchResponse": {"topics": (), "error_code": 0, "throttle_time_ms": 0, "groups": ()},
        "OffsetFetchResponsePartition": {"committed_leader_epoch": -1},
        "OffsetFetchResponseTopics": {"name": "", "topic_id": NULL_UUID},
    },
    10: {  # FindCoordinator
        "FindCoordinatorResponse": {
            "error_code": 0,
            "node_id": 0,
            "host": "",
            "port": 0,
            "throttle_time_ms": 0,
            "error_message": "",
            "coordinators": (),
        },
    },
    11: {  # JoinGroup
        "JoinGroupResponse": {
            "throttle_time_ms": 0,
            "protocol_type": None,
            "skip_assignment": False,
        },
        "JoinGroupResponseMember": {"group_instance_id": None},
    },
    12: {  # Heartbeat
        "HeartbeatResponse": {"throttle_time_ms": 0},
    },
    13: {  # LeaveGroup
        "LeaveGroupResponse": {"throttle_time_ms": 0, "members": ()},
    },
    14: {  # SyncGroup
        "SyncGroupResponse": {"throttle_time_ms": 0, "protocol_type": None, "protocol_name": None},
    },
    15: {  # DescribeGroups
        "DescribeGroupsResponse": {"throttle_time_ms": 0},
        "DescribedGroup": {"authorized_operations": -2147483648, "error_message": None},
        "DescribedGroupMember": {"group_instance_id": None},
    },
    16: {  # ListGroups
        "ListGroupsResponse": {"throttle_time_ms": 0},
        "ListedGroup": {"group_state": "", "group_type": ""},
    },
    18: {  # ApiVersions
        "ApiVersionsResponse": {
            "throttle_time_ms": 0,
            "supported_features": (),
            "finalized_features_epoch": -1,
            "finalized_features": (),
            "zk_migration_ready": False,
        },
    },
    19: {  # CreateTopics
        "CreatableTopicResult": {
            "num_partitions": -1,
            "replication_factor": -1,
            "configs": (),
            "topic_config_error_code": 0,
            "topic_id": NULL_UUID,
        },
    },
    20: {  # DeleteTopics
        "DeletableTopicResult": {"error_message": None, "topic_id": NULL_UUID},
    },
    22: {  # InitProducerId
        "InitProducerIdResponse": {"ongoing_txn_producer_id": -1, "ongoing_txn_producer_epoch": -1},
    },
    24: {  # AddPartitionsToTxn
        "AddPartitionsToTxnResponse": {
            "results_by_topic_v3_and_below": (),
            "error_code": 0,
            "results_by_transaction": (),
        },
    },
    26: {  # EndTxn
        "EndTxnResponse": {"producer_id": -1, "producer_epoch": -1},
    },
    32: {  # DescribeConfigs
        "DescribeConfigsResourceResult": {"config_type": 0, "documentation": ""},
    },
    35: {  # DescribeLogDirs
        "DescribeLogDirsResponse": {"error_code": 0},
        "DescribeLogDirsResult": {"total_bytes": -1, "usable_bytes": -1, "is_cordoned": False},
    },
    36: {  # SaslAuthenticate
        "SaslAuthenticateResponse": {"session_lifetime_ms": 0},
    },
    38: {  # CreateDelegationToken
        "CreateDelegationTokenResponse": {
            "token_requester_principal_type": "",
            "token_requester_principal_name": "",
        },
    },
    41: {  # DescribeDelegationToken
        "DescribedDelegationToken": {
            "token_requester_principal_type": "",
            "token_requester_principal_name": "",
        },
    },
    43: {  # ElectLeaders
        "ElectLeadersResponse": {"error_code": 0},
    },
    45: {  # AlterPartitionReassignments
        "AlterPartitionReassignmentsResponse": {"allow_replication_factor_change": True},
    },
    52: {  # Vote
        "VoteResponse": {"node_endpoints": ()},
    },
    53: {  # BeginQuorumEpoch
        "BeginQuorumEpochResponse": {"node_endpoints": ()},
    },
    54: {  # EndQuorumEpoch
        "EndQuorumEpochResponse": {"node_endpoints": ()},
    },
    55: {  # DescribeQuorum
        "DescribeQuorumResponse": {"error_message": "", "nodes": ()},
        "PartitionData": {"error_message": ""},
        "ReplicaState": {
            "last_fetch_timestamp": -1,
            "last_caught_up_timestamp": -1,
            "replica_directory_id": NULL_UUID,
        },
    },
    57: {  # UpdateFeatures
        "UpdateFeaturesResponse": {"results": ()},
    },
    59: {  # FetchSnapshot
        "FetchSnapshotResponse": {"node_endpoints": ()},
    },
    60: {  # DescribeCluster
        "DescribeClusterResponse": {"endpoint_type": 1},
        "DescribeClusterBroker": {"is_fenced": False},
    },
    69: {  # ConsumerGroupDescribe
        "Member": {"member_type": -1},
    },
    74: {  # ListConfigResources
        "ConfigResource": {"resource_type": 16},
    },
    79: {  # ShareAcknowledge
        "ShareAcknowledgeResponse": {"acquisition_lock_timeout_ms": 0},
    },
    87: {  # ReadShareGroupStateSummary
        "PartitionResult": {"delivery_complete_count": -1},
    },
    90: {  # DescribeShareGroupOffsets
        "DescribeShareGroupOffsetsResponsePartition": {"lag": -1},
    },
}
