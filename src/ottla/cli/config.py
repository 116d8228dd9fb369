"""`ottla config`: see and change the settings of topics and brokers."""

from __future__ import annotations

from typing import Annotated

import typer

from ottla.cli.model import Setting
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    Bootstrap,
    CommandConfig,
    Output,
    command_group,
    complete_topic,
    connect,
    parse_pairs,
)
from ottla.cli.output import OutputFormat, print_json
from ottla.cli.tables import print_table

ALL_BROKERS = ""
"""Their name among the brokers, in Kafka's protocol."""

app = command_group("See and change settings of topics and brokers.")

TopicOption = Annotated[
    str | None,
    typer.Option("--topic", "-t", metavar="TOPIC", autocompletion=complete_topic, help="A topic."),
]
BrokerOption = Annotated[
    int | None, typer.Option("--broker", metavar="ID", help="A broker, by its id.")
]

AllBrokersOption = Annotated[
    bool, typer.Option("--all-brokers", help="What is set for all brokers of the cluster.")
]


@app.command()
def describe(
    *,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    all_brokers: AllBrokersOption = False,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="With settings that have their default value.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Show settings and where each comes from.

    \b
    Examples:
      ottla config describe --topic orders
      ottla config describe --broker 1 --all --output json
    """
    kind, name = _target(topic, broker, all_brokers)
    settings = [
        setting
        for setting in connect(bootstrap, command_config).configs(kind, name)
        if everything or setting.source != "DEFAULT_CONFIG"
    ]
    if output is OutputFormat.json:
        print_json([_as_json(setting) for setting in settings])
    elif settings:
        print_table(["NAME", "VALUE", "SOURCE"], [_row(setting) for setting in settings])
    else:
        print(f"{_title(kind, name)}: defaults only (--all shows them)")


@app.command()
def alter(
    *,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    all_brokers: AllBrokersOption = False,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="A setting to take; repeatable."),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Back to the default; repeatable."),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.text,
) -> None:
    """Change settings while the brokers run; they survive a restart.

    \b
    Examples:
      ottla config alter --topic orders --config retention.ms=3600000
      ottla config alter --topic orders --delete-config retention.ms
      ottla config alter --broker 1 --config num.io.threads=4
      ottla config alter --all-brokers --config min.insync.replicas=2
    """
    kind, name = _target(topic, broker, all_brokers)
    changes = parse_pairs(config or [], "--config")
    deletions = delete_config or []
    if not changes and not deletions:
        raise typer.BadParameter("nothing to change: give --config or --delete-config")
    connect(bootstrap, command_config).alter_configs(kind, name, changes, deletions)
    if output is OutputFormat.json:
        print_json({"kind": kind, "name": name, "set": changes, "deleted": deletions})
    else:
        print(f"altered {_title(kind, name)}")


def _target(topic: str | None, broker: int | None, all_brokers: bool) -> tuple[str, str]:
    if topic is not None and broker is None and not all_brokers:
        return "topic", topic
    if broker is not None and topic is None and not all_brokers:
        return "broker", str(broker)
    if all_brokers and topic is None and broker is None:
        return "broker", ALL_BROKERS
    raise typer.BadParameter("give one of --topic, --broker and --all-brokers")


def _title(kind: str, name: str) -> str:
    return "all brokers" if (kind, name) == ("broker", ALL_BROKERS) else f"{kind} {name}"


def _row(setting: Setting) -> list[object]:
    value = "(hidden)" if setting.sensitive else setting.value
    return [setting.name, value, setting.source.lower().replace("_", " ").removesuffix(" config")]


def _as_json(setting: Setting) -> dict[str, object]:
    return {
        "name": setting.name,
        "value": setting.value,
        "source": setting.source,
        "read_only": setting.read_only,
        "sensitive": setting.sensitive,
        "default": setting.is_default,
        "type": setting.type,
        "documentation": setting.documentation,
        "synonyms": setting.synonyms,
    }
