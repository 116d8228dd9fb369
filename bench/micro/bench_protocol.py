"""What the protocol room costs: microseconds per call, best of five, one line each.

`python bench/micro/bench_protocol.py`. Figures are for comparing two versions of the code on one
machine; nothing is asserted here.
"""

from __future__ import annotations

import timeit
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.protocol import api_keys, messages
from ottla.protocol.fetch import FetchedPartition, fetch_response_parts, read_fetch_request
from ottla.protocol.headers import read_request_header, request_header, response_header
from ottla.protocol.produce import pack_produce_response, read_produce_request

TOPIC_ID = uuid.UUID(int=1 << 100)


class Slice:
    size = 16 * 1024


def best_us(work: Callable[[], Any], seconds: float = 0.1) -> float:
    work()
    once = timeit.timeit(work, number=10) / 10
    number = max(int(seconds / max(once, 1e-9)), 1)
    return min(timeit.repeat(work, number=number, repeat=5)) / number * 1e6


def produce_cases() -> dict[str, Callable[[], Any]]:
    cases: dict[str, Callable[[], Any]] = {}
    partition = {"index": 0, "records": bytes(16 * 1024)}
    produced = [("orders", TOPIC_ID, [(0, 0, 1234, -1, 0, (), None, None)])]
    for version in (3, 9, 13):
        topic = {"name": "orders", "topic_id": TOPIC_ID, "partition_data": [partition]}
        fields = {"acks": -1, "timeout_ms": 30_000, "topic_data": [topic]}
        body = memoryview(messages.encode_request(api_keys.PRODUCE, version, fields))
        cases[f"read Produce v{version}, 1 partition"] = partial(
            read_produce_request, version, body
        )
        cases[f"pack Produce v{version} response"] = partial(
            pack_produce_response, version, produced
        )
    return cases


def fetch_cases() -> dict[str, Callable[[], Any]]:
    cases: dict[str, Callable[[], Any]] = {}
    for version, count in ((11, 1), (12, 1), (17, 1), (17, 100)):
        partitions = [
            {"partition": index, "fetch_offset": 5, "partition_max_bytes": 1 << 20}
            for index in range(count)
        ]
        topic = {"topic": "orders", "topic_id": TOPIC_ID, "partitions": partitions}
        fields = {
            "max_wait_ms": 500,
            "min_bytes": 1,
            "topics": [topic],
            "forgotten_topics_data": [],
        }
        body = memoryview(messages.encode_request(api_keys.FETCH, version, fields))
        fetched = [FetchedPartition(index, 0, 9, 9, 0, None, -1, Slice()) for index in range(count)]
        topics = [("orders", TOPIC_ID, fetched)]
        cases[f"read Fetch v{version}, {count} partitions"] = partial(
            read_fetch_request, version, body
        )
        cases[f"parts of Fetch v{version} response, {count} partitions"] = partial(
            fetch_response_parts, version, 0, 0, 7, topics
        )
    return cases


def a_metadata_response(topic_count: int) -> dict[str, Any]:
    partitions = [
        {
            "error_code": 0,
            "partition_index": index,
            "leader_id": 1,
            "leader_epoch": 3,
            "replica_nodes": [1, 2, 3],
            "isr_nodes": [1, 2, 3],
            "offline_replicas": [],
        }
        for index in range(3)
    ]
    topics = [
        {"error_code": 0, "name": f"topic-{n}", "topic_id": TOPIC_ID, "partitions": partitions}
        for n in range(topic_count)
    ]
    brokers = [{"node_id": n, "host": f"broker-{n}", "port": 9092} for n in range(3)]
    return {"brokers": brokers, "cluster_id": "c" * 22, "controller_id": 1, "topics": topics}


def message_cases() -> dict[str, Callable[[], Any]]:
    cases: dict[str, Callable[[], Any]] = {}
    heartbeat = {"group_id": "billing", "generation_id": 4, "member_id": "m" * 40}
    for version in (3, 4):
        body = messages.encode_request(api_keys.HEARTBEAT, version, heartbeat)
        cases[f"decode Heartbeat v{version} request"] = partial(
            messages.decode_request, api_keys.HEARTBEAT, version, body
        )
        cases[f"encode Heartbeat v{version} response"] = partial(
            messages.encode_response, api_keys.HEARTBEAT, version, {"error_code": 0}
        )
    for version in (8, 12):
        fields = a_metadata_response(100)
        body = messages.encode_response(api_keys.METADATA, version, fields)
        cases[f"encode Metadata v{version} response, 100 topics x 3"] = partial(
            messages.encode_response, api_keys.METADATA, version, fields
        )
        cases[f"decode Metadata v{version} response, 100 topics x 3"] = partial(
            messages.decode_response, api_keys.METADATA, version, body
        )
    return cases


def header_cases() -> dict[str, Callable[[], Any]]:
    frame = memoryview(request_header(api_keys.PRODUCE, 9, 77, "rdkafka"))
    return {
        "read request header v2": partial(read_request_header, frame),
        "pack response header v1": partial(response_header, api_keys.PRODUCE, 9, 77),
    }


def main() -> None:
    cases = header_cases() | produce_cases() | fetch_cases() | message_cases()
    for name, work in cases.items():
        print(f"{name:<52} {best_us(work):9.2f} µs")


if __name__ == "__main__":
    main()
