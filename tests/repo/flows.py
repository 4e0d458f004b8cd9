"""Which files and frames of kstore six common calls enter: `python -m tests.repo.flows`.

A profile function counts each Python function of kstore that is called; compiled calls have no frame. A move is a call
whose caller's frame lies in another file. Each flow runs once before it is counted, so
that imports are not. Only the calling thread is counted.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import kstore
from kstore import LogConfig, MemoryRecords, MemoryRecordsBuilder, Record

PACKAGE = str(Path(kstore.__file__).parent)
SMALL_SEGMENTS = LogConfig(segment_bytes=2000)


class Entered(NamedTuple):
    """What one call entered: Python frames of kstore, the files they are of, and moves between files."""

    frames: int
    files: int
    moves: int


class Counter:
    """Counts the calls of kstore's Python functions while it is the profile function of its thread."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.moves = 0

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(PACKAGE):
            return
        self.paths.append(path)
        caller = frame.f_back
        if caller is not None and caller.f_code.co_filename != path:
            self.moves += 1


def entered_by(call: Callable[[], Any]) -> Entered:
    """Run a call under the profile function and return what it entered, without finalizers of earlier objects."""
    counter = Counter()
    gc.collect()
    gc.disable()
    sys.setprofile(counter)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return Entered(len(counter.paths), len(set(counter.paths)), counter.moves)


def sent() -> MemoryRecords:
    """Return one batch as a producer sends it."""
    return MemoryRecordsBuilder().append(timestamp_ms=1, key=b"key", value=b"value" * 20).build()


def write(path: Path, count: int = 60) -> None:
    """Write a log of several segments and close it."""
    with kstore.open_log(path, "a", SMALL_SEGMENTS) as log:
        for number in range(count):
            log.append([Record(offset=0, timestamp_ms=number, value=b"value" * 20)])


@contextmanager
def scan(root: Path) -> Iterator[Callable[[], Any]]:
    write(root / "t-0")
    with kstore.open_log(root / "t-0") as log:
        yield lambda: [batch.num_rows for batch in log.to_arrow_batches()]


@contextmanager
def append(root: Path) -> Iterator[Callable[[], Any]]:
    with kstore.open_log(root / "t-0", "a") as log:
        records = sent()
        yield lambda: log.append(records)


@contextmanager
def transaction(root: Path) -> Iterator[Callable[[], Any]]:
    with (
        kstore.open_store(root / "store", "a") as store,
        kstore.Producer(store, transactional_id="flows", linger_ms=60_000) as producer,
    ):
        store.create_topic("t")
        store.create_topic("__transaction_state")
        producer.init_transactions()

        def call() -> None:
            producer.begin_transaction()
            producer.send("t", b"value", partition=0)
            producer.commit_transaction()

        yield call


@contextmanager
def truncate(root: Path) -> Iterator[Callable[[], Any]]:
    write(root / "t-0")
    with kstore.open_log(root / "t-0", "a", SMALL_SEGMENTS) as log:
        ends = iter(range(50, 0, -10))
        yield lambda: log.truncate_to(next(ends))


@contextmanager
def open_after_a_crash(root: Path) -> Iterator[Callable[[], Any]]:
    write(root / "t-0")
    marker = root / ".kafka_cleanshutdown"

    def opened() -> None:
        marker.unlink(missing_ok=True)
        kstore.open_log(root / "t-0", "a", SMALL_SEGMENTS).close()

    yield opened


@contextmanager
def scan_to_table(root: Path) -> Iterator[Callable[[], Any]]:
    with kstore.open_log(root / "t-0", "a") as log:
        for number in range(10):
            log.append([Record(offset=0, timestamp_ms=number, value=b"value" * 20)])
    yield lambda: kstore.scan(root / "t-0").to_table()


FLOWS = {
    "scan to Arrow": scan,
    "append": append,
    "begin, send, commit": transaction,
    "truncate": truncate,
    "open after a crash, and close": open_after_a_crash,
    "open with a scan to a table": scan_to_table,
}


def measured() -> dict[str, Entered]:
    """Return what each flow enters, the second time it is called."""
    found = {}
    for name, flow in FLOWS.items():
        with tempfile.TemporaryDirectory() as root, flow(Path(root)) as call:
            call()
            found[name] = entered_by(call)
    return found


if __name__ == "__main__":
    rows = [("flow", *Entered._fields), *((name, *entered) for name, entered in measured().items())]
    sys.stdout.writelines(f"{name:32}{frames:>8}{files:>8}{moves:>8}\n" for name, frames, files, moves in rows)
