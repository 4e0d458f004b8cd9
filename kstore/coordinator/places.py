"""CoordinatorPlaces: which partition of an internal topic has the records of a group or a transactional id.

That is the hash of the name modulo the number of partitions that the topic has in its cluster. A root need not have all
of them: a cluster of several brokers, or a broker with several log.dirs, spreads them. `__cluster_metadata` has their
number; in a root without it, it is inferred from the names that are in the partitions. A topic that is created in a
root which kstore made has one partition: one process writes it, and each further partition is a directory and five
syncs before the first commit returns. Brokers and kstore take the number from the topic.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kstore.config import LogConfig
from kstore.coordinator.store import CoordinatorStore, ReadableStore
from kstore.errors import KStoreError, UnknownTopicOrPartitionError
from kstore.record.schemas.topics import NAMED_TYPES, coordinator_partition, is_of_type, name_of_key
from kstore.types import TopicPartition

_logger = logging.getLogger("kstore.producer")
# Of all topics: a store may have several objects for one.
_creating = threading.Lock()
# Kafka's default of offsets.topic.num.partitions and transaction.state.log.num.partitions.
KAFKAS_PARTITION_COUNT = 50
OWN_PARTITION_COUNT = 1


class _Layout(NamedTuple):
    """The partitions of a topic: those in the store, how many its cluster has, and in which each name has records.

    other_total: how many it may have just as well, None if nothing else fits.
    """

    numbers: tuple[int, ...] = ()
    total: int = 0
    homes: Mapping[bytes, set[int]] = {}
    other_total: int | None = None

    def fits(self, count: int) -> bool:
        """Whether all names are where their hashes put them among `count` partitions."""
        return all(_number_of(name, count) in places for name, places in self.homes.items())


class CoordinatorPlaces:
    """The partition of each name (group or transactional id) in one internal topic of a store.

    A name with records stays in its partition. Another one gets its hash modulo the partition count of the topic: that
    of the cluster's metadata, if the root holds it; default_count if the store has that many, or if it has fewer and
    all known names fit that count; else the number in the store, if they are numbered without a gap. If both of the
    last two fit, only a name that both put into the same partition has a place, but in a root that kstore made: that
    has all of them.
    Args: default_count: the partition count of the topic in its cluster, unless the store proves another one.
    Threads: safe.
    Cost: reads all of the topic once, unless the store has the default number of partitions, or kstore made the root
        and the topic has one.
    """

    def __init__(self, store: ReadableStore, topic: str, *, default_count: int = KAFKAS_PARTITION_COUNT) -> None:
        self._store = store
        self._topic = topic
        self._default_count = default_count
        self._layout = _Layout()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the topic's partitions that the store has."""
        return tuple(number for topic, number in self._store.partitions if topic == self._topic)

    def place_of(self, name: str) -> TopicPartition:
        """Return the partition of a name.  Requires: the store has some of the topic.

        Raises: UnknownTopicOrPartitionError if the store does not have the partition, or the number of all is unknown.
        """
        numbers = self.numbers
        layout = self._layout
        if numbers != layout.numbers:
            layout = self._layout = self._infer(numbers)
        encoded = name.encode("utf-8", "surrogateescape")
        homes, number = layout.homes.get(encoded), _number_of(encoded, layout.total)
        if homes is not None and number not in homes:
            number = max(homes)
        elif homes is None and layout.other_total is not None and number != _number_of(encoded, layout.other_total):
            raise UnknownTopicOrPartitionError(
                f"{name!r} belongs in partition {number} if {self._topic} has {layout.total} partitions in its "
                f"cluster, and in {_number_of(encoded, layout.other_total)} if it has {layout.other_total}; the store "
                f"has {len(numbers)} of them, and does not show which it is"
            )
        if number not in numbers:
            raise UnknownTopicOrPartitionError(
                f"{name!r} belongs in partition {number} of the {layout.total} of {self._topic}; the store has only "
                f"{len(numbers)} of them, and not that"
            )
        return TopicPartition(self._topic, number)

    def _infer(self, numbers: tuple[int, ...]) -> _Layout:
        default, count = self._default_count, numbers[-1] + 1
        if numbers == tuple(range(default)):
            return _Layout(numbers, default)
        facts = self._store.cluster_facts()
        known = facts.partition_counts.get(self._topic)
        if known is not None and known >= count:
            return _Layout(numbers, known)
        if facts.is_own and count == 1:
            return _Layout(numbers, count)
        homes: dict[bytes, set[int]] = {}
        for name, number in self._names(numbers):
            homes.setdefault(name, set()).add(number)
        layout = _Layout(numbers, count, homes)
        may_be_default = count < default and layout.fits(default)
        if len(numbers) == count:
            if may_be_default and not layout.fits(count):
                return layout._replace(total=default)
            return layout._replace(other_total=default) if may_be_default and not facts.is_own else layout
        if not may_be_default:
            raise UnknownTopicOrPartitionError(
                f"expected all partitions of {self._topic}, or some of {default}, to tell which of them a name belongs "
                f"in; the store has {len(numbers)} up to number {numbers[-1]}"
            )
        return layout._replace(total=default)

    def _names(self, numbers: Iterable[int]) -> Iterator[tuple[bytes, int]]:
        for number in numbers:
            try:
                for record in self._store.log(self._topic, number).read():
                    key = record.key
                    if key is not None and is_of_type(key, NAMED_TYPES) and (name := name_of_key(key)):
                        yield name, number
            except KStoreError as error:
                _logger.warning("names in %s-%d were not all found: %s", self._topic, number, error)


class CoordinatorTopic(CoordinatorPlaces):
    """An internal topic of a store that is open for writing; it is created when a name is first placed in it.

    Args: partition_count: of the topic, if it has to be created, or the store has only some of its partitions; None for
        that of the cluster's metadata, OWN_PARTITION_COUNT in a root that kstore made, else KAFKAS_PARTITION_COUNT;
        config: of the topic, if it has to be created.
    Threads: safe.
    """

    _store: CoordinatorStore

    def __init__(
        self, store: CoordinatorStore, topic: str, *, config: LogConfig, partition_count: int | None = None
    ) -> None:
        super().__init__(store, topic, default_count=partition_count or KAFKAS_PARTITION_COUNT)
        self._config = config
        self._partition_count = partition_count

    def partition_of(self, name: str) -> TopicPartition:
        """Return the partition of a name; the topic is created if the store has none of it.

        Raises: StorageError; UnknownTopicOrPartitionError as place_of().
        """
        self.create_if_missing()
        return self.place_of(name)

    def create_if_missing(self) -> None:
        """Create the topic if the store has none of it.  Raises: StorageError."""
        # In the lock, so that no name is placed by the number of partitions of a topic that is being created.
        with _creating:
            if not self.numbers:
                self._store.create_topic(self._topic, self._count_to_create(), config=self._config)

    def _count_to_create(self) -> int:
        if self._partition_count is not None:
            return self._partition_count
        facts = self._store.cluster_facts()
        default = OWN_PARTITION_COUNT if facts.is_own else KAFKAS_PARTITION_COUNT
        return facts.partition_counts.get(self._topic, default)


def _number_of(name: bytes, count: int) -> int:
    return coordinator_partition(name.decode("utf-8", "surrogateescape"), partition_count=count)
