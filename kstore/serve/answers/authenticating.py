"""SaslHandshake and SaslAuthenticate: by which a client says who it is."""

from __future__ import annotations

from collections.abc import Awaitable

from kstore.serve.broker import Broker
from kstore.serve.calls import Call
from kstore.wire.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


def sasl_handshake(
    _: Broker, call: Call[SaslHandshakeRequest]
) -> SaslHandshakeResponse | Awaitable[SaslHandshakeResponse]:
    """Choose the mechanism of the exchange that follows."""
    return call.session.handshake(call.body, version=call.version)


def sasl_authenticate(
    _: Broker, call: Call[SaslAuthenticateRequest]
) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
    """Answer one word of the exchange."""
    return call.session.authenticate(call.body)
