"""Goal: the decoder options of `kstore dump` add what a record says, and say so where they can't.
Method: segments with hand-made keys and values, whole, unknown and damaged, run through the command."""

from __future__ import annotations

import pytest

from tests.cli.runner import runner
from tests.making.batches import batch, record, write_segment
from tests.reference.codec import write_batch, write_end_transaction_marker

KEY = bytes.fromhex("0001 0001 67 0001 74 00000003")
VALUE = bytes.fromhex("0000 0000000000000007 0001 6d 0000000000000009")
DECODED_KEY = {"type": "1", "data": {"group": "g", "topic": "t", "partition": 3}}
DECODED_VALUE = {"version": "0", "data": {"offset": 7, "metadata": "m", "commitTimestamp": 9}}


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


def dumped(kstore, tmp_path, option, key, value):
    log = write_segment(tmp_path, [write_batch([record(0, value, key)])])
    run = kstore("dump", "--json", option, log)
    assert (run.status, run.err) == (0, "")
    ((shown,),) = (entry["records"] for entry in run.objects())
    return {name: item for name, item in shown.items() if name.startswith("decode")}


CASES = {
    "offset": ("--offsets-decoder", KEY, VALUE, {"decodedKey": DECODED_KEY, "decodedValue": DECODED_VALUE}),
    "deleted": ("--offsets-decoder", KEY, None, {"decodedKey": DECODED_KEY, "decodedValue": None}),
    "unknown version": (
        "--offsets-decoder",
        KEY,
        b"\0\x09",
        {
            "decodedKey": DECODED_KEY,
            "decodedValue": {"version": "9", "data": None, "undecoded": "unknown version 9 of OffsetCommitValue"},
        },
    ),
    "unknown type": (
        "--transaction-log-decoder",
        b"\0\x09",
        None,
        {"decodedKey": {"type": "9", "data": None, "undecoded": "unknown type 9"}, "decodedValue": None},
    ),
    "no key": (
        "--transaction-log-decoder",
        None,
        b"",
        {
            "decodedKey": {"type": None, "data": None, "undecoded": "a coordinator's record has a key"},
            "decodedValue": None,
        },
    ),
    "damaged": (
        "--offsets-decoder",
        KEY,
        VALUE[:-1],
        {
            "decodedKey": None,
            "decodedValue": None,
            "decodeError": "OffsetCommitValue v0: commitTimestamp at byte 11 of 18: expected 8 bytes, found 7",
        },
    ),
    "share state": (
        "--share-group-state-decoder",
        bytes.fromhex("0000 0001 67") + bytes(16) + bytes.fromhex("00000003"),
        None,
        {
            "decodedKey": {
                "type": "0",
                "data": {"groupId": "g", "topicId": "AAAAAAAAAAAAAAAAAAAAAA", "partition": 3},
            },
            "decodedValue": None,
        },
    ),
    "metadata": (
        "--cluster-metadata-decoder",
        None,
        bytes.fromhex("010e00 02 02 75 00 00 02 6b 7ff8000000000000 01 00"),
        {
            "decodedValue": {
                "type": "CLIENT_QUOTA_RECORD",
                "version": 0,
                "data": {
                    "entity": [{"entityType": "u", "entityName": None}],
                    "key": "k",
                    "value": "NaN",
                    "remove": True,
                },
            }
        },
    ),
    "remote log metadata": (
        "--remote-log-metadata-decoder",
        None,
        bytes.fromhex("010200 0274") + bytes(16) + bytes.fromhex("00000003 00 00000001 0000000000000009 00 00"),
        {
            "decodedValue": {
                "type": "REMOTE_PARTITION_DELETE_METADATA_RECORD",
                "version": 0,
                "data": {
                    "topicIdPartition": {"name": "t", "id": "AAAAAAAAAAAAAAAAAAAAAA", "partition": 3},
                    "brokerId": 1,
                    "eventTimestampMs": 9,
                    "remotePartitionDeleteState": 0,
                },
            }
        },
    ),
    "remote log metadata without value": (
        "--remote-log-metadata-decoder",
        None,
        None,
        {
            "decodedValue": {
                "type": None,
                "version": None,
                "data": None,
                "undecoded": "a metadata record has a value",
            }
        },
    ),
    "unknown metadata": (
        "--cluster-metadata-decoder",
        None,
        b"\1\x63\0",
        {"decodedValue": {"type": 99, "version": 0, "data": None, "undecoded": "unknown type 99"}},
    ),
}


@pytest.mark.parametrize(("option", "key", "value", "expected"), CASES.values(), ids=CASES)
def test_decoder_adds_what_the_record_says(kstore, tmp_path, option, key, value, expected):
    assert dumped(kstore, tmp_path, option, key, value) == expected


def test_control_records_are_not_decoded_as_data(kstore, tmp_path):
    marker = write_end_transaction_marker(1, timestamp_ms=1, producer_id=1, producer_epoch=0, commit=True)
    run = kstore("dump", "--json", "--offsets-decoder", write_segment(tmp_path, [marker]))
    ((shown,),) = (entry["records"] for entry in run.objects())
    assert "decodedKey" not in shown
    assert shown["controlType"] == "COMMIT"


def test_text_shows_what_was_decoded_in_place_of_the_bytes(kstore, tmp_path):
    parts = [record(0, VALUE, KEY), record(1, None, KEY), record(2, b"\xff", KEY)]
    run = kstore("dump", "--offsets-decoder", write_segment(tmp_path, [write_batch(parts)]))
    columns = [line.split("\t")[2:] for line in run.out.splitlines() if line.startswith("  | ")]
    assert columns[0][0] == '{"type":"1","data":{"group":"g","topic":"t","partition":3}}'
    assert columns[0][1] == '{"version":"0","data":{"offset":7,"metadata":"m","commitTimestamp":9}}'
    assert columns[1][1] == "<DELETE>"
    assert columns[2][1] == "\\xff"


def test_only_one_decoder_at_a_time(kstore, tmp_path):
    run = kstore("dump", "--offsets-decoder", "--cluster-metadata-decoder", write_segment(tmp_path, [batch(0)]))
    assert run.status == 2
    assert "only one decoder at a time, got offsets and cluster-metadata" in run.err
