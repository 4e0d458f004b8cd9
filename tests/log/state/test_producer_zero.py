"""Goal: producer id 0, the first that a new cluster gives out, with epoch, sequence and timestamp 0, is one like any.
Method: each rule of a producer's appends, on the compiled path and on the slow one, for id 0 beside another."""

from __future__ import annotations

import pytest

from kstore import LogConfig, open_log, open_store
from kstore.env.process import SYSTEM_CLOCK
from kstore.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from kstore.producer import Producer
from kstore.record import (
    AppendOrigin,
    ControlRecordType,
    EndTransactionMarker,
    MemoryRecords,
    MemoryRecordsBuilder,
    with_end_transaction_marker,
)

IDS = (0, 7)


def batch(producer_id, *, epoch=0, sequence=0, count=2, is_transactional=False, timestamp_ms=0):
    of_producer = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    builder = MemoryRecordsBuilder(is_transactional=is_transactional, **of_producer)
    for _ in range(count):
        builder.append(timestamp_ms=timestamp_ms, key=None, value=b"v")
    return builder.build()


def marker(producer_id, kind):
    made = EndTransactionMarker(control_type=kind, coordinator_epoch=0)
    return with_end_transaction_marker(made, timestamp_ms=0, producer_id=producer_id, producer_epoch=0)


def raised(done):
    if isinstance(done, Exception):
        raise done
    return done


# One compiled call; records that are packed again for the codec of the topic; what a producer's sender calls.
PATHS = {
    "compiled": ({}, lambda log, records: log.append(records)),
    "converted": ({"compression_type": "gzip"}, lambda log, records: log.append(records)),
    "together": ({}, lambda log, records: raised(log.append_batches([records])[0])),
}
over_paths = pytest.mark.parametrize(("settings", "append"), PATHS.values(), ids=PATHS)
over_ids = pytest.mark.parametrize("producer_id", IDS)


@over_paths
@over_ids
def test_batch_that_is_sent_again_is_stored_once(tmp_path, producer_id, settings, append):
    with open_log(tmp_path / "t-0", "a", LogConfig(**settings)) as log:
        assert [append(log, batch(producer_id)).base_offset for _ in range(3)] == [0, 0, 0]
        assert append(log, batch(producer_id, sequence=2)).base_offset == 2
        assert log.log_end_offset == 4


@over_paths
@over_ids
def test_gap_in_the_sequences_is_refused(tmp_path, producer_id, settings, append):
    with open_log(tmp_path / "t-0", "a", LogConfig(**settings)) as log:
        append(log, batch(producer_id))
        with pytest.raises(OutOfOrderSequenceError):
            append(log, batch(producer_id, sequence=3))
        append(log, batch(producer_id, epoch=1))
        with pytest.raises(InvalidProducerEpochError):
            append(log, batch(producer_id, sequence=2))
        assert log.log_end_offset == 4


@over_ids
@pytest.mark.parametrize("has_snapshot", [True, False])
def test_opened_log_knows_the_producer(tmp_path, producer_id, has_snapshot):
    path, now_ms = tmp_path / "t-0", SYSTEM_CLOCK.wall_clock_ms()
    with open_log(path, "a") as log:
        log.append(batch(producer_id, timestamp_ms=now_ms))
    if not has_snapshot:
        for snapshot in path.glob("*.snapshot"):
            snapshot.unlink()
    with open_log(path, "a") as log:
        assert log.append(batch(producer_id, timestamp_ms=now_ms)).base_offset == 0
        assert log.log_end_offset == 2


@over_ids
def test_replicated_batches_are_known(tmp_path, producer_id):
    with open_log(tmp_path / "t-0", "a") as log:
        log.append_as_follower(MemoryRecords(bytes(batch(producer_id).buffer)))
        assert log.append(batch(producer_id)).base_offset == 0
        assert log.log_end_offset == 2


@over_paths
@over_ids
@pytest.mark.parametrize("kind", [ControlRecordType.COMMIT, ControlRecordType.ABORT])
def test_transaction_holds_the_last_stable_offset_until_its_marker(tmp_path, producer_id, settings, append, kind):
    with open_log(tmp_path / "t-0", "a", LogConfig(**settings)) as log:
        append(log, batch(producer_id, is_transactional=True))
        append(log, batch(-1, epoch=-1, sequence=-1))
        assert log.last_stable_offset == 0
        assert list(log.read(isolation="read_committed")) == []
        log.append(marker(producer_id, kind), origin=AppendOrigin.COORDINATOR)
        assert log.last_stable_offset == log.log_end_offset == 5
        committed = [record.offset for record in log.read(isolation="read_committed")]
        assert committed == ([0, 1, 2, 3] if kind is ControlRecordType.COMMIT else [2, 3])


def test_first_producer_of_a_store_stores_each_record_once_and_reads_it_at_timestamp_zero(tmp_path):
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
        with Producer(store) as producer:
            assert producer.send("t", b"v", partition=0, timestamp_ms=0).result().timestamp_ms == 0
        (first,) = store.log("t").batches()
        again = MemoryRecords(bytes(first))
        assert store.log("t").append(again).base_offset == 0
        assert store.log("t").log_end_offset == 1
        assert store.log("t").offset_for_timestamp(0).offset == 0
