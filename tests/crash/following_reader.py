"""Followers of logs that other processes change; for test_followed_log.py.

Run as `python -m tests.crash.following_reader REWRITTEN COMPACTED DELIVERIES SEED STOP`: four threads follow the two
partitions in different ways, until the file STOP exists and nothing has come for a while, and write down what they got.
"""

from __future__ import annotations

import pickle
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from kstore.config import LogConfig
from kstore.errors import KStoreError, LogNotFoundError, LogReplacedError
from kstore.log.following.follower import Follower
from kstore.log.log import Log
from kstore.store.opening import open_log

TIMEOUT = 0.3
# One in so many batches of records is handed over slowly.
SLOWLY = 200
REWRITTEN = LogConfig(read_chunk_bytes=4096)


class Delivery(NamedTuple):
    """Records that a follower gave, as (offset, value); or that it had to begin again with another log.

    given: when, in ns.
    """

    given: int
    records: tuple[tuple[int, bytes], ...]
    begins_again: bool = False
    problem: str | None = None


def records_in(follower: Follower[Any]) -> Iterator[list[tuple[int, bytes]]]:
    for record in follower:
        yield [(record.offset, record.value or b"")]


def batches_in(follower: Follower[Any]) -> Iterator[list[tuple[int, bytes]]]:
    for batch in follower.batches():
        if not batch.is_control:
            yield [(record.offset, record.value or b"") for record in batch]


def tables_in(follower: Follower[Any]) -> Iterator[list[tuple[int, bytes]]]:
    for table in follower.to_arrow_batches(columns=["offset", "value"], batch_bytes=20_000):
        yield list(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))


class Following:
    """Follows one log until the writer has stopped, and keeps what it got."""

    def __init__(
        self,
        opened: Callable[[], Log],
        form: Callable[[Follower[Any]], Iterator[list[tuple[int, bytes]]]],
        *,
        isolation: Any,
        seed: int,
        has_stopped: Callable[[], bool],
    ) -> None:
        self._opened = opened
        self._form = form
        self._isolation = isolation
        self._choice = random.Random(seed)
        self._has_stopped = has_stopped
        self.deliveries: list[Delivery] = []

    def run(self) -> None:
        while True:
            try:
                if self._follow():
                    return
            except (LogReplacedError, LogNotFoundError) as error:
                if isinstance(error, LogReplacedError) and "was removed or replaced" not in str(error):
                    self._fail(error)
                    return
                self._keep((), begins_again=True)
                time.sleep(0.001)
            except (KStoreError, AssertionError, ValueError, OSError, RuntimeError) as error:
                self._fail(error)
                return

    def _follow(self) -> bool:
        """Return True at the end; raises if the log is replaced by another one."""
        log = self._opened()
        options: dict[str, Any] = {"isolation": self._isolation, "auto_offset_reset": "earliest"}
        with log.follow(timeout=TIMEOUT, **options) as follower:
            while True:
                # Before the wait: what was written before the stop comes in it.
                is_last = self._has_stopped()
                for records in self._form(follower):
                    self._keep(tuple(records))
                    if self._choice.random() < 1 / SLOWLY:
                        time.sleep(self._choice.choice((0.001, 0.02, 0.1)))
                if is_last:
                    return True

    def _fail(self, error: BaseException) -> None:
        self.deliveries.append(Delivery(time.monotonic_ns(), (), problem=f"{type(error).__name__}: {error}"))

    def _keep(self, records: tuple[tuple[int, bytes], ...], *, begins_again: bool = False) -> None:
        self.deliveries.append(Delivery(time.monotonic_ns(), records, begins_again))


def run_all(followings: list[Following]) -> None:
    threads = [threading.Thread(target=one.run) for one in followings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def write_down(followings: list[Following], deliveries: str) -> None:
    for number, one in enumerate(followings):
        with Path(f"{deliveries}-{number}").open("wb") as file:
            pickle.dump([tuple(delivery) for delivery in one.deliveries], file)


def main() -> None:
    rewritten, compacted, deliveries, seed, stop = sys.argv[1:]

    def opened(path: str) -> Callable[[], Log]:
        return lambda: open_log(path, config=REWRITTEN)

    for path in (rewritten, compacted):
        while True:
            with suppress(LogNotFoundError):
                open_log(path).close()
                break
            time.sleep(0.01)
    ways = [
        (rewritten, records_in, "read_uncommitted"),
        (rewritten, records_in, "read_committed"),
        (rewritten, tables_in, "read_uncommitted"),
        (compacted, batches_in, "read_uncommitted"),
    ]
    followings = [
        Following(
            opened(path), form, isolation=isolation, seed=int(seed) + number, has_stopped=lambda: Path(stop).exists()
        )
        for number, (path, form, isolation) in enumerate(ways)
    ]
    run_all(followings)
    write_down(followings, deliveries)


if __name__ == "__main__":
    main()
