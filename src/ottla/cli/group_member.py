"""From the options of `ottla consume --group` to a member that leaves its group cleanly.

SIGINT, SIGTERM and SIGHUP end it in order: what is committed is shown, what is shown is committed,
the group is left. A second SIGINT ends it at once.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import typer

from ottla.cli.group_consume import Consumption, GroupConsuming, Ownership
from ottla.cli.group_model import Membership
from ottla.cli.output import note, until_nobody_reads
from ottla.cli.positions import End
from ottla.cli.record_format import RecordFormat
from ottla.cli.starting_points import find_offsets, partitions_of

if TYPE_CHECKING:
    from ottla.cli.connection import Connection

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def consume_in_group(
    connection: Connection,
    membership: Membership,
    topics: Sequence[str],
    write: RecordFormat,
    consumption: Consumption,
    *,
    follow: bool,
    all_: bool,
) -> None:
    """`all_`: with records of open and aborted transactions."""
    partitions = partitions_of(connection.places(topics), None)
    if not follow:
        found = find_offsets(connection, partitions, End(), committed=not all_)
        consumption.ends = {one: stretch.latest for one, stretch in found.items()}
    ownership = Ownership(consumption)
    reader = connection.group_reader(membership, ownership, committed=not all_)
    work = GroupConsuming(reader, ownership, write, sys.stdout.buffer, consumption)
    with ended_by_signals(work) as signals:
        try:
            reader.subscribe(topics)
            with until_nobody_reads():
                work.run()
        finally:
            reader.close()
            if consumption.verbose:
                note(_farewell(membership))
    if signals and not follow:
        # With --follow a signal is how it ends; without, whoever waits for it should know.
        raise typer.Exit(128 + signals[0])


def _farewell(membership: Membership) -> str:
    """A static member that ends does not leave: it may only be starting again."""
    if membership.instance_id is None:
        return f"left group {membership.group}"
    return f"away from group {membership.group}; instance {membership.instance_id} keeps its place"


@contextmanager
def ended_by_signals(work: GroupConsuming) -> Iterator[list[int]]:
    """Gives the list of signals that came."""
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if came and number == signal.SIGINT:
            raise KeyboardInterrupt
        came.append(number)
        work.stopping = True

    # Who ignores one (nohup, a shell's background) means it.
    heard = [one for one in ENDINGS if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
