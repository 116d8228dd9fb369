"""A pipeline back to its beginning: what is removed, and where it starts then.

Its checkpoints, tables and consumer groups are removed, its sinks released, so that the next run is
the first. What it has written to topics stays there: topics cannot be unwritten.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client.errors import ClientError
from ottla.spark.errors import OptionError
from ottla.spark.pipeline.control import AlreadyRunning, Control
from ottla.spark.pipeline.notes import QueryNote
from ottla.spark.pipeline.old_groups import delete_groups, groups_in
from ottla.spark.pipeline.project import Project, ProjectError, servers_of
from ottla.spark.sink_options import SINK_NAME, parse_sink_options
from ottla.spark.source_options import STREAM, start_of


@dataclass(slots=True)
class Removed:
    checkpoints: list[str]
    tables: list[str]
    sinks: list[str]
    groups: list[str]
    # Why some groups are still there: the brokers of a source may be gone for good.
    groups_left: list[str]


def start_text(text: str) -> str:
    """What the source takes as its start: a name, offsets as JSON, or a time."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        try:
            _refuse_no_start(text)
        except OptionError as wrong:
            raise OptionError(
                f"--to {text}: neither earliest, latest, a time such as 2026-01-31T12:00 nor "
                f"offsets ({wrong})"
            ) from None
        return text
    return str(int(moment.timestamp() * 1000))


def _refuse_no_start(text: str) -> None:
    found = start_of(text, STREAM)
    if found is None:
        raise OptionError("it is empty")
    if found.kind == "group":
        raise OptionError("a query that begins has a group of its own")


def reset(project: Project, to: str, *, keep_tables: bool, servers: str = "") -> Removed:
    """`servers` are the brokers of sinks that name none; else those that the project knows."""
    control = Control(project.state)
    if control.is_held():
        raise AlreadyRunning("the pipeline is running: `ottla pipeline stop` first")
    start = start_text(to)
    # Nobody may begin to run what is half removed.
    with control.held():
        removed = _removed(project, control, keep_tables=keep_tables, servers=servers)
        control.start_at(start)
    return removed


def _removed(project: Project, control: Control, *, keep_tables: bool, servers: str) -> Removed:
    import pyarrow.fs as pafs

    from ottla.spark.tables.places import files_at

    files, root = files_at(project.place())

    def names(directory: str) -> list[str]:
        selector = pafs.FileSelector(f"{root}/{directory}", allow_not_found=True)
        return sorted(one.base_name for one in files.get_file_info(selector))

    removed = Removed(names("checkpoints"), [] if keep_tables else names("tables"), [], [], [])
    for own_servers, sinks in _sinks_of(project, control, removed.checkpoints).items():
        reached = own_servers or servers or servers_of(project)
        removed.sinks += release_sinks(reached, project.settings.client, sinks)
    _remove_groups(project, removed)
    for directory, found in (("checkpoints", removed.checkpoints), ("tables", removed.tables)):
        for name in found:
            files.delete_dir(f"{root}/{directory}/{name}")
    control.queries.clear()
    return removed


def _remove_groups(project: Project, removed: Removed) -> None:
    logs = (_newest_offsets(project.place("checkpoints", name)) for name in removed.checkpoints)
    for servers, groups in groups_in(logs).items():
        left = list(groups)
        try:
            for group, was_there in delete_groups(servers, project.settings.client, groups):
                left.remove(group)
                removed.groups += [group] if was_there else []
        except ClientError as wrong:
            removed.groups_left.append(f"{', '.join(left)}: {wrong}")


def _newest_offsets(checkpoint: str) -> str:
    from ottla.spark.tables.places import Place

    place = Place(checkpoint)
    batches = [int(name) for name in place.names("offsets") if name.isdecimal()]
    return place.read(f"offsets/{max(batches)}").decode() if batches else ""


def _sinks_of(project: Project, control: Control, checkpoints: list[str]) -> dict[str, list[str]]:
    """By the brokers that they name themselves, or none."""
    noted = control.queries.read()
    found: dict[str, list[str]] = {}
    for name in checkpoints:
        # Without a note an earlier version has run it: all of its queries may have had a sink.
        note = noted.get(name) or QueryNote((name,), project.sink_name(name))
        if note.sink:
            found.setdefault(note.servers, []).append(note.sink)
    return found


def release_sinks(servers: str, client: Mapping[str, str], sinks: list[str]) -> list[str]:
    """Those that had a decision. `client` are settings of the client, under Kafka's names."""
    from ottla.spark.client_sink import ClientSinkCluster
    from ottla.spark.client_view import answers

    for sink in sinks:
        if not SINK_NAME.fullmatch(sink):
            raise OptionError(f"{sink!r} cannot be the name of a sink")
    if not servers:
        raise ProjectError(
            "which brokers? Say --bootstrap-server, or set OTTLA_BOOTSTRAP, or bootstrap_servers "
            "in ottla.yml"
        )
    # The sink's own patience is that of a query, which has nobody waiting for it.
    if not answers(client, servers):
        raise ProjectError(
            f"nothing answers at {servers}: its brokers are needed to release a sink"
        )
    settings = {f"kafka.{name}": value for name, value in client.items()}
    given = {**settings, "kafka.bootstrap.servers": servers}
    cluster = ClientSinkCluster(parse_sink_options(given, streaming=True))
    try:
        return [sink for sink in sinks if cluster.release(sink)]
    finally:
        cluster.wire.close()
