"""A root of many partitions: opening it, a retention pass over it, and appends that go round its partitions.

Measured: a root of 2,000 partitions with 5 segments each: `open_store` after a clean close, which reads no `.log`, and
after a crash with all records flushed; all logs opened; `delete_old_segments` of all where nothing is due; appends of
16 KiB batches that go round 1,000 partitions.
Compared with: appends to one partition.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from statistics import median

from bench.bench_append import sent_batches
from bench.bench_open import ReadingEnv
from bench.common import Bound, Case, Contestant, Settings, interleaved, require_equal
from kstore.config import LogConfig
from kstore.log.files.durable_point import DurablePoint, DurablePointFile
from kstore.log.files.root_files import NO_BROKER_EPOCH, CleanShutdown, write_clean_shutdown
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords
from kstore.record.batches import set_last_offset
from kstore.store.store import WritableStore, open_store

PARTITIONS = 2_000
SEGMENTS_PER_PARTITION = 5
ROUND_ROBIN = 1_000
CLEAN_SECONDS = 2.0
# Of a broker by default, since Kafka 4.0 (KIP-1030).
RECOVERY_THREADS = 2
UNCLEAN_SECONDS = 4.0
RETENTION_SECONDS = 1.0
TARGET_OF_ROUND_ROBIN = 0.5
ROUNDS = 5
# The records of the benches have timestamps of long ago.
CONFIG = LogConfig(retention_ms=-1, retention_bytes=2**40)


def write_root(root: Path, partitions: int, settings: Settings) -> None:
    """Write a cleanly closed root of partitions with 5 segments of one batch each."""
    sent = bytearray(sent_batches(100, settings)[0])
    count = len(next(MemoryRecords(sent).batches()))
    for partition in range(partitions):
        path = root / f"t-{partition}"
        path.mkdir(parents=True)
        for number in range(SEGMENTS_PER_PARTITION):
            set_last_offset(sent, last_offset=(number + 1) * count - 1)
            name = f"{number * count:020d}"
            (path / f"{name}.log").write_bytes(sent)
            (path / f"{name}.index").touch()
            (path / f"{name}.timeindex").touch()
    write_clean_shutdown(str(root), CleanShutdown(NO_BROKER_EPOCH))
    with open_store(root, "a", CONFIG) as store:
        ends = {store.log(*one).log_end_offset for one in store.partitions}
    require_equal("end offsets", {"written": {SEGMENTS_PER_PARTITION * count}, "kstore": ends})


def make_unclean(root: Path) -> None:
    """Leave a root as a crash does whose logs were flushed."""
    with open_store(root) as store:
        for one in store.partitions:
            log = store.log(*one)
            last = log.segments[-1]
            with DurablePointFile(log.path) as file:
                file.advance(DurablePoint(log.log_end_offset, last.base_offset, last.size_in_bytes))
    (root / ".kafka_cleanshutdown").unlink()


def timed(run: Callable[[], WritableStore]) -> tuple[float, WritableStore]:
    start = time.perf_counter()
    store = run()
    return time.perf_counter() - start, store


def opening(root: Path, settings: Settings, partitions: int) -> Case:
    """Open the root after a clean close, then as a crash left it, and look for what retention would delete."""
    segments = partitions * SEGMENTS_PER_PARTITION
    case = Case(title=f"A root of {partitions} partitions, {segments} segments", unit="opening", bytes_per_unit=0)
    env = ReadingEnv()
    open_store(root, "a", CONFIG, env=env).close()
    require_equal(".log files read by an opening", {"allowed": 0, "kstore": len(env.read_logs)})
    clean, all_logs, unclean, passes = [], [], [], []
    for _ in range(min(settings.rounds, ROUNDS)):
        seconds, store = timed(lambda: open_store(root, "a", CONFIG))
        clean.append(seconds)
        start = time.perf_counter()
        require_equal("logs", {"there": partitions, "kstore": len([store.log(*one) for one in store.partitions])})
        all_logs.append(time.perf_counter() - start)
        start = time.perf_counter()
        due = [store.log(*one).delete_old_segments() for one in store.partitions]
        passes.append(time.perf_counter() - start)
        require_equal("deleted segments", {"due": 0, "kstore": sum(map(len, due))})
        store.close()
        make_unclean(root)
        seconds, store = timed(
            lambda: open_store(root, "a", CONFIG, trusts_recovery_point=True, recovery_threads=RECOVERY_THREADS)
        )
        unclean.append(seconds)
        require_equal("recovered logs", {"there": partitions, "kstore": len(store.recovery_reports)})
        store.close()
    case.bounds += [
        Bound(name="open_store after a clean close", unit="s", values=clean, at_most=CLEAN_SECONDS),
        Bound(
            name="open_store after a crash, all flushed, two threads", unit="s", values=unclean, at_most=UNCLEAN_SECONDS
        ),
        Bound(name="retention, nothing due", unit="s", values=passes, at_most=RETENTION_SECONDS),
    ]
    case.notes.append(f"opening all logs after a clean close: {median(all_logs):.2f} s")
    return case


def round_robin(root: Path, settings: Settings, partitions: int) -> Case:
    """Append batches to one partition, and to all in turn."""
    sent = MemoryRecords(sent_batches(100, settings)[0])
    case = Case(title=f"Append round-robin to {partitions} partitions", unit="batch", bytes_per_unit=len(sent.buffer))
    store = open_store(root, "a", CONFIG)
    logs = [store.log("t", number) for number in range(partitions)]
    batches = 2 * partitions

    def append_to(targets: list[WritableLog]) -> Callable[[], None]:
        turn = cycle(targets)

        def run() -> None:
            for _ in range(batches):
                next(turn).append(sent)

        return run

    one, many = "one partition", "round-robin"
    contestants = [Contestant(one, append_to(logs[:1]), batches), Contestant(many, append_to(logs), batches)]
    case.samples += interleaved(contestants, settings, one_run_per_sample=True)
    case.add_ratio(many, one, target=TARGET_OF_ROUND_ROBIN)
    case.notes.append(f"the limit of descriptors is {os.sysconf('SC_OPEN_MAX')}")
    store.close()
    return case


def run(settings: Settings) -> Iterator[Case]:
    """Measure a root of 2,000 partitions, and appends to 1,000 of them."""
    is_tiny = settings.rounds == 1
    partitions = 20 if is_tiny else PARTITIONS
    directory = Path(tempfile.mkdtemp())
    try:
        write_root(directory / "root", partitions, settings)
        yield opening(directory / "root", settings, partitions)
        yield round_robin(directory / "root", settings, 10 if is_tiny else ROUND_ROBIN)
    finally:
        shutil.rmtree(directory)
