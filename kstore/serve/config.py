"""ServerConfig: what a server accepts and how much, by the names of a broker's settings where it has them."""

from __future__ import annotations

from dataclasses import dataclass, field

from kstore.config import MAX_TRANSACTION_TIMEOUT_MS, MIB
from kstore.coordinator.group.settings import ConsumerGroupSettings, GroupSettings
from kstore.env import StrPath
from kstore.errors import SecurityError
from kstore.types import Ack

METADATA_VERSION, GROUP_VERSION = 27, 1
_TRANSACTION_VERSIONS = (0, 1, 2)
_ACKS = ("written", "flushed")


# In the order in which clients are told of them.
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_CLIENT_CERTIFICATES = ("none", "requested", "required")


@dataclass(frozen=True, kw_only=True)
class SecurityConfig:
    """Who may be a client of a server, and what is done to know it.

    Args: certificate: of the server, as a PEM file with the chain, which switches TLS on; key: its private key, None if
        it is in the same file; key_password: of the key. client_ca: PEM file of those who sign client certificates;
        client_certificates: "none", "requested" or "required" (Kafka: ssl.client.auth). users: the file of
        `kstore serve-users`, which switches SASL on; sasl_mechanisms: by which clients authenticate
        (sasl.enabled.mechanisms), () for rules of client certificates alone. insecure: listen beyond loopback all the
        same where clients do not say who they are, or say their passwords unencrypted.
    Raises: SecurityError where these contradict each other.
    """

    certificate: StrPath | None = None
    key: StrPath | None = None
    key_password: str | None = field(default=None, repr=False)
    client_ca: StrPath | None = None
    client_certificates: str = "none"
    users: StrPath | None = None
    sasl_mechanisms: tuple[str, ...] = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    insecure: bool = False

    def __post_init__(self) -> None:
        unknown = sorted({*self.sasl_mechanisms} - {*SASL_MECHANISMS})
        if unknown:
            raise SecurityError(f"sasl_mechanisms must be of {', '.join(SASL_MECHANISMS)}, found {', '.join(unknown)}")
        if self.client_certificates not in _CLIENT_CERTIFICATES:
            known = ", ".join(_CLIENT_CERTIFICATES)
            raise SecurityError(f"client_certificates must be one of {known}, found {self.client_certificates!r}")
        if self.certificate is None and (self.key, self.client_ca, self.client_certificates) != (None, None, "none"):
            raise SecurityError("key, client_ca and client_certificates need certificate")
        if (self.client_ca is None) != (self.client_certificates == "none"):
            raise SecurityError("client_ca and client_certificates need each other")

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms of SASL that are in force, none without users."""
        return () if self.users is None else tuple(one for one in SASL_MECHANISMS if one in self.sasl_mechanisms)


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """What one client, and all together, may cost a server.

    Args: most_connections: at a time (Kafka: max.connections), None for three eighths of the
        files that the process may open; most_per_address: of them, from one address (max.connections.per.ip); idle_ms:
        how long a connection may be silent (connections.max.idle.ms); handshake_ms: how long TLS and authentication may
        take;
        frame_ms: how long an unfinished request may not grow, and how long it may take at all while the memory for
        requests is spent; unread_ms: how long a client may read nothing of its answers; failure_delay_ms: until the
        answer to a wrong password (connection.failed.authentication.delay.ms).
    """

    most_connections: int | None = None
    most_per_address: int = 2**31 - 1
    idle_ms: int = 600_000
    handshake_ms: int = 10_000
    frame_ms: int = 10_000
    unread_ms: int = 30_000
    failure_delay_ms: int = 100


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """The settings of a server.

    Args: host, port: where it listens, port 0 for a free one; advertised_host, advertised_port: where clients are told
        to connect, None for where they are connected. ack_of_all: what acks=all, commits in transactions and their ends
        wait for: "written" as a broker does, or "flushed". creates_topics: whether a client that asks for a topic makes
        it (Kafka: auto.create.topics.enable), with `partitions` (num.partitions). changes_topics_of_clusters: whether
        topics of a root that belongs to a cluster are created and deleted too; a broker does not know these, and sets
        them aside. cleans: whether retention and compaction delete records, None for only in a root that kstore created
        (log.cleaner.enable, and log.retention.ms of -1). most_request_bytes: socket.request.max.bytes; most_held_bytes:
        of the requests of all connections (queued.max.request.bytes); most_fetch_bytes: fetch.max.bytes;
        transaction_version: the feature transaction.version, 2 for transactions of KIP-890, 0 for clients to use those
        before it; transactional_id_expiration_ms: after which an unused transactional id is forgotten
        (transactional.id.expiration.ms); max_transaction_timeout_ms: the longest that a producer may ask for
        (transaction.max.timeout.ms); groups: those of groups; consumer_groups: those of groups of KIP-848
        (group.consumer.*); security: whom it serves; limits: of connections.
    Raises: ValueError for another transaction_version or ack_of_all, and for a longest transaction below 1 ms.
    """

    host: str = "127.0.0.1"
    port: int = 9092
    advertised_host: str | None = None
    advertised_port: int | None = None
    ack_of_all: Ack = "written"
    creates_topics: bool = True
    partitions: int = 1
    changes_topics_of_clusters: bool = False
    cleans: bool | None = None
    most_request_bytes: int = 100 * MIB
    most_held_bytes: int = 256 * MIB
    most_fetch_bytes: int = 55 * MIB
    transaction_version: int = 2
    transactional_id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS
    groups: GroupSettings = field(default_factory=GroupSettings)
    consumer_groups: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)

    def __post_init__(self) -> None:
        if self.transaction_version not in _TRANSACTION_VERSIONS:
            raise ValueError(f"transaction_version must be 0, 1 or 2, got {self.transaction_version!r}")
        if self.ack_of_all not in _ACKS:
            raise ValueError(f"ack_of_all must be {' or '.join(_ACKS)}, got {self.ack_of_all!r}")
        if self.max_transaction_timeout_ms < 1:
            raise ValueError(f"max_transaction_timeout_ms must be 1 at least, got {self.max_transaction_timeout_ms}")
