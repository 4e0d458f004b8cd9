"""Goal: the table "A full disk" of docs/durability.md: what a call raises, what the log holds then, and what is next.
Method: one row at a time, with no space for one kind of file, before and after the log is opened again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from kstore.config import LogConfig
from kstore.errors import LogFailedError, StorageError
from kstore.log.files.checkpoints import read_checkpoint
from kstore.log.files.names import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kstore.log.write.writable_log import WritableLog
from kstore.record import AppendOrigin, MemoryRecords
from kstore.store.opening import open_log
from kstore.store.store import open_store
from kstore.types import TopicPartition
from tests.fakes.full_disk import FullEnv
from tests.making.batches import batch
from tests.reference.codec import write_end_transaction_marker

PREALLOCATED = LogConfig(preallocate=True, segment_bytes=2_000_000)
MARKER = write_end_transaction_marker(0, timestamp_ms=1, producer_id=7, producer_epoch=0, commit=False)


def append(log: WritableLog, **options: str) -> None:
    log.append(MemoryRecords(batch(0, 1)), **options)  # type: ignore[arg-type]


def flush_and_append_much(log: WritableLog) -> None:
    """So much that the disk is asked to start writing."""
    log.flush()
    log.append(MemoryRecords(batch(0, 1, value_bytes=600_000)))


def roll_and_append(log: WritableLog) -> None:
    log.roll()
    append(log)


def append_over_a_gap(log: WritableLog) -> None:
    """In a new segment, since the index of the old one cannot hold that offset."""
    log.append_as_follower(MemoryRecords(batch(2**31 + 10, 1)))


class Row(NamedTuple):
    """no_space: the call of the system, and the end of the path; count, count_later: how many records there are after
    the call, and when the log is opened again (3 before the call; None: readers may get an error).
    """

    call: Callable[[WritableLog], object]
    no_space: tuple[str, str]
    is_retriable: bool
    count: int | None
    count_later: int


ROWS = {
    "write of the records": Row(append, ("write", ".log"), True, 3, 3),
    "leader epoch before them": Row(
        lambda log: log.append(MemoryRecords(batch(0, 1)), partition_leader_epoch=5),
        ("write", f"{LEADER_EPOCH_CHECKPOINT}.tmp"),
        True,
        3,
        3,
    ),
    "start of writing to disk": Row(flush_and_append_much, ("write back", ".log"), False, 3, 4),
    "transaction index of a marker": Row(
        lambda log: log.append(MemoryRecords(MARKER), origin=AppendOrigin.COORDINATOR),
        ("write", ".txnindex"),
        False,
        3,
        3,
    ),
    "sync of a flush": Row(lambda log: append(log, ack="flushed"), ("sync", ".log"), False, 4, 4),
    "sync of a roll": Row(roll_and_append, ("sync", ".log"), False, 3, 3),
    "new segment": Row(roll_and_append, ("allocate", ".log"), True, 3, 3),
    "snapshot of a roll": Row(roll_and_append, ("write", ".snapshot.tmp"), True, 3, 3),
    "write after a roll over a gap": Row(append_over_a_gap, ("write", "2147483658.log"), False, 3, 3),
    "truncation": Row(lambda log: log.truncate_to(2), ("sync", ".log"), False, None, 2),
    "deletion": Row(lambda log: log.delete_records(1), ("write", "log-start-offset-checkpoint.tmp"), True, 3, 3),
}


def count_of(log: WritableLog) -> int:
    return sum(record.value is not None and not record.is_control for record in log.read())


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_call_without_space_says_whether_it_may_be_made_again(tmp_path: Path, row: Row) -> None:
    env = FullEnv()
    log = open_log(tmp_path / "t-0", "a", PREALLOCATED, env=env)
    append(log)
    log.append(MemoryRecords(batch(0, 1, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)))
    append(log)
    env.calls, env.full = row.no_space[:1], row.no_space[1:]
    with pytest.raises(StorageError, match=f"no space to {row.no_space[0]}") as caught:
        row.call(log)
    env.full = ()
    assert (caught.value.is_retriable, log.has_failed) == (row.is_retriable, not row.is_retriable)
    assert row.count is None or count_of(log) == row.count
    if row.is_retriable:
        row.call(log)
    else:
        with pytest.raises(LogFailedError):
            row.call(log)
        log.close()
        log = open_log(tmp_path / "t-0", "a", PREALLOCATED)
        assert count_of(log) == row.count_later
    log.close()


@pytest.mark.parametrize("suffix", [".index", ".timeindex", "kstore-durable-point"])
def test_append_does_without_space_for_what_can_be_made_again(tmp_path: Path, suffix: str) -> None:
    env = FullEnv()
    with open_log(tmp_path / "t-0", "a", LogConfig(index_interval_bytes=0), env=env) as log:
        env.full = (suffix,)
        for _ in range(3):
            append(log, ack="flushed")
            log.roll()
        assert log.flushed_offset == 3
        env.full = ()


def test_checkpoints_that_find_no_space_are_replaced_one_by_one(tmp_path: Path) -> None:
    env = FullEnv()
    with open_store(tmp_path, "a", env=env) as store:
        store.create_topic("t")
        append(store.log("t"), ack="flushed")
        env.full = (f"{HIGH_WATERMARK_CHECKPOINT}.tmp",)
        with pytest.raises(StorageError) as caught:
            store.checkpoint()
        env.full = ()
        marks = [
            read_checkpoint(str(tmp_path), name, env).get(TopicPartition("t", 0))
            for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
        ]
        assert (caught.value.is_retriable, marks) == (True, [1, None])
        append(store.log("t"))
        store.checkpoint()


def test_close_without_space_loses_nothing(tmp_path: Path) -> None:
    env = FullEnv()
    log = open_log(tmp_path / "t-0", "a", env=env)
    append(log)
    env.full = (".snapshot.tmp",)
    with suppress(StorageError):
        log.close()
    assert log.is_closed
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with open_log(tmp_path / "t-0", "a") as again:
        assert count_of(again) == 1
