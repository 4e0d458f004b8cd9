"""SCRAM: credentials that are kept in place of passwords, and the exchange by which a client proves that it has one.

Source: RFC 5802, RFC 7677; Kafka's ScramFormatter, ScramMessages, ScramSaslServer. As in Kafka, names and passwords are
their UTF-8 bytes, without SASLprep, and there is no channel binding.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import NamedTuple

from kstore.env.process import random_bytes
from kstore.errors import AuthenticationError

# The mechanisms, and how hashlib names their hash.
MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS = 4096
DEFAULT_ITERATIONS = 10_000
# What a client computes at a login, and a server where passwords come plain.
MOST_ITERATIONS = 1_000_000
SALT_BYTES = 16
_NONCE_BYTES = 24
_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_FIRST = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<authorized>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[A-Za-z]=[^,\0]+)*))"
)
_FINAL = re.compile(
    r"(?P<unproved>c=(?P<header>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]=[^,\0]+)*)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class ScramCredential(NamedTuple):
    """What is kept of a password (Kafka: ScramCredential): it proves that a client has it, and is not it."""

    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def is_of(self, password: str) -> bool:
        """Whether a password is the one that this was made of.  Cost: milliseconds, which the GIL is released for."""
        made = credential_of(password, self.mechanism, salt=self.salt, iterations=self.iterations)
        return hmac.compare_digest(made.stored_key, self.stored_key)


def credential_of(
    password: str, mechanism: str, *, salt: bytes | None = None, iterations: int = DEFAULT_ITERATIONS
) -> ScramCredential:
    """Return the credential of a password, with a new salt if none is given."""
    salt = random_bytes(SALT_BYTES) if salt is None else salt
    salted = hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, iterations)
    stored_key = hashlib.new(MECHANISMS[mechanism], _mac(mechanism, salted, b"Client Key")).digest()
    return ScramCredential(mechanism, salt, iterations, stored_key, _mac(mechanism, salted, b"Server Key"))


def credential_of_nobody(user: str, mechanism: str, *, key: bytes, iterations: int) -> ScramCredential:
    """Return a credential that no password has, always the same one, so that an unknown user looks like a known one."""
    salt, stored_key, server_key = (
        _mac(mechanism, key, f"{purpose} {mechanism} {user}".encode()) for purpose in ("salt", "stored", "server")
    )
    return ScramCredential(mechanism, salt[:SALT_BYTES], iterations, stored_key, server_key)


def _mac(mechanism: str, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, MECHANISMS[mechanism])


class ScramExchange:
    """The server's side of one login (Kafka: ScramSaslServer).

    Args: credential: returns that of a user for a mechanism; of an unknown one, that of nobody.
    Attributes: user: whom the client proved to be, None before that.
    """

    def __init__(self, mechanism: str, credential: Callable[[str, str], ScramCredential], *, nonce: str = "") -> None:
        self._mechanism = mechanism
        self._credential_of = credential
        self._own_nonce = nonce or base64.b64encode(random_bytes(_NONCE_BYTES)).decode()
        self._claimed: tuple[str, ScramCredential] | None = None
        self.user: str | None = None

    def step(self, message: bytes) -> bytes:
        """Return the server's word to a client's.  Raises: AuthenticationError, after which there is no next one."""
        try:
            text = message.decode()
        except UnicodeDecodeError as error:
            raise AuthenticationError(f"{self._mechanism}: a message is not UTF-8") from error
        return self._challenge(text) if self._claimed is None else self._verdict(text, *self._claimed)

    def _challenge(self, text: str) -> bytes:
        first = _FIRST.fullmatch(text)
        if first is None:
            raise AuthenticationError(f"{self._mechanism}: the first message is malformed, or binds to a channel")
        user = _unescaped(first["name"])
        if first["authorized"] is not None and _unescaped(first["authorized"]) != user:
            raise AuthenticationError(f"{self._mechanism}: {user!r} asks to be another user")
        if ",m=" in first["extensions"] or ",tokenauth=" in first["extensions"]:
            raise AuthenticationError(f"{self._mechanism}: extensions are not served")
        credential = self._credential_of(user, self._mechanism)
        self._header = base64.b64encode(first["header"].encode()).decode()
        self._nonce = first["nonce"] + self._own_nonce
        salt = base64.b64encode(credential.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._said = f"{first['bare']},{challenge}"
        self._claimed = user, credential
        return challenge.encode()

    def _verdict(self, text: str, user: str, credential: ScramCredential) -> bytes:
        final = _FINAL.fullmatch(text)
        if final is None or self.user is not None:
            raise AuthenticationError(f"{self._mechanism}: the final message is malformed, or comes twice")
        if final["header"] != self._header or not hmac.compare_digest(final["nonce"], self._nonce):
            raise AuthenticationError(f"{self._mechanism}: the final message is that of another exchange")
        said = f"{self._said},{final['unproved']}".encode()
        signature = _mac(self._mechanism, credential.stored_key, said)
        proof = _decoded(final["proof"])
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=False))
        stored_key = hashlib.new(MECHANISMS[self._mechanism], client_key).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key) or len(proof) != len(signature):
            raise AuthenticationError(f"{self._mechanism}: {user!r} has another password, or is unknown")
        self.user = user
        return b"v=" + base64.b64encode(_mac(self._mechanism, credential.server_key, said))


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
