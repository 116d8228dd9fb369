"""The line by which a broker says that it serves."""

from __future__ import annotations

import io
import logging

import pytest

from ottla.broker.serve import greet


class Pieces(io.StringIO):
    """Takes note of each write, and fails if it is told to."""

    def __init__(self, failure: OSError | None = None) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._failure = failure

    def write(self, text: str) -> int:
        if self._failure is not None:
            raise self._failure
        self.pieces.append(text)
        return len(text)


def test_the_greeting_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Pieces()
    monkeypatch.setattr("sys.stdout", out)
    greet("listening on 127.0.0.1:9092")
    assert out.pieces == ["listening on 127.0.0.1:9092\n"]


def test_a_broker_serves_though_nobody_can_be_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.stdout", Pieces(OSError(27, "File too large")))
    with caplog.at_level(logging.WARNING, "ottla.broker"):
        greet("listening on 127.0.0.1:9092")
    assert "File too large" in caplog.text
