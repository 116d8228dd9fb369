"""The levels of this process's loggers, as the BROKER_LOGGER resource of a broker (KIP-412).

Only the root and Ottla's own loggers are shown; a library's are its own affair. Python has no TRACE
and says CRITICAL for FATAL; the names on the wire are Kafka's.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence

from ottla.base.errors import ProtocolError
from ottla.handlers.controller_answer import Fields
from ottla.metadata.config_control import broker_id_in
from ottla.metadata.configs.alter import APPEND, DELETE, SET, SUBTRACT, Operation
from ottla.metadata.controller import ConfigChange, ConfigResult
from ottla.protocol.error_codes import INVALID_CONFIG, INVALID_REQUEST

ROOT = "root"
PREFIX = "ottla"
DYNAMIC_BROKER_LOGGER = 6
UNKNOWN_TYPE = 0

LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": logging.DEBUG - 5,
    "WARN": logging.WARNING,
}
_NAMES = {level: name for name, level in LEVELS.items()}
_LIST_OPERATIONS = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


def check_broker_id(broker_id: int, name: str) -> None:
    """For a description; a change is refused in other words, as in Kafka."""
    if not name:
        raise ProtocolError(INVALID_REQUEST, "Broker id must not be empty")
    if broker_id_in(name, "Broker") != broker_id:
        message = f"Unexpected broker id, expected {broker_id} but received {name}"
        raise ProtocolError(INVALID_REQUEST, message)


def describe(names: Collection[str] | None) -> list[Fields]:
    return [
        {
            "name": name,
            "value": _level_name(logger.getEffectiveLevel()),
            "read_only": False,
            "is_default": False,
            "config_source": DYNAMIC_BROKER_LOGGER,
            "is_sensitive": False,
            "synonyms": [],
            "config_type": UNKNOWN_TYPE,
            "documentation": "",
        }
        for name, logger in sorted(_loggers().items())
        if not names or name in names
    ]


def alter(
    broker_id: int, changes: Sequence[ConfigChange], *, validate_only: bool
) -> list[ConfigResult]:
    times = Counter(change.resource_name for change in changes)
    results = []
    for change in changes:
        result = ConfigResult(change.resource_type, change.resource_name)
        results.append(result)
        try:
            _check_change(broker_id, change, times[change.resource_name])
        except ProtocolError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        if not validate_only:
            for name, operation, level in change.operations:
                _set_level(name, operation, level)
    return results


def _check_change(broker_id: int, change: ConfigChange, times: int) -> None:
    if times > 1:
        raise ProtocolError(INVALID_REQUEST, "Each resource must appear at most once.")
    if broker_id_in(change.resource_name, "Node") != broker_id:
        message = f"Unexpected node id. Expected {broker_id}, but received {change.resource_name}"
        raise ProtocolError(INVALID_REQUEST, message)
    names = [name for name, _, _ in change.operations]
    if len(set(names)) != len(names):
        raise ProtocolError(INVALID_REQUEST, "Error due to duplicate config keys")
    known = _loggers()
    for operation in change.operations:
        _check_operation(operation, known)


def _check_operation(operation: Operation, known: Collection[str]) -> None:
    name, kind, level = operation
    if kind in _LIST_OPERATIONS:
        message = (
            f"{_LIST_OPERATIONS[kind]} operation is not allowed for the BROKER_LOGGER resource"
        )
        raise ProtocolError(INVALID_REQUEST, message)
    if kind not in (SET, DELETE):
        raise ProtocolError(INVALID_REQUEST, f"Unknown operation type {kind}")
    if kind == SET and level is None:
        raise ProtocolError(INVALID_REQUEST, f"Null value not supported for : {name}")
    if name not in known:
        raise ProtocolError(INVALID_CONFIG, f"Logger {name} does not exist!")
    if kind == DELETE and name == ROOT:
        message = "Removing the log level of the root logger is not allowed"
        raise ProtocolError(INVALID_REQUEST, message)
    if kind == SET and level not in LEVELS:
        message = (
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LEVELS)}"
        )
        raise ProtocolError(INVALID_CONFIG, message)


def _set_level(name: str, operation: int, level: str | None) -> None:
    """A logger without a level of its own has its parent's."""
    logger = _loggers()[name]
    logger.setLevel(logging.NOTSET if operation == DELETE or level is None else LEVELS[level])


def _loggers() -> dict[str, logging.Logger]:
    loggers = {
        name: logger
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and name.split(".")[0] == PREFIX
    }
    return {ROOT: logging.root, PREFIX: logging.getLogger(PREFIX), **loggers}


def _level_name(level: int) -> str:
    """The name of the highest level that is not above this one."""
    fitting = [known for known in _NAMES if known <= level]
    return _NAMES[max(fitting)] if fitting else "TRACE"
