"""Goal: on what real brokers wrote, the command's JSON says what Kafka's own classes said of the same bytes.
Method: every partition of the main, old and mixed sets through ls, cat, dump and verify, against the manifests."""

from __future__ import annotations

import base64
import json
import struct

import pytest

from tests.cli.runner import runner
from tests.golden.manifests import digest_if_long, manifest
from tests.golden.oracle import log_start_offset
from tests.golden.sets import MAIN_SETS, MIXED_SET, OLD_FORMAT_SETS, golden_partitions
from tests.making.collecting import over

SETS = (*MAIN_SETS, *OLD_FORMAT_SETS, MIXED_SET)
PARTITIONS = golden_partitions(*SETS)
TRANSACTIONAL_PARTITIONS = [partition for partition in PARTITIONS if "txn" in partition.topic]


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


def expected_batch(batch):
    return {
        "position": batch.position,
        "size": batch.size_in_bytes,
        "magic": batch.magic,
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.record_count,
        "codec": batch.codec,
        "timestampType": batch.timestamp_type,
        "baseTimestamp": batch.base_timestamp_ms if batch.magic == 2 else batch.max_timestamp_ms,
        "maxTimestamp": batch.max_timestamp_ms,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "baseSequence": batch.base_sequence,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "leaderEpoch": batch.partition_leader_epoch,
        "crc": batch.crc,
        "valid": batch.is_valid,
    }


def decoded(text):
    return digest_if_long(None if text is None else base64.b64decode(text, validate=True))


def comparable(shown):
    """A record's JSON with base64 undone and long values in the manifests' form."""
    headers = [[key, None if value is None else base64.b64decode(value)] for key, value in shown["headers"]]
    is_control = "controlType" in shown
    assert shown.pop("keyText") == (None if is_control else text_of(shown["key"]))
    assert shown.pop("valueText") == (None if is_control else text_of(shown["value"]))
    assert shown.pop("headersText") == [[key, text_of(value)] for key, value in shown["headers"]]
    return {**shown, "key": decoded(shown["key"]), "value": decoded(shown["value"]), "headers": headers}


def text_of(encoded):
    try:
        return None if encoded is None else base64.b64decode(encoded).decode()
    except UnicodeDecodeError:
        return None


def expected_record(record, batch):
    shown = {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestampType": batch.timestamp_type,
        "key": record.key,
        "value": record.value,
        "headers": [[key.decode("utf-8", "replace"), value] for key, value in record.headers],
    }
    if record.control_type is not None:
        shown |= {"controlType": record.control_type, "controlValue": control_value(record)}
    has_sequence = batch.base_sequence >= 0
    return {
        **shown,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "sequence": batch.base_sequence + record.offset - batch.base_offset if has_sequence else -1,
        "isTransactional": batch.is_transactional,
        "leaderEpoch": batch.partition_leader_epoch,
    }


def control_value(record):
    """What a broker of one node writes, read without the schemas: markers and the change to that node."""
    if record.control_type == "LEADER_CHANGE":
        leader_id = int.from_bytes(record.value[2:6], "big")
        only = [{"voterId": leader_id}]
        return {"version": 0, "leaderId": leader_id, "voters": only, "grantingVoters": only}
    version, epoch = struct.unpack(">hi", record.value)
    return {"version": version, "coordinatorEpoch": epoch}


def expected_records(partition, *, with_control):
    """The manifest's records from the log start on, as cat shows them."""
    start_offset = log_start_offset(partition)
    place = {"topic": partition.topic, "partition": partition.partition}
    return [
        {**place, **expected_record(record, batch)}
        for batch in manifest(partition).batches()
        for record in batch.records
        if record.offset >= start_offset and (with_control or record.control_type is None)
    ]


@over("partition", PARTITIONS)
def test_dump_shows_every_batch_and_record_of_the_manifest(kstore, partition):
    run = kstore("dump", "--json", "--records", partition.directory)
    shown = [entry for entry in run.objects() if entry["file"].endswith(".log")]
    expected = [
        {
            "file": log.name,
            **expected_batch(batch),
            "records": [expected_record(record, batch) for record in batch.records],
        }
        for log in manifest(partition).logs
        for batch in log.batches
    ]
    assert [{**batch, "records": list(map(comparable, batch["records"]))} for batch in shown] == expected
    assert (run.status, run.err) == (0, "")


@pytest.mark.parametrize("partition", golden_partitions(MAIN_SETS[-1], MIXED_SET), ids=str)
def test_dump_shows_every_index_entry_of_the_manifest(kstore, partition):
    entries = {}
    for shown in kstore("dump", "--json", partition.directory).objects():
        if shown["file"].endswith((".index", ".timeindex")):
            entries.setdefault(shown["file"], []).append(list(shown.items())[1:])
    expected = {
        index.name: [
            [("slot", slot), (names[0], first), (names[1], second)]
            for slot, (first, second) in enumerate(index.entries)
        ]
        for indexes, names in (
            (manifest(partition).offset_indexes, ("offset", "position")),
            (manifest(partition).time_indexes, ("timestamp", "offset")),
        )
        for index in indexes
        if index.entries
    }
    assert entries == expected


@over("partition", golden_partitions(*MAIN_SETS))
def test_dump_shows_snapshots_and_transaction_indexes_of_the_manifest(kstore, partition):
    shown = [one for one in kstore("dump", "--json", partition.directory).objects() if "producerId" in one]
    found = {}
    for one in shown:
        if one["file"].endswith(".txnindex"):
            entry = (one["producerId"], one["firstOffset"], one["lastOffset"], one["lastStableOffset"])
        elif one["file"].endswith(".snapshot"):
            assert one["firstSequence"] == -1 or one["firstSequence"] == one["lastSequence"] - one["offsetDelta"]
            entry = tuple(
                one[name]
                for name in (
                    "producerId", "producerEpoch", "lastSequence", "lastOffset", "offsetDelta", "timestamp",
                    "coordinatorEpoch", "currentTxnFirstOffset",
                )
            )  # fmt: skip
        else:
            continue
        assert one["slot"] == len(found.setdefault(one["file"], []))
        found[one["file"]].append(entry)
    expected = manifest(partition).snapshots | manifest(partition).transaction_indexes
    assert found == {name: list(map(tuple, entries)) for name, entries in expected.items() if entries}


@pytest.mark.parametrize("set_name", MAIN_SETS)
def test_dump_reads_every_file_of_a_root(kstore, set_name):
    root = golden_partitions(set_name)[0].root
    run = kstore("dump", "--json", root)
    assert (run.status, run.err) == (0, "")
    shown = {}
    for line in run.out.splitlines():
        one = json.loads(line)
        shown.setdefault(one.pop("file"), []).append(one)
    assert shown["meta.properties"][0].keys() >= {"version"}
    assert {one["topic"] for one in shown["replication-offset-checkpoint"]} >= {"txn", "idem"}
    assert shown["txn-0/leader-epoch-checkpoint"][0] == {"epoch": 0, "startOffset": 0}
    if set_name == MAIN_SETS[-1]:
        assert len(shown["txn-0/partition.metadata"][0]["topicId"]) == 22
        assert shown["__cluster_metadata-0/quorum-state"][0]["leaderId"] == 1
        assert shown["__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"][0]["isControl"]


@over("partition", PARTITIONS)
def test_cat_with_control_shows_every_record_of_the_manifest(kstore, partition):
    run = kstore("cat", "--json", "--control", partition.directory)
    assert list(map(comparable, run.objects())) == expected_records(partition, with_control=True)
    assert (run.status, run.err) == (0, "")


@pytest.mark.parametrize("partition", TRANSACTIONAL_PARTITIONS, ids=str)
def test_cat_leaves_control_records_out(kstore, partition):
    run = kstore("cat", "--json", partition.directory)
    assert list(map(comparable, run.objects())) == expected_records(partition, with_control=False)


@pytest.mark.parametrize("set_name", SETS)
def test_ls_agrees_with_the_manifests(kstore, set_name):
    partitions = golden_partitions(set_name)
    run = kstore("ls", "--json", "--exact", partitions[0].root)
    assert (run.status, run.err) == (0, "")
    assert [(shown["topic"], shown["partition"]) for shown in run.objects()] == sorted(
        (partition.topic, partition.partition) for partition in partitions
    )
    by_name = {f"{shown['topic']}-{shown['partition']}": shown for shown in run.objects()}
    for partition in partitions:
        assert by_name[partition.name] == expected_listing(partition), partition.name


def expected_listing(partition):
    known = manifest(partition)
    batches = list(known.batches())
    start_offset = log_start_offset(partition)
    first_ms = [record["timestamp"] for record in expected_records(partition, with_control=False)][:1]
    of_data = [batch for batch in batches if all(record.control_type is None for record in batch.records)]
    is_empty = start_offset == known.end_offset
    order = ["none", "gzip", "snappy", "lz4", "zstd"]
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "log_start_offset": start_offset,
        "log_end_offset": known.end_offset,
        "last_stable_offset": None,
        "segments": len(known.logs),
        "size_in_bytes": sum(log.size_in_bytes for log in known.logs),
        "first_timestamp_ms": first_ms[0] if first_ms else None,
        "last_timestamp_ms": None if is_empty or not of_data else of_data[-1].max_timestamp_ms,
        "magics": sorted({batch.magic for batch in batches}),
        "codecs": sorted({batch.codec for batch in batches}, key=order.index),
        "suspected_losses": [],
        "state": None,
    }


@pytest.mark.parametrize("set_name", SETS)
def test_verify_finds_no_damage_in_what_a_broker_closed(kstore, set_name):
    partitions = golden_partitions(set_name)
    run = kstore("verify", "--json", partitions[0].root)
    assert (run.status, run.err) == (0, "")
    by_name = {f"{shown['topic']}-{shown['partition']}": shown for shown in run.objects()}
    for partition in partitions:
        known = manifest(partition)
        assert by_name[partition.name] == {
            "topic": partition.topic,
            "partition": partition.partition,
            "log_start_offset": log_start_offset(partition),
            "log_end_offset": known.end_offset,
            "segments": len(known.logs),
            "batches": len(list(known.batches())),
            "records": sum(batch.record_count for batch in known.batches()),
            "damage": [],
            "suspected_losses": [],
        }


def test_objects_of_dump_parse_one_a_line(kstore):
    root = golden_partitions(MAIN_SETS[0])[0].root
    lines = kstore("dump", "--json", root, "--topic", "txn").out.splitlines()
    assert {type(json.loads(line)) for line in lines} == {dict}
