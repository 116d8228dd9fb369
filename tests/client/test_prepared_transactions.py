"""Transactions that one client prepares and another one decides (KIP-939 and beyond it).

On Ottla only: Kafka has the requests in its protocol, and no release that serves them.
"""

from __future__ import annotations

import pytest

from ottla.client import Admin, Producer
from ottla.client.errors import BrokerError, ClientError, TransactionStateError
from tests.client.reading import values
from tests.compat.nodes import Node, wait_until

PATIENCE_S = 60


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("forget", [True, False])
def test_another_client_decides(ottla_node: Node, topic: str, commit: bool, forget: bool) -> None:
    bootstrap = ottla_node.bootstrap
    with (
        Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer,
        Admin(bootstrap_servers=bootstrap) as admin,
    ):
        producer.begin_transaction()
        producer.send(topic, b"prepared")
        prepared = producer.prepare_transaction()
        with pytest.raises(TransactionStateError):
            producer.send(topic, b"too late")
        assert values(bootstrap, topic, committed=True) == []
        producer.close(0)
        for _ in range(2):
            admin.complete_transaction(*prepared, commit=commit)
        if forget:
            admin.complete_transaction(*prepared, commit=commit, forget=True)
        with pytest.raises(BrokerError):
            admin.complete_transaction(*prepared, commit=not commit)
    assert values(bootstrap, topic, decided=True) == ([b"prepared"] if commit else [])


@pytest.mark.parametrize("commit", [True, False])
def test_of_an_id_that_is_forgotten_nothing_is_left(
    ottla_node: Node, topic: str, commit: bool
) -> None:
    bootstrap = ottla_node.bootstrap
    with (
        Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer,
        Admin(bootstrap_servers=bootstrap) as admin,
    ):
        producer.begin_transaction()
        producer.send(topic, b"once")
        prepared = producer.prepare_transaction()
        producer.close(0)
        assert len(admin.describe_producers([(topic, 0)])[topic, 0]) == 1
        admin.complete_transaction(*prepared, commit=commit, forget=True)

        def is_forgotten() -> bool:
            return topic not in {one.transactional_id for one in admin.list_transactions()}

        wait_until(is_forgotten, PATIENCE_S, "its markers are written")
        assert admin.describe_producers([(topic, 0)])[topic, 0] == []
        with pytest.raises(BrokerError, match="INVALID_PRODUCER_ID_MAPPING"):
            admin.complete_transaction(*prepared, commit=commit, forget=True)
    assert values(bootstrap, topic, decided=True) == ([b"once"] if commit else [])


def test_the_producer_itself_decides_and_goes_on(ottla_node: Node, topic: str) -> None:
    bootstrap = ottla_node.bootstrap
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number)
            producer.prepare_transaction()
            producer.complete_transaction(commit=number % 2 == 0)
    assert values(bootstrap, topic, decided=True) == [b"0", b"2"]


def test_a_producer_that_starts_again_keeps_what_was_prepared(ottla_node: Node, topic: str) -> None:
    bootstrap = ottla_node.bootstrap
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"kept")
        producer.prepare_transaction()
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as again:
        again.init_transactions(keep_prepared=True)
        again.complete_transaction(commit=True)
        with again.transaction():
            again.send(topic, b"next")
    assert values(bootstrap, topic, decided=True) == [b"kept", b"next"]


@pytest.mark.kafka
@pytest.mark.java
@pytest.mark.xdist_group("client-kafka")
def test_kafka_says_that_it_cannot(kafka_node: Node, topic: str) -> None:
    with Producer(bootstrap_servers=kafka_node.bootstrap, transactional_id=topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"v")
        with pytest.raises(ClientError, match="InitProducerId"):
            producer.prepare_transaction()
        producer.abort_transaction()
