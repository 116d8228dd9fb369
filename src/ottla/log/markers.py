"""Reads the one record of a control batch: which way a transaction ended."""

from __future__ import annotations

import struct

from ottla.base.errors import ProtocolError
from ottla.base.ports import Buffer
from ottla.log.producer_state import Marker
from ottla.records.batch_view import records_of

KEY = struct.Struct(">hh")
VALUE = struct.Struct(">hi")
ABORT = 0
COMMIT = 1

CONTROL_BATCH_BYTES_MAX = 1024


def read_marker(batch: Buffer) -> Marker | None:
    """None for a control batch without a record, and for control records of other kinds."""
    try:
        record = next(records_of(batch, CONTROL_BATCH_BYTES_MAX), None)
    except ProtocolError:
        return None
    if record is None or record.key is None or len(record.key) < KEY.size:
        return None
    kind = KEY.unpack_from(record.key, 0)[1]
    if kind not in (ABORT, COMMIT) or record.value is None or len(record.value) < VALUE.size:
        return None
    return Marker(kind == ABORT, VALUE.unpack_from(record.value, 0)[1])
