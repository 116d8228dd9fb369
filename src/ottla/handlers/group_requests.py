"""From a request to the shard that holds its group, and back.

Every handler of the group APIs asks through here, so that each of them only says what to decide and
how a refusal looks in its own response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from ottla.base.deferred import Deferred
from ottla.base.errors import OttlaError, ProtocolError
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.shard import Caller, Fields, Outcome
from ottla.handlers.context import Context, GroupHost

R = TypeVar("R")
Answer = Fields | Deferred[Fields]


def caller_of(context: Context) -> Caller:
    # Kafka tells an address as Java prints it.
    return Caller(context.client_id or "", f"/{context.client_address}", context.api_version)


def decide(
    context: Context,
    group_id: str,
    decision: Callable[[GroupShard], Outcome[Fields]],
    refused: Callable[[int], Fields],
) -> Answer:
    """What the group's shard decides, or `refused(code)` if it cannot."""
    host = context.services.groups.host_of(group_id)
    if isinstance(host, int):
        return refused(host)
    return _answered(host.write(decision), refused)


def look(
    context: Context,
    group_id: str,
    sight: Callable[[GroupShard], Fields],
    refused: Callable[[int], Fields],
) -> Answer:
    host = context.services.groups.host_of(group_id)
    if isinstance(host, int):
        return refused(host)
    return _answered(host.read(sight), refused)


def _answered(answer: Deferred[Fields], refused: Callable[[int], Fields]) -> Answer:
    if answer.done:
        return _result(answer, refused)
    later: Deferred[Fields] = Deferred()

    def done(outcome: Deferred[Fields]) -> None:
        try:
            fields = _result(outcome, refused)
        except OttlaError as error:
            later.fail(error)
        else:
            later.resolve(fields)

    answer.when_done(done)
    return later


def _result(answer: Deferred[Fields], refused: Callable[[int], Fields]) -> Fields:
    try:
        return answer.result()
    except ProtocolError as refusal:
        return refused(refusal.code)


def then(answer: Answer, change: Callable[[Fields], Fields]) -> Answer:
    """The answer as `change` makes it, now or when it comes."""
    if not isinstance(answer, Deferred):
        return change(answer)
    changed: Deferred[Fields] = Deferred()

    def done(outcome: Deferred[Fields]) -> None:
        try:
            fields = change(outcome.result())
        except OttlaError as error:
            changed.fail(error)
        else:
            changed.resolve(fields)

    answer.when_done(done)
    return changed


def gather(answers: Sequence[Answer], combine: Callable[[list[Fields]], Fields]) -> Answer:
    """One answer out of several, in their order, when the last of them is there."""
    results: list[Any] = list(answers)
    left = sum(isinstance(answer, Deferred) for answer in answers)
    if not left:
        return combine(results)
    whole: Deferred[Fields] = Deferred()

    def collect(place: int, outcome: Deferred[Fields]) -> None:
        nonlocal left
        left -= 1
        try:
            results[place] = outcome.result()
            if left or whole.done:
                return
            combined = combine(results)
        except OttlaError as error:
            if not whole.done:
                whole.fail(error)
        else:
            whole.resolve(combined)

    for place, answer in enumerate(answers):
        if isinstance(answer, Deferred):
            answer.when_done(lambda outcome, place=place: collect(place, outcome))  # type: ignore[misc]
    return whole


class _Shared(Protocol):
    def __call__(self, host: GroupHost, group_ids: list[str]) -> Deferred[list[Fields]]: ...


def by_host(
    context: Context,
    group_ids: Iterable[str],
    ask: _Shared,
    refused: Callable[[str, int], Fields],
) -> list[Answer]:
    """Asks each shard once for all of its groups. Each answer has its results under "groups"."""
    together: dict[GroupHost, list[str]] = {}
    answers: list[Answer] = []
    for group_id in group_ids:
        host = context.services.groups.host_of(group_id)
        if isinstance(host, int):
            answers.append({"groups": [refused(group_id, host)]})
        else:
            together.setdefault(host, []).append(group_id)
    for host, held in together.items():
        answers.append(_shared_answer(ask(host, held), held, refused))
    return answers


def _shared_answer(
    asked: Deferred[list[Fields]], held: list[str], refused: Callable[[str, int], Fields]
) -> Answer:
    wrapped: Deferred[Fields] = Deferred()

    def done(outcome: Deferred[list[Fields]]) -> None:
        try:
            wrapped.resolve({"groups": outcome.result()})
        except ProtocolError as refusal:
            wrapped.resolve({"groups": [refused(one, refusal.code) for one in held]})
        except OttlaError as error:
            wrapped.fail(error)

    asked.when_done(done)
    return wrapped.result() if wrapped.done else wrapped
