"""What clients asked for and what they were told: by this the world is judged.

An `Attempt` is one transaction as its client sees it. Its records say which attempt they are of, so
that whatever a reader finds can be held against what was asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.base.ids import TopicPartition


class Violation(Exception):
    """One of P1-P3, T1-T4 does not hold."""


@dataclass
class Attempt:
    number: int
    name: str
    may_be_committed: bool = False
    is_committed: bool = False
    is_aborted: bool = False
    offset: int = -1
    written: dict[bytes, TopicPartition] = field(default_factory=dict)
    """Records that were acknowledged."""
    forbidden: set[bytes] = field(default_factory=set)
    """Records that were sent after it had been prepared."""
    sent: int = 0

    def next_value(self) -> bytes:
        self.sent += 1
        return b"%d/%d" % (self.number, self.sent)


class Ledger:
    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.forgotten: dict[str, int] = {}
        """Transactional ids that were asked to be forgotten, each with its producer id."""

    def begin(self, name: str) -> Attempt:
        attempt = Attempt(len(self.attempts), name)
        self.attempts.append(attempt)
        return attempt

    def of(self, value: bytes) -> Attempt:
        return self.attempts[int(value.split(b"/")[0])]

    # -- what clients are told --------------------------------------------------------------

    def on_committed(self, attempt: Attempt) -> None:
        if attempt.is_aborted:
            raise Violation(f"T1: {attempt.number} was told to be aborted, and then committed")
        attempt.is_committed = True

    def on_aborted(self, attempt: Attempt) -> None:
        if attempt.is_committed:
            raise Violation(f"T1: {attempt.number} was told to be committed, and then aborted")
        attempt.is_aborted = True

    # -- what readers see -------------------------------------------------------------------

    def on_seen(self, place: TopicPartition, values: list[bytes]) -> None:
        """What read_committed shows of a partition, from its beginning."""
        if len(set(values)) != len(values):
            raise Violation(f"P1: {place} shows something twice")
        for value in values:
            attempt = self.of(value)
            if not attempt.may_be_committed or attempt.is_aborted:
                raise Violation(f"T2: {place} shows {value!r} of a transaction nobody committed")
            if value in attempt.forbidden:
                raise Violation(f"T3: {place} shows {value!r}, sent after it was prepared")

    def on_offset_seen(self, name: str, offset: int) -> None:
        if offset < 0:
            return
        attempt = self.attempts[offset]
        if attempt.name != name or not attempt.may_be_committed or attempt.is_aborted:
            raise Violation(f"T2: {name} shows offset {offset} that nobody committed")

    def check_rest(self, seen: dict[TopicPartition, set[bytes]], offsets: dict[str, int]) -> None:
        """T1: all of a transaction or nothing, and all of what was told to be committed."""
        last: dict[str, int] = {}
        for attempt in self.attempts:
            shown = [value for value, place in attempt.written.items() if value in seen[place]]
            if attempt.is_committed and len(shown) != len(attempt.written):
                raise Violation(f"T1: {attempt.number} was committed, {shown} of it is seen")
            if shown and len(shown) != len(attempt.written):
                raise Violation(f"T1: {attempt.number} is torn, {shown} of it is seen")
            is_whole = attempt.is_committed or bool(shown)
            if attempt.offset >= 0 and attempt.written:
                held = offsets.get(attempt.name, -1)
                if is_whole and held < attempt.offset:
                    raise Violation(f"T1: {attempt.number} is seen, its offset is not: {held}")
                if not is_whole and held == attempt.offset:
                    raise Violation(f"T1: the offset of {attempt.number} is seen, it is not")
                last[attempt.name] = held
