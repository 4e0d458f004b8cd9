"""Goal: the compiled header walk reads every batch header that Kafka's classes listed, at the same position.
Method: read_header, check_crc and HeaderScan over each .log of each tree, field by field."""

from __future__ import annotations

from itertools import product

from kstore._core import RECORD_BATCH_OVERHEAD, HeaderScan, check_crc, read_header
from tests.golden.headers import expected_header, header_of, is_wrapper
from tests.golden.manifests import ExpectedBatch, ExpectedLog, manifest
from tests.golden.sets import ALL_SETS, GoldenPartition, golden_partitions
from tests.making.collecting import over

PARTITIONS = golden_partitions(*ALL_SETS)
CHUNK_SIZES = (RECORD_BATCH_OVERHEAD, 1000, 2**20)


@over("partition", PARTITIONS)
def test_read_header_gives_every_listed_field_and_check_crc_every_listed_validity(partition: GoldenPartition) -> None:
    for log in manifest(partition).logs:
        data = memoryview((partition.directory / log.name).read_bytes())
        for batch in log.batches:
            header = read_header(data, batch.position, position=batch.position, path=log.name)
            assert header_of(header) == expected_header(batch), (log.name, batch.position)
            assert batch.is_valid, (log.name, batch.position)
            entry = data[batch.position : batch.position + batch.size_in_bytes]
            check_crc(entry, position=batch.position, path=log.name)


@over("partition", PARTITIONS)
def test_header_scan_walks_every_listed_batch_whatever_the_chunks(partition: GoldenPartition) -> None:
    for log, chunk_bytes in product(manifest(partition).logs, CHUNK_SIZES):
        scan = HeaderScan(position=0, end_position=log.size_in_bytes, base_offset=log.base_offset)
        feed_all(scan, (partition.directory / log.name).read_bytes(), chunk_bytes=chunk_bytes)
        place = (log.name, scan.position, f"chunks of {chunk_bytes} bytes")
        assert scan.status == ("end" if log.valid_bytes == log.size_in_bytes else "zeros"), place
        assert scan.position == log.valid_bytes, place
        record_count = sum(batch.record_count for batch in log.batches if not is_wrapper(batch))
        assert (scan.batch_count, scan.record_count) == (len(log.batches), record_count), place
        assert scan.last_offset == (log.batches[-1].last_offset if log.batches else -1), place
        assert (scan.max_timestamp_ms, scan.offset_of_max_timestamp) == expected_max_timestamp(log), place


def feed_all(scan: HeaderScan, data: bytes, *, chunk_bytes: int) -> None:
    position = scan.position
    while scan.status == "more":
        position = scan.feed(data[position : position + chunk_bytes], position)


def expected_max_timestamp(log: ExpectedLog) -> tuple[int, int]:
    largest, offset = -1, -1
    for batch in log.batches:
        if batch.max_timestamp_ms > largest:
            largest, offset = batch.max_timestamp_ms, batch.last_offset
    return largest, offset


@over("partition", PARTITIONS)
def test_header_scan_stops_at_the_batch_that_holds_the_offset(partition: GoldenPartition) -> None:
    for log in manifest(partition).logs:
        data = (partition.directory / log.name).read_bytes()
        for batch in sample(log.batches):
            for offset in {batch.base_offset, batch.last_offset}:
                scan = HeaderScan(position=0, end_position=log.size_in_bytes, stop_offset=offset)
                feed_all(scan, data, chunk_bytes=4096)
                place = (log.name, batch.position, f"offset {offset}")
                assert scan.status == "found", place
                assert scan.found is not None, place
                assert header_of(scan.found) == expected_header(batch), place


def sample(batches: tuple[ExpectedBatch, ...]) -> tuple[ExpectedBatch, ...]:
    """Take at most about forty batches, the first and the last among them."""
    step = max(1, len(batches) // 40)
    return (*batches[::step], *batches[-1:])
