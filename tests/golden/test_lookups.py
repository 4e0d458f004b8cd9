"""Goal: kstore answers ListOffsets and Fetch as the running broker did from the same files.
Method: every read_uncommitted answer recorded from the live brokers, asked of Log over what they left on disk."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kstore import open_log
from kstore.errors import OffsetOutOfRangeError
from kstore.log.log import Log
from kstore.log.source import FetchData
from kstore.record import MemoryRecords
from tests.golden.manifests import manifest
from tests.golden.oracle import find_batch, first_qualifying_segment_has_no_such_record, offset_for_timestamp
from tests.golden.probes import EARLIEST, LATEST, FetchProbe, fetch_probes, list_offsets_probes, probed
from tests.golden.sets import ALL_SETS, EPOCHS_SET, OLD_FORMAT_SETS, GoldenPartition, golden_partitions
from tests.making.collecting import over

PROBED = probed(golden_partitions(*ALL_SETS))
TIME_PROBED = [partition for partition in PROBED if partition.set_name != EPOCHS_SET]


@over("partition", PROBED)
def test_fetch_gives_the_bytes_and_watermarks_that_the_broker_gave(
    partition: GoldenPartition, unchanged: Callable[[Path], None]
) -> None:
    unchanged(partition.directory)
    probes = fetch_probes(partition)
    assert probes
    fetch = partial(fetched, min_one_batch=partition.set_name not in OLD_FORMAT_SETS)
    with open_log(partition.directory) as log:
        for probe in probes:
            if probe.out_of_range:
                with pytest.raises(OffsetOutOfRangeError) as caught:
                    fetch(log, probe)
                assert caught.value.offset == probe.fetch_offset, probe
                assert caught.value.log_start_offset == log.log_start_offset, probe
                assert caught.value.log_end_offset == log.log_end_offset, probe
            else:
                check_fetch(fetch(log, probe), probe, partition)


def fetched(log: Log, probe: FetchProbe, *, min_one_batch: bool) -> FetchData:
    return log.fetch(probe.fetch_offset, probe.max_bytes, min_one_batch=min_one_batch)


def check_fetch(data: FetchData, probe: FetchProbe, partition: GoldenPartition) -> None:
    assert len(data.records) == probe.size_in_bytes, probe
    assert data.high_watermark == probe.high_watermark, probe
    assert probe.log_start_offset in (None, data.log_start_offset), probe
    if not data.records:
        return
    first = find_batch(partition, probe.fetch_offset)
    assert first is not None
    place = (first.log.name, first.batch.position, probe)
    assert data.base_offset == first.batch.base_offset, place
    assert hashlib.sha256(data.records).hexdigest() == probe.sha256, place
    stored_offset, size = struct.unpack(">qi", data.records[:12])
    assert (stored_offset, size + 12) == (probe.first_entry_offset, probe.first_entry_size), place
    batches = list(MemoryRecords(data.records).batches())
    last_offset = batches[-1].last_offset if batches else -1
    assert (len(batches), last_offset) == (probe.complete_batches, probe.last_complete_offset), probe
    offsets = (record.offset for batch in batches for record in batch if record.offset >= probe.fetch_offset)
    assert next(offsets, -1) == probe.first_record_at_or_after, probe


@over("partition", TIME_PROBED)
def test_offsets_are_the_ones_that_the_broker_listed(partition: GoldenPartition) -> None:
    """Where the broker looked into an emptied segment only and said none, kstore gives the record that exists."""
    with open_log(partition.directory) as log:
        for probe in list_offsets_probes(partition):
            if probe.query_timestamp == EARLIEST:
                assert log.log_start_offset == probe.offset
            elif probe.query_timestamp == LATEST:
                assert log.log_end_offset == probe.offset
            elif probe.query_timestamp >= 0:
                expected = None if probe.offset < 0 else (probe.offset, probe.timestamp_ms)
                if first_qualifying_segment_has_no_such_record(partition, probe.query_timestamp):
                    assert expected is None, probe
                    expected = offset_for_timestamp(partition, probe.query_timestamp)
                assert log.offset_for_timestamp(probe.query_timestamp) == expected, probe


@over("partition", TIME_PROBED)
def test_time_beyond_the_last_record_has_no_offset(partition: GoldenPartition) -> None:
    largest = max((batch.max_timestamp_ms for batch in manifest(partition).batches()), default=0)
    with open_log(partition.directory) as log:
        assert log.offset_for_timestamp(largest + 1) is None
