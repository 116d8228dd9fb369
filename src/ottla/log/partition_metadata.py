"""`partition.metadata`: the topic id of a partition directory.

Two lines, the second without a line end, as Kafka writes them.
"""

from __future__ import annotations

import base64
import binascii
import uuid

from ottla.base.errors import StorageError
from ottla.base.ports import Files
from ottla.log import file_names
from ottla.log.storage_errors import storing


def read_partition_metadata(files: Files, directory: str) -> uuid.UUID | None:
    """The topic id; None if there is no such file, or an empty one (see below)."""
    path = f"{directory}/{file_names.PARTITION_METADATA}"
    with storing(path, "read"):
        if not files.exists(path):
            return None
        content = files.read(path)
    if not any(content):
        return None
    topic_id = decode(content)
    if topic_id is None:
        raise StorageError(path, "parse")
    return topic_id


def write_partition_metadata(files: Files, directory: str, topic_id: uuid.UUID) -> None:
    """Not synced, since ten thousand syncs would make the first start of a big topic take a
    minute: after a power cut the file of a new partition may be missing or empty. The first flush
    of the log syncs it."""
    path = f"{directory}/{file_names.PARTITION_METADATA}"
    with storing(path, "write"):
        file = files.open(path, create=True)
        file.truncate(0)
        file.append([encode(topic_id)])
        file.close()


def encode(topic_id: uuid.UUID) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def decode(content: bytes) -> uuid.UUID | None:
    lines = content.decode("ascii", "replace").splitlines()
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    if fields.get("version") != "0":
        return None
    return parse_uuid(fields.get("topic_id", ""))


def uuid_text(value: uuid.UUID) -> str:
    """Kafka's way to write a UUID: 22 characters of URL-safe base 64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def parse_uuid(text: str) -> uuid.UUID | None:
    try:
        raw = base64.urlsafe_b64decode(text + "==")
    except (ValueError, binascii.Error):
        return None
    return uuid.UUID(bytes=raw) if len(raw) == 16 else None
