"""Goal: Ctrl-C ends the looking at moves, and says that they go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import typer

from ottla.cli import reassign
from ottla.cli.failure import INTERRUPTED


class Interrupted:
    def follow(self, plan: object) -> Iterator[Any]:
        raise KeyboardInterrupt


def test_ctrl_c_says_that_the_moves_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        reassign._follow(cast(Any, Interrupted()), {("topic", 0): [1]})
    assert ended.value.exit_code == INTERRUPTED
    assert capsys.readouterr().err.startswith("the moves go on: ottla reassign status")
