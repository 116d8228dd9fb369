"""Numbers and names that must not be mixed, each with a type of its own."""

from __future__ import annotations

from typing import NewType

BrokerId = NewType("BrokerId", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
FilePosition = NewType("FilePosition", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)

TopicPartition = tuple[str, int]
"""A topic name and a partition index; a plain tuple, because it is a key on the hot path."""

NO_BROKER = BrokerId(-1)
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_TIMESTAMP = -1
