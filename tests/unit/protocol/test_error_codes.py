"""Goal: the codes are Kafka's, each with a name and a text of its own."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ottla.protocol import error_codes


def test_every_code_of_kafka_is_here_under_its_name() -> None:
    for known in ErrorCode:
        assert error_codes.name_of(known.value) == known.name.upper()
        assert getattr(error_codes, known.name.upper()) == known.value


def test_every_code_but_none_has_a_text_of_its_own() -> None:
    texts = [error_codes.message_of(known.value) for known in ErrorCode if known.value != 0]
    assert all(texts)
    assert len(set(texts)) == len(texts)
    assert error_codes.message_of(error_codes.NONE) == ""


def test_a_code_of_the_future_is_told_as_a_number() -> None:
    assert error_codes.name_of(9999) == "UNKNOWN_ERROR_CODE_9999"
    assert "9999" in error_codes.message_of(9999)
