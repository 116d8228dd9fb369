"""`ottla cluster`: several brokers on this machine, and what can be done to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.addresses import parse_addresses
from ottla.cli.options import Output, command_group, parse_pairs
from ottla.cli.output import OutputFormat

app = command_group("A cluster of several brokers on this machine, coordinated by ZooKeeper.")

DATA_DEFAULT = Path("ottla-cluster")

Data = Annotated[
    Path,
    typer.Option("--data", metavar="DIR", help="The cluster's directory, by which it is found."),
]
BrokerId = Annotated[int, typer.Argument(metavar="ID", help="The broker's id, from 1 on.")]
Override = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A setting for every broker; repeatable."),
]


@app.command()
def up(
    brokers: Annotated[int, typer.Option(min=1, max=99, help="How many brokers.")] = 3,
    data: Data = DATA_DEFAULT,
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="Where the first listens; the others on the ports after it."
        ),
    ] = "127.0.0.1:9092",
    zookeeper: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[,...][/PATH]",
            help="A ZooKeeper that runs; without it, one is started.",
        ),
    ] = None,
    racks: Annotated[
        str | None,
        typer.Option(
            metavar="RACK,...", help="Where each broker stands: replicas go to different racks."
        ),
    ] = None,
    override: Override = None,
) -> None:
    """Start a cluster and stay in the foreground; Ctrl-C or `ottla cluster down` stops it.

    Prints a line for each broker when it serves. With three brokers or more, topics have three
    replicas, and acks=all waits for two of them. What was in DIR before is there again.

    \b
    Examples:
      ottla cluster up
      ottla cluster up --brokers 5 --data /var/lib/ottla --listen 127.0.0.1:19092
      ottla cluster up --brokers 4 --racks east,east,west,west
      ottla cluster up --override zookeeper.session.timeout.ms=6000
    """
    from ottla.cli import cluster_up  # noqa: PLC0415 (nothing of it is needed for the others)

    host, port = _listen(listen)
    cluster_up.up(
        data,
        brokers=brokers,
        host=host,
        port=port,
        zookeeper=zookeeper,
        racks=_racks(racks, brokers),
        overrides=parse_pairs(override or [], "--override"),
    )


@app.command()
def status(
    data: Data = DATA_DEFAULT,
    output: Output = OutputFormat.text,
    json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again every second.")] = False,
) -> None:
    """Show the brokers: where they listen, whether they run, how many partitions they lead.

    \b
    Examples:
      ottla cluster status
      ottla cluster status --watch
      ottla cluster status --json | jq .brokers[0].pid
    """
    from ottla.cli import cluster_status  # noqa: PLC0415

    chosen = OutputFormat.json if json else output
    (cluster_status.watch if watch else cluster_status.show)(data, chosen)


@app.command()
def stop(broker_id: BrokerId, data: Data = DATA_DEFAULT) -> None:
    """Stop a broker cleanly: it hands over what it leads first.

    \b
    Examples:
      ottla cluster stop 2
    """
    _tell(data, "stop", broker_id, "stopped")


@app.command()
def kill(broker_id: BrokerId, data: Data = DATA_DEFAULT) -> None:
    """Kill a broker at once (SIGKILL).

    \b
    Examples:
      ottla cluster kill 2
    """
    _tell(data, "kill", broker_id, "killed")


@app.command()
def pause(broker_id: BrokerId, data: Data = DATA_DEFAULT) -> None:
    """Freeze a broker (SIGSTOP) until it is resumed.

    \b
    Examples:
      ottla cluster pause 2
    """
    _tell(data, "pause", broker_id, "paused")


@app.command()
def resume(broker_id: BrokerId, data: Data = DATA_DEFAULT) -> None:
    """Let a paused broker go on.

    \b
    Examples:
      ottla cluster resume 2
    """
    _tell(data, "resume", broker_id, "resumed")


@app.command()
def start(broker_id: BrokerId, data: Data = DATA_DEFAULT) -> None:
    """Start a broker that was stopped or killed; returns when it serves.

    \b
    Examples:
      ottla cluster start 2
    """
    _tell(data, "start", broker_id, "started")


@app.command()
def down(data: Data = DATA_DEFAULT) -> None:
    """Stop all brokers, then ZooKeeper if it is the cluster's own. The data stays.

    \b
    Examples:
      ottla cluster down
      ottla cluster down --data /var/lib/ottla
    """
    from ottla.cli import cluster_control  # noqa: PLC0415

    cluster_control.down(data)
    print(f"the cluster in {data} is down")


@app.command()
def adopt(
    zookeeper: Annotated[
        str, typer.Option(metavar="HOST:PORT[,...][/PATH]", help="Where the cluster will be.")
    ],
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="The data of the single node (log.dirs).")
    ] = Path("ottla-data"),
    override: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A zookeeper.* setting; repeatable."),
    ] = None,
) -> None:
    """Move a stopped single node's metadata into an empty ZooKeeper, so that it can grow.

    Once: afterwards the node is the first broker of a cluster and is started with
    zookeeper.connect, on the same data and with the same node.id.

    \b
    Examples:
      ottla cluster adopt --data ottla-data --zookeeper 127.0.0.1:2181/ottla
    """
    from ottla.cli import cluster_adopt  # noqa: PLC0415

    cluster_adopt.adopt(data, zookeeper, override or [])


def _tell(data: Path, command: str, broker_id: int, done: str) -> None:
    from ottla.cli import cluster_control  # noqa: PLC0415

    cluster_control.call(data, command, broker_id)
    print(f"{done} broker {broker_id}")


def _racks(text: str | None, brokers: int) -> list[str]:
    racks = [] if text is None else text.split(",")
    if text is not None and (len(racks) != brokers or not all(racks)):
        raise typer.BadParameter(f"name {brokers} racks, one a broker", param_hint="--racks")
    return racks


def _listen(text: str) -> tuple[str, int]:
    if text.endswith(":0"):  # any free ports
        return text.removesuffix(":0") or "127.0.0.1", 0
    try:
        (address,) = parse_addresses(text)
    except ValueError as cause:
        raise typer.BadParameter(str(cause), param_hint="--listen") from cause
    return address.host, address.port
