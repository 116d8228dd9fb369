"""A pipeline back to its beginning: what is removed, and where it starts then.

Its checkpoints and tables are removed, its sinks released, so that the next run is the first. What
it has written to topics stays there: topics cannot be unwritten.
"""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass

from ottla.spark.defaults import BOOTSTRAP
from ottla.spark.errors import OptionError
from ottla.spark.pipeline.control import AlreadyRunning, Control
from ottla.spark.pipeline.project import Project, ProjectError
from ottla.spark.source_options import STREAM, start_of


@dataclass(slots=True)
class Removed:
    checkpoints: list[str]
    tables: list[str]
    sinks: list[str]


def start_text(text: str) -> str:
    """What the source takes as its start: a name, offsets as JSON, or a time."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        try:
            start_of(text, STREAM)
        except OptionError as wrong:
            raise OptionError(
                f"--to {text}: neither earliest, latest, a time such as 2026-01-31T12:00 nor "
                f"offsets ({wrong})"
            ) from None
        return text
    return str(int(moment.timestamp() * 1000))


def reset(project: Project, to: str, *, keep_tables: bool) -> Removed:
    import pyarrow.fs as pafs

    control = Control(project.state)
    if control.is_held():
        raise AlreadyRunning("the pipeline is running: `ottla pipeline stop` first")
    start = start_text(to)
    if "://" in project.storage:
        files, root = pafs.FileSystem.from_uri(project.place())
    else:
        files, root = pafs.LocalFileSystem(), project.place()

    def names(directory: str) -> list[str]:
        selector = pafs.FileSelector(f"{root}/{directory}", allow_not_found=True)
        return sorted(one.base_name for one in files.get_file_info(selector))

    removed = Removed(names("checkpoints"), [] if keep_tables else names("tables"), [])
    removed.sinks = release_sinks(project, [f"{project.name}.{one}" for one in removed.checkpoints])
    for directory, found in (("checkpoints", removed.checkpoints), ("tables", removed.tables)):
        for name in found:
            files.delete_dir(f"{root}/{directory}/{name}")
    control.start_at(start)
    return removed


def release_sinks(project: Project, sinks: list[str]) -> list[str]:
    """Those that had a decision."""
    from ottla.spark.client_sink import ClientSinkCluster
    from ottla.spark.sink_options import SINK_NAME, parse_sink_options

    wanted = [sink for sink in sinks if SINK_NAME.fullmatch(sink)]
    servers = os.environ.get(BOOTSTRAP) or project.settings.bootstrap_servers
    if not wanted:
        return []
    if not servers:
        raise ProjectError("which brokers? Set bootstrap_servers in ottla.yml or OTTLA_BOOTSTRAP")
    settings = {f"kafka.{name}": value for name, value in project.settings.client.items()}
    given = {**settings, "kafka.bootstrap.servers": servers}
    cluster = ClientSinkCluster(parse_sink_options(given, streaming=True))
    try:
        return [sink for sink in wanted if cluster.decision(sink) and cluster.release(sink)]
    finally:
        cluster.wire.close()
