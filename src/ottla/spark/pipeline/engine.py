"""Runs a project in one Spark session: the process that a supervisor keeps alive.

Loads the definitions, starts a query for each table and sink, computes views anew while they run,
and writes down what happens. It ends with 0 when it was told to stop or has done its one run, and
with 1 and a reason when anything fails: putting it right is the supervisor's business, by starting
a new one.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from py4j.protocol import Py4JError

from ottla.base.errors import OttlaError
from ottla.spark.defaults import STARTING_OFFSETS
from ottla.spark.listener import BriefListener, GroupListener
from ottla.spark.pipeline.control import Control
from ottla.spark.pipeline.ending import Ending
from ottla.spark.pipeline.graph import SINK, TEMPORARY, VIEW, load_graph
from ottla.spark.pipeline.notes import QueryNote
from ottla.spark.pipeline.progress import take_progress
from ottla.spark.pipeline.project import (
    STATE_NAME,
    Project,
    ProjectError,
    find_project,
    servers_of,
)
from ottla.spark.pipeline.reach import Reach
from ottla.spark.pipeline.resolution import (
    Resolved,
    held_views,
    is_begun,
    needs_rocksdb,
    resolve,
    rows_of,
)
from ottla.spark.pipeline.session import open_session
from ottla.spark.pipeline.status import (
    DONE,
    FAILING,
    RUNNING,
    STOPPED,
    FlowStatus,
    Status,
    StatusFile,
    now_ms,
)

log = logging.getLogger(__name__)

STATUS_NAME = "engine.json"
_LOOK_SECONDS = 0.1
_START_LOOK_MS = 1_000
DRAIN_MS_MAX = 20_000
OTTLA_FORMAT = "ottla"
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
TOO_SLOW = "Python worker failed to connect back"
SLOW_STARTS_MAX = 5


class Engine:
    def __init__(self, project: Project, spark: Any, status: StatusFile) -> None:
        self.project = project
        self.spark = spark
        self.stop_wanted = False
        self._file = status
        self.status = Status(project.name, pid=os.getpid(), started_ms=now_ms())
        self._queries: dict[str, Any] = {}
        self._launches: dict[str, Callable[[], None]] = {}
        self._slow_starts = 0
        self._views_due_ms = 0
        self._rows_at_views = -1
        self._control = Control(project.state)
        self._checkpoints: set[str] = set()
        self._start_due_ms = 0 if STARTING_OFFSETS in os.environ else None
        self._groups = GroupListener(project.settings.client)
        self._reports = ProgressListener(self)

    def run(self, *, once: bool) -> None:
        """Until it is told to stop or fails; `once`: until everything that is there is done."""
        resolved = resolve(self.project, load_graph(self.project, self.spark), self.spark)
        streams = [one for one in resolved if one.is_streaming]
        views = [one for one in resolved if one.dataset.kind == VIEW]
        self.status.flows = {one.name: FlowStatus(one.dataset.name) for one in streams}
        self.spark.streams.addListener(self._groups)
        self.spark.streams.addListener(self._reports)
        try:
            if once or self.project.settings.trigger_ms is None:
                self._run_levels(resolved)
            else:
                held = held_views(resolved)
                self._compute([one for one in views if one.dataset.name in held])
                self._renew([one for one in resolved if one.dataset.kind == TEMPORARY])
                self._start(streams)
                self._watch([one for one in views if one.dataset.name not in held])
        finally:
            self._stop_queries()
            self.spark.streams.removeListener(self._reports)
            self.spark.streams.removeListener(self._groups)
            self._groups.close()

    def _run_levels(self, resolved: list[Resolved]) -> None:
        self._note(RUNNING)
        for level in sorted({one.level for one in resolved}):
            here = [one for one in resolved if one.level == level]
            self._start([one for one in here if one.is_streaming], available_now=True)
            while any(query.isActive for query in self._queries.values()):
                if self._must_stop():
                    return
                time.sleep(_LOOK_SECONDS)
                self._raise_failures()
            self._raise_failures()
            self._compute([one for one in here if one.dataset.kind == VIEW])
            self._renew([one for one in resolved if one.dataset.kind == TEMPORARY])
        self._maybe_forget_start()
        self._drain_listeners()

    def _watch(self, views: list[Resolved]) -> None:
        self._note(RUNNING)
        while not self._must_stop():
            self._raise_failures()
            if views and now_ms() >= self._views_due_ms:
                self._maybe_compute(views)
            self._maybe_forget_start()
            self._file.write(self.status)
            time.sleep(_LOOK_SECONDS)

    def _must_stop(self) -> bool:
        """When it was told so, and when nobody is there any more to tell it."""
        owner = os.environ.get("OTTLA_SUPERVISOR")
        if owner is not None and os.getppid() != int(owner):
            self.stop_wanted = True
        return self.stop_wanted

    # -- streams ------------------------------------------------------------------------------

    def _start(self, streams: list[Resolved], *, available_now: bool = False) -> None:
        for one in streams:
            self._launches[one.name] = functools.partial(self._launch, one, available_now)
            self._launches[one.name]()

    def _launch(self, one: Resolved, available_now: bool) -> None:
        conf, settings = self.spark.conf, self._settings_of(one)
        before = {name: conf.get(name, None) for name in settings}
        for name, value in settings.items():
            conf.set(name, value)
        try:
            self._queries[one.name] = self._started(one, available_now)
        finally:
            for name, value in before.items():
                if value is None:
                    conf.unset(name)
                else:
                    conf.set(name, value)

    def _settings_of(self, one: Resolved) -> dict[str, str]:
        found = {name: value for flow in one.flows for name, value in flow.conf.items()}
        is_said = STATE_STORE in found or self.spark.conf.get(STATE_STORE, None) is not None
        if not is_said and needs_rocksdb(one.rows):
            found[STATE_STORE] = ROCKSDB
        return found

    def _started(self, one: Resolved, available_now: bool) -> Any:
        project = self.project
        # Anew: the plan of the first time has the tables that it reads as they were then.
        rows = rows_of(one.flows)
        writer = rows.writeStream.queryName(one.name).outputMode("append")
        writer = writer.option("checkpointLocation", self._checkpoint(one))
        trigger_ms = project.settings.trigger_ms
        if available_now or trigger_ms is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{trigger_ms} milliseconds")
        dataset = one.dataset
        if dataset.kind == SINK:
            return writer.format(dataset.format).options(**self._sink_options(one)).start()
        writer = writer.format(dataset.format).option("path", project.table_path(dataset.name))
        if dataset.partitions:
            writer = writer.partitionBy(*dataset.partitions)
        return writer.toTable(dataset.name)

    def _sink_options(self, one: Resolved) -> dict[str, str]:
        options = dict(one.dataset.options)
        if one.dataset.format != OTTLA_FORMAT:
            return options
        settings = self.project.settings
        given = {name.lower() for name in options}
        if "delivery" not in given:
            options["delivery"] = settings.delivery
        is_exact = options.get("delivery", "").replace("-", "_") == "exactly_once"
        if "sinkid" not in given and is_exact:
            options["sinkId"] = self.project.sink_name(one.name)
        return options

    def _checkpoint(self, one: Resolved) -> str:
        """Where it stands: under the query's name, or under a flow's, where others have begun."""
        flows = tuple(flow.name for flow in one.flows)
        begun = [name for name in dict.fromkeys((one.name, *flows)) if self._is_begun(name)]
        name = begun[0] if begun else one.name
        noted = self._control.queries.read().get(name)
        if begun and noted is not None and noted.flows != flows:
            raise ProjectError(
                f"{one.name} was filled by {', '.join(noted.flows)} and is to be filled by "
                f"{', '.join(flows)} now: Spark cannot go on from its checkpoint with other "
                "sources. Fill another table, or begin anew: `ottla pipeline reset --to earliest`"
            )
        options = {key.lower(): value for key, value in self._sink_options(one).items()}
        is_topic = one.dataset.kind == SINK and one.dataset.format == OTTLA_FORMAT
        sink = options.get("sinkid", "") if is_topic else ""
        servers = options.get("kafka.bootstrap.servers", "") if is_topic else ""
        self._control.queries.add(name, QueryNote(flows, sink, servers))
        self._checkpoints.add(name)
        return self.project.place("checkpoints", name)

    def _is_begun(self, name: str) -> bool:
        return is_begun(self.spark, self.project.place("checkpoints", name))

    def _maybe_forget_start(self) -> None:
        """Where a reset lets queries begin is for these; one that comes later has its options."""
        if self._start_due_ms is None or now_ms() < self._start_due_ms:
            return
        self._start_due_ms = now_ms() + _START_LOOK_MS
        if all(self._is_begun(name) for name in self._checkpoints):
            self._control.start_is_taken()
            self._start_due_ms = None

    def _raise_failures(self) -> None:
        for name, query in list(self._queries.items()):
            failure = query.exception()
            if failure is None:
                continue
            if TOO_SLOW not in str(failure) or self._slow_starts >= SLOW_STARTS_MAX:
                raise failure
            # Spark waits ten seconds for the process of a source to say its first word, and that
            # cannot be set. Nothing of the query has run yet.
            self._slow_starts += 1
            log.warning("%s: its source did not start within 10 s; trying again", name)
            self._launches[name]()

    def _stop_queries(self) -> None:
        """At the end of their batches, so that nothing is left to be done again."""
        reach = Reach(self.project.settings.client, servers_of(self.project))
        if not Ending(reach.has).end(self._queries):
            self._groups.give_up()
        self._drain_listeners()

    def _drain_listeners(self) -> None:
        """The reports of the last batches are on their way: groups and status shall have them."""
        bus = self.spark.sparkContext._jsc.sc().listenerBus()
        try:
            bus.waitUntilEmpty(DRAIN_MS_MAX)
        except Py4JError:
            log.warning(
                "the reports of the last batches have not all come within %d s: consumer groups "
                "may be behind until the pipeline runs again",
                DRAIN_MS_MAX // 1000,
            )

    # -- views --------------------------------------------------------------------------------

    def _maybe_compute(self, views: list[Resolved]) -> None:
        """When rows have come in since the last time."""
        rows = sum(flow.rows for flow in self.status.flows.values())
        if rows != self._rows_at_views:
            self._compute(views)
            self._rows_at_views = rows
        self._views_due_ms = now_ms() + self.project.settings.views_every_ms

    def _compute(self, views: list[Resolved]) -> None:
        for one in views:
            # What a table held when its DataFrame was made is remembered, unless told.
            for table in self.spark.catalog.listTables():
                if not table.isTemporary:
                    self.spark.catalog.refreshTable(table.name)
            rows = one.flows[0].query()
            writer = rows.write.mode("overwrite").format(one.dataset.format)
            writer = writer.option("path", self.project.table_path(one.dataset.name))
            if one.dataset.partitions:
                writer = writer.partitionBy(*one.dataset.partitions)
            writer.saveAsTable(one.dataset.name)
            self.status.views[one.dataset.name] = now_ms()

    def _renew(self, views: list[Resolved]) -> None:
        """Temporary views are plans as well: those over tables see what these hold now."""
        for one in views:
            if one.reads:
                rows_of(one.flows).createOrReplaceTempView(one.dataset.name)

    # -- status -------------------------------------------------------------------------------

    def report(self, text: str) -> None:
        given = json.loads(text)
        flow = self.status.flows.get(given.get("name") or "")
        if flow is not None:
            take_progress(flow, given)

    def _note(self, state: str) -> None:
        self.status.state = state
        self._file.write(self.status, now=True)

    def end(self, state: str, error: str = "") -> None:
        self.status.error = error
        self._note(state)


class ProgressListener(BriefListener):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        self._engine.report(event.progress.json)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("project")
    parser.add_argument("--once", action="store_true")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # Spark logs a query that waits for a table to be defined as an error, with the JVM's stack.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        engine = _opened(Path(given.project))
    except Exception as failure:  # whatever it is, the supervisor is told
        sys.stderr.write(f"{reason_of(failure)}\n")
        log.debug("the engine did not begin", exc_info=failure)
        return 1

    def on_signal(number: int, frame: FrameType | None) -> None:
        engine.stop_wanted = True

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    try:
        engine.run(once=given.once)
    except Exception as failure:  # whatever it is, the supervisor is told
        engine.end(FAILING, reason_of(failure))
        sys.stderr.write(f"{reason_of(failure)}\n")
        if not isinstance(failure, OttlaError):
            log.debug("the engine failed", exc_info=failure)
        return 1
    finally:
        engine.spark.stop()
    engine.end(STOPPED if engine.stop_wanted else DONE)
    return 0


def _opened(root: Path) -> Engine:
    """With a session; what keeps it from one stands in the status, where an earlier engine's word
    would be taken for this one's."""
    file = StatusFile(root / STATE_NAME / STATUS_NAME)
    status = Status(root.name, pid=os.getpid(), started_ms=now_ms())
    try:
        project = find_project(root)
        status.pipeline = project.name
        file.write(status, now=True)
        return Engine(project, open_session(project), file)
    except Exception as failure:
        status.state, status.error = FAILING, reason_of(failure)
        file.write(status, now=True)
        raise


def reason_of(failure: BaseException) -> str:
    """One line: the last of a Python traceback that Spark has wrapped, else the message."""
    text = str(failure).split("\nJVM stacktrace")[0].split("\n=== Streaming Query")[0]
    ours = [line for line in text.splitlines() if line.startswith("ottla.")]
    line = ours[-1].split(": ", 1)[-1] if ours else " ".join(text.split())
    return line[:2000] or type(failure).__name__


if __name__ == "__main__":
    sys.exit(main())
