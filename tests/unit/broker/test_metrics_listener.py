"""Goal: wherever metrics are told to be served they are, or it is said in a line why not."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from ottla.base.errors import ConfigError
from ottla.broker.sight import Sight


async def served_port(where: str) -> int | None:
    nothing = cast(Any, None)  # nobody asks for a page
    sight = Sight(nothing, nothing, nothing, lambda: True)
    port = await sight.start(where)
    await sight.stop()
    return port


def test_an_address_in_brackets() -> None:
    # IPv4 in the brackets: not every machine that runs the tests has IPv6.
    assert asyncio.run(served_port("[127.0.0.1]:0"))


def test_an_address_of_another_machine_is_refused_by_the_name_of_the_setting() -> None:
    # 192.0.2.0/24 is for documentation: nobody has it.
    with pytest.raises(ConfigError, match=r"ottla\.metrics\.listener: .* 192\.0\.2\.1:0"):
        asyncio.run(served_port("192.0.2.1:0"))
