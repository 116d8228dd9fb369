"""A real broker inside the test process, on a free port, in well under 200 ms.

    from ottla.testing import Broker

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        ...
        broker.advance(days=8)     # retention and time-outs happen now

Any Kafka client connects over TCP, as to any broker; nothing is mocked. With the pytest plugin, the
fixture `ottla_broker` gives one to a test. `Cluster(brokers=3)` and `ottla_cluster` are several
that copy from each other, to be killed, paused and cut off.
"""

from ottla.testing.broker import Broker
from ottla.testing.cluster import Cluster

__all__ = ["Broker", "Cluster"]
