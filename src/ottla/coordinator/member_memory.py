"""How much the members of all groups of a broker may hold in memory together.

Kafka knows no such bound: whoever may join a group can fill the broker with metadata and with
member ids that nobody uses. The room for one member shrinks with what is left, so that those who
send much are refused long before those who send little. Who is refused may try again later.

Each shard counts for itself, since shards are loaded in threads, several at a time: a sum that all
of them change would lose some of it. Only who asks for room adds up.
"""

from __future__ import annotations

MEMORY_BYTES_MAX = 256 * 1024 * 1024

# Objects, timers and names besides the metadata, in a group of its own; measured with tracemalloc.
MEMBER_BYTES = 4096
PENDING_BYTES = 2048

# One member may take so much of what is left.
_SHARE = 16


class BrokerMemory:
    """What the shards of a broker hold. Shards come and go on the loop's thread."""

    __slots__ = ("_shards",)

    def __init__(self) -> None:
        self._shards: list[MemberMemory] = []

    @property
    def held(self) -> int:
        return sum(shard.held for shard in self._shards)

    def add(self, shard: MemberMemory) -> None:
        self._shards.append(shard)

    def remove(self, shard: MemberMemory) -> None:
        if shard in self._shards:
            self._shards.remove(shard)


class MemberMemory:
    """What one shard holds, and the way to all others of its broker."""

    __slots__ = ("_broker", "held")

    def __init__(self, broker: BrokerMemory | None = None) -> None:
        self.held = 0
        self._broker = broker or BrokerMemory()
        self._broker.add(self)

    def has_room_for(self, size: int) -> bool:
        return size * _SHARE <= MEMORY_BYTES_MAX - self._broker.held

    def give_back(self) -> None:
        """The shard is gone, with all that it held."""
        self._broker.remove(self)
