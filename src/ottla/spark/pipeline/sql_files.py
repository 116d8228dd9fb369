"""The SQL of a project: which datasets and flows its statements define. Pure.

Spark's own pipelines keep these statements for their server; in our engine their queries are plain
SQL, so only what stands around a query is read here. What is not understood is refused with its
first words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ottla.spark.pipeline.project import ProjectError

_NAME = r"(?P<name>`[^`]+`|[\w.]+)"
_CREATE = re.compile(
    r"CREATE\s+(?:OR\s+REFRESH\s+)?"
    r"(?P<kind>STREAMING\s+TABLE|MATERIALIZED\s+VIEW|TEMPORARY\s+VIEW)\s+"
    rf"(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}\s*(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_FLOW = re.compile(
    rf"CREATE\s+FLOW\s+{_NAME}\s+(?:COMMENT\s+'[^']*'\s+)?AS\s+INSERT\s+INTO\s+"
    r"(?P<target>`[^`]+`|[\w.]+)\s+(?:BY\s+NAME\s+)?(?P<query>.*)",
    re.IGNORECASE | re.DOTALL,
)
_CLAUSES = (
    (re.compile(r"USING\s+(\w+)\s*", re.IGNORECASE), "format"),
    (re.compile(r"PARTITIONED\s+BY\s*\(([^)]*)\)\s*", re.IGNORECASE), "partitions"),
    (re.compile(r"COMMENT\s+'([^']*)'\s*", re.IGNORECASE), "comment"),
    (re.compile(r"TBLPROPERTIES\s*\(([^)]*)\)\s*", re.IGNORECASE), "properties"),
)
_AS = re.compile(r"AS\s+(?P<query>.*)", re.IGNORECASE | re.DOTALL)

KINDS = {"streaming table": "table", "materialized view": "view", "temporary view": "temporary"}


@dataclass(frozen=True, slots=True)
class Statement:
    """`kind` is table, view, temporary or flow; `query` is empty for a table without one."""

    kind: str
    name: str
    target: str
    query: str
    format: str = ""
    partitions: tuple[str, ...] = field(default=())


def statements_of(text: str, path: str) -> list[Statement]:
    return [_statement(one, path) for one in split(text)]


def _statement(text: str, path: str) -> Statement:
    flow = _FLOW.fullmatch(text)
    if flow is not None:
        name = _plain(flow["name"])
        return Statement("flow", name, _plain(flow["target"]), flow["query"].strip())
    created = _CREATE.fullmatch(text)
    if created is None:
        raise ProjectError(
            f"{path}: {' '.join(text.split())[:60]!r} defines no streaming table, materialized "
            "view, temporary view or flow"
        )
    kind = KINDS[" ".join(created["kind"].lower().split())]
    name, rest = _plain(created["name"]), created["rest"]
    found: dict[str, str] = {}
    while (clause := _next_clause(rest)) is not None:
        key, value, rest = clause
        found[key] = value
    partitions = tuple(one.strip() for one in found.get("partitions", "").split(",") if one.strip())
    query = _AS.fullmatch(rest)
    if query is None and (rest.strip() or kind != "table"):
        raise ProjectError(f"{path}: {name}: expected AS, found {' '.join(rest.split())[:60]!r}")
    text = "" if query is None else query["query"].strip()
    return Statement(kind, name, name, text, found.get("format", ""), partitions)


def _next_clause(rest: str) -> tuple[str, str, str] | None:
    for pattern, key in _CLAUSES:
        found = pattern.match(rest)
        if found is not None:
            return key, found[1], rest[found.end() :]
    return None


def _plain(name: str) -> str:
    return name.replace("`", "")


def split(text: str) -> list[str]:
    """The statements, without comments; semicolons in quotes are none."""
    statements, current, at = [], "", 0
    while at < len(text):
        if text.startswith("--", at):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif text.startswith("/*", at):
            end = text.find("*/", at)
            at = len(text) if end < 0 else end + 2
        elif text[at] in "'\"`":
            end = _end_of_quote(text, at)
            current += text[at:end]
            at = end
        elif text[at] == ";":
            statements.append(current)
            current = ""
            at += 1
        else:
            current += text[at]
            at += 1
    statements.append(current)
    return [one.strip() for one in statements if one.strip()]


def _end_of_quote(text: str, at: int) -> int:
    quote, end = text[at], at + 1
    while end < len(text) and text[end] != quote:
        end += 2 if text[end] == "\\" else 1
    return min(end + 1, len(text))
