"""What can go wrong while consuming, beside what every client knows (`errors`)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.ids import TopicPartition
from ottla.client.errors import BrokerError, ClientError

__all__ = [
    "CommitFailedError",
    "CorruptBatchError",
    "DeserializationError",
    "LogTruncatedError",
    "NoOffsetError",
    "NotAssignedError",
    "OffsetOutOfRangeError",
]


class NotAssignedError(ClientError):
    """The partition is not (or no longer) assigned to this consumer."""


class NoOffsetError(ClientError):
    """The group has committed nothing, and `auto.offset.reset` is none: seek, or set it."""

    def __init__(self, partitions: list[TopicPartition]) -> None:
        self.partitions = partitions
        named = ", ".join(f"{topic}-{partition}" for topic, partition in partitions)
        super().__init__(
            f"no offset to begin with for {named}, and auto.offset.reset is none: seek, or set it"
        )


class OffsetOutOfRangeError(ClientError):
    """There is no such offset (any more), and `auto.offset.reset` is none: seek, or set it."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets = dict(offsets)
        named = ", ".join(
            f"{offset} of {topic}-{partition}" for (topic, partition), offset in offsets.items()
        )
        super().__init__(f"no such offset: {named}; auto.offset.reset is none: seek, or set it")


class LogTruncatedError(ClientError):
    """Records that were read are no longer in the log: a leader was elected that did not have
    them. `offsets` says where what is left agrees with what was read; seek there."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets = dict(offsets)
        named = ", ".join(
            f"{topic}-{partition} from {offset} on"
            for (topic, partition), offset in offsets.items()
        )
        super().__init__(f"what was read is no longer in the log: {named}")


class CorruptBatchError(ClientError):
    """A batch cannot be read. It stays where it is: `seek` behind it to go on without it."""

    def __init__(self, partition: TopicPartition, offset: int, reason: str) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(f"{partition[0]}-{partition[1]} at offset {offset}: {reason}")


class DeserializationError(ClientError):
    """`key.deserializer` or `value.deserializer` raised (`__cause__` says what). Records before
    this one have been handed out; `seek` behind `offset` to go on without it."""

    def __init__(self, partition: TopicPartition, offset: int, cause: Exception) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(
            f"{partition[0]}-{partition[1]} at offset {offset} cannot be deserialized:"
            f" {type(cause).__name__}: {cause}; seek behind it to go on without it"
        )


class CommitFailedError(BrokerError):
    """The group goes on without this member: its partitions may be read by others already, so what
    it did since its last commit will be done again. Poll more often, or take less at a time.

    It says that the last attempt was refused. `commit` tries again where an answer was lost, and an
    attempt before may have been stored: `committed` tells where the group is."""
