"""Goal: a topic of any size is divided so that the parts are the whole, in order, and none is
larger than a commit.
Method: sizes around the bounds, with replicas chosen and given.
"""

from __future__ import annotations

import pytest

from ottla.metadata import paths
from ottla.metadata.controller import (
    MorePartitions,
    NewTopic,
    TopicDefaults,
    TopicSelection,
    decide_delete_topics,
)
from ottla.metadata.large_topics import (
    PARTITIONS_PER_COMMIT,
    bundles,
    decide_trim,
    first_part,
    further_parts,
    growth,
)
from tests.unit.metadata.builders import Cluster

DEFAULTS = TopicDefaults(2_500, 3)


@pytest.mark.parametrize(
    ("count", "parts"),
    [(1, []), (1_000, []), (1_001, [1_001]), (2_500, [2_000, 2_500]), (-1, [2_000, 2_500])],
)
def test_counts(count: int, parts: list[int]) -> None:
    topic = NewTopic("t", count)
    assert [part.partition_count for part in further_parts(topic, DEFAULTS)] == parts
    assert (first_part(topic, DEFAULTS) is topic) == (parts == [])


def test_given_replicas_are_divided_in_order() -> None:
    given = [(index, (index,)) for index in reversed(range(2_300))]
    topic = NewTopic("t", assignments=given)
    first = first_part(topic, DEFAULTS)
    assert [tuple(one) for one in first.assignments] == given[::-1][:1_000]
    parts = further_parts(topic, DEFAULTS)
    assert [len(part.assignments or ()) for part in parts] == [1_000, 300]
    replicas = [ids for part in parts for ids in part.assignments or ()]
    assert replicas == [[index] for index in range(1_000, 2_300)]


def test_what_will_be_refused_is_not_divided() -> None:
    gap = NewTopic("t", assignments=[(index * 2, (1,)) for index in range(1_500)])
    assert first_part(gap, DEFAULTS) is gap
    for wanted in (
        MorePartitions("t", 20_000),
        MorePartitions("t", 3_000, [(1,)] * 100),
    ):
        assert growth(wanted, 10) == [wanted]
    assert growth(MorePartitions("t", 5), 5) == []


def test_small_topics_share_a_commit_and_twins_are_not_parted() -> None:
    topics = [NewTopic("a", 600), NewTopic("b", 600), NewTopic("c", 300), NewTopic("a", 600)]
    assert [[one.name for one in bundle] for bundle in bundles(topics, DEFAULTS)] == [
        ["a", "a"],
        ["b", "c"],
    ]
    many = [NewTopic(str(number), 90) for number in range(50)]
    divided = bundles(many, DEFAULTS)
    assert [one for bundle in divided for one in bundle] == many
    assert all(sum(one.partition_count for one in b) <= PARTITIONS_PER_COMMIT for b in divided)


def test_a_large_topic_is_trimmed_until_it_can_go_at_once() -> None:
    cluster = Cluster(brokers=(1, 2))
    cluster.create(NewTopic("t", 4_500, 1))
    sizes = []
    while cluster.run(lambda image: decide_trim(image, "t")):
        sizes.append(len(cluster.image.topics["t"].partitions))
    assert sizes == [2_500, 2_000]
    cluster.run(lambda image: decide_delete_topics(image, [TopicSelection("t")]))
    assert cluster.image.topics == {}
    assert not [path for path in cluster.store.load().nodes if path.startswith(paths.TOPICS)]
    assert not cluster.run(lambda image: decide_trim(image, "t"))
