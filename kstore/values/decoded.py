"""What decoding a column of keys or values is asked for, and what it gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

Origin: TypeAlias = Literal["key", "value"]
Framing: TypeAlias = Literal["none", "confluent", "apicurio"]
# The fields of a record that are wanted, and of each what is wanted of it; None is everything.
Wanted: TypeAlias = Mapping[str, "Wanted"] | None

# Where the unions are in a column: the names of the fields that lead to each; "element" is that of a list, "key" and
# "value" those of a map.
Unions: TypeAlias = frozenset[tuple[str, ...]]

UNFRAMED = -1
# A byte 0, and an id of four bytes.
CONFLUENT_FRAME_BYTES = 5
# A byte 0, and an id of eight bytes.
APICURIO_FRAME_BYTES = 9
FRAME_BYTES: Mapping[Framing, int] = {
    "none": 0,
    "confluent": CONFLUENT_FRAME_BYTES,
    "apicurio": APICURIO_FRAME_BYTES,
}
# Of what a column of values has in it.
MOST_COLUMNS = 16_384
# Arrow imports no deeper nesting.
MOST_COLUMN_DEPTH = 60


def column_and_path(name: str) -> tuple[str, tuple[str, ...]]:
    """Return the column of a name such as "value.carrier", and the fields that lead to what is named in it."""
    column, *path = name.split(".")
    return column, tuple(path)


def wanted_of(paths: Iterable[tuple[str, ...]]) -> Wanted:
    """Return what paths lead to; everything if one of them is empty, or there is none."""
    wanted: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        if not path:
            return None
        wanted.setdefault(path[0], []).append(path[1:])
    return {name: wanted_of(rest) for name, rest in wanted.items()} or None


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


class ColumnFormat(Protocol):
    """What a column of bytes becomes; with all schemas that it takes, so that a pickled copy opens no file.

    Threads: thread-safe; each reader belongs to one thread.
    """

    @property
    def reads_headers(self) -> bool:
        """Whether readers take the headers of the records, where ids of schemas may be."""
        ...

    @property
    def reads_views(self) -> bool:
        """Whether readers take arrays of views, too."""
        ...

    def type(self, wanted: Wanted) -> pa.DataType:
        """Return the Arrow type.  Args: wanted: the fields of a record that are read.  Raises: InvalidSchemaError."""
        ...

    def unions(self, wanted: Wanted) -> Unions:
        """Return which structs of the type are unions, of which one member is not null.  Raises: InvalidSchemaError."""
        ...

    def reader(self, wanted: Wanted, *, most_bytes: int) -> ValueReader:
        """Return a new reader.  Args: most_bytes: the memory that decoded columns may take, and that a value may."""
        ...
