"""A consumer over brokers that are functions: logs in memory, a coordinator of one group, time as a
number. `poll` does what a shell does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ottla.base.ids import TopicPartition
from ottla.client.assignors.member_bytes import encode_assignment
from ottla.client.consumer_machine import Callbacks, ConsumerMachine
from ottla.client.consumer_reading import RecordReader
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetch_records import Deserializers, Record
from ottla.client.settings import read_settings
from ottla.protocol import api_keys as keys
from ottla.protocol import error_codes as codes
from ottla.records.batch_builder import RecordToWrite, build_batch
from tests.unit.client.pure_world import FIRST_PORT, HOST, Answer, Later, World, metadata

PLAIN = Deserializers(None, None)
STEP_MS = 10.0

Override = Callable[[Any, int], Any]


class Log:
    """One partition: batches with their offsets."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        self.start = 0
        self.end = 0
        self.leader = 0
        self.epoch = 0
        self.epoch_ends: dict[int, int] = {}

    def append(self, *values: bytes) -> None:
        records = [RecordToWrite(1000 + self.end, None, value) for value in values]
        batch = build_batch(records, base_offset=self.end, leader_epoch=self.epoch)
        self.batches.append((self.end, self.end + len(values), batch))
        self.end += len(values)

    def read(self, offset: int) -> bytes:
        return b"".join(batch for _, end, batch in self.batches if end > offset)

    def truncate(self, end: int) -> None:
        self.batches = [one for one in self.batches if one[1] <= end]
        self.end = end


class ConsumerWorld:
    alive: ClassVar[list[ConsumerWorld]] = []
    """Those of the present test, to be closed at its end: what is left to the collector of
    garbage would be collected in the middle of another one."""

    def __init__(self, settings: Mapping[str, Any] | None = None, nodes: int = 1) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.nodes = nodes
        self.committed: dict[TopicPartition, int] = {}
        self.commits: list[Any] = []
        self.told: list[tuple[str, list[TopicPartition]]] = []
        self.deserializers = PLAIN
        self.overrides: dict[int, Override] = {}
        """By API key: an answer instead of the usual one, unless it gives None."""
        given = {"bootstrap.servers": f"{HOST}:{FIRST_PORT}", **(settings or {})}
        read = read_settings(ConsumerSettings, given, {})
        self.machine = ConsumerMachine(read, lambda: 0.5, lambda: 5_000.0, lambda: "my-id")
        self.group = Group(self)
        answers: dict[int, Answer] = {
            keys.METADATA: self._metadata,
            keys.FETCH: self._fetch,
            keys.LIST_OFFSETS: self._list_offsets,
            keys.OFFSET_FOR_LEADER_EPOCH: self._epoch_ends,
            keys.FIND_COORDINATOR: self._coordinator,
            keys.OFFSET_FETCH: self._offset_fetch,
            keys.OFFSET_COMMIT: self._offset_commit,
            keys.JOIN_GROUP: self.group.join,
            keys.SYNC_GROUP: self.group.sync,
            keys.HEARTBEAT: self.group.heartbeat,
            keys.LEAVE_GROUP: self.group.leave,
            keys.CONSUMER_GROUP_HEARTBEAT: self.group.consumer_heartbeat,
        }
        scripted = {key: self._scripted(key, answer) for key, answer in answers.items()}
        self.world = World(self.machine.core, scripted)
        self.alive.append(self)

    def log(self, topic: str, partition: int = 0) -> Log:
        return self.logs.setdefault((topic, partition), Log())

    def subscribe(self, *topics: str) -> None:
        callbacks = Callbacks(
            *(
                lambda partitions, what=what: self.told.append((what, partitions))
                for what in ("assigned", "revoked", "lost")
            )
        )
        self.machine.subscribe(topics, None, None, callbacks)

    def poll(self, within_ms: float = 2_000, count_max: int = 500) -> list[Record]:
        machine, world = self.machine, self.world
        machine.core.now_ms = world.now_ms
        end_ms = world.now_ms + within_ms
        machine.begin_poll()
        try:
            while True:
                world.settle()
                call = machine.next_call()
                if call is not None:
                    call.function(call.partitions)
                    call.done.resolve(None)
                    continue
                reader = RecordReader(count_max, self.deserializers)
                while reader.wants_more():
                    item = machine.next_item(is_first=not reader.records)
                    if item is None or (taken := reader.take(item)) is None:
                        break
                    machine.took(item, taken.position, taken.epoch, is_done=taken.is_done)
                    world.settle()  # as the shells do
                if reader.records or world.now_ms >= end_ms:
                    return reader.records
                machine.ready()
                world.advance(STEP_MS)
        finally:
            machine.end_poll()
            world.settle()

    def values(self, within_ms: float = 2_000) -> list[bytes]:
        return [record.value for record in self.poll(within_ms)]

    def pass_time(self, milliseconds: float) -> None:
        self.world.advance(milliseconds)

    def requests(self, api_key: int) -> list[Any]:
        return [request for _, key, request in self.world.requests if key == api_key]

    # -- brokers -------------------------------------------------------------------------------

    def _scripted(self, key: int, answer: Answer) -> Answer:
        def scripted(request: Any, version: int) -> Any:
            override = self.overrides.get(key)
            if override is not None:
                given = override(request, version)
                if given is not None:
                    # Or two that agree would never let time pass.
                    return given if isinstance(given, Later) else Later(1.0, given)
            return answer(request, version)

        return scripted

    def _metadata(self, request: Any, version: int) -> Any:
        topics: dict[str, list[int]] = {}
        for (topic, _), log in sorted(self.logs.items()):
            topics.setdefault(topic, []).append(log.leader)
        asked = None if request.topics is None else {one.name for one in request.topics}
        named = {name: topics.get(name, 3) for name in (topics if asked is None else asked)}
        fields = metadata(named, self.nodes)
        for topic in fields["topics"]:
            for partition in topic["partitions"]:
                log = self.logs[topic["name"], partition["partition_index"]]
                partition["leader_epoch"] = log.epoch
        return fields

    def _fetch(self, request: Any, version: int) -> Any:
        topics = []
        is_empty = True
        assert request.session_id == 0, "this broker has no sessions"
        for topic, partitions in self._wanted(request).items():
            found = []
            for partition, wish in partitions.items():
                one = self._fetched(topic, partition, wish)
                is_empty = is_empty and not one["records"] and one["error_code"] == 0
                found.append(one)
            topics.append({"topic": topic, "topic_id": None, "partitions": found})
        fields = {
            "throttle_time_ms": 0,
            "error_code": 0,
            "session_id": 0,
            "responses": topics,
            "node_endpoints": [],
        }
        return Later(request.max_wait_ms, fields) if is_empty else fields

    def _wanted(self, request: Any) -> dict[str, dict[int, Any]]:
        return {
            topic.topic: {one.partition: one for one in topic.partitions}
            for topic in request.topics
        }

    def _fetched(self, topic: str, partition: int, wish: Any) -> dict[str, Any]:
        log = self.logs[topic, partition]
        code = codes.NONE
        if wish.current_leader_epoch >= 0 and wish.current_leader_epoch != log.epoch:
            is_old = wish.current_leader_epoch < log.epoch
            code = codes.FENCED_LEADER_EPOCH if is_old else codes.UNKNOWN_LEADER_EPOCH
        elif not log.start <= wish.fetch_offset <= log.end:
            code = codes.OFFSET_OUT_OF_RANGE
        return {
            "partition_index": partition,
            "error_code": code,
            "high_watermark": log.end,
            "last_stable_offset": log.end,
            "log_start_offset": log.start,
            "aborted_transactions": None,
            "preferred_read_replica": -1,
            "records": b"" if code else log.read(wish.fetch_offset),
        }

    def _list_offsets(self, request: Any, version: int) -> Any:
        def of(topic: str, one: Any) -> dict[str, Any]:
            log = self.logs[topic, one.partition_index]
            offset = {-1: log.end, -2: log.start}.get(one.timestamp)
            if offset is None:
                later = [base for base, _, _ in log.batches if 1000 + base >= one.timestamp]
                offset = later[0] if later else -1
            return {
                "partition_index": one.partition_index,
                "error_code": 0,
                "timestamp": -1,
                "offset": offset,
                "leader_epoch": log.epoch,
            }

        return {
            "throttle_time_ms": 0,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [of(topic.name, one) for one in topic.partitions],
                }
                for topic in request.topics
            ],
        }

    def _epoch_ends(self, request: Any, version: int) -> Any:
        def of(topic: str, one: Any) -> dict[str, Any]:
            log = self.logs[topic, one.partition]
            end = log.epoch_ends.get(one.leader_epoch, log.end)
            return {
                "error_code": 0,
                "partition": one.partition,
                "leader_epoch": one.leader_epoch,
                "end_offset": end,
            }

        return {
            "throttle_time_ms": 0,
            "topics": [
                {
                    "topic": topic.topic,
                    "partitions": [of(topic.topic, one) for one in topic.partitions],
                }
                for topic in request.topics
            ],
        }

    def _coordinator(self, request: Any, version: int) -> Any:
        found = {
            "key": request.coordinator_keys[0],
            "node_id": 0,
            "host": HOST,
            "port": FIRST_PORT,
            "error_code": 0,
            "error_message": None,
        }
        return {"throttle_time_ms": 0, "coordinators": [found]}

    def _offset_fetch(self, request: Any, version: int) -> Any:
        group = request.groups[0]
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": one,
                        "committed_offset": self.committed.get((topic.name, one), -1),
                        "committed_leader_epoch": -1,
                        "metadata": "",
                        "error_code": 0,
                    }
                    for one in topic.partition_indexes
                ],
            }
            for topic in group.topics
        ]
        answer = {"group_id": group.group_id, "topics": topics, "error_code": 0}
        return {"throttle_time_ms": 0, "groups": [answer]}

    def _offset_commit(self, request: Any, version: int) -> Any:
        self.commits.append(request)
        code = self.group.code_for(request.member_id, request.generation_id_or_member_epoch)
        topics = []
        for topic in request.topics:
            for one in topic.partitions:
                if code == codes.NONE:
                    self.committed[topic.name, one.partition_index] = one.committed_offset
            parts = [
                {"partition_index": one.partition_index, "error_code": code}
                for one in topic.partitions
            ]
            topics.append({"name": topic.name, "partitions": parts})
        return {"throttle_time_ms": 0, "topics": topics}


class Group:
    """A coordinator as the test wants it: what a member gets is said beforehand."""

    def __init__(self, world: ConsumerWorld) -> None:
        self._world = world
        self.generation = 0
        self.member_id = ""
        self.assigned: list[TopicPartition] = []
        self.is_rebalancing = False
        self.forgets = False
        self.joins: list[Any] = []
        self.left: list[str] = []
        self.beats: list[Any] = []
        self.target: list[tuple[Any, int]] | None = None
        self.epoch = 0

    def code_for(self, member_id: str, generation: int) -> int:
        if self.forgets or (member_id and member_id != self.member_id):
            return codes.UNKNOWN_MEMBER_ID
        if member_id and generation != max(self.generation, self.epoch):
            return codes.ILLEGAL_GENERATION
        return codes.NONE

    def join(self, request: Any, version: int) -> Any:
        self.joins.append(request)
        members: list[dict[str, Any]] = []
        code = codes.NONE
        if not request.member_id and version >= 4:
            code, self.member_id = codes.MEMBER_ID_REQUIRED, f"member-{len(self.joins)}"
        elif self.forgets or request.member_id != self.member_id:
            self.forgets = False
            code = codes.UNKNOWN_MEMBER_ID
        else:
            self.generation += 1
            self.is_rebalancing = False
            protocol = request.protocols[0]
            members = [
                {
                    "member_id": self.member_id,
                    "group_instance_id": None,
                    "metadata": protocol.metadata,
                }
            ]
        return {
            "throttle_time_ms": 0,
            "error_code": code,
            "generation_id": self.generation,
            "protocol_type": "consumer",
            "protocol_name": request.protocols[0].name,
            "leader": self.member_id,
            "skip_assignment": False,
            "member_id": self.member_id,
            "members": members,
        }

    def sync(self, request: Any, version: int) -> Any:
        return {
            "throttle_time_ms": 0,
            "error_code": self.code_for(request.member_id, request.generation_id),
            "protocol_type": "consumer",
            "protocol_name": request.protocol_name,
            "assignment": encode_assignment(self.assigned),
        }

    def heartbeat(self, request: Any, version: int) -> Any:
        self.beats.append(request)
        code = self.code_for(request.member_id, request.generation_id)
        if code == codes.NONE and self.is_rebalancing:
            code = codes.REBALANCE_IN_PROGRESS
        return {"throttle_time_ms": 0, "error_code": code}

    def leave(self, request: Any, version: int) -> Any:
        self.left += [one.member_id for one in request.members]
        return {"throttle_time_ms": 0, "error_code": 0, "members": []}

    def consumer_heartbeat(self, request: Any, version: int) -> Any:
        self.beats.append(request)
        code = codes.NONE
        if request.member_epoch > 0 and (self.forgets or request.member_epoch != self.epoch):
            code = codes.FENCED_MEMBER_EPOCH
            self.forgets = False
        elif request.member_epoch < 0:
            self.left.append(request.member_id)
        elif request.member_epoch == 0:
            self.epoch += 1
            self.member_id = request.member_id
        assignment = None
        if code == codes.NONE and self.target is not None and request.member_epoch >= 0:
            ids: dict[Any, list[int]] = {}
            for topic_id, partition in self.target:
                ids.setdefault(topic_id, []).append(partition)
            parts = [{"topic_id": one, "partitions": numbers} for one, numbers in ids.items()]
            assignment = {"topic_partitions": parts}
            self.target = None
        return {
            "throttle_time_ms": 0,
            "error_code": code,
            "error_message": None,
            "member_id": request.member_id,
            "member_epoch": self.epoch if request.member_epoch >= 0 else request.member_epoch,
            "heartbeat_interval_ms": 5_000,
            "assignment": assignment,
        }
