"""Writes the in-sync sets that leaders propose: all of one turn of the loop in one commit."""

from __future__ import annotations

from typing import Protocol

from ottla.base.deferred import Deferred
from ottla.replication.effects import InSyncOutcome, InSyncProposal


class InSyncDoor(Protocol):
    """What a partition's driver needs of the writer."""

    def propose(self, proposal: InSyncProposal) -> Deferred[InSyncOutcome]:
        """Never fails: what went wrong is an outcome."""
        ...
