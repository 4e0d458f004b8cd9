"""AvroReader: a column of Avro values as an Arrow array of what a reader wants of them."""

from __future__ import annotations

from collections.abc import Callable

from kstore._core import AvroProgram
from kstore.values.avro.columns import Column, layout_of
from kstore.values.avro.resolution import Resolution
from kstore.values.avro.schema import AvroType
from kstore.values.decoded import Framing
from kstore.values.header_ids import HeaderIds
from kstore.values.reading import CoreReader


class AvroReader(CoreReader):
    """Decodes arrays of Avro values.

    Args: reader: the columns that are wanted; writer_of: returns the schema that values of an id were written with, or
        raises SchemaError; it is asked once for each id, and again where many have none; the others: as of CoreReader.
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
        super().__init__(
            reader.arrow_type,
            layout_of(reader),
            framing=framing,
            allows_trailing=framing != "none",
            most_bytes=most_bytes,
            header_ids=header_ids,
        )
        self._reader = reader
        self._writer_of = writer_of

    def _program(self, schema_id: int) -> tuple[AvroProgram, str]:
        resolution = Resolution(self._writer_of(schema_id), self._reader)
        return resolution.program(self._columns), "; ".join(resolution.problems)
