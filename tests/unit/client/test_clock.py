"""Goal: the client's dice are its own. Method: a seeded program, with and without them."""

from __future__ import annotations

import random

from ottla.client.clock import chance


def test_a_seeded_program_gets_its_numbers_whatever_the_client_throws() -> None:
    alone, beside = random.Random(7), random.getstate()
    try:
        random.seed(7)
        chance()
        assert random.random() == alone.random()
    finally:
        random.setstate(beside)
