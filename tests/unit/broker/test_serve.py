"""The line by which a broker says that it serves, and the one that says why it does not."""

from __future__ import annotations

import io
import logging
import socket
from pathlib import Path

import pytest

from ottla.broker.serve import greet, run


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


def test_a_log_dir_that_cannot_be_used_is_told_with_the_reason(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a-file"
    file.touch()
    assert run(data_dir=str(file), listen="127.0.0.1:0") == 1
    assert capfd.readouterr().err.splitlines()[-1] == (
        f"ottla serve: lock failed on {file} ([Errno 17] File exists: '{file}')"
    )


def test_what_a_file_holds_breaks_no_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=a\\nb")
    assert run(str(path)) == 1
    assert capfd.readouterr().err.splitlines()[-1] == (
        r"ottla serve: Invalid value a\nb for configuration num.partitions: "
        "Not a number of type INT"
    )


def test_names_that_are_not_known_are_told_one_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken = tmp_path / "a-file"
    taken.touch()
    with caplog.at_level(logging.WARNING, "ottla.broker"):
        assert run(overrides=["no\nsetting\x1b[2J=1"], data_dir=str(taken)) == 1
    assert caplog.messages == [r"no\nsetting\x1b[2J is no setting of the broker and is ignored"]


def test_a_port_that_is_taken_is_told_with_a_way_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert run(data_dir=str(tmp_path), listen=address) == 1
    assert capfd.readouterr().err.splitlines()[-1] == (
        f"ottla serve: cannot listen on {address}: Address already in use;"
        " another broker may run there: stop it, or take another port with --listen"
    )
