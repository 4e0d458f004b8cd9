"""A reader of a log that another process rewrites; for test_rewritten_log.py.

Run as `python -m tests.crash.rewritten_reader PARTITION ANSWERS SEED SECONDS`: two threads use every public way to
read, with logs of their own and with one that they share, and each answer is written down. Run with RANGES alone it is
the other process of a plan: it reads the pickled ranges of its standard input.
"""

from __future__ import annotations

import faulthandler
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pyarrow

from kstore.arrow import record_batches, scan
from kstore.config import LogConfig
from kstore.errors import KStoreError, LogNotFoundError, LogReplacedError, OffsetOutOfRangeError
from kstore.log.log import Log
from kstore.log.plan import ScanRange
from kstore.log.source import FetchData
from kstore.log.verify import verify
from kstore.record import MemoryRecords
from kstore.store.opening import open_log
from tests.crash.rewritten_log import FIRST_TIMESTAMP_MS, GENERATIONS, Answer, Run, runs_of

MOVED_ON = (LogReplacedError, OffsetOutOfRangeError, LogNotFoundError)
NEVER = (KStoreError, AssertionError, ValueError, OSError, RuntimeError, LookupError, TypeError)
CONFIGS = (LogConfig(), LogConfig(read_chunk_bytes=4096), LogConfig(read_chunk_bytes=4096, time_index_proof_bytes=0))
COLUMNS = ["offset", "value"]
THREADS = 2
RANGES = "RANGES"
Isolation = Literal["read_uncommitted", "read_committed"]
Records = Iterable[tuple[int, bytes]]


class Bounds:
    """The part of a log that a use asks for, and what it says of its answer."""

    def __init__(self, choice: random.Random, log: Log) -> None:
        self.start_offset: int | None = None
        self.end_offset: int | None = None
        if choice.random() < 0.4:
            start, end = log.log_start_offset, log.log_end_offset
            self.start_offset = choice.randint(start, max(start, end))
            if choice.random() < 0.5:
                self.end_offset = self.start_offset + choice.randint(0, 300)
        self.isolation: Isolation = choice.choice(("read_uncommitted", "read_committed"))
        self.is_whole = True

    @property
    def offsets(self) -> dict[str, Any]:
        return {"start_offset": self.start_offset, "end_offset": self.end_offset}

    def within(self, records: Records) -> Iterator[tuple[int, bytes]]:
        """Leave out what whole batches hold besides."""
        start, end = self.start_offset or 0, self.end_offset
        return ((at, value) for at, value in records if at >= start and (end is None or at < end))


def rows_of(tables: Iterable[pyarrow.RecordBatch]) -> Iterator[tuple[int, bytes]]:
    for table in tables:
        yield from zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)


def records_in(found: FetchData) -> Iterator[tuple[int, bytes]]:
    """Yield the records of a fetch that is not aborted, as a consumer does; the last batch may be incomplete."""
    for batch in MemoryRecords(found.records).batches():
        batch.verify()
        header = batch.header
        is_aborted = any(
            header.producer_id == one.producer_id and one.first_offset <= header.base_offset <= one.last_offset
            for one in found.aborted
        )
        if not header.is_control and not (header.is_transactional and is_aborted):
            yield from ((record.offset, record.value or b"") for record in batch)


class Helper:
    """The other process of a plan."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.rewritten_reader", RANGES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._lock = threading.Lock()

    def read(self, ranges: list[ScanRange], options: dict[str, Any]) -> tuple[list[Run], BaseException | None]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with self._lock:
            pickle.dump((ranges, options), stdin)
            stdin.flush()
            found: tuple[list[Run], BaseException | None] = pickle.load(stdout)
        return found

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        assert self._process.wait(60) == 0


def read_ranges() -> None:
    """Answer each pair of ranges and options with runs and the error that ended them, until the input ends."""
    with suppress(EOFError):
        while True:
            ranges, options = pickle.load(sys.stdin.buffer)
            runs: list[Run] = []
            error = None
            try:
                collect(rows_of(record_batches(ranges, **options)), runs)
            except NEVER as met:
                error = met
            pickle.dump((runs, error), sys.stdout.buffer)
            sys.stdout.buffer.flush()


def collect(records: Records, runs: list[Run]) -> None:
    """Add the runs of records, also those before an error."""
    found: list[tuple[int, bytes]] = []
    try:
        found.extend(records)
    finally:
        # extend() keeps what came before an error.
        runs.extend(runs_of(found))


class Reader:
    """Uses a log again and again, and writes down what it got."""

    def __init__(self, directory: Path, answers: BinaryIO, seed: int, *, helper: Helper, shared: Shared) -> None:
        self._directory = directory
        self._answers = answers
        self._choice = random.Random(seed)
        self._helper = helper
        self._shared = shared
        self._bounds: Bounds
        self._uses: list[Callable[[Log, list[Run]], None]] = [
            self._read,
            self._read_in_turns,
            self._batches,
            self._columns,
            self._scan,
            self._planned,
            self._planned_for_another_process,
            self._fetch,
        ]

    def run(self, end: float) -> None:
        while time.monotonic() < end:
            since = time.monotonic_ns()
            try:
                log, is_shared, opened = self._log()
            except MOVED_ON:
                continue
            since = min(since, opened)
            for _ in range(1 if is_shared else self._choice.choice((1, 1, 5, 20))):
                if not self._use(log, since):
                    break
            if not is_shared:
                log.close()

    def _log(self) -> tuple[Log, bool, int]:
        """Return a log, whether other threads use it too, and when it was opened."""
        if self._choice.random() < 0.3:
            return self._shared.log()
        opened = time.monotonic_ns()
        return open_log(self._directory, config=self._choice.choice(CONFIGS)), False, opened

    def _use(self, log: Log, since: int) -> bool:
        """Use the log once; return whether to go on with it."""
        kind = self._choice.random()
        try:
            self._bounds = Bounds(self._choice, log)
            if kind < 0.15:
                self._look_up(log, since)
            elif kind < 0.25:
                self._verify(log, since)
            else:
                self._answer(log, since)
        except MOVED_ON:
            return False
        except NEVER as error:
            self._write(Answer("bounds", since, time.monotonic_ns(), problem=f"{type(error).__name__}: {error}"))
            return False
        return True

    def _answer(self, log: Log, since: int) -> None:
        use, bounds, runs = self._choice.choice(self._uses), self._bounds, list[Run]()
        error, problem = None, None
        try:
            use(log, runs)
        except MOVED_ON as met:
            error = type(met).__name__
        except NEVER as met:
            problem = f"{use.__name__}: {type(met).__name__}: {met}"
        self._write(
            Answer(
                use.__name__,
                since,
                time.monotonic_ns(),
                tuple(runs),
                **bounds.offsets,
                is_committed=bounds.isolation == "read_committed",
                is_whole=bounds.is_whole,
                error=error,
                problem=problem,
            )
        )
        if error is not None:
            raise LogReplacedError(error)

    def _write(self, answer: Answer) -> None:
        pickle.dump(answer, self._answers)

    def _read(self, log: Log, runs: list[Run]) -> None:
        verify: Literal["crc", "header"] = self._choice.choice(("crc", "header"))
        records = log.read(**self._bounds.offsets, isolation=self._bounds.isolation, verify=verify)
        collect(((one.offset, one.value or b"") for one in records), runs)

    def _read_in_turns(self, log: Log, runs: list[Run]) -> None:
        """Read slowly: between two parts of the log, list another one as often as it takes some time."""

        def slowly() -> Iterator[tuple[int, bytes]]:
            verify: Literal["crc", "header"] = self._choice.choice(("crc", "header"))
            records = log.read(**self._bounds.offsets, isolation=self._bounds.isolation, verify=verify)
            while part := list(islice(records, self._choice.choice((1, 10, 100)))):
                yield from ((one.offset, one.value or b"") for one in part)
                for _ in range(self._choice.choice((0, 5, 50))):
                    with suppress(*MOVED_ON):
                        open_log(self._directory).close()

        collect(slowly(), runs)

    def _batches(self, log: Log, runs: list[Run]) -> None:
        self._bounds.isolation = "read_uncommitted"
        if self._bounds.start_offset is None:
            self._bounds.start_offset = log.log_start_offset
        max_bytes = self._choice.choice((None, 5000))
        self._bounds.is_whole = max_bytes is None
        batches = log.batches(**self._bounds.offsets, max_bytes=max_bytes)
        rows = ((one.offset, one.value or b"") for batch in batches if not batch.header.is_control for one in batch)
        collect(self._bounds.within(rows), runs)

    def _options(self) -> dict[str, Any]:
        return {
            "columns": COLUMNS,
            "binary": self._choice.choice(("copy", "view")),
            "batch_bytes": self._choice.choice((500, 20_000, 1 << 20)),
            "threads": self._choice.choice((1, 2)),
        }

    def _columns(self, log: Log, runs: list[Run]) -> None:
        tables = log.to_arrow_batches(**self._bounds.offsets, **self._options(), isolation=self._bounds.isolation)
        collect(rows_of(tables), runs)

    def _scan(self, _: Log, runs: list[Run]) -> None:
        bounds = self._bounds
        bounds.start_offset, bounds.end_offset, bounds.isolation = None, None, "read_uncommitted"
        collect(rows_of(scan(self._directory, **self._options(), config=self._choice.choice(CONFIGS))), runs)

    def _plan(self, log: Log) -> list[ScanRange]:
        max_bytes = self._choice.choice((3000, 40_000, 1 << 20))
        return log.plan(max_bytes=max_bytes, **self._bounds.offsets, isolation=self._bounds.isolation)

    def _planned(self, log: Log, runs: list[Run]) -> None:
        options = self._options() | {"verify_crc": self._choice.random() < 0.5, "config": log.config}
        collect(rows_of(record_batches(self._plan(log), **options)), runs)

    def _planned_for_another_process(self, log: Log, runs: list[Run]) -> None:
        options = self._options() | {"verify_crc": self._choice.random() < 0.5, "config": log.config}
        found, error = self._helper.read(self._plan(log), options)
        runs.extend(found)
        if error is not None:
            raise error

    def _fetch(self, log: Log, runs: list[Run]) -> None:
        bounds = self._bounds
        start, end = log.log_start_offset, log.log_end_offset
        bounds.start_offset, bounds.end_offset, bounds.is_whole = (
            self._choice.randint(start, max(start, end)),
            None,
            False,
        )
        isolation = self._choice.choice(("read_uncommitted", "high_watermark", "read_committed"))
        bounds.isolation = "read_committed" if isolation == "read_committed" else "read_uncommitted"
        found = log.fetch(bounds.start_offset, self._choice.choice((1, 5000, 100_000)), isolation=isolation)
        assert found.log_start_offset <= found.log_end_offset, found
        collect(bounds.within(records_in(found)), runs)

    def _look_up(self, log: Log, since: int) -> None:
        start, end = log.log_start_offset, log.log_end_offset
        wanted = FIRST_TIMESTAMP_MS + self._choice.randint(start, max(start, end)) * GENERATIONS
        error, problem, found = None, None, None
        try:
            found = log.offset_for_timestamp(wanted)
        except MOVED_ON as met:
            error = type(met).__name__
        except NEVER as met:
            problem = f"{type(met).__name__}: {met}"
        place = None if found is None else (found.offset, found.timestamp_ms)
        told = {"looked_for": wanted, "found": place, "error": error, "problem": problem}
        self._write(Answer("look_up", since, time.monotonic_ns(), **told))

    def _verify(self, log: Log, since: int) -> None:
        damage = list(verify(log, deep=self._choice.random() < 0.7))
        told = f"verify: {damage}" if damage else None
        self._write(Answer("verify", since, time.monotonic_ns(), is_whole=False, problem=told))


class Shared:
    """One log that all threads use; another one from time to time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._logs: list[tuple[Log, bool, int]] = []
        self._uses = 0

    def log(self) -> tuple[Log, bool, int]:
        with self._lock:
            self._uses += 1
            if not self._logs or self._uses % 20 == 0:
                opened = time.monotonic_ns()
                self._logs.append((open_log(self._directory, config=CONFIGS[self._uses // 20 % 3]), True, opened))
            return self._logs[-1]

    def close(self) -> None:
        for log, _, _ in self._logs:
            log.close()


def main() -> None:
    directory, answers, seed, seconds = sys.argv[1:]
    helper, shared = Helper(), Shared(Path(directory))
    end = time.monotonic() + float(seconds)
    # What it hangs in is seen in the output of the test, which waits for longer.
    faulthandler.dump_traceback_later(float(seconds) + 100, exit=True)
    with ExitStack() as files:
        readers = [
            Reader(
                Path(directory),
                files.enter_context(Path(f"{answers}-{number}").open("wb")),
                int(seed) * THREADS + number,
                helper=helper,
                shared=shared,
            )
            for number in range(THREADS)
        ]
        threads = [threading.Thread(target=reader.run, args=(end,)) for reader in readers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    shared.close()
    helper.close()


if __name__ == "__main__":
    if sys.argv[1:] == [RANGES]:
        read_ranges()
    else:
        main()
