"""`.kafka_cleanshutdown`: the log dir was closed in order, nothing has to be recovered.

Kafka 4.3 writes `{"version":0,"brokerEpoch":11}` into it; the snapshots of its source from 2024 had
strings and `broker_epoch`. Both are read; an unreadable or empty one still says "clean", as older
versions left it empty. It is removed, for good, before anything is written to the dir.
"""

from __future__ import annotations

import json

from ottla.base.ports import Files
from ottla.log.storage_errors import storing

FILE_NAME = ".kafka_cleanshutdown"
NO_EPOCH = -1


def write_marker(files: Files, log_dir: str, broker_epoch: int = NO_EPOCH) -> None:
    """The last thing a broker writes, after the checkpoints."""
    path = f"{log_dir}/{FILE_NAME}"
    with storing(path, "write"):
        files.write_atomic(path, f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode())


def has_marker(files: Files, log_dir: str) -> bool:
    with storing(log_dir, "read"):
        return files.exists(f"{log_dir}/{FILE_NAME}")


def read_broker_epoch(files: Files, log_dir: str) -> int:
    """The epoch of the broker that stopped cleanly; -1 if it is not known."""
    path = f"{log_dir}/{FILE_NAME}"
    with storing(path, "read"):
        if not files.exists(path):
            return NO_EPOCH
        content = files.read(path)
    try:
        fields = json.loads(content)
        return int(fields.get("brokerEpoch", fields.get("broker_epoch", NO_EPOCH)))
    except (ValueError, AttributeError, TypeError):
        return NO_EPOCH


def remove_marker(files: Files, log_dir: str) -> None:
    """Before the first write: synced, or a later power cut would look like a clean stop."""
    path = f"{log_dir}/{FILE_NAME}"
    with storing(path, "remove"):
        if files.exists(path):
            files.remove(path)
            files.sync_dir(log_dir)
