"""TopicsImage: the topics of a store as a coordinator of groups needs them, and Kafka's hash of those of a group."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from kstore.coordinator.group.consumer.hashing import xxh3_64
from kstore.wire.protocol import ZERO_UUID

_HASH_VERSION = 0


class Topic(NamedTuple):
    """A topic's id and how many partitions it has."""

    topic_id: UUID
    partitions: int


class TopicsImage:
    """The topics that there are at one moment, but for those without an id, which members cannot be given.

    Attributes: topics (by name), names (by id).
    Source: Kafka TopicsImage; Utils.computeTopicHash, computeGroupHash of the group coordinator.
    """

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self.topics = {name: topic for name, topic in topics.items() if topic.topic_id != ZERO_UUID}
        self.names = {topic.topic_id: name for name, topic in self.topics.items()}
        self._hashes: dict[str, int] = {}

    def hash_of(self, names: Iterable[str]) -> int:
        """Return Kafka's hash of topics: of their ids, names and numbers of partitions; 0 if there is none of them."""
        found = sorted(name for name in names if name in self.topics)
        return xxh3_64(struct.pack(f"<{len(found)}q", *map(self._hash, found))) if found else 0

    def _hash(self, name: str) -> int:
        """Return the hash of one topic, whose replicas have no racks."""
        known = self._hashes.get(name)
        if known is None:
            topic_id, count = self.topics[name]
            most, least = struct.unpack(">qq", topic_id.bytes)
            head = struct.pack("<Bqq", _HASH_VERSION, most, least) + _text(name)
            known = xxh3_64(head + struct.pack(f"<i{count}i", count, *range(count)))
            self._hashes[name] = known
        return known


def _text(text: str) -> bytes:
    """Return a string as it is hashed: its UTF-16 code units, and how many they are."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units + struct.pack("<i", len(units) // 2)
