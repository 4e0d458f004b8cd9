"""Decoding of the keys and values of records, with functions or with built-in deserializers by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kstore._core import Record, with_content
from kstore.errors import RecordDeserializationError
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.serializers import Deserializer


def deserializer_of(given: Deserializer | str | None) -> Deserializer | None:
    """Return a callable as it is, or the built-in deserializer of that name.

    Raises: ValueError for an unknown name; TypeError for anything that is not callable.
    """
    if isinstance(given, str):
        from kstore.serializers import deserializer

        return deserializer(given)
    if given is not None and not callable(given):
        raise TypeError(f"a deserializer must be a name or a callable, got {given!r}")
    return given


def decoded_records(
    records: Iterable[Record],
    *,
    topic_partition: TopicPartition,
    key_deserializer: Deserializer | None,
    value_deserializer: Deserializer | None,
) -> Iterator[Record]:
    """Yield the records with keys and values decoded; null stays None and is not passed to a deserializer.

    Raises: RecordDeserializationError for any exception of a deserializer, which is its cause.
    """
    for record in records:
        key, value = record.key, record.value
        if key is not None and key_deserializer is not None:
            key = decode(key, key_deserializer, record, topic_partition=topic_partition, origin="key")
        if value is not None and value_deserializer is not None:
            value = decode(value, value_deserializer, record, topic_partition=topic_partition, origin="value")
        yield with_content(record, key, value)


def decode(
    data: bytes, deserialize: Deserializer, record: Record, *, topic_partition: TopicPartition, origin: str
) -> Any:
    """Return deserialize(data); raises as decoded_records."""
    try:
        return deserialize(data)
    except Exception as error:
        topic, partition = topic_partition
        raise RecordDeserializationError(
            f"cannot decode the {origin} of the record at offset {record.offset} of {topic_partition}: "
            f"{type(error).__name__}: {error}",
            topic=topic,
            partition=partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            origin=origin,
        ) from error
