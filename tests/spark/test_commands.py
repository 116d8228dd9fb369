"""`ottla pipeline` as people type it: a project from its making to its end."""

from __future__ import annotations

import os
from pathlib import Path

from ottla.spark.pipeline.control import Control
from ottla.testing import Broker
from ottla.testing.pipeline import read_topic
from tests.spark.shell import QUICK_JAVA, SECONDS_MAX, Shell

IS_FULL = "OTTLA_SPARK_FULL" in os.environ
FIRST, SECOND, BAD = '{"id":"a","amount":2}', '{"id":"b","amount":2}', "no JSON"


def test_a_pipeline_is_made_run_paused_resumed_and_stopped(broker: Broker, tmp_path: Path) -> None:
    """What arrives while it is paused is there after it; nothing is there twice. In `make test` it
    is paused before it has read anything: Spark has to start once less."""
    shell = Shell(tmp_path, broker.bootstrap)
    said = shell("pipeline", "init", "shop")
    assert "cd shop; ottla topic create shop-events; ottla pipeline run" in said
    settings = tmp_path / "shop" / "ottla.yml"
    assert f"bootstrap_servers: {broker.bootstrap}\n" in settings.read_text()
    settings.write_text(settings.read_text() + QUICK_JAVA)
    assert "shop is not running: `ottla pipeline run`" in shell(
        "pipeline", "pause", "shop", fails=True
    )
    shell("topic", "create", "shop-events", "shop-clean", "shop.dead-letters")
    shell.produce("shop-events", FIRST, BAD)
    control = Control(tmp_path / "shop" / ".ottla")

    def rows_are(clean: int, dead: int) -> bool:
        """In the topics: what a status counts begins anew with every engine."""
        wanted = {"shop-clean": clean, "shop.dead-letters": dead}
        found = {topic: len(list(read_topic(broker.bootstrap, topic))) for topic in wanted}
        return found == wanted

    with shell.running("pipeline", "run", "shop") as runner:
        if IS_FULL:
            shell.until(lambda: rows_are(1, 1), "the first row")
        else:
            shell.until(lambda: control.status("shop").pid > 0, "the runner is there")
        assert "running already" in shell("pipeline", "run", "shop", fails=True)
        assert "shop is paused" in shell("pipeline", "pause", "shop")
        assert shell.status("shop")["state"] == "paused"
        shell.produce("shop-events", SECOND)
        assert "shop is running" in shell("pipeline", "resume", "shop")
        shell.until(lambda: rows_are(2, 1), "the row that came while it was paused")
        assert "shop is stopped" in shell("pipeline", "stop", "shop")
        assert runner.wait(SECONDS_MAX) == 0
    assert shell("pipeline", "status", "shop").startswith("shop: stopped")
    found = shell("consume", "shop-clean")
    assert sorted(found.splitlines()) == ['{"id":"a","amount":2.0}', '{"id":"b","amount":2.0}']
    assert shell("consume", "shop.dead-letters").splitlines() == [BAD]
