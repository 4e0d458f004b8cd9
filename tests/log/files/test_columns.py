"""Goal: the one loop over a column decoder yields each full table and asks for the bytes that are missing.
Method: two batches that are fed whole, in parts, or not at all."""

from __future__ import annotations

import struct

import pytest

from kstore._core import ColumnDecoder
from kstore.arrow.assembler import Assembler, Projection
from kstore.arrow.columns import schema
from kstore.config import LogConfig
from kstore.log.files.columns import ColumnSelection, column_decoder
from tests.making.batches import record
from tests.reference import codec as reference

COUNT = 20
LOG = b"".join(reference.write_batch([record(offset, b"v" * 100)]) for offset in range(COUNT))


def started(*, batch_bytes: int) -> ColumnDecoder:
    selection = ColumnSelection(offset=True, value="copy")
    decoder = column_decoder(selection, batch_bytes=batch_bytes, config=LogConfig(), start_offset=0)
    decoder.start_file(position=0, end_position=len(LOG), path="x.log")
    return decoder


@pytest.mark.parametrize("chunk_bytes", [1, 300, len(LOG)])
def test_every_full_table_is_yielded_and_the_rows_after_the_last_one_stay_in_the_decoder(chunk_bytes: int) -> None:
    decoder = started(batch_bytes=1000)

    def read_chunk(reading: ColumnDecoder) -> bytes:
        return LOG[reading.position : reading.position + max(reading.needed, chunk_bytes)]

    tables = [*decoder.full_tables(read_chunk), decoder.take()]
    assert [table.row_count for table in tables[:-1]] == [max(table.row_count for table in tables)] * (len(tables) - 1)
    assert 1 < len(tables) < COUNT / 2
    assert [row for table in tables for (row,) in struct.iter_unpack("=q", bytes(table.offset))] == [*range(COUNT)]


def test_decoder_that_was_fed_everything_needs_no_chunk() -> None:
    decoder = started(batch_bytes=1 << 20)
    decoder.feed(LOG, 0)
    assert list(decoder.full_tables()) == []
    assert decoder.row_count == COUNT


def test_bytes_that_nobody_fed_are_an_error_that_names_their_place() -> None:
    decoder = started(batch_bytes=1 << 20)
    size = len(LOG) // COUNT
    decoder.feed(LOG[:size], 0)
    with pytest.raises(ValueError, match=f"needs [0-9]+ bytes from position {size} on"):
        list(decoder.full_tables())


def test_a_slice_has_the_rows_of_its_bounds_and_shares_the_buffers() -> None:
    decoder = started(batch_bytes=1 << 20)
    decoder.feed(LOG, 0)
    assert list(decoder.full_tables()) == []
    table = decoder.take()
    assert (table.start, table.end, table.row_count) == (0, COUNT, COUNT)
    part = table.slice(3, end=COUNT - 1).slice(4, end=9)
    assert (part.start, part.end, part.row_count) == (4, 9, COUNT)
    assert (part.offset, part.value, part.batches) == (table.offset, table.value, table.batches)
    projection = Projection(schema(["offset", "value"]), verify_crc=True)
    read = Assembler(projection).record_batch(part)
    assert read["offset"].to_pylist() == [4, 5, 6, 7, 8]
    assert read.equals(Assembler(projection).record_batch(table).slice(4, 5))


@pytest.mark.parametrize("bounds", [(3, 10), (2, 5), (8, 7), (4, COUNT)])
def test_a_slice_beyond_its_table_is_refused(bounds: tuple[int, int]) -> None:
    decoder = started(batch_bytes=1 << 20)
    decoder.feed(LOG, 0)
    assert list(decoder.full_tables()) == []
    table = decoder.take().slice(3, end=9)
    with pytest.raises(ValueError, match=r"within the rows \[3, 9\), got"):
        table.slice(bounds[0], end=bounds[1])
