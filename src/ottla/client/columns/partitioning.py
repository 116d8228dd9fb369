"""Which partition each row of a table goes to: murmur2 of a whole column of keys at once.

The same placement as the producer's for single records and as the Java client's. All keys take
their steps of four bytes together, 0.1 µs a key of 16 bytes; the few long ones are hashed one by
one, or everybody would wait for the longest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.client.murmur2 import MULTIPLIER, SEED, murmur2
from ottla.records.columns import Numbers

Hashes = npt.NDArray[np.uint32]

TOGETHER_BYTES_MAX = 256


_MULTIPLIER = np.uint32(MULTIPLIER)


def partitions_of_keys(keys: pa.Array, partition_count: int) -> Numbers:
    """The partition of each key; -1 where it is null."""
    partitions: Numbers = ((murmur2_of(keys) & 0x7FFFFFFF) % partition_count).astype(np.int64)
    if keys.null_count:
        partitions[keys.is_null().to_numpy(zero_copy_only=False)] = -1
    return partitions


def murmur2_of(keys: pa.Array) -> Hashes:
    """Of each key of a binary array; of nulls whatever comes out."""
    _, edges_buffer, data_buffer = keys.buffers()
    rows = len(keys)
    edges = np.frombuffer(edges_buffer, np.int32)[keys.offset : keys.offset + rows + 1]
    starts, lengths = edges[:-1].astype(np.int64), np.diff(edges)
    packed = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0)
    if lengths.max(initial=0) <= TOGETHER_BYTES_MAX:
        return _hash_together(packed, starts, lengths)
    is_short = lengths <= TOGETHER_BYTES_MAX
    hashes: Hashes = np.empty(rows, np.uint32)
    hashes[is_short] = _hash_together(packed, starts[is_short], lengths[is_short])
    for row in np.flatnonzero(~is_short).tolist():
        hashes[row] = murmur2(packed[starts[row] : edges[row + 1]].tobytes())
    return hashes


def _hash_together(packed: Any, starts: Numbers, lengths: npt.NDArray[np.int32]) -> Hashes:
    hashes: Hashes = np.uint32(SEED) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    rows = np.flatnonzero(words)
    step = 0
    while len(rows):
        everybody = len(rows) == len(hashes)
        at = (starts if everybody else starts[rows]) + 4 * step
        word = _word_at(packed, at)
        word *= _MULTIPLIER
        word ^= word >> 24
        word *= _MULTIPLIER
        if everybody:
            hashes *= _MULTIPLIER
            hashes ^= word
        else:
            hashes[rows] = hashes[rows] * _MULTIPLIER ^ word
        step += 1
        rows = rows[words[rows] > step]
    _add_rest(packed, starts, lengths, hashes)
    hashes ^= hashes >> 13
    hashes *= _MULTIPLIER
    hashes ^= hashes >> 15
    return hashes


def _word_at(packed: Any, at: Numbers) -> Hashes:
    word: Hashes = packed[at].astype(np.uint32)
    for place in (1, 2, 3):
        word |= packed[at + place].astype(np.uint32) << (8 * place)
    return word


def _add_rest(packed: Any, starts: Numbers, lengths: npt.NDArray[np.int32], hashes: Hashes) -> None:
    """The one, two or three bytes behind the last whole word."""
    rests = lengths & 3
    behind = starts + (lengths & ~3)
    for place in (2, 1, 0):
        rows = np.flatnonzero(rests > place)
        hashes[rows] ^= packed[behind[rows] + place].astype(np.uint32) << (8 * place)
    rows = np.flatnonzero(rests)
    hashes[rows] *= _MULTIPLIER
