"""Who this client is, by SASL: PLAIN (RFC 4616) and SCRAM (RFC 5802, 7677), without the wire.

Owns one conversation: `first()` opens it, `reply(challenge)` goes on, `is_done` tells that the
broker has proved itself where the mechanism asks for that. Never logs a secret. What always holds:
with SCRAM the password does not leave this machine, and a broker that does not know it either is
refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import unicodedata
from typing import Protocol

from ottla.base.errors import check
from ottla.client.clock import nonce
from ottla.client.errors import AuthenticationError
from ottla.protocol.error_codes import SASL_AUTHENTICATION_FAILED

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NO_CHANNEL_BINDING = b"n,,"
# Kafka's own bounds begin here; the end keeps a broker from making a client count for minutes.
_ITERATIONS_MIN = 4_096
_ITERATIONS_MAX = 1_000_000


class Conversation(Protocol):
    mechanism: str
    is_done: bool

    def first(self) -> bytes: ...

    def reply(self, challenge: bytes) -> bytes: ...


def conversation(mechanism: str, username: str, password: str) -> Conversation:
    if mechanism == "PLAIN":
        return Plain(username, password)
    return Scram(mechanism, username, password, nonce())


class Plain:
    def __init__(self, username: str, password: str) -> None:
        self.mechanism = "PLAIN"
        self._message = f"\0{username}\0{password}".encode()
        self.is_done = False

    def first(self) -> bytes:
        return self._message

    def reply(self, challenge: bytes) -> bytes:
        self.is_done = True
        return b""


class Scram:
    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self.mechanism = mechanism
        self._hash = _HASHES[mechanism]
        self._nonce = nonce
        self._password = unicodedata.normalize("NFKC", password).encode()
        name = unicodedata.normalize("NFKC", username).replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}".encode()
        self._server_signature: bytes | None = None
        self.is_done = False

    def first(self) -> bytes:
        return _NO_CHANNEL_BINDING + self._bare

    def reply(self, challenge: bytes) -> bytes:
        check(not self.is_done, "a conversation that is over")
        fields = _fields(challenge)
        if "e" in fields:
            raise _refused(f"the broker says {fields['e']}")
        if self._server_signature is None:
            return self._proof(challenge, fields)
        if not hmac.compare_digest(_decoded(fields.get("v", "")), self._server_signature):
            raise _refused("the broker does not know the password: it may not be who it says")
        self.is_done = True
        return b""

    def _proof(self, challenge: bytes, fields: dict[str, str]) -> bytes:
        nonce, salt, count = fields.get("r", ""), _decoded(fields.get("s", "")), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not salt:
            raise _refused("the broker's challenge does not fit")
        if not (count.isdigit() and _ITERATIONS_MIN <= int(count) <= _ITERATIONS_MAX):
            raise _refused(f"the broker asks for {count[:20]} iterations")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, int(count))
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        without_proof = f"c={base64.b64encode(_NO_CHANNEL_BINDING).decode()},r={nonce}".encode()
        message = b",".join((self._bare, challenge, without_proof))
        signature = hmac.digest(stored_key, message, self._hash)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._server_signature = hmac.digest(server_key, message, self._hash)
        return without_proof + b",p=" + base64.b64encode(proof)


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError as cause:
        raise _refused("the broker's challenge is no text") from cause
    return {part[:1]: part[2:] for part in parts if part[1:2] == "="}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as cause:
        raise _refused("the broker's challenge is no base64") from cause


def _refused(why: str) -> AuthenticationError:
    return AuthenticationError(SASL_AUTHENTICATION_FAILED, "SASL", why)
