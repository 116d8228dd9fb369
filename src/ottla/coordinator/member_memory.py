"""How much the members of all groups of a broker may hold in memory together.

Kafka knows no such bound: whoever may join a group can fill the broker with metadata and with
member ids that nobody uses. The room for one member shrinks with what is left, so that those who
send much are refused long before those who send little. Who is refused may try again later.
"""

from __future__ import annotations

MEMORY_BYTES_MAX = 256 * 1024 * 1024

# Objects, timers and names besides the metadata, in a group of its own; measured with tracemalloc.
MEMBER_BYTES = 4096
PENDING_BYTES = 2048

# One member may take so much of what is left.
_SHARE = 16


class MemberMemory:
    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = 0

    def has_room_for(self, size: int) -> bool:
        return size * _SHARE <= MEMORY_BYTES_MAX - self.held
