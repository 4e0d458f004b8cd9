"""Goal: no reader ends silently at zeros in the last segment that batches follow; zeros up to the end are its end.
Method: one batch of a small partition zeroed, read in every way; a file that a writer fills between two reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import Log, SkippedRange
from kstore.errors import CorruptRecordError
from kstore.log import open_log
from kstore.log.segment.records import fault_of_zeros
from tests.making import batches as builders
from tests.making.batches import FIRST_TIMESTAMP_MS, Layout, write_partition

BATCHES = builders.batches(0, 8, records_per_batch=4, value_bytes=40)
STARTS = [sum(map(len, BATCHES[:slot])) for slot in range(len(BATCHES) + 1)]
SPARSE_BYTES = 1 << 30


def partition(root: Path, *, zeroed: int, interval: int = 4096) -> Path:
    directory = write_partition(root, [BATCHES], layout=Layout(index_interval_bytes=interval))
    builders.zero(log_file(directory), STARTS[zeroed], size=len(BATCHES[zeroed]))
    return directory


def log_file(directory: Path) -> Path:
    return directory / f"{0:020d}.log"


def fetched(log: Log) -> list[Any]:
    offset, sizes = log.log_start_offset, []
    while records := log.fetch(offset, 1).records:
        sizes.append(len(records))
        offset += 4
    return sizes


WAYS: dict[str, Callable[[Log], Any]] = {
    "read": lambda log: list(log.read()),
    "batches": lambda log: list(log.batches()),
    "columns": lambda log: list(log.to_arrow_batches()),
    "columns by threads": lambda log: list(log.to_arrow_batches(threads=2)),
    "columns in view mode": lambda log: list(log.to_arrow_batches(binary="view")),
    "scan": lambda log: kstore.scan(log.path).to_table(),
    "plan": lambda log: kstore.scan(log.plan(max_bytes=300)).to_table(),
    "fetch": fetched,
    "offset of a time": lambda log: log.offset_for_timestamp(FIRST_TIMESTAMP_MS + 10**6),
    "offset of the largest time": lambda log: log.offset_for_timestamp(kstore.MAX_TIMESTAMP),
    "follow": lambda log: list(log.follow(timeout=0)),
}


@pytest.mark.parametrize("zeroed", [0, 3, 6])
@pytest.mark.parametrize("way", WAYS)
def test_zeros_that_batches_follow_end_no_read_silently(tmp_path: Path, way: str, zeroed: int) -> None:
    with open_log(partition(tmp_path, zeroed=zeroed)) as log, pytest.raises(CorruptRecordError) as caught:
        WAYS[way](log)
    assert caught.value.position == STARTS[zeroed]


@pytest.mark.parametrize("zeroed", [0, 3, 6])
def test_reader_that_skips_damage_reports_zeros_that_batches_follow(tmp_path: Path, zeroed: int) -> None:
    directory = partition(tmp_path, zeroed=zeroed)
    skipped: list[SkippedRange] = []
    of_columns: list[SkippedRange] = []
    with open_log(directory) as log:
        read = [record.offset for record in log.read(on_error="skip", on_skip=skipped.append)]
    table = kstore.scan(directory, on_error="skip", on_skip=of_columns.append).to_table()
    assert read == table["offset"].to_pylist() == [*range(4 * zeroed)]
    assert of_columns == skipped
    assert [(one.position, one.position + one.size_in_bytes) for one in skipped] == [(STARTS[zeroed], STARTS[-1])]


def test_batches_after_zeros_are_read_where_an_index_proves_them(tmp_path: Path) -> None:
    skipped: list[SkippedRange] = []
    with open_log(partition(tmp_path, zeroed=3, interval=1)) as log:
        read = [record.offset for record in log.read(on_error="skip", on_skip=skipped.append)]
    assert read == [*range(12), *range(16, 32)]
    assert [(one.position, one.size_in_bytes) for one in skipped] == [(STARTS[3], len(BATCHES[3]))]


@pytest.mark.parametrize("way", WAYS)
def test_zeros_up_to_the_end_are_the_end_however_many(tmp_path: Path, way: str) -> None:
    directory = write_partition(tmp_path, [BATCHES])
    with log_file(directory).open("r+b") as file:
        file.truncate(SPARSE_BYTES)
    with open_log(directory) as log:
        assert log.log_end_offset == 32
        WAYS[way](log)


class FilledFile:
    """A file of zeros that a writer fills once the first of them were read."""

    path = "x.log"

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.reads = 0

    def pread(self, size: int, *, position: int) -> bytes:
        self.reads += 1
        content = bytes(len(self.content)) if self.reads == 1 else self.content
        return content[position : position + size]

    def pread_into(self, buffer: bytearray, *, position: int) -> int:
        data = self.pread(len(buffer), position=position)
        buffer[: len(data)] = data
        return len(data)

    def skip_hole(self, position: int) -> int:
        return position


def test_zeros_that_a_writer_fills_between_two_reads_are_no_damage() -> None:
    file: Any = FilledFile(BATCHES[0])
    assert fault_of_zeros(file, position=0, end_position=len(BATCHES[0])) is None
    file = FilledFile(bytes(len(BATCHES[0])) + BATCHES[1])
    fault = fault_of_zeros(file, position=0, end_position=len(file.content))
    assert isinstance(fault, CorruptRecordError)
