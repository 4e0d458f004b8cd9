"""What decoding a column of keys or values gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import pyarrow as pa

UNFRAMED = -1


class BadValue(NamedTuple):
    """A value that cannot be decoded.

    row: its row in the array that it is in; reason: a phrase; schema_id: that of its frame, UNFRAMED without one.
    """

    row: int
    reason: str
    schema_id: int = UNFRAMED


class DecodedValues(NamedTuple):
    """Decoded rows of an array, from its row `start` on, and the bad ones among them, which are null."""

    start: int
    values: pa.Array
    bad: list[BadValue]


class ValueReader(Protocol):
    """Decodes arrays of one format, in one thread."""

    def decode(self, array: pa.BinaryArray, headers: pa.ListArray | None = None) -> Iterator[DecodedValues]:
        """Decode values, of which null ones stay null, in parts that are in order and have a row for each value.

        Args: headers: those of their records, if the format asks for them.
        Raises: MemoryError.
        """
        ...
