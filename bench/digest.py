"""A digest of decoded columns that is independent of how the rows are split into batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import crc32c
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass
class ColumnDigest:
    """The row count and CRCs of: offsets, timestamps (us), lengths and bytes of keys, lengths and bytes of values."""

    rows: int = 0
    offsets: int = 0
    timestamps_us: int = 0
    key_lengths: int = 0
    key_bytes: int = 0
    value_lengths: int = 0
    value_bytes: int = 0

    def add(
        self,
        *,
        offsets: NDArray[np.int64],
        timestamps_us: NDArray[np.int64],
        keys: tuple[NDArray[np.int32], NDArray[np.uint8]],
        values: tuple[NDArray[np.int32], NDArray[np.uint8]],
    ) -> None:
        """Add rows. keys, values: (lengths, concatenated bytes)."""
        self.rows += len(offsets)
        self.offsets = _over(offsets, self.offsets)
        self.timestamps_us = _over(timestamps_us, self.timestamps_us)
        self.key_lengths, self.key_bytes = _over(keys[0], self.key_lengths), _over(keys[1], self.key_bytes)
        self.value_lengths, self.value_bytes = _over(values[0], self.value_lengths), _over(values[1], self.value_bytes)

    def add_arrow(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch with columns offset, timestamp, key and value, the latter binary or binary_view."""
        self.add(
            offsets=batch["offset"].to_numpy(),
            timestamps_us=batch["timestamp"].cast(pa.timestamp("us", "UTC")).view(pa.int64()).to_numpy(),
            keys=lengths_and_bytes(batch["key"]),
            values=lengths_and_bytes(batch["value"]),
        )


def _over(array: NDArray[np.int64] | NDArray[np.int32] | NDArray[np.uint8], value: int) -> int:
    return crc32c.crc32c(np.ascontiguousarray(array).data, value)


def lengths_and_bytes(array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the lengths and the concatenated bytes of a binary column without nulls."""
    if array.null_count:
        raise ValueError(f"expected a column without nulls, found {array.null_count}")
    column = array.cast(pa.binary())
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return np.diff(ends), np.frombuffer(column.buffers()[2], np.uint8)[ends[0] : ends[-1]]


def from_ends(ends: NDArray[np.int32], data: NDArray[np.uint8]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return lengths and bytes from Arrow's binary offsets and the bytes they point into."""
    return np.diff(ends), data[ends[0] : ends[-1]]


def from_views(views: NDArray[np.uint8], data: NDArray[np.uint8]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return lengths and bytes from Arrow's 16-byte views over one buffer. Slow."""
    column = pa.BinaryViewArray.from_buffers(
        pa.binary_view(), len(views) // 16, [None, pa.py_buffer(views), pa.py_buffer(data)]
    )
    column.validate(full=True)
    return lengths_and_bytes(column)


def digest_of_arrow(batches: Iterator[pa.RecordBatch]) -> ColumnDigest:
    """Return the digest of Arrow batches."""
    digest = ColumnDigest()
    for batch in batches:
        digest.add_arrow(batch)
    return digest
