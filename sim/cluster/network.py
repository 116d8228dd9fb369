"""The network between brokers: connections that keep their order, and what may become of them.

A request goes over a connection; its answers come in the order of the requests. A message may be
held up, or lost with its connection; what a lost connection carried may still arrive, later than
what was sent over the next one, or twice. Links are cut one way at a time: what is sent into a cut
waits and comes through when it heals, or never.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from ottla.base.deferred import Deferred
from ottla.base.errors import PeerLost
from sim.cluster.process import Heap, Process

if TYPE_CHECKING:
    from sim.cluster.broker import Broker

Pair = tuple[int, int]
RESET_MS = 3.0
LATE_MS = 1_500.0


class Weather:
    """How bad it is just now; the world changes it."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.late = 0.0
        """Of what is lost: how much of it arrives all the same."""
        self.repeats = 0.0
        self.delay_ms = 1.0
        self.far_broker = 0
        self.far_ms = 0.0
        self.slow: dict[Pair, float] = {}
        self.cut: dict[Pair, None] = {}


class Network:
    def __init__(self, heap: Heap, chance: Random, timeout_ms: float) -> None:
        self.heap = heap
        self.chance = chance
        self.timeout_ms = timeout_ms
        self.weather = Weather()
        self.brokers: dict[int, Broker] = {}
        self._held: dict[Pair, list[Callable[[], None]]] = {}

    def connect(self, process: Process, target: int) -> Connection:
        return Connection(self, process, target)

    # -- links ------------------------------------------------------------------------------

    def cut(self, source: int, target: int) -> None:
        self.weather.cut[source, target] = None

    def heal(self, source: int, target: int) -> None:
        if self.weather.cut.pop((source, target), 0) == 0:
            return
        for send in self._held.pop((source, target), []):
            if self.chance.random() < 0.6:
                send()

    def hold(self, pair: Pair, send: Callable[[], None]) -> None:
        self._held.setdefault(pair, []).append(send)

    def delay_ms(self, pair: Pair) -> float:
        weather = self.weather
        mean_ms = weather.delay_ms
        if weather.far_broker in pair:
            mean_ms = weather.far_ms
        if weather.slow:
            mean_ms = weather.slow.get(pair, mean_ms)
        return self.chance.expovariate(1.0) * mean_ms + 0.05


class Connection:
    """A `Peer` of the real broker. To one life of another: a restart breaks it."""

    def __init__(self, network: Network, process: Process, target: int) -> None:
        self._network = network
        self._process = process
        self._target = target
        self._there: Process | None = None
        self._is_broken = False
        self._asked: deque[Deferred[memoryview]] = deque()
        self._answers: deque[list[bytes | None]] = deque()
        self._last_out_ms = 0.0
        self._last_in_ms = 0.0

    # -- the port ---------------------------------------------------------------------------

    def request(self, api_key: int, version: int, body: bytes) -> Deferred[memoryview]:
        answer: Deferred[memoryview] = Deferred()
        network = self._network
        if self._is_broken:
            self._process.post(lambda: answer.fail(PeerLost("the connection is gone")))
            return answer
        self._asked.append(answer)
        self._send(body)
        network.heap.push(network.timeout_ms, lambda: self._give_up(answer), self._process)
        return answer

    def close(self) -> None:
        """Whoever waits hears of it, as the real one does: at once."""
        self._is_broken = True
        asked, self._asked = self._asked, deque()
        for answer in asked:
            if not answer.done:
                answer.fail(PeerLost("closed"))

    def _give_up(self, answer: Deferred[memoryview]) -> None:
        if not answer.done and not self._is_broken:
            self.close()

    def _break(self) -> None:
        """The other side is gone, or the way to it; told after a moment."""
        if not self._is_broken:
            self._network.heap.push(RESET_MS, self._broken, self._process)

    def _broken(self) -> None:
        if not self._is_broken:
            self.close()

    # -- the way there ----------------------------------------------------------------------

    def _send(self, body: bytes) -> None:
        network = self._network
        weather, chance = network.weather, network.chance
        pair = (self._process.broker_id, self._target)
        if pair in weather.cut:
            network.hold(pair, lambda: self._arrive_later(body, network.delay_ms(pair)))
            return
        if weather.loss and chance.random() < weather.loss:
            self._break()
            if chance.random() < weather.late:
                self._arrive_later(body, chance.uniform(0, LATE_MS))
            return
        if weather.repeats and chance.random() < weather.repeats:
            self._arrive_later(body, chance.uniform(0, LATE_MS))
        due_ms = max(network.heap.now_ms + network.delay_ms(pair), self._last_out_ms)
        self._last_out_ms = due_ms
        there = network.brokers[self._target].process
        if self._there is None:
            self._there = there
        if there is None or there is not self._there:
            self._break()
            return
        network.heap.push(due_ms - network.heap.now_ms, lambda: self._arrive(body), there)

    def _arrive(self, body: bytes) -> None:
        """At the other side."""
        broker = self._network.brokers[self._target]
        if not broker.is_listening:
            self._break()
            return
        slot: list[bytes | None] = [None]
        self._answers.append(slot)

        def answered(reply: bytes) -> None:
            slot[0] = reply
            self._flush()

        broker.serve_fetch(body, self._process.broker_id, answered)

    def _arrive_later(self, body: bytes, delay_ms: float) -> None:
        """From a connection that is no more, or for the second time: nobody gets the answer."""
        target = self._network.brokers[self._target]
        there = target.process
        if there is None:
            return

        def arrive() -> None:
            if target.process is there and target.is_listening:
                target.serve_fetch(body, self._process.broker_id, lambda reply: None)

        self._network.heap.push(delay_ms, arrive, there)

    # -- the way back -----------------------------------------------------------------------

    def _flush(self) -> None:
        while self._answers and self._answers[0][0] is not None:
            reply = self._answers.popleft()[0]
            assert reply is not None
            self._send_back(reply)

    def _send_back(self, reply: bytes) -> None:
        network = self._network
        weather, chance = network.weather, network.chance
        pair = (self._target, self._process.broker_id)
        if pair in weather.cut:
            network.hold(pair, lambda: self._send_back(reply))
            return
        if weather.loss and chance.random() < weather.loss:
            self._break()
            return
        due_ms = max(network.heap.now_ms + network.delay_ms(pair), self._last_in_ms)
        self._last_in_ms = due_ms
        network.heap.push(due_ms - network.heap.now_ms, lambda: self._receive(reply), self._process)

    def _receive(self, reply: bytes) -> None:
        if self._is_broken or not self._asked:
            return
        answer = self._asked.popleft()
        if not answer.done:
            answer.resolve(memoryview(reply))
