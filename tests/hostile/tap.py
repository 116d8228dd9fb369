"""Frames of real clients, caught on their way to the broker by a proxy on loopback."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import confluent_kafka
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition

from tests.patience import SECONDS_MAX


class Tap:
    """A TCP proxy that keeps the requests it forwards. Brokers advertise their own address, so a
    client comes here only for its first connection; names are rewritten by the caller's config."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self.frames: list[bytes] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._accepting.join()
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                broker = socket.create_connection(("127.0.0.1", self._target_port))
                self._sockets += (client, broker)
                for pump in (self._requests, self._pipe):
                    ends = (client, broker) if pump == self._requests else (broker, client)
                    thread = threading.Thread(target=pump, args=ends, daemon=True)
                    thread.start()
                    self._threads.append(thread)

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        stream = bytearray()
        with suppress(OSError):
            while part := client.recv(1 << 16):
                broker.sendall(part)
                stream += part
                self._cut(stream)
        with suppress(OSError):
            broker.shutdown(socket.SHUT_WR)

    def _cut(self, stream: bytearray) -> None:
        while len(stream) >= 4:
            size = struct.unpack_from(">i", stream)[0]
            if len(stream) < 4 + size:
                return
            self.frames.append(bytes(stream[4 : 4 + size]))
            del stream[: 4 + size]

    def _pipe(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(1 << 16):
                target.sendall(part)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextmanager
def tapped(target_port: int) -> Iterator[Tap]:
    tap = Tap(target_port)
    try:
        yield tap
    finally:
        tap.close()


def captured_frames(make_tapped_broker: Callable[[int], None], tap: Tap) -> list[bytes]:
    """What confluent-kafka, kafka-python and aiokafka send in a short session of everything.

    `make_tapped_broker` starts a broker that advertises the tap's port.
    """
    make_tapped_broker(tap.port)
    address = f"127.0.0.1:{tap.port}"
    _confluent_session(address)
    _kafka_python_session(address)
    asyncio.run(_aiokafka_session(address))
    return tap.frames


def _confluent_session(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    wanted = [NewTopic("confluent", 2, 1, config={"retention.ms": "100000"})]
    for future in admin.create_topics(wanted).values():
        future.result(SECONDS_MAX)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0}
    )
    for codec in ("none", "lz4", "zstd", "gzip", "snappy"):
        packing = confluent_kafka.Producer(
            {"bootstrap.servers": address, "compression.type": codec, "log_level": 0}
        )
        for number in range(20):
            packing.produce("confluent", f"{codec} {number}", key=str(number), headers={"h": b"v"})
        assert packing.flush(SECONDS_MAX) == 0
    producer.produce("confluent", b"once")
    assert producer.flush(SECONDS_MAX) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "g", "log_level": 0}
    )
    consumer.assign([confluent_kafka.TopicPartition("confluent", 0, 0)])
    assert consumer.consume(1, SECONDS_MAX)
    consumer.get_watermark_offsets(confluent_kafka.TopicPartition("confluent", 0))
    consumer.close()
    resource = ConfigResource(ResourceType.TOPIC, "confluent")
    for described in admin.describe_configs([resource]).values():
        described.result(SECONDS_MAX)
    offset = confluent_kafka.TopicPartition("confluent", 0, 1)
    for deleted in admin.delete_records([offset]).values():
        deleted.result(SECONDS_MAX)


def _kafka_python_session(address: str) -> None:
    producer = KafkaProducer(bootstrap_servers=address)
    producer.send("python", b"value", key=b"key", partition=0)
    producer.flush(SECONDS_MAX)
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest", consumer_timeout_ms=120_000
    )
    consumer.assign([PythonTopicPartition("python", 0)])
    next(iter(consumer))
    consumer.close()
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.describe_cluster()
    admin.list_topics()
    admin.close()


async def _aiokafka_session(address: str) -> None:
    import aiokafka

    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True)
    await producer.start()
    await producer.send_and_wait("aio", b"value", partition=0)
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([aiokafka.TopicPartition("aio", 0)])
    await asyncio.wait_for(consumer.getone(), SECONDS_MAX)
    await consumer.stop()
