"""Which producers a leader has been told to take transactional batches from.

A batch of a transaction may be appended when its coordinator has said that the partition is in the
open transaction. That is asked once and remembered here, for one leadership: whoever leads next has
been told nothing and asks again. A marker ends what was said; so does the coordinator itself, when
a transaction is prepared (`revoke`): the next write has to ask, and is refused there.

A question takes time, and what it was about may end meanwhile. So it begins with a ticket, and a
yes to a ticket that has been torn up counts for nothing. Nothing here is in any file.
"""

from __future__ import annotations


class Admissions:
    __slots__ = ("_epochs", "_leader_epoch", "_ticket_last", "_tickets")

    def __init__(self) -> None:
        self._leader_epoch = -1
        self._epochs: dict[int, int] = {}
        """Producer id to the epoch in which it may write."""
        self._tickets: dict[int, int] = {}
        self._ticket_last = 0

    def has(self, leader_epoch: int, producer_id: int, producer_epoch: int) -> bool:
        return (
            self._epochs.get(producer_id) == producer_epoch and self._leader_epoch == leader_epoch
        )

    def ask(self, leader_epoch: int, producer_id: int) -> int:
        """A ticket for one question; all that are asked at the same time share it."""
        if leader_epoch != self._leader_epoch:
            self.clear()
            self._leader_epoch = leader_epoch
        ticket = self._tickets.get(producer_id)
        if ticket is None:
            self._ticket_last = ticket = self._ticket_last + 1
            self._tickets[producer_id] = ticket
        return ticket

    def admit(self, leader_epoch: int, producer_id: int, producer_epoch: int, ticket: int) -> bool:
        """The answer was yes; whether it still counts."""
        if leader_epoch != self._leader_epoch:
            return False
        if self._tickets.get(producer_id) != ticket:
            # Another question of the same time may have been answered first.
            return self._epochs.get(producer_id) == producer_epoch
        del self._tickets[producer_id]
        self._epochs[producer_id] = producer_epoch
        return True

    def refuse(self, producer_id: int, ticket: int) -> None:
        """The answer was no. Others that share the ticket have to ask again."""
        if self._tickets.get(producer_id) == ticket:
            del self._tickets[producer_id]

    def revoke(self, producer_id: int) -> None:
        """What was said of this producer counts no longer, nor what is being asked."""
        self._epochs.pop(producer_id, None)
        self._tickets.pop(producer_id, None)

    def clear(self) -> None:
        self._epochs.clear()
        self._tickets.clear()

    def __len__(self) -> int:
        return len(self._epochs) + len(self._tickets)
