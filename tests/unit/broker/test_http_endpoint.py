"""Goal: three pages, fixed answers to everything else, and bounds on what a scraper may send."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.http_endpoint import REQUEST_BYTES_MAX, HttpEndpoint


def answer_to(request: bytes) -> str:
    async def main() -> str:
        endpoint = HttpEndpoint(
            {"/metrics": lambda: (200, "up 1\n"), "/readyz": lambda: (503, "no\n")}
        )
        port = await endpoint.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        text = (await asyncio.wait_for(reader.read(), 20)).decode()
        writer.close()
        await endpoint.stop()
        return text

    return asyncio.run(main())


def test_a_page_is_served() -> None:
    text = answer_to(b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert text.startswith("HTTP/1.1 200 OK\r\n")
    assert text.endswith("\r\n\r\nup 1\n")
    assert "Content-Length: 5\r\n" in text


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
