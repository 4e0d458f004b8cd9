"""Goal: whatever was written comes out of the core exactly so, record by record.

Method: Hypothesis writes any log with the reference codec; kstore must read what the reference reads.
"""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from kstore import _core
from kstore.compression import decompress
from kstore.record import MemoryRecords, RecordBatch
from tests.making import strategies
from tests.reference import codec as reference
from tests.reference.verdicts import as_reference, core_batch_verdict

LIMIT = 1 << 24


@given(records=strategies.record_lists(base_offset=0), codec=strategies.CODECS)
def test_reference_reads_what_it_wrote(records: list[reference.Record], codec: int) -> None:
    assert reference.read_records(reference.write_batch(records, codec=codec)) == records


@given(data=strategies.batches(), position=st.integers(0, 2**40))
def test_core_decodes_any_batch_like_the_reference(data: bytes, position: int) -> None:
    expected = reference.read_batch(data).records
    assert core_batch_verdict(data, position=position) == expected


@given(data=strategies.batches())
def test_record_batch_shows_the_header_and_the_records(data: bytes) -> None:
    expected = reference.read_batch(data)
    batch = RecordBatch(data)
    header = expected.header
    assert (batch.base_offset, batch.last_offset, batch.size_in_bytes) == (
        header.base_offset,
        header.last_offset,
        header.size,
    )
    assert (batch.compression, batch.timestamp_type, batch.crc) == (header.codec, header.timestamp_type, header.crc)
    assert len(batch) == batch.record_count == len(expected.records)
    assert bytes(batch) == data
    assert [as_reference(record) for record in batch] == expected.records


@given(data=strategies.logs(), cut=st.integers(0, 200))
def test_memory_records_iterate_all_whole_batches(data: bytes, cut: int) -> None:
    kept = data[: max(0, len(data) - cut)]
    whole = [batch for batch in reference.read_batches(data) if batch.position + batch.header.size <= len(kept)]
    memory = MemoryRecords(kept)
    assert [batch.position for batch in memory.batches()] == [batch.position for batch in whole]
    assert memory.valid_bytes == sum(batch.header.size for batch in whole)
    assert [as_reference(record) for record in memory] == [record for batch in whole for record in batch.records]


@given(data=strategies.batches())
def test_records_are_values_that_survive_pickling(data: bytes) -> None:
    records = list(_core.iterate_records(data, position=0, decompress=decompress, max_decompressed_bytes=LIMIT))
    again = pickle.loads(pickle.dumps(records))
    assert again == records
    assert [hash(record) for record in again] == [hash(record) for record in records]


@given(value=st.integers(-(2**31), 2**31 - 1), rest=st.binary(max_size=3))
def test_varint_round_trips(value: int, rest: bytes) -> None:
    data = _core.encode_varint(value)
    assert data == reference.encode_varint(value)
    assert _core.decode_varint(data + rest) == (value, len(data))


@given(value=strategies.INT64, rest=st.binary(max_size=3))
def test_varlong_round_trips(value: int, rest: bytes) -> None:
    data = _core.encode_varlong(value)
    assert data == reference.encode_varint(value)
    assert _core.decode_varlong(data + rest) == (value, len(data))
