"""ServerConfig: what a server accepts and how much, by the names of a broker's settings where it has them."""

from __future__ import annotations

from dataclasses import dataclass, field

from kstore.config import MIB
from kstore.coordinator.group.classic import GroupSettings
from kstore.types import Ack

METADATA_VERSION, GROUP_VERSION, TRANSACTION_VERSION = 27, 1, 2


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """The settings of a server.

    Args: host, port: where it listens, port 0 for a free one; advertised_host, advertised_port: where clients are told
        to connect, None for where they are connected. ack_of_all: what acks=all and acks=1 wait for, "written" as a
        broker does. creates_topics: whether a client that asks for a topic makes it (Kafka: auto.create.topics.enable),
        with `partitions` (num.partitions). cleans: whether retention and compaction delete records, None for only in a
        root that kstore created (log.cleaner.enable, and log.retention.ms of -1). most_request_bytes: Kafka's
        socket.request.max.bytes; most_held_bytes: of the requests of all connections (queued.max.request.bytes);
        most_fetch_bytes: fetch.max.bytes; groups: those of groups.
    """

    host: str = "127.0.0.1"
    port: int = 9092
    advertised_host: str | None = None
    advertised_port: int | None = None
    ack_of_all: Ack = "written"
    creates_topics: bool = True
    partitions: int = 1
    cleans: bool | None = None
    most_request_bytes: int = 100 * MIB
    most_held_bytes: int = 256 * MIB
    most_fetch_bytes: int = 55 * MIB
    groups: GroupSettings = field(default_factory=GroupSettings)
