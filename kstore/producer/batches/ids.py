"""Producer ids and their epochs (Kafka: ProducerIdAndEpoch). Layer 5."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from kstore.config import MAX_INT32
from kstore.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

MAX_PRODUCER_EPOCH = 2**15 - 1
# A cluster's controller counts producer ids up from 0: random ones above this never meet them.
_LEAST_RANDOM_ID = 2**61


class ProducerIdAndEpoch(NamedTuple):
    """Who sends: the id, and how often it was given out anew."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def random_producer_id() -> int:
    """Return a producer id from 2^61 to 2^62 - 1."""
    return _LEAST_RANDOM_ID + secrets.randbelow(_LEAST_RANDOM_ID)


def add_to_sequence(sequence: int, *, count: int) -> int:
    """Return the sequence so many records behind another; 0 follows 2^31 - 1."""
    return (sequence + count) & MAX_INT32
