"""Goal: TLS and SASL as Apache Kafka speaks them; nobody is let in by mistake, on either side.
Method: a Kafka with a listener of each kind, both shells, right and wrong credentials.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import traceback
from functools import partial
from typing import Any

import confluent_kafka.admin as confluent_admin
import pytest

from ottla.client import Admin, Consumer, Producer
from ottla.client.aio import AsyncConsumer, AsyncProducer
from ottla.client.errors import AuthenticationError, ConfigError, TlsError
from ottla.client.settings import AdminSettings, read_settings
from ottla.client.tls import tls_context
from tests.client.secure_kafka import PASSWORD, USER, SecureKafka
from tests.compat.nodes import wait_until

PATIENCE_S = 120.0
VALUES = [b"%d" % number * 50_000 for number in range(10)]
"""Larger than a record of TLS and, together, than what a socket takes at once."""

kafka = [pytest.mark.kafka, pytest.mark.java, pytest.mark.xdist_group("client-kafka")]


def settings(node: SecureKafka, protocol: str, **more: object) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap_servers": node.address(protocol),
        "security_protocol": protocol,
        "request_timeout_ms": 60_000,
    }
    if protocol.startswith("SASL"):
        found.update(sasl_username=USER, sasl_password=PASSWORD)
    if protocol.endswith("SSL"):
        found.update(ssl_cafile=str(node.authority.trusted))
    if protocol == "SSL":
        found.update(ssl_certfile=str(node.authority.client))
    return found | more


MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WAYS = [
    pytest.param("SSL", {}, marks=kafka, id="tls"),
    pytest.param("SASL_PLAINTEXT", {"sasl_mechanism": "PLAIN"}, marks=kafka, id="plain"),
    pytest.param("SASL_PLAINTEXT", {"sasl_mechanism": "SCRAM-SHA-256"}, marks=kafka, id="scram"),
    pytest.param("SASL_SSL", {"sasl_mechanism": "SCRAM-SHA-512"}, marks=kafka, id="all"),
]


@pytest.fixture(scope="session")
def secure(kafka_node: SecureKafka) -> SecureKafka:
    """It knows the user by SCRAM, too."""
    admin = confluent_admin.AdminClient({"bootstrap.servers": kafka_node.bootstrap})
    kinds = (
        confluent_admin.ScramMechanism.SCRAM_SHA_256,
        confluent_admin.ScramMechanism.SCRAM_SHA_512,
    )
    wanted = [
        confluent_admin.UserScramCredentialUpsertion(
            USER, confluent_admin.ScramCredentialInfo(kind, 4096), PASSWORD.encode()
        )
        for kind in kinds
    ]
    for one in wanted:
        for future in admin.alter_user_scram_credentials([one]).values():
            future.result(PATIENCE_S)
    # The controller answers before its brokers have heard of it, and who comes too early is refused
    # for good.
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        wait_until(partial(is_let_in, kafka_node, mechanism), PATIENCE_S, f"a login by {mechanism}")
    return kafka_node


def is_let_in(node: SecureKafka, mechanism: str) -> bool:
    with Admin(settings(node, "SASL_PLAINTEXT", sasl_mechanism=mechanism)) as admin:
        try:
            admin.describe_cluster()
        except AuthenticationError:
            return False
    return True


@pytest.mark.parametrize(("protocol", "more"), WAYS)
def test_records_come_back(
    secure: SecureKafka, topic: str, protocol: str, more: dict[str, Any]
) -> None:
    ours = settings(secure, protocol, **more)
    with Producer(ours, linger_ms=0) as producer:
        for delivery in [producer.send(topic, value) for value in VALUES]:
            delivery.result(PATIENCE_S)
    with Consumer(ours, auto_offset_reset="earliest") as consumer:
        consumer.assign((topic, 0))
        found: list[bytes] = []
        while len(found) < len(VALUES):
            found += [record.value for record in consumer.poll(PATIENCE_S)]
    assert found == VALUES


@pytest.mark.parametrize(("protocol", "more"), WAYS)
def test_asyncio(secure: SecureKafka, topic: str, protocol: str, more: dict[str, Any]) -> None:
    async def run() -> list[bytes]:
        ours = settings(secure, protocol, **more)
        async with AsyncProducer(ours) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        async with AsyncConsumer(ours, auto_offset_reset="earliest") as consumer:
            consumer.assign((topic, 0))
            found: list[bytes] = []
            while len(found) < len(VALUES):
                found += [record.value for record in await consumer.poll(PATIENCE_S)]
        return found

    assert asyncio.run(run()) == VALUES


WRONG = [
    pytest.param(
        "SASL_PLAINTEXT",
        {"sasl_password": "guessed"},
        AuthenticationError,
        marks=kafka,
        id="password",
    ),
    pytest.param(
        "SASL_PLAINTEXT",
        {"sasl_mechanism": "SCRAM-SHA-512", "sasl_password": "guessed"},
        AuthenticationError,
        marks=kafka,
        id="scram-password",
    ),
    pytest.param("SASL_SSL", {"ssl_cafile": None}, TlsError, marks=kafka, id="stranger"),
    pytest.param(
        "SASL_SSL",
        {"bootstrap_servers": "localhost:0"},
        TlsError,
        marks=kafka,
        id="name",
    ),
]


@pytest.mark.parametrize(("protocol", "wrong", "kind"), WRONG)
def test_who_is_not_trusted_is_told_at_once(
    secure: SecureKafka, protocol: str, wrong: dict[str, Any], kind: type[Exception]
) -> None:
    ours = settings(secure, protocol)
    ours.update(wrong)
    if "bootstrap_servers" in wrong:  # a name that the certificate does not have
        ours["bootstrap_servers"] = f"localhost:{secure.ports[protocol]}"
    with Admin(ours) as admin, pytest.raises(kind):
        admin.list_topics()
    with Producer(ours) as producer, pytest.raises(kind):
        producer.send("any", b"value").result(PATIENCE_S)

    async def send() -> None:
        async with AsyncProducer(ours) as producer:
            await producer.send_and_wait("any", b"value")

    with pytest.raises(kind):
        asyncio.run(send())


def test_files_that_cannot_be_used_are_refused() -> None:
    for name in ("ssl_cafile", "ssl_certfile"):
        given = {"bootstrap.servers": "h:1", "security.protocol": "ssl", name: "/no/such/file"}
        with pytest.raises(ConfigError, match=name.replace("_", r"\.")):
            tls_context(read_settings(AdminSettings, given, {}))


def test_other_clients_names_are_understood() -> None:
    given = {
        "bootstrap.servers": "h:1",
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "scram-sha-256",
        "sasl_plain_username": "u",
        "sasl.password": "p",
        "ssl.ca.location": "authority.pem",
    }
    read = read_settings(AdminSettings, given, {})
    assert (read.security_protocol, read.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-256")
    assert (read.sasl_username, read.ssl_cafile) == ("u", "authority.pem")


@pytest.mark.parametrize("mechanism", [pytest.param(one, marks=kafka) for one in MECHANISMS])
@pytest.mark.parametrize("password", [PASSWORD, "guessed-and-wrong"])
def test_no_log_tells_a_password(
    secure: SecureKafka,
    topic: str,
    mechanism: str,
    password: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    more = {"sasl_mechanism": mechanism, "sasl_password": password}
    ours = settings(secure, "SASL_PLAINTEXT", **more)
    told = ""
    with Producer(ours) as producer:
        try:
            producer.send(topic, b"value").result(PATIENCE_S)
        except AuthenticationError as refused:
            told = "".join(traceback.format_exception(refused))
    assert bool(told) == (password != PASSWORD)
    written = caplog.text + told + repr(producer)
    for secret in (password, base64.b64encode(password.encode()).decode()):
        assert secret not in written
