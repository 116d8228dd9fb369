"""A broker that is one hosted group shard, for the handlers of the group APIs.

The shard and its host are the real ones, on virtual time and a simulated log. Requests and answers
go through the codec of the version under test.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any, cast

from ottla.base.deferred import Deferred
from ottla.coordinator.group_config import GroupConfig
from ottla.handlers.context import Context, GroupHost, Services
from ottla.protocol.messages import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from sim.groups.hosted_shard import HostedShard, a_cluster

BROKER_ID = 1
SETTINGS = GroupConfig(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=100)


class FakeGroups:
    """The door. `refusal` is the error code that it gives instead of a host."""

    def __init__(self, hosted: HostedShard) -> None:
        self._hosted = hosted
        self.refusal = 0
        self.leader = BROKER_ID
        self.loading = False
        self.topic: Deferred[None] = Deferred()
        self.topic.resolve(None)

    def host_of(self, group_id: str) -> GroupHost | int:
        return self.refusal or self._hosted.host

    def leader_of(self, group_id: str) -> int:
        return self.leader

    def hosts(self) -> Iterator[GroupHost]:
        yield self._hosted.host

    def is_loading(self) -> bool:
        return self.loading

    def ensure_topic(self) -> Deferred[None]:
        return self.topic


class GroupServices:
    def __init__(self) -> None:
        self.hosted = HostedShard(config=SETTINGS, image=a_cluster(t=4, u=1))
        self.groups = FakeGroups(self.hosted)
        self.endpoints: dict[int, tuple[str, int]] = {BROKER_ID: ("host1", 9092)}

    @property
    def image(self) -> Any:
        return self.hosted.image

    def advertised_endpoint(self, broker_id: int, listener_name: str) -> tuple[str, int] | None:
        return self.endpoints.get(broker_id)

    # -- asking -----------------------------------------------------------------------------

    def begin(self, module: ModuleType, version: int, **fields: Any) -> Any:
        """What the handler returns: fields, or a Deferred of them."""
        body = encode_request(module.API_KEY, version, fields)
        request = decode_request(module.API_KEY, version, body)
        context = Context(cast(Services, self), version, "test", "PLAINTEXT", 1, "127.0.0.1")
        return module.handle(context, request)

    def ask(self, module: ModuleType, version: int, **fields: Any) -> Any:
        """The answer as a client of this version reads it. Time passes, a little."""
        outcome = self.begin(module, version, **fields)
        if isinstance(outcome, Deferred):
            self.hosted.time.advance(1)
            outcome = outcome.result()
        return read(module, version, outcome)

    def join(self, version: int = 3, **changes: Any) -> Any:
        from ottla.handlers import api_11_join_group

        fields = {
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 20_000,
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\x00\x00\x00\x00\x00\x00"}],
            "reason": None,
        }
        return self.ask(api_11_join_group, version, **(fields | changes))

    def settle(self) -> str:
        """One member, in generation 1, with an assignment; its id."""
        from ottla.handlers import api_14_sync_group

        member_id: str = self.join().member_id
        self.ask(
            api_14_sync_group,
            3,
            group_id="g",
            generation_id=1,
            member_id=member_id,
            group_instance_id=None,
            assignments=[{"member_id": member_id, "assignment": b"all"}],
        )
        return member_id

    def commit(self, offset: int, version: int = 8, **changes: Any) -> int:
        from ottla.handlers import api_08_offset_commit

        partition = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        fields = {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "retention_time_ms": -1,
            "topics": [
                {
                    "name": "t",
                    "topic_id": self.image.topics["t"].topic_id,
                    "partitions": [partition],
                }
            ],
        }
        answer = self.ask(api_08_offset_commit, version, **(fields | changes))
        code: int = answer.topics[0].partitions[0].error_code
        return code


def read(module: ModuleType, version: int, fields: Any) -> Any:
    encoded = encode_response(module.API_KEY, version, fields)
    return decode_response(module.API_KEY, version, encoded)
