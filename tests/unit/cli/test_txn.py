"""Goal: `ottla txn abort` says "aborted" of nothing that was committed.
Method: the whole command line, with an admin that answers from memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.cli import main, txn
from ottla.client.admin_values import TransactionDescription


class PlayedAdmin:
    def __init__(self, state: str, *, is_aborted: bool = True) -> None:
        self.state = state
        self.is_aborted = is_aborted
        self.asked_to_abort: list[str] = []
        self.asked_for: list[str] = []

    @contextmanager
    def open(self, *_: Any) -> Iterator[PlayedAdmin]:
        yield self

    def describe_transactions(self, names: list[str]) -> list[TransactionDescription]:
        return [TransactionDescription(names[0], 7, 0, self.state, 60_000, 5, [("t", 0)], 1)]

    def list_transactions(self, states: list[str], *_: Any, **__: Any) -> list[Any]:
        self.asked_for += states
        return []

    def abort_transaction(self, name: str) -> bool:
        self.asked_to_abort.append(name)
        return self.is_aborted


def run(
    admin: PlayedAdmin,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *asked: str,
) -> tuple[int, str, str]:
    monkeypatch.setattr(txn, "open_admin", admin.open)
    code = main.run(["txn", *asked])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("admin", "code", "out", "err"),
    [
        (PlayedAdmin("Ongoing"), 0, "aborted x\n", ""),
        (PlayedAdmin("PrepareAbort"), 0, "aborted x\n", ""),
        (
            PlayedAdmin("Ongoing", is_aborted=False),
            1,
            "",
            "ottla: the transaction of x was ended meanwhile by its producer\n",
        ),
    ],
)
def test_what_becomes_of_an_open_transaction(
    admin: PlayedAdmin,
    code: int,
    out: str,
    err: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(admin, monkeypatch, capsys, "abort", "x", "--yes") == (code, out, err)
    assert admin.asked_to_abort == ["x"]


@pytest.mark.parametrize(
    ("state", "code", "out", "err"),
    [
        ("PrepareCommit", 1, "", "ottla: the transaction of x is already decided: commit\n"),
        ("CompleteCommit", 0, "nothing is open under x\n", ""),
        ("Empty", 0, "nothing is open under x\n", ""),
    ],
)
def test_what_is_decided_is_left_alone(
    state: str,
    code: int,
    out: str,
    err: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = PlayedAdmin(state)
    assert run(admin, monkeypatch, capsys, "abort", "x") == (code, out, err)
    assert admin.asked_to_abort == []


def test_states_are_known_in_any_spelling(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = PlayedAdmin("Empty")
    asked = ("list", "--state", "ongoing", "--state", "COMPLETEABORT")
    assert run(admin, monkeypatch, capsys, *asked)[0] == 0
    assert admin.asked_for == ["Ongoing", "CompleteAbort"]
