"""Goal: addresses are read as people write them, and nobody listening is told at once.
Method: a table of texts; real sockets on free ports for the rest.
"""

from __future__ import annotations

import socket

import pytest

from ottla.cli.addresses import check_anybody_listens, parse_addresses
from ottla.cli.failure import Failure
from ottla.cli.model import Address


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("127.0.0.1:9092", [Address("127.0.0.1", 9092)]),
        ("localhost", [Address("localhost", 9092)]),
        ("a:1, b:2,", [Address("a", 1), Address("b", 2)]),
        ("[::1]:9093", [Address("::1", 9093)]),
        ("[::1]", [Address("::1", 9092)]),
        ("PLAINTEXT://host:19092", [Address("host", 19092)]),
    ],
)
def test_what_people_write(text: str, addresses: list[Address]) -> None:
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize("text", ["", ",", "host:", "host:port", ":9092", "host:0", "host:65536"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="should look like"):
        parse_addresses(text)


def test_an_address_is_shown_as_it_is_written() -> None:
    assert [str(address) for address in parse_addresses("a:1,[::1]:2")] == ["a:1", "[::1]:2"]


def a_listener() -> tuple[socket.socket, Address]:
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, Address(*listener.getsockname())


def nobody() -> Address:
    listener, address = a_listener()
    listener.close()
    return address


def test_one_that_listens_is_enough() -> None:
    listener, address = a_listener()
    with listener:
        check_anybody_listens([nobody(), address], 5.0)


def test_nobody_on_this_machine() -> None:
    address = nobody()
    with pytest.raises(Failure) as told:
        check_anybody_listens([address], 5.0)
    assert str(told.value) == f"nothing answers at {address}; start one with `ottla serve`"


def test_an_unknown_host() -> None:
    with pytest.raises(Failure, match=r"'no-such-host.invalid' cannot be resolved; check --boot"):
        check_anybody_listens([Address("no-such-host.invalid", 9092)], 5.0)
