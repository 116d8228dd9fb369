"""Writes docs/reference/api-coverage.md from the handlers: the APIs served and their versions.

python tools/api_coverage.py            prints it
python tools/api_coverage.py --write    writes the file; the tidy test fails when it is stale
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from ottla.handlers.registry import SERVED, advertised_apis
from ottla.protocol.api_keys import name_of

REPOSITORY = Path(__file__).resolve().parent.parent
HANDLERS = REPOSITORY / "src" / "ottla" / "handlers"
PAGE = REPOSITORY / "docs" / "reference" / "api-coverage.md"

HEAD = """\
# API coverage

What a broker of this version answers, as ApiVersions tells it. Every version in a range is
implemented and tested; what is not built yet is not advertised. Written by `make coverage-table`
from `src/ottla/handlers/`: one file for each API key.

| Key | API | Versions | What it is for |
|---:|---|---|---|
"""
NOTE = """
Produce is advertised from version 0, because older librdkafka turns compression off when it sees
it begin higher (KAFKA-18659). Like every version that is not served, a Produce below 3 closes the
connection, as in Kafka.

InitProducerId 6 (KIP-939) is not stable in Kafka and not advertised by it. Here it is served, and
advertised where `transaction.two.phase.commit.enable` is set.
"""


def page() -> str:
    told = {api_key: (low, high) for api_key, low, high in advertised_apis()}
    rows = [row(api_key, module, *told[api_key]) for api_key, (module, _, _) in SERVED.items()]
    return HEAD + "".join(rows) + NOTE


def row(api_key: int, module: str, advertised_lowest: int, advertised_highest: int) -> str:
    _, low, high = SERVED[api_key]
    versions = f"{low}" if low == high else f"{low} to {high}"
    if advertised_lowest != low:
        versions += f" (advertised from {advertised_lowest})"
    if advertised_highest != high:
        versions += f" (advertised to {advertised_highest})"
    return f"| {api_key} | {name_of(api_key)} | {versions} | {purpose(module)} |\n"


def purpose(module: str) -> str:
    """The first sentence of the handler's docstring that is not about versions."""
    document = ast.get_docstring(ast.parse((HANDLERS / f"{module}.py").read_text())) or ""
    sentences = re.split(r"\.\s+", document.rstrip("."))
    told = (
        re.sub(r"^\w+ [\d-]+( \([^)]*\))?(: |$)", "", " ".join(one.split())) for one in sentences
    )
    sentence = next(one for one in told if one and not re.match(r"v\d", one))
    return sentence[:1].upper() + sentence[1:]


def main() -> None:
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
