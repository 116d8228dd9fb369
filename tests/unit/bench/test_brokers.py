"""Goal: each broker gets the command it understands; both get the same settings.
Method: the commands and files, without starting anything.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.brokers import KINDS, SHARED_SETTINGS, BrokerFailed, Kafka, Ottla
from bench.kafka_jars import JarsMissing, jars_directory, kafka_version


def test_ottla_is_served_with_the_shared_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_BENCH_COMMAND", f"{sys.executable} -m ottla.cli.main")
    broker = Ottla(tmp_path / "o", SHARED_SETTINGS)
    command = broker.command()
    assert command[:4] == [sys.executable, "-m", "ottla.cli.main", "serve"]
    assert command[command.index("--listen") + 1] == broker.bootstrap
    assert command[command.index("--data") + 1] == str(broker.data)
    for name, value in SHARED_SETTINGS.items():
        assert f"{name}={value}" in command


def test_kafka_gets_them_in_its_file(tmp_path: Path) -> None:
    broker = Kafka(tmp_path / "k", SHARED_SETTINGS)
    lines = broker.properties().splitlines()
    assert f"advertised.listeners=PLAINTEXT://{broker.bootstrap}" in lines
    assert f"log.dirs={broker.data}" in lines
    for name, value in SHARED_SETTINGS.items():
        assert f"{name}={value}" in lines


def test_a_broker_that_does_not_run_has_no_pid_and_stops_quietly(tmp_path: Path) -> None:
    for kind, make in KINDS.items():
        broker = make(tmp_path / kind, {})
        broker.stop()
        with pytest.raises(BrokerFailed, match=kind):
            _ = broker.pid


def test_a_broker_that_ends_at_once_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "import sys; sys.exit('the disk is full')"
    monkeypatch.setenv("OTTLA_BENCH_COMMAND", f'{sys.executable} -c "{script}"')
    with Ottla(tmp_path / "o", {}) as broker, pytest.raises(BrokerFailed, match="the disk is full"):
        broker.start()


def test_where_the_jars_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTTLA_KAFKA_JARS", raising=False)
    monkeypatch.setenv("KAFKA_JARS", str(tmp_path))
    assert jars_directory() == tmp_path
    with pytest.raises(JarsMissing, match="make kafka-jars"):
        kafka_version()
    (tmp_path / "kafka-clients-4.3.1.jar").touch()
    assert kafka_version() == "4.3.1"
    monkeypatch.delenv("KAFKA_JARS")
    assert jars_directory().parts[-2:] == (".cache", "kafka")
