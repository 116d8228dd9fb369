"""From `--command-config` to the settings of one of our clients.

A file serves every command, so it may hold what only a producer or a consumer knows: the others
pass it over. What none of them knows is refused by the client itself, with the nearest name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.producer_settings import ProducerSettings
from ottla.client.settings import AdminSettings, ClientSettings

KINDS = (AdminSettings, ConsumerSettings, ProducerSettings)


def settings_for(kind: type[ClientSettings], given: Mapping[str, str]) -> dict[str, Any]:
    own = _names(kind)
    others = {name for one in KINDS for name in _names(one)} - own
    return {name: value for name, value in given.items() if name.replace(".", "_") not in others}


def _names(kind: type[ClientSettings]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}
