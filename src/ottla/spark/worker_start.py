"""The Python of Spark's processes (`ottla-spark-python`): answers at once, then loads the rest.

Spark gives the process of a streaming source ten seconds from its start to its connection and ten
more to its password, which cannot be set, and importing pyspark may take longer on a busy machine.
So this does both first, with nothing but the standard library, and pyspark's own connection, when
it comes to that, is this one. Everything else is as if Python itself had been called.

It also loads what it loads faster. Spark puts an archive of pyspark on the path, in front of the
same files as pip has installed them; but Python compiles what it finds in an archive each time.
"""

from __future__ import annotations

import os
import runpy
import socket
import struct
import sys
import sysconfig
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

NAME = "ottla-spark-python"
PORT, SECRET = "PYTHON_WORKER_FACTORY_PORT", "PYTHON_WORKER_FACTORY_SECRET"
SECONDS_MAX = 600.0


def python_for_spark() -> str:
    """For PYSPARK_PYTHON, on this machine."""
    found = Path(sysconfig.get_path("scripts")) / NAME
    return str(found) if found.exists() else sys.executable


def main() -> None:
    arguments = sys.argv[1:]
    port, secret = os.environ.get(PORT, ""), os.environ.get(SECRET, "")
    prefers_other = os.environ.get("SPARK_PREFER_IPV6", "false").lower() == "true"
    sys.path[:] = without_archive(sys.path)
    if "PYTHONPATH" in os.environ:
        given = os.environ["PYTHONPATH"].split(os.pathsep)
        kept = [one for one in given if not _is_archive(one) or one in sys.path]
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    is_worker = len(arguments) >= 2 and arguments[0] == "-m" and port.isdigit() and secret
    if not is_worker or prefers_other:
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 (no shell is wanted)
    early = socket.create_connection(("127.0.0.1", int(port)), SECONDS_MAX)
    say_password(early, secret.encode())
    hand_over(early)
    sys.path[0] = str(Path.cwd())  # as `python -m` has it
    sys.argv = arguments[1:]
    runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)


def without_archive(paths: list[str]) -> list[str]:
    """The same path, where the archive's pyspark is the installed one, without the archive."""
    kept = [one for one in paths if not _is_archive(one)]
    archives = [Path(one) for one in paths if _is_archive(one)]
    found = PathFinder.find_spec("pyspark", kept)
    installed = Path(found.origin).parent if found and found.origin else None
    return kept if all(one.parents[2] == installed for one in archives) else paths


def _is_archive(path: str) -> bool:
    return Path(path).parts[-4:] == ("pyspark", "python", "lib", "pyspark.zip")


def say_password(early: socket.socket, secret: bytes) -> None:
    """As Spark has it: a length and the text, there and back."""
    early.sendall(struct.pack(">i", len(secret)) + secret)
    answer = b""
    while len(answer) < 6 and (more := early.recv(6 - len(answer))):
        answer += more
    if answer != struct.pack(">i", 2) + b"ok":
        raise SystemExit(f"Spark does not know this process: it answers {answer!r}")


def hand_over(early: socket.socket) -> None:
    """Whoever connects next to the same port gets this connection, and its password is said."""
    import pyspark.util

    port = early.getpeername()[1]
    connect, authenticate = socket.socket.connect, pyspark.util._do_server_auth

    def take(self: socket.socket, address: Any) -> None:
        if not isinstance(address, tuple) or address[1] != port:
            connect(self, address)
            return
        socket.socket.connect = connect  # type: ignore[method-assign]
        os.dup2(early.fileno(), self.fileno())
        early.close()
        self.settimeout(self.gettimeout())  # the descriptor's own mode is that of the early one

    def done_already(stream: Any, secret: str) -> None:
        pyspark.util._do_server_auth = authenticate

    socket.socket.connect = take  # type: ignore[method-assign, assignment]
    pyspark.util._do_server_auth = done_already


if __name__ == "__main__":
    main()
