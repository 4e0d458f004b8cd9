"""CoreReader: has the core decode arrays of values, of any number of writers' schemas, into columns of one type."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import pyarrow as pa

from kstore._core import VALUE_STOPS, AvroProgram, ExportedBatch, JsonProgram, ValueColumns, ValueDecoder
from kstore.errors import MemoryLimitError, SchemaError
from kstore.values.decoded import UNFRAMED, BadValue, DecodedValues, Framing
from kstore.values.header_ids import HeaderIds, has_number

_MOST_PROBLEM = 1000
# Of a hostile topic, each value may name another schema.
_MOST_UNREADABLE = 1000
_STOPS = {number: name for name, number in VALUE_STOPS.items()}


class CoreReader(ABC):
    """Decodes arrays of values into columns of the core.

    Args: arrow_type: of the columns; layout: theirs, as of ValueColumns; framing: what values begin with;
        allows_trailing: whether bytes after a value are ignored; most_bytes: the memory that the columns of an array
        may take before it is returned in parts, and that one value may take; header_ids: finds ids in the headers of
        records; None: only frames have them.
    Raises: MemoryLimitError if most_bytes is less than a null row takes.
    Threads: not thread-safe; decoding releases the GIL.
    """

    def __init__(
        self,
        arrow_type: pa.DataType,
        layout: Sequence[tuple[int, int, int, int]],
        *,
        framing: Framing,
        allows_trailing: bool,
        most_bytes: int,
        header_ids: HeaderIds | None,
    ) -> None:
        self._columns = ValueColumns(layout, most_bytes=most_bytes)
        least = self._columns.least_bytes
        if least > most_bytes:
            raise MemoryLimitError(
                f"max_decompressed_bytes is {most_bytes}, and a row of {len(layout)} columns of values takes {least} "
                "bytes at least: raise it, or read fewer fields",
                option="max_decompressed_bytes",
                limit=most_bytes,
                found=least,
            )
        self._decoder = ValueDecoder(self._columns, framing=framing, allows_trailing=allows_trailing)
        self._schema = pa.schema([pa.field("value", arrow_type)])
        self._header_ids = header_ids
        self._problems: dict[int, str] = {}
        self._unreadable: dict[int, str] = {}

    @abstractmethod
    def _program(self, schema_id: int) -> tuple[AvroProgram | JsonProgram, str]:
        """Return what reads values of a schema id, and what cannot be read with it.  Raises: SchemaError."""

    def decode(
        self, array: pa.BinaryArray | pa.BinaryViewArray, headers: pa.ListArray | None = None
    ) -> Iterator[DecodedValues]:
        """Decode values, of which null ones stay null.

        Args: headers: those of the records, where a value without a frame has its schema id; None: none is read.
        Raises: MemoryError.
        """
        row, start, rows = 0, 0, len(array)
        if self._header_ids is not None and self._header_ids.forgets():
            self._decoder.forget(keeps_readable=False)
            self._problems.clear()
            self._unreadable.clear()
        numbers = None if headers is None or self._header_ids is None else self._header_ids.of(headers)
        ids = None if numbers is None else numbers.data
        validity, index, *parts = array.buffers()
        data = parts if pa.types.is_binary_view(array.type) else parts[0]
        while True:
            row, stop = self._decoder.decode(
                validity, index, data, first=array.offset, row_count=rows, row=row, ids=ids
            )
            if _STOPS[stop] == "schema":
                if len(self._unreadable) >= _MOST_UNREADABLE:
                    if row > start:
                        yield self._taken(array, start)
                        start = row
                    self._decoder.forget(keeps_readable=True)
                    self._unreadable.clear()
                self._add_schema(self._decoder.schema_id)
                continue
            yield self._taken(array, start)
            start = row
            if row == rows:
                return

    def _add_schema(self, schema_id: int) -> None:
        try:
            program, problem = self._program(schema_id)
        except (SchemaError, RecursionError) as error:
            # Types that name types may be nested deeper than their text is.
            self._unreadable[schema_id] = str(error)[:_MOST_PROBLEM]
            self._decoder.add(schema_id, None)
            return
        self._problems[schema_id] = problem
        self._decoder.add(schema_id, program)

    def _taken(self, array: pa.BinaryArray | pa.BinaryViewArray, start: int) -> DecodedValues:
        bad = []
        for row, reason, position, schema_id, node in self._decoder.faults():
            is_id = has_number(schema_id)
            of = f", of schema id {schema_id}" if is_id else ""
            problem = (
                self._mismatch(array, start + row, node=node, position=position)
                if node >= 0
                else self._problems.get(schema_id) or self._unreadable.get(schema_id)
            )
            more = f" ({problem})" if problem else ""
            bad.append(BadValue(row, f"at byte {position}{of}, {reason}{more}", schema_id if is_id else UNFRAMED))
        rows = self._columns.row_count
        exported = ExportedBatch([self._columns.take()], row_count=rows)
        values = pa.RecordBatch._import_from_c(exported.address, self._schema).column(0)
        return DecodedValues(start, values, bad)

    def _mismatch(self, array: pa.BinaryArray | pa.BinaryViewArray, row: int, *, node: int, position: int) -> str:
        """Return what a value has in the place of the type of a node, which only JSON has."""
        del array, row, node, position
        return ""
