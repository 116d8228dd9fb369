"""The store as it truly is, and what every commit to it must keep.

Z1  a change of leaders rests on the controller's epoch
Z2  the leader is nobody or a member; members are replicas, at least one
Z3  nobody becomes leader or member who is fenced, stopping, back from a loss of power, or without
    its disk
Z4  the version grows with every write
R2  epochs never go back, and another leader means another epoch
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.metadata import nodes, paths
from ottla.metadata.store import Change, Check, Node, NodeUpdate, Operation
from sim.cluster.store import Ensemble

Key = tuple[uuid.UUID, int]
STATE_END = "/state"
NOBODY = -1


class Violation(AssertionError):
    """A promise was broken."""


class State(NamedTuple):
    leader: int
    leader_epoch: int
    in_sync: tuple[int, ...]
    eligible: tuple[int, ...]
    unclean_epoch: int
    version: int


class Topic(NamedTuple):
    topic_id: uuid.UUID
    replicas: dict[int, tuple[int, ...]]


class States:
    def __init__(
        self,
        ensemble: Ensemble,
        on_state: Callable[[Key, State | None, State], None],
        on_removed: Callable[[Key, int], None],
    ) -> None:
        self._ensemble = ensemble
        self._on_state = on_state
        self._on_removed = on_removed
        self.by_key: dict[Key, State] = {}
        self.topics: dict[str, Topic] = {}
        self.commits = 0
        ensemble.on_commit = self._on_commit

    def find(self, topic: str, index: int) -> State | None:
        known = self.topics.get(topic)
        return None if known is None else self.by_key.get((known.topic_id, index))

    def _on_commit(self, operations: Sequence[Operation], change: Change) -> None:
        self.commits += 1
        rests_on_epoch = any(
            isinstance(one, Check) and one.path == paths.CONTROLLER_EPOCH for one in operations
        )
        states = []
        for update in change.updates:
            path = update.path
            if path.startswith(paths.TOPICS):
                if path.endswith(STATE_END):
                    states.append(update)
                else:
                    self._on_topic(update)
        for update in states:
            if update.content is not None:
                self._on_partition(update, rests_on_epoch)

    def _on_topic(self, update: NodeUpdate) -> None:
        name = update.path.removeprefix(paths.TOPICS)
        if "/" in name:
            return
        if update.content is None:
            gone = self.topics.pop(name, None)
            if gone is not None:
                for index in gone.replicas:
                    self.by_key.pop((gone.topic_id, index), None)
            return
        content = nodes.read_topic(update.path, update.content)
        known = self.topics.get(name)
        self.topics[name] = topic = Topic(content.topic_id, dict(content.replicas))
        if known is not None:
            for index, replicas in known.replicas.items():
                for replica in replicas:
                    if replica not in topic.replicas.get(index, ()):
                        self._on_removed((topic.topic_id, index), replica)

    def _on_partition(self, update: NodeUpdate, rests_on_epoch: bool) -> None:
        assert update.content is not None
        name, _, rest = update.path.removeprefix(paths.TOPICS).partition("/partitions/")
        index = int(rest.removesuffix(STATE_END))
        topic = self.topics[name]
        read = nodes.read_partition_state(update.path, update.content)
        key = (topic.topic_id, index)
        new = State(
            read.leader,
            read.leader_epoch,
            read.in_sync,
            read.eligible,
            read.unclean_epoch,
            update.version,
        )
        old = self.by_key.get(key)
        self._check(name, topic.replicas[index], old, new, rests_on_epoch)
        if old is not None:
            self._check_disks(name, key, old, new)
        self.by_key[key] = new
        self._on_state(key, old, new)

    def _check(
        self,
        name: str,
        replicas: tuple[int, ...],
        old: State | None,
        new: State,
        rests_on_epoch: bool,
    ) -> None:
        if not new.in_sync or not set(new.in_sync) <= set(replicas):
            raise Violation(f"Z2: {name}: {new.in_sync} of {replicas}")
        if new.leader != NOBODY and new.leader not in new.in_sync:
            raise Violation(f"Z2: {name}: leader {new.leader} is not in {new.in_sync}")
        if old is not None:
            self._check_step(name, old, new, rests_on_epoch)

    def _check_step(self, name: str, old: State, new: State, rests_on_epoch: bool) -> None:
        if new.version <= old.version:
            raise Violation(f"Z4: {name}: version {new.version} after {old.version}")
        if new.leader_epoch < old.leader_epoch or new.unclean_epoch < old.unclean_epoch:
            raise Violation(f"R2: {name}: {new} after {old}")
        is_new_leader = new.leader != old.leader
        if is_new_leader and new.leader_epoch == old.leader_epoch:
            raise Violation(f"R2: {name}: another leader in the same epoch: {old} -> {new}")
        if new.leader_epoch != old.leader_epoch and not rests_on_epoch:
            raise Violation(f"Z1: {name}: {old} -> {new} does not rest on the controller's epoch")
        if is_new_leader and new.leader != NOBODY:
            self._check_present(name, new.leader, "leads")
        self._check_joining(name, old, new)

    def _check_joining(self, name: str, old: State, new: State) -> None:
        for member in new.in_sync:
            if member not in old.in_sync and member != new.leader:
                if member in old.eligible and new.leader == NOBODY:
                    continue  # the best of those who are left, for when they come back
                self._check_present(name, member, "joins")

    def _check_disks(self, name: str, key: Key, old: State, new: State) -> None:
        come = [member for member in new.in_sync if member not in old.in_sync]
        if new.leader not in (NOBODY, old.leader):
            come.append(new.leader)
        for member in come:
            node = self._ensemble.nodes.get(paths.broker_id(member))
            if node is None or (member in old.eligible and new.leader == NOBODY):
                continue
            if key[1] in nodes.read_broker(name, node.content).offline.get(key[0], ()):
                raise Violation(f"Z3: {name}: broker {member} has no disk: {old} -> {new}")

    def _check_present(self, name: str, broker_id: int, what: str) -> None:
        node: Node | None = self._ensemble.nodes.get(paths.broker_id(broker_id))
        if node is None:
            # Its session has ended, and the controller does not know yet: that is a race, and
            # no harm, if the registration was checked in the commit. Gone nodes fail that check.
            raise Violation(f"Z3: {name}: broker {broker_id} {what} and is not registered")
        read = nodes.read_broker(paths.broker_id(broker_id), node.content)
        if read.fenced or read.shutting_down or read.unclean:
            raise Violation(f"Z3: {name}: broker {broker_id} {what}: {read}")
