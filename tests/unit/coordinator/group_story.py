"""Reads and plays the stories of this directory: what is asked of a group, and what it answers.

A story is a file of scenes. A scene has steps, a line of dashes, and what is answered while they
are taken, one line each; "(nothing)" if nobody hears anything. The first lines may set settings.
Members go by the name of their client; an id is that name, a dash, and a running number.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.coordinator.group_config import GroupConfig
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.shard import Caller, Fields, Outcome
from ottla.protocol.error_codes import MEMBER_ID_REQUIRED, NONE, name_of
from sim.groups.hosted_shard import HostedShard, a_cluster

_LONG_ID = re.compile(r"-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-0*([0-9a-f]+)")
SETTINGS = GroupConfig(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=100)


def scenes_of(path: Path) -> tuple[dict[str, int], list[tuple[list[str], list[str]]]]:
    """The settings at the top, then steps and answers of each scene."""
    lines = [line.split("#")[0].rstrip() for line in path.read_text().splitlines()]
    settings: dict[str, int] = {}
    scenes: list[tuple[list[str], list[str]]] = []
    for block in "\n".join(lines).split("\n\n"):
        steps, dashes, answers = block.strip("\n").partition("----")
        if not dashes:
            settings.update((name, int(value)) for name, value in re.findall(r"(\w+)=(\d+)", block))
            continue
        scenes.append((steps.split("\n")[:-1], answers.strip("\n").split("\n")))
    return settings, scenes


def subscription(*topics: str) -> bytes:
    """As consumers write it, version 0."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class Story:
    """One group, "g", in a shard of its own."""

    def __init__(self, settings: dict[str, int]) -> None:
        numbers: dict[str, Any] = dict(settings)
        self.hosted = HostedShard(
            config=replace(SETTINGS, **numbers), image=a_cluster(t=4, u=1, v=1)
        )
        self.said: list[str] = []
        self._ids: dict[str, str] = {}
        self._generations: dict[str, int] = {}

    def play(self, steps: list[str]) -> list[str]:
        self.said = []
        for step in steps:
            self._take(step)
        return self.said or ["(nothing)"]

    def _delete_topic(self, name: str) -> None:
        """As a broker does it: first the image is without it."""
        topics = {one: topic for one, topic in self.hosted.image.topics.items() if one != name}
        image = self.hosted.image = replace(self.hosted.image, topics=topics)
        self.hosted.host.run(lambda shard: shard.on_image(image))
        self.hosted.host.run(lambda shard: shard.on_topics_deleted([name]))

    # -- steps ------------------------------------------------------------------------------

    def _take(self, step: str) -> None:
        match step.split():
            case ["delete", "group"]:
                self._ask("admin", _delete_group, _told_deletion)
            case ["delete", "offset", place]:
                topic, index = place.split("-")
                self._ask("admin", _delete_offset(topic, int(index)), _told_offset_deletion)
            case ["topic", name, "is", "deleted"]:
                self._delete_topic(name)
            case ["fetch", *options]:
                self._fetch(options)
            case ["describe"]:
                self._describe()
            case [name, ("joins" | "syncs" | "beats" | "leaves" | "commits") as verb, *options]:
                self._member(name, verb, options)
            case words:
                self._happen(words)

    def _happen(self, words: list[str]) -> None:
        """What nobody asked for."""
        partition = self.hosted.partition
        match words:
            case ["pass", milliseconds]:
                self.hosted.time.advance(int(milliseconds))
            case ["sweep"]:
                while self._swept():
                    pass
            case ["restart"]:
                self.hosted.restart()
                self.said.clear()  # nobody hears from a process that is dead
            case ["appends", "fail", code]:
                partition.fail_code = int(code)
            case ["appends", "work"]:
                partition.fail_code = 0
            case ["commits", "lag"]:
                partition.holds_back = True
            case ["commits", "catch", "up"]:
                partition.holds_back = False
                partition.commit_all()
            case _:
                raise AssertionError(f"unknown step {' '.join(words)!r}")

    def _member(self, name: str, verb: str, words: list[str]) -> None:
        actions: dict[str, Callable[[str, list[str]], None]] = {
            "joins": self._joins,
            "syncs": self._syncs,
            "beats": self._beats,
            "leaves": self._leaves,
            "commits": self._commits,
        }
        actions[verb](name, words)

    def _joins(self, name: str, words: list[str]) -> None:
        options = _options(words)
        likes = options.get("likes", "range").split(",")
        topics = options.get("topics", "t").split(",")
        request = SimpleNamespace(
            group_id="g",
            member_id=self._id_of(options.get("as", name)) if options.get("as") != "new" else "",
            group_instance_id=options.get("static"),
            protocol_type=options.get("type", "consumer"),
            protocols=[
                SimpleNamespace(name=protocol, metadata=subscription(*topics))
                for protocol in likes
                if protocol != "nothing"
            ],
            session_timeout_ms=int(options.get("session", 10_000)),
            rebalance_timeout_ms=int(options.get("rebalance", 20_000)),
        )
        caller = Caller(name, "/127.0.0.1", int(options.get("v", 9)))
        self._ask(
            name,
            lambda shard: shard.join_group(request, caller),
            lambda fields: self._told_join(name, fields),
        )

    def _told_join(self, name: str, fields: Fields) -> str:
        code = fields["error_code"]
        if code == MEMBER_ID_REQUIRED:
            self._ids[name] = fields["member_id"]
            return f"come back as {fields['member_id']}"
        if code != NONE:
            return name_of(code)
        self._ids[name] = fields["member_id"]
        self._generations[name] = fields["generation_id"]
        told = f"generation {fields['generation_id']} by {fields['protocol_name']}"
        if fields["member_id"] != fields["leader"]:
            return f"{told}, follows {fields['leader']}"
        members = " ".join(sorted(member["member_id"] for member in fields["members"]))
        skips = ", skips the assignment" if fields["skip_assignment"] else ""
        return f"{told}, leads {members or 'nobody'}{skips}"

    def _syncs(self, name: str, words: list[str]) -> None:
        given = {self._id_of(one): parts for one, parts in _pairs(words)}
        options = _options([word for word in words if "=" not in word])
        request = SimpleNamespace(
            group_id="g",
            generation_id=int(options.get("generation", self._generations.get(name, -1))),
            member_id=self._id_of(options.get("as", name)),
            group_instance_id=options.get("static"),
            protocol_type=options.get("type"),
            protocol_name=options.get("protocol"),
            assignments=[
                SimpleNamespace(member_id=member_id, assignment=parts.encode())
                for member_id, parts in given.items()
            ],
        )
        caller = Caller(name, "/127.0.0.1", 5)
        self._ask(name, lambda shard: shard.sync_group(request, caller), _told_sync)

    def _beats(self, name: str, words: list[str]) -> None:
        options = _options(words)
        request = SimpleNamespace(
            group_id="g",
            generation_id=int(options.get("generation", self._generations.get(name, -1))),
            member_id=self._id_of(options.get("as", name)),
            group_instance_id=options.get("static"),
        )
        caller = Caller(name, "/127.0.0.1", 4)
        self._ask(name, lambda shard: shard.heartbeat(request, caller), _told_code)

    def _leaves(self, name: str, words: list[str]) -> None:
        options = _options(words)
        one = SimpleNamespace(
            member_id="" if options.get("as") == "instance" else self._id_of(name),
            group_instance_id=options.get("static"),
            reason=None,
        )
        request = SimpleNamespace(group_id="g", members=[one])
        caller = Caller(name, "/127.0.0.1", 5)
        self._ask(
            name,
            lambda shard: shard.leave_group(request, caller),
            lambda fields: "left" if not (code := _member_code(fields)) else name_of(code),
        )

    def _commits(self, name: str, words: list[str]) -> None:
        place, offset, *rest = words
        topic, index = place.split("-")
        options = _options(rest)
        known = self._generations.get(name, -1)
        partition = SimpleNamespace(
            partition_index=int(index),
            committed_offset=int(offset),
            committed_leader_epoch=-1,
            committed_metadata=options.get("noting"),
        )
        request = SimpleNamespace(
            group_id="g",
            generation_id_or_member_epoch=int(options.get("generation", known)),
            member_id=self._ids.get(name, options.get("as", "")),
            group_instance_id=options.get("static"),
            retention_time_ms=int(options.get("for", -1)),
            topics=[SimpleNamespace(name=topic, topic_id=None, partitions=[partition])],
        )
        caller = Caller(name, "/127.0.0.1", int(options.get("v", 9)))
        self._ask(name, lambda shard: shard.commit_offsets(request, caller), _told_commit)

    def _fetch(self, words: list[str]) -> None:
        stable = "stable" in words
        request = SimpleNamespace(group_id="g", member_id=None, member_epoch=-1, topics=None)
        self._look(
            "fetch",
            lambda shard: shard.fetch_offsets(
                request, Caller("admin", "", 8), require_stable=stable
            ),
            _told_offsets,
        )

    def _describe(self) -> None:
        self._look(
            "group",
            lambda shard: shard.describe_groups(["g"], Caller("admin", "", 5))[0],
            _told_group,
        )

    def _swept(self) -> bool:
        answer = self.hosted.host.write(lambda shard: shard.on_tick())
        return answer.result()

    # -- asking and telling -----------------------------------------------------------------

    def _id_of(self, name: str) -> str:
        return self._ids.get(name, name if "-" in name else "")

    def _ask(
        self,
        name: str,
        decide: Callable[[GroupShard], Outcome[Any]],
        told: Callable[[Any], str],
    ) -> None:
        self.hosted.host.write(decide).when_done(lambda done: self._tell(name, done, told))

    def _look(
        self, name: str, look: Callable[[GroupShard], Any], told: Callable[[Any], str]
    ) -> None:
        self.hosted.host.read(look).when_done(lambda done: self._tell(name, done, told))

    def _tell(self, name: str, done: Deferred[Any], told: Callable[[Any], str]) -> None:
        try:
            text = told(done.result())
        except ProtocolError as refused:
            text = name_of(refused.code)
        self.said.append(_LONG_ID.sub(lambda found: f"-{int(found[1], 16)}", f"{name}: {text}"))


def _options(words: list[str]) -> dict[str, str]:
    """Words in pairs: a name and its value."""
    return dict(zip(words[::2], words[1::2], strict=True))


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    return [(name, parts) for name, found, parts in (w.partition("=") for w in words) if found]


def _told_code(fields: Fields) -> str:
    return "ok" if fields["error_code"] == NONE else name_of(fields["error_code"])


def _told_sync(fields: Fields) -> str:
    if fields["error_code"] != NONE:
        return name_of(fields["error_code"])
    return f"has {fields['assignment'].decode() or 'nothing'}"


def _member_code(fields: Fields) -> int:
    code: int = fields["error_code"] or fields["members"][0]["error_code"]
    return code


def _told_commit(fields: Fields) -> str:
    code = fields["topics"][0]["partitions"][0]["error_code"]
    return "committed" if code == NONE else name_of(code)


def _told_offsets(fields: Fields) -> str:
    if fields["error_code"] != NONE:
        return name_of(fields["error_code"])
    held = [
        f"{topic['name']}-{part['partition_index']}="
        + (name_of(part["error_code"]) if part["error_code"] else str(part["committed_offset"]))
        for topic in fields["topics"]
        for part in topic["partitions"]
    ]
    return " ".join(sorted(held)) or "nothing"


def _told_group(fields: Fields) -> str:
    members = " ".join(
        f"{member['member_id']}={member['member_assignment'].decode()}"
        for member in fields["members"]
    )
    return " ".join(filter(None, (fields["group_state"], fields["protocol_data"], members)))


def _delete_group(shard: GroupShard) -> Outcome[list[Fields]]:
    return shard.delete_groups(["g"])


def _told_deletion(results: list[Fields]) -> str:
    return "deleted" if results[0]["error_code"] == NONE else name_of(results[0]["error_code"])


def _delete_offset(topic: str, index: int) -> Callable[[GroupShard], Outcome[Fields]]:
    partition = SimpleNamespace(partition_index=index)
    request = SimpleNamespace(
        group_id="g", topics=[SimpleNamespace(name=topic, partitions=[partition])]
    )
    return lambda shard: shard.delete_offsets(request)


def _told_offset_deletion(fields: Fields) -> str:
    if fields["error_code"] != NONE:
        return name_of(fields["error_code"])
    code = fields["topics"][0]["partitions"][0]["error_code"]
    return "deleted" if code == NONE else name_of(code)
