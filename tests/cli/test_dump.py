"""Goal: `kstore dump` shows every batch and entry of any file of Kafka as it is stored, and never hides damage.
Method: built segments and small packed files, whole and damaged in one place; JSON compared field by field."""

from __future__ import annotations

import base64
import struct
from uuid import UUID

import pytest

from kstore.cli.dump import SegmentFile
from kstore.log.files.snapshots import ProducerSnapshotEntry, encode_snapshot
from kstore.record.control import control_record_key
from kstore.record.kraft import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from kstore.wire.protocol import TaggedField
from tests.cli.runner import runner
from tests.making.batches import (
    CLOSED,
    Layout,
    batch,
    batches,
    flip_bit,
    grow,
    patch_header,
    record,
    set_bytes,
    shrink,
    write_partition,
    write_root,
    write_segment,
)
from tests.reference import codec as reference
from tests.reference.codec import Header, write_batch, write_end_transaction_marker

BATCH_FIELDS = [
    "position", "size", "magic", "baseOffset", "lastOffset", "count", "codec", "timestampType", "baseTimestamp",
    "maxTimestamp", "producerId", "producerEpoch", "baseSequence", "isTransactional", "isControl", "leaderEpoch", "crc",
    "valid",
]  # fmt: skip
MAGIC_AT = 16
SIZE_AT = 8


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def log(tmp_path):
    """Three batches of two records each."""
    return write_segment(tmp_path, batches(100, 3, records_per_batch=2))


def positions(log):
    """Where the batches of an undamaged log start."""
    data = log.read_bytes()
    found = [0]
    while found[-1] + Header.unpack(data, found[-1]).size < len(data):
        found.append(found[-1] + Header.unpack(data, found[-1]).size)
    return found


def test_json_batch_has_the_contracted_fields_in_order(kstore, tmp_path):
    data = write_batch(
        [record(5, b"x", timestamp_ms=1000), record(7, b"y", timestamp_ms=900)],
        last_offset=9,
        partition_leader_epoch=4,
        producer_id=2**40,
        producer_epoch=7,
        base_sequence=11,
        is_transactional=True,
    )
    log = write_segment(tmp_path, [data], base_offset=5)
    (shown,) = kstore("dump", "--json", log).objects()
    assert list(shown) == BATCH_FIELDS
    assert shown == {
        "position": 0,
        "size": len(data),
        "magic": 2,
        "baseOffset": 5,
        "lastOffset": 9,
        "count": 2,
        "codec": "none",
        "timestampType": "CreateTime",
        "baseTimestamp": 1000,
        "maxTimestamp": 1000,
        "producerId": 2**40,
        "producerEpoch": 7,
        "baseSequence": 11,
        "isTransactional": True,
        "isControl": False,
        "leaderEpoch": 4,
        "crc": Header.unpack(data).crc,
        "valid": True,
    }


@pytest.mark.parametrize(("codec", "name"), [(0, "none"), (1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")])
def test_codecs_carry_kafkas_names_and_records_are_decompressed(kstore, tmp_path, codec, name):
    log = write_segment(tmp_path, [batch(0, 3, codec=codec)])
    (shown,) = kstore("dump", "--json", "--records", log).objects()
    assert shown["codec"] == name
    assert [base64.b64decode(entry["value"]) for entry in shown["records"]] == [b"v0", b"v1", b"v2"]


def test_log_append_time_is_the_time_of_every_record(kstore, tmp_path):
    log = write_segment(tmp_path, [batch(0, 2, log_append_time_ms=77)])
    (shown,) = kstore("dump", "--json", "--records", log).objects()
    assert shown["timestampType"] == "LogAppendTime"
    assert [(entry["timestamp"], entry["timestampType"]) for entry in shown["records"]] == [(77, "LogAppendTime")] * 2


def test_records_are_as_in_cat_without_topic_and_partition(kstore, tmp_path):
    data = write_batch([record(0, None, b"", headers=[(b"h", None), (b"\xff", b"\x01")], timestamp_ms=3)])
    log = write_segment(tmp_path, [data])
    (shown,) = kstore("dump", "--json", "--records", log).objects()
    assert list(shown) == [*BATCH_FIELDS, "records"]
    assert [list(entry.items()) for entry in shown["records"]] == [
        [
            ("offset", 0),
            ("timestamp", 3),
            ("timestampType", "CreateTime"),
            ("key", ""),
            ("value", None),
            ("headers", [["h", None], ["\ufffd", "AQ=="]]),
            ("keyText", ""),
            ("valueText", None),
            ("headersText", [["h", None], ["\ufffd", "\1"]]),
            ("producerId", -1),
            ("producerEpoch", -1),
            ("sequence", -1),
            ("isTransactional", False),
            ("leaderEpoch", 0),
        ]
    ]


def test_control_records_are_shown_with_their_type(kstore, tmp_path):
    marker = write_end_transaction_marker(8, timestamp_ms=1, producer_id=1, producer_epoch=0, commit=False)
    log = write_segment(tmp_path, [marker])
    (shown,) = kstore("dump", "--json", "--records", log).objects()
    assert shown["isControl"]
    assert shown["records"][0]["controlType"] == "ABORT"
    assert shown["records"][0]["controlValue"] == {"version": 0, "coordinatorEpoch": 0}


DIRECTORY = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
FEATURE = KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
ENDPOINT = VoterEndpoint(name="A", host="h", port=9093)
CONTROL_VALUES = {
    "leader change": (
        LeaderChangeMessage(
            leader_id=1, voters=(LeaderChangeVoter(voter_id=1, voter_directory_id=DIRECTORY),), version=1
        ),
        {
            "version": 1,
            "leaderId": 1,
            "voters": [{"voterId": 1, "voterDirectoryId": "AQIDBAUGBwgJCgsMDQ4PEA"}],
            "grantingVoters": [],
        },
    ),
    "snapshot header": (
        SnapshotHeaderRecord(last_contained_log_timestamp_ms=5),
        {"version": 0, "lastContainedLogTimestamp": 5},
    ),
    "unknown tag": (
        SnapshotFooterRecord(tagged_fields=(TaggedField(9, b"\1"),)),
        {"version": 0, "taggedFields": [{"tag": 9, "data": "AQ=="}]},
    ),
    "kraft version": (KRaftVersionRecord(kraft_version=1), {"version": 0, "kRaftVersion": 1}),
    "voters": (
        VotersRecord(
            voters=(
                Voter(voter_id=1, voter_directory_id=DIRECTORY, endpoints=(ENDPOINT,), kraft_version_feature=FEATURE),
            )
        ),
        {
            "version": 0,
            "voters": [
                {
                    "voterId": 1,
                    "voterDirectoryId": "AQIDBAUGBwgJCgsMDQ4PEA",
                    "endpoints": [{"name": "A", "host": "h", "port": 9093}],
                    "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
                }
            ],
        },
    ),
}


@pytest.mark.parametrize(("value", "expected"), CONTROL_VALUES.values(), ids=CONTROL_VALUES)
def test_control_value_is_shown_by_the_names_of_kafka(kstore, tmp_path, value, expected):
    data = write_batch([record(0, value.to_bytes(), control_record_key(value.control_type))], is_control=True)
    (shown,) = kstore("dump", "--json", "--records", write_segment(tmp_path, [data])).objects()
    assert shown["records"][0]["controlValue"] == expected


def test_control_value_that_cannot_be_read_is_null_with_the_reason(kstore, tmp_path):
    data = write_batch([record(0, b"\0", b"\0\0\0\4"), record(1, b"?", b"\0\0\0\7")], is_control=True)
    (shown,) = kstore("dump", "--json", "--records", write_segment(tmp_path, [data])).objects()
    damaged, unknown = shown["records"]
    assert damaged["controlValue"] is None
    assert damaged["controlError"].startswith("SNAPSHOT_FOOTER control record: version at byte 0 of 1")
    assert unknown["controlValue"] is None
    assert "controlError" not in unknown


def test_emptied_batch_has_no_records(kstore, tmp_path):
    log = write_segment(tmp_path, [reference.write_empty_batch(3, last_offset=9, max_timestamp_ms=5)])
    (shown,) = kstore("dump", "--json", "--records", log).objects()
    assert (shown["count"], shown["lastOffset"], shown["baseTimestamp"], shown["records"]) == (0, 9, -1, [])


def test_wrong_crc_is_shown_as_invalid_and_the_dump_goes_on(kstore, log):
    position = positions(log)[1]
    flip_bit(log, position + 70, bit=0)
    run = kstore("dump", "--json", "--records", log)
    assert [(shown["baseOffset"], shown["valid"]) for shown in run.objects()] == [
        (100, True),
        (102, False),
        (104, True),
    ]
    assert [shown["records"] is None for shown in run.objects()] == [False, True, False]
    assert run.status == 1
    assert f"CRC mismatch in batch at position {position} of {log}" in run.err
    assert run.err.count("\n") == 1


def test_records_that_contradict_a_right_crc_are_null(kstore, tmp_path):
    data = patch_header(batch(0, 2), record_count=3, last_offset_delta=5)
    log = write_segment(tmp_path, [data, batch(6)])
    run = kstore("dump", "--json", "--records", log)
    assert [(shown["valid"], shown["records"] is None) for shown in run.objects()] == [(True, True), (True, False)]
    assert run.status == 1


def test_undefined_codec_is_named_by_its_number(kstore, tmp_path):
    log = write_segment(tmp_path, [patch_header(batch(0), attributes=6)])
    run = kstore("dump", "--json", log)
    assert [(shown["codec"], shown["valid"]) for shown in run.objects()] == [("UNKNOWN(6)", True)]


def test_undefined_magic_is_shown_as_kafka_reads_it_and_reported(kstore, log):
    set_bytes(log, positions(log)[1] + MAGIC_AT, b"\x05")
    run = kstore("dump", "--json", "--records", log)
    assert [(shown["magic"], shown["valid"]) for shown in run.objects()] == [(2, True), (5, True), (2, True)]
    assert run.objects()[1]["records"] is None
    assert run.status == 1
    assert "found 5" in run.err


def test_wrong_crc_is_shown_as_invalid_whatever_the_magic(kstore, log):
    _, second, third = positions(log)
    set_bytes(log, second + MAGIC_AT, b"\x05")
    set_bytes(log, third - 1, b"\xff")
    assert [(shown["magic"], shown["valid"]) for shown in kstore("dump", "--json", log).objects()] == [
        (2, True),
        (5, False),
        (2, True),
    ]


@pytest.mark.parametrize("magic", [0, 1])
def test_batch_of_magic_2_under_an_old_magic_is_named_by_its_position_and_passed_over(kstore, log, magic):
    position = positions(log)[1]
    set_bytes(log, position + MAGIC_AT, bytes([magic]))
    run = kstore("dump", "--json", log)
    assert [shown["position"] for shown in run.objects()] == positions(log)
    assert [shown["valid"] for shown in run.objects()] == [number != 1 for number in range(len(positions(log)))]
    assert run.status == 1
    assert f"position {position} of {log}" in run.err
    assert run.err.count("\n") == 1


@pytest.mark.parametrize(
    ("size_field", "reason"),
    [
        pytest.param(-1, "expected at least 14, found -1", id="negative"),
        pytest.param(13, "expected at least 14, found 13", id="below-the-least"),
        pytest.param(2**31 - 1, f"expected {2**31 + 11} bytes, found ", id="past-the-end"),
    ],
)
def test_size_field_that_can_not_be_believed_ends_the_dump_with_its_position(kstore, log, size_field, reason):
    position = positions(log)[1]
    set_bytes(log, position + SIZE_AT, size_field.to_bytes(4, "big", signed=True))
    run = kstore("dump", "--json", log)
    assert [shown["baseOffset"] for shown in run.objects()] == [100]
    assert run.status == 1
    assert f"damage at position {position} of {log}" in run.err
    assert reason in run.err


def test_entry_too_small_for_a_header_is_reported_and_passed_over(kstore, log):
    expected = [26 + position for position in positions(log)]
    small = bytes(8) + (14).to_bytes(4, "big") + b"\x00\x00\x00\x00\x02" + bytes(9)
    log.write_bytes(small + log.read_bytes())
    run = kstore("dump", "--json", log)
    assert [shown["position"] for shown in run.objects()] == expected
    assert run.status == 1
    assert "position 0 " in run.err


@pytest.mark.parametrize("by_bytes", [1, 20, 60], ids=lambda n: f"by-{n}")
def test_last_batch_that_is_cut_off_is_damage(kstore, log, by_bytes):
    shrink(log, by_bytes=by_bytes)
    run = kstore("dump", "--json", log)
    assert len(run.objects()) == 2
    assert run.status == 1
    assert "truncated batch" in run.err


@pytest.mark.parametrize("zeros", [1, 16, 17, 100_000])
def test_zeros_to_the_end_are_preallocated_space_and_no_damage(kstore, log, zeros):
    grow(log, bytes(zeros))
    run = kstore("dump", "--json", log)
    assert len(run.objects()) == 3
    assert run.status == 0
    assert f"{zeros} bytes of preallocated space" in run.err


def test_zeros_before_other_bytes_are_damage(kstore, log):
    position = log.stat().st_size
    grow(log, bytes(2_000_000) + b"\x01")
    run = kstore("dump", "--json", log)
    assert run.status == 1
    assert f"damage at position {position} of {log}: zeros in place of a batch" in run.err


def test_empty_log_shows_nothing(kstore, tmp_path):
    run = kstore("dump", "--json", write_segment(tmp_path, [], base_offset=0))
    assert (run.status, run.out, run.err) == (0, "", "")


def test_batches_larger_than_a_read_chunk_are_shown_whole(kstore, tmp_path):
    data = [batch(0, value_bytes=10), batch(1, value_bytes=3_000_000), batch(2, 50, value_bytes=30_000), batch(52)]
    log = write_segment(tmp_path, data)
    run = kstore("dump", "--json", log)
    assert [(shown["size"], shown["valid"]) for shown in run.objects()] == [(len(part), True) for part in data]


class ShrunkFile:
    """A file that is shorter when it is read than its size said."""

    path = "shrunk.log"

    def __init__(self, data, *, size_before):
        self._data = data
        self._size_before = size_before

    def size(self):
        return self._size_before

    def pread(self, size, *, position):
        return self._data[position : position + size]


@pytest.mark.parametrize("left_bytes", [0, 5, 17, 60], ids=lambda n: f"{n}-bytes-left")
def test_file_that_shrinks_while_it_is_read_ends_the_walk(left_bytes):
    whole, cut = batch(0), batch(1)
    file = ShrunkFile(whole + cut[:left_bytes], size_before=10_000)
    segment = SegmentFile(file, chunk_bytes=len(whole), max_batch_bytes=1 << 20)
    assert [entry.is_valid for entry in segment] == [True]
    tail = segment.tail
    assert (tail is None) if left_bytes == 0 else (tail.position, tail.size_in_bytes) == (len(whole), left_bytes)


@pytest.mark.parametrize("layout", [CLOSED, Layout(is_closed=False)], ids=["trimmed", "preallocated"])
def test_index_entries_have_slots_and_absolute_offsets(kstore, tmp_path, layout):
    log = write_segment(tmp_path, batches(1000, 6, value_bytes=3000), layout=layout)
    assert kstore("dump", "--json", log.with_suffix(".index")).objects() == [
        {"slot": 0, "offset": 1002, "position": positions(log)[2]},
        {"slot": 1, "offset": 1004, "position": positions(log)[4]},
    ]
    first_ms = 1_600_000_000_000
    entries = kstore("dump", "--json", log.with_suffix(".timeindex")).objects()
    assert entries[:2] == [
        {"slot": 0, "timestamp": first_ms + 1002, "offset": 1002},
        {"slot": 1, "timestamp": first_ms + 1004, "offset": 1004},
    ]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_index_bytes_behind_the_last_whole_entry_are_damage(kstore, tmp_path, suffix):
    path = write_segment(tmp_path, batches(0, 6, value_bytes=3000)).with_suffix(suffix)
    size = path.stat().st_size
    whole = len(kstore("dump", "--json", path).objects())
    grow(path, b"\x01\x02\x03")
    run = kstore("dump", "--json", path)
    assert len(run.objects()) == whole
    assert run.status == 1
    assert f"damage at position {size} of {path}: the last 3 bytes" in run.err


def test_directory_shows_its_files_in_name_order_each_object_naming_its_file(kstore, tmp_path):
    directory = write_partition(tmp_path, [batches(0, 6, value_bytes=3000), [batch(6)]])
    (directory / "00000000000000000006.log.deleted").write_bytes(b"not shown")
    run = kstore("dump", "--json", directory)
    assert {next(iter(shown)) for shown in run.objects()} == {"file"}
    names = [shown["file"] for shown in run.objects()]
    assert names == sorted(names)
    assert set(names) == {
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000006.log",
        "00000000000000000006.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    assert run.status == 0


def test_root_shows_its_partitions_and_takes_topic_and_partition(kstore, tmp_path):
    root = write_root(tmp_path / "logs", {name: [[batch(0)]] for name in ("a-0", "a-1", "b-0")})
    (root / "a-1" / "00000000000000000000.timeindex").unlink()
    run = kstore("dump", "--json", root, "--topic", "a", "--partition", 1)
    names = ("00000000000000000000.log", "leader-epoch-checkpoint", "partition.metadata")
    assert [shown["file"] for shown in run.objects()] == [f"a-1/{name}" for name in names]


def test_directory_need_not_be_named_like_a_partition(kstore, tmp_path):
    log = write_segment(tmp_path, [batch(0)])
    assert log.name in {shown["file"] for shown in kstore("dump", "--json", tmp_path).objects()}


def test_damage_in_one_file_of_a_directory_does_not_hide_the_others(kstore, tmp_path):
    directory = write_partition(tmp_path, [[batch(0)], [batch(1)]])
    flip_bit(directory / "00000000000000000000.log", 65, bit=3)
    run = kstore("dump", "--json", directory)
    valid = {shown["file"]: shown["valid"] for shown in run.objects() if shown["file"].endswith(".log")}
    assert valid == {"00000000000000000000.log": False, "00000000000000000001.log": True}
    assert run.status == 1


@pytest.mark.parametrize("state", [".deleted", ".swap", ".cleaned"])
def test_named_file_may_carry_the_state_a_broker_appended(kstore, tmp_path, state):
    log = write_segment(tmp_path, batches(1000, 6, value_bytes=3000))
    index = log.with_suffix(".index")
    expected = kstore("dump", "--json", index).objects()
    renamed = index.rename(index.with_name(index.name + state))
    assert kstore("dump", "--json", renamed).objects() == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("notes.txt", "is not named like any file that Kafka writes", id="other-kind"),
        pytest.param(
            "copy.txnindex", "must be named after its base offset in 20 digits", id="txnindex-without-base-offset"
        ),
        pytest.param("copy.index", "must be named after its base offset in 20 digits", id="index-without-base-offset"),
        pytest.param("missing.log", "does not exist", id="missing"),
    ],
)
def test_file_that_can_not_be_dumped_is_wrong_use(kstore, tmp_path, name, message):
    path = tmp_path / name
    if "missing" not in name:
        path.write_bytes(b"")
    run = kstore("dump", path)
    assert (run.status, run.out) == (2, "")
    assert message in run.err
    assert run.err.startswith("kstore: ")


def test_log_of_any_name_is_dumped(kstore, tmp_path):
    path = tmp_path / "copy of a segment.log"
    path.write_bytes(batch(0))
    assert len(kstore("dump", "--json", path).objects()) == 1


def test_topic_of_a_file_is_wrong_use(kstore, log):
    assert kstore("dump", log, "--topic", "t").status == 2


def test_text_shows_each_batch_and_record_on_one_line(kstore, tmp_path):
    directory = write_partition(tmp_path, [[batch(0, 2), batch(2, codec=3)]])
    run = kstore("dump", "--records", directory / "00000000000000000000.log")
    heading, first, record_0, record_1, second, record_2 = run.out.splitlines()
    assert heading.split()[:3] == ["position", "size", "offsets"]
    assert first.split()[2:5] == ["0-1", "2", "none"]
    assert second.split()[2:5] == ["2-2", "1", "lz4"]
    assert record_0 == "  | 0\t2020-09-13T12:26:40.000Z\tk0\tv0\th=0"
    assert record_1.split("\t")[2:] == ["k1", "v1"]
    assert record_2.split("\t")[2:] == ["k2", "v2"]


def test_text_of_an_index_has_a_heading_and_a_line_per_entry(kstore, tmp_path):
    log = write_segment(tmp_path, batches(0, 4, value_bytes=3000))
    heading, entry = kstore("dump", log.with_suffix(".index")).out.splitlines()
    assert heading.split() == ["slot", "offset", "position"]
    assert entry.split()[:2] == ["0", "2"]


PRODUCERS = [
    ProducerSnapshotEntry(7, 2, 11, 99, 3, 1_700_000_000_000, 4, 95),
    ProducerSnapshotEntry(8, 0, -1, -1, 0, -1, -1, -1),
]
ABORTED = [(0, 7, 100, 120, 110), (0, 9, 110, 130, 131)]


def packed(entries):
    return b"".join(struct.pack(">hqqqq", *entry) for entry in entries)


TOPIC_ID = "1ZQyg7eMTSeCM0iG9AMrWw"
FILES = [
    pytest.param(
        "00000000000000000100.txnindex",
        packed(ABORTED),
        [
            {"slot": 0, "version": 0, "producerId": 7, "firstOffset": 100, "lastOffset": 120, "lastStableOffset": 110},
            {"slot": 1, "version": 0, "producerId": 9, "firstOffset": 110, "lastOffset": 130, "lastStableOffset": 131},
        ],
        id="txnindex",
    ),
    pytest.param(
        "00000000000000000100.snapshot",
        encode_snapshot(PRODUCERS),
        [
            {
                "slot": 0, "producerId": 7, "producerEpoch": 2, "coordinatorEpoch": 4, "currentTxnFirstOffset": 95,
                "firstSequence": 8, "lastSequence": 11, "lastOffset": 99, "offsetDelta": 3, "timestamp": 1700000000000,
            },
            {
                "slot": 1, "producerId": 8, "producerEpoch": 0, "coordinatorEpoch": -1, "currentTxnFirstOffset": -1,
                "firstSequence": -1, "lastSequence": -1, "lastOffset": -1, "offsetDelta": 0, "timestamp": -1,
            },
        ],
        id="snapshot",
    ),
    pytest.param(
        "leader-epoch-checkpoint",
        b"0\n2\n0 0\n3 42\n",
        [{"epoch": 0, "startOffset": 0}, {"epoch": 3, "startOffset": 42}],
        id="leader-epochs",
    ),
    *(
        pytest.param(name, b"0\n1\na.b 3 42\n", [{"topic": "a.b", "partition": 3, "offset": 42}], id=name)
        for name in (
            "recovery-point-offset-checkpoint",
            "log-start-offset-checkpoint",
            "replication-offset-checkpoint",
            "cleaner-offset-checkpoint",
        )
    ),
    pytest.param("partition.metadata", f"version: 0\ntopic_id: {TOPIC_ID}".encode(), [{"topicId": TOPIC_ID}], id="id"),
    pytest.param(
        "meta.properties",
        b"#\n#Sat Nov 21\nversion=1\nnode.id=1\ncluster.id=a\\=b\n",
        [{"version": "1", "node.id": "1", "cluster.id": "a=b"}],
        id="meta-properties",
    ),
    pytest.param("meta.properties", b"", [{}], id="no-properties"),
    pytest.param(
        "quorum-state",
        b'{"clusterId":"","leaderId":1,"currentVoters":[{"voterId":1}],"data_version":0}',
        [{"clusterId": "", "leaderId": 1, "currentVoters": [{"voterId": 1}], "data_version": 0}],
        id="quorum-state",
    ),
    pytest.param(".kafka_cleanshutdown", b'{"brokerEpoch":12}', [{"brokerEpoch": 12}], id="mark"),
    pytest.param(".kafka_cleanshutdown", b"", [{}], id="old-mark"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "expected"), FILES)
def test_side_file_as_json_has_an_object_per_entry_in_file_order(kstore, tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_bytes(content)
    run = kstore("dump", "--json", path)
    assert [list(one.items()) for one in run.objects()] == [list(one.items()) for one in expected]
    assert (run.status, run.err) == (0, "")


@pytest.mark.parametrize(("name", "content", "expected"), FILES)
def test_side_file_as_text_has_a_heading_and_a_line_per_entry(kstore, tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_bytes(content)
    lines = kstore("dump", path).out.split("\n")[:-1]
    assert lines[0].split() == list(expected[0])
    assert len(lines) == 1 + len(expected)
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize(("name", "content", "expected"), FILES)
def test_directory_shows_its_side_files_with_their_names(kstore, tmp_path, name, content, expected):
    directory = write_partition(tmp_path, [[batch(0)]])
    (directory / name).write_bytes(content)
    run = kstore("dump", "--json", directory)
    assert [one for one in run.objects() if one["file"] == name] == [{"file": name, **one} for one in expected]
    assert run.status == 0


DAMAGES = [
    pytest.param(".txnindex", packed(ABORTED)[:-1], 1, "size of an entry", id="txnindex-cut"),
    pytest.param(".txnindex", packed([(1, 7, 100, 120, 110)]), 1, "version", id="txnindex-version"),
    pytest.param(".txnindex", packed([(0, 7, 50, 60, 61)]), 1, "last offset", id="txnindex-below-the-segment"),
    pytest.param(".txnindex", packed([ABORTED[1], ABORTED[0]]), 2, "last offset", id="txnindex-out-of-order"),
    pytest.param(".snapshot", encode_snapshot(PRODUCERS)[:-1], 0, "CRC", id="snapshot-cut"),
    pytest.param(".snapshot", b"", 0, "size of the file", id="snapshot-empty"),
    pytest.param("leader-epoch-checkpoint", b"0\n1\nx 0\n", 0, "line 3", id="leader-epochs"),
    pytest.param("replication-offset-checkpoint", b"1\n0\n", 0, "expected version 0", id="offsets"),
    pytest.param("partition.metadata", b"version: 0\n", 0, "partition.metadata", id="topic-id"),
    pytest.param("meta.properties", b"a=\xff\n", 0, "not UTF-8", id="meta-properties"),
    pytest.param("quorum-state", b"{", 0, "not JSON", id="quorum-state-cut"),
    pytest.param("quorum-state", b"[1]", 0, "expected a JSON object, found list", id="quorum-state-list"),
    pytest.param("quorum-state", b'{"a":NaN}', 0, "a number that JSON does not have", id="quorum-state-nan"),
    pytest.param("quorum-state", b"[" * 100_000, 0, "not JSON", id="quorum-state-deep"),
]


@pytest.mark.parametrize(("name", "content", "row_count", "reason"), DAMAGES)
def test_damage_of_a_side_file_is_named_after_what_can_be_shown(kstore, tmp_path, name, content, row_count, reason):
    path = tmp_path / (f"{100:020d}{name}" if name.startswith(".") else name)
    path.write_bytes(content)
    run = kstore("dump", "--json", path)
    assert len(run.objects()) == row_count
    assert run.status == 1
    assert reason in run.err
    assert str(path) in run.err


def test_strange_text_reaches_no_terminal(kstore, tmp_path):
    path = tmp_path / "quorum-state"
    path.write_bytes(b'{"a\\u001b":"\\ud800\\u001b[31m"}')
    assert kstore("dump", "--json", path).objects() == [{"a\x1b": "\ud800\x1b[31m"}]
    assert "\x1b" not in kstore("dump", path).out


def test_root_shows_its_own_files_then_its_partitions(kstore, tmp_path):
    write_partition(tmp_path, [[batch(0)]], topic="t", partition=0)
    (tmp_path / "cleaner-offset-checkpoint").write_bytes(b"0\n1\nt 0 0\n")
    shown = [one["file"] for one in kstore("dump", "--json", tmp_path).objects()]
    assert shown[0] == "cleaner-offset-checkpoint"
    assert set(shown[1:]) >= {"t-0/00000000000000000000.log"}
    chosen = kstore("dump", "--json", tmp_path, "--topic", "t").objects()
    assert "cleaner-offset-checkpoint" not in {one["file"] for one in chosen}
