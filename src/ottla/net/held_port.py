"""A port that stays ours while nobody listens on it, for who starts brokers again on their ports.

Holds a socket that is bound and never listens. The kernel gives such a port to no outgoing
connection and to nobody who asks for any port; a broker, which lets its address be shared, listens
on it all the same, as often as it is started.
"""

from __future__ import annotations

import socket


class HeldPort:
    def __init__(self, host: str, port: int = 0) -> None:
        """OSError if it is not to be had. Port 0: one that is free."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()

    __del__ = close
