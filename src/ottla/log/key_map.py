"""The latest offset of each key, in bounded memory: what a cleaning knows of the dirty section.

Keys are not kept, only 128 bits of hash and the offset, 24 bytes a key as in Kafka; a topic with
more keys than fit is cleaned in several passes. Everything is done for all keys of a chunk at once
with numpy, about 0.2 µs a key where a digest alone costs 0.5 µs. Loaded by the pool when there is
something to clean, so that a broker without compacted topics never imports numpy.

Two keys with the same hash would cost a record its life, so the hash must hold against whoever
chooses the keys. It is multilinear: the sum of a_i * x_i modulo 2^64 over the 32-bit words x_i of
the key and its length, with secret random 64-bit a_i, twice with different ones. For any two keys,
chosen without knowing the a_i, the sums agree with a probability of at most 2^-33 each, 2^-66
together (Kafka's MD5 gives no such promise: colliding keys can be bought by the minute). Longer
keys are hashed by BLAKE2b with the same secret.

Invariants: an offset is overwritten by later ones only, since records come in order; there is
always an empty slot, so that every search ends.
"""

from __future__ import annotations

import hashlib
from math import isqrt
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ottla.base.errors import check

Numbers: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Hashes: TypeAlias = npt.NDArray[np.uint64]
"""Two columns, one row a key."""

ENTRY_BYTES = 24
LOAD_FACTOR_MAX = 0.95
LOAD_WHERE_THERE_IS_ROOM = 0.5
"""Memory permitting, half of the slots stay empty, and a search takes a step or two."""

SLOTS_MIN = 5
UNKNOWN = -1

WORD_BYTES = 4
SHORT_KEY_BYTES_MAX = 64
_WORDS_MAX = SHORT_KEY_BYTES_MAX // WORD_BYTES
_LENGTH_WORD = _WORDS_MAX
"""Its coefficient is behind those of the words."""


class KeyHasher:
    """Turns keys into hashes under one secret; the same for all chunks of a cleaning."""

    __slots__ = ("_coefficients", "_secret")

    def __init__(self, secret: bytes) -> None:
        self._secret = hashlib.blake2b(secret).digest()
        stream = hashlib.shake_256(self._secret).digest((_WORDS_MAX + 1) * 2 * 8)
        self._coefficients = np.frombuffer(stream, np.uint64).reshape(_WORDS_MAX + 1, 2)

    def hash_keys(self, data: Bytes, starts: Numbers, lengths: Numbers) -> Hashes:
        """One row for each key; lengths below 0 (no key) give a row that means nothing."""
        if not len(starts):
            return np.empty((0, 2), np.uint64)
        longest = int(lengths.max())
        words = min(max(longest + WORD_BYTES - 1, 0) // WORD_BYTES, _WORDS_MAX)
        places = np.arange(words * WORD_BYTES)
        gathered = data.take(starts[:, None] + places, mode="clip")
        gathered *= places < lengths[:, None]
        hashes: Hashes = gathered.view("<u4").astype(np.uint64) @ self._coefficients[:words]
        hashes += lengths.astype(np.uint64)[:, None] * self._coefficients[_LENGTH_WORD]
        if longest > SHORT_KEY_BYTES_MAX:
            self._hash_long_keys(hashes, data, starts, lengths)
        return hashes

    def _hash_long_keys(
        self, hashes: Hashes, data: Bytes, starts: Numbers, lengths: Numbers
    ) -> None:
        for row in np.flatnonzero(lengths > SHORT_KEY_BYTES_MAX).tolist():
            start = int(starts[row])
            key = data[start : start + int(lengths[row])].tobytes()
            digest = hashlib.blake2b(key, key=self._secret, digest_size=16).digest()
            hashes[row] = np.frombuffer(digest, np.uint64)


class KeyMap:
    """`capacity` keys fit; `used` of them are taken. The caller asks for `room()` first."""

    __slots__ = ("_slots", "_table", "capacity", "used")

    def __init__(self, memory_bytes: int, load_factor: float, keys_max: int) -> None:
        """`keys_max`: how many there can be at most; a map for a few keys takes little memory."""
        load = min(max(load_factor, 0.0), LOAD_FACTOR_MAX)
        affordable = max(SLOTS_MIN, memory_bytes // ENTRY_BYTES)
        comfortable = int(keys_max / max(min(load, LOAD_WHERE_THERE_IS_ROOM), 0.01)) + 1
        # A prime number of slots: a search by any step then visits every one of them.
        self._slots = prime_near(affordable, -1)
        if comfortable < self._slots:
            self._slots = prime_near(max(SLOTS_MIN, comfortable), 1)
        self.capacity = max(1, int(self._slots * load))
        self.used = 0
        # Zeros are what the system gives without touching the memory; so an offset is stored as
        # one more than it is, and 0 is an empty slot.
        self._table: Hashes = np.zeros((self._slots, 3), np.uint64)

    def room(self) -> int:
        """How many more keys fit, if all were new."""
        return self.capacity - self.used

    def put(self, hashes: Hashes, offsets: Numbers) -> None:
        """Notes the offsets of keys, which come in the order of the log."""
        check(len(offsets) <= self.room(), "more keys than the map has room for")
        rows = np.column_stack([hashes, (offsets + 1).astype(np.uint64)])
        slots, steps = self._places(hashes)
        table = self._table
        while len(rows):
            there = table[slots]
            empty = there[:, 2] == 0
            known = _is_same(there, rows) & ~empty
            # Where an index occurs twice the last assignment stays, and that is the later offset.
            table[slots[known], 2] = rows[known, 2]
            # Of several keys that find the same empty slot one gets it; the others go on.
            table[slots[empty]] = rows[empty]
            now_there, hopeful = table[slots[empty]], rows[empty]
            self.used += int(np.count_nonzero(now_there[:, 2] == hopeful[:, 2]))
            known[empty] = _is_same(now_there, hopeful)
            unsettled = ~known
            rows = rows[unsettled]
            steps = steps[unsettled]
            slots = self._next(slots[unsettled], steps)

    def latest(self, hashes: Hashes) -> Numbers:
        """The latest offset of each key; UNKNOWN for one that was never put."""
        found = np.full(len(hashes), UNKNOWN, np.int64)
        waiting = np.arange(len(hashes))
        slots, steps = self._places(hashes)
        while len(waiting):
            there = self._table[slots]
            same = _is_same(there, hashes) & (there[:, 2] != 0)
            found[waiting[same]] = there[same, 2].astype(np.int64) - 1
            going_on = ~same & (there[:, 2] != 0)
            waiting = waiting[going_on]
            hashes = hashes[going_on]
            steps = steps[going_on]
            slots = self._next(slots[going_on], steps)
        return found

    def _places(self, hashes: Hashes) -> tuple[Numbers, Numbers]:
        """Where to look first, and how far to go from there each time."""
        slots = (hashes[:, 0] % np.uint64(self._slots)).astype(np.int64)
        steps = (hashes[:, 1] % np.uint64(self._slots - 1)).astype(np.int64) + 1
        return slots, steps

    def _next(self, slots: Numbers, steps: Numbers) -> Numbers:
        slots = slots + steps
        slots[slots >= self._slots] -= self._slots
        return slots


def _is_same(there: Hashes, rows: Hashes) -> npt.NDArray[np.bool_]:
    same: npt.NDArray[np.bool_] = (there[:, 0] == rows[:, 0]) & (there[:, 1] == rows[:, 1])
    return same


def prime_near(number: int, step: int) -> int:
    """`number` if it is prime, else the next one upwards (step 1) or downwards (step -1)."""
    while any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number += step
    return number
