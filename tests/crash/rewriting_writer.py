"""A writer that changes its log in every way there is, and reports each step; for test_rewritten_log.py.

Run as `python -m tests.crash.rewriting_writer PARTITION REPORTS SEED SECONDS`. What it appends at an offset depends on
the offset, except for the number of the generation, so that what is truncated is mostly followed by batches of the same
boundaries, offsets, producers and sizes. With an odd seed the layout depends on the generation too.
"""

from __future__ import annotations

import pickle
import random
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from kstore.compression import CompressionType
from kstore.config import LogConfig
from kstore.env import LocalEnv, WriteFile
from kstore.log.write.writable_log import WritableLog
from kstore.record import (
    AppendOrigin,
    ControlRecordType,
    EndTransactionMarker,
    MemoryRecords,
    MemoryRecordsBuilder,
    with_end_transaction_marker,
)
from kstore.store.opening import open_log
from tests.crash.rewritten_log import ABORTED, COMMITTED, History, Step, payload, timestamp_of

CONFIG = LogConfig(segment_bytes=32 * 1024, segment_index_bytes=4096, index_interval_bytes=512)
SIZES = (10, 60, 400, 1500)
CODECS = (CompressionType.NONE, CompressionType.NONE, CompressionType.NONE, CompressionType.LZ4)
FIRST_PRODUCER_ID = 1000
MOST_RECORDS = 1500
WAYS = {"append": 80, "truncate": 6, "roll": 3, "delete": 4, "restart": 1, "reopen": 1, "recreate": 1}


class UnsyncedFile(WriteFile):
    def sync(self) -> None:
        """Wait for nothing, so that what is truncated is written again within microseconds."""


class UnsyncedEnv(LocalEnv):
    """No power is cut here, and a wait for the disk in each step would leave few of them."""

    def open_write(self, path: str) -> WriteFile:
        file = super().open_write(path)
        return UnsyncedFile(file._fd, path=file.path, is_new=file.is_new)

    def sync_directory(self, path: str) -> None:
        pass


class RewritingWriter:
    def __init__(self, directory: Path, reports: BinaryIO, seed: int) -> None:
        self._directory = directory
        self._reports = reports
        self._seed = seed
        self._rng = random.Random(seed)
        self._history = History()
        self._generation = 0
        self._log = self._opened()

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        ways, weights = [*WAYS], [*WAYS.values()]
        while time.monotonic() < end:
            state = self._history.state
            way = self._rng.choices(ways, weights)[0]
            if state.end_offset - state.start_offset > MOST_RECORDS:
                way = "delete"
            getattr(self, f"_{way}")()
        self._log.close()

    def _opened(self) -> WritableLog:
        config = replace(CONFIG, preallocate=self._rng.random() < 0.3)
        return open_log(self._directory, "a", config, env=UnsyncedEnv())

    def _report(self, began: int, kind: str, **fields: Any) -> None:
        step = Step(began, time.monotonic_ns(), kind, **fields)
        self._history.take(step)
        pickle.dump(step, self._reports)

    def _append(self) -> None:
        offset, current = self._history.state.end_offset, self._history.current
        layout = random.Random(offset * 1000 + (self._generation if self._seed % 2 else 0) + self._seed)
        undecided = current.open_transactions()
        if undecided and layout.random() < 0.5:
            self._end_transaction(min(undecided), undecided[min(undecided)][1])
            return
        is_transactional = layout.random() < 0.2
        producer_id = FIRST_PRODUCER_ID + offset if is_transactional else -1
        fate = self._rng.choice((COMMITTED, ABORTED)) if is_transactional else COMMITTED
        count = layout.randint(1, 4)
        options: dict[str, Any] = {"compression": layout.choice(CODECS)}
        if is_transactional:
            options |= {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        builder = MemoryRecordsBuilder(base_offset=0, **options)
        for at in range(count):
            value = payload(offset + at, self._generation, fate, layout.choice(SIZES))
            timestamp_ms = timestamp_of(offset + at, self._generation)
            builder.append(offset=at, timestamp_ms=timestamp_ms, key=None, value=value, headers=())
        self._write(builder.build(), count, fate=fate, producer_id=producer_id)

    def _end_transaction(self, producer_id: int, fate: str) -> None:
        kind = ControlRecordType.COMMIT if fate == COMMITTED else ControlRecordType.ABORT
        marker = with_end_transaction_marker(
            EndTransactionMarker(control_type=kind, coordinator_epoch=0),
            timestamp_ms=timestamp_of(self._history.state.end_offset, self._generation),
            producer_id=producer_id,
            producer_epoch=0,
        )
        self._write(marker, 1, fate="marker", producer_id=producer_id, origin=AppendOrigin.COORDINATOR)

    def _write(
        self,
        records: MemoryRecords,
        count: int,
        *,
        fate: str,
        producer_id: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> None:
        began = time.monotonic_ns()
        done = self._log.append(records, origin=origin)
        assert not done.is_duplicate
        assert done.base_offset == self._history.state.end_offset
        self._report(
            began,
            "append",
            offset=done.base_offset,
            count=count,
            generation=self._generation,
            fate=fate,
            producer_id=producer_id,
        )

    def _truncate(self) -> None:
        state = self._history.state
        most = state.end_offset - state.start_offset
        target = state.end_offset - self._rng.randint(0, self._rng.choice((3, 30, most)))
        target = max(target, state.start_offset)
        began = time.monotonic_ns()
        self._log.truncate_to(target)
        self._generation += 1
        self._report(began, "truncate", offset=target, generation=self._generation)
        self._append_quickly()

    def _append_quickly(self) -> None:
        """Often write at once what comes in place of what was removed."""
        for _ in range(self._rng.choice((0, 0, 20, 100))):
            self._append()

    def _roll(self) -> None:
        self._log.roll()

    def _delete(self) -> None:
        state = self._history.state
        target = state.start_offset + self._rng.randint(0, max(state.end_offset - state.start_offset, 0))
        began = time.monotonic_ns()
        self._log.delete_records(target)
        self._report(began, "delete", offset=target)

    def _restart(self) -> None:
        state = self._history.state
        target = self._rng.choice((0, state.start_offset, state.end_offset, state.end_offset + 50))
        began = time.monotonic_ns()
        self._log.truncate_fully_and_start_at(target)
        self._generation += 1
        self._report(began, "restart", offset=target, generation=self._generation)
        self._append_quickly()

    def _reopen(self) -> None:
        began = time.monotonic_ns()
        self._log.close()
        self._log = self._opened()
        # A truncation inside a batch, or a start without a record, leaves no trace of its offset.
        assert self._log.log_end_offset <= self._history.state.end_offset
        self._report(began, "reopen", offset=self._log.log_end_offset)

    def _recreate(self) -> None:
        """Delete the topic as a broker does, and make it again."""
        began = time.monotonic_ns()
        self._log.close()
        gone = self._directory.with_name(f"{self._directory.name}.{self._generation:032x}-delete")
        self._directory.rename(gone)
        if self._rng.random() < 0.5:
            shutil.rmtree(gone)
        self._log = self._opened()
        shutil.rmtree(gone, ignore_errors=True)
        self._generation += 1
        self._report(began, "recreate", offset=0, generation=self._generation)
        self._append_quickly()


def main() -> None:
    directory, reports, seed, seconds = sys.argv[1:]
    with Path(reports).open("wb") as file:
        RewritingWriter(Path(directory), file, int(seed)).run(float(seconds))


if __name__ == "__main__":
    main()
