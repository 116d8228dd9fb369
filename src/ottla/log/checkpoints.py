"""The offset checkpoints of a log dir, in Kafka's text form.

Version, number of entries, then `topic partition offset`, each on a line.

- `recovery-point-offset-checkpoint`: below it everything is on the disk.
- `log-start-offset-checkpoint`: partitions whose log does not start at 0. What lies below was
  deleted, and is not taken up again.
- `replication-offset-checkpoint`: high watermarks.
- `cleaner-offset-checkpoint`: up to where compacted partitions have been cleaned.
- `ottla.scrub.checkpoint`: no offsets, but when partitions were last looked over, in ms since 1970.

Written as a whole, atomically. A file that can not be read is an error, not an empty one: taking a
lost log start for 0 would show deleted records again.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.errors import StorageError
from ottla.base.ids import TopicPartition
from ottla.base.ports import Files
from ottla.log.storage_errors import storing

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
SCRUB_TIMES = "ottla.scrub.checkpoint"

VERSION = 0


def read_checkpoint(files: Files, log_dir: str, name: str) -> dict[TopicPartition, int]:
    """The offsets in the checkpoint `name` of a log dir; none if there is no such file yet."""
    path = f"{log_dir}/{name}"
    with storing(path, "read"):
        if not files.exists(path):
            return {}
        content = files.read(path)
    offsets = decode(content)
    if offsets is None:
        raise StorageError(path, "parse")
    return offsets


def write_checkpoint(
    files: Files, log_dir: str, name: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """On the disk when it returns. May run in the pool, but not twice at once for one file."""
    path = f"{log_dir}/{name}"
    with storing(path, "write"):
        files.write_atomic(path, encode(offsets))


def encode(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [str(VERSION), str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return ("\n".join(lines) + "\n").encode()


def decode(content: bytes) -> dict[TopicPartition, int] | None:
    """None if it is not a checkpoint. An empty file is one without entries: Kafka makes those."""
    if not content:
        return {}
    try:
        lines = content.decode("ascii").splitlines()
        if int(lines[0]) != VERSION:
            return None
        offsets: dict[TopicPartition, int] = {}
        for line in lines[2:]:
            topic, partition, offset = line.split()
            offsets[topic, int(partition)] = int(offset)
        if len(offsets) != int(lines[1]):
            return None
    except (ValueError, IndexError):
        return None
    return offsets
