"""Batches that are not done yet: what a flush waits for and what a forced close gives up. Layer 5."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore.producer.batch import ProducerBatch


class IncompleteBatches:
    """The batches from their creation until they are completed.

    Attribute: batches: the keys of a dict, the oldest first.
    Threads: safe, each call is one step under the GIL.  Source: Kafka IncompleteBatches.
    """

    def __init__(self) -> None:
        self.batches: dict[ProducerBatch, None] = {}

    def __len__(self) -> int:
        return len(self.batches)

    def __contains__(self, batch: object) -> bool:
        return batch in self.batches

    def add(self, batch: ProducerBatch) -> None:
        self.batches[batch] = None

    def discard(self, batch: ProducerBatch) -> None:
        """Forget a batch if it is there."""
        self.batches.pop(batch, None)

    def copy_all(self) -> list[ProducerBatch]:
        """Return the batches of now, the oldest first."""
        return list(self.batches)
