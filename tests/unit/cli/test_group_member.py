"""Goal: a signal ends a member in order; ignored ones stay ignored.
Method: signals to this process.
"""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest

from ottla.cli.group_member import ended_by_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_asks_it_to_stop(number: signal.Signals) -> None:
    work = SimpleNamespace(stopping=False)
    outside = signal.signal(number, signal.default_int_handler)  # under nohup it is ignored
    try:
        with ended_by_signals(work) as came:  # type: ignore[arg-type]
            os.kill(os.getpid(), number)
            assert (work.stopping, came) == (True, [number])
            os.kill(os.getpid(), signal.SIGTERM)
            assert len(came) == 2
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, outside)


def test_a_second_interrupt_is_the_end() -> None:
    work = SimpleNamespace(stopping=False)
    with pytest.raises(KeyboardInterrupt), ended_by_signals(work):  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


def test_what_is_ignored_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        work = SimpleNamespace(stopping=False)
        with ended_by_signals(work):  # type: ignore[arg-type]
            os.kill(os.getpid(), signal.SIGHUP)
        assert not work.stopping
    finally:
        signal.signal(signal.SIGHUP, before)
