"""Goal: MemoryRecords made of records at once are what the reference writes of the same records and offsets.

Method: offsets given, counted and assigned by a shared counter; wrappers and control batches by their fields.
"""

from __future__ import annotations

import itertools
from typing import Any
from uuid import UUID

import pytest

from kstore.record import Record
from kstore.record import builder as creation
from kstore.record.control import EndTransactionMarker
from kstore.record.kraft import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kstore.types import ControlRecordType, TimestampType
from tests.making import batches as builders
from tests.making.messages import decompressed, packed_entry
from tests.reference import codec as reference
from tests.reference import codecs as codecs

TIMES = (5, 9, 7)
RECORDS = [Record(offset=100 * n, timestamp_ms=time, key=b"k", value=b"%d" % n) for n, time in enumerate(TIMES)]
EPOCH = {"partition_leader_epoch": 0}
PRODUCER = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 5}


def expected(*offsets: int) -> list[reference.Record]:
    return [
        builders.record(offset, b"%d" % number, b"k", timestamp_ms=time)
        for number, (offset, time) in enumerate(zip(offsets, TIMES, strict=True))
    ]


def test_offsets_are_counted_from_the_base_offset() -> None:
    assert bytes(creation.with_records(RECORDS, **EPOCH)) == reference.write_batch(expected(0, 1, 2))
    assert bytes(creation.with_records(RECORDS, base_offset=8, **EPOCH)) == reference.write_batch(expected(8, 9, 10))


def test_given_offsets_are_kept() -> None:
    built = creation.with_records(RECORDS, offsets=(record.offset for record in RECORDS), **EPOCH)
    assert bytes(built) == reference.write_batch(expected(0, 100, 200))


def test_shared_counter_gives_as_many_offsets_as_there_are_records() -> None:
    counter = itertools.count(4)
    first, second = (bytes(creation.with_records(RECORDS, offsets=counter, **EPOCH)) for _ in range(2))
    assert (first, second) == (reference.write_batch(expected(4, 5, 6)), reference.write_batch(expected(7, 8, 9)))
    assert next(counter) == 10


def test_offsets_that_end_too_soon_are_refused() -> None:
    with pytest.raises(ValueError, match="expected an offset for each record, got 2"):
        creation.with_records(RECORDS, offsets=[1, 2])


def test_offsets_that_fall_are_refused() -> None:
    with pytest.raises(ValueError, match="offsets must increase"):
        creation.with_records(RECORDS, offsets=[5, 6, 6])


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("offsets", [None, [], [1]], ids=["counted", "none given", "given"])
def test_no_records_give_no_bytes(magic: int, offsets: list[int] | None) -> None:
    assert bytes(creation.with_records([], magic=magic, compression="gzip", offsets=offsets)) == b""


def test_producer_state_stands_in_the_header() -> None:
    idempotent = creation.with_idempotent_records(iter(RECORDS), **PRODUCER, **EPOCH)
    assert bytes(idempotent) == reference.write_batch(expected(0, 1, 2), **PRODUCER)
    transactional = creation.with_transactional_records(RECORDS, base_offset=4, **PRODUCER, **EPOCH)
    assert bytes(transactional) == reference.write_batch(expected(4, 5, 6), is_transactional=True, **PRODUCER)


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages_stand_one_behind_the_other(magic: int) -> None:
    entries = [
        packed_entry(b"%d" % number, b"k", offset=6 + number, magic=magic, timestamp_ms=time if magic else -1)
        for number, time in enumerate(TIMES)
    ]
    assert bytes(creation.with_records(RECORDS, magic=magic, base_offset=6)) == b"".join(entries)


WRAPPERS: dict[str, tuple[int, dict[str, Any], int]] = {
    "largest of the records": (1, {}, 9),
    "given": (1, {"wrapper_timestamp_ms": 3}, 3),
    "given, the largest": (1, {"wrapper_timestamp_ms": 9}, 9),
    "none": (1, {"wrapper_timestamp_ms": -1}, -1),
    "V0": (0, {}, -1),
}


@pytest.mark.parametrize(("magic", "options", "timestamp_ms"), WRAPPERS.values(), ids=WRAPPERS)
def test_wrapper_timestamp_is_given_or_the_largest(magic: int, options: dict[str, Any], timestamp_ms: int) -> None:
    data = bytes(creation.with_records(RECORDS, magic=magic, offsets=[3, 5, 8], compression="gzip", **options))
    value = data[26 + 8 * magic :]
    fields = {"magic": magic, "attributes": codecs.GZIP, "timestamp_ms": timestamp_ms}
    assert data == packed_entry(value, None, offset=8, **fields)
    first_offset = 3 if magic else 0
    inner = [
        packed_entry(
            b"%d" % number, b"k", offset=offset - first_offset, magic=magic, timestamp_ms=time if magic else -1
        )
        for number, (offset, time) in enumerate(zip((3, 5, 8), TIMES, strict=True))
    ]
    assert decompressed(value, magic=magic, codec=codecs.GZIP) == b"".join(inner)


NO_WRAPPERS: dict[str, dict[str, Any]] = {
    "plain": {"magic": 1},
    "V0": {"magic": 0, "compression": "gzip"},
    "V2": {"compression": "gzip"},
    "append time": {"magic": 1, "compression": "gzip", "timestamp_type": TimestampType.LOG_APPEND_TIME},
}


@pytest.mark.parametrize("options", NO_WRAPPERS.values(), ids=NO_WRAPPERS)
def test_wrapper_timestamp_needs_a_wrapper_that_has_one(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="wrapper_timestamp_ms is for"):
        creation.with_records(RECORDS, wrapper_timestamp_ms=5, **options)


@pytest.mark.parametrize("commit", [False, True], ids=["abort", "commit"])
def test_end_transaction_marker_is_that_of_the_reference(commit: bool) -> None:
    kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    marker = EndTransactionMarker(control_type=kind, coordinator_epoch=3)
    producer = {"producer_id": 7, "producer_epoch": 1}
    built = creation.with_end_transaction_marker(marker, timestamp_ms=9, offset=44, **producer, **EPOCH)
    assert bytes(built) == reference.write_end_transaction_marker(
        44, timestamp_ms=9, commit=commit, coordinator_epoch=3, **producer
    )
    with pytest.raises(ValueError, match="needs a producer id"):
        creation.with_end_transaction_marker(marker, timestamp_ms=9, producer_id=-1, producer_epoch=1)


VOTER = LeaderChangeVoter(voter_id=1)
KRAFT: dict[str, tuple[creation.KRaftControlRecord, int]] = {
    "leader change": (LeaderChangeMessage(leader_id=1, voters=(VOTER,)), 2),
    "snapshot header": (SnapshotHeaderRecord(last_contained_log_timestamp_ms=5), 3),
    "snapshot footer": (SnapshotFooterRecord(), 4),
    "KRaft version": (KRaftVersionRecord(kraft_version=1), 5),
    "voters": (VotersRecord(voters=()), 6),
}


@pytest.mark.parametrize(("value", "type_id"), KRAFT.values(), ids=KRAFT)
def test_kraft_control_record_stands_alone_in_its_batch(value: creation.KRaftControlRecord, type_id: int) -> None:
    built = creation.with_kraft_control_record(value, timestamp_ms=9, offset=4, partition_leader_epoch=6)
    key = b"\0\0" + type_id.to_bytes(2, "big")
    record = builders.record(4, value.to_bytes(), key, timestamp_ms=9)
    assert bytes(built) == reference.write_batch([record], is_control=True, partition_leader_epoch=6)


def test_leader_change_needs_a_leader_epoch() -> None:
    message = LeaderChangeMessage(
        leader_id=1, voters=(LeaderChangeVoter(voter_id=1, voter_directory_id=UUID(int=5)),), version=1
    )
    built = creation.with_leader_change_message(message, timestamp_ms=9, partition_leader_epoch=6)
    assert bytes(built) == bytes(creation.with_kraft_control_record(message, timestamp_ms=9, partition_leader_epoch=6))
    with pytest.raises(ValueError, match="needs a partition leader epoch"):
        creation.with_leader_change_message(message, timestamp_ms=9, partition_leader_epoch=-1)
