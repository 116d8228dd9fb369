"""T4: what nobody ends is ended by its time-out, in every partition and at the coordinators."""

from __future__ import annotations

from collections.abc import Collection

from ottla.client import Admin
from ottla.client.admin_values import LATEST
from tests.compat.nodes import wait_until

ENDED = {"Empty", "CompleteCommit", "CompleteAbort"}


def until_nothing_is_open(
    bootstrap: str, places: Collection[tuple[str, int]], seconds: float
) -> None:
    """Every transaction has ended, and readers of what is committed may go to each log's end."""
    wanted = dict.fromkeys(places, LATEST)
    with Admin(bootstrap_servers=bootstrap) as admin:

        def is_over() -> bool:
            states = {one.state for one in admin.list_transactions()}
            stable = admin.list_offsets(wanted, committed=True)
            offsets = [None if one is None else one.offset for one in stable.values()]
            written = admin.list_offsets(wanted).values()
            return states <= ENDED and offsets == [one and one.offset for one in written]

        wait_until(is_over, seconds, "nothing is left open")
