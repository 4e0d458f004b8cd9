"""Goal: kstore, the reference, aiokafka (compiled and pure) and kafka-python see the same records in the same bytes.

Method: Hypothesis writes logs within what the rivals can hold (UTF-8 header keys, no wrapping timestamps).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.record import MemoryRecords
from tests.differential.rivals import RIVALS, Rival, read, seen
from tests.making import batches as builders
from tests.making import strategies
from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference.codec import Record
from tests.reference.verdicts import as_reference

MOST_MS = 2**61
rival_parameter = pytest.mark.parametrize("rival", RIVALS.values(), ids=list(RIVALS))


@st.composite
def readable_logs(draw: st.DrawFn) -> bytes:
    """Up to four batches of records that every rival can represent."""
    next_offset = draw(st.sampled_from([0, 5, 2**33]))
    out = []
    for _ in range(draw(st.integers(0, 4))):
        records = draw(strategies.record_lists(base_offset=next_offset, most_ms=MOST_MS))
        records = [record._replace(headers=utf8_headers(record)) for record in records]
        options = draw(strategies.batch_options(most_ms=MOST_MS)) | {"record_attributes": 0}
        out.append(reference.write_batch(records, **options))
        next_offset = records[-1].offset + 1
    return b"".join(out)


def utf8_headers(record: Record) -> tuple[tuple[bytes, bytes | None], ...]:
    return tuple((key.decode("utf-8", "replace").encode(), value) for key, value in record.headers)


@rival_parameter
@given(data=readable_logs())
def test_everyone_reads_the_same_records(rival: Rival, data: bytes) -> None:
    records = [as_reference(record) for record in MemoryRecords(data)]
    assert records == reference.read_records(data)
    batches = [batch for batch in reference.read_batches(data) if batch.header.codec in rival.codecs]
    readable = b"".join(data[batch.position : batch.position + batch.header.size] for batch in batches)
    assert read(rival, readable) == [seen(record) for batch in batches for record in batch.records]


@rival_parameter
@pytest.mark.parametrize("codec", range(5), ids=codecs.CODEC_NAMES)
@pytest.mark.parametrize("value_bytes", [0, 100, 70_000])
def test_everyone_reads_payloads_over_several_compression_blocks(rival: Rival, codec: int, value_bytes: int) -> None:
    data = b"".join(builders.batches(7, 2, records_per_batch=3, value_bytes=value_bytes, codec=codec))
    expected = reference.read_records(data)
    assert [as_reference(record) for record in MemoryRecords(data)] == expected
    if codec in rival.codecs:
        assert read(rival, data) == [seen(record) for record in expected]
