"""Goal: a stop waits for what the pool is at, and closes and writes nothing under its hands."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.runtime.posix_files import PosixFiles
from ottla.testing import Broker
from tests.patience import SECONDS_MAX

OVERLAP_SECONDS_MAX = 0.5


def test_a_checkpoint_that_is_being_written_is_not_written_twice_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_atomic = PosixFiles.write_atomic
    busy: set[str] = set()
    begun, overlap = threading.Event(), threading.Event()

    def slow(self: PosixFiles, path: str, content: bytes) -> None:
        if not path.endswith("recovery-point-offset-checkpoint"):
            write_atomic(self, path, content)
            return
        if path in busy:
            overlap.set()
        busy.add(path)
        if not begun.is_set():
            begun.set()
            # Until somebody else writes it too, which must not happen.
            overlap.wait(OVERLAP_SECONDS_MAX)
        write_atomic(self, path, content)
        busy.discard(path)

    monkeypatch.setattr(PosixFiles, "write_atomic", slow)
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("new", 1, 1)])["new"].result(SECONDS_MAX)
        broker.advance(minutes=2)
        assert begun.wait(SECONDS_MAX)
    assert not overlap.is_set()
