"""Goal: a batch without a producer id is no idempotent producer's, whatever epoch, sequence and transaction it names.
Method: batches as Sarama, KafkaJS and others send them, followed through all that reads or rewrites a log."""

from __future__ import annotations

from pathlib import Path

import pytest

import kstore
from kstore import LogConfig, MemoryRecords
from kstore.errors import OutOfOrderSequenceError
from kstore.log.write import rules
from kstore.log.write.writable_log import WritableLog
from tests.making.batches import batch, patch_header

# Epoch and base sequence, as sent by Sarama and KafkaJS (0, 0), by @platformatic/kafka (-1, 0), and by nobody.
FIELDS = [(0, 0), (-1, 0), (0, -1), (7, 9), (-3, -5)]
TRANSACTIONAL = 0x10
REMEMBERS = LogConfig(producer_id_expiration_ms=2**63 - 1)


def sent(epoch: int = 0, sequence: int = 0, *, producer_id: int = -1, count: int = 3, attributes: int = 0) -> bytes:
    return patch_header(
        batch(0, count),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=attributes,
    )


def written(directory: Path, *batches: bytes, config: LogConfig = REMEMBERS) -> WritableLog:
    log = kstore.open_log(directory, "a", config=config)
    for data in batches:
        log.append(MemoryRecords(data))
    return log


def producer_fields(log: kstore.Log) -> list[tuple[int, int, int]]:
    return [(each.producer_id, each.producer_epoch, each.base_sequence) for each in log.batches()]


def snapshots(directory: Path) -> list[kstore.log.files.snapshots.ProducerSnapshotEntry]:
    entries = [kstore.log.files.snapshots.read_snapshot(str(path)) for path in directory.glob("*.snapshot")]
    return [entry for each in entries for entry in each]


@pytest.mark.parametrize(("epoch", "sequence"), FIELDS)
@pytest.mark.parametrize("producer_id", [-1, -2])
def test_batch_is_appended_on_the_fast_path_with_its_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch: int, sequence: int, producer_id: int
) -> None:
    monkeypatch.setattr(rules, "validate_and_assign_offsets", None)
    data = sent(epoch, sequence, producer_id=producer_id)
    with written(tmp_path / "t-0", data, data) as log:
        assert producer_fields(log) == [(producer_id, epoch, sequence)] * 2
        assert [record.offset for record in log.read()] == list(range(6))


def test_epoch_of_minus_one_is_appended_on_the_fast_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "validate_and_assign_offsets", None)
    with written(tmp_path / "t-0", *(sent(-1, sequence, producer_id=9) for sequence in (0, 3, 3, 90))) as log:
        # As a broker: the duplicate is known, and any sequence follows an epoch of -1.
        assert producer_fields(log) == [(9, -1, 0), (9, -1, 3), (9, -1, 90)]
        log.append(MemoryRecords(sent(0, 5, producer_id=9)))
        with pytest.raises(OutOfOrderSequenceError):
            log.append(MemoryRecords(sent(0, 9, producer_id=9)))


@pytest.mark.parametrize("attributes", [0, TRANSACTIONAL], ids=["plain", "transactional"])
@pytest.mark.parametrize("producer_id", [-1, -2])
def test_log_knows_no_producer_and_no_transaction(tmp_path: Path, producer_id: int, attributes: int) -> None:
    data = sent(producer_id=producer_id, attributes=attributes)
    with written(tmp_path / "t-0", data, data, data) as log:
        log.roll()
        for found in (log, kstore.open_log(tmp_path / "t-0")):
            assert found.open_transactions() == ()
            assert found.transactions().last_stable_offset == found.log_end_offset == 9
            assert found.transactions().aborted == ()
            assert [record.offset for record in found.read(isolation="read_committed")] == list(range(9))
    assert snapshots(tmp_path / "t-0") == []


@pytest.mark.parametrize("attributes", [0, TRANSACTIONAL], ids=["plain", "transactional"])
def test_recovery_knows_no_producer_and_no_transaction(tmp_path: Path, attributes: int) -> None:
    directory = tmp_path / "t-0"
    written(directory, sent(attributes=attributes), sent(attributes=attributes)).close()
    for path in directory.iterdir():
        if path.suffix not in {".log", ".metadata"}:
            path.unlink()
    with kstore.open_log(directory, "a", config=REMEMBERS) as log:
        assert log.last_stable_offset == log.log_end_offset == 6
    assert snapshots(directory) == []
    assert kstore.verify(tmp_path).is_unharmed


def test_follower_takes_the_same_bytes(tmp_path: Path) -> None:
    data = sent(5, 9, attributes=TRANSACTIONAL)
    with written(tmp_path / "t-0", data) as leader, kstore.open_log(tmp_path / "f-0", "a") as follower:
        follower.append_as_follower(MemoryRecords(b"".join(bytes(each) for each in leader.batches())))
        assert producer_fields(follower) == [(-1, 5, 9)]
        assert follower.last_stable_offset == 3


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_compaction_keeps_the_fields(tmp_path: Path, codec: str) -> None:
    config = LogConfig(cleanup_policy="compact", compression_type=codec, min_cleanable_dirty_ratio=0.0)
    with written(tmp_path / "t-0", sent(7, 9), sent(7, 9, count=2), sent(7, 9, count=1), config=config) as log:
        log.roll()
        log.compact()
        # Of the first batch one record stays; no later batch of "the same producer" lets the others go.
        assert producer_fields(log) == [(-1, 7, 9)] * 3
        assert [record.offset for record in log.read()] == [2, 4, 5]


def test_report_counts_no_transaction(tmp_path: Path) -> None:
    written(tmp_path / "t-0", sent(attributes=TRANSACTIONAL)).close()
    (partition,) = kstore.report(tmp_path).facts["partitions"]
    assert partition["transactions"]["open"] == []
    assert partition["producers"]["count"] == 0


def test_follower_keeps_the_state_of_the_other_producers_of_one_append_only(tmp_path: Path) -> None:
    leader = written(tmp_path / "t-0", sent(0, 0, producer_id=9), sent(0, 0, producer_id=-2), sent(0, 0))
    with leader, kstore.open_log(tmp_path / "f-0", "a", config=REMEMBERS) as follower:
        follower.append_as_follower(MemoryRecords(b"".join(map(bytes, leader.batches()))))
    assert [entry.producer_id for entry in snapshots(tmp_path / "f-0")] == [9]


def test_export_and_columns_have_the_fields_and_no_transaction(tmp_path: Path) -> None:
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
        for attributes in (0, TRANSACTIONAL):
            store.log("t").append(MemoryRecords(sent(attributes=attributes)))
    summary = kstore.export(tmp_path / "root", tmp_path / "copy", format="kstore")
    assert summary.partitions[0].open_transactions == ()
    kstore.restore(tmp_path / "copy", tmp_path / "restored")
    for root in ("root", "restored"):
        with kstore.open_log(tmp_path / root / "t-0") as log:
            assert producer_fields(log) == [(-1, 0, 0)] * 2
            assert log.open_transactions() == ()
    columns = ["producerId", "producerEpoch", "sequence", "isTransactional"]
    table = kstore.scan(tmp_path / "root", columns=columns, isolation="read_committed").to_table()
    expected = [(-1, 0, sequence, is_transactional) for is_transactional in (False, True) for sequence in range(3)]
    assert [tuple(row.values()) for row in table.to_pylist()] == expected
