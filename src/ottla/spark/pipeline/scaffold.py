"""A new project: small enough to be read in a minute, whole enough to be run."""

from __future__ import annotations

import json
from pathlib import Path

from ottla.spark.pipeline.project import SETTINGS_NAME, SPEC_NAMES, ProjectError

SPEC = """\
# Spark's own file: `spark-pipelines run` takes this project as it is.
name: {name}
storage: file://{storage}
libraries:
  - glob:
      include: transformations/**
"""

SETTINGS = """\
# Ottla's settings beside it; `ottla pipeline run` reads them.
bootstrap_servers: {bootstrap}
trigger: 1s
delivery: exactly-once
dead_letters: {name}.dead-letters
"""

TRANSFORMATION = '''\
"""Events of the topic `{name}-events`: bad ones aside, good ones to a table and to a topic."""

from pyspark import pipelines as dp

from ottla.spark.expectations import expect_or_drop
from ottla.spark.topics import json_topic

json_topic("events", topic="{name}-events", schema="id STRING, amount DOUBLE")


@dp.table
@expect_or_drop("amount", "amount > 0")
def clean_events():
    return spark.readStream.table("events")


dp.create_sink("clean", "ottla", {{"topic": "{name}-clean"}})


@dp.append_flow(target="clean")
def clean_to_topic():
    rows = spark.readStream.table("clean_events")
    return rows.selectExpr("id AS key", "to_json(struct(id, amount)) AS value")
'''

VIEW = """\
CREATE MATERIALIZED VIEW totals AS
SELECT id, count(*) AS events, sum(amount) AS amount FROM clean_events GROUP BY id;
"""

TEST = '''\
"""Run with `ottla pipeline test`: a broker of its own, the whole pipeline once."""


def test_bad_events_are_put_aside(pipeline):
    pipeline.produce("{name}-events", ['{{"id": "a", "amount": 2}}', "no JSON", '{{"id": "b"}}'])
    pipeline.run()
    assert pipeline.values("{name}-clean") == ['{{"id":"a","amount":2.0}}']
    assert pipeline.values("{name}.dead-letters") == ["no JSON"]
    assert [(row["id"], row["events"]) for row in pipeline.table("totals")] == [("a", 1)]
'''


def make_project(parent: Path, name: str, bootstrap: str) -> list[Path]:
    """Its files, in a directory of its own; `bootstrap` are the brokers it shall run on."""
    if not name or not all(one.isalnum() or one in "-_." for one in name):
        raise ProjectError(f"{name!r} is no name: letters, digits, '-', '_' and '.'")
    root = parent / name
    if root.exists():
        raise ProjectError(f"{root} exists already: choose another name")
    storage = (root / "storage").absolute()
    texts = {
        SPEC_NAMES[0]: SPEC.format(name=name, storage=storage),
        SETTINGS_NAME: SETTINGS.format(name=name, bootstrap=_yaml(bootstrap)),
        "transformations/events.py": TRANSFORMATION.format(name=name),
        "transformations/totals.sql": VIEW,
        "tests/test_pipeline.py": TEST.format(name=name),
        ".gitignore": "storage/\n.ottla/\n",
    }
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    storage.mkdir()
    return [root / path for path in texts]


def _yaml(text: str) -> str:
    """As a value: quoted where YAML would take it for something else, such as `[::1]:9092`."""
    is_plain = text[:1].isalnum() and all(one.isalnum() or one in ".:,_-" for one in text)
    return text if is_plain else json.dumps(text)
