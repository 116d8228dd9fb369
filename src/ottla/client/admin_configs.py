"""Settings of topics, brokers and groups: describe and change, one by one or many at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.client.admin_base import AdminBase, raise_for
from ottla.client.admin_values import (
    BROKER,
    BROKER_LOGGER,
    CONFIG_TYPES,
    RESOURCE_CODES,
    SOURCES,
    ConfigEntry,
    ConfigSynonym,
)
from ottla.client.errors import ConfigError
from ottla.protocol.api_keys import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS

_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
_DEFAULT_SOURCE = 5


class AdminConfigs(AdminBase):
    async def describe_configs(
        self, kind: str, name: str, names: Sequence[str] | None = None
    ) -> list[ConfigEntry]:
        """All settings of a `topic`, `broker` or `group` (or those named), sorted."""
        resource = {
            "resource_type": _code_of(kind),
            "resource_name": name,
            "configuration_keys": None if names is None else list(names),
        }
        fields = {
            "resources": [resource],
            "include_synonyms": True,
            "include_documentation": True,
        }
        what = f"settings of {kind} {name}"
        answer = await self._ask_owner(DESCRIBE_CONFIGS, fields, kind, name)
        result = answer.results[0]
        raise_for(result.error_code, what, result.error_message)
        return sorted((_entry(one) for one in result.configs), key=lambda entry: entry.name)

    async def alter_configs(
        self,
        kind: str,
        name: str,
        changes: Mapping[str, str] | None = None,
        deletions: Iterable[str] = (),
        *,
        appends: Mapping[str, str] | None = None,
        subtracts: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Sets, and gives back to their defaults; lists may be added to and taken from."""
        configs = [
            {"name": key, "config_operation": operation, "value": value}
            for operation, given in ((_SET, changes), (_APPEND, appends), (_SUBTRACT, subtracts))
            for key, value in (given or {}).items()
        ] + [{"name": key, "config_operation": _DELETE, "value": None} for key in deletions]
        resource = {"resource_type": _code_of(kind), "resource_name": name, "configs": configs}
        fields = {"resources": [resource], "validate_only": validate_only}
        answer = await self._ask_owner(INCREMENTAL_ALTER_CONFIGS, fields, kind, name)
        one = answer.responses[0]
        raise_for(one.error_code, f"settings of {kind} {name}", one.error_message)

    async def _ask_owner(self, api_key: int, fields: Any, kind: str, name: str) -> Any:
        """A broker's own settings only it knows; all others anybody does."""
        what = f"settings of {kind} {name}"
        if kind in (BROKER, BROKER_LOGGER) and name != "":
            if not name.isdigit():
                raise ConfigError(f"a broker is named by its number, not {name!r}")
            return (await self._ask_brokers(api_key, fields, what, [int(name)]))[int(name)]
        is_change = api_key == INCREMENTAL_ALTER_CONFIGS
        return await self._ask_any(api_key, fields, what, is_change=is_change)


def _code_of(kind: str) -> int:
    code = RESOURCE_CODES.get(kind)
    if code is None:
        raise ConfigError(f"no settings of a {kind!r}: one of {', '.join(RESOURCE_CODES)}")
    return code


def _entry(one: Any) -> ConfigEntry:
    return ConfigEntry(
        one.name,
        one.value,
        SOURCES.get(one.config_source, "UNKNOWN"),
        one.config_source == _DEFAULT_SOURCE,
        one.read_only,
        one.is_sensitive,
        one.documentation,
        CONFIG_TYPES.get(one.config_type, "UNKNOWN"),
        [
            ConfigSynonym(other.name, other.value, SOURCES.get(other.source, "UNKNOWN"))
            for other in one.synonyms
        ],
    )
