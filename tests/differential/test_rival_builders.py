"""Goal: batches that other clients build are read exactly as they were filled.

Method: aiokafka (compiled and pure) and kafka-python build each batch; kstore and the reference read it.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.record import MemoryRecords, RecordBatch
from tests.differential.rivals import RIVALS, Rival, build, with_base_offset
from tests.making import batches as builders
from tests.making import strategies
from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference.codec import Record
from tests.reference.verdicts import as_reference

BUILDS = [(rival, codec) for rival in RIVALS for codec in RIVALS[rival].codecs]
build_parameter = pytest.mark.parametrize(
    ("rival", "codec"),
    [(RIVALS[rival], codec) for rival, codec in BUILDS],
    ids=[f"{rival} {codecs.CODEC_NAMES[codec]}" for rival, codec in BUILDS],
)


@build_parameter
@given(
    records=strategies.producer_record_lists, base_offset=st.sampled_from([0, 9, 2**40]), is_idempotent=st.booleans()
)
def test_built_batch_is_read_as_it_was_filled(
    rival: Rival, codec: int, records: list[Record], base_offset: int, is_idempotent: bool
) -> None:
    data = with_base_offset(build(rival, records, codec=codec, producer_id=7 if is_idempotent else -1), base_offset)
    expected = [
        record._replace(offset=base_offset + n, sequence=5 + n if is_idempotent else -1)
        for n, record in enumerate(records)
    ]
    assert reference.read_records(data) == expected
    assert [as_reference(record) for record in MemoryRecords(data)] == expected


@build_parameter
def test_large_batch_is_read_over_all_its_blocks(rival: Rival, codec: int) -> None:
    records = builders.records(0, 300, value_bytes=1000)
    data = build(rival, records, codec=codec)
    batch = RecordBatch(data)
    assert batch.compression == codec
    assert [as_reference(record) for record in batch] == records
