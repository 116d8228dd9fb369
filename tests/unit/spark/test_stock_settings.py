"""Settings that code for the stock connector has, in the words of Ottla's client."""

from __future__ import annotations

import pytest

from ottla.spark.errors import OptionError
from ottla.spark.source_options import STREAM, parse_source_options
from ottla.spark.stock_settings import translated
from ottla.spark.wire import consumer_settings

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "kafkashaded.org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("text", "username", "password"),
    [
        (f'{PLAIN} required username="alice" password="s3;c\\"ret";', "alice", 's3;c"ret'),
        (f"{SCRAM} required\n  username='bob'\n  password='pa ss' ;\n", "bob", "pa ss"),
        (f"{PLAIN} required username=carol password=x", "carol", "x"),
    ],
)
def test_user_and_password_are_taken_out_of_javas_login(
    text: str, username: str, password: str
) -> None:
    found = translated({"sasl.jaas.config": text, "client.id": "c"})
    assert found == {"client.id": "c", "sasl.username": username, "sasl.password": password}


def test_stores_in_pem_are_files_of_ours() -> None:
    found = translated(
        {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.keystore.type": "pem",
            "ssl.keystore.location": "/me.pem",
        }
    )
    assert found == {
        "ssl.cafile": "/ca.pem",
        "ssl.certfile": "/me.pem",
        "ssl.keyfile": "/me.pem",
    }


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sasl.jaas.config": "secret"}, "is not of the form"),
        ({"sasl.jaas.config": f'{PLAIN} required username="secret";'}, "has no password"),
        ({"sasl.jaas.config": "a.Krb5LoginModule required keyTab=secret;"}, "Krb5LoginModule is"),
        (
            {"sasl.jaas.config": f"{SCRAM} required username=a password=secret tokenauth=true;"},
            "tokenauth is not supported",
        ),
        (
            {
                "sasl.jaas.config": f"{PLAIN} required username=a password=secret;",
                "sasl.username": "b",
            },
            "keep one",
        ),
        ({"ssl.truststore.location": "/trust.jks"}, "type JKS are for Java alone"),
        (
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.type": "PKCS12"},
            "kafka.ssl.certfile and kafka.ssl.keyfile",
        ),
        ({"ssl.truststore.type": "PEM"}, "kafka.ssl.truststore.location"),
    ],
)
def test_what_cannot_be_taken_is_named_and_no_secret_is_shown(
    settings: dict[str, str], says: str
) -> None:
    with pytest.raises(OptionError, match=says) as refused:
        translated(settings)
    assert "secret" not in str(refused.value)


def test_a_stock_connectors_options_with_a_password_work_as_they_are() -> None:
    options = parse_source_options(
        {
            "kafka.bootstrap.servers": "127.0.0.1:9092",
            "subscribe": "orders",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{SCRAM} required username="alice" password="p";',
            "kafka.session.timeout.ms": "60000",
            "kafka.request.timeout.ms": "60000",
        },
        STREAM,
    )
    settings = consumer_settings(options.client)
    assert settings.sasl_username == "alice"
    assert settings.sasl_password is not None
    assert settings.sasl_password.reveal() == "p"
