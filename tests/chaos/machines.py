"""Machines: network namespaces of this one, each on two networks, whose cables can be pulled.

Over `clients` go clients, the brokers among themselves and brokers to ZooKeeper; over `servers` the
servers of ZooKeeper among themselves. This process is on both. Needs root and `ip`. A cable that is
pulled ends no connection: what is sent is lost, and TCP sends it again once the cable is back.
"""

from __future__ import annotations

import os
import shutil
import subprocess

NETWORKS = ("clients", "servers")


def possible() -> bool:
    """Whether this process may make machines: root on Linux may, in most containers nobody may."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    probe = f"ottla-{os.getpid()}-probe"
    if subprocess.run(["ip", "netns", "add", probe], check=False, capture_output=True).returncode:
        return False
    _ip("netns", "delete", probe)
    return True


class Machines:
    def __init__(self, numbers: tuple[int, ...]) -> None:
        self._numbers = numbers
        self._third = os.getpid() % 100
        self._made: list[tuple[str, ...]] = []
        """How to undo what was done, in the order in which it was done."""
        self._pulled: set[tuple[int, str]] = set()

    def make(self) -> None:
        for network in NETWORKS:
            self._add(("link", "add", self._switch(network), "type", "bridge"))
            _ip("address", "add", f"{self._address(network, 254)}/24", "dev", self._switch(network))
            _ip("link", "set", self._switch(network), "up")
        for number in self._numbers:
            _ip("netns", "add", self._name(number))
            self._made.append(("netns", "delete", self._name(number)))
            _ip("-n", self._name(number), "link", "set", "lo", "up")
            for network in NETWORKS:
                self._connect(number, network)

    def _connect(self, number: int, network: str) -> None:
        near, far, name = self._cable(number, network), network, self._name(number)
        self._add(("link", "add", near, "type", "veth", "peer", "name", far, "netns", name))
        _ip("link", "set", near, "master", self._switch(network), "up")
        _ip("-n", name, "address", "add", f"{self._address(network, number)}/24", "dev", far)
        _ip("-n", name, "link", "set", far, "up")

    def _add(self, words: tuple[str, ...]) -> None:
        _ip(*words)
        self._made.append(("link", "delete", words[2]))

    def remove(self) -> None:
        """All processes in them have ended."""
        while self._made:
            _ip(*self._made.pop())

    def host(self, number: int) -> str:
        return self._address("clients", number)

    def host_of_server(self, number: int) -> str:
        return self._address("servers", number)

    def command(self, number: int, command: list[str]) -> list[str]:
        """What runs it on that machine."""
        return ["ip", "netns", "exec", self._name(number), *command]

    def pull(self, number: int, network: str) -> None:
        _ip("link", "set", self._cable(number, network), "down")
        self._pulled.add((number, network))

    def heal(self) -> None:
        while self._pulled:
            _ip("link", "set", self._cable(*self._pulled.pop()), "up")

    def _name(self, number: int) -> str:
        return f"ottla-{os.getpid()}-{number}"

    def _switch(self, network: str) -> str:
        return f"ot{os.getpid()}{network[0]}"

    def _cable(self, number: int, network: str) -> str:
        return f"{self._switch(network)}{number}"

    def _address(self, network: str, last: int) -> str:
        return f"10.{231 + NETWORKS.index(network)}.{self._third}.{last}"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
