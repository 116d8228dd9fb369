"""A query's progress as a consumer group's, so that every lag tool sees it.

For people to look at: a query never reads its position from here (except by startingOffsets=group),
and a commit that fails costs a warning, not the query. Each commit is signed with the query that
made it. Two queries in one group would each hide the other's lag, so the younger is refused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ottla.base.errors import OttlaError
from ottla.spark.cluster_view import ClusterView, Committed
from ottla.spark.errors import OptionError
from ottla.spark.offsets import ByPartition, Position

log = logging.getLogger(__name__)

_MARK = "ottla-spark/"
# Brokers forget offsets that nobody commits for a week (offsets.retention.minutes), and partitions
# may be idle for longer.
RENEW_SECONDS = 24 * 3600.0


class GroupOffsets:
    """`look_around` is for groups that people have named: others have one query by construction.
    `only_forward` is for who hears of batches later than the query's own source, which commits as
    well: what that has committed is not taken back."""

    def __init__(
        self,
        view: ClusterView,
        group_id: str,
        query: str,
        *,
        look_around: bool = False,
        only_forward: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.group_id = group_id
        self._view = view
        self._signature = _MARK + query
        self._look_around = look_around
        self._only_forward = only_forward
        self._kept: ByPartition = {}
        self._clock = clock
        self._renewal_due = clock()

    def keep(self, position: Position) -> bool:
        """Commit what is new in `position`; whether the group is where the query is."""
        is_due = self._clock() >= self._renewal_due
        changed = {
            place: offset
            for place, offset in position.next_offsets.items()
            if is_due or self._kept.get(place) != offset
        }
        if not changed:
            return True
        try:
            if self._look_around and self._kept:
                self._refuse_company()
            told = self._not_behind(changed) if self._only_forward else changed
            if told:
                self._view.commit(
                    self.group_id,
                    {place: Committed(offset, self._signature) for place, offset in told.items()},
                )
        except OptionError:
            raise
        except OttlaError as failure:
            log.warning("offsets of group %s not committed: %s", self.group_id, failure)
            return False
        self._kept.update(changed)
        if is_due:
            self._renewal_due = self._clock() + RENEW_SECONDS
        return True

    def _not_behind(self, offsets: ByPartition) -> ByPartition:
        """Those that this query has not passed already, by the group's own word."""
        known = self._view.committed(self.group_id, list(offsets))
        return {
            place: offset
            for place, offset in offsets.items()
            if place not in known
            or known[place].metadata != self._signature
            or known[place].offset <= offset
        }

    def _refuse_company(self) -> None:
        """What this query has committed was signed over by an older one: that one is alive."""
        found = self._view.committed(self.group_id, list(self._kept))
        for one in found.values():
            if one.metadata.startswith(_MARK) and one.metadata < self._signature:
                raise OptionError(
                    f"another query commits its offsets to group {self.group_id}, or another "
                    "source of this one those of the same topic: give this one another "
                    "kafka.group.id, or leave the option out"
                )
