"""The sockets of kazoo's client: TLS by our own settings, short waits, and a way to drop one.

kazoo waits a whole session's length for one server that takes no connection, so a broker that is
cut off from one of three would lose its session while the other two would have it. And it finds
out that a server is silent only as long as nothing else is sent; who knows better can drop the
connection here.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from ottla.base.errors import ConfigError
from ottla.metadata.configs.zookeeper import ZooKeeperSettings, ZooKeeperTls


class Sockets(SequentialThreadingHandler):
    def __init__(self, settings: ZooKeeperSettings, on_distrust: Callable[[], None]) -> None:
        """`on_distrust`: a server's certificate is not to be trusted; trying again won't help."""
        super().__init__()
        self._on_distrust = on_distrust
        # Time for every server in turn, and for what comes after connecting.
        servers = settings.host_count + 1
        self._timeout_s = max(0.1, settings.session_timeout_ms / 1000 / servers)
        self._tls = None if settings.tls is None else tls_context(settings.tls)
        self._socket: socket.socket | None = None
        self.last_error = ""

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, **_others: Any
    ) -> socket.socket:
        try:
            self._socket = self._connect(address, hostname)
        except OSError as refused:
            self.last_error = f"{address[0]}:{address[1]}: {refused.strerror or refused}"
            if isinstance(refused, ssl.SSLCertVerificationError):
                self.last_error = f"{address[0]}:{address[1]}: {refused.verify_message}"
                self._on_distrust()
            raise
        return self._socket

    def _connect(self, address: tuple[str, int], hostname: str | None) -> socket.socket:
        plain = socket.create_connection(address, self._timeout_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                return plain
            return self._tls.wrap_socket(plain, server_hostname=hostname)
        except BaseException:
            plain.close()
            raise

    def drop(self) -> None:
        """Whoever reads from or writes to the connection finds it broken, and makes a new one."""
        if self._socket is not None:
            with suppress(OSError):  # it is gone already
                self._socket.shutdown(socket.SHUT_RDWR)


def tls_context(tls: ZooKeeperTls) -> ssl.SSLContext:
    """Python's defaults for a client. Raises ConfigError."""
    try:
        context = ssl.create_default_context(cafile=tls.trusted)
        context.check_hostname = tls.check_host
        if tls.own is not None:
            # A function, or Python would ask for a password on the terminal.
            context.load_cert_chain(tls.own, password=lambda: tls.own_password or "")
    except (OSError, ValueError) as cause:
        where = " or ".join(path for path in (tls.trusted, tls.own) if path)
        raise ConfigError(f"zookeeper.ssl: {where} cannot be used: {cause}") from cause
    return context
