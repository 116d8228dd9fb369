"""A client that does everything right: what it gets shows whether the broker still serves."""

from __future__ import annotations

from tests.compat.confluent import create_topic, read_values, send_values


def produce_and_read_back(bootstrap: str) -> None:
    topic = create_topic(bootstrap)
    values = [f"value {number}".encode() for number in range(20)]
    send_values(bootstrap, topic, values)
    assert read_values(bootstrap, topic) == values
