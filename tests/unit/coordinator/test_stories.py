"""Goal: classic groups and their offsets do what Kafka's do, told so that people can check it.
Method: the stories beside this file, played with the real shard in its real host on virtual time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.coordinator.group_story import Story, scenes_of

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    settings, scenes = scenes_of(path)
    assert scenes, "a story has scenes"
    story = Story(settings)
    for steps, answers in scenes:
        assert story.play(steps) == answers, "\n".join(steps)
