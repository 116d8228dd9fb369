"""Goal: a consumer group answers every request as Kafka 4.3.1 does, refusals and their words too.
Method: the conversations that were recorded with a Kafka, held again with the real shard in its
real host; requests and answers go through the codec of their version.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.deferred import Deferred
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.shard import Caller, Outcome
from ottla.protocol.messages import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from sim.groups.hosted_shard import HostedShard, a_cluster
from tests.unit.coordinator import consumer_conversations as asked
from tests.unit.coordinator.consumer_conversations import SETTINGS, TOPICS, Progress, recorded
from tests.unit.coordinator.consumer_steps import CONVERSATIONS
from tests.unit.coordinator.consumer_wire import as_fields

CONFIG = GroupConfig(
    **{
        name.replace(".", "_"): int(value)  # type: ignore[arg-type]
        for name, value in SETTINGS.items()
    }
)

# Answered before a group is asked: see the tests of the handlers.
OF_HANDLERS = {"a group without a name"}


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_the_same_answers(conversation: str) -> None:
    answers = recorded()
    hosted = HostedShard(config=CONFIG, image=a_cluster(**TOPICS))
    ids = {name: topic.topic_id for name, topic in hosted.image.topics.items()}
    progress = Progress(ids, "group-1")
    for number, step in enumerate(CONVERSATIONS[conversation]):
        hosted.time.advance(step.wait_ms)
        if step.title in OF_HANDLERS:
            continue
        ours = progress.answer(step, answer_of(hosted, step, progress.request(step)))
        kafkas = answers[conversation, number]
        assert ours == kafkas, f"{number}: {step.title}"


def answer_of(hosted: HostedShard, step: asked.Step, fields: dict[str, Any]) -> dict[str, Any]:
    key, version = step.api_key, step.version
    request = decode_request(key, version, encode_request(key, version, fields))
    caller = Caller("told", "/127.0.0.1", version)
    answered: Deferred[Any] = hosted.host.write(lambda shard: decide(shard, key, request, caller))
    hosted.time.advance(0)
    response = {"throttle_time_ms": 0, **answered.result()}
    if key == asked.JOIN_GROUP and version < 7 and response["protocol_name"] is None:
        response["protocol_name"] = ""
    decoded: dict[str, Any] = as_fields(
        decode_response(key, version, encode_response(key, version, response))
    )
    return decoded


def decide(shard: GroupShard, key: int, request: Any, caller: Caller) -> Outcome[Any]:
    """What the handler of each key asks of the shard."""
    match key:
        case asked.BEAT:
            return shard.consumer_heartbeat(request, caller)
        case asked.JOIN_GROUP:
            return shard.join_group(request, caller)
        case asked.SYNC_GROUP:
            return shard.sync_group(request, caller)
        case asked.HEARTBEAT:
            return shard.heartbeat(request, caller)
        case asked.LEAVE_GROUP:
            return shard.leave_group(request, caller)
        case asked.OFFSET_COMMIT:
            return shard.commit_offsets(request, caller)
        case asked.OFFSET_DELETE:
            return shard.delete_offsets(request)
        case asked.DELETE_GROUPS:
            outcome = shard.delete_groups(request.groups_names)
            return Outcome(outcome.records, {"results": outcome.response})
        case _:
            return Outcome((), look(shard, key, request, caller))


def look(shard: GroupShard, key: int, request: Any, caller: Caller) -> dict[str, Any]:
    match key:
        case asked.DESCRIBE:
            return {"groups": shard.describe_consumer_groups(request.group_ids)}
        case asked.DESCRIBE_GROUPS:
            return {"groups": shard.describe_groups(request.groups, caller)}
        case asked.LIST_GROUPS:
            found = shard.list_groups(request.states_filter, request.types_filter)
            return {"error_code": 0, "groups": found}
        case asked.OFFSET_FETCH:
            fetched = [
                shard.fetch_offsets(group, caller, require_stable=request.require_stable)
                for group in request.groups
            ]
            return {"groups": fetched}
        case _:
            raise AssertionError(f"no way to ask {key}")
