"""Goal: with idempotence no record is lost or doubled and the order of each thread is kept, whatever the sink does.
Method: 8 threads; a sink that fails before, after and amid its appends, and whose store crashes and comes back."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kstore.config import LogConfig
from kstore.env.process import SYSTEM_CLOCK
from kstore.errors import StorageError
from kstore.producer.cluster import Cluster
from kstore.producer.sending.store_sink import StoreSink
from kstore.producer.sink import ProduceResponse
from kstore.store.store import WritableStore, open_store
from kstore.types import TopicPartition
from tests.fakes.sending import Producing

THREADS, PARTITIONS = 8, 3
CONFIG = LogConfig(segment_bytes=64 * 1024, segment_index_bytes=4096)
CLEAN = ".kafka_cleanshutdown"


class DyingSink:
    """A StoreSink that often fails, and says of everything that failed that it may be tried again."""

    def __init__(self, root: Path, seed: int) -> None:
        self._root = root
        self._rng = random.Random(seed)
        self.deaths = 0
        self._open()

    def _open(self) -> None:
        self.store: WritableStore = open_store(self._root, "a", CONFIG)
        if "t" not in self.store.topics:
            self.store.create_topic("t", PARTITIONS)
        self._sink = StoreSink(self.store)

    def cluster(self) -> Cluster:
        return self._sink.cluster()

    def send(self, node: Any, batches: Any, *, ack: Any) -> list[ProduceResponse]:
        lost = ProduceResponse(-1, error=StorageError("the sink died"), is_retriable=True)
        step = self._rng.random()
        if step < 0.7:
            return list(self._sink.send(node, batches, ack=ack))
        self.deaths += 1
        if step < 0.8:
            taken = self._rng.randint(0, len(batches))
            self._sink.send(node, batches[:taken], ack=ack)
        if step > 0.95:
            self._sink.send(node, batches, ack=ack)
            self.reopen(is_clean=step > 0.975)
        return [lost] * len(batches)

    def reopen(self, *, is_clean: bool) -> None:
        """Close the store and open it anew; not clean: as a process finds it that was killed."""
        self.store.close()
        if not is_clean:
            (self._root / CLEAN).unlink()
        self._open()


def run_stress(
    root: Path, *, seconds: float, seed: int, is_idempotent: bool = True
) -> tuple[dict[int, int], DyingSink]:
    """Return how many records each thread sent, all of which were told to be in the log."""
    sink = DyingSink(root, seed)
    parts = Producing(
        sink,
        is_idempotent=is_idempotent,
        clock=SYSTEM_CLOCK,
        memory=32 * 1024,
        linger_ms=1,
        retry_backoff_ms=1,
        delivery_timeout_ms=10 * 60_000,
        max_block_ms=60_000,
    )
    parts.sender.start()
    deadline = time.monotonic() + seconds

    def send(thread: int) -> int:
        rng = random.Random(seed * 100 + thread)
        number, futures = 0, []
        while time.monotonic() < deadline:
            value = b"%d/%d/" % (thread, number) + b"x" * rng.choice([1, 50, 400])
            futures.append(parts.append(value, to=TopicPartition("t", rng.randrange(PARTITIONS))))
            number += 1
            if len(futures) > 200:
                futures.pop(0).result(60)
        for future in futures:
            future.result(60)
        return number

    with ThreadPoolExecutor(THREADS) as pool:
        counts = dict(enumerate(pool.map(send, range(THREADS))))
    parts.sender.initiate_close()
    assert parts.sender.join(60)
    parts.check_at_rest()
    return counts, sink


def check_log(sink: DyingSink, counts: dict[int, int]) -> None:
    found: dict[int, list[int]] = {thread: [] for thread in counts}
    for partition in range(PARTITIONS):
        last: dict[int, int] = {}
        for record in sink.store.log("t", partition).read():
            thread, number = map(int, bytes(record.value or b"").split(b"/")[:2])
            assert last.get(thread, -1) < number, f"record {number} of thread {thread} is out of order in t-{partition}"
            last[thread] = number
            found[thread].append(number)
    assert {thread: sorted(numbers) for thread, numbers in found.items()} == {
        thread: list(range(count)) for thread, count in counts.items()
    }


def stress(root: Path, *, seconds: float, seed: int, is_idempotent: bool = True) -> None:
    counts, sink = run_stress(root, seconds=seconds, seed=seed, is_idempotent=is_idempotent)
    with sink.store:
        assert sink.deaths > 0
        assert min(counts.values()) > 0
        check_log(sink, counts)


def test_nothing_is_lost_or_doubled_while_the_sink_dies_and_comes_back(tmp_path: Path) -> None:
    stress(tmp_path / "root", seconds=3, seed=1)


def test_without_idempotence_records_are_doubled(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        stress(tmp_path / "root", seconds=2, seed=2, is_idempotent=False)


@pytest.mark.long
def test_nothing_is_lost_or_doubled_in_a_minute(tmp_path: Path) -> None:
    stress(tmp_path / "root", seconds=60, seed=3)
