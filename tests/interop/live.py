"""kstore reads and verifies a root while a broker rolls, deletes, compacts and preallocates its segments.

Nothing that the broker does may look like damage: a reader gets records, or an error that the log has moved on.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from kstore.arrow import scan
from kstore.errors import KStoreError, LogNotFoundError, LogReplacedError, OffsetOutOfRangeError
from kstore.log import Log, find_partitions, open_log, open_store
from kstore.log.verify import verify, verify_checkpoints
from tests.interop.broker import NODE_ID, Broker, Client
from tests.interop.store import CLUSTER_ID, Problems

BUSY = """
log.initial.task.delay.ms=500
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=500
log.cleaner.backoff.ms=200
log.flush.offset.checkpoint.interval.ms=500
log.flush.start.offset.checkpoint.interval.ms=500
"""
SMALL = ("segment.bytes=1048576", "index.interval.bytes=1024")
DELETED = ("retention.bytes=3000000",)
COMPACTED = ("cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01", "segment.ms=2000", "delete.retention.ms=1000")
TOPICS = {
    "deleted": (*SMALL, *DELETED),
    "compacted": (*SMALL, *COMPACTED),
    "preallocated": (*SMALL, *DELETED, "preallocate=true"),
    "compacted-preallocated": (*SMALL, *COMPACTED, "preallocate=true"),
}
MODES = ("plain", "plain", "commit", "abort")
CODECS = ("none", "lz4", "zstd")
MOVED_ON = (LogReplacedError, OffsetOutOfRangeError, LogNotFoundError)
MOST_TOLD = 20
VALUE_BYTES = 200


def read(log: Log) -> None:
    previous = -1
    for record in log.read():
        if record.offset <= previous:
            raise AssertionError(f"offset {record.offset} after {previous}")
        previous = record.offset


def read_committed(log: Log) -> None:
    for _ in log.read(isolation="read_committed"):
        pass


def read_planned(log: Log) -> None:
    for _ in scan(log.plan(300_000), columns=["offset", "value"]):
        pass


def read_columns(log: Log) -> None:
    for _ in log.to_arrow_batches(columns=["offset"]):
        pass


def look_up(log: Log) -> None:
    for _ in range(20):
        offset = random.randint(log.log_start_offset, log.log_end_offset)
        log.fetch(offset, 10_000)
        log.offset_for_timestamp(int(time.time() * 1000) - random.randrange(60_000))


READS: tuple[Callable[[Log], None], ...] = (read, read_committed, read_planned, read_columns, look_up)


class Beside:
    """Threads that read, and what they met: outcomes counts, problems says what must not be."""

    def __init__(self, root: Path, seconds: int) -> None:
        self._root = root
        self._end = time.monotonic() + seconds
        self.outcomes: Counter[str] = Counter()
        self.problems: list[str] = []

    def write(self, client: Client, seed: int) -> None:
        choice = random.Random(seed)
        while time.monotonic() < self._end:
            topic, codec = choice.choice([*TOPICS]), choice.choice(CODECS)
            count, keys = choice.randrange(1, 3000), choice.randrange(1, 500)
            client.ask("produce", topic, 0, codec, count, choice.choice(MODES), keys, VALUE_BYTES)
            self.outcomes["appends"] += 1

    def read(self, seed: int) -> None:
        choice = random.Random(seed)
        while time.monotonic() < self._end:
            topic, use = choice.choice([*TOPICS]), choice.choice(READS)
            try:
                with open_log(self._root / f"{topic}-0") as log:
                    use(log)
                self.outcomes[use.__name__] += 1
            except MOVED_ON as error:
                self.outcomes[f"{use.__name__}: {type(error).__name__}"] += 1
            except (KStoreError, AssertionError) as error:
                self.problems.append(f"{topic}, {use.__name__}: {type(error).__name__}: {error}")

    def verify(self) -> None:
        while time.monotonic() < self._end:
            for partition in find_partitions(self._root):
                try:
                    with open_log(partition.path) as log:
                        damage = list(verify(log))
                    self.outcomes["verify"] += 1
                except KStoreError as error:
                    damage = []
                    self.problems.append(f"{partition.path}: verify: {type(error).__name__}: {error}")
                self.problems += [f"{partition.path}: {one}" for one in damage]
            self.problems += [f"{one}" for one in verify_checkpoints(str(self._root))]


def steps(work: Path, *, seconds: int, say: Callable[[str], None]) -> Iterator[tuple[str, Problems]]:
    root = work / "root"
    with open_store(root, "a", cluster_id=CLUSTER_ID, node_id=NODE_ID):
        pass
    broker = Broker(root, work, BUSY)
    broker.format(CLUSTER_ID)
    with broker.running() as client:
        for name, settings in TOPICS.items():
            client.ask("create", name, 1, *settings)
        beside = Beside(root, seconds)
        threads = [
            threading.Thread(target=beside.write, args=(client, 1)),
            *(threading.Thread(target=beside.read, args=(seed,)) for seed in (2, 3)),
            threading.Thread(target=beside.verify),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    say(f"  met beside the broker: {dict(sorted(beside.outcomes.items()))}")
    yield f"{seconds} s of reads beside a broker take nothing for damage", iter(beside.problems[:MOST_TOLD])
