"""Readings of sensors, each in a thread, through one producer: what a full buffer refuses is counted, not waited for.

python examples/programs/threaded_producer.py DIRECTORY
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

import kstore

TOPIC = "readings"


@dataclass
class Totals:
    """How many readings were offered, are in the log, and were refused because memory was full."""

    offered: int = 0
    written: int = 0
    refused: int = 0


class Readings:
    """Takes readings from any number of threads, and blocks none of them.

    Args: buffer_memory: bytes of the readings that are not written yet.
    """

    def __init__(self, store: kstore.WritableStore, *, buffer_memory: int = 1 << 20) -> None:
        store.create_topic(TOPIC, partitions=4, exist_ok=True)
        self._lock = Lock()
        self.totals = Totals()
        self._producer = kstore.Producer(
            store,
            key_serializer=str.encode,
            value_serializer=encoded,
            buffer_memory=buffer_memory,
            batch_size=min(16 * 1024, buffer_memory // 8),
            max_block_ms=0,
        )

    def take(self, sensor: str, values: Iterable[float]) -> None:
        """Send the readings of one sensor, in their order."""
        for value in values:
            with self._lock:
                self.totals.offered += 1
            self._producer.send(TOPIC, value, key=sensor, on_delivery=self._delivered)

    def _delivered(self, _: kstore.RecordMetadata | None, error: BaseException | None) -> None:
        with self._lock:
            if error is None:
                self.totals.written += 1
            elif isinstance(error, kstore.BufferExhaustedError):
                self.totals.refused += 1

    def close(self) -> Totals:
        """Write what was taken, and return the totals."""
        self._producer.close()
        return self.totals


def encoded(value: float) -> bytes:
    """Return a reading as text."""
    return b"%.3f" % value


def main(directory: str) -> None:
    """Let eight sensors send a thousand readings each."""
    with kstore.open_store(directory, "a") as store:
        readings = Readings(store)
        with ThreadPoolExecutor(8) as threads:
            for number in range(8):
                threads.submit(readings.take, f"sensor-{number}", [step / 10 for step in range(1000)])
        print(readings.close())


if __name__ == "__main__":
    main(sys.argv[1])
