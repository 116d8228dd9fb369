"""`/metrics`, `/healthz` and `/readyz` on a loopback port, for scrapers and supervisors.

Three fixed paths need no framework: a request line is read within bounds, answered, and the
connection closed. What the pages say comes from the functions given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_SECONDS_MAX = 5.0

Answer = tuple[int, str]
Page = Callable[[], Answer | Awaitable[Answer]]
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}


class HttpEndpoint:
    def __init__(self, pages: dict[str, Page]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self, host: str, port: int) -> int:
        self._server = await asyncio.start_server(self._serve, host, port, limit=REQUEST_BYTES_MAX)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            # Not cancelled: a task of asyncio's streams would complain about that.
            for writer in self._open.values():
                writer.transport.abort()
            if self._open:
                await asyncio.wait(self._open.keys())
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                page = self._page_of(head)
                status, text = await page if isinstance(page, Awaitable) else page
                writer.write(_response(status, text))
                await writer.drain()
        except (TimeoutError, OSError, EOFError, asyncio.LimitOverrunError):
            pass  # a scraper that goes away or talks nonsense is owed nothing
        finally:
            writer.close()
            del self._open[task]

    def _page_of(self, head: bytes) -> Answer | Awaitable[Answer]:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or words[0] not in ("GET", "HEAD"):
            return 400, "only GET is served here\n"
        page = self._pages.get(words[1].split("?", 1)[0])
        if page is None:
            return 404, "served here: " + " ".join(sorted(self._pages)) + "\n"
        return page()


def _response(status: int, text: str) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\n"
        "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
