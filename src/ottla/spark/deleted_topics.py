"""Whether a topic that was there exists no more: by the word of all brokers, several times.

One broker may be behind the others: it has not heard of a new topic yet. To take its word would be
to lose records that are there. So each broker is asked, and one that knows the name, or does not
answer, outweighs all who do not know it. A leader that moves is no matter here: brokers know the
topic then.
"""

from __future__ import annotations

from typing import Any

from ottla.client.core import Core
from ottla.client.errors import ClientError
from ottla.protocol.api_keys import METADATA
from ottla.protocol.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.primitives import NULL_UUID

ROUNDS_WANTED = 3
"""In which nobody knows it; whoever asks has a pause between them."""

Topic = tuple[str, str]
"""Name and id: one that is made again is another."""


class DeletedTopics:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._rounds: dict[Topic, int] = {}

    def is_likely(self, topic: Topic) -> bool:
        """All brokers have said so at least once, and none has said otherwise since."""
        return topic in self._rounds

    async def ask(self, topic: Topic) -> bool:
        """One more round; whether it is certain now. A name that a broker knows is known to the
        client afterwards, too."""
        core = self._core
        asked = [core.request(one, METADATA, _question(topic[0])) for one in core.cluster.brokers]
        is_unknown = bool(asked)
        for pending in asked:
            try:
                answer = await pending
            except ClientError:
                is_unknown = False
                continue
            if answer.topics[0].error_code != UNKNOWN_TOPIC_OR_PARTITION:
                is_unknown = False
                core.cluster.update(answer, all_topics=False)
        if not is_unknown:
            self.forget(topic)
            return False
        self._rounds[topic] = self._rounds.get(topic, 0) + 1
        return self._rounds[topic] >= ROUNDS_WANTED

    def forget(self, topic: Topic) -> None:
        """It is there."""
        self._rounds.pop(topic, None)


def _question(name: str) -> dict[str, Any]:
    return {
        "topics": [{"topic_id": NULL_UUID, "name": name}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
