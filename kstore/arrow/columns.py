"""The columns that a scan can have, and their Arrow types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

import pyarrow as pa

from kstore.naming import did_you_mean

Binary = Literal["copy", "view"]

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS = pa.list_(pa.field("element", _HEADER))
TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": _HEADERS,
    "magic": pa.int8(),
    "codec": pa.string(),
    "leaderEpoch": pa.int32(),
    "producerId": pa.int64(),
    "producerEpoch": pa.int16(),
    "sequence": pa.int32(),
    "isTransactional": pa.bool_(),
    "isControl": pa.bool_(),
    "position": pa.int64(),
}
DEFAULT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def schema(columns: Sequence[str] | None = None, *, binary: Binary = "copy", strings: Iterable[str] = ()) -> pa.Schema:
    """Return the Arrow schema of these columns, in this order. All fields are nullable.

    Args: columns: None = key, value, topic, partition, offset, timestamp, timestampType, headers; also available are
        magic, codec, leaderEpoch, producerId, producerEpoch, sequence, isTransactional, isControl, and position (byte
        position of the batch in its file). strings: those of key and value that are string columns, with U+FFFD for
        bytes that are not UTF-8. binary: for the other key and value columns, "copy" = binary, "view" = binary_view
        over the bytes read from the file.
    Raises: ValueError for an unknown or repeated column, no column, or an invalid `binary` or `strings`.
    """
    names = list(DEFAULT_COLUMNS if columns is None else columns)
    if not names or not TYPES.keys() >= set(names) or len(set(names)) != len(names):
        meant = did_you_mean(names, TYPES)
        raise ValueError(f"columns must be some of {', '.join(TYPES)}, each once; got {names}{meant}")
    if binary not in ("copy", "view"):
        raise ValueError(f'binary must be "copy" or "view", got {binary!r}')
    as_text = {strings} if isinstance(strings, str) else set(strings)
    if not as_text <= {"key", "value"}:
        raise ValueError(f"strings must be some of key and value, got {sorted(as_text)}")
    return _schema(tuple(names), binary, frozenset(as_text))


@lru_cache(maxsize=256)
def _schema(names: tuple[str, ...], binary: Binary, strings: frozenset[str]) -> pa.Schema:
    types = dict(TYPES)
    for name in ("key", "value"):
        types[name] = pa.string() if name in strings else pa.binary_view() if binary == "view" else pa.binary()
    return pa.schema(list(zip(names, map(types.__getitem__, names), strict=True)))
