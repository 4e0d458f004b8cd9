"""Goal: whatever a client sends, what is appended has the next offsets and is otherwise what was sent.
Method: batches of any records and codec by the reference, validated for any topic, read back by the reference."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kstore.compression import CompressionType
from kstore.record import MemoryRecords, RecordRules, down_convert, validate_and_assign_offsets
from kstore.types import TimestampType
from tests.making import strategies
from tests.making.messages import packed_entry
from tests.making.writing import writable
from tests.reference import codec as reference

NOW_MS = 1_700_000_000_000
CODECS = st.sampled_from([None, *CompressionType])


@st.composite
def sent_records(draw: st.DrawFn) -> list[reference.Record]:
    """Records as a producer numbers them: from 0, without a gap."""
    drawn = draw(strategies.record_lists(base_offset=0))
    return [
        record._replace(offset=number, timestamp_ms=writable(record.timestamp_ms))
        for number, record in enumerate(drawn)
    ]


@given(
    records=sent_records(),
    codec=st.sampled_from(CompressionType),
    target=CODECS,
    base_offset=st.integers(0, 2**62),
    append_time=st.booleans(),
    epoch=st.integers(-1, 2**31 - 1),
)
def test_appended_records_are_those_sent_with_the_next_offsets(
    records: list[reference.Record],
    codec: CompressionType,
    target: CompressionType | None,
    base_offset: int,
    append_time: bool,
    epoch: int,
) -> None:
    kind = TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME
    result = validate_and_assign_offsets(
        MemoryRecords(reference.write_batch(records, codec=codec)),
        rules=RecordRules(compression=target, timestamp_type=kind),
        base_offset=base_offset,
        now_ms=NOW_MS,
        partition_leader_epoch=epoch,
    )
    changes: dict[str, Any] = {"timestamp_type": int(kind)} | ({"timestamp_ms": NOW_MS} if append_time else {})
    expected = [record._replace(offset=base_offset + record.offset, **changes) for record in records]
    (found,) = reference.read_batches(bytes(result.records))
    assert found.records == expected
    assert (found.header.partition_leader_epoch, found.header.codec) == (epoch, codec if target is None else target)
    largest = max(record.timestamp_ms for record in expected)
    assert found.header.max_timestamp_ms == largest
    assert result.info == (largest, -1 if largest == -1 else base_offset + len(records) - 1)
    assert result.next_offset == base_offset + len(records)
    assert result.is_rebuilt == (target not in (None, codec))


@given(records=sent_records(), magic=st.sampled_from([0, 1]))
def test_down_converted_messages_hold_keys_values_and_timestamps(records: list[reference.Record], magic: int) -> None:
    data = reference.write_batch(records)
    converted = b"".join(map(bytes, down_convert(MemoryRecords(data).batches(), magic=magic, chunk_bytes=100)))
    assert converted == b"".join(
        packed_entry(
            record.value,
            record.key,
            offset=record.offset,
            magic=magic,
            **({"timestamp_ms": record.timestamp_ms} if magic else {}),
        )
        for record in records
    )
