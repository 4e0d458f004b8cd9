"""Numbered records for consumers, and the values that come back."""

from __future__ import annotations

from collections.abc import Iterable

from kstore import Record, TopicPartition, WritableStore

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def fill(store: WritableStore, *, to: TopicPartition = T0, count: int = 10, first: int = 0) -> None:
    """Append records whose values are numbers from `first` on, each in a batch of its own."""
    for number in range(first, first + count):
        store.log(*to).append(Record(timestamp_ms=1000 + number, key=b"%d" % to.partition, value=b"%d" % number))


def values(records: Iterable[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def numbers(*ranges: tuple[int, int]) -> list[bytes]:
    """Return the values of the numbers in each [first, end)."""
    return [b"%d" % number for bounds in ranges for number in range(*bounds)]
