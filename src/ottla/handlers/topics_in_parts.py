"""Topics and partitions for which one commit is too small: one commit after the other.

Small requests, which is nearly all of them, take one commit and are all or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.base.deferred import Deferred
from ottla.base.errors import ProtocolError
from ottla.handlers.context import Context
from ottla.metadata.controller import (
    CreateResult,
    Decision,
    DeleteResult,
    MorePartitions,
    NamedResult,
    NewTopic,
    TopicDefaults,
    TopicSelection,
    decide_create_partitions,
    decide_delete_topics,
)
from ottla.metadata.image import MetadataImage
from ottla.metadata.large_topics import (
    PARTITIONS_PER_COMMIT,
    PARTITIONS_PER_DELETION,
    bundles,
    decide_trim,
    first_part,
    further_parts,
    growth,
    partition_count,
)
from ottla.metadata.topics_control import PARTITIONS_PER_REQUEST_MAX
from ottla.protocol.error_codes import NONE, UNKNOWN_SERVER_ERROR

Decide = Callable[[MetadataImage, Sequence[NewTopic]], Decision[list[CreateResult]]]
Result = CreateResult | NamedResult


def create_topics(
    context: Context,
    topics: Sequence[NewTopic],
    defaults: TopicDefaults,
    decide: Decide,
    *,
    validate_only: bool,
) -> Deferred[list[CreateResult]]:
    """What is only to be checked is checked as a whole: there is nothing that could grow."""
    total = sum(partition_count(topic, defaults) for topic in topics)
    if validate_only or not PARTITIONS_PER_COMMIT < total <= PARTITIONS_PER_REQUEST_MAX:
        return context.services.controller.submit(lambda image: decide(image, topics))
    return _Creation(context, topics, defaults, decide).begin()


class _Creation:
    """Bundles of topics one after the other, and after each of them its large topics grow."""

    def __init__(
        self,
        context: Context,
        topics: Sequence[NewTopic],
        defaults: TopicDefaults,
        decide: Decide,
    ) -> None:
        self._context = context
        self._defaults = defaults
        self._decide = decide
        self._bundles = bundles(topics, defaults)
        self._by_name = {topic.name: topic for topic in topics}
        self._results: list[CreateResult] = []
        self._answer: Deferred[list[CreateResult]] = Deferred()

    def begin(self) -> Deferred[list[CreateResult]]:
        self._next_bundle()
        return self._answer

    def _next_bundle(self) -> None:
        if not self._bundles:
            self._answer.resolve(self._results)
            return
        bundle = self._bundles.pop(0)
        parts = [first_part(topic, self._defaults) for topic in bundle]
        made = self._context.services.controller.submit(lambda image: self._decide(image, parts))
        made.when_done(lambda outcome: self._on_made(bundle, outcome))

    def _on_made(self, bundle: list[NewTopic], outcome: Deferred[list[CreateResult]]) -> None:
        error = outcome.error()
        if error is None:
            made = outcome.result()
        elif self._results:
            made = [CreateResult(topic.name) for topic in bundle]
            for result in made:
                _tell(result, error)
        else:
            outcome.tell(self._answer)
            return
        self._results += made
        self._grow(list(made))

    def _grow(self, made: list[CreateResult]) -> None:
        while made:
            result = made.pop()
            parts = further_parts(self._by_name[result.name], self._defaults)
            if result.error_code == NONE and parts:
                result.partition_count = parts[-1].partition_count
                grow(self._context, result, parts).when_done(lambda _: self._grow(made))
                return
        self._next_bundle()


def create_partitions(
    context: Context, topics: Sequence[MorePartitions], *, validate_only: bool
) -> Deferred[list[NamedResult]]:
    """What is only to be checked is checked as a whole."""
    submit = context.services.controller.submit
    known = context.services.image.topics
    parts = {
        topic.name: growth(topic, len(known[topic.name].partitions))
        for topic in topics
        if topic.name in known and not validate_only
    }
    firsts = [next(iter(parts.get(topic.name, ())), topic) for topic in topics]
    begun = submit(
        lambda image: decide_create_partitions(image, firsts, validate_only=validate_only)
    )
    answer: Deferred[list[NamedResult]] = Deferred()

    def grow_next(left: list[NamedResult]) -> None:
        while left:
            result = left.pop()
            further = parts.get(result.name, [])[1:]
            if result.error_code == NONE and further:
                grow(context, result, further).when_done(lambda _: grow_next(left))
                return
        answer.resolve(begun.result())

    def on_begun(outcome: Deferred[list[NamedResult]]) -> None:
        if outcome.error() is None:
            grow_next([*outcome.result()])
        else:
            outcome.tell(answer)

    begun.when_done(on_begun)
    return answer


def delete_topics(
    context: Context, selections: Sequence[TopicSelection]
) -> Deferred[list[DeleteResult]]:
    """Large topics are trimmed first, from their end; but only those that will really go."""
    submit = context.services.controller.submit
    large: list[str] = []
    answer: Deferred[list[DeleteResult]] = Deferred()

    def begin() -> None:
        topics = context.services.image.topics
        if any(len(topic.partitions) > PARTITIONS_PER_DELETION for topic in topics.values()):
            submit(lambda image: _checked_only(image, selections)).when_done(on_checked)
        else:
            next_trim()

    def on_checked(outcome: Deferred[list[str]]) -> None:
        error = outcome.error()
        if error is not None:
            answer.fail(error)
            return
        large.extend(outcome.result())
        next_trim()

    def next_trim() -> None:
        if not large:
            deleted = submit(lambda image: decide_delete_topics(image, selections))
            deleted.when_done(lambda outcome: outcome.tell(answer))
            return
        submit(lambda image: decide_trim(image, large[-1])).when_done(on_trimmed)

    def on_trimmed(outcome: Deferred[bool]) -> None:
        error = outcome.error()
        if error is not None:
            answer.fail(error)
            return
        if not outcome.result():
            large.pop()
        next_trim()

    begin()
    return answer


def _checked_only(
    image: MetadataImage, selections: Sequence[TopicSelection]
) -> Decision[list[str]]:
    """The large topics that this deletion will take; nothing is written. One that is named twice
    is refused and stays, and so has to keep all its partitions."""
    decided = decide_delete_topics(image, selections).response
    return Decision(
        [],
        [
            result.name
            for result in decided
            if result.error_code == NONE
            and result.name is not None
            and len(image.topics[result.name].partitions) > PARTITIONS_PER_DELETION
        ],
    )


def grow(context: Context, result: Result, parts: Sequence[MorePartitions]) -> Deferred[None]:
    """Never fails: what goes wrong is told in `result`."""
    done: Deferred[None] = Deferred()
    submit = context.services.controller.submit

    def next_part(number: int) -> None:
        if number == len(parts):
            done.resolve(None)
            return
        grown = submit(lambda image: decide_create_partitions(image, [parts[number]]))
        grown.when_done(lambda outcome: on_grown(number, outcome))

    def on_grown(number: int, outcome: Deferred[list[NamedResult]]) -> None:
        error = outcome.error()
        if error is None:
            (told,) = outcome.result()
            result.error_code, result.error_message = told.error_code, told.error_message
        else:
            _tell(result, error)
        if result.error_code == NONE:
            next_part(number + 1)
        else:
            done.resolve(None)

    next_part(0)
    return done


def _tell(result: Result, error: BaseException) -> None:
    if isinstance(error, ProtocolError):
        result.error_code, result.error_message = error.code, error.message
    else:
        result.error_code, result.error_message = UNKNOWN_SERVER_ERROR, str(error)
