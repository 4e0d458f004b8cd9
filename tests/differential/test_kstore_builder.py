"""Goal: what kstore builds is what other clients build, and they all read it.

Method: the same records go into kstore's builder and aiokafka's (compiled and pure) and kafka-python's; uncompressed
batches must have the same bytes, compressed ones the same records to every reader.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.record import pack_columns
from tests.differential.rivals import RIVALS, Rival, build, read, seen
from tests.making import batches as builders
from tests.making import strategies
from tests.making.packing import columns_of
from tests.making.writing import builder_of
from tests.reference import codecs as codecs
from tests.reference.codec import Record

rival_parameter = pytest.mark.parametrize("rival", RIVALS.values(), ids=list(RIVALS))
READS = [(name, codec) for name, rival in RIVALS.items() for codec in rival.codecs]
IDEMPOTENT = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 5}


@rival_parameter
@given(records=strategies.producer_record_lists, is_idempotent=st.booleans())
def test_uncompressed_batch_is_the_rivals_byte_for_byte(
    rival: Rival, records: list[Record], is_idempotent: bool
) -> None:
    expected = build(rival, records, codec=codecs.NONE, producer_id=7 if is_idempotent else -1)
    options = IDEMPOTENT if is_idempotent else {}
    built = builder_of(records, partition_leader_epoch=rivals_epoch(expected), **options).build()
    assert bytes(built) == expected


@rival_parameter
@given(records=strategies.producer_record_lists)
def test_packed_columns_are_the_rivals_batch_byte_for_byte(rival: Rival, records: list[Record]) -> None:
    expected = build(rival, records, codec=codecs.NONE)
    columns = columns_of(records, has_offsets=False)
    runs = pack_columns(columns, batch_bytes=2**31 - 1, partition_leader_epoch=rivals_epoch(expected))
    assert b"".join(map(bytes, runs)) == expected


def rivals_epoch(data: bytes) -> int:
    """What a producer writes for the leader epoch, which only the broker knows, is up to it."""
    return int.from_bytes(data[12:16], "big", signed=True)


@pytest.mark.parametrize(
    ("rival", "codec"),
    [(RIVALS[name], codec) for name, codec in READS],
    ids=[f"{name} {codecs.CODEC_NAMES[codec]}" for name, codec in READS],
)
@pytest.mark.parametrize("value_bytes", [0, 100, 70_000])
def test_rivals_read_every_codec_over_all_its_blocks(rival: Rival, codec: int, value_bytes: int) -> None:
    records = builders.records(0, 40, value_bytes=value_bytes)
    assert read(rival, bytes(builder_of(records, codec=codec).build())) == [seen(record) for record in records]


@rival_parameter
@given(records=strategies.producer_record_lists)
def test_rivals_read_any_records(rival: Rival, records: list[Record]) -> None:
    assert read(rival, bytes(builder_of(records).build())) == [seen(record) for record in records]
