"""The client's errors in words for people."""

from __future__ import annotations

from ottla.base.errors import OttlaError
from ottla.client.errors import BrokerError


def reason_of(error: BaseException) -> str:
    """The broker's own words where it sent some, and the name to search for."""
    if isinstance(error, BrokerError):
        return f"{error.said.rstrip('.')} ({error.name})"
    return str(error) if isinstance(error, OttlaError) else repr(error)
