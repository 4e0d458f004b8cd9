"""CoordinatorPlaces: which partition of an internal topic has the records of a group or a transactional id.

That is the hash of the name by the number of partitions that the topic has in its cluster. A root need not have all of
them: a cluster of several brokers, or a broker with several log.dirs, spreads them, and nothing in a root tells their
number. The names that are in its partitions do.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kstore.coordinator.store import ReadableStore
from kstore.errors import KStoreError, UnknownTopicOrPartitionError
from kstore.record.schemas.topics import NAMED_TYPES, coordinator_partition, is_of_type, name_of_key
from kstore.types import TopicPartition

_logger = logging.getLogger("kstore.producer")


class _Known(NamedTuple):
    """What the partitions of a topic tell: how many there are in all, and in which of them each name was found."""

    numbers: tuple[int, ...] = ()
    total: int = 0
    homes: Mapping[bytes, set[int]] = {}

    def fit(self, count: int) -> bool:
        """Whether all names are where they would be among so many partitions."""
        return all(_number_of(name, count) in places for name, places in self.homes.items())


class CoordinatorPlaces:
    """The places of names in one internal topic of a store.

    A name is where its records are. Of other names, the number of partitions is the default if that is how many the
    store has, or if it has fewer and the names that are there are placed by it; else as many as the store has, if they
    are numbered without a gap.
    Args: default_count: how many partitions the topic has unless something tells otherwise.
    Threads: safe.
    Cost: reads all of the topic once, unless the store has the default number of partitions.
    """

    def __init__(self, store: ReadableStore, topic: str, *, default_count: int) -> None:
        self._store = store
        self._topic = topic
        self._default_count = default_count
        self._known = _Known()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The partitions of the topic that the store has."""
        return tuple(number for topic, number in self._store.partitions if topic == self._topic)

    def place_of(self, name: str) -> TopicPartition:
        """Return the partition of a name.  Requires: the store has some of the topic.

        Raises: UnknownTopicOrPartitionError if the store does not have the partition, or the number of all is unknown.
        """
        numbers = self.numbers
        known = self._known
        if numbers != known.numbers:
            known = self._known = self._look(numbers)
        encoded = name.encode("utf-8", "surrogateescape")
        homes, number = known.homes.get(encoded), _number_of(encoded, known.total)
        if homes is not None and number not in homes:
            number = max(homes)
        if number not in numbers:
            raise UnknownTopicOrPartitionError(
                f"{name!r} belongs in partition {number} of the {known.total} of {self._topic}; the store has only "
                f"{len(numbers)} of them, and not that"
            )
        return TopicPartition(self._topic, number)

    def _look(self, numbers: tuple[int, ...]) -> _Known:
        default, count = self._default_count, numbers[-1] + 1
        if numbers == tuple(range(default)):
            return _Known(numbers, default)
        homes: dict[bytes, set[int]] = {}
        for name, number in self._names(numbers):
            homes.setdefault(name, set()).add(number)
        found = _Known(numbers, count, homes)
        may_be_default = count < default and found.fit(default)
        if len(numbers) == count:
            return found._replace(total=default) if may_be_default and not found.fit(count) else found
        if not may_be_default:
            raise UnknownTopicOrPartitionError(
                f"expected all partitions of {self._topic}, or some of {default}, to tell which of them a name belongs "
                f"in; the store has {len(numbers)} up to number {numbers[-1]}"
            )
        return found._replace(total=default)

    def _names(self, numbers: Iterable[int]) -> Iterator[tuple[bytes, int]]:
        for number in numbers:
            try:
                for record in self._store.log(self._topic, number).read():
                    key = record.key
                    if key is not None and is_of_type(key, NAMED_TYPES) and (name := name_of_key(key)):
                        yield name, number
            except KStoreError as error:
                _logger.warning("names in %s-%d were not all found: %s", self._topic, number, error)


def _number_of(name: bytes, count: int) -> int:
    return coordinator_partition(name.decode("utf-8", "surrogateescape"), partition_count=count)
