"""Brokers behind proxies: an Ottla or an Apache Kafka, or three of them, and a proxy before each.

Clients that begin with `bootstrap` are sent to proxies and stay there; `direct` goes around them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.kafka_properties import node_of
from ottla.metadata.configs.broker_config import BrokerConfig
from ottla.testing import Cluster
from ottla.testing.cluster import CLIENTS, PEERS, Member
from tests.client.proxy import FAULTS, Proxy
from tests.compat.nodes import KafkaNode, OttlaNode, new_cluster_id
from tests.ports import free_port

BROKERS = (1, 2, 3)
LISTENER = "PROXIED"
PROTOCOLS = f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{LISTENER}:PLAINTEXT"


class Proxied:
    """What tests see of them, whatever they are."""

    def __init__(self, direct: str, proxies: Sequence[Proxy], is_kafka: bool = False) -> None:
        self.direct = direct
        self.is_kafka = is_kafka
        self._proxies = proxies

    @property
    def bootstrap(self) -> str:
        return ",".join(proxy.bootstrap for proxy in self._proxies)

    @property
    def open_connections(self) -> int:
        return sum(proxy.open_connections for proxy in self._proxies)

    def had(self, fault: str) -> bool:
        return any(proxy.faults[fault] for proxy in self._proxies)

    @property
    def had_every_fault(self) -> bool:
        return all(map(self.had, FAULTS))

    def misbehave(self, seed: int, *rates: float) -> None:
        """At one rate, or each proxy at its own."""
        for place, proxy in enumerate(self._proxies):
            proxy.misbehave(seed + place, rates[place % len(rates)])

    def quiet(self) -> None:
        for proxy in self._proxies:
            proxy.quiet()


@contextlib.contextmanager
def proxied_ottla(directory: Path) -> Iterator[Proxied]:
    proxy = Proxy()
    node = OttlaNode(directory, {"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"})
    node.start()
    proxy.lead_to(node.port)
    yield Proxied(node.bootstrap, [proxy])
    proxy.close()
    node.close()


class ProxiedCluster(Cluster):
    """Clients are sent to the proxies; who asks where brokers meet reaches them without."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(len(BROKERS), settings)
        self.proxies = {broker: Proxy() for broker in BROKERS}
        for broker, proxy in self.proxies.items():
            proxy.lead_to(self.port(broker))

    def _config(self, member: Member) -> BrokerConfig:
        proxy = self.proxies[member.broker_id]
        self._settings["advertised.listeners"] = (
            f"{CLIENTS}://{proxy.bootstrap},{PEERS}://127.0.0.1:{member.ports[PEERS]}"
        )
        return super()._config(member)

    @property
    def direct(self) -> str:
        return ",".join(f"127.0.0.1:{one.ports[PEERS]}" for one in self._members.values())

    def close(self) -> None:
        super().close()
        for proxy in self.proxies.values():
            proxy.close()


class KafkaMember(KafkaNode):
    """One of several Apache Kafkas, with a listener more, for those who come through its proxy."""

    def __init__(
        self,
        directory: Path,
        overrides: Mapping[str, str],
        node_id: int,
        quorum: Mapping[int, str],
        proxy: Proxy,
    ) -> None:
        super().__init__(directory, overrides)
        self._node_id = node_id
        self._quorum = quorum
        self._proxy = proxy

    def _properties(self) -> str:
        text = node_of(self._quorum, self._node_id, self.bootstrap, self.data, self.overrides)
        text += f"listener.security.protocol.map={PROTOCOLS}\n"
        return with_proxy(text, self._proxy)


def with_proxy(properties: str, proxy: Proxy) -> str:
    """Kafka's settings with a listener more, which its clients reach through the proxy only."""
    port = free_port()
    proxy.lead_to(port)
    properties = "\n" + properties
    for setting, at in (("listeners", port), ("advertised.listeners", proxy.port)):
        begin = f"\n{setting}="
        assert begin in properties
        properties = properties.replace(begin, f"{begin}{LISTENER}://127.0.0.1:{at},", 1)
    return properties


class KafkaCluster:
    """Three of them. They begin together: none is ready before most of them are there."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.proxies = {broker: Proxy() for broker in BROKERS}
        quorum = {broker: f"127.0.0.1:{free_port()}" for broker in BROKERS}
        cluster_id = new_cluster_id()
        self._nodes = [
            KafkaMember(directory / f"node-{broker}", settings, broker, quorum, proxy)
            for broker, proxy in self.proxies.items()
        ]
        for node in self._nodes:
            node.cluster_id = cluster_id

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self._nodes)

    def start(self) -> None:
        with ThreadPoolExecutor(len(self._nodes)) as pool:
            for started in [pool.submit(node.start) for node in self._nodes]:
                started.result()

    def close(self) -> None:
        for node in self._nodes:
            node.kill()  # how they stop is of no interest here, and takes them seconds
        for proxy in self.proxies.values():
            proxy.close()
