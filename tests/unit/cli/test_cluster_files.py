"""What a cluster leaves in its directory for others to find."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ottla.cli.cluster_files import (
    BrokerState,
    ClusterState,
    is_ours,
    locked,
    read_state,
    socket_path,
    write_state,
)
from ottla.cli.failure import Failure

STATE = ClusterState(
    pid=1,
    brokers=[BrokerState(1, "h:1", None, "/d/broker-1", "stopped")],
    zookeeper=["z:1"],
    zookeeper_pids=[2],
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    write_state(tmp_path, STATE)
    assert read_state(tmp_path) == STATE


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"brokers":[{"id":1}]}'])
def test_a_damaged_file_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cluster.json").write_bytes(content)
    with pytest.raises(Failure, match=r"cluster\.json cannot be read"):
        read_state(tmp_path)


def test_one_cluster_for_each_directory(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "new"),
        pytest.raises(Failure, match="already"),
        locked(tmp_path / "new"),
    ):
        pass
    with locked(tmp_path / "new"):
        pass


def test_a_socket_in_a_directory_with_a_long_name(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    with socket_path(deep) as path, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        assert list(deep.iterdir()) == [deep / "control"]


def test_a_process_is_ours_if_it_was_started_for_that_directory() -> None:
    assert not is_ours(os.getpid(), "/no/such/directory")
    mine = Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].decode()
    assert is_ours(os.getpid(), mine)
    assert not is_ours(2**22 + 1, mine)
