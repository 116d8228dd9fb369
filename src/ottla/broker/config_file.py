"""How a broker gets its settings at the start: properties file, overrides, command line.

Owns the reading of Java's .properties format and the order of the places: the file, then every
`--override`, then `--data` and `--listen`. Says what it did not understand as warnings; what cannot
be taken raises ConfigError, with a message that is enough to mend it.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ottla.base.errors import ConfigError
from ottla.metadata.configs import replica_selectors
from ottla.metadata.configs.broker_config import BrokerConfig, check_together
from ottla.metadata.configs.definitions import BROKER, find_broker_definition
from ottla.metadata.configs.listeners import address_of, is_loopback, parse_listeners
from ottla.metadata.configs.reasons import JAVA

# Settings of plug-ins have names that only the plug-in knows; Kafka tells them by these prefixes.
_FREE_PREFIXES = ("config.providers.", "rlmm.config.", "rsm.config.", "listener.name.")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
# Name, separator, value: the first unescaped `=`, `:` or blank ends the name.
_ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


@dataclass(slots=True)
class LoadedConfig:
    """`log_dirs` are the data directories as absolute paths."""

    config: BrokerConfig
    log_dirs: list[str]
    warnings: list[str]


def load_broker_config(
    path: str | None,
    overrides: Sequence[str] = (),
    *,
    data_dir: str | None = None,
    listen: str | None = None,
) -> LoadedConfig:
    """The settings of a broker that is about to start. Raises ConfigError."""
    properties = {} if path is None else read_properties(path)
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--override takes name=value, not {override!r}")
        properties[name.strip()] = value.strip()
    if data_dir is not None:
        if "," in data_dir:
            raise ConfigError(f"a data directory cannot have a comma in its name: {data_dir}")
        properties["log.dirs"] = data_dir
    if listen is not None:
        properties["listeners"] = listen if "://" in listen else f"PLAINTEXT://{listen}"
    config = BrokerConfig(properties)
    check_together(config)
    log_dirs = config.get_list("log.dirs")
    _check_directory_names(log_dirs)
    return LoadedConfig(
        config=config,
        log_dirs=[os.path.abspath(log_dir) for log_dir in log_dirs],
        warnings=[*_warnings_of_names(properties), *_warnings_of_listeners(config)],
    )


def read_properties(path: str) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # what Java takes such a file for
    try:
        return parse_properties(text)
    except ConfigError as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def _check_directory_names(log_dirs: Sequence[str]) -> None:
    """What stands in the shell's arguments may be bytes of any encoding, and in a file anything."""
    for log_dir in log_dirs:
        if "\0" in log_dir or any("\ud800" <= letter <= "\udfff" for letter in log_dir):
            raise ConfigError(
                f"the name of a data directory has to be UTF-8 without NUL: {log_dir!a}"
            )


def parse_properties(text: str) -> dict[str, str]:
    """Java's format: comments, continued lines, escapes; the last of two equal names counts.
    Raises ConfigError where Java would not take it."""
    properties = {}
    for line in _logical_lines(text):
        match = _ENTRY.fullmatch(line)
        if match is not None:
            properties[_unescape(match[1])] = _unescape(match[2])
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments, blank ones and the breaks that a backslash takes back."""
    joined = ""
    for line in re.split(r"\r\n|\r|\n", text):
        stripped = line.lstrip(" \t\f")
        if not joined and (not stripped or stripped[0] in "#!"):
            continue
        joined += stripped
        backslashes = len(joined) - len(joined.rstrip("\\"))
        if backslashes % 2 == 1:
            joined = joined[:-1]
            continue
        if joined:
            yield joined
        joined = ""
    if joined:
        yield joined


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    # Java writes a letter beyond 16 bits as two escapes.
    halves = _ESCAPE.sub(_unescaped, text).encode("utf-16-le", "surrogatepass")
    return halves.decode("utf-16-le", "replace")


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    if escape == "u":
        raise ConfigError("\\u needs four hexadecimal digits behind it")
    return _ESCAPES.get(escape, escape)


def _warnings_of_names(properties: Mapping[str, str]) -> Iterator[str]:
    for name, text in properties.items():
        definition = find_broker_definition(name)
        if definition is None:
            if not name.startswith(_FREE_PREFIXES):
                yield f"{name} is no setting of the broker and is ignored{_nearest(name)}"
        elif definition.documentation == JAVA and text.strip():
            yield f"{name} is set, but it has no effect: Ottla runs no Java classes"
        elif name == replica_selectors.SELECTOR and text.strip() not in replica_selectors.KNOWN:
            yield f"{name} {text.strip()} is not known here: consumers read from leaders"


def _nearest(name: str) -> str:
    nearest = difflib.get_close_matches(name, BROKER.by_name, n=1, cutoff=0.6)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def _warnings_of_listeners(config: BrokerConfig) -> Iterator[str]:
    for spec in parse_listeners(config).listening:
        if not is_loopback(spec.host):
            where = address_of(spec.host or "every address", spec.port)
            yield (
                f"listener {spec.name} on {where} is open to "
                "other machines, without authentication and encryption: whoever reaches it can "
                "read and delete everything"
            )
