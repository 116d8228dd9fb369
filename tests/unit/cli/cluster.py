"""A cluster in memory, as far as the group commands ask one; stands in for `Connection`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.base.ids import TopicPartition
from ottla.cli.failure import Failure
from ottla.cli.group_model import DEAD, GroupDetail, GroupSummary
from ottla.cli.model import FoundOffset, PartitionPlace, TopicPlace, TopicSummary

if TYPE_CHECKING:
    from ottla.cli.connection import Connection


@dataclass
class PlayedCluster:
    """`held`: earliest and latest offset of each partition; `leaderless`: those without a leader.

    `times`: what a look-up by time finds, where it finds anything.
    """

    held: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    details: dict[str, GroupDetail] = field(default_factory=dict)
    commits: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    times: dict[TopicPartition, int] = field(default_factory=dict)
    leaderless: set[TopicPartition] = field(default_factory=set)
    deleted: list[str] = field(default_factory=list)
    refusing: str | None = None

    def as_connection(self) -> Connection:
        return self  # type: ignore[return-value]

    def refresh(self) -> None:
        if self.refusing is not None:
            raise Failure(self.refusing)

    # ------------------------------------------------------------------------------- topics

    def topics(self) -> list[TopicSummary]:
        names = sorted({topic for topic, _ in self.held})
        return [TopicSummary(name, 1, 1, internal=False) for name in names]

    def places(self, names: Sequence[str]) -> list[TopicPlace]:
        return [
            TopicPlace(
                name,
                "id",
                internal=False,
                partitions=[
                    PartitionPlace(one[1], None if one in self.leaderless else 1, 0, [1], [1])
                    for one in sorted(self.held)
                    if one[0] == name
                ],
            )
            for name in names
        ]

    def offsets(
        self, queries: Mapping[TopicPartition, str | int], *, committed: bool = True
    ) -> dict[TopicPartition, FoundOffset | None]:
        assert not committed, "lag counts as Kafka's tool does"
        found: dict[TopicPartition, FoundOffset | None] = {}
        for one, query in queries.items():
            assert one not in self.leaderless, "nobody could answer"
            if isinstance(query, int):
                found[one] = FoundOffset(self.times[one], 0) if one in self.times else None
            else:
                found[one] = FoundOffset(self.held[one][query == "latest"], 0)
        return found

    offsets_of_living = offsets

    # ------------------------------------------------------------------------------- groups

    def group_admin(self) -> PlayedCluster:
        return self

    def groups(self) -> list[GroupSummary]:
        return [
            GroupSummary(one.group, one.state, one.protocol, simple=False)
            for one in self.details.values()
        ]

    def describe(self, groups: Sequence[str]) -> list[GroupDetail]:
        dead = {one: GroupDetail(one, DEAD, "classic", None, 1, []) for one in groups}
        return [self.details.get(one, dead[one]) for one in groups]

    def committed(self, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
        return {one: dict(self.commits.get(one, {})) for one in groups}

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.commits.setdefault(group, {}).update(offsets)

    def delete(self, group: str) -> None:
        if self.details[group].members:
            raise Failure(f"group {group}: not empty")
        self.deleted.append(group)
