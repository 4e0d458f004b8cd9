"""Goal: no reader ends silently at zeros, or at a batch that seems incomplete, where batches follow it in the segment;
zeros up to the end, and what a writer has not finished, are its end.
Method: one batch of a small partition zeroed, or its size changed, read in every way; files that a writer fills between
two reads, or has filled in part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import Log, SkippedRange
from kstore.config import LogConfig
from kstore.errors import CorruptRecordError
from kstore.log.files.records import fault_of_zeros
from kstore.store.opening import open_log
from tests.making import batches as builders
from tests.making.batches import FIRST_TIMESTAMP_MS, Layout, write_partition
from tests.reference.codec import write_batch

BATCHES = builders.batches(0, 8, records_per_batch=4, value_bytes=40)
PAGE_BYTES = 4096
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
    assert read == table["offset"].to_pylist() == [*range(4 * zeroed), *range(4 * zeroed + 4, 32)]
    assert of_columns == skipped
    assert [(one.position, one.size_in_bytes) for one in skipped] == [(STARTS[zeroed], len(BATCHES[zeroed]))]


@pytest.mark.parametrize("interval", [1, 4096])
def test_batches_after_zeros_are_read_with_and_without_an_index_that_proves_them(tmp_path: Path, interval: int) -> None:
    skipped: list[SkippedRange] = []
    with open_log(partition(tmp_path, zeroed=3, interval=interval)) as log:
        read = [record.offset for record in log.read(on_error="skip", on_skip=skipped.append)]
    assert read == [*range(12), *range(16, 32)]
    assert [(one.position, one.size_in_bytes) for one in skipped] == [(STARTS[3], len(BATCHES[3]))]


def test_batches_farther_from_zeros_that_took_no_offset_than_the_largest_batch_is_long_are_read(tmp_path: Path) -> None:
    segment = builders.batches(0, 12, records_per_batch=4, value_bytes=40)
    directory = write_partition(tmp_path, [segment])
    content = log_file(directory).read_bytes()
    log_file(directory).write_bytes(content[: STARTS[3]] + bytes(len(BATCHES[3])) + content[STARTS[3] :])
    log_file(directory).with_suffix(".index").unlink()
    config = LogConfig(max_batch_bytes=3 * len(BATCHES[3]))
    skipped: list[SkippedRange] = []
    with open_log(directory, config=config) as log:
        read = [record.offset for record in log.read(on_error="skip", on_skip=skipped.append)]
    table = kstore.scan(directory, config=config, on_error="skip", on_skip=lambda _: None).to_table()
    assert read == table["offset"].to_pylist() == [*range(12), *range(28, 48)]
    assert [(one.position, one.last_missing_offset) for one in skipped] == [(STARTS[3], 27)]


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


# A size that leads past the end of the file


CRC_AT, SIZE_AT, MAX_TIMESTAMP_AT = 17, 8, 40
FIELDS = {"size": (SIZE_AT,), "size and crc": (SIZE_AT, CRC_AT)}


def with_damaged_size(
    root: Path, *, slot: int, fields: tuple[int, ...], interval: int = 4096, more: bytes = b""
) -> Path:
    directory = write_partition(root, [BATCHES], layout=Layout(index_interval_bytes=interval))
    log_file(directory).write_bytes(b"".join(BATCHES) + more)
    for at in fields:
        builders.flip_bit(log_file(directory), STARTS[slot] + at + 1, bit=4)
    return directory


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("slot", "fields", "interval"),
    [(3, "size", 4096), (7, "size", 4096), (3, "size and crc", 4096), (0, "size", 4096), (3, "size and crc", 1)],
)
def test_size_past_the_end_ends_no_read_silently_where_a_batch_is_whole(
    tmp_path: Path, way: str, slot: int, fields: str, interval: int
) -> None:
    directory = with_damaged_size(tmp_path, slot=slot, fields=FIELDS[fields], interval=interval)
    with open_log(directory) as log, pytest.raises(CorruptRecordError) as caught:
        WAYS[way](log)
    assert caught.value.position == STARTS[slot]


@pytest.mark.parametrize("more", [b"", builders.batch(32, 4)[:-7]], ids=["whole", "incomplete"])
def test_size_past_the_end_is_found_beside_an_incomplete_last_batch(tmp_path: Path, more: bytes) -> None:
    for interval, fields in ((4096, FIELDS["size"]), (1, FIELDS["size and crc"])):
        directory = with_damaged_size(tmp_path / str(interval), slot=3, fields=fields, interval=interval, more=more)
        with open_log(directory) as log, pytest.raises(CorruptRecordError):
            list(log.read())
        with pytest.raises(CorruptRecordError):
            kstore.scan(directory).to_table()
        skipped: list[SkippedRange] = []
        with open_log(directory) as log:
            read = [record.offset for record in log.read(on_error="skip", on_skip=skipped.append)]
        assert read == [*range(12), *range(16, 32)]
        assert [(one.position, one.size_in_bytes) for one in skipped] == [(STARTS[3], len(BATCHES[3]))]


def test_batches_after_a_size_past_the_end_are_read_where_they_lead_to_the_end(tmp_path: Path) -> None:
    directory = with_damaged_size(tmp_path, slot=3, fields=FIELDS["size and crc"])
    skipped: list[SkippedRange] = []
    with open_log(directory) as log:
        read = [record.offset for record in log.read(on_error="skip", on_skip=skipped.append)]
    table = kstore.scan(directory, on_error="skip", on_skip=skipped.append).to_table()
    assert read == table["offset"].to_pylist() == [*range(12), *range(16, 32)]
    assert [(one.position, one.size_in_bytes) for one in skipped] == 2 * [(STARTS[3], len(BATCHES[3]))]


def holding_batches(before: int) -> tuple[bytes, list[int]]:
    """A batch for position `before`, whose value is a row of batches of which one ends where a page does; the ends of
    these.
    """
    inner = [write_batch([builders.record(offset, b"w" * 40)]) for offset in range(40, 140)]
    size = len(inner[0])
    for padding in range(size):
        data = write_batch([builders.record(32, b"p" * padding + b"".join(inner))])
        first = before + data.index(inner[0])
        ends = [*range(first + size, first + size * len(inner) + 1, size)]
        if any(end % PAGE_BYTES == 0 for end in ends):
            return data, ends
    raise AssertionError("no batch ends where a page does")


@pytest.mark.parametrize("way", WAYS)
def test_append_that_is_not_finished_is_the_end_whatever_its_value_holds(tmp_path: Path, way: str) -> None:
    data, ends = holding_batches(STARTS[-1])
    directory = write_partition(tmp_path, [BATCHES])
    whole = b"".join(BATCHES) + data
    at_pages = [end for end in ends if end % PAGE_BYTES == 0]
    assert at_pages
    for end in (*at_pages, ends[3] - 1, ends[3] + 1, ends[0] - 30, STARTS[-1] + 5, STARTS[-1] + 61, len(whole) - 2):
        log_file(directory).write_bytes(whole[:end])
        with open_log(directory) as log:
            assert log.log_end_offset == 32
            WAYS[way](log)


def test_append_that_is_finished_between_two_looks_is_no_damage(tmp_path: Path) -> None:
    data, ends = holding_batches(STARTS[-1])
    directory = write_partition(tmp_path, [BATCHES])
    content = b"".join(BATCHES) + data
    log_file(directory).write_bytes(content[: ends[3]])
    with open_log(directory) as log, pytest.raises(CorruptRecordError):
        list(log.read())
    with open_log(directory) as log:
        log_file(directory).write_bytes(content)
        assert [record.offset for record in log.read()] == [*range(32)]


# Searches by time


@pytest.mark.parametrize("time", [FIRST_TIMESTAMP_MS + 30, FIRST_TIMESTAMP_MS + 10**6, kstore.MAX_TIMESTAMP])
@pytest.mark.parametrize("has_empty_segment", [False, True])
def test_damaged_timestamp_of_the_last_batch_is_no_answer(tmp_path: Path, time: int, has_empty_segment: bool) -> None:
    """Its header says that no record of it is as late as those of the batch before."""
    directory = write_partition(tmp_path, [BATCHES])
    if has_empty_segment:
        (directory / f"{32:020d}.log").touch()
    with open_log(directory) as log:
        log.offset_for_timestamp(time)
    builders.flip_bit(log_file(directory), STARTS[7] + MAX_TIMESTAMP_AT, bit=5)
    for _ in range(2):
        with open_log(directory) as log, pytest.raises(CorruptRecordError) as caught:
            log.offset_for_timestamp(time)
        assert caught.value.position == STARTS[7]
