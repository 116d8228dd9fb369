"""Goal: reading everything from the store takes a while, and nothing that changes meanwhile is
lost, taken for damage, or acted on in another order than the store's.
Method: drivers over an ensemble in memory, of which one hears of changes while its own calls are
under way, as threads do.
"""

from __future__ import annotations

import logging

import pytest

from ottla.metadata import nodes, paths
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Change, Snapshot, Write
from tests.unit.runtime.metadata_world import Member, World

SETTING = "message.max.bytes"


def a_topic() -> World:
    world = World()
    world.create("t", (1, 2, 3))
    return world


def change_after_each_load(world: World, member: Member) -> list[str]:
    """What somebody sets, one value after each load, before who loaded has come back."""
    load = member.store.load
    values: list[str] = []

    def overtaken() -> Snapshot:
        snapshot = load()
        values.append(f"{len(values) + 1}000")
        content = nodes.configs({SETTING: values[-1]})
        MemoryStore(world.ensemble).commit([Write(paths.broker_configs("9"), content, None)])
        return snapshot

    member.store.load = overtaken  # type: ignore[method-assign]
    member.hears_at_once = True
    return values


def test_a_change_that_overtakes_the_first_image_is_not_lost() -> None:
    world = a_topic()
    member = world.add(4)
    values = change_after_each_load(world, member)
    world.until_settled()
    assert member.image.broker_configs["9"] == {SETTING: values[-1]}


def test_a_change_that_overtakes_the_next_image_is_not_lost() -> None:
    world = a_topic()
    member = world.members[2]
    values = change_after_each_load(world, member)
    member.store.expire()
    world.until_settled()
    assert member.image.broker_configs["9"] == {SETTING: values[-1]}
    seen = [image.last_change for image in member.history]
    assert seen == sorted(seen), "nobody acts on what is older"


def test_a_change_that_overtakes_the_healing_of_a_node_is_not_lost() -> None:
    world = a_topic()
    member = world.members[2]
    sound = world.ensemble.nodes[paths.topic("t")]
    MemoryStore(world.ensemble).commit([Write(paths.topic("t"), b"{", None)])
    world.time.run(100)
    values = change_after_each_load(world, member)
    # Mended by hand: no change tells of it.
    world.ensemble.nodes[paths.topic("t")] = sound
    world.time.run_until(lambda: bool(values))
    world.until_settled()
    assert member.image.broker_configs["9"] == {SETTING: values[-1]}


def test_changes_before_the_first_image_are_not_taken_for_damage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = a_topic()
    member = world.add(4)
    member.hears_at_once = True
    register = member.store.register

    def waits(broker_id: int, content: bytes) -> Change:
        """For the end of an earlier life; meanwhile a partition changes."""
        path = paths.partition_state("t", 0)
        MemoryStore(world.ensemble).commit([Write(path, world.ensemble.nodes[path].content, None)])
        return register(broker_id, content)

    member.store.register = waits  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING):
        world.until_settled()
    assert [record.getMessage() for record in caplog.records] == []
