"""Appends to a log: 16 KiB batches as follower and as leader, compared with a plain os.write loop, and group commit.

Measured: 64 MiB of 16 KiB batches, one per call, to a new log: as follower, as leader with every record checked, as
leader with a flush each MiB; one batch flushed before it returns, by one thread and by 16.
Compared with: `os.write` of the same bytes, with fdatasync where kstore flushes, and of 16 batches with one fdatasync;
the CRC and the write of each batch in C, the bound of a leader, which checks the records too;
16 threads of C that share one (`rivals/group_commit.c`), the bound of group commit; with `--rivals` Kafka's own
`UnifiedLog`, as leader and follower, and Java's bare `FileChannel.write`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.bench_builder import append_with_kstore, batches_of
from bench.common import BENCH_DIRECTORY, MIB, Case, Samples, Settings, in_rounds, require_equal
from bench.limit import append_with_limit, compile_limit, compiled, padded
from bench.other_languages import JAVA_APPEND, Rivals
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords
from kstore.record.batches import set_last_offset, set_partition_leader_epoch
from kstore.store.opening import open_log

WRITE = "os.write"
FOLLOWER = "kstore, append_as_follower, written"
LEADER = "kstore, append as leader, written"
CHECKED_WRITE = "limit.c, CRC and write"
FLUSHED_WRITE = "os.write, fdatasync each MiB"
FLUSHED = "kstore, append as leader, flush each MiB"
ONE_THREAD = "kstore, flushed, one thread"
MANY_THREADS = "kstore, flushed, 16 threads"
SYNC_EACH = "os.write, fdatasync each batch"
SYNC_SIXTEEN = "os.write, fdatasync each 16 batches"
C_THREADS = "C, 16 threads that share fdatasync"
GROUP_COMMIT = BENCH_DIRECTORY / "rivals" / "group_commit.c"
GROUP_COMMIT_FLAGS = ("-O2", "-pthread", "-shared", "-fPIC")
JAVA_MODES = ("leader", "follower", "channel")
JAVA_LEADER, JAVA_FOLLOWER, JAVA_CHANNEL = (f"{JAVA_APPEND}, {mode}" for mode in JAVA_MODES)
TARGET_OF_WRITTEN = 0.75
TARGET_OF_JAVA = 1.5
TARGET_OF_FLUSHED = 0.9
# Relative to 16 threads in C that share each fdatasync, which is the most that a disk can do.
TARGET_OF_GROUP_COMMIT = 0.7
THREADS = 16


def sent_batches(value_bytes: int, settings: Settings) -> list[bytes]:
    """Return batches as a producer sends them, each with offsets from 0."""
    sent = []
    for built in append_with_kstore(batches_of(value_bytes, settings)):
        data = bytearray(bytes(built))
        set_last_offset(data, last_offset=len(next(built.batches())) - 1)
        sent.append(bytes(data))
    return sent


def fetched_batches(sent: list[bytes]) -> list[MemoryRecords]:
    """Return the same batches as a leader returns them to a fetch, with consecutive offsets and a leader epoch."""
    fetched, at = [], 0
    for data in sent:
        changed = bytearray(data)
        at += len(next(MemoryRecords(data).batches()))
        set_last_offset(changed, last_offset=at - 1)
        set_partition_leader_epoch(changed, partition_leader_epoch=0)
        fetched.append(MemoryRecords(bytes(changed)))
    return fetched


def fresh_log(scratch: Path) -> WritableLog:
    """Return an empty log in a new directory, with leader epoch 0 assigned."""
    shutil.rmtree(scratch / "append", ignore_errors=True)
    (scratch / "append").mkdir()
    log = open_log(scratch / "append" / "t-0", "a")
    log.leader_epochs.assign(0, start_offset=0)
    return log


def written(scratch: Path, *, flush_bytes: int | None, sent: list[bytes]) -> Callable[[], float]:
    """Return a function that runs the plain write loop once and returns its seconds."""

    def run_once() -> float:
        fd = os.open(scratch / "bare", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        left = flush_bytes
        start = time.perf_counter()
        for data in sent:
            os.write(fd, data)
            if left is not None and flush_bytes is not None:
                left -= len(data)
                if left <= 0:
                    os.fdatasync(fd)
                    left = flush_bytes
        seconds = time.perf_counter() - start
        os.close(fd)
        return seconds

    return run_once


def checked_and_written(library: ctypes.CDLL, scratch: Path, sent: list[bytes]) -> Callable[[], float]:
    """Return a function that checks and writes each batch in C and returns the seconds."""
    segment = padded(b"".join(sent))
    size = sum(map(len, sent))

    def run_once() -> float:
        fd = os.open(scratch / "bare", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        start = time.perf_counter()
        done = append_with_limit(library, segment, fd)
        seconds = time.perf_counter() - start
        os.close(fd)
        if done != size:
            raise OSError(f"limit.c checked and wrote {done} of {size} bytes")
        return seconds

    return run_once


def appended(scratch: Path, append: Callable[[WritableLog], object]) -> Callable[[], float]:
    """Return a function that appends to a new log and returns the seconds, without those of opening and closing it."""

    def run_once() -> float:
        with fresh_log(scratch) as log:
            start = time.perf_counter()
            append(log)
            return time.perf_counter() - start

    return run_once


def append_flushing(log: WritableLog, records: list[MemoryRecords], *, flush_bytes: int) -> None:
    """Append as leader, with a flush after every flush_bytes bytes."""
    left = flush_bytes
    for one in records:
        left -= log.append(one).size_in_bytes
        if left <= 0:
            log.flush()
            left = flush_bytes


def append_flushed(log: WritableLog, records: MemoryRecords, *, count: int, threads: int) -> None:
    """Append one batch `count` times in total from several threads, each of which waits for the flush."""

    def run_one() -> None:
        for _ in range(count // threads):
            log.append(records, ack="flushed")

    running = [threading.Thread(target=run_one) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def rated(
    runs: dict[str, Callable[[], float]],
    settings: Settings,
    *,
    units: int,
    cpu_seconds: Callable[[], float] = time.process_time,
) -> list[Samples]:
    """Sample each run once per round, after a warm-up round. The order is reversed every other round."""

    def rates_of(name: str) -> tuple[float, float]:
        cpu_start = cpu_seconds()
        seconds = runs[name]()
        return units / seconds, units / max(cpu_seconds() - cpu_start, 1e-6)

    for name in reversed(runs):
        rates_of(name)
    return in_rounds(list(runs), rates_of, settings)


def run(settings: Settings) -> Iterator[Case]:
    """Measure appends of batches with values of 100 and of 1,000 bytes, then appends that wait for a flush."""
    with tempfile.TemporaryDirectory() as scratch:
        for value_bytes in (100, 1000):
            yield written_case(value_bytes, settings, scratch=Path(scratch))
        yield flushed_case(settings, scratch=Path(scratch))


def written_case(value_bytes: int, settings: Settings, *, scratch: Path) -> Case:
    """Measure appends that are only written, and appends that are flushed every MiB."""
    sent = sent_batches(value_bytes, settings)
    records, fetched = [MemoryRecords(data) for data in sent], fetched_batches(sent)
    size, count = sum(map(len, sent)), sum(len(next(one.batches())) for one in records)
    runs = {
        WRITE: written(scratch, flush_bytes=None, sent=sent),
        FOLLOWER: appended(scratch, lambda log: [log.append_as_follower(one) for one in fetched]),
        LEADER: appended(scratch, lambda log: [log.append(one) for one in records]),
        FLUSHED_WRITE: written(scratch, flush_bytes=MIB, sent=sent),
        FLUSHED: appended(scratch, lambda log: append_flushing(log, records, flush_bytes=MIB)),
    }
    library = compile_limit(settings)
    if library is not None:
        runs[CHECKED_WRITE] = checked_and_written(library, scratch, sent)
    case = Case(title=f"append, batches of 16 KiB, values of {value_bytes} bytes", unit="B", bytes_per_unit=1.0)
    file = scratch / "sent"
    file.write_bytes(b"".join(sent))
    with Rivals(settings, file, JAVA_MODES, names=(JAVA_APPEND,), arguments=(str(scratch / "java"),)) as rivals:
        for rival in rivals.running:
            require_equal("appended records", {"expected": count, rival.name: rival.sum_of(1)})
            rival.warm_up()
            runs[rival.name] = partial(rival.seconds_of, 1)
        case.samples = rated(runs, settings, units=size, cpu_seconds=rivals.cpu_seconds)
    case.add_ratio(FOLLOWER, WRITE, target=TARGET_OF_WRITTEN)
    case.add_ratio(LEADER, WRITE)
    case.add_ratio(FLUSHED, FLUSHED_WRITE, target=TARGET_OF_FLUSHED)
    case.add_ratio(LEADER, CHECKED_WRITE)
    case.add_ratio(LEADER, JAVA_LEADER, target=TARGET_OF_JAVA)
    case.add_ratio(CHECKED_WRITE, JAVA_LEADER)
    case.add_ratio(FOLLOWER, JAVA_FOLLOWER)
    case.add_ratio(JAVA_FOLLOWER, JAVA_CHANNEL)
    return case


def flushed_case(settings: Settings, *, scratch: Path) -> Case:
    """Measure group commit, compared with one thread, with plain fdatasync calls, and with 16 threads in C."""
    count = THREADS * max(settings.segment_bytes // (2 * MIB), 1)
    records = MemoryRecords(sent_batches(100, settings)[0])
    data = bytes(records)
    runs = {
        SYNC_EACH: written(scratch, flush_bytes=1, sent=[data] * count),
        SYNC_SIXTEEN: written(scratch, flush_bytes=THREADS * len(data), sent=[data] * count),
        ONE_THREAD: appended(scratch, lambda log: append_flushed(log, records, count=count, threads=1)),
        MANY_THREADS: appended(scratch, lambda log: append_flushed(log, records, count=count, threads=THREADS)),
    }
    library = compiled(GROUP_COMMIT, GROUP_COMMIT_FLAGS, settings)
    if library is not None:
        runs[C_THREADS] = committed(ctypes.CDLL(str(library)), scratch, data, count=count)
    case = Case(title="append, flushed before it returns", unit="batch", bytes_per_unit=float(len(data)))
    case.samples = rated(runs, settings, units=count)
    case.add_ratio(MANY_THREADS, ONE_THREAD)
    case.add_ratio(SYNC_SIXTEEN, SYNC_EACH)
    case.add_ratio(C_THREADS, SYNC_EACH)
    case.add_ratio(MANY_THREADS, C_THREADS, target=TARGET_OF_GROUP_COMMIT)
    return case


def committed(library: ctypes.CDLL, scratch: Path, data: bytes, *, count: int) -> Callable[[], float]:
    """Return a function that runs rivals/group_commit.c and returns its seconds."""
    run = library.group_commit
    run.restype = ctypes.c_double
    path = str(scratch / "group").encode()
    sizes = [ctypes.c_int64(number) for number in (len(data), THREADS, count // THREADS)]

    def run_once() -> float:
        seconds = float(run(path, data, *sizes))
        if seconds < 0:
            raise OSError("group_commit.c: a write or a sync failed")
        return seconds

    return run_once
