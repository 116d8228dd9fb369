"""Goal: exit codes and stderr are as the documentation says, whatever happens.
Method: the commands run in this process, without any broker.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli import commands, main
from ottla.cli.failure import Failure

COMMANDS = [
    "serve",
    "topic create",
    "topic list",
    "topic describe",
    "topic alter",
    "topic delete",
    "topic records",
    "config describe",
    "config alter",
    *(f"reassign {name}" for name in ("generate", "execute", "verify", "status", "cancel")),
    *(f"cluster {name}" for name in ("up", "status", "stop", "kill", "pause", "resume")),
    *(f"cluster {name}" for name in ("start", "down", "adopt")),
    "produce",
    "consume",
    "group list",
    "group describe",
    "group members",
    "group lag",
    "group reset",
    "group delete",
    "log dump",
    *(f"pipeline {name}" for name in ("init", "dry-run", "preview", "run", "status", "list")),
    *(f"pipeline {name}" for name in ("pause", "resume", "stop", "reset", "test", "doctor")),
    "cluster up",
    "demo greetings",
    "demo exactly-once",
    *(f"txn {name}" for name in ("list", "describe", "abort", "find-hanging")),
    "explain",
    "demo order-events",
    "demo acks",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main.run([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert "Examples:" in text
    assert "[[" not in text
    assert f"ottla {command}" in text.partition("Examples:")[2]
    assert max(map(len, text.splitlines())) <= 80


def test_no_command_is_forgotten_here() -> None:
    tops = {command.partition(" ")[0] for command in COMMANDS}
    assert tops == set(commands.MODULES)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("", "Usage: ottla"),
        ("nothing", "No such command 'nothing'"),
        ("serve --nothing", "No such option: --nothing"),
        ("serve --override a", "'a' should look like key=value"),
        ("topic create", "Missing argument"),
        ("topic create t --partitions 0", "--partitions"),
        ("topic create t --config a", "'a' should look like key=value"),
        ("topic create t --replica-assignment 1:x", "should look like 1:2,2:3"),
        ("topic create t --replica-assignment 1:2,3", "the same number of replicas"),
        ("topic create t --replica-assignment 1:2 -p 3", "--replica-assignment"),
        ("topic alter t", "nothing to change"),
        ("topic records t --delete-before 5 --delete-all", "give one of"),
        ("topic records t --delete-before x", "'x' is none of"),
        ("config describe", "give one of --topic, --broker and --all-brokers"),
        ("config describe --topic t --broker 1", "give one of --topic, --broker and --all-brokers"),
        ("config alter --topic t", "nothing to change"),
        ("consume t --from nowhere", "'nowhere' is none of"),
        ("consume t --format %q", "'%q'"),
        ("consume t --format %v --key", "--format"),
        ("consume t --rate 0", "--rate"),
        ("consume t --commit before", "need a --group"),
        ("consume t --commit-every 5", "need a --group"),
        ("consume t --instance x", "need a --group"),
        ("consume t -g g --partition 0", "the group decides"),
        ("consume t -g g --from 5", "with --group it is beginning or end"),
        ("consume t -g g --commit sometimes", "sometimes"),
        ("group describe", "Missing argument"),
        ("group list --state Stabel", "Stabel is none of Empty, Stable"),
        ("group lag --count 3", "goes with --watch"),
        ("group reset g --to-latest", "give one of --topic and --all-topics"),
        ("group reset g -t t --all-topics --to-latest", "give one of --topic and --all-topics"),
        ("group reset g -t t", "give one of --to-earliest"),
        ("group reset g -t t --to-latest --to-offset 5", "give one of --to-earliest"),
        ("group reset g -t t: --to-latest", "should look like orders or orders:0,1"),
        ("group reset g -t t --to-offset -5", "--to-offset"),
        ("group reset g -t t --by-duration soon", "'soon' is no duration"),
        ("group reset g -t t --to-datetime soon", "'soon' is no time"),
        ("group reset g -t t --to-latest --export -o json", "goes without --output json"),
        ("produce t --json --key-separator :", "--json"),
        ("produce t --key-separator \\q", "is no escape"),
        ("produce t --header =x", "has no name"),
        ("produce t --compression fast", "fast"),
        ("txn list --longer-than soon", "'soon' is no duration"),
        ("txn list --state open", "open is none of Empty, Ongoing, PrepareCommit"),
        ("txn describe", "Missing argument"),
        ("txn abort", "give an ID, or --topic, --partition and --start-offset"),
        ("txn abort x --topic t", "give an ID, or --topic, --partition and --start-offset"),
        ("txn abort --topic t", "--topic, --partition and --start-offset go together"),
        ("txn find-hanging --partition 1", "goes with --topic"),
        ("txn find-hanging --quiet soon", "'soon' is no duration"),
        ("explain t 0", "Missing argument"),
        ("explain t 0 -- -5", "OFFSET"),
        ("demo exactly-once --kills -1", "--kills"),
        ("topic list --output xml", "xml"),
        ("topic list --bootstrap-server host:port", "should look like 127.0.0.1:9092"),
        ("topic list --bootstrap-server ::1", "should look like 127.0.0.1:9092"),
        ("topic create t --partitions 2147483648", "less than or equal to 2147483647"),
        ("topic create t --replication-factor 32768", "less than or equal to 32767"),
        ("topic create t --replica-assignment 2147483648", "no broker has such an id"),
        ("topic alter t --partitions 2147483648", "less than or equal to 2147483647"),
        ("txn list --producer-id 9223372036854775808", "less than or equal to"),
        ("consume t --from @9999999999999999999", "behind the year 9999"),
        ("topic records t --delete-before @9999999999999999999", "behind the year 9999"),
        ("group reset g -t t --to-datetime 9999999999999999999", "behind the year 9999"),
        ("topic create t\udcff", "t\\udcff is no UTF-8"),
        ("group delete t\udcff", "t\\udcff is no UTF-8"),
        ("produce t -H n\udcff=v", "n\\udcff is no UTF-8"),
    ],
)
def test_wrong_usage(arguments: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert told in captured.err


@pytest.mark.parametrize(
    "command",
    [
        "topic list",
        "reassign status",
        "consume t",
        "consume t -g g",
        "produce t",
        "config describe -t t",
        "group list",
        "group lag --watch",
        "group reset g -t t --to-latest",
        "demo greetings",
        "demo exactly-once",
        "txn list",
        "explain t 0 0",
    ],
)
def test_nobody_answers(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert main.run([*command.split(), "--bootstrap-server", f"127.0.0.1:{port}"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"ottla: nothing answers at 127.0.0.1:{port}; start one with `ottla serve`\n"
    )


def test_the_environment_names_the_brokers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "no-such-host.invalid:1")
    assert main.run(["topic", "list"]) == 1
    assert "no-such-host.invalid" in capsys.readouterr().err


def test_a_reason_of_many_lines_becomes_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: list[str]) -> None:
        raise Failure("first\nsecond")

    monkeypatch.setattr(commands, "run", fail)
    assert main.run(["topic"]) == 1
    assert capsys.readouterr().err == "ottla: first second\n"


def test_a_mistake_of_ours_is_one_line_unless_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = KeyError("lost")
    main.explain_briefly(KeyError, error, None)
    line = capsys.readouterr().err
    monkeypatch.setenv("OTTLA_DEBUG", "1")
    main.explain_briefly(KeyError, error, None)
    assert line == "ottla: unexpected KeyError: 'lost' (set OTTLA_DEBUG=1 to see where)\n"
    assert capsys.readouterr().err == "KeyError: 'lost'\n"


def test_ctrl_c_ends_a_command_before_it_has_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(arguments: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "run", interrupt)
    assert main.run(["topic", "list"]) == 130
    assert capsys.readouterr().err == ""


def test_nobody_reads_what_a_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert main.run(["log", "dump", "--help"]) == 0
    assert capsys.readouterr().err == ""


def test_there_is_no_room_for_what_a_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert main.run(["log", "dump", "--help"]) == 1
        assert (
            capsys.readouterr().err
            == "ottla: the output cannot be written: No space left on device\n"
        )
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())


def test_a_command_has_no_standard_streams(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ottla", "log", "dump", "--help"])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as left:
        main.app()
    assert left.value.code == 0
    assert sys.stdin.read() == ""
    sys.stdin.close()
    sys.stdout.close()
    assert capsys.readouterr().err == ""


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("ottla 0.")


def test_the_console_script_exits_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ottla", "nothing"])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with pytest.raises(SystemExit) as left:
        main.app()
    assert left.value.code == 2


def test_the_package_itself_can_be_run() -> None:
    """`python -m ottla`, where nobody has the script on the path."""
    command = [sys.executable, "-m", "ottla", "--version"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("ottla ")
