"""Goal: a batch ends once, tells each record what became of it, and gives its memory back (ProducerBatchTest's claims).
Method: batches in small pools driven through their life by hand; what they hold is read back by kstore's own reader."""

from __future__ import annotations

import gc
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from kstore.errors import KStoreError, RecordTooLargeError
from kstore.producer import BufferPool, CompressionRatioEstimator, FinalState, ProducerBatch, RecordMetadata
from kstore.record import MemoryRecordsBuilder
from tests.fakes.pooling import BATCH_SIZE, TOPIC_PARTITION, ManualClock, open_batch

MOST_SEQUENCE = 2**31 - 1
Told = list[tuple[int, RecordMetadata, KStoreError | None]]
# What a callback hears of a record that failed besides its error.
UNKNOWN = RecordMetadata(*TOPIC_PARTITION)


def fill(batch: ProducerBatch, count: int, *, told: Told | None = None, value: bytes = b"value") -> list[Any]:
    """Append records with keys 0, 1, ... at timestamps 100, 101, ..., and callbacks if there is where to tell."""
    futures = []
    for number in range(count):
        callback = None if told is None else (lambda metadata, error, n=number: told.append((n, metadata, error)))
        future = batch.try_append(100 + number, b"%d" % number, value, (), callback, 7)
        assert future is not None
        futures.append(future)
    return futures


def test_records_are_encoded_as_the_builder_encodes_them() -> None:
    batch, builder = open_batch(), MemoryRecordsBuilder()
    records = [
        (5, b"k", b"v", (("h", b"1"), ("n", None))),
        (3, None, None, ()),
        (9, bytearray(b"x"), memoryview(b"y"), []),
    ]
    for timestamp_ms, key, value, headers in records:
        batch.append_record(timestamp_ms, key, value, headers, None, 0)
        builder.append(timestamp_ms=timestamp_ms, key=key, value=value, headers=headers)
    assert bytes(batch.records()) == bytes(builder.build())


class Garbage:
    """Calls something when it is collected, which takes a collection."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.itself = self

    def __del__(self) -> None:
        self.call()


@pytest.mark.parametrize("allocations", range(4))
def test_append_that_a_finalizer_appends_in_the_midst_of_keeps_both_records(allocations: int) -> None:
    batch = open_batch()
    told: Told = []
    kept = [[] for _ in range(300)]  # so that the next list is allocated, and none is used again
    thresholds = gc.get_threshold()
    gc.disable()
    try:
        gc.collect()
        Garbage(lambda: fill(batch, 1, value=b"inner"))
        gc.set_threshold(gc.get_count()[0] + allocations)
        gc.enable()
        batch.append_record(7, None, b"outer", (), lambda metadata, error: told.append((0, metadata, error)), 0)
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
    gc.collect()
    assert len(kept) == 300
    records = list(batch.records())
    assert sorted(record.value or b"" for record in records) == [b"inner", b"outer"]
    assert [record.offset for record in records] == [0, 1]
    batch.complete(100)
    assert told[0][1].offset == 100 + [record.value for record in records].index(b"outer")


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_old_magics_are_encoded_as_the_builder_encodes_them(magic: int, compression: str) -> None:
    batch = open_batch(magic=magic, compression=compression)
    builder = MemoryRecordsBuilder(magic=magic, compression=compression)
    fill(batch, 3)
    for number in range(3):
        builder.append(timestamp_ms=100 + number, key=b"%d" % number, value=b"value")
    assert bytes(batch.records()) == bytes(builder.build())
    with pytest.raises(ValueError, match="can't have headers"):
        open_batch(magic=magic).append_record(0, None, b"v", (("h", b""),), None, 0)


def test_append_is_refused_where_the_buffer_would_end() -> None:
    batch, builder = open_batch(size=200), MemoryRecordsBuilder(write_limit_bytes=200)
    while builder.has_room_for(timestamp_ms=1, value=b"x" * 20):
        builder.append(timestamp_ms=1, value=b"x" * 20)
        assert not batch.is_full
        assert batch.try_append(1, None, b"x" * 20, (), None, 0) is not None
    assert batch.try_append(1, None, b"x" * 20, (), None, 0) is None
    assert bytes(batch.records()) == bytes(builder.build())
    assert batch.records().size_in_bytes + len(b"x" * 20) + 8 > 200


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_record_that_fills_the_buffer_is_taken_and_one_byte_more_is_not(magic: int) -> None:
    values = (b"x" * 20, b"x" * 30)
    builder = MemoryRecordsBuilder(magic=magic)
    for value in values:
        builder.append(timestamp_ms=1, value=value)
    size = builder.build().size_in_bytes
    for missing in (0, 1):
        batch = open_batch(size=size - missing, magic=magic)
        taken = [batch.try_append(1, None, value, (), None, 0) is not None for value in values]
        assert taken == [True, missing == 0]
        assert batch.is_full == (missing == 0)


@pytest.mark.parametrize("bad", [-2, -(2**63)])
def test_record_that_is_refused_leaves_the_batch_as_it_was(bad: int) -> None:
    batch = open_batch()
    told: Told = []
    with pytest.raises(ValueError, match="timestamp_ms"):
        batch.try_append(bad, None, b"v", (), lambda *a: told.append(a), 0)
    fill(batch, 1)
    assert (batch.record_count, batch.take_thunks()) == (1, [])


def test_nothing_is_appended_behind_close_for_record_appends() -> None:
    batch = open_batch()
    fill(batch, 1)
    batch.close_for_record_appends()
    assert batch.try_append(1, None, b"v", (), None, 0) is None
    assert (batch.record_count, batch.is_full, batch.is_closed) == (1, True, False)


def test_success_tells_callbacks_in_order_and_then_the_futures() -> None:
    batch, told = open_batch(), []
    seen: list[bool] = []
    futures = fill(batch, 3, told=told)
    last = batch.try_append(103, None, None, (), lambda *_: seen.append(futures[0].done()), 7)
    assert batch.complete(500)
    assert seen == [False]
    expected = [RecordMetadata("orders", 3, 500 + n, 100 + n, 1, 5) for n in range(3)]
    assert told == [(n, metadata, None) for n, metadata in enumerate(expected)]
    assert [future.result(0) for future in futures] == expected
    assert last.result(0) == RecordMetadata("orders", 3, 503, 103, -1, -1)
    assert (batch.final_state, batch.is_done) == (FinalState.SUCCEEDED, True)


def test_log_append_time_stands_for_the_timestamps() -> None:
    batch = open_batch()
    futures = fill(batch, 2)
    batch.complete(5, log_append_time_ms=77)
    assert [(f.result().offset, f.result().timestamp_ms) for f in futures] == [(5, 77), (6, 77)]


def test_unknown_base_offset_makes_unknown_offsets() -> None:
    batch = open_batch()
    futures = fill(batch, 2)
    batch.complete(-1)
    assert [(f.result().offset, f.result().has_offset, f.result().has_timestamp) for f in futures] == [
        (-1, False, True)
    ] * 2


@pytest.mark.parametrize("has_record_errors", [False, True])
def test_failure_gives_each_record_its_error(has_record_errors: bool) -> None:
    batch, told = open_batch(), []
    futures = fill(batch, 3, told=told)
    top, errors = KStoreError("top"), [KStoreError(str(n)) for n in range(3)]
    expected = errors if has_record_errors else [top] * 3
    assert batch.complete_exceptionally(top, errors.__getitem__ if has_record_errors else None)
    assert told == [(n, UNKNOWN, expected[n]) for n in range(3)]
    assert [future.exception(0) for future in futures] == expected
    with pytest.raises(KStoreError) as caught:
        futures[1].result()
    assert caught.value is expected[1]


def test_abort_fails_the_records_and_can_be_done_once() -> None:
    batch, told = open_batch(), []
    future = fill(batch, 1, told=told)[0]
    error = KStoreError("closed")
    batch.abort(error)
    assert (told, future.exception(0), batch.final_state) == ([(0, UNKNOWN, error)], error, FinalState.ABORTED)
    with pytest.raises(ValueError, match="is completed already: aborted"):
        batch.abort(error)
    assert batch.try_append(1, None, b"v", (), None, 0) is None


@pytest.mark.parametrize("first", ["abort", "fail"])
@pytest.mark.parametrize("second", ["complete", "fail"])
def test_failed_batch_stays_so_whatever_comes_later(first: str, second: str) -> None:
    batch, told = open_batch(), []
    future = fill(batch, 1, told=told)[0]
    error = KStoreError("first")
    end = {"abort": batch.abort, "fail": batch.complete_exceptionally}[first]
    end(error)
    state = batch.final_state
    assert not (batch.complete(9) if second == "complete" else batch.complete_exceptionally(KStoreError("later")))
    assert (told, future.exception(0), batch.final_state) == ([(0, UNKNOWN, error)], error, state)


@pytest.mark.parametrize("second", ["complete", "fail", "abort"])
def test_batch_that_succeeded_refuses_another_end(second: str) -> None:
    batch, told = open_batch(), []
    future = fill(batch, 1, told=told)[0]
    batch.complete(10)
    with pytest.raises(ValueError, match="succeeded"):
        {
            "complete": lambda: batch.complete(20),
            "fail": lambda: batch.complete_exceptionally(KStoreError("no")),
            "abort": lambda: batch.abort(KStoreError("no")),
        }[second]()
    assert (len(told), future.result(0).offset) == (1, 10)


@pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(3)], ids=["exception", "exit"])
def test_failing_callback_is_logged_and_in_nobodys_way(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    batch, told = open_batch(), []

    def fail(*_: object) -> None:
        raise error

    batch.try_append(1, None, b"v", (), fail, 0)
    future = fill(batch, 1, told=told)[0]
    with caplog.at_level(logging.ERROR, "kstore.producer"):
        assert batch.complete(0)
    assert len(told) == 1
    assert future.result(0).offset == 1
    assert "callback of record 0" in caplog.text


def test_interrupted_callback_ends_the_batch_first() -> None:
    batch, told = open_batch(), []

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    batch.try_append(1, None, b"v", (), interrupt, 0)
    future = fill(batch, 1, told=told)[0]
    with pytest.raises(KeyboardInterrupt):
        batch.complete(0)
    assert len(told) == 1
    assert future.result(0).offset == 1


@pytest.mark.parametrize("now_ms", [0, 4, 5], ids=["long-before", "just-before", "at-once"])
def test_waiting_time_is_never_negative(now_ms: int) -> None:
    assert open_batch(now_ms=5).waited_ms(now_ms) == 0


def test_delivery_timeout_counts_from_creation_also_behind_a_retry() -> None:
    batch = open_batch(now_ms=100)
    assert not batch.has_reached_delivery_timeout(50, now_ms=149)
    assert batch.has_reached_delivery_timeout(50, now_ms=150)
    batch.reenqueued(120)
    assert batch.has_reached_delivery_timeout(50, now_ms=150)
    assert (batch.attempts, batch.in_retry, batch.last_attempt_ms, batch.waited_ms(130)) == (1, True, 120, 10)
    batch.reenqueued(110)
    assert (batch.attempts, batch.last_append_ms) == (2, 120)
    batch.drained(180)
    batch.drained(170)
    assert batch.drained_ms - batch.created_ms == 80


def test_leader_change_is_known_for_the_attempt_that_follows_it() -> None:
    batch = open_batch()
    assert not batch.has_leader_changed_for_the_ongoing_retry
    batch.maybe_update_leader_epoch(100)
    assert not batch.has_leader_changed_for_the_ongoing_retry
    batch.reenqueued(1)
    batch.maybe_update_leader_epoch(None)
    batch.maybe_update_leader_epoch(99)
    assert not batch.has_leader_changed_for_the_ongoing_retry
    batch.maybe_update_leader_epoch(101)
    assert (batch.has_leader_changed_for_the_ongoing_retry, batch.current_leader_epoch) == (True, 101)
    batch.reenqueued(2)
    assert not batch.has_leader_changed_for_the_ongoing_retry


def test_largest_record_is_known_by_the_most_it_can_take() -> None:
    batch = open_batch()
    batch.try_append(1, b"k" * 10, b"v" * 100, (("h", b"12"),), None, 0)
    fill(batch, 1)
    assert batch.max_record_size == 61 + 21 + (1 + 10) + (2 + 100) + 1 + (1 + 1) + (1 + 2)


@pytest.mark.parametrize(
    ("base", "count", "last"),
    [(0, 1, 0), (MOST_SEQUENCE, 1, MOST_SEQUENCE), (MOST_SEQUENCE, 2, 0), (MOST_SEQUENCE - 1, 5, 2)],
)
def test_sequences_begin_at_zero_behind_the_largest(base: int, count: int, last: int) -> None:
    batch = open_batch()
    fill(batch, count)
    batch.set_producer_state(producer_id=9, producer_epoch=1, base_sequence=base, is_transactional=False)
    assert (batch.last_sequence, batch.has_sequence) == (last, True)


def test_producer_state_of_a_closed_batch_can_be_reset() -> None:
    batch = open_batch()
    fill(batch, 2)
    batch.set_producer_state(producer_id=9, producer_epoch=1, base_sequence=4, is_transactional=True)
    before = batch.records()
    old = bytes(before)
    batch.reset_producer_state(producer_id=9, producer_epoch=2, base_sequence=0, is_transactional=True)
    assert (batch.sequence_has_been_reset, batch.is_closed) == (True, False)
    header = next(batch.records().batches())
    header.verify()
    assert (header.producer_epoch, header.base_sequence) == (2, 0)
    assert bytes(before) == old
    del before, header
    batch.deallocate()
    assert batch.pool.available_memory == batch.pool.memory


def test_codec_takes_more_records_than_the_buffer_is_long_and_counts_them() -> None:
    estimator = CompressionRatioEstimator()
    estimator.set_estimation("orders", 3, 0.1)
    pool = BufferPool(1 << 20, BATCH_SIZE)
    batch = open_batch(pool, compression="lz4", estimator=estimator)
    count = 0
    while batch.append_record(1, None, b"v" * 50, (), None, 0) is not None:
        count += 1
    assert batch.counted_bytes > 4 * BATCH_SIZE
    assert pool.available_memory == pool.memory - batch.counted_bytes
    assert batch.is_full or batch.estimated_size_in_bytes + 60 > BATCH_SIZE
    batch.close()
    assert batch.counted_bytes == BATCH_SIZE
    assert len(list(batch.records())) == count
    assert estimator.estimation("orders", 3) == pytest.approx(0.095)
    batch.deallocate()
    assert pool.available_memory == pool.memory


# Memory that was kept from before may be longer than what was asked for: long batches need not count the same.
@pytest.mark.parametrize(
    ("size", "counted"),
    [(BATCH_SIZE, range(BATCH_SIZE, BATCH_SIZE + 1)), (1 << 20, range(1 << 20, 3 << 20))],
    ids=["one-buffer", "long"],
)
def test_batch_compressed_ahead_is_closed_like_any_other(size: int, counted: range) -> None:
    pool = BufferPool(4 << 20, BATCH_SIZE)
    early, late = (open_batch(pool, size=size, compression="gzip", level=1) for _ in range(2))
    for batch in (early, late):
        batch.append_record(1, None, random.Random(1).randbytes(size - 90), (), None, 0)
    early.compress_records()
    assert early.append_record(1, None, b"v", (), None, 0) is None
    assert (early.is_closed, early.is_full) == (False, True)
    for batch in (early, late):
        batch.set_producer_state(producer_id=7, producer_epoch=2, base_sequence=5, is_transactional=False)
    assert bytes(early.records()) == bytes(late.records())
    assert early.counted_bytes in counted
    assert late.counted_bytes in counted
    assert pool.available_memory == pool.memory - early.counted_bytes - late.counted_bytes
    for batch in (early, late):
        batch.deallocate()
    assert pool.available_memory == pool.memory


def test_growth_that_the_pool_refuses_makes_the_batch_full() -> None:
    pool = BufferPool(2 * BATCH_SIZE, BATCH_SIZE)
    estimator = CompressionRatioEstimator()
    estimator.set_estimation("orders", 1, 0.01)
    batch = open_batch(pool, compression="gzip", estimator=estimator)
    while batch.append_record(1, None, b"v" * 50, (), None, 0) is not None:
        assert not batch.is_full
    assert (batch.is_full, batch.counted_bytes) == (True, BATCH_SIZE)
    assert len(list(batch.records())) == batch.record_count


def test_payload_longer_than_its_records_is_counted_too() -> None:
    size = 1 << 20
    pool = BufferPool(4 * size, size)
    batch = open_batch(pool, size=size, compression="gzip", level=1)
    batch.try_append(1, None, random.Random(1).randbytes(size - 90), (), None, 0)
    assert batch.records().size_in_bytes > size + 64
    assert batch.counted_bytes >= batch.size_in_bytes
    assert pool.available_memory == pool.memory - batch.counted_bytes
    batch.deallocate()
    assert pool.available_memory == pool.memory


def test_buffer_goes_back_when_the_last_sender_is_done() -> None:
    pool = BufferPool(4 * BATCH_SIZE, BATCH_SIZE)
    batch = open_batch(pool)
    fill(batch, 1)
    batch.close()
    batch.begin_send()
    batch.begin_send()
    assert not batch.deallocate()
    batch.end_send()
    assert pool.available_memory == 3 * BATCH_SIZE
    batch.end_send()
    assert (pool.available_memory, pool.unallocated_memory) == (4 * BATCH_SIZE, 3 * BATCH_SIZE)
    with pytest.raises(ValueError, match="deallocated"):
        batch.begin_send()
    with pytest.raises(ValueError, match="without begin_send"):
        batch.end_send()


@pytest.mark.parametrize("is_looked_at", [False, True])
def test_records_that_are_kept_keep_their_bytes(is_looked_at: bool) -> None:
    pool = BufferPool(4 * BATCH_SIZE, BATCH_SIZE)
    batch = open_batch(pool)
    fill(batch, 2)
    records = batch.records()
    before = bytes(records) if is_looked_at else None
    batch.deallocate()
    assert (pool.available_memory, pool.unallocated_memory) == (4 * BATCH_SIZE, 4 * BATCH_SIZE)
    fill(open_batch(pool), 2, value=b"other")
    assert [bytes(r.value) for r in records] == [b"value", b"value"]
    assert before is None or bytes(records) == before


def test_batch_is_deallocated_once_and_has_no_records_then() -> None:
    batch = open_batch()
    fill(batch, 1)
    assert batch.deallocate()
    with pytest.raises(ValueError, match="before"):
        batch.deallocate()
    with pytest.raises(ValueError, match="given back"):
        batch.records()
    assert batch.try_append(1, None, b"v", (), None, 0) is None


def test_aborted_appends_give_the_memory_back_at_once() -> None:
    batch = open_batch()
    fill(batch, 1)
    batch.abort_record_appends()
    assert batch.pool.available_memory == batch.pool.memory
    with pytest.raises(ValueError, match="aborted"):
        batch.close()
    batch.deallocate()
    assert batch.pool.available_memory == batch.pool.memory


@pytest.mark.parametrize(
    ("magic", "compression"), [(2, "none"), (2, "lz4"), (2, "zstd"), (1, "gzip"), (0, "gzip")], ids=str
)
def test_split_keeps_records_magic_codec_and_order(magic: int, compression: str) -> None:
    pool = BufferPool(1 << 20, BATCH_SIZE)
    batch, told = open_batch(pool, size=4096, magic=magic, compression=compression, now_ms=42), []
    futures = fill(batch, 40, told=told, value=b"v" * 10)
    pieces = batch.split(200)
    batch.deallocate()
    assert len(pieces) > 3
    assert {(p.magic, p.builder.compression.label, p.created_ms, p.is_split_batch) for p in pieces} == {
        (magic, compression, 42, True)
    }
    keys = [bytes(record.key) for piece in pieces for record in piece.records()]
    assert keys == [b"%d" % n for n in range(40)]
    assert not any(future.done() for future in futures)
    for number, piece in enumerate(pieces):
        assert not batch.result.is_completed
        piece.complete(1000 * number)
        piece.deallocate()
    offsets = [1000 * n + index for n, piece in enumerate(pieces) for index in range(piece.record_count)]
    assert [future.result(0).offset for future in futures] == offsets
    assert [(n, metadata.offset) for n, metadata, _ in told if metadata] == list(enumerate(offsets))
    assert (batch.result.is_completed, batch.final_state) == (True, FinalState.FAILED)
    assert pool.available_memory == pool.memory


def test_pieces_of_a_batch_that_was_tried_are_as_old_as_its_records() -> None:
    batch = open_batch(now_ms=42, size=4096)
    fill(batch, 10)
    batch.reenqueued(1000)
    pieces = batch.split(100)
    assert {piece.created_ms for piece in pieces} == {42}
    assert all(piece.has_reached_delivery_timeout(900, now_ms=942) for piece in pieces)


def test_split_keeps_headers() -> None:
    batch = open_batch()
    headers = (("a", b"1"), ("a", None), ("\udcff", b""))
    for _ in range(5):
        batch.try_append(1, None, b"v" * 20, headers, None, 0)
    assert [record.headers for piece in batch.split(100) for record in piece.records()] == [headers] * 5


def test_split_gives_sequences_on_and_past_the_largest() -> None:
    batch = open_batch()
    fill(batch, 9, value=b"v" * 20)
    batch.set_producer_state(producer_id=1, producer_epoch=2, base_sequence=MOST_SEQUENCE - 3, is_transactional=True)
    pieces = batch.split(150)
    sequence = MOST_SEQUENCE - 3
    for piece in pieces:
        assert (piece.producer_id, piece.producer_epoch, piece.is_transactional) == (1, 2, True)
        assert piece.base_sequence == sequence % 2**31
        sequence += piece.record_count
    assert len(pieces) > 1
    assert pieces[-1].last_sequence == 4


def test_record_larger_than_the_split_size_gets_a_batch_of_its_own() -> None:
    batch = open_batch()
    fill(batch, 3, value=b"v" * 200)
    assert [piece.record_count for piece in batch.split(1)] == [1, 1, 1]


def test_pieces_are_split_again_and_again_without_recursion() -> None:
    pool = BufferPool(1 << 30, BATCH_SIZE)
    batch = open_batch(pool)
    future = fill(batch, 1)[0]
    first, done = batch, []
    future.add_done_callback(lambda f: done.append(f.result().offset))
    for _ in range(3000):
        piece = batch.split(BATCH_SIZE)[0]
        batch.deallocate()
        batch = piece
    batch.complete(77)
    batch.deallocate()
    assert (future.result(0).offset, done, first.result.is_completed) == (77, [77], True)
    assert first.result.await_(0)
    assert pool.available_memory == pool.memory


def test_lazy_future_of_a_record_that_was_split_off_finds_its_piece() -> None:
    batch = open_batch()
    appended = [batch.append_record(1, None, b"v" * 50, (), None, 0) for _ in range(6)]
    pieces = batch.split(150)
    for number, piece in enumerate(pieces):
        piece.complete_exceptionally(RecordTooLargeError("no")) if number == 1 else piece.complete(10 * number)
    outcomes = [a.future.exception(0) or a.future.result(0).offset for a in appended if a is not None]
    expected: list[object] = []
    for number, piece in enumerate(pieces):
        for index in range(piece.record_count):
            expected.append("RecordTooLargeError" if number == 1 else 10 * number + index)
    assert [o if isinstance(o, int) else type(o).__name__ for o in outcomes] == expected


def test_batch_that_cannot_be_split_is_refused() -> None:
    old = open_batch(magic=1)
    fill(old, 2)
    with pytest.raises(ValueError, match="magic 1"):
        old.split(100)
    with pytest.raises(ValueError, match="empty"):
        open_batch().split(100)
    done = open_batch()
    fill(done, 1)
    done.complete(1)
    with pytest.raises(ValueError, match="is completed: "):
        done.split(100)


def test_estimate_rises_fast_and_falls_slowly_and_for_its_topic_only() -> None:
    estimator = CompressionRatioEstimator()
    assert estimator.estimation("a", 1) == 1.0
    for current, observed, expected in [
        (0.8, 0.84, 0.85),
        (0.6, 0.7, 0.7),
        (0.6, 0.4, 0.595),
        (0.004, 0.001, 0.001),
        (0.5, 0.5, 0.5),
    ]:
        estimator.set_estimation("a", 1, current)
        assert estimator.update_estimation("a", 1, observed) == pytest.approx(expected)
        assert estimator.estimation("a", 1) == pytest.approx(expected)
    assert (estimator.estimation("b", 1), estimator.estimation("a", 2)) == (1.0, 1.0)


def test_clock_is_asked_for_no_time_by_a_batch() -> None:
    pool = BufferPool(4 * BATCH_SIZE, BATCH_SIZE, clock=ManualClock(5))
    batch = open_batch(pool, now_ms=3)
    batch.try_append(1, None, b"v", (), None, 9)
    assert (batch.created_ms, batch.last_append_ms, batch.topic_partition) == (3, 9, TOPIC_PARTITION)
