"""Goal: ids that nobody uses are forgotten, and no producer id is given to two producers.
Method: raw requests to a broker that forgets soon; to one that is killed and started again, with
more ids than one block has. OTTLA_COMPAT_NODE=kafka asks Apache Kafka 4.3.1 the same.
"""

from __future__ import annotations

from datetime import timedelta

from tests.compat import confluent
from tests.compat.conftest import MakeNode
from tests.compat.group_wire import build, schema
from tests.compat.nodes import wait_until
from tests.compat.transaction_wire import TransactionWire
from tests.patience import SECONDS_MAX

BLOCK = 1_000


def names_on(wire: TransactionWire) -> set[str]:
    return {one.transactional_id for one in wire.list().transaction_states}


def test_an_id_that_nobody_uses_is_forgotten(make_node: MakeNode) -> None:
    node = make_node(
        {
            "transactional.id.expiration.ms": "2000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
        }
    )
    topic = confluent.create_topic(node.bootstrap)
    with TransactionWire(node.bootstrap) as idle, TransactionWire(node.bootstrap) as busy:
        idle.ready()
        busy.ready()
        # On a machine that has no time for this test it may have been forgotten before its write.
        wait_until(
            lambda: busy.init_again() == 0 and busy.write(topic, 0, version=12) == 0,
            SECONDS_MAX,
            "a transaction is open",
        )
        wait_until(lambda: idle.name not in names_on(idle), SECONDS_MAX, "the idle id is forgotten")
        assert idle.add(topic, 0) == [49]
        assert [idle.write(topic, 0, version=one) for one in (9, 12)] == [49, 49]
        assert [idle.end(False, one) for one in (3, 5)] == [49, 49]
        # What is open is used, however long it takes.
        assert busy.state() == "Ongoing"
        assert busy.end(True, 5) == 0
        wait_until(lambda: busy.name not in names_on(busy), SECONDS_MAX, "so is the other one")
        before = idle.producer_id
        assert (idle.init(), idle.epoch) == (0, 0)
        assert idle.producer_id not in (before, busy.producer_id)


def test_no_producer_id_is_given_twice(make_node: MakeNode) -> None:
    node = make_node()
    given: list[int] = []
    for count in (BLOCK + 100, 10, 10):
        with TransactionWire(node.bootstrap) as wire:
            wire.ready()
            given.append(wire.producer_id)
            given += [fresh_id(wire) for _ in range(count)]
        node.kill()
        node.start()
    assert len(set(given)) == len(given)


def fresh_id(wire: TransactionWire) -> int:
    """Of a producer without a transactional id."""
    part = schema("init_producer_id", 4)
    request = build(
        part.InitProducerIdRequest,
        transactional_id=None,
        transaction_timeout=timedelta(seconds=60),
    )
    answers = []

    def is_given() -> bool:
        answers.append(wire.call(request))
        return int(answers[-1].error_code) == 0

    # Kafka says that it loads while it waits for its next block.
    wait_until(is_given, SECONDS_MAX, "a producer id")
    return int(answers[-1].producer_id)
