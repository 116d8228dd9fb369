"""A broker of a few lines for the tests of the light clients: answers each frame by a function."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Answer = Callable[[bytes], bytes]


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """Its address. An empty answer closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=_accept, args=(listener, answer), daemon=True)
        accepting.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()


def _accept(listener: socket.socket, answer: Answer) -> None:
    serving_threads = []
    while True:
        try:
            connected, _ = listener.accept()
        except OSError:
            break
        thread = threading.Thread(target=_serve, args=(connected, answer), daemon=True)
        thread.start()
        serving_threads.append(thread)
    for thread in serving_threads:
        thread.join()


def _serve(connected: socket.socket, answer: Answer) -> None:
    # A client that has seen enough goes without reading the rest.
    with suppress(ConnectionError), connected, connected.makefile("rb") as incoming:
        while len(size := incoming.read(4)) == 4:
            sent = answer(incoming.read(struct.unpack(">i", size)[0]))
            if not sent:
                return
            connected.sendall(struct.pack(">i", len(sent)) + sent)
