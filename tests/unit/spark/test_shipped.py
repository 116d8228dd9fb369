"""What was pickled where Ottla came out of an archive, loaded where nothing says so."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[3] / "src"
# Neither process has the sources of this checkout, by PYTHONPATH or as what is installed.
WITHOUT_OURS = f"""
import sys
from pathlib import Path
sys.path[:] = [one for one in sys.path if Path(one).resolve() != Path({str(SOURCES)!r})]
from pyspark.serializers import CPickleSerializer
"""
PICKLES = """
import json
from importlib import import_module
from pyspark.sql.types import BinaryType, StructType

archive, module, made, options = sys.argv[1:]
sys.path.append(archive)
source = import_module(module).DefaultSource(json.loads(options))
schema = StructType()
for name in ["value"] if "rite" in made else ["key", "value", "topic", "partition", "offset"]:
    schema.add(name, BinaryType())
found = {
    "source": lambda: source,
    "reader": lambda: source.reader(schema),
    "streamReader": lambda: source.streamReader(schema),
    "writer": lambda: source.writer(schema, False),
    "streamWriter": lambda: source.streamWriter(schema, False),
}
sys.stdout.write(CPickleSerializer().dumps(found[made]()).hex())
"""
LOADS = """
from pyspark.worker_util import setup_spark_files

pickled, root = sys.argv[1:]
setup_spark_files(root, [])
found = CPickleSerializer().loads(bytes.fromhex(pickled))
assert found.options
print(sys.modules[type(found).__module__].__file__)
"""
PICKLES_AVRO = """
archive = sys.argv[1]
sys.path.insert(0, archive)
from ottla.spark.decode import avro_function

schema = '{"type": "record", "name": "n", "fields": [{"name": "n", "type": "long"}]}'
function, kind = avro_function(schema, "n BIGINT", confluent=False, bytes_max=9)
sys.stdout.write(CPickleSerializer().dumps((function, kind)).hex())
"""
DECODES = """
sys.modules["ottla"] = None  # importing it fails
import pyarrow as pa

function, kind = CPickleSerializer().loads(bytes.fromhex(sys.argv[1]))
print(kind.simpleString(), function(pa.array([bytes([4]), bytes(10)])).to_pylist())
"""
READ = {
    "kafka.bootstrap.servers": "127.0.0.1:9",
    "subscribe": "orders",
    "columns": "key,value,topic,partition,offset",
}
WRITE = {"kafka.bootstrap.servers": "127.0.0.1:9", "topic": "orders"}
FILES = {"path": "/srv/orders", "checkpointLocation": "/srv/checkpoint"}
TABLE = {"table": "shop.orders", "catalog.type": "sql", "checkpointLocation": "/srv/checkpoint"}


def child(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-E", "-c", WITHOUT_OURS + program, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("shipped") / "session-1" / "ottla.zip"
    found.parent.mkdir()
    with zipfile.ZipFile(found, "w") as wheel:
        for module in SOURCES.rglob("*.py"):
            wheel.write(module, module.relative_to(SOURCES))
    return found


@pytest.mark.parametrize(
    ("module", "made", "options"),
    [
        ("pyspark_ottla", "source", READ),
        ("pyspark_ottla", "reader", READ),
        ("pyspark_ottla", "streamReader", READ),
        ("pyspark_ottla", "writer", WRITE),
        ("pyspark_ottla", "streamWriter", WRITE),
        ("pyspark_ottla_parquet", "source", FILES),
        ("pyspark_ottla_parquet", "streamWriter", FILES),
        ("pyspark_ottla_iceberg", "source", TABLE),
        ("pyspark_ottla_iceberg", "streamWriter", TABLE),
    ],
)
def test_it_is_loaded_where_nothing_says_where_it_is(
    archive: Path, module: str, made: str, options: dict[str, str], tmp_path: Path
) -> None:
    pickled = child(PICKLES, str(archive), module, made, json.dumps(options))
    assert child(LOADS, pickled, str(tmp_path)).startswith(str(archive))


def test_it_is_found_among_the_files_of_another_machine(archive: Path, tmp_path: Path) -> None:
    here = tmp_path / "here" / "session-1" / "ottla.zip"
    there = tmp_path / "there" / "session-1" / "ottla.zip"
    for one in (here, there):
        one.parent.mkdir(parents=True)
        shutil.copy(archive, one)
    pickled = child(PICKLES, str(here), "pyspark_ottla", "source", json.dumps(READ))
    here.unlink()
    assert child(LOADS, pickled, str(tmp_path / "there")).startswith(str(there))


def test_what_decodes_avro_needs_no_ottla_where_it_runs(archive: Path) -> None:
    """A client of Spark Connect pickles it: where the server keeps what was sent it cannot know,
    and the tasks of a streaming query are not told."""
    pickled = child(PICKLES_AVRO, str(archive))
    assert child(DECODES, pickled) == (
        "struct<data:struct<n:bigint>,error:string> [{'data': {'n': 2}, 'error': None}, "
        "{'data': None, 'error': '10 bytes are more than 9'}]\n"
    )
