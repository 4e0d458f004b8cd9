"""Schema ids in the headers of records, as newer serializers of Confluent write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kstore.errors import SchemaNotFoundError
from kstore.values.decoded import UNFRAMED

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEADER_OF: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}
_ID_MAGIC, _GUID_MAGIC = b"\x00", b"\x01"
_ID_BYTES, _GUID_BYTES = 4, 16
# Above the ids of all frames: numbers of what the headers say, where no id is in them.
_FIRST_NUMBER = 1 << 62
# Of a hostile topic, each record may have another header.
_MOST_HEADERS = 1000


class HeaderIds:
    """The schema ids that headers of keys or values have: a byte 1 and a GUID of 16 bytes, or a byte 0 and an id.

    Args: name: of the header.
    Threads: not thread-safe.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers: dict[bytes | None, int] = {}
        self._headers: list[bytes | None] = []

    def of(self, headers: pa.ListArray) -> NDArray[np.int64] | None:
        """Return a schema id for each row, -1 where no header has one; None if none has.

        Of several headers of the name the last one counts, as in Kafka's clients. A header without an id gives a number
        that stands for it.
        Args: headers: lists of structs of key and value, as in the column of this name.
        """
        flat = headers.flatten()
        if not len(flat):
            return None
        is_id = pc.equal(flat.field("key"), self._name)
        if not pc.any(is_id).as_py():
            return None
        rows = pc.list_parent_indices(headers).filter(is_id)
        encoded = flat.field("value").filter(is_id).dictionary_encode(null_encoding="encode")
        numbers = np.array([self._number(data) for data in encoded.dictionary.to_pylist()], np.int64)
        ids = np.full(len(headers), UNFRAMED, np.int64)
        ids[rows.to_numpy()] = numbers[encoded.indices.to_numpy()]
        return ids

    def forgets(self) -> bool:
        """Forget the numbers that were given so far if there are many, and return whether that was done.

        The next ones may be the same, for other headers.
        """
        if len(self._headers) < _MOST_HEADERS:
            return False
        self._numbers.clear()
        self._headers.clear()
        return True

    def schema(self, number: int) -> int | str:
        """Return the id or the GUID that a number stands for.

        Raises: SchemaNotFoundError for the number of a header that has neither.
        """
        if number < _FIRST_NUMBER:
            return number
        data = self._headers[number - _FIRST_NUMBER] or b""
        if data[:1] == _ID_MAGIC and len(data) > _ID_BYTES:
            return int.from_bytes(data[1 : 1 + _ID_BYTES], "big")
        if data[:1] == _GUID_MAGIC and len(data) > _GUID_BYTES:
            return str(UUID(bytes=data[1 : 1 + _GUID_BYTES]))
        raise SchemaNotFoundError(f"the header {self._name} has neither the GUID nor the id of a schema")

    def rest(self, number: int) -> bytes:
        """Return what a header has after the id or GUID that a number stands for: Protobuf's message indexes."""
        data = b"" if number < _FIRST_NUMBER else self._headers[number - _FIRST_NUMBER] or b""
        return data[1 + (_ID_BYTES if data[:1] == _ID_MAGIC else _GUID_BYTES) :]

    def _number(self, data: bytes | None) -> int:
        if data is not None and data[:1] == _ID_MAGIC and len(data) == 1 + _ID_BYTES:
            return int.from_bytes(data[1:], "big")
        if data not in self._numbers:
            self._numbers[data] = _FIRST_NUMBER + len(self._headers)
            self._headers.append(data)
        return self._numbers[data]


def has_number(schema_id: int) -> bool:
    """Whether an id is one of a frame, and not the number of a header."""
    return UNFRAMED < schema_id < _FIRST_NUMBER
