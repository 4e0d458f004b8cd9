"""Data of a transactional producer."""

from __future__ import annotations

from kstore.coordinator.producer_ids import ProducerIdAndEpoch
from kstore.record import MemoryRecords
from tests.making.batches import record
from tests.reference.codec import write_batch


def data(producer: ProducerIdAndEpoch, *, sequence: int = 0, count: int = 2, value: bytes = b"v") -> MemoryRecords:
    return MemoryRecords(
        write_batch(
            [record(offset, value) for offset in range(count)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
    )
