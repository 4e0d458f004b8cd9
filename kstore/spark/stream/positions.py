"""The position of a stream: an offset for each partition, and its form in Spark's checkpoint, as Kafka's source has it.

    {"topic": {"0": 23, "1": 7}}

The offsets of the first micro-batch also say where the stream started, under a key that no topic can have, since Spark
does not keep that: a query that is started again before its first micro-batch was committed starts there. If keys or
values have a format, all offsets say by the schemas of which ids they are read, or by which schema if it was inferred.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from kstore.config import MAX_INT32, MAX_INT64
from kstore.types import TopicPartition

START_KEY = "kstore:start"
SCHEMAS_KEY = "kstore:schemas"
# Of the text of a schema, which is checked where it is used: that of a type of Arrow, or of Avro, as a union has.
_SCHEMA_PREFIXES = ("arrow:", "{", "[", '"')

Offsets: TypeAlias = dict[TopicPartition, int]


class StreamPosition(NamedTuple):
    """A position of a stream.

    offsets: the next offset of each partition; start: where the stream started, in its first micro-batch; schema_ids:
    of the schemas that keys and values are read as, or the text of one that was inferred or is a union; None if
    they have no format.
    """

    offsets: Offsets
    start: Offsets | None = None
    schema_ids: dict[str, int | str] | None = None

    @property
    def is_start(self) -> bool:
        """Whether nothing was read before this position."""
        return self.start == self.offsets

    def to_json(self) -> dict[str, Any]:
        """Return the position as Spark's checkpoint stores it; equal positions have equal texts."""
        fields: dict[str, Any] = _by_topic(self.offsets)
        if self.start is not None:
            fields[START_KEY] = _by_topic(self.start)
        if self.schema_ids is not None:
            fields[SCHEMAS_KEY] = dict(sorted(self.schema_ids.items()))
        return fields

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> StreamPosition:
        """Return the position that a checkpoint of Spark stores.

        Raises: ValueError if it is of another form, as in the checkpoint of another source.
        """
        topics = dict(fields)
        start, ids = topics.pop(START_KEY, None), topics.pop(SCHEMAS_KEY, None)
        return cls(
            _offsets(topics, fields),
            None if start is None else _offsets(start, fields),
            None if ids is None else _schema_ids(ids, fields),
        )


def _by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def _offsets(topics: Any, whole: Mapping[str, Any]) -> Offsets:
    try:
        return {
            TopicPartition(topic, _checked(number)): _checked(offset, most=MAX_INT64)
            for topic, by_number in topics.items()
            for number, offset in by_number.items()
        }
    except (AttributeError, ValueError) as error:
        raise _unexpected(whole) from error


def _schema_ids(ids: Any, whole: Mapping[str, Any]) -> dict[str, int | str]:
    try:
        return {
            origin: each
            if isinstance(each, str) and each.startswith(_SCHEMA_PREFIXES)
            else _checked(each, most=MAX_INT64)
            for origin, each in ids.items()
        }
    except (AttributeError, ValueError) as error:
        raise _unexpected(whole) from error


def _unexpected(whole: Mapping[str, Any]) -> ValueError:
    expected = '{"topicA":{"0":23,"1":7},"topicB":{"0":4}}'
    return ValueError(
        f"offsets in the checkpoint: expected the form of {expected}, found {whole}; "
        "was the checkpoint made with another source?"
    )


def _checked(value: object, *, most: int = MAX_INT32) -> int:
    """Return a number, or the number in a text of digits."""
    if isinstance(value, str) and re.fullmatch("[0-9]{1,10}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(value)
    return value


def named(partitions: Iterable[TopicPartition]) -> str:
    """Return the sorted partitions as text for messages."""
    return ", ".join(map(str, sorted(partitions)))
