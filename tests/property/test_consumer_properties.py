"""Goal: whatever happens to a log meanwhile, a consumer returns each record that it may see once and in order, and goes
on where its group committed.
Method: random appends, transactions, deletions, rolls, polls, seeks and restarts, by the writer and beside it; a list
of all records as the model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore import Consumer, LogConfig, TopicPartition, open_store
from kstore.record import (
    AppendOrigin,
    ControlRecordType,
    EndTransactionMarker,
    MemoryRecordsBuilder,
    Record,
    with_end_transaction_marker,
)
from tests.making.strategies import examples

T0 = TopicPartition("t", 0)
MOST = 2
PRODUCERS = st.integers(1, 2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("send"), PRODUCERS),
        st.tuples(st.just("commit"), PRODUCERS),
        st.tuples(st.just("abort"), PRODUCERS),
        st.tuples(st.just("delete"), st.integers(0, 100)),
        st.tuples(st.just("roll"), st.just(0)),
        st.tuples(st.just("poll"), st.integers(1, 3)),
        st.tuples(st.just("seek"), st.integers(0, 100)),
        st.tuples(st.just("save"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=30,
)


class Model:
    """The records of a log, by offset: (producer id or None, None for a marker or the value)."""

    def __init__(self):
        self.records, self.aborted, self.open = [], set(), {}
        self.start = self.position = 0
        self.saved = None

    def append(self, value, producer=None):
        offset = len(self.records)
        self.records.append(value)
        if producer is not None:
            self.open.setdefault(producer, []).append(offset)

    def end_transaction(self, producer, *, is_abort):
        offsets = self.open.pop(producer, [])
        self.aborted.update(offsets if is_abort else ())
        self.records.append(None)

    def end(self, isolation):
        if isolation == "read_uncommitted":
            return len(self.records)
        return min([len(self.records), *(offsets[0] for offsets in self.open.values())])

    def is_visible(self, offset, isolation):
        hidden = self.aborted if isolation == "read_committed" else ()
        return self.records[offset] is not None and offset not in hidden

    def check_poll(self, found, isolation, *, is_beside):
        """A poll returns all that there is, or of a log as it was a part of it; the position moves."""
        end = self.end(isolation)
        starts = {max(self.position, self.start), self.position} if is_beside else {max(self.position, self.start)}
        expected = [
            [(offset, self.records[offset]) for offset in range(start, end) if self.is_visible(offset, isolation)][
                :MOST
            ]
            for start in starts
        ]
        if is_beside:
            expected = [one[: len(found)] for one in expected if found or not one]
        assert found in expected
        if found:
            self.position = found[-1][0] + 1

    def check_position(self, position, isolation):
        """A position passes nothing that is visible."""
        passed = range(max(self.position, self.start), position)
        assert not [offset for offset in passed if self.is_visible(offset, isolation)]
        assert position >= self.position or position == self.start
        self.position = position


def transactional(producer, value):
    builder = MemoryRecordsBuilder(producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True)
    builder.append(timestamp_ms=1, key=None, value=value)
    return builder.build()


def marker(producer, *, is_abort):
    kind = ControlRecordType.ABORT if is_abort else ControlRecordType.COMMIT
    end = EndTransactionMarker(control_type=kind, coordinator_epoch=0)
    return with_end_transaction_marker(end, timestamp_ms=1, producer_id=producer, producer_epoch=0)


def change(log, model, step, number):
    """Take a step that changes the log, or none."""
    kind, argument = step
    value = b"%d" % number
    if kind == "append":
        for _ in range(argument):
            log.append(Record(timestamp_ms=1, value=value))
            model.append(value)
    elif kind == "send":
        log.append(transactional(argument, value), origin=AppendOrigin.COORDINATOR)
        model.append(value, argument)
    elif kind in ("commit", "abort"):
        log.append(marker(argument, is_abort=kind == "abort"), origin=AppendOrigin.COORDINATOR)
        model.end_transaction(argument, is_abort=kind == "abort")
    elif kind == "delete":
        model.start = max(model.start, argument * len(model.records) // 100)
        log.delete_records(model.start)
    elif kind == "roll":
        log.roll()


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    base = tmp_path_factory.mktemp("consumer")
    return (base / f"root-{number}" for number in range(10**6))


@given(steps=STEPS, is_beside=st.booleans(), isolation=st.sampled_from(("read_uncommitted", "read_committed")))
@examples(40)
def test_a_consumer_returns_each_record_once(roots, steps, is_beside, isolation):
    root, model = next(roots), Model()
    with open_store(root, "a", LogConfig(file_delete_delay_ms=0, index_interval_bytes=1)) as store:
        store.create_topic("t")
        store.create_topic("__consumer_offsets")
        given = {"group": "g", "topics": ["t"], "auto_offset_reset": "earliest", "isolation": isolation}
        with open_store(root) as beside, Consumer(store, group="g") as saver:
            source = beside if is_beside else store
            consumer = Consumer(source, **given, max_poll_records=MOST)
            for number, step in enumerate([*steps, ("poll", 3), ("poll", 50)]):
                change(store.log("t"), model, step, number)
                if step[0] == "poll":
                    for _ in range(step[1]):
                        found = [(record.offset, record.value) for record in consumer.poll()]
                        model.check_poll(found, isolation, is_beside=is_beside)
                elif step[0] == "seek":
                    model.position = step[1] * len(model.records) // 100
                    consumer.seek(T0, model.position)
                elif step[0] == "save":
                    model.saved = consumer.position(T0)
                    model.check_position(model.saved, isolation)
                    saver.commit({T0: model.saved})
                elif step[0] == "restart":
                    consumer.close()
                    consumer = Consumer(source, **given, max_poll_records=MOST)
                    model.position = model.start if model.saved is None else model.saved
            assert not list(consumer.poll())
