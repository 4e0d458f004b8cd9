"""Values that Kafka's built-in serializers wrote, as columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kstore.values.decoded import BadValue, DecodedValues

_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


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
_BYTE = _Number("u1", pa.uint8())
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
        elif self._name == "uuid":
            yield _uuids(array)
        elif self._name == "boolean":
            yield _booleans(array)
        else:
            yield _numbers(array, _NUMBERS[self._name])


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


def _booleans(array: pa.BinaryArray) -> DecodedValues:
    decoded = _numbers(array, _BYTE)
    is_sound = pc.less_equal(decoded.values, 1)
    wrong = pc.indices_nonzero(pc.invert(is_sound)).to_pylist()
    bad = decoded.bad + [BadValue(row, f"expected the byte 0 or 1, found {decoded.values[row]}") for row in wrong]
    values = pc.if_else(is_sound, pc.equal(decoded.values, 1), None)
    return DecodedValues(0, values, sorted(bad))


def _uuids(array: pa.BinaryArray) -> DecodedValues:
    is_sound = pc.match_substring_regex(array, _UUID)
    wrong = pc.indices_nonzero(pc.invert(is_sound)).to_pylist()
    bad = [BadValue(row, f"expected the 36 characters of a UUID, found {array[row].as_py()[:40]!r}") for row in wrong]
    return DecodedValues(0, pc.ascii_lower(pc.if_else(is_sound, array, None).cast(pa.string())), bad)
