"""A project on disk: its specification, as Spark defines it, and our settings beside it.

Reads two files and checks every name in them. Knows nothing of Spark.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ottla.spark import option_values as values
from ottla.spark.defaults import BOOTSTRAP
from ottla.spark.errors import OptionError, SparkError
from ottla.spark.sink_options import AT_LEAST_ONCE, EXACTLY_ONCE, SINK_NAME

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
SETTINGS_NAME = "ottla.yml"
STATE_NAME = ".ottla"
AVAILABLE_NOW = "available-now"
NO_SINK_CHARACTER = re.compile(r"[^a-zA-Z0-9._-]")

_SPEC_FIELDS = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")


class ProjectError(SparkError):
    """A project that cannot be run as it stands; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`ottla.yml`: everything has a default."""

    # How often a batch begins: a duration, or `available-now` for one run over what is there.
    trigger: str = "1s"
    delivery: str = EXACTLY_ONCE
    # The topic for records that cannot be decoded, and for rows that are quarantined.
    dead_letters: str = ""
    # Consumer groups of the queries begin with this; the pipeline's name otherwise.
    group: str = ""
    bootstrap_servers: str = ""
    # How often materialized views are computed anew while the pipeline runs.
    views_every: str = "10s"
    # Where Prometheus finds the figures: host:port.
    metrics: str = ""
    master: str = "local[2]"
    # Further settings of Spark, and of the client where the pipeline commits its progress.
    spark: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, str] = field(default_factory=dict)

    @property
    def trigger_ms(self) -> int | None:
        """None: available now."""
        if self.trigger == AVAILABLE_NOW:
            return None
        return values.duration_ms("trigger", self.trigger)

    @property
    def views_every_ms(self) -> int:
        return values.duration_ms("views_every", self.views_every)


@dataclass(frozen=True, slots=True)
class Project:
    root: Path
    name: str
    storage: str
    catalog: str
    database: str
    configuration: Mapping[str, str]
    libraries: tuple[str, ...]
    settings: Settings

    @property
    def state(self) -> Path:
        """What the runner notes down, and what it is told."""
        return self.root / STATE_NAME

    @property
    def is_local(self) -> bool:
        return "://" not in self.storage

    def place(self, *parts: str) -> str:
        """Under the storage, as Spark wants paths."""
        return "/".join([self.storage.rstrip("/"), "_ottla", *parts])

    def table_path(self, name: str) -> str:
        return self.place("tables", name)

    def sink_name(self, flow: str) -> str:
        """The sinkId of a flow that has none: names of projects and flows may have any characters,
        those of sinks may not. What is replaced stays different by the end."""
        name = f"{self.name}.{flow}"
        if SINK_NAME.fullmatch(name):
            return name
        end = hashlib.sha256(name.encode()).hexdigest()[:12]
        return f"{NO_SINK_CHARACTER.sub('_', name)[:150]}-{end}"

    def files(self) -> list[Path]:
        """The definitions, in the order of their names."""
        found: set[Path] = set()
        for pattern in self.libraries:
            wanted = pattern + "/*" if pattern.endswith("/**") else pattern
            found.update(path for path in self.root.glob(wanted) if path.is_file())
        return sorted(path for path in found if "__pycache__" not in path.parts)


def find_project(start: Path) -> Project:
    """Of a directory, one below it that is meant, or the specification itself."""
    if start.is_file():
        return load_project(start)
    if not start.is_dir():
        raise ProjectError(f"{start} is no directory; `ottla pipeline init NAME` makes a project")
    for directory in (start.resolve(), *start.resolve().parents):
        found = [directory / name for name in SPEC_NAMES if (directory / name).is_file()]
        if found:
            return load_project(found[0])
    raise ProjectError(
        f"no {SPEC_NAMES[0]} in {start} or above it; `ottla pipeline init NAME` makes a project"
    )


def load_project(spec: Path) -> Project:
    given = _read(spec)
    for name in given:
        if name not in _SPEC_FIELDS:
            raise ProjectError(f"{spec}: unknown field {name!r}{_near(name, _SPEC_FIELDS)}")
    for name in ("name", "storage"):
        if not isinstance(given.get(name), str) or not given[name].strip():
            raise ProjectError(f"{spec}: the field {name} is missing")
    root = spec.resolve().parent
    return Project(
        root=root,
        name=given["name"],
        storage=_storage(root, given["storage"]),
        catalog=str(given.get("catalog") or ""),
        database=str(given.get("database") or given.get("schema") or ""),
        configuration=_texts(spec, "configuration", given.get("configuration") or {}),
        libraries=_libraries(spec, given.get("libraries") or []),
        settings=load_settings(root / SETTINGS_NAME),
    )


def load_settings(path: Path) -> Settings:
    if not path.exists():
        return Settings()
    given = _read(path)
    known = {one.name: one for one in fields(Settings)}
    chosen: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise ProjectError(f"{path}: unknown setting {name!r}{_near(name, tuple(known))}")
        is_mapping = name in ("spark", "client")
        chosen[name] = _texts(path, name, value or {}) if is_mapping else str(value).strip()
    if "delivery" in chosen:
        chosen["delivery"] = chosen["delivery"].replace("-", "_")
    settings = Settings(**chosen)
    try:
        _ = settings.trigger_ms, settings.views_every_ms
        values.choice("delivery", settings.delivery, (EXACTLY_ONCE, AT_LEAST_ONCE))
        if settings.metrics:
            _ = metrics_address(settings.metrics)
    except OptionError as wrong:
        raise ProjectError(f"{path}: {wrong}") from None
    return settings


def metrics_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise OptionError(f"option metrics: {text!r} is no host:port")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def _storage(root: Path, text: str) -> str:
    """Without `file:`; a relative path is one of the project."""
    for prefix in ("file://", "file:"):
        if text.startswith(prefix):
            return text.removeprefix(prefix)
    return text if "://" in text else str(root / text)


def _libraries(spec: Path, given: Any) -> tuple[str, ...]:
    try:
        return tuple(str(one["glob"]["include"]) for one in given)
    except (KeyError, TypeError):
        raise ProjectError(
            f"{spec}: libraries must be a list of `glob: {{include: ...}}`"
        ) from None


def _texts(path: Path, name: str, given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise ProjectError(f"{path}: {name} must be a mapping")
    return {str(key): _text(value) for key, value in given.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise ProjectError(f"{path} cannot be read: {failure.strerror}") from failure
    except yaml.YAMLError as wrong:
        raise ProjectError(f"{path} is no YAML: {' '.join(str(wrong).split())}") from wrong
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ProjectError(f"{path} must be a mapping")
    return given


def _near(name: str, known: tuple[str, ...]) -> str:
    found = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {found[0]}?" if found else f"; there are {', '.join(known)}"


def servers_of(project: Project) -> str:
    return os.environ.get(BOOTSTRAP) or project.settings.bootstrap_servers
