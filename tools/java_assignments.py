"""Asks Kafka's own assignors to share partitions in random histories of groups, and keeps what they
said in tests/unit/client/java_assignments.json, which the tests hold our assignors against.

    python tools/java_assignments.py    # needs Java and Kafka's jars (OTTLA_KAFKA_JARS)
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
KEPT = REPOSITORY / "tests" / "unit" / "client" / "java_assignments.json"
SEED = 4_3_1
HISTORIES = 12
ROUNDS_MAX = 5


def history(chance: random.Random) -> list[dict[str, Any]]:
    topics = {f"topic{n}": chance.randint(1, 9) for n in range(chance.randint(1, 4))}
    everybody_reads_all = chance.random() < 0.5
    ids = [f"member-{n:02}" for n in range(12)]
    present: dict[str, dict[str, Any]] = {}
    rounds = []
    for _ in range(chance.randint(1, ROUNDS_MAX)):
        for _ in range(chance.randint(1, 4)):
            change_one(chance, ids, present)
        if not present:
            change_one(chance, ids, present)
        if chance.random() < 0.2:
            # Never fewer: Kafka's own sticky assignor fails then.
            grown = chance.choice(sorted(topics))
            topics = {**topics, grown: topics[grown] + chance.randint(1, 5)}
        for member in present.values():
            if everybody_reads_all:
                member["topics"] = sorted(topics)
            elif not member["topics"] or chance.random() < 0.2:
                member["topics"] = sorted(
                    chance.sample(sorted(topics), chance.randint(1, len(topics)))
                )
        read = {topic for member in present.values() for topic in member["topics"]}
        counts = {topic: count for topic, count in sorted(topics.items()) if topic in read}
        members = [dict(member) for _, member in sorted(present.items())]
        rounds.append({"topics": counts, "members": members})
        for member in present.values():
            member["fresh"] = False
    return rounds


def change_one(chance: random.Random, ids: list[str], present: dict[str, dict[str, Any]]) -> None:
    """A member joins or leaves."""
    name = chance.choice(ids)
    if name in present:
        del present[name]
    else:
        instance = f"instance-{chance.randint(0, 99)}-{name}" if chance.random() < 0.2 else None
        present[name] = {"id": name, "instance": instance, "topics": [], "fresh": True}


def main() -> None:
    chance = random.Random(SEED)
    histories = [history(chance) for _ in range(HISTORIES)]
    jars = os.environ.get("OTTLA_KAFKA_JARS", str(REPOSITORY / ".cache" / "kafka"))
    source = REPOSITORY / "tools" / "java" / "Assignments.java"
    asked = subprocess.run(
        ["java", "-cp", f"{jars}/*", str(source)],
        input=json.dumps(histories),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    results = json.loads(asked.stdout)
    lines = ",\n".join(json.dumps(result, separators=(",", ":")) for result in results)
    KEPT.write_text(f"[\n{lines}\n]\n")
    print(f"{len(results)} histories in {KEPT.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    main()
