"""Goal: RecordBatch and Log give every batch that Kafka's classes listed, and the listed bounds of the log.
Method: every field of every batch of each tree, whatever its magic, against the manifests."""

from __future__ import annotations

import pytest

from kstore import open_log
from kstore.config import LogConfig
from kstore.record import RecordBatch
from tests.golden.headers import batch_fields, expected_batch
from tests.golden.manifests import manifest
from tests.golden.oracle import high_watermark, log_start_offset
from tests.golden.places import difference
from tests.golden.sets import ALL_SETS, MIXED_SET, GoldenPartition, golden_partitions
from tests.making.collecting import over

PARTITIONS = golden_partitions(*ALL_SETS)


@over("partition", PARTITIONS)
def test_record_batch_gives_every_listed_field_and_its_own_bytes(partition: GoldenPartition) -> None:
    for log in manifest(partition).logs:
        path = partition.directory / log.name
        data = path.read_bytes()
        for expected in log.batches:
            entry = data[expected.position : expected.position + expected.size_in_bytes]
            batch = RecordBatch(entry, position=expected.position, path=str(path))
            batch.verify()
            place = (log.name, expected.position)
            assert batch_fields(batch) == expected_batch(expected), place
            assert (len(batch), batch.next_offset) == (expected.record_count, expected.last_offset + 1), place
            assert bytes(batch) == entry, place


@over("partition", PARTITIONS)
def test_log_batches_are_the_listed_ones_from_the_log_start_on(partition: GoldenPartition) -> None:
    start = log_start_offset(partition)
    expected = [expected_batch(batch) for batch in manifest(partition).batches() if batch.last_offset >= start]
    with open_log(partition.directory) as log:
        found = [batch_fields(batch) for batch in log.batches()]
    assert found == expected, difference(partition, found, expected)


@pytest.mark.parametrize("read_chunk_bytes", [4096, 10_000], ids=["4-kib", "10000-bytes"])
@over("partition", golden_partitions("main-4.4.0", MIXED_SET))
def test_log_batches_do_not_depend_on_the_size_of_a_read(partition: GoldenPartition, read_chunk_bytes: int) -> None:
    start = log_start_offset(partition)
    expected = [expected_batch(batch) for batch in manifest(partition).batches() if batch.last_offset >= start]
    with open_log(partition.directory, config=LogConfig(read_chunk_bytes=read_chunk_bytes)) as log:
        found = [batch_fields(batch) for batch in log.batches()]
    assert found == expected, difference(partition, found, expected)


@over("partition", PARTITIONS)
def test_segments_and_offsets_of_the_log_are_the_listed_ones(partition: GoldenPartition) -> None:
    listed = manifest(partition)
    with open_log(partition.directory) as log:
        assert [segment.base_offset for segment in log.segments] == [log.base_offset for log in listed.logs]
        assert (log.topic_partition.topic, log.topic_partition.partition) == (partition.topic, partition.partition)
        assert log.log_start_offset == log_start_offset(partition)
        assert log.log_end_offset == listed.end_offset
        assert log.high_watermark == high_watermark(partition)
