"""Goal: one file of settings serves every command. Method: names of each kind, and of none."""

from __future__ import annotations

import pytest

from ottla.base.errors import ConfigError
from ottla.cli.client_settings import settings_for
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.producer_settings import ProducerSettings
from ottla.client.settings import AdminSettings, read_settings

GIVEN = {
    "bootstrap.servers": "h:1",
    "security.protocol": "ssl",
    "ssl.ca.location": "authority.pem",
    "session.timeout.ms": "6000",
    "compression.type": "zstd",
}


def test_each_client_takes_what_it_knows() -> None:
    admin = read_settings(AdminSettings, settings_for(AdminSettings, GIVEN), {})
    assert admin.ssl_cafile == "authority.pem"
    consumer = read_settings(ConsumerSettings, settings_for(ConsumerSettings, GIVEN), {})
    assert consumer.session_timeout_ms == 6000
    producer = read_settings(ProducerSettings, settings_for(ProducerSettings, GIVEN), {})
    assert producer.compression_type == "zstd"


def test_what_nobody_knows_is_refused() -> None:
    given = settings_for(AdminSettings, GIVEN | {"sesion.timeout.ms": "1"})
    with pytest.raises(ConfigError, match=r"sesion\.timeout\.ms"):
        read_settings(AdminSettings, given, {})
