"""Fetch by hand, both ways: the room's door to `fetch_request` and `fetch_response`."""

from __future__ import annotations

from ottla.protocol.fetch_request import (
    NO_HIGH_WATERMARK,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    read_fetch_request,
)
from ottla.protocol.fetch_response import FetchedPartition, FetchedTopic, fetch_response_parts

__all__ = [
    "NO_HIGH_WATERMARK",
    "FetchPartition",
    "FetchRequest",
    "FetchTopic",
    "FetchedPartition",
    "FetchedTopic",
    "ForgottenTopic",
    "fetch_response_parts",
    "read_fetch_request",
]
