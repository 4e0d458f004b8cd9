"""Session: who the client of a connection is, and by which requests it says so (KIP-43, KIP-152)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from kstore.config import KIB
from kstore.errors import AuthenticationError
from kstore.serve.security.logins import PLAIN, Logins
from kstore.serve.security.rules import ANONYMOUS, NOTHING, Access
from kstore.serve.security.scram import ScramExchange
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import SaslAuthenticateResponse, SaslHandshakeResponse

if TYPE_CHECKING:
    from kstore.wire.messages import SaslAuthenticateRequest, SaslHandshakeRequest

_Answer = TypeVar("_Answer", SaslHandshakeResponse, SaslAuthenticateResponse)
# What may be asked by who has not said who it is: ApiVersions, SaslHandshake, SaslAuthenticate.
_OPEN_APIS = (b"\x00\x11", b"\x00\x12", b"\x00\x24")
MOST_UNAUTHENTICATED_BYTES = 64 * KIB
_logger = logging.getLogger("kstore.serve")


class Session:
    """Who the client of one connection is.

    Args: principal: who it is by its certificate, None for one that has none.
    Attributes: is_over: an authentication failed; when that is answered, the connection is closed.
    A client that authenticates again goes on as the same principal (KIP-368); its session has no end of its own.
    Threads: the loop's.
    """

    def __init__(self, logins: Logins, principal: str | None = None) -> None:
        self._logins = logins
        self._principal = None if logins.mechanisms else principal or ANONYMOUS
        self._mechanism: str | None = None
        self._exchange: ScramExchange | None = None
        self.is_over = False

    @property
    def is_authenticated(self) -> bool:
        return self._principal is not None

    @property
    def access(self) -> Access:
        """What the client may do now."""
        return NOTHING if self._principal is None else self._logins.access_of(self._principal)

    @property
    def rights(self) -> int:
        """Another number once anybody's rights have changed."""
        return self._logins.rights

    def check(self, frame: bytearray) -> None:
        """Raise AuthenticationError for a request that may not come before the client has said who it is.

        Nothing else of it is read then.
        """
        if self._principal is None and frame[:2] not in _OPEN_APIS:
            raise AuthenticationError(f"a request of api 0x{frame[:2].hex()} before authentication")

    def handshake(
        self, request: SaslHandshakeRequest, *, version: int
    ) -> SaslHandshakeResponse | Awaitable[SaslHandshakeResponse]:
        """Choose a mechanism.

        Raises: AuthenticationError in version 0, after which tokens would come without frames.
        """
        if version == 0:
            raise AuthenticationError("SaslHandshake of version 0, with tokens without frames")
        known = list(self._logins.mechanisms)
        if not known:
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
        if request.mechanism not in known:
            refused = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=known)
            return self._refused(refused, f"the mechanism {request.mechanism[:100]!r} is not enabled")
        self._mechanism = request.mechanism
        self._exchange = None
        if request.mechanism != PLAIN:
            self._exchange = ScramExchange(request.mechanism, self._logins.credential)
        return SaslHandshakeResponse(mechanisms=known)

    def authenticate(
        self, request: SaslAuthenticateRequest
    ) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
        """Answer one word of an exchange."""
        if self._mechanism is None:
            refused = SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate comes after SaslHandshake.",
                auth_bytes=b"",
            )
            return refused if self.is_authenticated else self._refused(refused, "SaslAuthenticate before SaslHandshake")
        if self._exchange is None:
            return self._plain(bytes(request.auth_bytes))
        try:
            said = self._exchange.step(bytes(request.auth_bytes))
            if self._exchange.user is not None:
                self._become(self._exchange.user)
        except AuthenticationError as error:
            return self._failed(error)
        return SaslAuthenticateResponse(auth_bytes=said)

    async def _plain(self, message: bytes) -> SaslAuthenticateResponse:
        """RFC 4616 (Kafka: PlainSaslServer)."""
        try:
            user, password = plain_parts(message)
            if not await self._logins.check_password(user, password):
                raise AuthenticationError(f"PLAIN: {user!r} has another password, or is unknown")
            self._become(user)
        except AuthenticationError as error:
            return await self._failed(error)
        return SaslAuthenticateResponse(auth_bytes=b"")

    def _become(self, user: str) -> None:
        if self._principal not in (None, user):
            raise AuthenticationError(f"{self._principal!r} authenticates again as {user!r}")
        self._principal = user
        self._mechanism = self._exchange = None

    def _failed(self, error: AuthenticationError) -> Awaitable[SaslAuthenticateResponse]:
        """Return an answer that says no more than that it failed."""
        text = f"Authentication failed: invalid credentials with SASL mechanism {self._mechanism}"
        refused = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text, auth_bytes=b""
        )
        return self._refused(refused, str(error))

    async def _refused(self, answer: _Answer, reason: str) -> _Answer:
        _logger.warning("authentication failed: %s", reason)
        self._mechanism = self._exchange = None
        await asyncio.sleep(self._logins.failure_delay_s)
        self.is_over = True
        return answer


def plain_parts(message: bytes) -> tuple[str, str]:
    """Return the user and the password of a message of PLAIN.  Raises: AuthenticationError."""
    try:
        authorized, user, password = message.decode().split("\0")
    except ValueError as error:
        raise AuthenticationError("PLAIN: the message is not three texts of UTF-8") from error
    if not user or not password:
        raise AuthenticationError("PLAIN: no user, or no password")
    if authorized not in ("", user):
        raise AuthenticationError(f"PLAIN: {user!r} asks to be another user")
    return user, password
