"""Goal: sequences have no gap and wrap as Kafka's do, whatever becomes of the batches that have them.
Method: the sequences of one partition with stand-ins for batches; then a Sender and a sink that refuses by a script."""

from __future__ import annotations

import pytest

from kstore._core import increment_sequence
from kstore.config import MAX_INT32
from kstore.coordinator.producer_ids import MAX_PRODUCER_EPOCH, ProducerIdAndEpoch
from kstore.errors import (
    InvalidProducerEpochError,
    KStoreError,
    OutOfOrderSequenceError,
    ProducerTimeoutError,
    RecordTooLargeError,
)
from kstore.producer.batches.sequences import PartitionSequences, is_sequence_after
from kstore.producer.cluster import Cluster, PartitionInfo
from kstore.producer.transactions import TransactionManager
from tests.fakes.sending import CLUSTER, T0, T1, Producing, again, fails

PRODUCER = ProducerIdAndEpoch(7, 0)


class StandIn:
    """A batch as far as sequences go."""

    def __init__(self, base_sequence: int, record_count: int = 1, producer: ProducerIdAndEpoch = PRODUCER) -> None:
        self.record_count = record_count
        self.reset_producer_state(
            producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=base_sequence
        )

    def reset_producer_state(self, *, producer_id, producer_epoch, base_sequence, **_):
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        self.last_sequence = increment_sequence(base_sequence, count=self.record_count - 1)


def bases(entry: PartitionSequences) -> list[int]:
    return [batch.base_sequence for batch in entry.in_flight]


SUMS = {
    "from zero": (0, 3, 3),
    "to the last": (MAX_INT32 - 1, 1, MAX_INT32),
    "over the last": (MAX_INT32, 1, 0),
    "far over the last": (MAX_INT32 - 2, 10, 7),
    "back over zero": (2, -5, MAX_INT32 - 2),
    "behind none": (-1, 1, 0),
}


@pytest.mark.parametrize(("sequence", "count", "expected"), SUMS.values(), ids=SUMS)
def test_zero_follows_the_last_sequence(sequence, count, expected):
    assert increment_sequence(sequence, count=count) == expected


ORDERS = {
    "next": (6, 5, True),
    "same": (5, 5, False),
    "before": (5, 6, False),
    "first of all": (0, -1, True),
    "over the wrap": (1, MAX_INT32, True),
    "back over the wrap": (MAX_INT32, 1, False),
}


@pytest.mark.parametrize(("sequence", "other", "expected"), ORDERS.values(), ids=ORDERS)
def test_sequences_are_compared_over_the_wrap(sequence, other, expected):
    assert is_sequence_after(sequence, other=other) is expected


def test_batches_in_flight_lie_by_sequence_however_they_come():
    entry = PartitionSequences()
    for sequence in (MAX_INT32 - 1, 4, 0, MAX_INT32, 2):
        entry.add(StandIn(sequence))
    assert bases(entry) == [MAX_INT32 - 1, MAX_INT32, 0, 2, 4]


def test_batches_of_an_older_epoch_lie_first():
    entry = PartitionSequences()
    for epoch, sequence in ((1, 0), (0, 9), (1, 3), (0, 4)):
        entry.add(StandIn(sequence, producer=ProducerIdAndEpoch(7, epoch)))
    assert [(batch.producer_epoch, batch.base_sequence) for batch in entry.in_flight] == [
        (0, 4),
        (0, 9),
        (1, 0),
        (1, 3),
    ]


def test_batch_is_removed_by_identity():
    entry, twin = PartitionSequences(), StandIn(3)
    entry.add(StandIn(3))
    entry.add(twin)
    assert entry.remove(twin)
    assert not entry.remove(twin)
    assert len(entry.in_flight) == 1


def test_acknowledgement_that_comes_late_changes_nothing():
    entry = PartitionSequences()
    for sequence in (4, 9, 7):
        entry.ack(sequence)
    assert entry.last_acked_sequence == 9
    assert entry.is_next(10)


def test_acknowledgement_over_the_wrap_is_taken():
    entry = PartitionSequences()
    for sequence in (MAX_INT32, 2, MAX_INT32 - 1):
        entry.ack(sequence)
    assert entry.last_acked_sequence == 2


ACKED = {
    "last one acknowledged": (5, 2, PRODUCER, True),
    "an earlier one": (0, 3, PRODUCER, True),
    "over the last one": (6, 2, PRODUCER, False),
    "the next one": (7, 1, PRODUCER, False),
    "another epoch": (0, 3, ProducerIdAndEpoch(7, 1), False),
    "another producer": (0, 3, ProducerIdAndEpoch(8, 0), False),
}


@pytest.mark.parametrize(("base", "count", "producer", "expected"), ACKED.values(), ids=ACKED)
def test_batch_is_in_the_log_if_its_last_sequence_is_not_above_the_last_acknowledged_one(
    base, count, producer, expected
):
    entry = PartitionSequences()
    entry.producer = PRODUCER
    assert not entry.has_acked(StandIn(base, count, producer))
    entry.ack(6)
    assert entry.has_acked(StandIn(base, count, producer)) is expected


def test_batch_that_comes_before_another_one_is_found():
    entry = PartitionSequences()
    first, second = StandIn(0), StandIn(1)
    assert entry.batch_before(first) is None
    entry.in_flight += [first, second]
    assert entry.batch_before(first) is None
    assert entry.batch_before(second) is first
    assert entry.batch_before(StandIn(2)) is second


def test_new_epoch_counts_batches_in_flight_from_0():
    entry = PartitionSequences()
    for sequence, count in ((5, 2), (7, 3)):
        entry.add(StandIn(sequence, count))
    entry.start_at_beginning(ProducerIdAndEpoch(7, 1), is_transactional=False)
    assert bases(entry) == [0, 2]
    assert {batch.producer_epoch for batch in entry.in_flight} == {1}
    assert (entry.next_sequence, entry.last_acked_sequence) == (5, -1)


# With a Sender

OUT_OF_ORDER = OutOfOrderSequenceError("out of order", producer_id=1, producer_epoch=0)


def sequences(parts, *, epoch=None):
    return [one.base_sequence for one in parts.sink.sent if epoch in (None, one.producer_epoch)]


def test_sequences_go_on_from_batch_to_batch_in_each_partition():
    parts = Producing(is_idempotent=True)
    parts.append_batch(b"0", b"1")
    parts.append_batch(b"2")
    parts.append_batch(b"x", to=T1)
    parts.run()
    assert [(one.topic_partition, one.base_sequence) for one in parts.sink.sent] == [(T0, 0), (T1, 0), (T0, 2)]
    assert parts.manager.sequences_of(T0).next_sequence == 3
    assert not parts.manager.has_in_flight_batches(T0)


def test_sequences_of_a_partition_wrap_at_the_largest_int():
    parts = Producing(is_idempotent=True)
    parts.append_batch(b"0")
    parts.run()
    parts.manager.sequences_of(T0).next_sequence = MAX_INT32 - 1
    parts.manager.sequences_of(T0).last_acked_sequence = MAX_INT32 - 2
    futures = parts.append_batch(b"1", b"2", b"3") + parts.append_batch(b"4")
    parts.run()
    assert sequences(parts)[1:] == [MAX_INT32 - 1, 1]
    assert all(future.done() for future in futures)
    assert parts.manager.sequences_of(T0).last_acked_sequence == 1


def test_batch_that_is_tried_again_keeps_its_sequence_and_its_place():
    parts = Producing(is_idempotent=True)
    futures = [parts.append_batch(b"%d" % number)[0] for number in range(3)]
    parts.sink.answers += [again(), fails(OUT_OF_ORDER), fails(OUT_OF_ORDER)]
    parts.run_until_done(*futures)
    assert sequences(parts) == [0, 1, 2, 0, 1, 2]
    assert sequences(parts, epoch=1) == []
    assert parts.sink.values[T0] == [b"0", b"1", b"2"]
    parts.check_at_rest()


def test_batch_behind_one_that_failed_for_good_goes_in_a_new_epoch():
    parts = Producing(is_idempotent=True)
    (failed,), (second,) = parts.append_batch(b"0"), parts.append_batch(b"1")
    parts.sink.answers += [fails(KStoreError("no")), fails(OUT_OF_ORDER)]
    parts.run_until_done(failed, second)
    assert failed.exception() is not None
    assert second.result().offset == 0
    assert sequences(parts, epoch=0) == [0, 1]
    assert sequences(parts, epoch=1) == [0]
    parts.check_at_rest()


def test_batch_that_the_log_may_have_keeps_its_sequence_when_a_later_one_fails():
    parts = Producing(is_idempotent=True)
    (first,), (failed,) = parts.append_batch(b"0"), parts.append_batch(b"1")
    (third,) = parts.append_batch(b"2")
    parts.sink.answers += [again(), fails(KStoreError("no")), fails(OUT_OF_ORDER)]
    parts.run()
    later = parts.append_batch(b"3")
    parts.sink.answers += [None, fails(OUT_OF_ORDER)]
    parts.run_until_done(first, third, *later)
    assert isinstance(failed.exception(0), KStoreError)
    assert sequences(parts, epoch=0) == [0, 1, 2, 0, 2]
    assert sequences(parts, epoch=1) == [0, 1]
    assert parts.sink.values[T0] == [b"0", b"2", b"3"]
    parts.check_at_rest()


def test_batch_that_the_log_has_is_not_renumbered_behind_one_of_which_nobody_knows():
    parts = Producing(is_idempotent=True)
    (unknown,), (kept,) = parts.append_batch(b"0"), parts.append_batch(b"1")
    parts.sink.answers += [again()] * 2
    parts.run()
    parts.clock.now_ms += 200
    parts.sink.error = OSError("gone")
    parts.run()
    parts.sink.error = None
    parts.run_until_done(unknown, kept)
    assert isinstance(unknown.exception(0), KStoreError)
    assert sequences(parts, epoch=0) == [0, 1, 0, 1]
    later = parts.append_batch(b"2")
    parts.run_until_done(*later)
    assert sequences(parts, epoch=0) == [0, 1, 0, 1, 2]


def test_next_batch_that_is_out_of_order_leads_to_a_new_epoch():
    parts = Producing(is_idempotent=True)
    first = parts.append_batch(b"0")
    parts.run()
    second = parts.append_batch(b"1")
    parts.sink.answers += [fails(OUT_OF_ORDER)]
    parts.run_until_done(*first, *second)
    assert [(one.producer_epoch, one.base_sequence) for one in parts.sink.sent] == [(0, 0), (0, 1), (1, 0)]


def test_other_partitions_take_the_new_epoch_when_nothing_of_the_old_one_is_in_flight():
    parts = Producing(is_idempotent=True)
    parts.append_batch(b"0", to=T1)
    parts.run()
    waiting = parts.append_batch(b"1", to=T1)
    failed = parts.append_batch(b"x", to=T0)
    parts.sink.answers += [again() if parts.sink.calls else None, None]
    parts.sink.answers.clear()
    parts.sink.answers.extend(
        [lambda batch: fails(KStoreError("no"))(batch) if batch.topic_partition == T0 else again()(batch)] * 2
    )
    parts.run()
    parts.run_until_done(*waiting, *failed)
    later = parts.append_batch(b"2", to=T1)
    parts.run_until_done(*later)
    sent = [(one.producer_epoch, one.base_sequence) for one in parts.sink.sent if one.topic_partition == T1]
    assert sent == [(0, 0), (0, 1), (0, 1), (1, 0)]


def test_exhausted_epoch_leads_to_a_new_producer_id():
    parts = Producing(is_idempotent=True)
    parts.run()
    producer_id = parts.manager.producer_id_and_epoch.producer_id
    parts.manager.producer_id_and_epoch = ProducerIdAndEpoch(producer_id, MAX_PRODUCER_EPOCH)
    failed = parts.append_batch(b"0")
    parts.sink.answers.append(fails(KStoreError("no")))
    parts.run_until_done(*failed)
    parts.run()
    assert parts.manager.producer_id_and_epoch.producer_id != producer_id
    assert parts.manager.producer_id_and_epoch.epoch == 0


def test_stale_epoch_fails_the_batch_and_the_next_one_goes_in_a_new_epoch():
    parts = Producing(is_idempotent=True)
    error = InvalidProducerEpochError("stale", producer_id=1, producer_epoch=0)
    failed = parts.append_batch(b"0")
    parts.sink.answers.append(fails(error))
    parts.run_until_done(*failed)
    with pytest.raises(InvalidProducerEpochError):
        failed[0].result()
    later = parts.append_batch(b"1")
    parts.run_until_done(*later)
    assert later[0].result().offset == 0
    assert sequences(parts, epoch=1) == [0]


# Answers that were lost


def test_batch_out_of_order_whose_successor_was_acknowledged_is_a_duplicate():
    parts = Producing(is_idempotent=True)
    (first,), (second,) = parts.append_batch(b"0"), parts.append_batch(b"1")
    parts.sink.answers += [again(), None, fails(OUT_OF_ORDER)]
    parts.run_until_done(first, second)
    assert [future.result(0).offset for future in (first, second)] == [-1, 0]
    assert sequences(parts) == [0, 1, 0]
    parts.check_at_rest()


def test_successor_that_is_acknowledged_by_the_same_call_makes_a_batch_a_duplicate():
    parts = Producing(is_idempotent=True)
    (first,), (second,) = parts.append_batch(b"0"), parts.append_batch(b"1")
    parts.sink.answers += [fails(OUT_OF_ORDER), None]
    parts.run()
    assert [future.result(0).offset for future in (first, second)] == [-1, 0]
    assert sequences(parts) == [0, 1]
    parts.check_at_rest()


@pytest.mark.parametrize(("last_sequence", "is_known"), [(1, True), (0, False), (-1, False)])
def test_batch_out_of_order_is_a_duplicate_if_the_log_says_it_has_later_sequences(last_sequence, is_known):
    parts = Producing(is_idempotent=True)
    future, other = parts.append_batch(b"0", b"1")
    parts.sink.answers += [
        lambda batch: fails(
            OutOfOrderSequenceError(
                "out of order", producer_id=batch.producer_id, producer_epoch=0, last_sequence=last_sequence
            )
        )(batch)
    ]
    parts.run_until_done(future, other)
    assert future.result(0).offset == (-1 if is_known else 0)
    assert sequences(parts, epoch=1) == ([] if is_known else [0])


def test_sequences_of_another_producer_say_nothing_of_a_batch():
    parts = Producing(is_idempotent=True)
    (future,) = parts.append_batch(b"0")
    parts.sink.answers += [
        fails(OutOfOrderSequenceError("out of order", producer_id=1, producer_epoch=0, last_sequence=9))
    ]
    parts.run_until_done(future)
    assert future.result(0).offset == 0
    assert sequences(parts, epoch=1) == [0]


def test_batch_that_the_log_may_have_is_not_sent_with_other_sequences():
    parts = Producing(is_idempotent=True)
    (doubtful,) = parts.append_batch(b"0")
    parts.sink.answers += [again(), fails(OUT_OF_ORDER)]
    parts.run_until_done(doubtful)
    assert isinstance(doubtful.exception(0), OutOfOrderSequenceError)
    later = parts.append_batch(b"1")
    parts.run_until_done(*later)
    assert [(one.producer_epoch, one.values) for one in parts.sink.sent] == [(0, [b"0"])] * 2 + [(1, [b"1"])]
    assert sequences(parts, epoch=1) == [0]
    parts.check_at_rest()


def test_pieces_of_a_batch_that_the_log_may_have_are_not_sent_with_other_sequences():
    parts = Producing(is_idempotent=True)
    pieces = parts.append_batch(bytes(500), bytes(400))
    parts.sink.answers += [again(), fails(RecordTooLargeError("too large")), fails(RecordTooLargeError("too large"))]
    parts.sink.answers += [fails(OUT_OF_ORDER)] * 2
    parts.run_until_done(*pieces)
    assert [type(future.exception(0)) for future in pieces] == [OutOfOrderSequenceError] * 2
    assert {one.producer_epoch for one in parts.sink.sent} == {0}
    parts.check_at_rest()


def test_nothing_passes_a_batch_until_it_was_sent_again():
    parts = Producing(is_idempotent=True)
    futures = parts.append_batch(b"0") + parts.append_batch(b"1")
    parts.sink.answers += [again(), None, again(), None]
    parts.run()
    futures += parts.append_batch(b"2") + parts.append_batch(b"3")
    parts.run_until_done(*futures)
    assert [[one.values for one in call] for call in parts.sink.calls] == [
        [[b"0"], [b"1"]],
        [[b"0"]],
        [[b"0"]],
        [[b"2"], [b"3"]],
    ]


# The order of callbacks


def listened(parts, *names, heard=None):
    """Append a batch for each name, whose callback notes it; return the names as they are heard."""
    heard = [] if heard is None else heard
    for name in names:
        parts.append(name, callback=lambda _, error, name=name: heard.append(name if error is None else f"no {name}"))
        parts.append_batch(name)
    return heard


def test_batch_whose_answer_was_lost_is_called_back_before_later_ones():
    parts = Producing(is_idempotent=True)
    heard = listened(parts, b"0", b"1", b"2")
    parts.sink.answers += [again(), None, fails(KStoreError("no"))]
    parts.run()
    assert heard == []
    assert parts.accumulator.has_incomplete
    parts.clock.now_ms += 200
    parts.run(2)
    assert heard == [b"0", b"1", "no b'2'"]
    parts.check_at_rest()


def test_batch_that_expires_is_called_back_after_earlier_ones_of_which_nothing_is_known():
    parts = Producing(is_idempotent=True, delivery_timeout_ms=1000)
    heard = listened(parts, b"0", b"1")
    parts.sink.answers += [again(), None]
    parts.run()
    parts.clock.now_ms += 999
    listened(parts, b"2", heard=heard)
    parts.clock.now_ms += 1
    parts.run(3)
    assert heard == ["no b'0'", b"1", b"2"]
    parts.check_at_rest()


def test_pieces_of_a_split_batch_are_called_back_before_a_later_one():
    parts = Producing(is_idempotent=True)
    heard = []
    for name in (b"0", b"1"):
        parts.append(bytes(400), callback=lambda *_, name=name: heard.append(name))
    parts.append_batch(b"")
    listened(parts, b"2", heard=heard)
    too_large = fails(RecordTooLargeError("too large"))
    parts.sink.answers += [too_large, None]
    parts.run()
    assert heard == []
    parts.run(6)
    assert heard == [b"0", b"1", b"2"]
    parts.check_at_rest()


def test_close_by_force_gives_batches_that_are_in_the_log_their_offsets_in_order():
    parts = Producing(is_idempotent=True)
    heard = listened(parts, b"0", b"1", b"2")
    parts.sink.answers += [again(), None, None]
    parts.run()
    listened(parts, b"3", heard=heard)
    parts.accumulator.abort_incomplete_batches()
    assert heard == ["no b'0'", b"1", b"2", "no b'3'"]
    parts.check_at_rest()


def test_run_that_breaks_off_fails_no_batch_that_is_in_the_log(monkeypatch):
    parts = Producing(is_idempotent=True)
    heard = listened(parts, b"0", b"1")
    parts.sink.answers += [again(), None]
    parts.run()
    monkeypatch.setattr(parts.sink, "cluster", lambda: Cluster([PartitionInfo("t", 0, None)]))
    monkeypatch.setattr(parts.sender, "_drain", lambda *_: 1 / 0)
    parts.sender._guarded_run()
    monkeypatch.undo()
    parts.clock.now_ms += 200
    parts.run(2)
    assert heard == [b"0", b"1"]
    parts.check_at_rest()


# Expiry


def test_batch_that_expired_unsent_leaves_nothing_unresolved():
    parts = Producing(is_idempotent=True, delivery_timeout_ms=1000)
    parts.sink.now = Cluster([PartitionInfo("t", 0, None)])
    future = parts.append()
    parts.clock.now_ms += 1000
    parts.run()
    assert isinstance(future.exception(), ProducerTimeoutError)
    assert not parts.manager.has_unresolved_sequence(T0)
    parts.sink.now = CLUSTER
    later = parts.append()
    parts.run_until_done(later)
    assert [(one.producer_epoch, one.base_sequence) for one in parts.sink.sent] == [(0, 0)]


def test_batch_that_expired_while_it_was_tried_again_is_unresolved_until_a_new_epoch():
    parts = Producing(is_idempotent=True, delivery_timeout_ms=1000)
    parts.sink.answers.append(again())
    lost = parts.append_batch(b"0")
    parts.run()
    parts.clock.now_ms += 500
    later = parts.append_batch(b"1")
    parts.sink.now = Cluster([PartitionInfo("t", 0, None)])
    parts.clock.now_ms += 500
    parts.run()
    assert isinstance(lost[0].exception(), ProducerTimeoutError)
    assert parts.manager.has_unresolved_sequence(T0)
    parts.sink.now = CLUSTER
    parts.run_until_done(*later)
    assert not parts.manager.has_unresolved_sequence(T0)
    assert [(one.producer_epoch, one.base_sequence) for one in parts.sink.sent] == [(0, 0), (1, 0)]
    parts.check_at_rest()


def test_nothing_new_is_sent_while_it_is_not_known_what_is_in_the_log():
    manager = TransactionManager()
    parts = Producing(manager=manager)
    first = parts.append_batch(b"0")
    parts.sink.answers.append(again())
    parts.run()
    (batch,) = manager.sequences_of(T0).in_flight
    manager.mark_sequence_unresolved(batch)
    parts.append_batch(b"1")
    parts.clock.now_ms += 200
    parts.run_until_done(*first)
    assert [one.values for one in parts.sink.sent] == [[b"0"], [b"0"]]
    parts.run(3)
    assert parts.sink.sent[-1].values == [b"1"]
    assert parts.sink.sent[-1].producer_epoch == 0 or parts.sink.sent[-1].base_sequence == 0
