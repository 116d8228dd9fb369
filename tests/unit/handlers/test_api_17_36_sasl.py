"""Goal: SASL on a listener without it is refused by the code that Kafka has for that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.handlers import api_17_sasl_handshake, api_36_sasl_authenticate
from ottla.protocol.messages import decode_response, encode_response

ILLEGAL_SASL_STATE = 34
CONTEXT: Any = SimpleNamespace()


@pytest.mark.parametrize(
    ("handler", "version"),
    [
        (module, version)
        for module in (api_17_sasl_handshake, api_36_sasl_authenticate)
        for version in range(module.VERSIONS[0], module.VERSIONS[1] + 1)
    ],
)
def test_it_is_refused_in_every_version(handler: Any, version: int) -> None:
    fields = handler.handle(CONTEXT, SimpleNamespace(mechanism="PLAIN", auth_bytes=b""))
    answer = decode_response(
        handler.API_KEY, version, encode_response(handler.API_KEY, version, fields)
    )
    assert answer.error_code == ILLEGAL_SASL_STATE
