"""Goal: a story is told the same with and without a terminal, its members are heard in order, and
its figures count what happened.
Method: tellers that write to memory; small scripts in place of members and brokers.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import pytest
from rich.console import Console

from ottla.cli.demos import member, own_broker
from ottla.cli.demos.member import Delivery, MemberProcess
from ottla.cli.demos.own_broker import OwnBroker
from ottla.cli.demos.tally import Figures, Tally
from ottla.cli.demos.teller import PlainTeller, Teller, TerminalTeller, hex_lines
from ottla.cli.failure import Failure


def tell_everything(teller: Teller) -> None:
    teller.chapter(1, "Produced")
    teller.command("ottla produce Greetings")
    teller.say("something happened")
    teller.quote("anna", "0@0 Hello, world!")
    teller.bytes_(b"Hello\x00")
    teller.log("Greetings-0", ["Hello", "Ahoj"], {"readers": 1, "others": 2})
    with teller.waiting("after a while"):
        pass
    teller.verdict("done")
    teller.last_line("1 group")


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    tell_everything(PlainTeller())
    assert capsys.readouterr().out.splitlines() == [
        "1. Produced",
        "   $ ottla produce Greetings",
        "   something happened",
        "   anna | 0@0 Hello, world!",
        "   0000  48 65 6c 6c 6f 00                                Hello.",
        "   Greetings-0: [0 Hello] [1 Ahoj]",
        "   readers goes on at offset 1",
        "   others goes on at offset 2",
        "   after a while",
        "   => done",
        "1 group",
    ]


def test_a_terminal_shows_the_same_things() -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=80, force_terminal=True, highlight=False)
    tell_everything(TerminalTeller(console, fast=True))
    text = screen.getvalue()
    for told in ("Produced", "ottla produce Greetings", "something happened", "0@0 Hello, world!"):
        assert told in text
    for told in (
        "48 65 6c 6c 6f 00",
        "Hello.",
        "▲ readers",
        "▲ others",
        "after a while",
        "1 group",
    ):
        assert told in text
    assert "\x1b[" in text


def test_bytes_in_lines_of_sixteen() -> None:
    lines = hex_lines(bytes(range(65, 82)))
    assert lines[0].endswith("50  ABCDEFGHIJKLMNOP")
    assert lines[1].startswith("0010  51 ")


def test_the_tally() -> None:
    tally = Tally()
    tally.expect("careful", [(0, 0), (0, 1)])
    tally.add("careful", [Delivery(0, 0, "a"), Delivery(0, 0, "a"), Delivery(0, 1, "b")])
    tally.expect("hasty", [(0, 0), (0, 1)])
    tally.add("hasty", [Delivery(0, 0, "a")])
    tally.expect("hasty", [(0, 0), (0, 1)])
    assert tally.figures() == Figures(groups=2, once=2, twice=1, never=1)


# -------------------------------------------------------------------------------------- processes


def a_member(
    script: str, monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str] = ()
) -> MemberProcess:
    monkeypatch.setattr(member, "OTTLA", (sys.executable, "-u", "-c", script))
    return MemberProcess("anna", arguments)


def test_a_member_is_heard_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
import sys
sys.stderr.write("assigned G-0, G-1\\n")
sys.stdout.write("0\\t5\\tHello, world!\\n")
sys.stderr.write("committed G-0@6\\n")
sys.stderr.write("revoked G-1\\n")
sys.stderr.write("assigned nothing\\n")
sys.stderr.write("revoked G-0\\n")
sys.stderr.write("left group g\\n")
"""
    anna = a_member(script, monkeypatch)
    anna.wait_until(lambda: "G-0" in anna.owned, "get a partition")
    anna.wait_for_end()
    assert anna.deliveries == [Delivery(0, 5, "Hello, world!")]
    assert anna.owned == set()
    assert anna.said == [
        "assigned G-0, G-1",
        "0@5 Hello, world!",
        "committed G-0@6",
        "revoked G-1",
        "assigned nothing",
        "left group g",
    ]


def test_a_member_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    anna = a_member("import sys; sys.exit('ottla: no such topic')", monkeypatch)
    with pytest.raises(Failure, match="member anna of the demo failed: ottla: no such topic"):
        anna.wait_for_end()


def test_a_member_that_ends_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    anna = a_member("print('goodbye')", monkeypatch)
    with pytest.raises(Failure, match="member anna of the demo did not get a record: goodbye"):
        anna.wait_until(lambda: bool(anna.deliveries), "get a record")
    anna.close()


def test_a_member_that_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import time; print('0\\t0\\tHello'); time.sleep(600); print('0\\t1\\tnever')"
    anna = a_member(script, monkeypatch)
    anna.wait_until(lambda: bool(anna.deliveries), "get a record")
    anna.kill()
    assert [one.value for one in anna.deliveries] == ["Hello"]


def test_a_broker_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        own_broker, "OTTLA", (sys.executable, "-c", "import sys; sys.exit('port taken')")
    )
    broker = OwnBroker()
    with pytest.raises(Failure, match="the demo's broker did not start: port taken"), broker:
        pass
    assert not broker.directory.exists()


def test_a_broker_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import time; print('ottla listening on 127.0.0.1:5 (node 0)'); time.sleep(600)"
    monkeypatch.setattr(own_broker, "OTTLA", (sys.executable, "-u", "-c", script))
    with OwnBroker() as broker:
        assert broker.bootstrap == "127.0.0.1:5"
        assert broker.directory.exists()
    assert not broker.directory.exists()
