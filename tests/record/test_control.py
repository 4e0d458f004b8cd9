"""Goal: values of control records become typed objects and give their bytes back; nothing else than typed errors.
Method: bytes packed by hand from the schemas, cut at every byte, with every bit flipped, with later versions."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest

from kstore import InvalidRecordError, MemoryRecords
from kstore.record.control import (
    EndTransactionMarker,
    UnknownControlRecord,
    control_record_key,
    control_record_value,
    decode_control_record,
)
from kstore.record.kraft import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from kstore.types import ControlRecordType
from kstore.wire.protocol import TaggedField
from tests.making.batches import record
from tests.reference.codec import write_batch

DIRECTORY = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
LEADER_CHANGE = LeaderChangeMessage(
    leader_id=1,
    voters=(LeaderChangeVoter(voter_id=1), LeaderChangeVoter(voter_id=2)),
    granting_voters=(LeaderChangeVoter(voter_id=2),),
)
LEADER_CHANGE_V1 = LeaderChangeMessage(
    leader_id=7, voters=(LeaderChangeVoter(voter_id=7, voter_directory_id=DIRECTORY),), version=1
)
VOTERS = VotersRecord(
    voters=(
        Voter(
            voter_id=3,
            voter_directory_id=DIRECTORY,
            endpoints=(VoterEndpoint(name="CONTROLLER", host="höst", port=65535),),
            kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        ),
    )
)
VALUES = {
    "abort": (EndTransactionMarker(control_type=ControlRecordType.ABORT, coordinator_epoch=7), "0000 00000007"),
    "commit": (EndTransactionMarker(control_type=ControlRecordType.COMMIT, coordinator_epoch=-1), "0000 ffffffff"),
    "commit of a later version": (
        EndTransactionMarker(control_type=ControlRecordType.COMMIT, coordinator_epoch=7, version=1, rest=b"\x02"),
        "0001 00000007 02",
    ),
    "leader change": (LEADER_CHANGE, "0000 00000001 03 00000001 00 00000002 00 02 00000002 00 00"),
    "leader change v1": (LEADER_CHANGE_V1, f"0001 00000007 02 00000007 {DIRECTORY.hex} 00 01 00"),
    "snapshot header": (SnapshotHeaderRecord(last_contained_log_timestamp_ms=258), "0000 0000000000000102 00"),
    "snapshot footer": (SnapshotFooterRecord(), "0000 00"),
    "snapshot footer with tags": (
        SnapshotFooterRecord(tagged_fields=(TaggedField(0, b""), TaggedField(300, b"ab"))),
        "0000 02 00 00 ac02 02 6162",
    ),
    "kraft version": (KRaftVersionRecord(kraft_version=1), "0000 0001 00"),
    "voters": (
        VOTERS,
        f"0000 02 00000003 {DIRECTORY.hex} 02 0b 434f4e54524f4c4c4552 06 68c3b67374 ffff 00 0000 0001 00 00 00",
    ),
}


def key_of(value):
    return control_record_key(value.control_type)


@pytest.mark.parametrize(("value", "data"), VALUES.values(), ids=VALUES)
def test_value_is_read_and_written_as_its_schema_says(value, data):
    data = bytes.fromhex(data)
    assert decode_control_record(key_of(value), data) == value
    assert value.to_bytes() == data


@pytest.mark.parametrize(("value", "data"), VALUES.values(), ids=VALUES)
def test_value_cut_off_at_any_byte_is_refused(value, data):
    whole = bytes.fromhex(data)
    least = 6 if getattr(value, "rest", b"") else len(whole)
    for size in range(least):
        with pytest.raises(InvalidRecordError, match="expected"):
            decode_control_record(key_of(value), whole[:size])


@pytest.mark.parametrize(("value", "data"), VALUES.values(), ids=VALUES)
def test_flipped_bit_gives_another_value_or_a_typed_error(value, data):
    whole = int(data.replace(" ", ""), 16)
    size = len(bytes.fromhex(data))
    read = refused = 0
    for bit in range(size * 8):
        flipped = (whole ^ 1 << bit).to_bytes(size, "big")
        try:
            decoded = decode_control_record(key_of(value), flipped)
        except InvalidRecordError:
            refused += 1
            continue
        read += 1
        assert decode_control_record(key_of(value), decoded.to_bytes()) == decoded
    assert read
    assert refused


@pytest.mark.parametrize(("value", "data"), VALUES.values(), ids=VALUES)
def test_byte_behind_the_value_is_refused_unless_the_version_is_later(value, data):
    whole = bytes.fromhex(data) + b"\0"
    if getattr(value, "rest", b""):
        assert decode_control_record(key_of(value), whole).rest == value.rest + b"\0"
        return
    with pytest.raises(InvalidRecordError, match="no more bytes"):
        decode_control_record(key_of(value), whole)


@pytest.mark.parametrize(
    ("type_id", "data"),
    [
        pytest.param(7, b"\0\0anything", id="type-7"),
        pytest.param(-1, None, id="type--1-null"),
        pytest.param(2, b"\0\2later", id="leader-change-v2"),
        pytest.param(6, b"\x7f\xff", id="voters-v32767"),
    ],
)
def test_unknown_type_or_version_is_kept_as_it_came(type_id, data):
    decoded = decode_control_record(struct.pack(">hh", 0, type_id), data)
    assert decoded == UnknownControlRecord(type_id=type_id, data=data)
    assert decoded.to_bytes() == data


REFUSED = {
    "null value": (2, None, "expected bytes, found None"),
    "no version": (2, "00", "version at byte 0 of 1: expected 2 bytes, found 1"),
    "negative version": (0, "ffff 00000000", "version at byte 2 of 6: expected at least 0, found -1"),
    "voters that are null": (6, "0000 00", "voters at byte 3 of 3: expected an array, found None"),
    "more voters than bytes": (6, "0000 ffffffff0f 00", "voters at byte 7 of 8: expected a length from 0 to 1"),
    "varint of six bytes": (6, "0000 808080808000", "expected a varint of at most 5 bytes"),
    "varint beyond 32 bits": (6, "0000 808080807f", "expected a varint of at most 32 bits"),
    "tags that do not rise": (4, "0000 02 0100 0100", "tag at byte 6 of 7: expected one above 1, found 1"),
    "tags without room": (4, "0000 02 00", "tagged fields at byte 3 of 4: expected at most 0, found 2"),
    "tag longer than the rest": (4, "0000 01 0002 00", "tag 0 at byte 5 of 6: expected 2 bytes, found 1"),
    "negative epoch": (1, "0000 fffffffe", "coordinatorEpoch at byte 6 of 6: expected at least -1, found -2"),
}


@pytest.mark.parametrize(("type_id", "data", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_value_is_refused_with_the_field_and_its_place(type_id, data, message):
    value = None if data is None else bytes.fromhex(data)
    with pytest.raises(InvalidRecordError) as caught:
        decode_control_record(struct.pack(">hh", 0, type_id), value)
    assert message in str(caught.value)


def test_error_about_a_record_names_its_batch():
    data = write_batch([record(5, b"\0\0\0", b"\0\0\0\1")], is_control=True)
    (batch,) = MemoryRecords(data, position=100, path="/x").batches()
    (marker,) = batch
    with pytest.raises(InvalidRecordError) as caught:
        control_record_value(marker, batch)
    assert str(caught.value) == (
        "bad control record value at offset 5 in batch at position 100 of /x (base offset 5): "
        "COMMIT control record: coordinatorEpoch at byte 2 of 3: expected 4 bytes, found 1"
    )
    assert (caught.value.position, caught.value.path, caught.value.base_offset) == (100, "/x", 5)


UNWRITABLE = {
    "directory in version 0": LeaderChangeMessage(leader_id=1, voters=LEADER_CHANGE_V1.voters),
    "version 2": LeaderChangeMessage(leader_id=1, version=2),
    "negative version": SnapshotFooterRecord(version=-1),
    "leader beyond int32": LeaderChangeMessage(leader_id=2**31),
    "kraft version beyond int16": KRaftVersionRecord(kraft_version=2**15),
    "timestamp beyond int64": SnapshotHeaderRecord(last_contained_log_timestamp_ms=2**63),
    "tags that do not rise": SnapshotFooterRecord(tagged_fields=(TaggedField(1, b""), TaggedField(1, b""))),
    "tag beyond uint32": SnapshotFooterRecord(tagged_fields=(TaggedField(2**32, b""),)),
    "marker version beyond int16": EndTransactionMarker(
        control_type=ControlRecordType.ABORT, coordinator_epoch=0, version=2**15
    ),
}


@pytest.mark.parametrize("value", UNWRITABLE.values(), ids=UNWRITABLE)
def test_value_that_its_schema_cannot_hold_is_not_written(value):
    with pytest.raises(ValueError, match=r"version|beyond|fit|tags|varint"):
        value.to_bytes()


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"control_type": ControlRecordType.LEADER_CHANGE}, id="leader-change"),
        pytest.param({"coordinator_epoch": 2**31}, id="epoch-beyond-int32"),
        pytest.param({"rest": b"x"}, id="rest-in-version-0"),
        pytest.param({"version": -1}, id="negative-version"),
    ],
)
def test_end_transaction_marker_that_cannot_be_is_not_made(arguments):
    with pytest.raises(ValueError, match=r"ABORT or COMMIT|coordinator_epoch|version"):
        EndTransactionMarker(**({"control_type": ControlRecordType.ABORT, "coordinator_epoch": 0} | arguments))
