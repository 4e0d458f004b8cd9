"""Goal: views into the contents of compressed batches point into buffers that several batches share, and read what a
copy of each record is.
Method: logs of many small batches, from chunks that are fed and from a file that the core reads; all tables are kept
before their views are looked at, so that a byte that was written over shows."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest

from kstore._core import Columns, DirectReads
from kstore.env import DEFAULT_ENV
from tests.core.test_column_decoder import decoder
from tests.making.batches import record
from tests.making.columns import byte_strings
from tests.reference import codecs
from tests.reference.codec import Record, write_batch

TABLE_BYTES = 1 << 20
# What contents share. One that may take more than a quarter of it has a buffer of its own.
SHARED_BYTES = TABLE_BYTES + TABLE_BYTES // 4
CHUNK_BYTES = 1 << 18
RECORDS_OF_BATCH = 20
WAYS = ("fed", "read by the core")
CODECS = pytest.mark.parametrize("codec", [codecs.LZ4, codecs.SNAPPY], ids=["lz4", "snappy"])


def batches_of(count: int, *codec_ids: int, value_bytes: int = 700) -> tuple[list[bytes], list[Record]]:
    """Return batches, each of one of these codecs, and the records of all."""
    rng = random.Random(count)
    records: list[Record] = []
    made = []
    for number in range(count):
        words = [rng.randbytes(7) for _ in range(9)]
        values = [b"".join(rng.choices(words, k=value_bytes // 7)) for _ in range(RECORDS_OF_BATCH)]
        first = number * RECORDS_OF_BATCH
        of_batch = [record(first + at, value, b"key of batch %d" % number) for at, value in enumerate(values)]
        records += of_batch
        made.append(write_batch(of_batch, codec=rng.choice(codec_ids)))
    return made, records


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def tables_of(
    log: bytes, path: Path, way: str, *, start_offset: int = 0, chunk_bytes: int = CHUNK_BYTES, **modes: str | bool
) -> Iterator[Columns]:
    """Yield all tables of a log, and a last one that may be empty."""
    path.write_bytes(log)
    read = decoder(batch_bytes=TABLE_BYTES, max_decompressed_bytes=1 << 24, start_offset=start_offset, **modes)
    read.start_file(position=0, end_position=len(log))
    reads = DirectReads(chunk_bytes=chunk_bytes)
    file = DEFAULT_ENV.open_read(str(path))
    try:
        if way != WAYS[0]:
            reads.begin(file)
        yield from read.full_tables(lambda of: log[of.position :][: max(of.needed, chunk_bytes)], reads)
        yield read.take()
    finally:
        file.close()


def values_of(tables: Iterable[Columns]) -> list[bytes | None]:
    return [value for table in tables for value in byte_strings(table.value, table.row_count, is_view=True)]


def keys_of(tables: Iterable[Columns]) -> list[bytes | None]:
    return [key for table in tables for key in byte_strings(table.key, table.row_count, is_view=True)]


def viewed(table: Columns) -> list[Any]:
    """Return the buffers that the views of a table point into."""
    column = table.key if table.value is None else table.value
    assert column is not None
    buffers: list[Any] = column[3]
    return buffers


@CODECS
def test_contents_of_many_batches_are_in_a_few_buffers(codec: int, way: str, tmp_path: Path) -> None:
    made, records = batches_of(300, codec)
    log = b"".join(made)
    tables = list(tables_of(log, tmp_path / "x.log", way, key="view", value="view"))
    assert values_of(tables) == [each.value for each in records]
    assert keys_of(tables) == [each.key for each in records]
    assert len(tables) > 3
    buffers = list(chain.from_iterable(map(viewed, tables)))
    chunks = -(-len(log) // CHUNK_BYTES)
    assert len(buffers) <= 3 * len(tables) + 2 * chunks < len(made) // 4
    assert max(map(len, buffers)) <= SHARED_BYTES


def test_a_buffer_of_contents_ends_with_the_last_of_them(way: str, tmp_path: Path) -> None:
    made, records = batches_of(3, codecs.SNAPPY)
    (table,) = tables_of(b"".join(made), tmp_path / "x.log", way, value="view")
    chunk, contents = viewed(table)
    sizes = sum(len(codecs.decompress(codecs.SNAPPY, batch[61:], limit=1 << 20)) for batch in made)
    assert (len(chunk), len(contents)) == (sum(map(len, made)), sizes)
    assert values_of([table]) == [each.value for each in records]


@CODECS
def test_a_buffer_of_a_table_that_was_returned_gets_no_more(codec: int, way: str, tmp_path: Path) -> None:
    log = b"".join(batches_of(300, codec)[0])
    kept, sizes = [], []
    for table in tables_of(log, tmp_path / "x.log", way, chunk_bytes=len(log), value="view"):
        kept.append(viewed(table))
        sizes.append(list(map(len, kept[-1])))
    assert [list(map(len, buffers)) for buffers in kept] == sizes
    # After the chunk, two tables have the buffer of the batch that both have.
    assert {sum(one is other for one in before[1:] for other in after[1:]) for before, after in pairwise(kept)} == {1}


def test_batches_of_all_codecs_beside_each_other_are_read_as_copies_are(way: str, tmp_path: Path) -> None:
    made, records = batches_of(250, codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD)
    tables = list(tables_of(b"".join(made), tmp_path / "x.log", way, key="view", value="view", offset=True))
    assert values_of(tables) == [each.value for each in records]
    assert keys_of(tables) == [each.key for each in records]


@CODECS
def test_contents_that_are_a_large_part_of_a_table_have_a_buffer_each(codec: int, way: str, tmp_path: Path) -> None:
    made, records = batches_of(6, codec, value_bytes=21_000)
    tables = list(tables_of(b"".join(made), tmp_path / "x.log", way, value="view"))
    assert values_of(tables) == [each.value for each in records]
    sizes = {len(codecs.decompress(codec, batch[61:], limit=1 << 24)) for batch in made}
    assert min(sizes) > SHARED_BYTES // 4
    assert sizes <= set(map(len, chain.from_iterable(map(viewed, tables))))


@CODECS
def test_a_content_without_a_row_is_in_no_table(codec: int, way: str, tmp_path: Path) -> None:
    """The read begins at offsets without records, at the end of a batch, and each batch is in a chunk of its own."""
    records = [record(at, b"%03d" % at * 200) for at in range(40)]
    batches = [write_batch(records[at : at + 2], codec=codec, last_offset=at + 1) for at in range(4, 40, 2)]
    first = write_batch(records[:2], codec=codec, last_offset=3)
    log = b"".join([first, *batches])
    chunk_bytes = max(map(len, [first, *batches]))
    tables = list(tables_of(log, tmp_path / "x.log", way, start_offset=3, chunk_bytes=chunk_bytes, value="view"))
    assert values_of(tables) == [each.value for each in records[4:]]


def test_views_of_small_keys_keep_a_bounded_part_of_many_contents(way: str, tmp_path: Path) -> None:
    batch = write_batch(
        [record(at, bytes(3000), b"a key of its own") for at in range(RECORDS_OF_BATCH)], codec=codecs.LZ4
    )
    # The CRC is of what comes after the base offset.
    log = b"".join((RECORDS_OF_BATCH * number).to_bytes(8, "big") + batch[8:] for number in range(420))
    tables = list(tables_of(log, tmp_path / "x.log", way, key="view"))
    kept = [sum(map(len, viewed(table))) for table in tables if table.row_count]
    assert sum(kept) > 420 * 3000 * RECORDS_OF_BATCH
    assert max(kept) <= (16 << 20) + 2 * TABLE_BYTES + SHARED_BYTES
    assert keys_of(tables) == [b"a key of its own"] * 420 * RECORDS_OF_BATCH
