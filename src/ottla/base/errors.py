"""The families of errors, and nothing else (style, section 3).

ProtocolError travels to a client as its code. StorageError takes a log dir offline. PeerLost is
tried again by whoever asked, in a while. InvariantError means that the program itself is wrong: it
is never caught to go on.
"""

from __future__ import annotations


class OttlaError(Exception):
    """Base of every error that Ottla raises on purpose."""


class ProtocolError(OttlaError):
    """A refusal that a client is owed: a Kafka error code and a message for people."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message or f"error code {code}")
        self.code = code
        self.message = message


class MalformedRequest(OttlaError):
    """Bytes that are no request: the connection is closed, with one log line."""


class StorageError(OttlaError):
    """A disk operation failed: the log dir that holds `path` goes offline."""

    def __init__(self, path: str, operation: str) -> None:
        super().__init__(f"{operation} failed on {path}")
        self.path = path
        self.operation = operation


class PeerLost(OttlaError):
    """Another broker did not answer: whether it did what it was asked is not known."""


class ConfigError(OttlaError):
    """A setting that cannot be taken; the message names it and says what would be right."""


class InvariantError(OttlaError):
    """Something that must always hold does not."""


def check(condition: bool, message: str) -> None:
    """Like assert, but never stripped by -O."""
    if not condition:
        raise InvariantError(message)
