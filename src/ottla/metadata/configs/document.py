"""The reference page of all settings, written from the definitions: `python -m` this prints it.

Returns text and writes no file; a test compares it with docs/reference/configuration.md.
"""

from __future__ import annotations

from collections import defaultdict

from ottla.metadata.configs.definition import ConfigDefinition, Definitions
from ottla.metadata.configs.definitions import (
    BROKER,
    BROKER_DEFAULT_OF_TOPIC,
    DIFFERENT_DEFAULTS,
    TOPIC,
)
from ottla.metadata.configs.values import TYPE_NAMES

_OPENING = """# Configuration

Every setting of Apache Kafka 4.3 is known to Ottla under its own name, with its type, its bounds
and, but for a few below, its default. This page is written from the definitions by
`python -m ottla.metadata.configs.document`; edit those, not this page.

Where a setting comes from, the strongest first:

1. set for this broker while it runs (`kafka-configs --entity-type brokers --entity-name 0 --alter`)
2. set for all brokers while they run (`--entity-default`)
3. the command line: `--listen`, `--data`, then `--override name=value`
4. the file given to `ottla serve server.properties`
5. the default

A topic has settings of its own; what it does not set comes from the broker's setting under *else*.
A name that nobody knows is ignored, with a warning that names the nearest known one.
*Changed* says how a broker's setting can be changed while it runs: not at all (read-only), for one
broker (per-broker), or also for all of them (cluster-wide).
"""


def reference_page() -> str:
    return "\n".join(
        (
            _OPENING,
            "## Topics\n",
            _topic_table(),
            "## Brokers\n",
            _broker_table(),
            "## Defaults that are not Kafka's\n",
            _differences(),
            "## Accepted without effect\n",
            "These are read, checked, stored and described, and change nothing.\n",
            _without_effect(),
        )
    )


def _topic_table() -> str:
    lines = [
        "| name | type | default | may be | else | what it does |",
        "|---|---|---|---|---|---|",
    ]
    for definition in _with_effect(TOPIC):
        broker_name = BROKER_DEFAULT_OF_TOPIC.get(definition.name)
        lines.append(
            f"| {_basics(definition)} | {'' if broker_name is None else f'`{broker_name}`'} "
            f"| {definition.documentation} |"
        )
    return "\n".join(lines) + "\n"


def _broker_table() -> str:
    lines = [
        "| name | type | default | may be | changed | what it does |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {_basics(definition)} | {definition.mode} | {definition.documentation} |"
        for definition in _with_effect(BROKER)
    ]
    return "\n".join(lines) + "\n"


def _with_effect(definitions: Definitions) -> list[ConfigDefinition]:
    with_effect = [each for each in definitions.by_name.values() if each.has_effect]
    return sorted(with_effect, key=lambda each: each.name)


def _basics(definition: ConfigDefinition) -> str:
    default = _code(definition.render(definition.default))
    bounds = "" if definition.validator is None else definition.validator.text
    return f"`{definition.name}` | {TYPE_NAMES[definition.type].lower()} | {default} | {bounds}"


def _differences() -> str:
    lines = ["| name | here | in Kafka | because |", "|---|---|---|---|"]
    for name, (kafka, reason) in sorted(DIFFERENT_DEFAULTS.items()):
        definition = BROKER.by_name[name]
        ours = _code(definition.render(definition.default))
        lines.append(f"| `{name}` | {ours} | {_code(kafka)} | {reason} |")
    return "\n".join(lines) + "\n"


def _without_effect() -> str:
    by_reason: dict[str, set[str]] = defaultdict(set)
    for definition in (*BROKER.by_name.values(), *TOPIC.by_name.values()):
        if not definition.has_effect:
            by_reason[definition.documentation].add(definition.name)
    paragraphs = (
        f"{reason}\n\n{', '.join(f'`{name}`' for name in sorted(names))}\n"
        for reason, names in sorted(by_reason.items())
    )
    return "\n".join(paragraphs)


def _code(text: str | None) -> str:
    return "not set" if text is None else f"`{text}`" if text else "empty"


if __name__ == "__main__":
    print(reference_page(), end="")
