"""Door: whether a server may listen where it is told to, how many it takes in, and as whom."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter

from kstore.env import writers_limit
from kstore.errors import SecurityError
from kstore.serve.config import ConnectionLimits, SecurityConfig, ServerConfig
from kstore.serve.security.logins import PLAIN, Logins
from kstore.serve.security.sasl import Session
from kstore.serve.security.tls import server_context, subject_name


def check_listening(config: ServerConfig) -> None:
    """Raise SecurityError for a server that others could reach, and that would not know them."""
    security = config.security
    if security.insecure or is_loopback(config.host):
        return
    has_certificates = security.client_certificates == "required"
    if not security.mechanisms and not has_certificates:
        raise SecurityError(
            f"{config.host} can be reached from other machines, and clients would not have to say who they are: give a "
            "file of users (kstore serve-users), or require client certificates; or listen on 127.0.0.1; or say that "
            "it is to be insecure (--insecure)"
        )
    if PLAIN in security.mechanisms and security.certificate is None:
        raise SecurityError(
            f"{config.host} can be reached from other machines, and PLAIN would send passwords there unencrypted: give "
            "a certificate, or leave PLAIN out of the mechanisms; or say that it is to be insecure (--insecure)"
        )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by an address or a name that no other one can have."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Door:
    """How clients come in: so many of them, by TLS or without, and as whom.

    One too many is closed at once, as with Kafka's max.connections.per.ip; a broker lets those wait that exceed
    max.connections. By default half of the files that the process may open are left to the store, an eighth to the
    rest.
    Attributes: is_encrypted.
    Threads: the loop's.
    Raises: SecurityError, StorageError for files that cannot be used.
    """

    def __init__(self, security: SecurityConfig, limits: ConnectionLimits) -> None:
        self._logins = Logins(security, failure_delay_s=limits.failure_delay_ms / 1000)
        self._context = None if security.certificate is None else server_context(security)
        self._handshake_s = limits.handshake_ms / 1000
        self._most = writers_limit() * 3 // 4 if limits.most_connections is None else limits.most_connections
        self._most_per_address = limits.most_per_address
        self._count = 0
        self._of_address: Counter[str] = Counter()

    @property
    def is_encrypted(self) -> bool:
        return self._context is not None

    def enter(self, address: str) -> str | None:
        """Count a connection; return why it may not stay, None if it may."""
        self._count += 1
        self._of_address[address] += 1
        if self._count > self._most:
            return f"there are {self._most} connections"
        if self._of_address[address] > self._most_per_address:
            return f"there are {self._most_per_address} connections from {address}"
        return None

    def leave(self, address: str) -> None:
        """Say that a connection that entered is lost."""
        self._count -= 1
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]

    async def secured(self, transport: asyncio.Transport, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
        """Return the transport through which a client is reached by TLS.  Raises: OSError if the handshake fails."""
        if self._context is None:
            return transport
        secured = await asyncio.get_running_loop().start_tls(
            transport, protocol, self._context, server_side=True, ssl_handshake_timeout=self._handshake_s
        )
        if secured is None or transport.is_closing():
            raise ConnectionResetError("the client left")
        return secured

    def session(self, transport: asyncio.Transport) -> Session:
        """Return the session of a client."""
        return Session(self._logins, subject_name(transport.get_extra_info("peercert")))

    def refresh(self) -> None:
        """See whether the file of users has changed."""
        self._logins.refresh()
