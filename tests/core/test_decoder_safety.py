"""Goal: no order of calls, failed allocation or odd record size makes the columnar decoder touch memory not its own.

Method: calls from inside decompress, allocations that fail one after the other, errors in mid-batch, large chunks.
"""

from __future__ import annotations

import mmap
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kstore import _core
from kstore.compression import decompress
from kstore.errors import InvalidRecordError
from tests.making import batches as builders
from tests.making.batches import record
from tests.making.columns import Row, Table, Wanted, add_columns, expected_rows
from tests.making.source_tree import ROOT
from tests.reference import codec as reference
from tests.reference import codecs as codecs

MIB = 1 << 20
_testcapi = pytest.importorskip("_testcapi", reason="CPython was built without its test module")


def decoder(wanted: Wanted, decompress: Callable[..., Any] = decompress) -> _core.ColumnDecoder:
    modes: dict[str, Any] = {"key": wanted.key, "value": wanted.value}
    return _core.ColumnDecoder(
        **modes,
        offset=wanted.offset,
        timestamp=wanted.timestamp,
        headers=wanted.headers,
        batch_bytes=wanted.batch_bytes,
        max_batch_bytes=wanted.max_batch_bytes,
        max_decompressed_bytes=wanted.max_decompressed_bytes,
        decompress=decompress,
    )


def fed(wanted: Wanted, log: bytes, decompress: Callable[..., Any] = decompress) -> _core.ColumnDecoder:
    read = decoder(wanted, decompress)
    read.start_file(position=0, end_position=len(log))
    read.feed(log, 0)
    return read


def rows_of(columns: _core.Columns, wanted: Wanted) -> list[Row]:
    table = Table()
    add_columns(table, columns, wanted)
    return table.rows


CALLS = {
    "take": lambda read: read.take(),
    "run": lambda read: read.run(),
    "feed": lambda read: read.feed(b"", 0),
    "start_file": lambda read: read.start_file(position=0, end_position=0),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_calls_while_the_decoder_runs_are_misuse(call: Callable[[_core.ColumnDecoder], object]) -> None:
    seen: list[object] = []

    def calls_back(codec: int, payload: Any, limit: int) -> Any:
        with pytest.raises(ValueError, match="decoder is running") as caught:
            call(read)
        seen.append(caught)
        return decompress(codec, payload, limit)

    wanted = Wanted()
    read = fed(wanted, builders.batch(0, 10, codec=codecs.ZSTD), calls_back)
    assert read.run() == "done"
    assert len(seen) == 1
    assert rows_of(read.take(), wanted) == expected_rows(builders.records(0, 10), wanted)


def fail_each_allocation(mode: Any, codec: int) -> None:
    """Let one allocation of a run fail, a later one in each turn, until the run needs none that late."""
    wanted = Wanted(key=mode, value=mode, batch_bytes=4 * MIB)
    records = [record(n, b"v" * (n % 50), b"k", headers=[(b"h" * 30, b"x" * 100)] * 40) for n in range(60)]
    log = reference.write_batch(records, codec=codec)
    expected = expected_rows(records, wanted)
    failures = 0
    while True:
        read = fed(wanted, log)
        _testcapi.set_nomemory(failures + 1, failures + 2)
        try:
            read.run()
            break
        except MemoryError:
            failures += 1
        finally:
            _testcapi.remove_mem_hooks()
        assert read.run() == "done"
        assert rows_of(read.take(), wanted) == expected
    assert failures > 10


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.SNAPPY, codecs.LZ4], ids=["none", "snappy", "lz4"])
@pytest.mark.parametrize("mode", ["copy", "view", "string"])
def test_run_after_a_failed_allocation_goes_on_where_it_stopped(mode: str, codec: int) -> None:
    # In a process of its own: another thread here might be the one whose allocation fails.
    code = f"from {__name__} import fail_each_allocation as fail; fail({mode!r}, {codec})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mode", ["copy", "view", "string"])
def test_rows_before_a_bad_record_can_be_taken_after_the_error(mode: str) -> None:
    wanted = Wanted(key=mode, value=mode)
    records = [record(0, b"one", b"a"), record(1, b"two")]
    read = fed(wanted, reference.write_batch([*records, record(1, None)], last_offset=2))
    for _ in range(2):
        with pytest.raises(InvalidRecordError, match="offset delta out of order"):
            read.run()
    columns = read.take()
    assert rows_of(columns, wanted) == expected_rows(records, wanted)
    assert (columns.key is not None and columns.key[0], columns.value is not None and columns.value[0]) == (1, 0)


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.LZ4], ids=["chunks", "payloads"])
def test_views_of_small_keys_keep_a_bounded_part_of_large_batches(codec: int) -> None:
    wanted = Wanted(offset=False, timestamp=False, key="view", value=None, headers=False)
    batch = reference.write_batch([record(0, b"." * MIB, b"a key of 20 bytes ..")], codec=codec)
    log = b"".join(n.to_bytes(8, "big") + batch[8:] for n in range(40))
    read = decoder(wanted)
    read.start_file(position=0, end_position=len(log))
    kept: list[int] = []
    row_count = 0

    def take() -> None:
        nonlocal row_count
        columns = read.take()
        assert columns.key is not None
        kept.append(sum(len(memoryview(buffer)) for buffer in columns.key[3]))
        row_count += columns.row_count

    while (progress := read.run()) != "done":
        if progress == "full":
            take()
        else:
            read.feed(log[read.position : read.position + 2 * MIB], read.position)
    take()
    assert row_count == 40
    assert max(kept) <= 16 * MIB + 2 * wanted.batch_bytes + 4 * MIB


def test_chunk_that_view_offsets_cannot_reach_is_misuse() -> None:
    with mmap.mmap(-1, 2**31) as chunk:
        read = decoder(Wanted(key="view"))
        read.start_file(position=0, end_position=2**31)
        with pytest.raises(ValueError, match="at most 2147483647 bytes"):
            read.feed(chunk, 0)
