"""Goal: a broker starts without a disk that has failed, and says so; not without its first one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ottla.base.deferred import Deferred
from ottla.base.errors import ConfigError, StorageError
from ottla.broker.config_file import load_broker_config
from ottla.broker.node import Node
from ottla.broker.stores import OpenStore
from ottla.log.log_dir import LogDir
from ottla.metadata.memory_store import MemoryEnsemble, MemoryStore
from ottla.testing.loop_thread import LoopThread
from tests.patience import SECONDS_MAX

R = TypeVar("R")


class Here:
    """A pool for calls that do not block."""

    def run(self, work: Callable[..., R], *arguments: Any) -> Deferred[R]:
        answer: Deferred[R] = Deferred()
        answer.resolve(work(*arguments))
        return answer


@contextmanager
def broker_over(
    *log_dirs: Path, node_id: int = 0, store: MemoryStore | None = None
) -> Iterator[Node]:
    overrides = [
        f"node.id={node_id}",
        f"log.dirs={','.join(map(str, log_dirs))}",
        "ottla.metrics.listener=",
    ]
    opened = None if store is None else OpenStore(store, Here(), is_cluster=True)
    config = load_broker_config(None, overrides, listen="127.0.0.1:0").config
    node = Node(config, store=opened)
    thread = LoopThread("ottla-test-broker")
    thread.start()
    try:
        thread.run(node.start())
        yield node
        thread.run(node.stop())
    finally:
        thread.stop()


def errors_of(node: Node) -> list[str | None]:
    return [log_dir.error for log_dir in node._log_dirs]


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Where nothing can be made: a file stands in the way."""
    path = tmp_path / "broken"
    path.write_text("no directory")
    return path / "data"


def test_it_starts_without_a_disk_that_fails(
    tmp_path: Path, broken: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with broker_over(tmp_path / "sound", broken, tmp_path / "sound too") as node:
        sound, failed, sound_too = errors_of(node)
        assert (sound, sound_too) == (None, None)
        assert failed is not None
        assert str(broken) in failed
    assert f"log dir {broken} is offline" in caplog.text


def test_a_disk_that_fails_on_the_way_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = LogDir.begin

    def failing(self: LogDir, *, keep_boot_id: bool = True) -> None:
        if self.path.endswith("second"):
            raise StorageError(self.path, "write")
        begin(self, keep_boot_id=keep_boot_id)

    monkeypatch.setattr(LogDir, "begin", failing)
    with broker_over(tmp_path / "first", tmp_path / "second") as node:
        assert [error is None for error in errors_of(node)] == [True, False]


def test_data_of_another_node_are_refused_before_the_cluster_hears_of_it(tmp_path: Path) -> None:
    ensemble = MemoryEnsemble()
    with broker_over(tmp_path, node_id=1, store=MemoryStore(ensemble)):
        pass
    before = dict(ensemble.nodes)
    with (
        pytest.raises(ConfigError, match=r"belongs to node 1, this broker is 2"),
        broker_over(tmp_path, node_id=2, store=MemoryStore(ensemble)),
    ):
        raise AssertionError("it started")
    assert ensemble.nodes == before


def test_it_does_not_start_without_the_first(tmp_path: Path, broken: Path) -> None:
    with (
        pytest.raises(StorageError, match="lock failed"),
        broker_over(broken, tmp_path / "sound"),
    ):
        pass


def test_a_single_node_stays_without_any_disk(tmp_path: Path) -> None:
    with broker_over(tmp_path / "first", tmp_path / "second") as node:
        failed = threading.Event()

        def fail_all() -> None:
            for log_dir in node._log_dirs:
                assert node.parts is not None
                node.parts.replicas.storage_failed(StorageError(log_dir.path, "write"))
            failed.set()

        node._loop.call_soon_threadsafe(fail_all)
        assert failed.wait(SECONDS_MAX)
        assert None not in errors_of(node)
        assert not node.useless.is_set()
