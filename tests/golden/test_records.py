"""Goal: every record that Kafka's classes listed is read with the same fields, whichever way it is read.
Method: RecordBatch, MemoryRecords and Log.read against manifests, canonical hashes and what a real consumer got."""

from __future__ import annotations

import base64
from pathlib import Path

from kstore import open_log
from kstore.record import MemoryRecords, Record, RecordBatch
from kstore.types import TimestampType, TopicPartition
from tests.golden.manifests import ExpectedRecord, manifest
from tests.golden.oracle import log_start_offset
from tests.golden.places import difference
from tests.golden.records import as_listed, header_bytes, records_sha256
from tests.golden.sets import (
    EPOCHS_SET,
    MAIN_SETS,
    MIXED_SET,
    OLD_FORMAT_SETS,
    SIGKILL_SET,
    GoldenPartition,
    golden_partitions,
    unpack,
)
from tests.making.collecting import over

LISTED_PARTITIONS = golden_partitions(*MAIN_SETS, EPOCHS_SET, SIGKILL_SET, *OLD_FORMAT_SETS, MIXED_SET)
BOUNDED_PARTITIONS = golden_partitions("main-1.1.1", "main-4.4.0", *OLD_FORMAT_SETS, MIXED_SET)
CONSUMED = [
    GoldenPartition(set_name, "data", name)
    for set_name in MAIN_SETS
    for name in ("txn-0", "txn-1", "txn-2", "txn-single-0", "compact-txn-0", "compact-txndrop-0", "compact-drop-0")
]


@over("partition", LISTED_PARTITIONS)
def test_record_batch_iterates_the_listed_records(partition: GoldenPartition) -> None:
    topic_partition = TopicPartition(partition.topic, partition.partition)
    for log in manifest(partition).logs:
        data = (partition.directory / log.name).read_bytes()
        for expected in log.batches:
            entry = data[expected.position : expected.position + expected.size_in_bytes]
            records = list(RecordBatch(entry, position=expected.position, topic_partition=topic_partition))
            place = (log.name, expected.position)
            assert [as_listed(record) for record in records] == list(expected.records or ()), place
            assert {record.timestamp_type.label for record in records} <= {expected.timestamp_type}, place
            assert {record.topic_partition for record in records} <= {topic_partition}, place


@over("partition", LISTED_PARTITIONS)
def test_records_of_each_segment_have_the_canonical_hash(partition: GoldenPartition) -> None:
    for log in manifest(partition).logs:
        data = (partition.directory / log.name).read_bytes()[: log.valid_bytes]
        assert records_sha256(MemoryRecords(data)) == log.canonical_records_sha256, log.name


@over("partition", LISTED_PARTITIONS)
def test_log_read_gives_the_listed_data_records_from_the_log_start_on(partition: GoldenPartition) -> None:
    start = log_start_offset(partition)
    with open_log(partition.directory) as log:
        found = [as_listed(record) for record in log.read()]
    expected = data_records(partition, start_offset=start)
    assert found == expected, difference(partition, found, expected)


def data_records(
    partition: GoldenPartition, *, start_offset: int, end_offset: int | None = None
) -> list[ExpectedRecord]:
    """Return the listed records of [start_offset, end_offset), control records left out."""
    return [
        record
        for record in manifest(partition).records()
        if record.offset >= start_offset
        and (end_offset is None or record.offset < end_offset)
        and record.control_type is None
    ]


@over("partition", BOUNDED_PARTITIONS)
def test_log_read_starts_and_ends_at_the_asked_offsets(partition: GoldenPartition) -> None:
    start, end = log_start_offset(partition), manifest(partition).end_offset
    with open_log(partition.directory) as log:
        for first, last in bounds_between(start, end):
            expected = data_records(partition, start_offset=first, end_offset=last)
            for records in (log.read(first, last), log.read(first, last, verify="header")):
                found = [as_listed(record) for record in records]
                assert found == expected, (first, last, difference(partition, found, expected))


@over("partition", LISTED_PARTITIONS)
def test_each_offset_has_the_listed_record(partition: GoldenPartition) -> None:
    start, end = log_start_offset(partition), manifest(partition).end_offset
    expected = {record.offset: record for record in data_records(partition, start_offset=start)}
    step = max((end - start) // 40, 1)
    with open_log(partition.directory) as log:
        for offset in (*range(start, end, step), end - 1, end, start - 1):
            record = log.get(offset) if offset >= 0 else None
            assert (record and as_listed(record)) == expected.get(offset), offset


def bounds_between(start: int, end: int) -> list[tuple[int, int]]:
    """Return offset ranges: empty, one offset, odd cuts (mostly inside batches) and the whole."""
    third = (end - start) // 3
    return [
        (start, end),
        (start, start),
        (end, end),
        (start, min(start + 1, end)),
        (max(end - 1, start), end),
        (start + third, end),
        (start, end - third),
        (min(start + third + 1, end - third), end - third),
    ]


@over("partition", CONSUMED)
def test_log_read_gives_what_a_read_uncommitted_consumer_got(partition: GoldenPartition) -> None:
    consumed = unpack(partition.set_name, "consumed") / "consumed" / f"{partition.name}.read_uncommitted.tsv"
    with open_log(partition.directory) as log:
        found = [(record.offset, consumed_line(record)) for record in log.read()]
    expected = [(int(line.partition("\t")[0]), line) for line in consumed_lines(consumed)]
    assert found == expected, difference(partition, found, expected)


def consumed_lines(path: Path) -> list[str]:
    return [line for line in path.read_text().split("\n") if line and not line.startswith("#")]


def consumed_line(record: Record) -> str:
    """Write a record as the consumer wrote it down: base64 fields, ~ for null, headers as key:value,key:value."""
    headers = ",".join(f"{encoded(key)}:{encoded(value)}" for key, value in header_bytes(record))
    label = TimestampType(record.timestamp_type).label
    fields = (str(record.offset), str(record.timestamp_ms), label, encoded(record.key), encoded(record.value), headers)
    return "\t".join(fields)


def encoded(data: bytes | None) -> str:
    return "~" if data is None else base64.b64encode(data).decode()
