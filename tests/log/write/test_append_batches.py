"""Goal: many batches appended by one call end as they would one by one, and what fails leaves what append promises.
Method: batches of the reference codec, good, refused, sent before, over an operating system whose writes fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.config import MAX_INT64, LogConfig
from kstore.errors import (
    KStoreError,
    LogClosedError,
    LogFailedError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    StorageError,
)
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords
from kstore.store.opening import open_log
from kstore.types import Ack
from tests.fakes.faults import Fault, FaultKind, FaultyEnv
from tests.making.batches import batch
from tests.making.record_files import failing

CONFIG = LogConfig(max_message_bytes=2000, segment_bytes=4000)


@pytest.fixture
def env() -> FaultyEnv:
    return FaultyEnv()


@pytest.fixture
def log(tmp_path: Path, env: FaultyEnv) -> Iterator[WritableLog]:
    with open_log(tmp_path / "t-0", "a", CONFIG, env=env) as opened:
        yield opened


def plain(count: int = 1, *, value_bytes: int = 0) -> MemoryRecords:
    return MemoryRecords(batch(0, count, value_bytes=value_bytes))


def sent(sequence: int, count: int = 1, *, producer_id: int = 7) -> MemoryRecords:
    return MemoryRecords(batch(0, count, producer_id=producer_id, producer_epoch=0, base_sequence=sequence))


def fail_next_write(env: FaultyEnv, kind: FaultKind, *, is_for_good: bool = False) -> None:
    env._fault = Fault(env.calls + 1, kind, is_for_good)


def offsets(log: WritableLog) -> list[int]:
    return [record.offset for record in log.read()]


def test_no_batches_are_nothing_to_append(log: WritableLog) -> None:
    assert log.append_batches([]) == []
    assert log.log_end_offset == 0


def test_batches_get_the_next_offsets_in_order(log: WritableLog) -> None:
    log.append(plain())
    done = log.append_batches([plain(2), plain(3), plain()])
    assert [(info.base_offset, info.last_offset) for info in done] == [(1, 2), (3, 5), (6, 6)]
    assert offsets(log) == list(range(7))


def test_common_batches_are_one_write(log: WritableLog, env: FaultyEnv) -> None:
    log.append_batches([plain(), sent(0)])
    before = env.calls
    log.append_batches([sent(1), sent(2, 5), plain(), sent(7)])
    assert env.calls == before + 1


def test_refused_batch_holds_up_no_other(log: WritableLog) -> None:
    log.append_batches([plain()])
    done = log.append_batches([plain(), plain(value_bytes=3000), plain(2), sent(4), sent(9), sent(5)])
    kinds = [type(one) if isinstance(one, KStoreError) else one.base_offset for one in done]
    assert kinds == [1, RecordTooLargeError, 2, 4, OutOfOrderSequenceError, 5]
    assert offsets(log) == list(range(6))


def test_batch_sent_twice_in_one_call_is_appended_once(log: WritableLog) -> None:
    log.append(sent(0))
    first, again, last = log.append_batches([sent(1, 2), sent(1, 2), sent(3)])
    assert (again.base_offset, again.is_duplicate) == (first.base_offset, True) == (1, True)
    assert (last.base_offset, log.log_end_offset) == (3, 4)


def test_producers_that_take_turns_all_go_on(log: WritableLog) -> None:
    batches = [sent(number, producer_id=producer) for number in range(4) for producer in (1, 2)]
    assert [info.base_offset for info in log.append_batches(batches)] == list(range(8))
    entries = log.producer_state.active_producers
    assert [entries[producer].last_sequence for producer in (1, 2)] == [3, 3]


def test_segments_are_rolled_where_single_appends_would_roll_them(tmp_path: Path) -> None:
    batches = [plain(3, value_bytes=400) for _ in range(9)]
    bases = []
    for name in ("single-0", "together-0"):
        with open_log(tmp_path / name, "a", CONFIG) as log:
            is_single = name == "single-0"
            infos = [log.append(one) for one in batches] if is_single else log.append_batches(batches)
            assert [info.base_offset for info in infos] == list(range(0, 27, 3))
            bases.append([segment.base_offset for segment in log.segments])
    assert bases[0] == bases[1]
    assert len(bases[0]) > 1


def test_call_without_space_leaves_nothing_and_may_be_made_again(log: WritableLog, env: FaultyEnv) -> None:
    log.append_batches([sent(0)])
    fail_next_write(env, "ENOSPC", is_for_good=True)
    done = log.append_batches([sent(1), sent(2), sent(3)])
    assert [type(one) for one in done] == [StorageError] * 3
    assert (log.log_end_offset, log.has_failed) == (1, False)
    env.heal()
    assert [info.base_offset for info in log.append_batches([sent(1), sent(2), sent(3)])] == [1, 2, 3]


def test_nothing_is_tried_behind_a_failed_write(log: WritableLog, env: FaultyEnv) -> None:
    log.append_batches([plain(), sent(0)])
    fail_next_write(env, "EIO")
    done = log.append_batches([plain(), plain(value_bytes=3000), plain()])
    assert [type(one) for one in done] == [StorageError] * 3
    assert log.has_failed
    with pytest.raises(LogFailedError):
        log.append_batches([plain()])
    assert offsets(log) == [0, 1]


@pytest.mark.parametrize("ack", ["written", "flushed"])
def test_error_of_a_flush_is_the_result_of_every_append_that_was_written(tmp_path: Path, ack: Ack) -> None:
    """With ack "written" the flush is due to flush_messages."""
    config = LogConfig(flush_messages=1 if ack == "written" else MAX_INT64)
    env = FaultyEnv()
    with open_log(tmp_path / "t-0", "a", config, env=env) as log:
        log.append_batches([sent(0)], ack=ack)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(os, "fdatasync", failing(errno.ENOSPC))
            done = log.append_batches([sent(1), plain(value_bytes=10**7), sent(2)], ack=ack)
        assert [type(one) for one in done] == [StorageError, RecordTooLargeError, StorageError]
        assert [one.is_final for one in done if isinstance(one, StorageError)] == [True, True]
        assert (log.has_failed, offsets(log)) == (True, [0, 1, 2])


def test_closed_log_takes_none(log: WritableLog) -> None:
    log.close()
    with pytest.raises(LogClosedError):
        log.append_batches([plain()])


def test_flushed_call_is_durable_by_one_sync(log: WritableLog, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = []
    sync = log._durability._sync
    monkeypatch.setattr(log._durability._group, "_flush", lambda: syncs.append(1) or sync())
    log.append_batches([plain(), plain(2), plain()], ack="flushed")
    assert (log.flushed_offset, len(syncs)) == (4, 1)


def test_failed_flush_is_the_error_of_all_that_were_appended(log: WritableLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: int) -> int:
        raise StorageError("sync")

    monkeypatch.setattr(log._durability._group, "wait_until", failing)
    done = log.append_batches([plain(), plain(value_bytes=3000)], ack="flushed")
    assert [type(one) for one in done] == [StorageError, RecordTooLargeError]


def test_unknown_ack_is_refused_before_anything_is_written(log: WritableLog) -> None:
    with pytest.raises(ValueError, match="ack"):
        log.append_batches([plain()], ack="sometime")
    assert log.log_end_offset == 0
