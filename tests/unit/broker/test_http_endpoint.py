"""Goal: three pages, fixed answers to everything else, and bounds on what a scraper may send."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import uvloop

from ottla.broker.http_endpoint import REQUEST_BYTES_MAX, HttpEndpoint
from tests.patience import SECONDS_MAX


async def slow() -> tuple[int, str]:
    await asyncio.sleep(0)
    return 200, "at last\n"


def answer_to(request: bytes) -> str:
    async def main() -> str:
        endpoint = HttpEndpoint(
            {"/metrics": lambda: (200, "up 1\n"), "/readyz": lambda: (503, "no\n"), "/slow": slow}
        )
        port = await endpoint.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        text = (await asyncio.wait_for(reader.read(), SECONDS_MAX)).decode()
        writer.close()
        await endpoint.stop()
        return text

    return asyncio.run(main())


def test_a_page_is_served() -> None:
    text = answer_to(b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert text.startswith("HTTP/1.1 200 OK\r\n")
    assert text.endswith("\r\n\r\nup 1\n")
    assert "Content-Length: 5\r\n" in text


def test_a_page_may_take_its_time() -> None:
    assert answer_to(b"GET /slow HTTP/1.1\r\n\r\n").endswith("\r\n\r\nat last\n")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /readyz HTTP/1.1", "503"),
        (b"GET /elsewhere HTTP/1.1", "404"),
        (b"POST /metrics HTTP/1.1", "400"),
        (b"\xff\xfe\xfd", "400"),
    ],
)
def test_other_requests_get_a_plain_answer(request_line: bytes, status: str) -> None:
    assert answer_to(request_line + b"\r\n\r\n").split(" ")[1] == status


def test_a_request_without_end_is_cut_off() -> None:
    assert answer_to(b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * REQUEST_BYTES_MAX) == ""


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\n"])
def test_a_stop_ends_what_is_open_without_a_word(
    new_loop: Callable[[], asyncio.AbstractEventLoop], sent: bytes
) -> None:
    complaints: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
        endpoint = HttpEndpoint({"/metrics": lambda: (200, "up 1\n")})
        port = await endpoint.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        # Its connection is served when a later one has been answered.
        other, closing = await asyncio.open_connection("127.0.0.1", port)
        closing.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await other.read()
        closing.close()
        await endpoint.stop()
        assert len(asyncio.all_tasks()) == 1
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    gc.collect()
    assert complaints == []
