"""Goal: logs that brokers wrote, converted to any format from files and from memory, hold the same records.
Method: each segment through FileRecords.to_format and down_convert, the result read by the reference codec; compared
with the records of the old sets as that codec reads them, and with the manifests of V2, made by Kafka's own classes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kstore.compression import CompressionType
from kstore.errors import UnsupportedCompressionTypeError
from kstore.log.segment.file_records import FileRecords
from kstore.record import MemoryRecords, RecordBatch, down_convert
from tests.differential.test_conversion import fitting
from tests.golden.manifests import Digest, ExpectedLog, digest_if_long, manifest
from tests.golden.places import difference
from tests.golden.sets import MAIN_SETS, MIXED_SET, OLD_FORMAT_SETS, GoldenPartition, golden_partitions
from tests.making.collecting import over
from tests.reference import messages as reference_messages

PARTITIONS = golden_partitions(*OLD_FORMAT_SETS, MIXED_SET)


@pytest.mark.parametrize("magic", [0, 1, 2])
@over("partition", PARTITIONS)
def test_segment_converts_to_the_records_that_fit(partition: GoldenPartition, magic: int) -> None:
    for log in manifest(partition).logs:
        with FileRecords.open(partition.directory / log.name, is_read_only=True) as file:
            part = file.slice(position=0, size=log.valid_bytes)
            data = bytes(part.read())
            found = b"".join(map(bytes, part.to_format(magic)))
            is_old = all(batch.magic < 2 for batch in MemoryRecords(data).batches())
            assert file.has_compatible_magic(1) == is_old, log.name
        expected = [
            fitting(record, magic=magic) if entry.magic != magic else record
            for entry in entries(data)
            for record in entry.records
            if magic == 2 or not record.is_control
        ]
        records = reference_messages.read_all(found)
        assert records == expected, difference(partition, records, expected)


def entries(data: bytes) -> list[reference_messages.Entry]:
    found, at = [], 0
    while at < len(data):
        found.append(reference_messages.read_any(data, at))
        at += found[-1].size
    return found


V2_PARTITIONS = golden_partitions(*MAIN_SETS)
Row = tuple[int, int, "bytes | Digest | None", "bytes | Digest | None"]


def rows_in(data: bytes, *, magic: int) -> list[Row]:
    """Offset, timestamp, key and value of each record, in entries of that magic alone."""
    found = entries(data)
    assert {entry.magic for entry in found} <= {magic}
    return [
        (record.offset, record.timestamp_ms, digest_if_long(record.key), digest_if_long(record.value))
        for entry in found
        for record in entry.records
    ]


def listed_rows(log: ExpectedLog, *, magic: int) -> list[Row]:
    """What the manifest lists of data records outside zstd batches; V0 has no timestamps."""
    return [
        (record.offset, record.timestamp_ms if magic else -1, record.key, record.value)
        for batch in log.batches
        if batch.codec != "zstd" and not batch.is_control
        for record in batch.records or ()
    ]


def joined(chunks: Iterable[MemoryRecords]) -> bytes:
    return b"".join(map(bytes, chunks))


def without_zstd(batches: Iterable[RecordBatch]) -> list[RecordBatch]:
    return [batch for batch in batches if batch.compression != CompressionType.ZSTD]


@over("partition", V2_PARTITIONS)
def test_batches_of_a_broker_go_down_to_v1_and_on_to_v0(partition: GoldenPartition) -> None:
    for log in manifest(partition).logs:
        with FileRecords.open(partition.directory / log.name, is_read_only=True) as file:
            part = file.slice(position=0, size=log.valid_bytes)
            v1 = joined(down_convert(without_zstd(part.batches()), magic=1))
            v0 = joined(down_convert(without_zstd(part.batches()), magic=0))
            zstd_positions = [batch.position for batch in log.batches if batch.codec == "zstd" and not batch.is_control]
            if zstd_positions:
                with pytest.raises(UnsupportedCompressionTypeError) as caught:
                    joined(part.to_format(1))
                assert caught.value.position == zstd_positions[0], log.name
            else:
                assert joined(part.to_format(1)) == v1, log.name
                assert joined(part.to_format(0)) == v0, log.name
            in_memory = MemoryRecords(bytes(part.read()))
        assert joined(down_convert(without_zstd(in_memory.batches()), magic=1)) == v1, log.name
        v0_of_v1 = joined(down_convert(MemoryRecords(v1).batches(), magic=0))
        for data, magic in ((v1, 1), (v0, 0), (v0_of_v1, 0)):
            found, expected = rows_in(data, magic=magic), listed_rows(log, magic=magic)
            assert found == expected, difference(partition, found, expected)
