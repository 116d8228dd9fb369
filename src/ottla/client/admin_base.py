"""How an admin client asks: anybody, the controller, each broker, leaders or coordinators.

Owns the retries: what may pass is tried again until `default.api.timeout.ms`, asking elsewhere when
somebody else is in charge now. What will not pass is raised, or given back item by item.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from ottla.base.ids import TopicPartition
from ottla.client.coordinator_calls import CoordinatorCalls
from ottla.client.core import Core
from ottla.client.errors import BrokerError, TimedOutError, error_for, is_retriable_code
from ottla.client.pending import gather
from ottla.client.settings import AdminSettings
from ottla.protocol import error_codes as codes

T = TypeVar("T")
Fields = dict[str, Any]
PartitionResult = tuple[int, str | None, Any]
"""(error code, message, value)."""

_PAUSE_MS = 100.0
# So many get their part of the time, one after the other, if the ones before are silent.
_BROKERS_ASKED = 3
# Errors that say who was asked, or when, and nothing about what was asked.
_PASSING = frozenset(
    {
        codes.NOT_CONTROLLER,
        codes.COORDINATOR_LOAD_IN_PROGRESS,
        codes.COORDINATOR_NOT_AVAILABLE,
        codes.NETWORK_EXCEPTION,
        codes.THROTTLING_QUOTA_EXCEEDED,
    }
)


class AdminBase:
    def __init__(self, settings: AdminSettings, core: Core) -> None:
        self._settings = settings
        self._core = core
        self._calls = CoordinatorCalls(core)

    def _deadline_ms(self) -> float:
        return self._core.now_ms + self._settings.default_api_timeout_ms

    async def _connected(self) -> None:
        """At least once the cluster has said who its brokers are."""
        if not self._core.cluster.brokers:
            await self._core.within(
                self._core.metadata.next_update(), self._deadline_ms(), "metadata of the cluster"
            )

    async def _ask_any(
        self,
        api_key: int,
        fields: Any,
        what: str,
        code_of: Callable[[Any], int] | None = None,
        *,
        is_change: bool = False,
    ) -> Any:
        """What any broker can answer. One that stays silent may not use up all the time that there
        is: after a part of it another one is asked, unless it is a change, which might then be
        made twice."""
        core = self._core
        if not core.cluster.brokers:
            core.metadata.request_update()  # so that there will be others to ask
        silent: set[int] = set()
        patience_ms = self._settings.default_api_timeout_ms / (1 if is_change else _BROKERS_ASKED)

        async def attempt() -> Any:
            node_id = core.least_loaded(silent)
            asked = core.request(node_id, api_key, fields)
            try:
                answer = await core.within(asked, core.now_ms + patience_ms, what)
            except TimedOutError:
                silent.add(node_id)
                raise
            _raise_passing(code_of, answer, what)
            return answer

        return await core.retry(attempt, self._deadline_ms(), what)

    async def _ask_controller(
        self,
        api_key: int,
        fields: Any,
        what: str,
        code_of: Callable[[Any], int] | None = None,
    ) -> Any:
        """What the controller decides; brokers of today pass it on, others say NOT_CONTROLLER."""
        core = self._core
        await self._connected()

        async def attempt() -> Any:
            controller = core.cluster.controller_id
            node_id = controller if controller in core.cluster.brokers else core.least_loaded()
            try:
                answer = await core.request(node_id, api_key, fields)
                _raise_passing(code_of, answer, what)
            except BrokerError as error:
                if error.code == codes.NOT_CONTROLLER:
                    core.metadata.request_update()
                raise
            return answer

        return await core.retry(attempt, self._deadline_ms(), what)

    async def _ask_brokers(
        self,
        api_key: int,
        fields: Any,
        what: str,
        node_ids: Iterable[int] | None = None,
        code_of: Callable[[Any], int] | None = None,
    ) -> dict[int, Any]:
        """Each of them (or those named), at the same time."""
        core = self._core
        await self._connected()
        wanted = list(core.cluster.brokers if node_ids is None else node_ids)
        deadline_ms = self._deadline_ms()

        async def ask(node_id: int) -> Any:
            answer = await core.request(node_id, api_key, fields)
            _raise_passing(code_of, answer, what)
            return answer

        flows = [
            core.spawn(core.retry(_bound(ask, node_id), deadline_ms, f"{what} of broker {node_id}"))
            for node_id in wanted
        ]
        return dict(zip(wanted, await gather(flows), strict=True))

    async def _ask_leaders(
        self,
        api_key: int,
        wanted: Mapping[TopicPartition, Any],
        fields_of: Callable[[Mapping[TopicPartition, Any]], Any],
        results_of: Callable[[Any], dict[TopicPartition, PartitionResult]],
        what: str,
        patience_s: float | None = None,
    ) -> dict[TopicPartition, Any]:
        """The value of each partition, from its leader; raises the first error that stays. With
        `patience_s`, a partition whose error may pass, or that has no leader, is left out then."""
        core, deadline_ms = self._core, self._deadline_ms()
        patient_until_ms = None if patience_s is None else core.now_ms + patience_s * 1000
        found: dict[TopicPartition, Any] = {}
        left = dict(wanted)
        while left:
            by_leader = await self._by_leader(left, deadline_ms)
            refused: tuple[TopicPartition, int, str | None] | None = None
            for leader, some in by_leader.items():
                answer = await core.retry(
                    _bound(self._request, leader, api_key, fields_of(some)), deadline_ms, what
                )
                for place, (code, message, value) in results_of(answer).items():
                    if code == codes.NONE:
                        found[place] = value
                        left.pop(place, None)
                    elif is_retriable_code(code):
                        refused = (place, code, message)
                    else:
                        raise error_for(code, f"{what} of {place[0]}-{place[1]}", message)
            if patient_until_ms is not None and core.now_ms >= patient_until_ms:
                break
            if left:
                await self._before_next(refused, deadline_ms, what)
        return found

    async def _request(self, node_id: int, api_key: int, fields: Any) -> Any:
        return await self._core.request(node_id, api_key, fields)

    async def _by_leader(
        self, wanted: Mapping[TopicPartition, Any], deadline_ms: float
    ) -> dict[int, dict[TopicPartition, Any]]:
        core = self._core
        by_leader: dict[int, dict[TopicPartition, Any]] = {}
        for (topic, partition), value in wanted.items():
            info = await core.metadata.topic(topic, deadline_ms)
            if not 0 <= partition < len(info.partitions):
                raise error_for(
                    codes.UNKNOWN_TOPIC_OR_PARTITION,
                    f"{topic} has partitions 0 to {len(info.partitions) - 1}, not {partition}",
                )
            leader = info.partitions[partition].leader
            if leader >= 0:
                by_leader.setdefault(leader, {})[topic, partition] = value
        return by_leader

    async def _before_next(
        self, refused: tuple[TopicPartition, int, str | None] | None, deadline_ms: float, what: str
    ) -> None:
        core = self._core
        if core.now_ms + _PAUSE_MS >= deadline_ms:
            if refused is not None:
                (topic, partition), code, message = refused
                raise error_for(code, f"{what} of {topic}-{partition}", message)
            raise TimedOutError(f"{what}: a partition has no leader")
        await core.sleep_until(core.now_ms + _PAUSE_MS)
        await core.within(core.metadata.next_update(), deadline_ms, what)


def _bound(
    function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any
) -> Callable[[], Coroutine[Any, Any, T]]:
    return lambda: function(*arguments)


def _raise_passing(code_of: Callable[[Any], int] | None, answer: Any, what: str) -> None:
    """An error that may be another one next time leads to the next attempt."""
    if code_of is not None:
        code = code_of(answer)
        if code in _PASSING:
            raise error_for(code, what)


def raise_for(code: int, what: str, message: str | None = None) -> None:
    if code != codes.NONE:
        raise error_for(code, what, message)


def error_or_none(code: int, what: str, message: str | None = None) -> BrokerError | None:
    return None if code == codes.NONE else error_for(code, what, message)


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    return topics
