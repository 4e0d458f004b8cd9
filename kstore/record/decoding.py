"""Decoding of the keys and values of records, with functions or with built-in decoders by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from kstore._core import Record
from kstore.errors import RecordDeserializationError
from kstore.serializers import deserializer
from kstore.types import TopicPartition

Decoder: TypeAlias = Callable[[bytes], Any]


def decoder_of(decoder: Decoder | str | None) -> Decoder | None:
    """Return a callable as it is, or the built-in decoder of that name.

    Raises: ValueError for an unknown name; TypeError for anything that is not callable.
    """
    if isinstance(decoder, str):
        return deserializer(decoder)
    if decoder is not None and not callable(decoder):
        raise TypeError(f"a decoder must be a name or a callable, got {decoder!r}")
    return decoder


def decoded_records(
    records: Iterable[Record],
    *,
    topic_partition: TopicPartition,
    key_decoder: Decoder | None,
    value_decoder: Decoder | None,
) -> Iterator[Record]:
    """Yield the records with keys and values decoded; null stays None and is not passed to a decoder.

    Raises: RecordDeserializationError for any exception of a decoder, which is its cause.
    """
    for record in records:
        key, value = record.key, record.value
        if key is not None and key_decoder is not None:
            key = decode(key, key_decoder, record, topic_partition=topic_partition, origin="key")
        if value is not None and value_decoder is not None:
            value = decode(value, value_decoder, record, topic_partition=topic_partition, origin="value")
        yield Record(
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            timestamp_type=record.timestamp_type,
            key=key,
            value=value,
            headers=record.headers,
            topic_partition=record.topic_partition,
            sequence=record.sequence,
            is_control=record.is_control,
        )


def decode(data: bytes, decoder: Decoder, record: Record, *, topic_partition: TopicPartition, origin: str) -> Any:
    """Return decoder(data); raises as decoded_records."""
    try:
        return decoder(data)
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
