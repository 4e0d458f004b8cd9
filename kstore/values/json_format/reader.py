"""JsonReader: a column of JSON values as an Arrow array of what a reader wants of them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from kstore._core import JsonProgram
from kstore.values.decoded import Framing
from kstore.values.header_ids import HeaderIds
from kstore.values.json_format.columns import Node, in_order, layout_of, program_of
from kstore.values.reading import CoreReader

_SHOWN_BYTES = 20
_MOST_PATH = 200
_TYPES = {"struct": "an object", "map": "an object", "list": "an array"}


class JsonReader(CoreReader):
    """Decodes arrays of JSON values.

    Args: root: the nodes of their type; check_id: raises SchemaError for the id of a value that is no JSON; it is asked
        once for each id, and again where many have none; the others: as of CoreReader.
    Threads: not thread-safe; decoding releases the GIL.
    """

    def __init__(
        self,
        root: Node,
        check_id: Callable[[int], object],
        *,
        framing: Framing,
        most_bytes: int,
        header_ids: HeaderIds | None = None,
    ) -> None:
        super().__init__(
            root.arrow_type,
            layout_of(root),
            framing=framing,
            allows_trailing=False,
            most_bytes=most_bytes,
            header_ids=header_ids,
        )
        self._check_id = check_id
        self._nodes = in_order(root)
        self._json = program_of(root, self._columns)

    def _program(self, schema_id: int) -> tuple[JsonProgram, str]:
        self._check_id(schema_id)
        return self._json, ""

    def _mismatch(self, array: pa.BinaryArray | pa.BinaryViewArray, row: int, *, node: int, position: int) -> str:
        value = memoryview(array[row].as_buffer())
        shown = bytes(value[position : position + _SHOWN_BYTES])
        more = "..." if position + _SHOWN_BYTES < len(value) else ""
        expected = self._nodes[node]
        named = _TYPES.get(expected.kind, expected.arrow_type)
        return f"{expected.path[:_MOST_PATH] or 'the value'} is {named}, found {shown!r}{more}"
