"""A machine with Python and nothing else: the wheel by pip, Java by pip, rows flow. And servers of
Spark Connect: one that has the wheel installed, and one to which the client sends it.

For `make chaos`, which names this file: half a gigabyte is fetched and unpacked.
"""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka as ck
import fastavro
import pyarrow.dataset as ds
import pytest

from ottla.spark.pipeline.project import find_project
from ottla.testing import Broker
from tests.chaos.spark.lives import kill_all, until
from tests.spark.shell import Shell
from tests.spark.topics import Topics

REPOSITORY = Path(__file__).resolve().parents[3]
PIP_SECONDS_MAX = 3600
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
CLIENT = """
import sys
from pyspark.sql import SparkSession

remote, bootstrap, source, target, copy, avro, decoded, directory, *shipped = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
for wheel in shipped:
    spark.addArtifact(wheel, pyfile=True)
    from pyspark_ottla import DefaultSource
    spark.dataSource.register(DefaultSource)
options = {"kafka.bootstrap.servers": bootstrap}
read = spark.read.format("ottla").options(**options).option("subscribe", source)
assert read.load().count() == 500
write = read.load().select("key", "value").write.format("ottla").options(**options)
write.mode("append").option("topic", copy).save()
query = (
    spark.readStream.format("ottla").options(**options).option("subscribe", source)
    .option("startingOffsets", "earliest").load().select("key", "value")
    .writeStream.format("ottla").options(**options).option("topic", target)
    .option("checkpointLocation", f"{directory}/copy").trigger(availableNow=True).start()
)
assert query.awaitTermination(600)
assert query.exception() is None, query.exception()

from ottla.spark import decode

schema = '{"type":"record","name":"r","fields":[{"name":"n","type":"long"}]}'
read = (
    spark.readStream.format("ottla").options(**options).option("subscribe", avro)
    .option("startingOffsets", "earliest").load()
)
rows = decode.well_formed(decode.decode_avro(read, schema, "n BIGINT"))
query = (
    rows.selectExpr("CAST(n AS STRING) AS value")
    .writeStream.format("ottla").options(**options).option("topic", decoded)
    .option("checkpointLocation", f"{directory}/decoded").trigger(availableNow=True).start()
)
assert query.awaitTermination(600)
assert query.exception() is None, query.exception()
"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of a new environment that has the wheel with its extras, and nothing of ours."""
    directory = tmp_path_factory.mktemp("fresh")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = directory.glob("*.whl")
    venv = directory / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    install = [str(venv / "bin" / "pip"), "install", "--quiet", f"{wheel}[spark,java]"]
    done = subprocess.run(
        install, check=False, capture_output=True, text=True, timeout=PIP_SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr
    return venv / "bin"


@pytest.fixture
def bare(fresh: Path, tmp_path: Path) -> dict[str, str]:
    """An environment in which no Java is found but the one that pip brought."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for place in ("/usr/bin", "/bin", "/usr/sbin"):
        for tool in Path(place).iterdir():
            if "java" not in tool.name and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    kept = ("LANG", "LC_ALL", "TMPDIR", "USER")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "HOME": str(tmp_path),
        "PATH": f"{fresh}:{tools}",
    }


def test_rows_flow_on_a_machine_with_python_alone(
    fresh: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    with Broker() as broker:
        shell = Shell(tmp_path, broker.bootstrap, scripts=fresh)
        shell.environment = {**bare, "OTTLA_BOOTSTRAP": broker.bootstrap}
        assert "BAD" not in shell("pipeline", "doctor")
        shell("pipeline", "init", "shop")
        shell("topic", "create", "shop-events")
        shell.produce("shop-events", '{"id":"a","amount":2}', '{"id":"b","amount":3}', "no JSON")
        shell("pipeline", "run", "shop", "--once")
        found = shell("consume", "shop-clean").splitlines()
        assert sorted(found) == ['{"id":"a","amount":2.0}', '{"id":"b","amount":3.0}']
        place = Path(find_project(tmp_path / "shop").table_path("clean_events"))
        files = place.glob("*.parquet")
        assert ds.dataset([str(one) for one in files]).count_rows() == 2


@contextmanager
def connect_server(fresh: Path, environment: dict[str, str], directory: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    options = [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    log = directory / "connect.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [fresh / "spark-submit", "--class", CONNECT, *options, "spark-internal"],
            cwd=directory,
            env=environment,
            stdout=output,
            stderr=output,
        )

    def answers() -> bool:
        assert server.poll() is None, log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(answers, "the Connect server")
        yield f"sc://127.0.0.1:{port}"
    finally:
        kill_all(server.pid)
        server.wait(60)


@pytest.fixture
def shipped(fresh: Path, tmp_path: Path) -> Iterator[Path]:
    """The wheel under a name that Spark takes; it is not installed meanwhile."""
    (wheel,) = fresh.parent.parent.glob("*.whl")
    found = tmp_path / "ottla.zip"
    shutil.copy(wheel, found)
    pip = str(fresh / "pip")
    subprocess.run([pip, "uninstall", "--quiet", "--yes", "ottla"], check=True)
    yield found
    subprocess.run([pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)


def test_a_connect_server_finds_what_is_installed(fresh: Path, tmp_path: Path) -> None:
    copy_by_connect(fresh, tmp_path)


def test_a_connect_server_runs_it_with_only_the_wheel_shipped(
    fresh: Path, shipped: Path, tmp_path: Path
) -> None:
    copy_by_connect(fresh, tmp_path, str(shipped))


def copy_by_connect(fresh: Path, tmp_path: Path, *wheels: str) -> None:
    python = str(fresh / "python")
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    environment = {**inherited, "PYSPARK_PYTHON": python}
    with Broker() as broker, connect_server(fresh, environment, tmp_path) as remote:
        topics = Topics(broker.bootstrap, "connect")
        names = [topics.create(name) for name in ("in", "out", "copy", "avro", "decoded")]
        topics.fill("in", range(500))
        fill_with_avro(topics, "avro", range(100))
        checkpoint = str(tmp_path / "checkpoint")
        arguments = [remote, broker.bootstrap, *names, checkpoint, *wheels]
        done = subprocess.run(
            [python, "-c", CLIENT, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert sorted(topics.values("out")) == list(range(500))
        assert sorted(topics.values("copy")) == list(range(500))
        assert sorted(topics.values("decoded")) == list(range(100))


def fill_with_avro(topics: Topics, name: str, numbers: Iterable[int]) -> None:
    """Records of one `long`, and one that is none: it must not end the query."""
    producer = ck.Producer({"bootstrap.servers": topics.bootstrap})
    for number in numbers:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, "long", number)
        producer.produce(topics(name), stream.getvalue())
    producer.produce(topics(name), b"")
    assert producer.flush(60) == 0
