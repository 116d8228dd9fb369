"""Offset commits as fast as so many clients get them acknowledged, one partition each."""

from __future__ import annotations

from bench.clients.command import run_as_command
from bench.closed_loop import run_closed_loop
from bench.groups import commit_error_position, commit_frame, wait_until_coordinated
from bench.processes import cpu_seconds


def commit(
    *, bootstrap: str, pid: int, topic: str, clients: int, seconds: float
) -> dict[str, float]:
    groups = [f"commits-{number}" for number in range(clients)]
    wait_until_coordinated(bootstrap, groups, topic)
    requests = [commit_frame(group, topic, 1, 1000) for group in groups]
    before = cpu_seconds(pid)
    answers, took_s = run_closed_loop(bootstrap, requests, commit_error_position(topic), seconds)
    used = cpu_seconds(pid) - before
    return {"commits_per_s": answers / took_s, "cpu_us_per_commit": used / answers * 1e6}


if __name__ == "__main__":
    run_as_command(commit)
