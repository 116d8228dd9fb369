"""Settings that mean nothing to Spark's source and sink are told by name, once."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any

import pytest

from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.producer_settings import ProducerSettings
from ottla.spark import no_effect


@pytest.mark.parametrize(
    ("known", "settings"),
    [(no_effect.READING, ConsumerSettings), (no_effect.WRITING, ProducerSettings)],
)
def test_they_are_settings_of_the_client(known: dict[str, str], settings: Any) -> None:
    names = {one.name.replace("_", ".") for one in fields(settings)}
    assert not known.keys() - names


def test_they_are_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(no_effect, "_told", set())
    given = {"linger.ms": "5", "retries": "3", "delivery.timeout.ms": "1000"}
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            no_effect.tell(given, no_effect.WRITING)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "option kafka.linger.ms has no effect here",
        "option kafka.retries has no effect here",
    ]
