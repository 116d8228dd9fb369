"""Goal: listeners are understood and refused as in Kafka, and nothing unsafe passes as understood.
Method: directed cases, each tried on Apache Kafka 4.3.1 first; ours is stricter about ports and
advertised names, and serves PLAINTEXT only.
"""

from __future__ import annotations

import pytest

from ottla.base.errors import ConfigError
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.metadata.configs.listeners import (
    Listeners,
    ListenerSpec,
    address_of,
    is_loopback,
    parse_listeners,
)

MAP = "listener.security.protocol.map"
LOCAL = "PLAINTEXT://127.0.0.1:9092"


def parsed(**settings: str) -> Listeners:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return parse_listeners(BrokerConfig(named), host_name="here")


def plaintext(name: str, host: str, port: int) -> ListenerSpec:
    return ListenerSpec(name, host, port, "PLAINTEXT")


def test_without_settings_it_is_loopback_only() -> None:
    local = (plaintext("PLAINTEXT", "127.0.0.1", 9092),)
    assert parsed() == Listeners(local, local, "PLAINTEXT")


def test_names_in_any_case_blanks_and_addresses_of_both_kinds() -> None:
    told = parsed(
        listeners=" plaintext://127.0.0.1:9092 , Inside://[::1]:9092,OUT://my_host:0",
        listener_security_protocol_map="plaintext:plaintext, INSIDE:PLAINTEXT,out:PLAINTEXT",
    )
    assert told.listening == (
        plaintext("PLAINTEXT", "127.0.0.1", 9092),
        plaintext("INSIDE", "::1", 9092),
        plaintext("OUT", "my_host", 0),
    )


def test_an_open_host_is_advertised_under_the_machines_name() -> None:
    told = parsed(listeners="PLAINTEXT://:9092")
    assert told.listening == (plaintext("PLAINTEXT", "", 9092),)
    assert told.advertised == (plaintext("PLAINTEXT", "here", 9092),)
    told = parsed(listeners=LOCAL, advertised_listeners="PLAINTEXT://:19092")
    assert told.advertised == (plaintext("PLAINTEXT", "here", 19092),)


def test_what_is_advertised_may_be_another_address() -> None:
    told = parsed(listeners="PLAINTEXT://0.0.0.0:9092", advertised_listeners="PLAINTEXT://host:1")
    assert told.listening == (plaintext("PLAINTEXT", "0.0.0.0", 9092),)
    assert told.advertised == (plaintext("PLAINTEXT", "host", 1),)


def test_listeners_of_a_kraft_controller_are_left_out() -> None:
    told = parsed(
        process_roles="broker,controller",
        listeners=f"{LOCAL},CONTROLLER://127.0.0.1:9093",
        advertised_listeners=f"{LOCAL},CONTROLLER://127.0.0.1:9093",
        controller_listener_names="CONTROLLER",
    )
    assert told.listening == told.advertised == (plaintext("PLAINTEXT", "127.0.0.1", 9092),)


def test_brokers_choose_a_listener_by_name_or_by_protocol() -> None:
    settings = {
        "listeners": "IN://127.0.0.1:1,PLAINTEXT://127.0.0.1:2",
        "listener_security_protocol_map": "IN:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
    assert parsed(**settings).inter_broker_name == "PLAINTEXT"
    assert parsed(**settings, inter_broker_listener_name="in").inter_broker_name == "IN"


CREATING = "Error creating broker listeners from "


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"listeners": "PLAINTEXT://127.0.0.1:1,PLAINTEXT://127.0.0.1:2"},
            CREATING + "'[PLAINTEXT://127.0.0.1:1, PLAINTEXT://127.0.0.1:2]': "
            "Each listener must have a different name",
        ),
        (
            {"listeners": "A://127.0.0.1:1,B://127.0.0.2:1", MAP: "A:PLAINTEXT,B:PLAINTEXT"},
            "Listeners A and B are on the same port 1: one needs to be IPv4 and the other IPv6",
        ),
        (
            {"listeners": "EXTERNAL://127.0.0.1:1"},
            CREATING
            + "'[EXTERNAL://127.0.0.1:1]': No security protocol defined for listener EXTERNAL",
        ),
        (
            {"listeners": "PLAINTEXT://127.0.0.1"},
            CREATING + "'[PLAINTEXT://127.0.0.1]': "
            "Unable to parse PLAINTEXT://127.0.0.1 to a broker endpoint",
        ),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:1/"},
            CREATING + "'[PLAINTEXT://127.0.0.1:1/]': "
            "Unable to parse PLAINTEXT://127.0.0.1:1/ to a broker endpoint",
        ),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:65536"},
            CREATING + "'[PLAINTEXT://127.0.0.1:65536]': "
            "Port 65536 of PLAINTEXT://127.0.0.1:65536 is not between 0 and 65535",
        ),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:-1"},
            CREATING + "'[PLAINTEXT://127.0.0.1:-1]': "
            "Port -1 of PLAINTEXT://127.0.0.1:-1 is not between 0 and 65535",
        ),
        (
            {"listeners": f"{LOCAL},"},
            "Configuration 'listeners' values must not be empty.",
        ),
        (
            {"listeners": ""},
            "Configuration 'listeners' must not be empty. "
            "Valid values include: any non-empty value",
        ),
        (
            {"listeners": "CONTROLLER://127.0.0.1:1", "controller.listener.names": "CONTROLLER"},
            "listeners names no listener for clients",
        ),
        (
            {"listeners": f"{LOCAL},SSL://127.0.0.1:9093"},
            "Listener SSL speaks SSL: only PLAINTEXT is served so far",
        ),
        (
            {"listeners": LOCAL, MAP: "PLAINTEXT:SASL_SSL"},
            "Listener PLAINTEXT speaks SASL_SSL: only PLAINTEXT is served so far",
        ),
        (
            {"listeners": LOCAL, MAP: "PLAINTEXT:FOO"},
            "Invalid security protocol `FOO` defined in listener.security.protocol.map",
        ),
        (
            {"listeners": LOCAL, MAP: "PLAINTEXT"},
            "Error parsing configuration property 'listener.security.protocol.map': "
            "PLAINTEXT is not NAME:PROTOCOL",
        ),
        (
            {"listeners": LOCAL, MAP: ""},
            CREATING + f"'[{LOCAL}]': No security protocol defined for listener PLAINTEXT",
        ),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:1"},
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. "
            "Use a routable IP address.",
        ),
        (
            {"listeners": LOCAL, "advertised.listeners": "PLAINTEXT://[::]:1"},
            "advertised.listeners cannot use the nonroutable meta-address ::. "
            "Use a routable IP address.",
        ),
        (
            {"listeners": LOCAL, "advertised.listeners": f"{LOCAL},SSL://h:1"},
            "advertised.listeners has SSL, which listeners does not have",
        ),
        (
            {"listeners": LOCAL, "inter.broker.listener.name": "FOO"},
            "Listener with name FOO defined in inter.broker.listener.name not found in "
            "listener.security.protocol.map.",
        ),
        (
            {
                "listeners": LOCAL,
                "inter.broker.listener.name": "PLAINTEXT",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "Only one of inter.broker.listener.name and security.inter.broker.protocol "
            "should be set.",
        ),
        (
            {"listeners": "IN://127.0.0.1:1", MAP: "IN:PLAINTEXT"},
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            "The valid options based on currently configured listeners are IN",
        ),
    ],
)
def test_refused(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_listeners(BrokerConfig(settings))
    assert str(refused.value) == reason


def test_two_listeners_on_port_zero_each_get_a_free_one() -> None:
    told = parsed(
        listeners="A://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        listener_security_protocol_map="A:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    )
    assert [spec.port for spec in told.listening] == [0, 0]


def test_what_only_this_machine_can_reach() -> None:
    for host in ("localhost", "::1", "127.0.0.1", "127.1.2.3"):
        assert is_loopback(host)
    for host in ("", "0.0.0.0", "10.0.0.1", "127.evil.example", "localhost.example"):
        assert not is_loopback(host)


@pytest.mark.parametrize(
    ("host", "address"),
    [("::1", "[::1]:9092"), ("127.0.0.1", "127.0.0.1:9092"), ("", ":9092")],
)
def test_an_address_that_is_told_can_be_given_again(host: str, address: str) -> None:
    assert address_of(host, 9092) == address
    config = BrokerConfig({"listeners": f"PLAINTEXT://{address_of(host, 9092)}"})
    assert parse_listeners(config).listening[0].host == host
