"""Settings of Java's client that code for the stock connector has, in the words of Ottla's client.

Pure. User and password of `sasl.jaas.config`, and stores of certificates that are PEM files. What
only Java can read is refused by name, with what to say instead. Never shows a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ottla.spark.errors import OptionError

JAAS: Final = "sasl.jaas.config"
_PASSWORD_MODULES = ("PlainLoginModule", "ScramLoginModule")
_LOGIN = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*", re.S)
_OPTION = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")

# Java's store, and what it is here.
_STORES = {"truststore": ("ssl.cafile",), "keystore": ("ssl.certfile", "ssl.keyfile")}


def translated(settings: Mapping[str, str]) -> dict[str, str]:
    """The same settings, as Ottla's client has them."""
    found = dict(settings)
    text = found.pop(JAAS, None)
    if text is not None:
        username, password = _login(text)
        _add(found, JAAS, "sasl.username", username)
        _add(found, JAAS, "sasl.password", password)
    for store, names in _STORES.items():
        kind = found.pop(f"ssl.{store}.type", None)
        place = found.pop(f"ssl.{store}.location", None)
        if kind is None and place is None:
            continue
        if (kind or "JKS").strip().upper() != "PEM" or place is None:
            raise OptionError(
                f"option kafka.ssl.{store}.location: stores of type {kind or 'JKS'} are for Java "
                f"alone; have a PEM file, and say kafka.ssl.{store}.type=PEM with its path, or "
                f"{' and '.join(f'kafka.{name}' for name in names)}"
            )
        for name in names:
            _add(found, f"ssl.{store}.location", name, place)
    return found


def _add(found: dict[str, str], source: str, name: str, text: str) -> None:
    if name in found:
        raise OptionError(f"both kafka.{source} and kafka.{name} are given: keep one")
    found[name] = text


def _login(text: str) -> tuple[str, str]:
    match = _LOGIN.fullmatch(text)
    if match is None:
        raise OptionError(
            f'option kafka.{JAAS} is not of the form \'MODULE required username="..." '
            'password="...";\''
        )
    module = match.group(1).rpartition(".")[2]
    if module not in _PASSWORD_MODULES:
        raise OptionError(
            f"option kafka.{JAAS}: {module} is not supported, only {', '.join(_PASSWORD_MODULES)}"
        )
    given = {name.lower(): _unquoted(one) for name, one in _OPTION.findall(match.group(2))}
    for name in ("username", "password"):
        if name not in given:
            raise OptionError(f"option kafka.{JAAS} has no {name}")
    unknown = sorted(set(given) - {"username", "password"})
    if unknown:
        raise OptionError(f"option kafka.{JAAS}: {unknown[0]} is not supported")
    return given["username"], given["password"]


def _unquoted(text: str) -> str:
    if text[0] not in "\"'":
        return text
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.S)
