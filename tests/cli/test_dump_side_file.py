"""Goal: `kstore dump` shows what lies beside the segments as it is, and names what is wrong with it.
Method: small files packed by hand, whole and damaged in one place, run through the command."""

from __future__ import annotations

import struct

import pytest

from kstore.log.files.snapshots import ProducerSnapshotEntry, encode_snapshot
from tests.cli.runner import runner
from tests.making.batches import batch, write_partition

PRODUCERS = [
    ProducerSnapshotEntry(7, 2, 11, 99, 3, 1_700_000_000_000, 4, 95),
    ProducerSnapshotEntry(8, 0, -1, -1, 0, -1, -1, -1),
]
ABORTED = [(0, 7, 100, 120, 110), (0, 9, 110, 130, 131)]


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


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
def test_json_has_an_object_for_each_entry_in_the_order_of_the_file(kstore, tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_bytes(content)
    run = kstore("dump", "--json", path)
    assert [list(one.items()) for one in run.objects()] == [list(one.items()) for one in expected]
    assert (run.status, run.err) == (0, "")


@pytest.mark.parametrize(("name", "content", "expected"), FILES)
def test_text_has_a_heading_and_a_line_for_each_entry(kstore, tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_bytes(content)
    lines = kstore("dump", path).out.split("\n")[:-1]
    assert lines[0].split() == list(expected[0])
    assert len(lines) == 1 + len(expected)
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize(("name", "content", "expected"), FILES)
def test_directory_shows_them_with_their_names(kstore, tmp_path, name, content, expected):
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
    pytest.param("quorum-state", b'{"a":NaN}', 0, "found NaN", id="quorum-state-nan"),
    pytest.param("quorum-state", b"[" * 100_000, 0, "not JSON", id="quorum-state-deep"),
]


@pytest.mark.parametrize(("name", "content", "row_count", "reason"), DAMAGES)
def test_damage_is_named_behind_what_can_be_shown(kstore, tmp_path, name, content, row_count, reason):
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
