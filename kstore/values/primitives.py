"""Values that Kafka's built-in serializers wrote, as columns."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kstore.values.decoded import BadValue, DecodedValues

_BYTES_OF_UUID_TEXT = 36


@dataclass(frozen=True, slots=True)
class _Number:
    """Numbers of a fixed size, big-endian."""

    dtype: str
    type: pa.DataType

    @property
    def size(self) -> int:
        return np.dtype(self.dtype).itemsize

    def values(self, data: Any) -> pa.Array:
        """Return the numbers of an array of bytes, `size` for each."""
        return pa.array(data.view(self.dtype).astype(self.dtype.replace(">", "=")).reshape(-1), self.type)


_NUMBERS = {
    "short": _Number(">i2", pa.int16()),
    "integer": _Number(">i4", pa.int32()),
    "long": _Number(">i8", pa.int64()),
    "float": _Number(">f4", pa.float32()),
    "double": _Number(">f8", pa.float64()),
}
PRIMITIVE_TYPES: dict[str, pa.DataType] = {
    "bytes": pa.binary(),
    "string": pa.string(),
    **{name: number.type for name, number in _NUMBERS.items()},
    "boolean": pa.bool_(),
    "uuid": pa.string(),
}


class PrimitiveReader:
    """Decodes arrays of values of one of PRIMITIVE_TYPES; of "string" ones they are text already.

    Threads: thread-safe.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def decode(self, array: pa.BinaryArray, _headers: pa.ListArray | None = None) -> Iterator[DecodedValues]:
        if self._name in ("bytes", "string"):
            yield DecodedValues(0, array, [])
        elif self._name in _NUMBERS:
            yield _numbers(array, _NUMBERS[self._name])
        else:
            yield _one_by_one(array, self._name)


def _numbers(array: pa.BinaryArray, number: _Number) -> DecodedValues:
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(b"" if data_buffer is None else data_buffer, np.uint8)
    sizes = np.diff(offsets)
    has_value = np.asarray(array.is_valid())
    is_sound = has_value & (sizes == number.size)
    places = offsets[:-1][is_sound][:, None] + np.arange(number.size)
    sound = number.values(np.ascontiguousarray(data[places]))
    index = np.where(is_sound, np.cumsum(is_sound) - 1, 0)
    values = sound.take(pa.array(index, mask=~is_sound)) if len(sound) else pa.nulls(len(array), number.type)
    bad = np.flatnonzero(has_value & ~is_sound)
    reasons = (f"it has {size} bytes, expected {number.size}" for size in sizes[bad].tolist())
    return DecodedValues(0, values, list(map(BadValue, bad.tolist(), reasons)))


def _one_by_one(array: pa.BinaryArray, name: str) -> DecodedValues:
    decode = _boolean if name == "boolean" else _uuid
    bad: list[BadValue] = []
    values: list[bool | str | None] = []
    for row, data in enumerate(array.to_pylist()):
        try:
            values.append(None if data is None else decode(data))
        except ValueError as error:
            bad.append(BadValue(row, str(error)))
            values.append(None)
    return DecodedValues(0, pa.array(values, PRIMITIVE_TYPES[name]), bad)


def _boolean(data: bytes) -> bool:
    if data not in (b"\x00", b"\x01"):
        raise ValueError(f"expected the byte 0 or 1, found {data[:8]!r}")
    return data == b"\x01"


def _uuid(data: bytes) -> str:
    try:
        if len(data) != _BYTES_OF_UUID_TEXT:
            raise ValueError
        return str(uuid.UUID(data.decode("ascii")))
    except ValueError as error:
        raise ValueError(f"expected the 36 characters of a UUID, found {data[:40]!r}") from error
