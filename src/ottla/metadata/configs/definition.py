"""What one setting is: its name, type, default, bounds, and whether it does anything here.

The functions at the end are the vocabulary in which the definition files are written. Objects with
slots and not frozen dataclasses: every start of a broker makes all four hundred of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.errors import check
from ottla.metadata.configs import values
from ottla.metadata.configs.validators import Items, Validator
from ottla.metadata.configs.values import ConfigValue

READ_ONLY = "read-only"
PER_BROKER = "per-broker"
CLUSTER_WIDE = "cluster-wide"


class ConfigDefinition:
    """`hidden` settings are described only when they are set: internal ones, names of the past.

    `mode` says how a broker's setting may be changed while it runs: not at all, for one broker, or
    for the cluster as well. `synonyms` are the names that set the same thing, the strongest first.
    """

    __slots__ = (
        "default",
        "documentation",
        "has_effect",
        "hidden",
        "mode",
        "name",
        "sensitive",
        "synonyms",
        "type",
        "validator",
    )

    def __init__(
        self,
        name: str,
        kind: int,
        default: ConfigValue,
        validator: Validator | None,
        about: str,
        *,
        mode: str,
        hidden: bool,
    ) -> None:
        self.name = name
        self.type = kind
        self.default = default
        self.validator = validator
        self.documentation = about
        self.mode = mode
        self.hidden = hidden
        self.sensitive = kind == values.PASSWORD
        self.synonyms: tuple[str, ...] = (name,)
        self.has_effect = about != ""

    def parse(self, text: str) -> ConfigValue:
        """The value that `text` stands for here; ConfigError says what is wrong with it."""
        value = values.parse(self.name, self.type, text)
        if self.validator is not None:
            self.validator.check(self.name, value)
        return value

    def render(self, value: ConfigValue) -> str | None:
        return values.render(self.type, value)


class Definitions:
    """All settings of one kind of resource, by name."""

    __slots__ = ("by_name", "kind")

    def __init__(self, kind: str, definitions: Iterable[ConfigDefinition]) -> None:
        self.kind = kind
        self.by_name: dict[str, ConfigDefinition] = {}
        for definition in definitions:
            check(definition.name not in self.by_name, f"{definition.name} is defined twice")
            self.by_name[definition.name] = definition

    def find(self, name: str) -> ConfigDefinition | None:
        return self.by_name.get(name)

    def set_synonyms(self, *names: str) -> None:
        for name in names:
            self.by_name[name].synonyms = names


def without_effect(reason: str, *definitions: ConfigDefinition) -> tuple[ConfigDefinition, ...]:
    """Settings that are taken, checked and described, and change nothing, for the reason given."""
    for definition in definitions:
        check(not definition.has_effect, f"{definition.name} says what it does")
        definition.documentation = reason
    return definitions


def boolean(
    name: str, default: bool | None, about: str = "", *, mode: str = READ_ONLY, hidden: bool = False
) -> ConfigDefinition:
    return ConfigDefinition(name, values.BOOLEAN, default, None, about, mode=mode, hidden=hidden)


def string(
    name: str,
    default: str | None,
    validator: Validator | None = None,
    about: str = "",
    *,
    mode: str = READ_ONLY,
    hidden: bool = False,
) -> ConfigDefinition:
    return ConfigDefinition(
        name, values.STRING, default, validator, about, mode=mode, hidden=hidden
    )


def integer(
    name: str,
    default: int | None,
    validator: Validator | None = None,
    about: str = "",
    *,
    mode: str = READ_ONLY,
    hidden: bool = False,
) -> ConfigDefinition:
    return ConfigDefinition(name, values.INT, default, validator, about, mode=mode, hidden=hidden)


def short(
    name: str,
    default: int | None,
    validator: Validator | None = None,
    about: str = "",
    *,
    mode: str = READ_ONLY,
) -> ConfigDefinition:
    return ConfigDefinition(name, values.SHORT, default, validator, about, mode=mode, hidden=False)


def long(
    name: str,
    default: int | None,
    validator: Validator | None = None,
    about: str = "",
    *,
    mode: str = READ_ONLY,
    hidden: bool = False,
) -> ConfigDefinition:
    return ConfigDefinition(name, values.LONG, default, validator, about, mode=mode, hidden=hidden)


def double(
    name: str,
    default: float | None,
    validator: Validator | None = None,
    about: str = "",
    *,
    mode: str = READ_ONLY,
    hidden: bool = False,
) -> ConfigDefinition:
    return ConfigDefinition(
        name, values.DOUBLE, default, validator, about, mode=mode, hidden=hidden
    )


ANY_ITEMS = Items(empty=True)
SOME_ITEMS = Items(empty=False)


def items(
    name: str,
    default: tuple[str, ...] | None,
    validator: Validator = ANY_ITEMS,
    about: str = "",
    *,
    mode: str = READ_ONLY,
) -> ConfigDefinition:
    return ConfigDefinition(name, values.LIST, default, validator, about, mode=mode, hidden=False)


def class_name(name: str, default: str | None, *, mode: str = READ_ONLY) -> ConfigDefinition:
    return ConfigDefinition(name, values.CLASS, default, None, "", mode=mode, hidden=False)


def password(
    name: str, about: str = "", *, mode: str = READ_ONLY, hidden: bool = False
) -> ConfigDefinition:
    return ConfigDefinition(name, values.PASSWORD, None, None, about, mode=mode, hidden=hidden)
