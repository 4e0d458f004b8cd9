"""Goal: batches that are drained, numbered, sent and completed together end as they would one by one.
Method: tables of queues with the order that turns give; odd batches among plain ones; ends with callbacks."""

from __future__ import annotations

from typing import Any

import pytest

from kstore._core import DrainRequest, answered_from, begin_sends, end_sends, number_batches, sums_of_request
from kstore.errors import KStoreError
from kstore.producer.batches import drain
from kstore.producer.batches.accumulator import RecordAccumulator
from kstore.producer.batches.batch import ProducerBatch
from kstore.producer.sending.completion import BatchCompletion, SenderHooks
from kstore.producer.sink import ProduceResponse
from tests.making.producing import (
    ALL_BYTES,
    CLUSTER,
    HEADER_BYTES,
    NODE_1,
    RECORD_BYTES,
    RECORDS_PER_BATCH,
    TP_1,
    new_accumulator,
    partitions,
    put,
    values_of,
)

FULL_BYTES = HEADER_BYTES + RECORDS_PER_BATCH * RECORD_BYTES
LINGER_MS = 10


def filled(counts: dict[int, int], **settings: Any) -> RecordAccumulator:
    """Return an accumulator with so many batches by partition, of which the last one has room; values count them."""
    accumulator = new_accumulator(linger_ms=LINGER_MS, **settings)
    for partition, count in counts.items():
        for number in range(count):
            put(accumulator, partition, count=RECORDS_PER_BATCH, value=b"%05d" % number)
    return accumulator


def drained(
    accumulator: RecordAccumulator, most: int, *, now_ms: int = LINGER_MS, max_size: int = ALL_BYTES
) -> list[ProducerBatch]:
    (batches,) = accumulator.drain(CLUSTER, [NODE_1], max_size, now_ms=now_ms, batches_per_partition=most).values()
    return batches


def numbers(batches: list[ProducerBatch]) -> list[int]:
    return [int(values_of(batch)[0] or b"") for batch in batches]


@pytest.mark.parametrize(
    ("counts", "most", "now_ms", "room", "expected"),
    [
        pytest.param({0: 4}, 3, LINGER_MS, 99, [0, 0, 0], id="as many as are asked for"),
        pytest.param({0: 4}, 9, LINGER_MS, 99, [0, 0, 0, 0], id="the last one has lingered"),
        pytest.param({0: 4}, 9, LINGER_MS - 1, 99, [0, 0, 0], id="the last one has not lingered"),
        pytest.param({0: 1}, 9, LINGER_MS, 99, [0], id="a single one"),
        pytest.param({0: 3, 1: 2}, 9, LINGER_MS, 99, [0, 1, 0, 1, 0], id="by turns"),
        pytest.param({0: 1, 1: 3}, 9, LINGER_MS, 99, [0, 1, 1, 1], id="one drops out"),
        pytest.param({0: 3, 1: 3}, 2, LINGER_MS, 99, [0, 1, 0, 1], id="two rounds"),
        pytest.param({0: 3, 1: 3}, 9, LINGER_MS, 4, [0, 1, 0, 1], id="the room ends behind a round"),
        pytest.param({0: 3, 1: 3}, 9, LINGER_MS, 5, [0, 1, 0, 1, 0], id="the room ends in a round"),
        pytest.param({0: 3}, 9, LINGER_MS, 0, [0], id="no room but for the first"),
    ],
)
def test_partitions_take_turns(counts: dict[int, int], most: int, now_ms: int, room: int, expected: list[int]) -> None:
    accumulator = filled(counts)
    batches = drained(accumulator, most, now_ms=now_ms, max_size=room * FULL_BYTES)
    assert partitions(batches) == expected
    for partition in counts:
        own = [batch for batch in batches if batch.topic_partition.partition == partition]
        assert numbers(own) == list(range(len(own)))
    assert all(batch.is_closed and batch.is_inflight and batch.drained_ms == now_ms for batch in batches)


def test_flush_takes_batches_that_were_made_behind_the_time_of_the_drain() -> None:
    accumulator = filled({0: 2, 1: 3})
    put(accumulator, 0, now_ms=LINGER_MS + 1)
    found: list[int] = []
    accumulator.flush(0, wake=lambda: found.extend(partitions(drained(accumulator, 9))))
    assert found == [0, 1, 0, 1, 0, 1]


def test_next_request_goes_on_where_there_was_no_room() -> None:
    accumulator = filled({0: 3, 1: 3})
    found = [partitions(drained(accumulator, 9, max_size=3 * FULL_BYTES)) for _ in range(2)]
    assert found == [[0, 1, 0], [1, 0, 1]]


def test_batches_that_were_sent_before_go_first_and_in_order() -> None:
    accumulator = filled({0: 4})
    first = drained(accumulator, 2)
    for batch in reversed(first):
        accumulator.reenqueue(batch, LINGER_MS)
    later_ms = LINGER_MS + 100_000
    assert numbers(drained(accumulator, 9, now_ms=later_ms)) == [0, 1, 2, 3]


def test_compressed_batches_are_drained_in_order() -> None:
    accumulator = filled({0: 4, 1: 1}, compression="lz4")
    batches = drained(accumulator, 9)
    assert {batch.is_compressed for batch in batches} == {True}
    own = [batch for batch in batches if batch.topic_partition == TP_1]
    assert numbers(own) == sorted(numbers(own))
    assert sum(batch.record_count for batch in own) == 4 * RECORDS_PER_BATCH


def test_muted_partition_gives_nothing_to_any_round() -> None:
    accumulator = filled({0: 2, 1: 2})
    accumulator.mute_partition(TP_1)
    assert partitions(drained(accumulator, 9)) == [1, 1]


def test_sequences_go_on_from_batch_to_batch_and_over_the_end() -> None:
    batches = list(filled({0: 3}).queue_of(TP_1).copy())
    behind = number_batches(batches, producer_id=7, producer_epoch=1, base_sequence=2**31 - 15, is_transactional=True)
    assert [batch.base_sequence for batch in batches] == [2**31 - 15, 2**31 - 5, 5]
    assert {(batch.producer_id, batch.producer_epoch, batch.is_transactional) for batch in batches} == {(7, 1, True)}
    assert behind == 15


def test_sends_begin_for_none_if_one_has_no_buffer_any_more() -> None:
    batches = drained(filled({0: 3}), 9)
    batches[2].deallocate()
    with pytest.raises(ValueError, match="deallocated"):
        begin_sends(batches, -1)
    assert [batch.send_count for batch in batches] == [0, 0, 0]


def test_sends_begin_for_those_that_are_not_too_old() -> None:
    accumulator = new_accumulator()
    for now_ms in (0, 5, 6):
        put(accumulator, count=RECORDS_PER_BATCH, now_ms=now_ms)
    batches = drained(accumulator, 9, now_ms=100)
    young, old = begin_sends(batches, 5)
    assert (young, old) == (batches[2:], batches[:2])
    assert [batch.send_count for batch in batches] == [0, 0, 1]
    end_sends(young)
    assert batches[2].send_count == 0


def test_sums_are_those_of_the_batches() -> None:
    batches = drained(filled({0: 3}), 9, now_ms=25)
    sums = sums_of_request(batches)
    largest = max(batch.max_record_size for batch in batches)
    assert sums.values() == [(3 * FULL_BYTES, FULL_BYTES), (3 * largest, largest), (75, 25), (3.0, 1.0)]
    assert (sums.batches, sums.records) == (3, 3 * RECORDS_PER_BATCH)


def completion_of(accumulator: RecordAccumulator) -> BatchCompletion:
    return BatchCompletion(accumulator, transaction_manager=None, delivery_timeout_ms=1000, hooks=SenderHooks())


def test_batches_are_completed_with_their_own_answers() -> None:
    accumulator = new_accumulator()
    told: list[Any] = []
    results = []
    for number in range(4):
        callback = None if number != 1 else lambda metadata, error: told.append((metadata.offset, error))
        results += put(accumulator, count=RECORDS_PER_BATCH, callback=callback)
    watched = results[25].future
    watched.add_done_callback(lambda future: told.append(future.result().offset))
    batches = drained(accumulator, 9)
    failure = KStoreError("refused")
    answers = [ProduceResponse(100), ProduceResponse(200, 5), ProduceResponse(300), ProduceResponse(-1, error=failure)]
    completion_of(accumulator).take_all(batches, answers, now_ms=20)
    assert [results[number].future.result().offset for number in (0, 9, 10, 25)] == [100, 109, 200, 305]
    assert results[12].future.result().timestamp_ms == 5
    assert results[30].future.exception() is failure
    assert told == [(200 + number, None) for number in range(RECORDS_PER_BATCH)] + [305]
    assert not accumulator.has_incomplete
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_batch_that_another_thread_ended_is_given_back_and_stays_as_it_ended() -> None:
    accumulator = filled({0: 3})
    batches = drained(accumulator, 9)
    aborted = KStoreError("closed")
    batches[1].abort(aborted)
    completion_of(accumulator).take_all(batches, [ProduceResponse(0)] * 3, now_ms=20)
    assert [batch.result.error_of(0) for batch in batches] == [None, aborted, None]
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_batch_that_is_closed_while_another_thread_aborts_it_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    accumulator = filled({0: 1})
    (batch,) = accumulator.incomplete.copy_all()
    with accumulator.queue_of(TP_1) as queue:
        queue.pop_first()
    batch.is_inflight = True
    abort = ProducerBatch.abort_unless_done

    def abort_behind_the_close(one: ProducerBatch, error: KStoreError) -> bool:
        one.close()
        return abort(one, error)

    monkeypatch.setattr(ProducerBatch, "abort_unless_done", abort_behind_the_close)
    accumulator.abort_batches(KStoreError("closed"))
    assert batch.is_deallocated
    assert accumulator.pool.available_memory == accumulator.pool.memory


def test_answers_must_be_as_many_as_the_batches() -> None:
    with pytest.raises(ValueError, match="as many responses"):
        answered_from(drained(filled({0: 2}), 9), [ProduceResponse(0)], 0, ProduceResponse)


def test_request_does_not_outgrow_its_size_by_records_that_come_while_its_batches_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accumulator = filled({0: 2})
    put(accumulator, count=1, value=b"00002")

    class Counted(DrainRequest):
        def plain_rounds(self, *arguments: Any, **options: Any) -> list[int]:
            counts = super().plain_rounds(*arguments, **options)
            put(accumulator, count=1, value=b"00003")
            return counts

    with monkeypatch.context() as patch:
        patch.setattr(drain, "DrainRequest", Counted)
        batches = drained(accumulator, 9, max_size=2 * FULL_BYTES + HEADER_BYTES + RECORD_BYTES)
    assert numbers(batches) == [0, 1]
    assert numbers(drained(accumulator, 9)) == [2]
