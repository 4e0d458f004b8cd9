"""Goal: no damage to a batch goes unseen unless the format cannot tell, and what is seen has its class and place.

Method: every bit, byte and header field of small batches of each codec is damaged in turn, with the CRC left wrong
or made right again; the expected class is written out where a rule gives it, and is else the reference's verdict.
"""

from __future__ import annotations

import pytest

from kstore import _core
from kstore.errors import CorruptionError, CorruptRecordError, UnsupportedError, UnsupportedMagicError
from kstore.record import MemoryRecords
from tests.making import batches as builders
from tests.making.collecting import over
from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference.codec import HEADER_BYTES, Record
from tests.reference.verdicts import (
    Refused,
    as_reference,
    column_verdict,
    core_batch_verdict,
    expected_column_verdict,
    reference_batch_verdict,
)
from tests.reference.walk import walk

POSITION = 4096
RECORDS = [
    builders.record(7, b"value", b"key", headers=[(b"h", b"1"), (b"n", None)]),
    builders.record(8, None, b""),
    builders.record(10, b"v" * 70, None),
]
RECORDS_READ = [record._replace(sequence=3 + record.offset - 7) for record in RECORDS]
BATCHES = {
    name: reference.write_batch(RECORDS, codec=codec, producer_id=9, producer_epoch=1, base_sequence=3)
    for codec, name in enumerate(codecs.CODEC_NAMES)
}
batch_parameter = pytest.mark.parametrize("data", BATCHES.values(), ids=list(BATCHES))

OFFSET_BYTES = range(8)
SIZE_BYTES = range(8, 12)
LEADER_EPOCH_BYTES = range(12, 16)
MAGIC_BYTE = 16


def expected_of_flip(data: bytes, position: int, *, bit: int) -> str | None:
    """The error class that one flipped bit must give when the CRC is left alone; None: the format cannot tell."""
    if position == 0 and bit == 7:
        return "CorruptRecordError"
    if position in OFFSET_BYTES or position in LEADER_EPOCH_BYTES:
        return None
    return "UnsupportedMagicError" if position == MAGIC_BYTE else "CorruptRecordError"


def flipped(data: bytes, position: int, *, bit: int) -> bytes:
    out = bytearray(data)
    builders.flip_bit(out, position, bit=bit)
    return bytes(out)


@batch_parameter
def test_every_flipped_bit_is_refused_with_its_place_or_outside_the_crc(data: bytes) -> None:
    for position in range(len(data)):
        for bit in range(8):
            damaged = flipped(data, position, bit=bit)
            expected = expected_of_flip(data, position, bit=bit)
            found = core_batch_verdict(damaged, position=POSITION)
            place = f"bit {bit} of byte {position}"
            if expected is not None:
                assert found == Refused(expected, POSITION), place
                assert column_verdict(damaged) == Refused(expected, 0), place
            elif position in LEADER_EPOCH_BYTES:
                assert found == RECORDS_READ, place
            else:
                shift = int.from_bytes(damaged[:8], "big") - int.from_bytes(data[:8], "big")
                assert found == [record._replace(offset=record.offset + shift) for record in RECORDS_READ], place


@batch_parameter
def test_every_flipped_bit_with_the_crc_repaired_gets_the_verdict_of_the_reference(data: bytes) -> None:
    refused = accepted = 0
    for position in range(reference.ATTRIBUTES_AT, len(data)):
        for bit in range(8):
            damaged = bytearray(flipped(data, position, bit=bit))
            builders.fix_crc(damaged)
            verdict = agreed_verdict(bytes(damaged), place=f"bit {bit} of byte {position}")
            refused += isinstance(verdict, Refused)
            accepted += not isinstance(verdict, Refused)
    assert refused > 100
    assert accepted > 100


def agreed_verdict(data: bytes, *, place: str) -> list[Record] | Refused:
    expected = reference_batch_verdict(data, position=POSITION)
    assert core_batch_verdict(data, position=POSITION) == expected, place
    assert column_verdict(data) == expected_column_verdict(data), place
    return expected


@batch_parameter
@pytest.mark.parametrize("value", [0x00, 0x01, 0x7F, 0x80, 0xFF])
def test_every_byte_overwritten_with_the_crc_repaired_gets_the_verdict_of_the_reference(
    data: bytes, value: int
) -> None:
    for position in range(reference.ATTRIBUTES_AT, len(data)):
        damaged = bytearray(data)
        builders.set_byte(damaged, position, value=value)
        builders.fix_crc(damaged)
        agreed_verdict(bytes(damaged), place=f"byte {position}")


@batch_parameter
def test_every_byte_zeroed_to_the_end_with_the_crc_repaired_gets_the_verdict_of_the_reference(data: bytes) -> None:
    for position in range(reference.ATTRIBUTES_AT, len(data)):
        damaged = bytearray(data)
        builders.zero(damaged, position, size=len(data) - position)
        assert core_batch_verdict(bytes(damaged), position=POSITION) == unrepaired_tail(data, bytes(damaged))
        builders.fix_crc(damaged)
        agreed_verdict(bytes(damaged), place=f"zeros from byte {position}")


def unrepaired_tail(data: bytes, damaged: bytes) -> list[Record] | Refused:
    return RECORDS_READ if damaged == data else Refused("CorruptRecordError", POSITION)


@batch_parameter
def test_a_byte_cut_out_or_put_in_with_size_and_crc_repaired_gets_the_verdict_of_the_reference(data: bytes) -> None:
    for position in range(HEADER_BYTES, len(data) + 1):
        for changed in (data[:position] + b"\x02" + data[position:], data[:position] + data[position + 1 :]):
            resealed = reference.seal(reference.Header.unpack(data), changed[HEADER_BYTES:])
            agreed_verdict(resealed, place=f"byte {position}, {len(changed) - len(data):+d}")


@batch_parameter
def test_batch_cut_at_any_byte_is_corrupt_when_read_and_the_end_of_a_log(data: bytes) -> None:
    for size in range(1, len(data)):
        cut = data[:size]
        assert core_batch_verdict(cut, position=POSITION) == Refused("CorruptRecordError", POSITION), size
        assert column_verdict(cut) == Refused("CorruptRecordError", 0), size
        assert list(MemoryRecords(data + cut)) == list(MemoryRecords(data)), size
        scan = _core.HeaderScan(position=0, end_position=size)
        scan.feed(cut, 0)
        assert (scan.status, scan.position) == (walk(cut).status, 0), size
        assert scan.status == ("zeros" if not any(cut[:17]) and size < 8 else "torn"), size


# Field, value, and the error class with the CRC left wrong and with the CRC right; None: the reference decides.
FIELDS: list[tuple[str, int, str | None, str | None]] = [
    ("batch_length", -1, "CorruptRecordError", "CorruptRecordError"),
    ("batch_length", 0, "CorruptRecordError", "CorruptRecordError"),
    ("batch_length", 48, "CorruptRecordError", "CorruptRecordError"),
    ("batch_length", 49, "CorruptRecordError", "CorruptRecordError"),
    ("batch_length", 2**31 - 1, "CorruptRecordError", "CorruptRecordError"),
    ("magic", 0, "UnsupportedMagicError", "UnsupportedMagicError"),
    ("magic", 1, "UnsupportedMagicError", "UnsupportedMagicError"),
    ("magic", 3, "UnsupportedMagicError", "UnsupportedMagicError"),
    ("magic", -1, "UnsupportedMagicError", "UnsupportedMagicError"),
    ("crc", 0, "CorruptRecordError", None),
    ("crc", 2**32 - 1, "CorruptRecordError", None),
    ("base_offset", -1, "CorruptRecordError", "CorruptRecordError"),
    ("base_offset", 2**63 - 1, "CorruptRecordError", "CorruptRecordError"),
    ("attributes", 5, "CorruptRecordError", "UnsupportedCompressionTypeError"),
    ("attributes", 6, "CorruptRecordError", "UnsupportedCompressionTypeError"),
    ("attributes", 7, "CorruptRecordError", "UnsupportedCompressionTypeError"),
    ("last_offset_delta", -1, "CorruptRecordError", "InvalidRecordError"),
    ("last_offset_delta", 0, "CorruptRecordError", "InvalidRecordError"),
    ("last_offset_delta", 2, "CorruptRecordError", "InvalidRecordError"),
    ("last_offset_delta", -(2**31), "CorruptRecordError", "InvalidRecordError"),
    ("last_offset_delta", 2**31 - 1, "CorruptRecordError", None),
    ("record_count", -1, "CorruptRecordError", "InvalidRecordError"),
    ("record_count", 0, "CorruptRecordError", "InvalidRecordError"),
    ("record_count", 2, "CorruptRecordError", "InvalidRecordError"),
    ("record_count", 4, "CorruptRecordError", "InvalidRecordError"),
    ("record_count", 2**31 - 1, "CorruptRecordError", "InvalidRecordError"),
    ("base_timestamp_ms", -(2**63), "CorruptRecordError", None),
    ("base_timestamp_ms", 2**63 - 1, "CorruptRecordError", None),
    ("max_timestamp_ms", -(2**63), "CorruptRecordError", None),
    ("max_timestamp_ms", 2**63 - 1, "CorruptRecordError", None),
    ("producer_id", -(2**63), "CorruptRecordError", None),
    ("producer_epoch", -(2**15), "CorruptRecordError", None),
    ("base_sequence", -(2**31), "CorruptRecordError", None),
    ("base_sequence", 2**31 - 1, "CorruptRecordError", None),
    ("partition_leader_epoch", -(2**31), None, None),
    ("partition_leader_epoch", 2**31 - 1, None, None),
]


@batch_parameter
@over("field, value, raw, repaired", FIELDS, by=lambda _: "fields")
def test_each_header_field_out_of_line_has_its_class(
    data: bytes, field: str, value: int, raw: str | None, repaired: str | None
) -> None:
    for repair_crc, expected in ((False, raw), (True, repaired)):
        damaged = builders.with_fields(data, {field: value}, repair_crc=repair_crc)
        verdict = core_batch_verdict(damaged, position=POSITION)
        assert verdict == reference_batch_verdict(damaged, position=POSITION)
        assert column_verdict(damaged) == expected_column_verdict(damaged)
        if expected is not None:
            assert verdict == Refused(expected, POSITION)


@batch_parameter
@pytest.mark.parametrize("field", ["attributes", "last_offset_delta", "base_timestamp_ms", "max_timestamp_ms"])
def test_each_header_field_zeroed_and_grown_gets_the_verdict_of_the_reference(data: bytes, field: str) -> None:
    start = getattr(reference.Header.unpack(data), field)
    for value in (0, start + 1, start - 1):
        agreed_verdict(builders.with_fields(data, {field: value}), place=f"{field} {value}")


MIDDLE = builders.batch(5, 5)
DAMAGED_MIDDLES = {
    "bad CRC": flipped(MIDDLE, len(MIDDLE) - 1, bit=3),
    "bad size": builders.patch_header(MIDDLE, repair_crc=False, batch_length=-5),
    "bad magic": builders.patch_header(MIDDLE, magic=9),
    "bad count": builders.patch_header(MIDDLE, record_count=4),
    "bad offset": builders.patch_header(MIDDLE, base_offset=-3),
}


@pytest.mark.parametrize("damaged", DAMAGED_MIDDLES.values(), ids=list(DAMAGED_MIDDLES))
def test_batches_before_the_damaged_one_are_read_and_its_place_is_told(damaged: bytes) -> None:
    first, last = builders.batch(0, 5), builders.batch(10, 5)
    memory = MemoryRecords(first + damaged + last, position=POSITION, path="x.log")
    records = iter(memory)
    assert [as_reference(next(records)) for _ in range(5)] == builders.records(0, 5)
    verdict = reference_batch_verdict(damaged, position=POSITION + len(first))
    assert isinstance(verdict, Refused)
    with pytest.raises((CorruptionError, UnsupportedError), match=r"x\.log") as caught:
        list(records)
    assert isinstance(caught.value, CorruptionError | UnsupportedError)
    assert Refused(type(caught.value).__name__, caught.value.position) == verdict
    assert column_verdict(first + damaged + last) == Refused(verdict.error, len(first))


def test_batch_with_offsets_going_back_is_refused_in_columns_and_read_alone() -> None:
    data = builders.batch(10) + builders.batch(10)
    assert column_verdict(data) == expected_column_verdict(data) == Refused("CorruptRecordError", len(data) // 2)
    assert [record.offset for record in MemoryRecords(data)] == [10, 10]


def test_error_of_a_flipped_value_byte_shows_both_crcs() -> None:
    data = BATCHES["none"]
    damaged = flipped(data, len(data) - 2, bit=0)
    stored = reference.Header.unpack(data).crc
    computed = reference.crc32c(damaged[reference.ATTRIBUTES_AT :])
    with pytest.raises(CorruptRecordError) as caught:
        list(MemoryRecords(damaged, position=POSITION, path="x.log"))
    assert (caught.value.expected, caught.value.found, caught.value.base_offset) == (stored, computed, 7)


@pytest.mark.parametrize("magic", [-1, 3, 127])
def test_incomplete_last_batch_of_an_unknown_magic_is_refused_as_in_kafka(magic: int) -> None:
    whole = BATCHES["none"]
    cut = builders.patch_header(whole, magic=magic)[:-1]
    with pytest.raises(UnsupportedMagicError) as caught:
        list(MemoryRecords(whole + cut).batches())
    assert caught.value.position == len(whole)
    assert len(list(MemoryRecords(whole + whole[:-1]).batches())) == 1
