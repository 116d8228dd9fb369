"""`python -m ottla`: the command line, where its script is not on the path."""

from __future__ import annotations

from ottla.cli.main import app

if __name__ == "__main__":
    app()
