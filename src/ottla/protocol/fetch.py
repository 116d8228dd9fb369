"""Fetch by hand, both ways: the room's door to `fetch_request` and `fetch_response`."""

from __future__ import annotations

from ottla.protocol.fetch_request import (
    NO_HIGH_WATERMARK,
    USUAL_BYTES,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    is_usual,
    read_fetch_request,
    split_usual,
)
from ottla.protocol.fetch_response import FetchedPartition, FetchedTopic, fetch_response_parts

__all__ = [
    "NO_HIGH_WATERMARK",
    "USUAL_BYTES",
    "FetchPartition",
    "FetchRequest",
    "FetchTopic",
    "FetchedPartition",
    "FetchedTopic",
    "ForgottenTopic",
    "fetch_response_parts",
    "is_usual",
    "read_fetch_request",
    "split_usual",
]
