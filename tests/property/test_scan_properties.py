"""Goal: the header-only walk stops where the reference walk stops, whatever the chunks and the damage.

Method: Hypothesis writes a log, overwrites header bytes, cuts or pads it, and feeds it in chunks of any size; and the
log is read from a file without indexes, with and without a header walk before that finds its end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kstore import _core
from kstore.config import LogConfig
from kstore.errors import KStoreError
from kstore.log.log import Log
from kstore.store.opening import open_log
from tests.making import strategies
from tests.making.batches import batch
from tests.reference import codec as reference
from tests.reference.walk import Walk, walk


def core_walk(data: bytes, *, position: int, chunk_sizes: list[int], **options: Any) -> Walk:
    scan = _core.HeaderScan(position=position, end_position=len(data), **options)
    wanted, turn = position, 0
    while scan.status == "more":
        size = chunk_sizes[turn % len(chunk_sizes)]
        turn += 1
        wanted = scan.feed(data[wanted : wanted + size], wanted)
    return Walk(
        status=scan.status,
        position=scan.position,
        found=None if scan.found is None else reference.Header.unpack(data, scan.found.position),
        error=None if scan.error is None else type(scan.error).__name__,
        batch_count=scan.batch_count,
        record_count=scan.record_count,
        last_offset=scan.last_offset,
        max_timestamp_ms=scan.max_timestamp_ms,
        offset_of_max_timestamp=scan.offset_of_max_timestamp,
    )


@st.composite
def damaged_logs(draw: st.DrawFn) -> bytes:
    """A log with up to two header bytes overwritten, and perhaps cut or padded."""
    data = bytearray(draw(strategies.logs()))
    starts = [batch.position for batch in reference.read_batches(bytes(data))]
    for _ in range(draw(st.integers(0, 2)) if starts else 0):
        place = draw(st.sampled_from(starts)) + draw(st.integers(0, 60))
        data[place] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    tail = draw(st.sampled_from([b"", b"", bytes(16), bytes(100), b"\x00\x01", b"\xff" * 70]))
    cut = draw(st.sampled_from([0, 0, 1, 50, 61, 62]))
    return bytes(data[: max(0, len(data) - cut)] + tail)


stops = st.fixed_dictionaries(
    {},
    optional={
        "stop_offset": st.one_of(st.integers(0, 40), st.integers(2**31 - 5, 2**31 + 40)),
        "stop_timestamp_ms": strategies.timestamps(),
        "base_offset": st.integers(0, 10),
        "previous_last_offset": st.integers(-1, 10),
        "max_batch_bytes": st.sampled_from([61, 200, 100 << 20]),
    },
)


@given(data=damaged_logs(), chunk_sizes=st.lists(st.integers(61, 400), min_size=1, max_size=4), options=stops)
def test_walk_stops_where_the_reference_stops(data: bytes, chunk_sizes: list[int], options: dict[str, Any]) -> None:
    options.setdefault("max_batch_bytes", reference.MAX_BATCH_BYTES)
    expected = walk(data, **options)
    assert core_walk(data, position=0, chunk_sizes=chunk_sizes, **options) == expected


@given(data=strategies.logs(), number=st.integers(0, 4))
def test_walk_from_any_batch_covers_the_rest(data: bytes, number: int) -> None:
    starts = [batch.position for batch in reference.read_batches(data)] + [len(data)]
    position = starts[min(number, len(starts) - 1)]
    assert core_walk(data, position=position, chunk_sizes=[4096]) == walk(data, position=position)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scan") / "t-0"
    path.mkdir()
    return path


# The batch after the one with a wrong size tells that the size is wrong.
SIZE_PAST_THE_END = b"\0" * 8 + b"\1" + batch(0)[9:] + batch(1)


@example(data=SIZE_PAST_THE_END, read_chunk_bytes=4096, threads=1)
@given(data=damaged_logs(), read_chunk_bytes=st.sampled_from([4096, 1 << 20]), threads=st.sampled_from([1, 1, 1, 2]))
def test_scan_that_finds_the_end_itself_gives_what_one_after_a_walk_gives(
    directory: Path, data: bytes, read_chunk_bytes: int, threads: int
) -> None:
    (directory / f"{0:020}.log").write_bytes(data)
    config = LogConfig(read_chunk_bytes=read_chunk_bytes)
    with open_log(directory, config=config) as log:
        assert log.log_end_offset >= 0
        after_a_walk = outcome(log, threads=1)
    with open_log(directory, config=config) as log:
        assert outcome(log, threads=threads) == after_a_walk


def outcome(log: Log, *, threads: int) -> tuple[list[tuple[int, bytes | None]], str]:
    """Return the rows that a scan gives, and the error that ends it."""
    rows: list[tuple[int, bytes | None]] = []
    try:
        for batch in log.to_arrow_batches(columns=["offset", "value"], batch_bytes=1, threads=threads):
            rows += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
    except KStoreError as error:
        return rows, repr(error)
    return rows, ""
