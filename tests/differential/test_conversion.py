"""Goal: every batch of the matrix, converted to any format, holds what that format has room for, and comes back equal.
Method: cases of the matrix by the oracles, converted by kstore, read by the reference codec of all formats."""

from __future__ import annotations

import pytest

from kstore.errors import UnsupportedCompressionTypeError
from kstore.record import ConversionStats, MemoryRecords, convert, down_convert, up_convert
from tests.making.collecting import over
from tests.making.matrix import CODECS, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE, Case, cases
from tests.making.writing import WRITTEN_MAGICS, write_case
from tests.reference import codecs as codecs
from tests.reference import messages as reference_messages
from tests.reference.codec import CREATE_TIME, Record

CASES = [case for case in cases(0, 1, 2) if case.shape != "10000-records" or case.codec == codecs.NONE]


def written(case: Case) -> bytes:
    writers = [name for name, magics in WRITTEN_MAGICS.items() if case.magic in magics]
    return write_case(writers[-1], case)


def converted(data: bytes, magic: int, *, stats: ConversionStats | None = None) -> bytes:
    return b"".join(map(bytes, convert(MemoryRecords(data).batches(), magic=magic, stats=stats)))


def fitting(record: Record, *, magic: int) -> Record:
    """What the format has room for."""
    if magic == 2:
        return record._replace(timestamp_type=max(record.timestamp_type, CREATE_TIME), sequence=-1)
    record = record._replace(headers=(), sequence=-1, is_control=False)
    if magic == 0:
        return record._replace(timestamp_ms=-1, timestamp_type=NO_TIMESTAMP_TYPE)
    return record._replace(timestamp_type=max(record.timestamp_type, CREATE_TIME))


def codec_of(case: Case) -> str:
    return f"v{case.magic} {codecs.CODEC_NAMES[case.codec]}"


@pytest.mark.parametrize("magic", [0, 1, 2])
@over("case", CASES, by=codec_of, label=lambda case: case.name)
def test_converted_records_are_those_that_fit(case: Case, magic: int) -> None:
    data = written(case)
    if case.magic == magic:
        assert converted(data, magic) == data
        return
    is_control = case.expected[0].is_control
    if case.codec not in CODECS[magic] and not is_control:
        with pytest.raises(UnsupportedCompressionTypeError):
            converted(data, magic)
        return
    stats = ConversionStats()
    found = converted(data, magic, stats=stats)
    expected = [] if is_control else [fitting(record, magic=magic) for record in case.expected]
    assert reference_messages.read_all(found) == expected
    assert (stats.record_count, stats.size_in_bytes) == (len(expected), len(found))
    assert {batch.magic for batch in MemoryRecords(found).batches()} <= {magic}
    assert {batch.compression for batch in MemoryRecords(found).batches()} <= {case.codec}


OLD_CASES = [case for case in cases(0, 1) if case.codec == codecs.NONE and case.timestamp_type != LOG_APPEND_TIME]


@over("case", OLD_CASES, by=lambda case: f"v{case.magic}", label=lambda case: case.name)
def test_plain_messages_come_back_from_v2_byte_by_byte(case: Case) -> None:
    data = written(case)
    up = b"".join(map(bytes, up_convert(MemoryRecords(data).batches(), magic=2)))
    assert b"".join(map(bytes, down_convert(MemoryRecords(up).batches(), magic=case.magic))) == data


def test_messages_of_v0_can_get_an_append_time() -> None:
    case = Case(magic=0, codec=codecs.GZIP, timestamp_type=NO_TIMESTAMP_TYPE, shape="plain")
    for magic in (1, 2):
        chunks = up_convert(MemoryRecords(written(case)).batches(), magic=magic, log_append_time_ms=77)
        records = reference_messages.read_all(b"".join(map(bytes, chunks)))
        assert [(record.timestamp_ms, record.timestamp_type) for record in records] == [(77, LOG_APPEND_TIME)] * 5


def test_mixed_formats_become_one() -> None:
    mixed = [
        Case(magic=magic, codec=codecs.LZ4, timestamp_type=kind, shape="plain", base_offset=10 * magic)
        for magic, kind in ((0, NO_TIMESTAMP_TYPE), (1, CREATE_TIME), (2, LOG_APPEND_TIME))
    ]
    data = b"".join(map(written, mixed))
    for magic in (0, 1, 2):
        expected = [fitting(record, magic=magic) for case in mixed for record in case.expected]
        assert reference_messages.read_all(converted(data, magic)) == expected
    for magic in (0, 1, 2):
        batches = MemoryRecords(data).batches()
        downs = b"".join(map(bytes, down_convert(batches, magic=magic)))
        assert [batch.magic for batch in MemoryRecords(downs).batches()] == [0, min(1, magic), magic]
