"""Java's properties files, as far as `meta.properties` needs them: `key=value`, `#` comments."""

from __future__ import annotations

import re

_PAIR = re.compile(r"((?:\\.|[^=:\s\\])+)\s*[=:\s]\s*(.*)")


def parse(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith(("#", "!")):
            pair = _PAIR.match(stripped)
            if pair is not None:
                found[_unescaped(pair[1])] = _unescaped(pair[2])
    return found


def render(properties: dict[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
