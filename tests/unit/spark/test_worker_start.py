"""A process of Spark connects before it loads anything, and its own connection is that one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from ottla.spark.worker_start import without_archive
from tests.patience import SECONDS_MAX

PROGRAM = """
import os, sys
from pyspark.util import local_connect_and_auth

port, secret = (os.environ[f"PYTHON_WORKER_FACTORY_{name}"] for name in ("PORT", "SECRET"))
stream, made = local_connect_and_auth(int(port), secret)
stream.write(" ".join(sys.argv[1:]).encode())
stream.close()
"""


def test_the_first_connection_is_the_only_one(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS_MAX)
        given = {
            "PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": "hush",
        }
        command = [sys.executable, "-m", "ottla.spark.worker_start", "-m", "program", "a", "b"]
        with subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **given}) as process:
            connection, _ = server.accept()
            connection.settimeout(SECONDS_MAX)
            with connection, connection.makefile("rwb") as stream:
                assert stream.read(8) == b"\0\0\0\4hush"
                stream.write(b"\0\0\0\2ok")
                stream.flush()
                assert stream.read() == b"a b"
            assert process.wait(SECONDS_MAX) == 0
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_anything_else_is_left_to_python() -> None:
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHON_WORKER_FACTORY_PORT"
    }
    done = subprocess.run(
        [sys.executable, "-m", "ottla.spark.worker_start", "-c", "print(6 * 7)"],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert done.stdout.split() == ["42"]


def made(site: Path) -> str:
    (site / "pyspark" / "python" / "lib").mkdir(parents=True)
    (site / "pyspark" / "__init__.py").touch()
    return str(site / "pyspark" / "python" / "lib" / "pyspark.zip")


def test_an_archive_of_what_is_installed_is_passed_by(tmp_path: Path) -> None:
    archive, site = made(tmp_path / "site"), str(tmp_path / "site")
    assert without_archive(["first", archive, site]) == ["first", site]


def test_an_archive_of_another_pyspark_is_taken(tmp_path: Path) -> None:
    archive, other = made(tmp_path / "site"), str(tmp_path / "other")
    made(tmp_path / "other")
    path = [archive, other, str(tmp_path / "site")]
    assert without_archive(path) == path
    assert without_archive([archive]) == [archive]


def test_a_worker_does_not_load_pyspark_from_its_archive(tmp_path: Path) -> None:
    command, environment, installed = which_pyspark(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS_MAX)
        given = {
            "PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": "hush",
        }
        with subprocess.Popen(
            command, cwd=tmp_path, env={**environment, **given}, stdout=subprocess.PIPE, text=True
        ) as process:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"\0\0\0\2ok")
                printed, _ = process.communicate(timeout=SECONDS_MAX)
    assert printed.split() == [installed]


def test_a_daemon_does_not_load_pyspark_from_its_archive(tmp_path: Path) -> None:
    command, environment, installed = which_pyspark(tmp_path)
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [installed]


def which_pyspark(directory: Path) -> tuple[list[str], dict[str, str], str]:
    """A process as Spark starts it, what it inherits, and the module that it is to find."""
    (directory / "program.py").write_text("import pyspark; print(pyspark.__file__)")
    installed = Path(pyspark.__file__).parent
    (archive,) = installed.glob("python/lib/pyspark.zip")
    command = [sys.executable, "-m", "ottla.spark.worker_start", "-m", "program"]
    path = os.pathsep.join([str(archive), *sys.path])
    return command, {**os.environ, "PYTHONPATH": path}, str(installed / "__init__.py")
