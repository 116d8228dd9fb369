"""The short way of an offset commit: that of one partition, like the connection's last one.

A consumer commits again and again, and its requests differ in little but partition and offset. So
the request that was decoded is kept, with how the answer begins; the next one whose bytes up to the
partition are the same is neither decoded nor is its answer encoded, which together take longer than
the decision. The decision is the same one.

It serves only what is committed at once. For everything else, a refusal included, it does nothing
and returns None; the long way then finds the reason and gives the answer.
"""

from __future__ import annotations

import struct
from typing import Any

from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.shard import Caller, Fields, Outcome
from ottla.handlers.context import Context, GroupHost
from ottla.metadata.image import MetadataImage
from ottla.protocol.api_keys import OFFSET_COMMIT
from ottla.protocol.error_codes import NONE, NOT_COORDINATOR
from ottla.protocol.messages import encode_request, encode_response

FIRST_FLEXIBLE_VERSION = 8
# Longer names are nobody's; a connection is not to hold them.
NAMES_LENGTH_MAX = 512

# Partition, offset, leader epoch; the length of no metadata, and no tags of the partition, the
# topic and the request.
COMMITTED = struct.Struct(">iqi4s")
# Partition, error code; no tags of the partition, the topic and the response.
ANSWERED = struct.Struct(">ih3x")
SIZE_AND_CORRELATION_ID = struct.Struct(">ii").pack


class CommitRoute:
    """For commits whose bytes before the partition are those of `request`."""

    __slots__ = (
        "_answer_head",
        "_caller",
        "_end",
        "_head",
        "_host",
        "_image",
        "_one",
        "_request",
        "_size",
        "_tail",
    )

    api_key = OFFSET_COMMIT

    def __init__(self, request: Any, response: Fields, caller: Caller) -> None:
        version = caller.api_version
        encoded = encode_request(OFFSET_COMMIT, version, request)
        answer = encode_response(OFFSET_COMMIT, version, response)
        self._request = request
        self._caller = caller
        self._one = request.topics[0].partitions[0]
        self._size = len(encoded)
        self._end = self._size - COMMITTED.size
        self._head = encoded[: self._end]
        self._tail = encoded[-4:]
        # Who coordinates the group, by this image; a host that is not responsible any more writes
        # nothing.
        self._host: GroupHost | int = NOT_COORDINATOR
        self._image: MetadataImage | None = None
        # Behind its header's tags.
        self._answer_head = b"\0" + answer[: -ANSWERED.size]

    def answer(self, context: Context, body: memoryview, correlation_id: int) -> bytes | None:
        if len(body) != self._size or body[: self._end] != self._head:
            return None
        index, offset, leader_epoch, tail = COMMITTED.unpack_from(body, self._end)
        services = context.services
        image = services.image
        if image is not self._image:
            self._host, self._image = services.groups.host_of(self._request.group_id), image
        host = self._host
        if tail != self._tail or isinstance(host, int):
            self._image = None
            return None
        # The request is nobody else's: the decision is made at once, or not at all.
        one = self._one
        one.partition_index = index
        one.committed_offset = offset
        one.committed_leader_epoch = leader_epoch
        if host.write_at_once(self._decide) != NONE:
            return None
        head = self._answer_head
        return b"%b%b%b" % (
            SIZE_AND_CORRELATION_ID(4 + len(head) + ANSWERED.size, correlation_id),
            head,
            ANSWERED.pack(index, NONE),
        )

    def _decide(self, shard: GroupShard) -> Outcome[int]:
        return shard.commit_one_offset(self._request, self._caller)


def learn(context: Context, request: Any, response: Fields, caller: Caller) -> None:
    """Keep the route of a commit that went the long way, if it can be one."""
    if caller.api_version < FIRST_FLEXIBLE_VERSION or len(request.topics) != 1:
        return
    partitions = request.topics[0].partitions
    if len(partitions) != 1 or partitions[0].committed_metadata:
        return
    names = (request.group_id, request.member_id, request.group_instance_id or "")
    if sum(map(len, names)) <= NAMES_LENGTH_MAX:
        context.route = CommitRoute(request, response, caller)
