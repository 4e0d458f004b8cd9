"""Goal: what the core reads itself, without the interpreter, is what a reader gets that reads chunk by chunk, and a
file that changes meanwhile is found out.
Method: logs of many small chunks, read by an Env whose files the core may not read itself, and by one whose files it
reads; files that change after the first table was returned."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._core import ColumnDecoder, DirectReads
from kstore.arrow import record_batches
from kstore.compression import decompress
from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV, LocalEnv, LocalFile
from kstore.errors import LogReplacedError
from kstore.log.log import Log
from kstore.store.opening import open_log
from tests.making.batches import batch, batches, grow, record, write_partition
from tests.making.messages import packed_entry, write_wrapper
from tests.making.strategies import examples
from tests.reference import codecs
from tests.reference.codec import write_batch

CHUNK_BYTES = 4096
SMALL_CHUNKS = LogConfig(read_chunk_bytes=CHUNK_BYTES)
COLUMNS = ["key", "value", "offset", "timestamp", "headers"]
# Takes some fifteen chunks.
COUNT, VALUE_BYTES = 40, 1500
MOST_DIRECT_BYTES = 16 << 20


class InterpretedFile(LocalFile):
    """A file that the core does not read itself, since a subclass may read otherwise."""


class InterpretedEnv(LocalEnv):
    def open_read(self, path: str) -> LocalFile:
        file = super().open_read(path)
        return InterpretedFile(os.dup(file.fileno()), path=path, identity=file.identity())


def segments(*counts: int, value_bytes: int = VALUE_BYTES) -> list[list[bytes]]:
    """Return the batches of segments with so many records each."""
    firsts = [sum(counts[:number]) for number in range(len(counts))]
    return [batches(first, count, value_bytes=value_bytes) for first, count in zip(firsts, counts, strict=True)]


def table_of(log: Log, env: LocalEnv, **options) -> pa.Table:
    ranges = log.plan(max_bytes=1 << 30)
    tables = record_batches(ranges, env=env, config=SMALL_CHUNKS, **{"columns": COLUMNS, **options})
    found = list(tables)
    return pa.Table.from_batches(found) if found else pa.table({})


@pytest.fixture
def preads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions that Python reads at while a test runs, without the looks at whether bytes are in memory."""
    positions: list[int] = []
    preadv = os.preadv

    def counted(fd, buffers, position, *flags):
        if not flags:
            positions.append(position)
        return preadv(fd, buffers, position, *flags)

    monkeypatch.setattr(os, "preadv", counted)
    return positions


@pytest.mark.parametrize("binary", ["copy", "view"])
def test_python_reads_no_chunk_of_a_local_file(tmp_path: Path, preads: list[int], binary: str) -> None:
    with open_log(write_partition(tmp_path, segments(COUNT, COUNT))) as log:
        assert table_of(log, DEFAULT_ENV, binary=binary).num_rows == 2 * COUNT
        assert preads == []
        assert table_of(log, InterpretedEnv(), binary=binary).num_rows == 2 * COUNT
        assert len(preads) > 2 * COUNT * VALUE_BYTES // CHUNK_BYTES


KINDS = ["message", "wrapper", *(f"batch {codec}" for codec in range(5))]


def entry(kind: str, offset: int, *, count: int, value_bytes: int) -> bytes:
    """Return a batch of count records, a wrapper of so many messages, or so many messages."""
    if kind.startswith("batch"):
        return batch(offset, count, value_bytes=value_bytes, codec=int(kind[6:]))
    plain = [
        packed_entry(b"v" * value_bytes, b"k", offset=offset + n, magic=1, timestamp_ms=1_600_000_000_000 + n)
        for n in range(count)
    ]
    if kind == "message":
        return b"".join(plain)
    inner = [n.to_bytes(8, "big") + message[8:] for n, message in enumerate(plain)]
    return write_wrapper(inner, magic=1, codec=codecs.GZIP, offset=offset + count - 1, timestamp_ms=1_600_000_000_000)


@given(
    shapes=st.lists(
        st.tuples(st.sampled_from(KINDS), st.integers(1, 5), st.sampled_from([0, 30, 1500, 9000])),
        min_size=1,
        max_size=30,
    ),
    binary=st.sampled_from(["copy", "view"]),
    batch_bytes=st.sampled_from([1, 700, 20_000, 1 << 20]),
    columns=st.sampled_from([COLUMNS, ["offset"], ["value"], ["timestamp", "key"]]),
    start=st.integers(0, 60),
    threads=st.sampled_from([1, 2]),
)
@examples(60)
def test_direct_reads_and_those_of_python_give_the_same_columns(
    tmp_path_factory: pytest.TempPathFactory,
    shapes: list[tuple[str, int, int]],
    binary: str,
    batch_bytes: int,
    columns: list[str],
    start: int,
    threads: int,
) -> None:
    directory = tmp_path_factory.mktemp("root") / "t-0"
    directory.mkdir()
    offset = 0
    for number, (kind, count, value_bytes) in enumerate(shapes):
        if number in (0, len(shapes) // 2):
            file = directory / f"{offset:020d}.log"
        with file.open("ab") as segment:
            segment.write(entry(kind, offset, count=count, value_bytes=value_bytes))
        offset += count
    with open_log(directory) as log:
        ranges = log.plan(start_offset=min(start, offset))
    options = {"columns": columns, "binary": binary, "batch_bytes": batch_bytes, "threads": threads}
    direct, interpreted = (
        [batch.to_pydict() for batch in record_batches(ranges, env=env, config=SMALL_CHUNKS, **options)]
        for env in (DEFAULT_ENV, InterpretedEnv())
    )
    assert direct == interpreted
    assert sum(len(rows[columns[0]]) for rows in direct) == offset - min(start, offset)


def test_views_of_many_chunks_are_the_values(tmp_path: Path) -> None:
    rng = random.Random(7)
    values = [rng.randbytes(rng.randrange(2000)) for _ in range(200)]
    made = [write_batch([record(offset, value)]) for offset, value in enumerate(values)]
    with open_log(write_partition(tmp_path, [made])) as log:
        (table,) = record_batches(log.plan(max_bytes=1 << 30), columns=["value"], binary="view", config=SMALL_CHUNKS)
    assert len(table["value"].buffers()) > 40
    assert table["value"].to_pylist() == values


def truncate_and_write_other_batches(directory: Path) -> None:
    """Write the first segment again from a batch on that was read, with batches of the same sizes."""
    (first, *_) = sorted(directory.glob("*.log"))
    kept = b"".join(batches(0, 5, value_bytes=VALUE_BYTES))
    os.truncate(first, len(kept))
    grow(first, b"".join(batches(5, COUNT - 5, value_bytes=VALUE_BYTES, partition_leader_epoch=1)))


def truncate_to_nothing(directory: Path) -> None:
    (first, *_) = sorted(directory.glob("*.log"))
    os.truncate(first, 0)


def write_last_segment_again(directory: Path) -> None:
    """Truncate the last segment in place, so that its last batch is gone."""
    *_, last = sorted(directory.glob("*.log"))
    os.truncate(last, last.stat().st_size // 2)


def replace_last_segment(directory: Path) -> None:
    """Give the name of the last segment to another file with the same bytes."""
    *_, last = sorted(directory.glob("*.log"))
    other = last.with_suffix(".other")
    other.write_bytes(last.read_bytes())
    other.replace(last)


def remove_last_segment(directory: Path) -> None:
    *_, last = sorted(directory.glob("*.log"))
    last.unlink()


@pytest.mark.parametrize("binary", ["copy", "view"])
@pytest.mark.parametrize("counts", [(COUNT,), (COUNT, 10)], ids=["one segment", "two segments"])
@pytest.mark.parametrize(
    "change",
    [
        truncate_and_write_other_batches,
        truncate_to_nothing,
        write_last_segment_again,
        replace_last_segment,
        remove_last_segment,
    ],
)
def test_a_file_that_changed_gives_no_row_of_what_the_core_reads_after_that(
    tmp_path: Path, preads: list[int], change: Callable[[Path], None], counts: tuple[int, ...], binary: str
) -> None:
    if len(counts) == 1 and change in (replace_last_segment, remove_last_segment):
        # The file that is open stays what it was.
        return
    directory = write_partition(tmp_path, segments(*counts))
    with open_log(directory, config=SMALL_CHUNKS) as log:
        tables = log.to_arrow_batches(columns=["value"], binary=binary, batch_bytes=5000)
        for _ in range(3):
            next(tables)
        assert preads == []
        change(directory)
        # A chunk has fewer rows than a table.
        with pytest.raises(LogReplacedError):
            next(tables)


def test_batches_above_the_chunk_size_are_read(tmp_path: Path) -> None:
    sizes = [10, 9000, 20_000, 10, 5000, 10, 10]
    made = [batch(offset, 1, value_bytes=size) for offset, size in enumerate(sizes)]
    with open_log(write_partition(tmp_path, [made])) as log:
        for binary in ("copy", "view"):
            values = table_of(log, DEFAULT_ENV, binary=binary)["value"].to_pylist()
            assert [len(value) for value in values] == sizes


def test_chunks_before_the_first_row_are_not_kept_by_views(tmp_path: Path) -> None:
    with open_log(write_partition(tmp_path, segments(COUNT))) as log:
        (planned,) = log.plan(max_bytes=1 << 30)
        late = replace(planned, start_offset=COUNT - 1)
        (found,) = record_batches([late], columns=["value"], binary="view", config=SMALL_CHUNKS)
        assert sum(buffer.size for buffer in found["value"].buffers()[2:]) <= 2 * CHUNK_BYTES


@pytest.mark.parametrize("env", [DEFAULT_ENV, InterpretedEnv()], ids=["direct", "interpreted"])
@pytest.mark.parametrize("batch_bytes", [CHUNK_BYTES, CHUNK_BYTES + CHUNK_BYTES // 8])
@pytest.mark.parametrize("value_bytes", [30, 90])
def test_a_table_of_views_keeps_no_chunk_of_another(
    tmp_path: Path, env: LocalEnv, batch_bytes: int, value_bytes: int
) -> None:
    made = batches(0, 40, records_per_batch=10, value_bytes=value_bytes)
    with open_log(write_partition(tmp_path, [made])) as log:
        ranges = log.plan(max_bytes=1 << 30)
    options = {"binary": "view", "batch_bytes": batch_bytes, "config": SMALL_CHUNKS, "env": env}
    tables = list(record_batches(ranges, columns=["offset", "value"], **options))
    assert sum(table.num_rows for table in tables) == 400
    kept = [table["value"].buffers()[2:] for table in tables]
    assert {len(buffers) for buffers in kept} == {1}
    assert sum(buffer.size for buffers in kept for buffer in buffers) <= sum(map(len, made)) + len(kept) * len(made[0])


def test_tables_of_views_that_a_chunk_does_not_fill_have_several(tmp_path: Path) -> None:
    with open_log(write_partition(tmp_path, [batches(0, 400, value_bytes=90)])) as log:
        ranges = log.plan(max_bytes=1 << 30)
    options = {"binary": "view", "batch_bytes": 4 * CHUNK_BYTES, "config": SMALL_CHUNKS}
    first, *_ = record_batches(ranges, columns=["offset", "value"], **options)
    assert first["value"].nbytes > 3 * CHUNK_BYTES // 2
    assert len(first["value"].buffers()[2:]) > 3


def test_views_keep_16_mib_of_chunks_and_two_batches(tmp_path: Path) -> None:
    made = [batch(offset, 1, value_bytes=500_000) for offset in range(60)]
    with open_log(write_partition(tmp_path, [made])) as log:
        config = LogConfig(read_chunk_bytes=1 << 20)
        found = list(record_batches(log.plan(max_bytes=1 << 30), columns=["key"], binary="view", config=config))
        assert [len(rows) for rows in found] != [60]
        for rows in found:
            kept = sum(buffer.size for buffer in rows["key"].buffers()[2:])
            assert kept <= MOST_DIRECT_BYTES + 3 * (1 << 20)


def decoder_of(path: Path, *, batch_bytes: int = 1 << 30, **columns: object) -> ColumnDecoder:
    decoder = ColumnDecoder(
        batch_bytes=batch_bytes,
        max_batch_bytes=1 << 20,
        max_decompressed_bytes=1 << 20,
        decompress=decompress,
        **columns,
    )
    decoder.start_file(position=0, end_position=path.stat().st_size, path=str(path))
    return decoder


def direct_reads_of(file: LocalFile, *, chunk_bytes: int = CHUNK_BYTES) -> DirectReads:
    reads = DirectReads(chunk_bytes=chunk_bytes)
    reads.begin(file)
    return reads


def test_python_runs_again_after_16_mib(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(chain.from_iterable(segments(25_000, value_bytes=1000))))
    decoder = decoder_of(path, offset=True)
    with DEFAULT_ENV.open_read(str(path)) as file:
        reads = direct_reads_of(file, chunk_bytes=1 << 16)
        decoder.feed(file.pread(1 << 16, position=0), 0)
        stops = []
        while decoder.run(reads) == "more":
            stops.append(decoder.position)
            decoder.feed(file.pread(1 << 16, position=decoder.position), decoder.position)
    assert decoder.row_count == 25_000
    assert len(stops) == path.stat().st_size // MOST_DIRECT_BYTES
    assert all(MOST_DIRECT_BYTES - (1 << 18) <= stop <= MOST_DIRECT_BYTES + (1 << 18) for stop in stops)


def test_the_batch_passed_last_is_known_after_a_read_that_failed(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    content = b"".join(chain.from_iterable(segments(COUNT)))
    path.write_bytes(content)
    decoder = decoder_of(path, value="copy", batch_bytes=10_000)
    with DEFAULT_ENV.open_read(str(path)) as file:
        reads = direct_reads_of(file)
        decoder.feed(file.pread(CHUNK_BYTES, position=0), 0)
        assert decoder.run(reads) == "full"
        decoder.take()
        os.truncate(path, decoder.position + CHUNK_BYTES)
        # The next read is of bytes that are not there any more, in part.
        assert decoder.run(reads) == "more"
        decoder.note_last(reads)
    position, header = reads.last
    assert position == decoder.last_position
    assert header == content[position : position + 61]


def test_the_first_batch_is_known_before_one_was_passed(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    content = batch(0, COUNT, value_bytes=100)
    path.write_bytes(content)
    decoder = decoder_of(path, value="copy", batch_bytes=1000)
    with DEFAULT_ENV.open_read(str(path)) as file:
        reads = direct_reads_of(file, chunk_bytes=1 << 16)
        assert decoder.run(reads) == "full"
        decoder.note_last(reads)
    assert decoder.last_position == -1
    assert reads.last == (0, content[:61])


@pytest.mark.parametrize("is_there", [True, False])
def test_reads_go_on_only_from_a_batch_that_is_still_there(tmp_path: Path, is_there: bool) -> None:
    path = tmp_path / "00000000000000000000.log"
    made = segments(COUNT)[0]
    path.write_bytes(b"".join(made))
    decoder = decoder_of(path, value="copy")
    decoder.start_file(position=len(made[0]), end_position=path.stat().st_size, path=str(path))
    with DEFAULT_ENV.open_read(str(path)) as file:
        reads = DirectReads(chunk_bytes=CHUNK_BYTES)
        reads.begin(file, (0, made[0][:61] if is_there else bytes(61)))
        assert decoder.run(reads) == ("done" if is_there else "more")
    assert decoder.row_count == (COUNT - 1 if is_there else 0)


def replace_file(path: Path) -> None:
    """Put another file of the same content at a path."""
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes())
    other.rename(path)


def overwrite(path: Path) -> None:
    """Change a byte of the first batch where it is."""
    with path.open("r+b") as file:
        file.seek(20)
        file.write(b"\xff")


@pytest.mark.parametrize("is_elsewhere", [False, True])
@pytest.mark.parametrize("change", [None, Path.unlink, replace_file, overwrite])
def test_an_anchor_is_in_place_by_its_path_and_its_bytes(
    tmp_path: Path, change: Callable[[Path], None] | None, is_elsewhere: bool
) -> None:
    path, other = tmp_path / "00000000000000000000.log", tmp_path / "00000000000000000040.log"
    for each in (path, other):
        each.write_bytes(batch(0, COUNT))
    anchored = other if is_elsewhere else path
    with DEFAULT_ENV.open_read(str(path)) as file, DEFAULT_ENV.open_read(str(anchored)) as anchor_file:
        held = {"file": anchor_file if is_elsewhere else None, "identity": anchor_file.identity()}
        header = file.pread(61, position=0)
        reads = DirectReads(chunk_bytes=CHUNK_BYTES)
        reads.hold_to(0, header, path=str(anchored), **held)
        assert not reads.is_anchor_in_place(), "no file was begun"
        reads.begin(file)
        assert reads.is_anchor_in_place()
        if change is not None:
            change(anchored)
        assert reads.is_anchor_in_place() == (change is None)
        reads.hold_to(0, header, file=held["file"])
        assert not reads.is_anchor_in_place(), "the path is not known"


def test_nothing_is_in_place_without_an_anchor(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(batch(0, COUNT))
    with DEFAULT_ENV.open_read(str(path)) as file:
        reads = direct_reads_of(file)
        assert not reads.is_anchor_in_place()
    with DEFAULT_ENV.open_read(str(path)) as other:
        reads.hold_to(0, path.read_bytes()[:61], file=other, path=str(path), identity=other.identity())
        assert not reads.is_anchor_in_place(), "the file that is read is closed"


def test_a_closed_file_is_left_to_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(chain.from_iterable(segments(COUNT))))
    decoder = decoder_of(path, value="copy")
    file = DEFAULT_ENV.open_read(str(path))
    reads = direct_reads_of(file)
    decoder.feed(file.pread(CHUNK_BYTES, position=0), 0)
    file.close()
    assert decoder.run(reads) == "more"
    assert decoder.position < CHUNK_BYTES
    decoder.note_last(reads)
    position, header = reads.last
    assert path.read_bytes()[position : position + len(header)] == header
    assert position < decoder.position


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="chunk_bytes must be at least 1, got 0"):
        DirectReads(chunk_bytes=0)
    reads = DirectReads(chunk_bytes=1)
    assert reads.last is None
    with pytest.raises(ValueError, match="a header has at most 61 bytes, got 62"):
        reads.hold_to(0, bytes(62))
