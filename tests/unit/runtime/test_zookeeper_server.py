"""What a ZooKeeper server is started from, and what is said when that is missing."""

from __future__ import annotations

import importlib.util
import os
import shutil
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from ottla.base.errors import ConfigError
from ottla.runtime.zookeeper_server import (
    PORTS,
    ServerAddress,
    ZooKeeperServer,
    free_ports,
    java_path,
    server_command,
    server_jars,
)

JARS = ["slf4j-api-2.0.17.jar", "zookeeper-3.9.5.jar", "zookeeper-jute-3.9.5.jar"]


@pytest.fixture
def pyspark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package that has some jars which ZooKeeper needs, and some which it does not."""
    jars = tmp_path / "pyspark" / "jars"
    jars.mkdir(parents=True)
    for name in [*JARS, "spark-core_2.13-4.3.0.jar", "arrow-memory-netty-19.0.0.jar"]:
        (jars / name).touch()
    spec = ModuleSpec("pyspark", None, is_package=True)
    spec.submodule_search_locations = [str(jars.parent)]
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    return jars


def test_few_of_pysparks_jars_are_enough(pyspark: Path) -> None:
    assert server_jars() == [pyspark / name for name in JARS]


def test_an_installation_of_its_own_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="no ZooKeeper server in it"):
        server_jars()
    (tmp_path / "lib").mkdir()
    jar = tmp_path / "lib" / "zookeeper-3.9.5.jar"
    jar.touch()
    assert server_jars() == [jar]


def test_no_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'ottla\[spark\]'.*--zookeeper"):
        server_jars()


def test_java_is_looked_for_in_three_places(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "bin" / "java"
    own.parent.mkdir()
    own.touch(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_path() == str(own)
    own.unlink()
    monkeypatch.setattr(shutil, "which", lambda name: f"/somewhere/{name}")
    assert java_path() == "/somewhere/java"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'ottla\[java\]'"):
        java_path()


def test_the_command_names_its_file_last(
    tmp_path: Path, pyspark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/somewhere/{name}")
    command = server_command(tmp_path / "zoo.cfg")
    assert command[-1] == str(tmp_path / "zoo.cfg")
    assert "-Xmx64m" in command
    assert os.pathsep in command[command.index("-cp") + 1]


def test_an_ensemble_knows_its_members_and_listens_on_loopback(tmp_path: Path) -> None:
    servers = [ServerAddress(1, 2, 3), ServerAddress(4, 5, 6), ServerAddress(7, 8, 9)]
    lines = ZooKeeperServer(tmp_path, 2, servers)._config(tmp_path).splitlines()
    assert "clientPort=4" in lines
    assert "clientPortAddress=127.0.0.1" in lines
    assert "admin.enableServer=false" in lines
    assert [line for line in lines if line.startswith("server.")] == [
        "server.1=127.0.0.1:2:3",
        "server.2=127.0.0.1:5:6",
        "server.3=127.0.0.1:8:9",
    ]
    alone = ZooKeeperServer(tmp_path, 1, servers[:1], durable=False)._config(tmp_path)
    assert "server.1" not in alone
    assert "forceSync=no" in alone


def test_ports_are_free_and_all_different() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert set(ports) <= set(PORTS)
