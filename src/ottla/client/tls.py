"""TLS for the shells: a context of the settings, and a socket that encrypts.

`TlsSocket` has what the plain shell needs of a socket and never blocks. It keeps bytes on both
sides: `has_more` tells that some were read and not handed out, of which epoll knows nothing, and
`has_unsent` that the socket did not take all, which `flush` tries again.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence

from ottla.base.ports import Buffer
from ottla.client.errors import ConfigError, TlsError
from ottla.client.settings import ClientSettings

_READ_BYTES = 262_144
# More is not encrypted before these have left.
_AHEAD_BYTES_MAX = 262_144


def tls_context(settings: ClientSettings) -> ssl.SSLContext | None:
    """None where bytes go as they are. Raises ConfigError for files that cannot be used."""
    if not settings.security_protocol.endswith("SSL"):
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ssl_cafile)
    except OSError as cause:
        raise ConfigError(f"ssl.cafile={settings.ssl_cafile}: {cause}") from cause
    context.check_hostname = settings.ssl_endpoint_identification_algorithm == "https"
    if settings.ssl_certfile is not None:
        password = settings.ssl_key_password
        try:
            context.load_cert_chain(
                settings.ssl_certfile,
                settings.ssl_keyfile,
                # A function, since without any password the library would ask on the terminal.
                lambda: "" if password is None else password.reveal(),
            )
        except (OSError, ValueError) as cause:
            raise ConfigError(f"ssl.certfile={settings.ssl_certfile}: {cause}") from cause
    return context


def tls_error(error: ssl.SSLError) -> TlsError:
    why = getattr(error, "verify_message", "") or error.reason or str(error)
    return TlsError(f"no TLS with the broker: {why}")


class TlsSocket:
    __slots__ = ("_cipher", "_in", "_out", "_sock", "_tls")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._sock = sock
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=host)
        self._cipher = memoryview(b"")  # encrypted, and not taken by the socket yet

    @property
    def has_more(self) -> bool:
        return self._in.pending > 0 or self._tls.pending() > 0

    @property
    def has_unsent(self) -> bool:
        return len(self._cipher) > 0 or self._out.pending > 0

    def handshake(self) -> bool:
        """Goes as far as it can; True when it is over. Raises TlsError, or OSError where the
        connection itself fails."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                if not self._receive():
                    return False
                continue
            except ssl.SSLEOFError:
                raise
            except ssl.SSLError as error:
                self.flush()  # the broker is told why
                raise tls_error(error) from error
            self.flush()
            return True

    def _receive(self) -> bool:
        """False if nothing is there. Raises OSError at the end of the stream."""
        try:
            data = self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            raise ConnectionResetError("the broker closed it during the TLS handshake")
        self._in.write(data)
        return True

    def recv_into(self, buffer: memoryview, nbytes: int = 0, flags: int = 0) -> int:
        """Never waits, whatever the flags. 0 at the end; BlockingIOError if nothing is there."""
        while True:
            try:
                count = self._tls.read(len(buffer), buffer)
            except ssl.SSLWantReadError:
                data = self._sock.recv(_READ_BYTES)
                if not data:
                    return 0
                self._in.write(data)
                continue
            except ssl.SSLZeroReturnError:
                return 0
            if self._out.pending:
                self.flush()  # an answer of the protocol itself, such as new keys
            return int(count)

    def send(self, data: Buffer, flags: int = 0) -> int:
        """Takes all, or up to what may be encrypted ahead; BlockingIOError if nothing."""
        self.flush()
        if self.has_unsent:
            raise BlockingIOError("the socket is full")
        taken, view = 0, memoryview(data)
        while taken < len(view) and taken < _AHEAD_BYTES_MAX:
            taken += self._tls.write(view[taken : taken + _AHEAD_BYTES_MAX])
        self.flush()
        return taken

    def sendmsg(
        self, buffers: Sequence[Buffer], ancillary: Sequence[object] = (), flags: int = 0
    ) -> int:
        return self.send(b"".join(buffers))

    def flush(self) -> None:
        """Gives the socket what it takes. Raises OSError if it is gone."""
        while self.has_unsent:
            if not self._cipher:
                self._cipher = memoryview(self._out.read())
            try:
                sent = self._sock.send(self._cipher)
            except BlockingIOError:
                return
            self._cipher = self._cipher[sent:]

    def shutdown(self, how: int) -> None:
        self._sock.shutdown(how)

    def close(self) -> None:
        self._sock.close()
