"""Goal: every control record that a broker wrote becomes a typed object, and its bytes again.
Method: each control record of each manifest, type and coordinator epoch against what Kafka's classes read."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest

from kstore.record.control import EndTransactionMarker, UnknownControlRecord, decode_control_record
from kstore.record.kraft import LeaderChangeMessage, LeaderChangeVoter, SnapshotFooterRecord, SnapshotHeaderRecord
from tests.golden.manifests import manifest
from tests.golden.places import place_of
from tests.golden.sets import EPOCHS_SET, MAIN_SETS, SIGKILL_SET, golden_partitions, unpack
from tests.making.collecting import over

CONTROLLED = [
    partition
    for partition in golden_partitions(*MAIN_SETS, EPOCHS_SET, SIGKILL_SET)
    if partition.topic.startswith(("txn", "compact-", "__"))
]


def control_records(partition):
    """(type, coordinator epoch or None, key, value) of the manifest."""
    return [record for record in manifest(partition).records() if record.control_type is not None]


@over("partition", CONTROLLED)
def test_control_record_of_a_broker_is_typed_and_gives_its_bytes_back(partition):
    for record in control_records(partition):
        decoded = decode_control_record(record.key, record.value)
        place = place_of(partition, record.offset)
        assert not isinstance(decoded, UnknownControlRecord), place
        assert decoded.control_type.name == record.control_type, place
        assert decoded.to_bytes() == record.value, place
        if isinstance(decoded, EndTransactionMarker):
            assert decoded.version == 0, place


@pytest.mark.parametrize("set_name", ["main-3.9.2", "main-4.4.0"])
def test_metadata_log_begins_with_the_change_to_its_only_voter(set_name):
    (partition,) = (p for p in golden_partitions(set_name) if p.topic == "__cluster_metadata")
    (change,) = control_records(partition)
    only = (LeaderChangeVoter(voter_id=1),)
    expected = LeaderChangeMessage(leader_id=1, voters=only, granting_voters=only)
    assert decode_control_record(change.key, change.value) == expected


def test_snapshot_of_the_metadata_log_has_a_header_and_a_footer():
    (partition,) = (p for p in golden_partitions("main-4.4.0") if p.topic == "__cluster_metadata")
    path = unpack(partition.set_name, "manifests") / "manifests" / "__cluster_metadata-0.json"
    (snapshot,) = (file for file in json.loads(path.read_text())["files"] if file["kind"] == "kraft-snapshot")
    records = [record for batch in snapshot["batches"] for record in batch["records"] if record.get("control_type")]
    header, footer = (decode_control_record(b64decode(r["key"]), b64decode(r["value"])) for r in records)
    assert header == SnapshotHeaderRecord(last_contained_log_timestamp_ms=header.last_contained_log_timestamp_ms)
    assert footer == SnapshotFooterRecord()
