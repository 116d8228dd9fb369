"""Goal: a broker starts with what its owner wrote down, and says what it could not use.
Method: the format by directed cases, the order of the places, warnings and refusals.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.errors import ConfigError
from ottla.broker.config_file import load_broker_config, parse_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=1\nb:2\nc 3\nd\t=\t4\n  e = 5", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}),
        ("# no\n! no\n  # no\n\n\na=1 # yes\n", {"a": "1 # yes"}),
        ("a=1,\\\n   2,\\\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\\n# part of it\nb=2", {"a": "1# part of it", "b": "2"}),
        ("a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
        ("a\\=b=c\\:d\ne\\ f=g", {"a=b": "c:d", "e f": "g"}),
        ("a=\\t\\n\\r\\f\\q\\u00e9", {"a": "\t\n\r\fqé"}),
        ("a=\\ud83d\\ude00 \\ud83d", {"a": "\U0001f600 \ufffd"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=trailing  ", {"a": "trailing  "}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
        ("", {}),
    ],
)
def test_the_format_is_javas(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


def test_without_anything_it_is_a_broker_on_loopback_that_warns_of_nothing() -> None:
    loaded = load_broker_config(None)
    assert loaded.config.get_list("listeners") == ["PLAINTEXT://127.0.0.1:9092"]
    assert loaded.log_dirs == [str(Path("ottla-data").absolute())]
    assert loaded.config.get_int("node.id") == 0
    assert loaded.warnings == []


def test_the_command_line_beats_overrides_beat_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.dirs=/a\nlisteners=PLAINTEXT://127.0.0.1:1\n")
    loaded = load_broker_config(str(file))
    assert loaded.config.get_int("num.partitions") == 2
    assert loaded.log_dirs == ["/a"]
    overrides = ["num.partitions = 3", "log.dirs=/b,/c", "listeners=PLAINTEXT://127.0.0.1:2"]
    loaded = load_broker_config(str(file), overrides)
    assert loaded.config.get_int("num.partitions") == 3
    assert loaded.log_dirs == ["/b", "/c"]
    loaded = load_broker_config(str(file), overrides, data_dir="/d", listen="127.0.0.1:3")
    assert loaded.log_dirs == ["/d"]
    assert loaded.config.get_list("listeners") == ["PLAINTEXT://127.0.0.1:3"]
    named = load_broker_config(None, listen="PLAINTEXT://127.0.0.1:4")
    assert named.config.get_list("listeners") == ["PLAINTEXT://127.0.0.1:4"]
    assert load_broker_config(None, ["broker.rack=a=b"]).config.get_str("broker.rack") == "a=b"


def test_files_in_unicode_and_in_what_java_takes_them_for(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    for content in ("broker.rack=é".encode(), "\ufeffbroker.rack=é".encode(), b"broker.rack=\xe9"):
        file.write_bytes(content)
        assert load_broker_config(str(file)).config.get_str("broker.rack") == "é"


def test_an_unknown_name_is_told_with_the_nearest_known_one() -> None:
    warnings = load_broker_config(
        None, ["num.partition=3", "log.retension.hours=1", "qqq=1"]
    ).warnings
    assert warnings == [
        "num.partition is no setting of the broker and is ignored; did you mean num.partitions?",
        "log.retension.hours is no setting of the broker and is ignored; "
        "did you mean log.retention.hours?",
        "qqq is no setting of the broker and is ignored",
    ]


def test_a_stock_file_of_kafka_is_taken_without_a_word() -> None:
    overrides = [
        "process.roles=broker,controller",
        "node.id=1",
        "controller.quorum.bootstrap.servers=localhost:9093",
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "inter.broker.listener.name=PLAINTEXT",
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        "num.network.threads=3",
        "log.dirs=data",
        "offsets.topic.replication.factor=1",
        "zookeeper.connect=localhost:2181",
        "listener.name.internal.max.connections=5",
        "rsm.config.dir=x",
    ]
    assert load_broker_config(None, overrides).warnings == []


def test_only_a_replica_selector_that_is_not_known_is_told() -> None:
    name, package = "replica.selector.class", "org.apache.kafka.common.replica"
    for known in (f"{package}.RackAwareReplicaSelector", f"{package}.LeaderSelector", ""):
        assert load_broker_config(None, [f"{name}={known}"]).warnings == []
    assert load_broker_config(None, [f"{name}=a.B"]).warnings == [
        f"{name} a.B is not known here: consumers read from leaders"
    ]


def test_a_plug_in_that_does_not_run_is_told() -> None:
    assert load_broker_config(None, ["create.topic.policy.class.name=a.B"]).warnings == [
        "create.topic.policy.class.name is set, but it has no effect: Ottla runs no Java classes"
    ]
    assert load_broker_config(None, ["create.topic.policy.class.name="]).warnings == []


def test_a_listener_off_loopback_is_told_loudly() -> None:
    (warning,) = load_broker_config(None, listen=":9092").warnings
    assert warning.startswith("listener PLAINTEXT on every address:9092 is open to other machines")


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["num.partitions"], "--override takes name=value, not 'num.partitions'"),
        (["=3"], "--override takes name=value, not '=3'"),
        (
            ["num.partitions=0"],
            "Invalid value 0 for configuration num.partitions: Value must be at least 1",
        ),
        (["log.roll.ms=0"], "log.roll.ms must be greater than or equal to 1"),
        (
            ["listeners=SSL://127.0.0.1:1"],
            "Listener SSL speaks SSL: only PLAINTEXT is served so far",
        ),
        (
            ["ottla.metrics.listener=here"],
            "Invalid value here for configuration ottla.metrics.listener: "
            "Expected host:port, or nothing",
        ),
    ],
)
def test_refused(overrides: list[str], reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_broker_config(None, overrides)
    assert str(refused.value) == reason


def test_a_file_that_is_not_there_and_a_directory_with_a_comma() -> None:
    with pytest.raises(ConfigError, match=r"cannot read no/such\.properties: No such file"):
        load_broker_config("no/such.properties")
    with pytest.raises(ConfigError, match="a data directory cannot have a comma"):
        load_broker_config(None, data_dir="a,b")


def test_an_escape_that_java_does_not_take_is_refused_with_the_name_of_the_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "server.properties"
    path.write_text("log.dirs=\\u12")
    with pytest.raises(ConfigError) as refused:
        load_broker_config(str(path))
    assert str(refused.value) == f"cannot read {path}: \\u needs four hexadecimal digits behind it"


@pytest.mark.parametrize("name", ["a\0b", "a\udcffb"])
def test_a_data_directory_that_no_system_call_takes_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="has to be UTF-8 without NUL: 'a"):
        load_broker_config(None, data_dir=name)


def test_where_the_metrics_listener_may_be() -> None:
    for address in ("127.0.0.1:0", "[::1]:9644", "localhost:9644", ""):
        loaded = load_broker_config(None, [f"ottla.metrics.listener={address}"])
        assert loaded.config.get_str("ottla.metrics.listener") == address
    for address in ("127.0.0.1:65536", "::1:9644", "a b:1", "127.0.0.1:", ":9644"):
        with pytest.raises(ConfigError):
            load_broker_config(None, [f"ottla.metrics.listener={address}"])
