"""Goal: what GroupRecords knows after any history, read in any steps, is what a coordinator that replayed it knows.
Method: random commits, tombstones, transactions and markers; a model that replays as Kafka's OffsetMetadataManager."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore import LogConfig, OffsetAndMetadata, TopicPartition, open_log
from kstore.coordinator.group.records import GroupRecords, committed_offsets, decoded, is_offset_commit_of
from kstore.record import (
    AppendOrigin,
    ControlRecordType,
    EndTransactionMarker,
    MemoryRecordsBuilder,
    with_end_transaction_marker,
)
from kstore.record.schemas.topics import encode_offset_commit
from tests.making.strategies import examples

GROUPS = ("g", "h")
PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
KEYS = st.tuples(st.sampled_from(GROUPS), st.sampled_from(PARTITIONS))
COMMITS = st.lists(st.tuples(KEYS, st.none() | st.integers(0, 99)), min_size=1, max_size=3)
PLAIN = st.tuples(st.just("plain"), st.just(0), COMMITS)
PRODUCERS = st.integers(0, 2)
TRANSACTIONAL = st.tuples(st.just("transactional"), PRODUCERS, COMMITS)
MARKERS = st.tuples(st.sampled_from(("commit", "abort")), PRODUCERS, st.just(()))
READS = st.tuples(st.just("read"), st.just(0), st.just(()))
STEPS = st.lists(PLAIN | TRANSACTIONAL | MARKERS | READS, max_size=25)


class Model:
    """Kafka's maps: committed offsets with the offset of their record, and those of each open transaction."""

    def __init__(self):
        self.offsets, self.pending, self.end = {}, {}, 0

    def replay(self, kind, producer_id, commits):
        if kind in ("commit", "abort"):
            for key, found in self.pending.pop(producer_id, {}).items():
                if kind == "commit" and self.offsets.get(key, (-1, 0))[0] < found[0]:
                    self.offsets[key] = found
            self.end += 1
        for key, offset in commits:
            if offset is None:
                self.offsets.pop(key, None)
                for of_producer in self.pending.values():
                    of_producer.pop(key, None)
            elif kind == "plain":
                self.offsets[key] = self.end, offset
            else:
                self.pending.setdefault(producer_id, {})[key] = self.end, offset
            self.end += 1

    def of(self, group):
        return {place: offset for (name, place), (_, offset) in self.offsets.items() if name == group}

    def held_of(self, group):
        return {place for held in self.pending.values() for name, place in held if name == group}


def append(log, kind, producer_id, commits):
    if kind in ("commit", "abort"):
        kinds = ControlRecordType.COMMIT if kind == "commit" else ControlRecordType.ABORT
        marker = EndTransactionMarker(control_type=kinds, coordinator_epoch=0)
        records = with_end_transaction_marker(marker, timestamp_ms=1, producer_id=producer_id, producer_epoch=0)
    else:
        of_producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        builder = MemoryRecordsBuilder(**of_producer if kind == "transactional" else {})
        for (group, place), offset in commits:
            made = None if offset is None else OffsetAndMetadata(offset)
            key, value = encode_offset_commit(group, place, made)
            builder.append(timestamp_ms=1, key=key, value=value)
        records = builder.build()
    log.append(records, origin=AppendOrigin.COORDINATOR)


def known(records, log, group):
    found = committed_offsets(record for record in decoded(records.current(), log) if record.group_id == group)
    return {place: one.offset for place, one in found.items()}


def held(records, log, group):
    return {record.topic_partition for record in decoded(records.pending(), log) if record.group_id == group}


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    return (tmp_path_factory.mktemp("group") / f"__consumer_offsets-{number}" for number in range(10**6))


@given(steps=STEPS, is_compacted=st.booleans())
@examples(40)
def test_records_say_what_a_coordinator_knows(directories, steps, is_compacted):
    model, reading, of_one = Model(), GroupRecords(), GroupRecords(is_offset_commit_of("g"))
    config = LogConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, delete_retention_ms=10**12)
    path = next(directories)
    with open_log(path, "a", config) as log, open_log(path) as beside:
        for step in steps:
            if step[0] == "read":
                beside.refresh()
                reading.update(beside)
                of_one.update(log)
            else:
                append(log, *step)
                model.replay(*step)
        if is_compacted:
            log.roll()
            log.compact(is_forced=True)
        beside.refresh()
        whole = GroupRecords()
        for records, source in ((reading, beside), (whole, log), (of_one, log)):
            records.update(source)
        for group in GROUPS:
            assert known(reading, beside, group) == known(whole, log, group) == model.of(group)
            assert held(reading, beside, group) == held(whole, log, group) == model.held_of(group)
        assert known(of_one, log, "g") == model.of("g")
        assert known(of_one, log, "h") == {}
