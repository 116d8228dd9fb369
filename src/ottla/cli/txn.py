"""`ottla txn`: see transactions, end those that are in the way, find those that nobody will end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli import txn_hanging, txn_view
from ottla.cli.admin_door import open_admin
from ottla.cli.failure import Failure
from ottla.cli.group_reset import parse_duration
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    Bootstrap,
    CommandConfig,
    Output,
    Yes,
    command_group,
    complete_topic,
    confirm,
)
from ottla.cli.output import OutputFormat, note, plural, print_json
from ottla.cli.tables import print_table

if TYPE_CHECKING:
    from ottla.client.admin import Admin

app = command_group("See transactions, and end those that are in the way.")

# Kafka's transaction.max.timeout.ms: what was silent for longer should be over.
QUIET_DEFAULT = "15m"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@app.command("list")
def list_transactions(
    *,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only those (Ongoing, Empty, ...); repeatable."),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            max=2**63 - 1,
            metavar="ID",
            help="Only those of this producer id; repeatable.",
        ),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Only those open for longer, such as 90s or PT1H."),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """List transactional ids: where their transactions stand, and who coordinates them.

    \b
    Examples:
      ottla txn list
      ottla txn list --state Ongoing --longer-than 5m
      ottla txn list --producer-id 4000 --output json
    """
    longer_than_ms = -1 if longer_than is None else _duration(longer_than, "--longer-than")
    states = [_state(text) for text in state or ()]
    with open_admin(bootstrap, command_config) as admin:
        found = admin.list_transactions(states, producer_id or (), longer_than_ms=longer_than_ms)
    if output is OutputFormat.json:
        print_json(
            [
                {"transactional_id": one.transactional_id, "state": one.state}
                | {"producer_id": one.producer_id, "coordinator": one.coordinator}
                for one in found
            ]
        )
        return
    print_table(
        ["TRANSACTIONAL ID", "STATE", "PRODUCER", "COORDINATOR"],
        [(one.transactional_id, one.state, one.producer_id, one.coordinator) for one in found],
    )


@app.command()
def describe(
    transactional_ids: Annotated[
        list[str], typer.Argument(metavar="ID", help="One or more transactional ids.")
    ],
    *,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Show transactions: producer, time-out, since when they are open, and in which partitions.

    \b
    Examples:
      ottla txn describe billing-1
      ottla txn describe billing-1 billing-2 --output json
    """
    with open_admin(bootstrap, command_config) as admin:
        described = txn_view.describe(admin, transactional_ids, now_ms())
    if output is OutputFormat.json:
        print_json(described)
    else:
        txn_view.show(described)


@app.command()
def abort(
    transactional_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="The transactional id.")
    ] = None,
    *,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", "-t", help="Where a transaction hangs.", autocompletion=complete_topic
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="The same.")
    ] = None,
    start_offset: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="Where it begins.")
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Abort a transaction: what is open under an id, or what hangs in a partition.

    By ID, its coordinator aborts what is open, prepared or not, and fences the producer: should it
    still live, its next request fails. By --topic, --partition and --start-offset an abort marker
    is written into that partition, for what `ottla txn find-hanging` found. Asks first on a
    terminal.

    \b
    Examples:
      ottla txn abort billing-1
      ottla txn abort --topic bills --partition 2 --start-offset 1041
    """
    where = (topic, partition, start_offset)
    if (transactional_id is None) == all(part is None for part in where):
        raise typer.BadParameter("give an ID, or --topic, --partition and --start-offset")
    if transactional_id is None and None in where:
        raise typer.BadParameter("--topic, --partition and --start-offset go together")
    with open_admin(bootstrap, command_config) as admin:
        if topic is not None and partition is not None and start_offset is not None:
            document = _abort_at(admin, topic, partition, start_offset, yes)
        else:
            document = _abort_id(admin, transactional_id or "", yes)
    if output is OutputFormat.json:
        print_json(document)
    elif document["aborted"]:
        print(f"aborted {document['what']}")
    else:
        print(f"nothing is open under {document['what']}")


def _abort_id(admin: Admin, name: str, yes: bool) -> dict[str, object]:
    before = txn_view.existing(admin, name)
    is_aborted = False
    if before.state == "PrepareCommit":
        raise Failure(f"the transaction of {name} is already decided: commit")
    if before.state in txn_view.OPEN_STATES:
        many = plural(len(before.partitions), "partition")
        confirm(f"Abort the transaction of {name} in {many} and fence its producer?", yes)
        is_aborted = admin.abort_transaction(name)
        if not is_aborted:
            raise Failure(f"the transaction of {name} was ended meanwhile by its producer")
    return {"what": name, "aborted": is_aborted, "state_before": before.state}


def _abort_at(
    admin: Admin, topic: str, partition: int, start_offset: int, yes: bool
) -> dict[str, object]:
    one = txn_hanging.the_one_at(admin, (topic, partition), start_offset)
    what = f"{topic}-{partition} from offset {start_offset}"
    confirm(f"Write an abort marker of producer {one.producer_id} into {what}?", yes)
    admin.abort_hanging_transaction(
        (topic, partition), one.producer_id, one.producer_epoch, one.coordinator_epoch
    )
    return {"what": what, "aborted": True, "producer_id": one.producer_id}


@app.command("find-hanging")
def find_hanging(
    *,
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", help="Only this topic.", autocompletion=complete_topic),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Only this one of the topic.")
    ] = None,
    broker: Annotated[
        int | None, typer.Option(min=0, metavar="ID", help="Only what this broker leads.")
    ] = None,
    quiet: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Written to within so long: it is not looked at."),
    ] = QUIET_DEFAULT,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Find transactions that are open in a partition while no coordinator will end them.

    They hold back read_committed readers for ever. Ottla lets none in; clusters that were upgraded
    may have some. What is found can be ended with `ottla txn abort`.

    \b
    Examples:
      ottla txn find-hanging
      ottla txn find-hanging --topic bills --quiet 1h
    """
    quiet_ms = _duration(quiet, "--quiet")
    if partition is not None and topic is None:
        raise typer.BadParameter("goes with --topic", param_hint="--partition")
    with open_admin(bootstrap, command_config) as admin:
        places = txn_hanging.partitions_of(admin, topic, partition, broker)
        now = now_ms()
        found = txn_hanging.find_hanging(admin, places, now, quiet_ms)
    documents = [txn_view.hanging_document(one, now) for one in found]
    if output is OutputFormat.json:
        print_json(documents)
    elif documents:
        txn_view.show_hanging(documents)
        note(
            "end one with: ottla txn abort --topic TOPIC --partition PARTITION --start-offset START"
        )
    else:
        note(f"nothing hangs in {plural(len(places), 'partition')}")


def _state(text: str) -> str:
    """As coordinators spell it: they find nothing under another spelling, and do not mind."""
    for name in txn_view.STATES:
        if name.lower() == text.lower():
            return name
    known = ", ".join(txn_view.STATES)
    raise typer.BadParameter(f"{text} is none of {known}", param_hint="--state")


def _duration(text: str, option: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as cause:
        raise typer.BadParameter(str(cause), param_hint=option) from cause
