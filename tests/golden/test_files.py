"""Goal: the packed sets are what the brokers left, and the test oracle says what those brokers said.
Method: sha256 of every unpacked file against the manifests; the manifest oracle against the live brokers' answers."""

from __future__ import annotations

import hashlib

import pytest

from tests.golden.manifests import CanonicalRecord, Digest, ExpectedLog, canonical_sha256, manifest
from tests.golden.oracle import (
    fetch_bytes,
    first_qualifying_segment_has_no_such_record,
    high_watermark,
    log_start_offset,
    offset_for_timestamp,
)
from tests.golden.probes import EARLIEST, LATEST, fetch_probes, list_offsets_probes, probed
from tests.golden.sets import EPOCHS_SET, REALDATA_SET, GoldenPartition, golden_partitions, partition_names
from tests.making.collecting import over

EVERY_PARTITION = golden_partitions(*partition_names())
PROBED = probed(EVERY_PARTITION)
PROBED_WITH_RECORDS = [partition for partition in PROBED if partition.set_name not in (REALDATA_SET, EPOCHS_SET)]


@over("partition", EVERY_PARTITION)
def test_every_file_has_the_size_and_sha256_of_the_manifest(partition: GoldenPartition) -> None:
    found = {path.name: path.read_bytes() for path in partition.directory.iterdir()}
    listed = {file.name: (file.size, file.sha256) for file in manifest(partition).files}
    assert {name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in found.items()} == listed


@pytest.mark.parametrize("set_name", partition_names())
def test_partitions_json_lists_every_partition_directory(set_name: str) -> None:
    listed = golden_partitions(set_name)
    root = listed[0].root.parent
    found = {(tree.name, path.name) for tree in root.iterdir() for path in tree.iterdir() if path.is_dir()}
    assert found == {(partition.tree, partition.name) for partition in listed}


@pytest.mark.parametrize("set_name", [name for name in partition_names() if name != REALDATA_SET])
def test_canonical_hash_of_the_listed_records_is_the_manifest_s(set_name: str) -> None:
    logs = [log for partition in golden_partitions(set_name) for log in manifest(partition).logs]
    hashable = {log.canonical_records_sha256: records for log in logs if (records := _listed_in_full(log))}
    assert hashable
    assert {expected: canonical_sha256(records) for expected, records in hashable.items()} == {
        expected: expected for expected in hashable
    }


def _listed_in_full(log: ExpectedLog) -> list[CanonicalRecord]:
    """Return the records of a log, none if one of them is listed by its digest only."""
    records: list[CanonicalRecord] = []
    for batch in log.batches:
        for record in batch.records or ():
            if isinstance(record.key, Digest) or isinstance(record.value, Digest):
                return []
            records.append((record.offset, record.timestamp_ms, record.key, record.value, record.headers))
    return records


@over("partition", PROBED)
def test_oracle_fetches_the_bytes_that_the_broker_sent(partition: GoldenPartition) -> None:
    for probe in fetch_probes(partition):
        start, end = log_start_offset(partition), manifest(partition).end_offset
        assert probe.out_of_range == (not start <= probe.fetch_offset <= end), probe
        if not probe.out_of_range:
            data = fetch_bytes(partition, probe.fetch_offset, max_bytes=probe.max_bytes)
            assert len(data) == probe.size_in_bytes, probe
            assert hashlib.sha256(data).hexdigest() == probe.sha256 or not data, probe
            assert probe.log_start_offset in (None, start), probe
            assert probe.high_watermark == high_watermark(partition), probe


@over("partition", PROBED_WITH_RECORDS)
def test_oracle_finds_the_offsets_that_the_broker_listed(partition: GoldenPartition) -> None:
    for probe in list_offsets_probes(partition):
        if probe.query_timestamp == EARLIEST:
            assert log_start_offset(partition) == probe.offset
        elif probe.query_timestamp == LATEST:
            assert manifest(partition).end_offset == probe.offset
        elif probe.query_timestamp >= 0:
            found = offset_for_timestamp(partition, probe.query_timestamp) or (-1, -1)
            if first_qualifying_segment_has_no_such_record(partition, probe.query_timestamp):
                found = (-1, -1)
            assert found == (probe.offset, probe.timestamp_ms), probe
