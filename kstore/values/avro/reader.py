"""AvroReader: a column of Avro values as an Arrow array of what a reader wants of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from kstore._core import VALUE_STOPS, ExportedBatch, ValueColumns, ValueDecoder
from kstore.errors import SchemaError
from kstore.values.avro.columns import Column, layout_of
from kstore.values.avro.resolution import Resolution
from kstore.values.avro.schema import AvroType
from kstore.values.decoded import BadValue, DecodedValues, Framing
from kstore.values.header_ids import HeaderIds, has_number

_MOST_PROBLEM = 1000
_STOPS = {number: name for name, number in VALUE_STOPS.items()}


class AvroReader:
    """Decodes arrays of Avro values.

    Args: reader: the columns that are wanted; writer_of: returns the schema that values of an id were written with, or
        raises SchemaError; it is asked once for each id; framing: what values begin with; most_bytes: the memory that
        the columns of an array may take before it is returned in parts, and that one value may take. header_ids: finds
        ids in the headers of records; None: only frames have them.
    Threads: not thread-safe; decoding releases the GIL.
    """

    def __init__(
        self,
        reader: Column,
        writer_of: Callable[[int], AvroType],
        *,
        framing: Framing,
        most_bytes: int,
        header_ids: HeaderIds | None = None,
    ) -> None:
        self._reader = reader
        self._writer_of = writer_of
        self._columns = ValueColumns(layout_of(reader), most_bytes=most_bytes)
        self._decoder = ValueDecoder(self._columns, framing=framing, allows_trailing=framing != "none")
        self._schema = pa.schema([pa.field("value", reader.arrow_type)])
        self._header_ids = header_ids
        self._problems: dict[int, str] = {}

    def decode(self, array: pa.BinaryArray, headers: pa.ListArray | None = None) -> Iterator[DecodedValues]:
        """Decode values, of which null ones stay null.

        Args: headers: those of the records, where a value without a frame has its schema id; None: none is read.
        Raises: MemoryError.
        """
        row, start, rows = 0, 0, len(array)
        numbers = None if headers is None or self._header_ids is None else self._header_ids.of(headers)
        ids = None if numbers is None else numbers.data
        validity, offsets, data = array.buffers()
        while True:
            row, stop = self._decoder.decode(
                validity, offsets, data, first=array.offset, row_count=rows, row=row, ids=ids
            )
            if _STOPS[stop] == "schema":
                self._add_schema(self._decoder.schema_id)
                continue
            yield self._taken(start)
            start = row
            if row == rows:
                return

    def _add_schema(self, schema_id: int) -> None:
        try:
            resolution = Resolution(self._writer_of(schema_id), self._reader)
            program = resolution.program(self._columns)
        except (SchemaError, RecursionError) as error:
            # Types that name types may be nested deeper than their text is.
            self._problems[schema_id] = str(error)[:_MOST_PROBLEM]
            self._decoder.add(schema_id, None)
            return
        self._problems[schema_id] = "; ".join(resolution.problems)
        self._decoder.add(schema_id, program)

    def _taken(self, start: int) -> DecodedValues:
        bad = [
            BadValue(row, self._reason(reason, position, schema_id=schema_id), schema_id)
            for row, reason, position, schema_id, _ in self._decoder.faults()
        ]
        rows = self._columns.row_count
        exported = ExportedBatch([self._columns.take()], row_count=rows)
        return DecodedValues(start, pa.RecordBatch._import_from_c(exported.address, self._schema).column(0), bad)

    def _reason(self, reason: str, position: int, *, schema_id: int) -> str:
        of = f", of schema id {schema_id}" if has_number(schema_id) else ""
        problem = self._problems.get(schema_id)
        more = f" ({problem})" if problem else ""
        return f"at byte {position}{of}, {reason}{more}"
