"""Logs that kstore compacted, under a real broker: it loads and serves them, and its cleaner changes nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV
from kstore.store.store import WritableStore, open_store
from tests.golden.sets import read_offset_checkpoint
from tests.interop.broker import NODE_ID, Broker, Client
from tests.interop.store import CLUSTER_ID, Problems, clean_start, dumped, read_alike, topic_id
from tests.making.compacting import History, encoded

SETTINGS = ("cleanup.policy=compact", "min.cleanable.dirty.ratio=0.0", "internal.segment.bytes=20000")
CONFIG = LogConfig(
    segment_bytes=20_000, index_interval_bytes=500, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0
)
BROKER_SETTINGS = "log.cleaner.backoff.ms=100\nlog.cleaner.enable=true\n"
CHECKPOINT = "cleaner-offset-checkpoint"
TOPICS = tuple(f"compacted-{number}" for number in range(6))
BATCHES = 600
PATIENCE_SECONDS = 60


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    root = work / "root"
    with open_store(root, "a", cluster_id=CLUSTER_ID, node_id=NODE_ID):
        pass
    broker = Broker(root, work, BROKER_SETTINGS)
    broker.format(CLUSTER_ID)
    with broker.running() as client:
        ids = {name: topic_id(client, name, SETTINGS) for name in TOPICS}
    for directory in root.glob("compacted-*"):
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
    with open_store(root, "a", config=CONFIG) as store:
        kept = {name: compacted(store, name, ids[name], seed=number) for number, name in enumerate(TOPICS)}
    yield "kstore compacts", (f"{name}: kept all" for name, is_less in kept.items() if not is_less)
    yield "DumpLogSegments reads what kstore compacted", dumped(root)
    before = {name: batches_of(root, name) for name in TOPICS}
    (root / CHECKPOINT).unlink()
    with broker.running() as client:
        yield "a consumer reads what kstore compacted", read_alike(client, root, TOPICS)
        yield "the broker cleans all of it once more", cleaned(client, root)
        yield "a consumer reads it as before", read_alike(client, root, TOPICS)
    yield "the broker recovers nothing", clean_start(broker, set(TOPICS))
    after = {name: batches_of(root, name) for name in TOPICS}
    yield "the broker's cleaner changed no batch", (name for name in TOPICS if before[name] != after[name])
    yield "DumpLogSegments reads what the broker cleaned", dumped(root)


def compacted(store: WritableStore, name: str, topic_id: str, *, seed: int) -> bool:
    """Write a random log and compact it twice, so that markers have what they get; return whether it has less now.

    Producers wrote just now, so that the broker knows them.
    """
    store.create_topic(name, topic_id=topic_id)
    log = store.log(name)
    history = History(random.Random(seed), has_old_formats=False)
    history.now_ms = DEFAULT_ENV.wall_clock_ms()
    for _ in range(BATCHES):
        log.append_as_follower(encoded(history.made(log.log_end_offset), marker_ms=history.now_ms))
    while history.open:
        log.append_as_follower(encoded(history.marker(log.log_end_offset), marker_ms=history.now_ms))
    log.roll()
    first = log.compact(drops_keyless=True)
    log._writer_files.save_cleaned_offset(0)
    log.compact(is_forced=True, drops_keyless=True)
    return first.records_kept < first.records_read


def batches_of(root: Path, name: str) -> bytes:
    """Return all batches of a topic; the cleaner may merge segments again."""
    return b"".join(path.read_bytes() for path in sorted((root / f"{name}-0").glob("*.log")))


def cleaned(client: Client, root: Path) -> Problems:
    """Wait until the cleaner has cleaned every topic up to its active segment."""
    del client
    missing = set(TOPICS)
    end = time.monotonic() + PATIENCE_SECONDS
    while missing and time.monotonic() < end:
        time.sleep(0.2)
        found = read_offset_checkpoint(root / CHECKPOINT) if (root / CHECKPOINT).exists() else {}
        missing = {name for name in TOPICS if found.get(f"{name}-0", 0) < last_base(root, name)}
    yield from sorted(missing)


def last_base(root: Path, name: str) -> int:
    return max(int(path.stem) for path in (root / f"{name}-0").glob("*.log"))
