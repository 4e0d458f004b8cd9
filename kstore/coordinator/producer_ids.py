"""Producer ids and their epochs (Kafka: ProducerIdAndEpoch)."""

from __future__ import annotations

from typing import NamedTuple

from kstore.env.process import random_bytes
from kstore.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

MAX_PRODUCER_EPOCH = 2**15 - 1
# Kafka's controller allocates producer ids upwards from 0, so random ids from 2^61 on do not collide with them.
LEAST_RANDOM_ID = 2**61


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch, which rises each time the id is issued again."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def random_producer_id() -> int:
    """Return a random producer id from 2^61 to 2^62 - 1."""
    return LEAST_RANDOM_ID + int.from_bytes(random_bytes(8), "big") % LEAST_RANDOM_ID
