"""The history of one log under every operation of a writer, which may be interrupted in the middle of any.

It extends the histories of compactions (tests/making/compacting.py) by truncations, deletions of records, restarts,
leader epochs, appends that are flushed, and closing. Batches are appended in whole, so that each is there or not.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from kstore.log.log import Log
from kstore.log.verify import verify
from kstore.log.write.writable_log import WritableLog
from kstore.store.opening import open_log
from tests.fakes.disk import SimulatedDisk
from tests.fakes.faults import ClockedEnv
from tests.fakes.power import CuttingEnv
from tests.making.compacting import PATH, History, committed, committed_of, encoded, stored
from tests.reference.compaction import ModelBatch

CrashEnv = SimulatedDisk | CuttingEnv | ClockedEnv
_GAP = 50


class CrashHistory(History):
    """One log, and what may be found of it after a crash at any instant.

    Attributes: start (the log start offset that is durable), most_start (where an operation under way may raise it to),
        removing_to (where a truncation under way goes), restarting_at (where a restart under way begins), cleaned_end
        (up to which a compaction may have removed records), settled_end (the log end at the last compaction: what it
        removed rests on markers up to there, as in Kafka on those below the high watermark).
    """

    def __init__(self, rng: random.Random, *, path: str = PATH, has_retention: bool | None = None) -> None:
        super().__init__(rng, has_retention=rng.random() < 0.5 if has_retention is None else has_retention)
        self.config = replace(self.config, preallocate=rng.random() < 0.3)
        self.path = path
        self.start = 0
        self.most_start = 0
        self.removing_to: int | None = None
        self.restarting_at: int | None = None
        self.cleaned_end = 0
        self.settled_end = 0
        self.leader_epoch = 0

    def copy(self) -> CrashHistory:
        """Return a history that goes on by itself; no step changes a list in place that both have, but append."""
        other = copy.copy(self)
        other.appended, other.batches = list(self.appended), list(self.batches)
        other.open, other.sequences = set(self.open), dict(self.sequences)
        return other

    def told(self) -> tuple[object, ...]:
        """Return what decides whether a state is right."""
        return (
            self.flushed_end,
            len(self.appended),
            self.start,
            self.most_start,
            self.removing_to,
            self.restarting_at,
            self.cleaned_end,
        )

    def opened_by(self, env: CrashEnv) -> WritableLog:
        env._now_ms = self.now_ms
        return open_log(self.path, "a", self.config, env=env)

    # Operations

    def operate(self, name: str, log: WritableLog, env: CrashEnv) -> WritableLog:
        """Do one of OPERATIONS; return the log, another one if it was opened again."""
        if name == "reopen":
            self.close(log)
            return self.opened_by(env)
        OPERATIONS[name](self, log)
        self.note_flushed(log.flushed_offset)
        return log

    def note_flushed(self, offset: int) -> None:
        """Take the end of what survives: that of the last batch below an offset, which may be in a gap."""
        flushed = max(self.flushed_end, offset)
        ends = (one.last_offset + 1 for one in reversed(self.appended))
        self.flushed_end = max(next((end for end in ends if end <= flushed), 0), self.start)

    def close(self, log: WritableLog) -> None:
        log.close()
        self.note_flushed(log.log_end_offset)

    def append(self, log: WritableLog) -> None:
        self.write(log)

    def append_flushed(self, log: WritableLog) -> None:
        self.write(log, ack="flushed")
        self.note_flushed(log.log_end_offset)

    def write(self, log: WritableLog, *, ack: str = "written") -> None:
        base = log.log_end_offset + (self.rng.choice([1, 3]) if self.rng.random() < 0.05 else 0)
        batch = self.made(base)
        if self.rng.random() < 0.1:
            self.leader_epoch += 1
        self.appended.append(batch)
        # Old messages have no leader epoch.
        log.append_as_follower(encoded(batch, leader_epoch=self.leader_epoch), ack=ack)  # type: ignore[arg-type]
        self.batches.append(batch)

    def roll(self, log: WritableLog) -> None:
        log.roll()

    def flush(self, log: WritableLog) -> None:
        self.note_flushed(log.flush())

    def truncate(self, log: WritableLog) -> None:
        """Truncate at a boundary of batches, or inside of one, above what a compaction rests on."""
        least = max(self.settled_end, self.start, log.log_start_offset)
        end = log.log_end_offset
        if end <= least:
            return
        target = max(end - self.rng.choice([1, 2, 5, 20, end]), least)
        self.removing_to = target
        log.truncate_to(target)
        self._forget_from(target)
        self.removing_to = None

    def restart(self, log: WritableLog) -> None:
        start, end = log.log_start_offset, log.log_end_offset
        target = self.rng.choice([start, end, end + _GAP]) if start < end else end + _GAP
        self.restarting_at = target
        log.truncate_fully_and_start_at(target)
        self._begin_at(target)

    def delete_records(self, log: WritableLog) -> None:
        start, end = log.log_start_offset, min(log.high_watermark, log.log_end_offset)
        target = self.rng.randint(start, max(start, end))
        self.most_start = target
        log.delete_records(target)
        self._raise_start(log)

    def delete(self, log: WritableLog) -> None:
        due = log.plan_retention(self.now_ms)
        self.most_start = max(due[-1].end_offset, log.log_start_offset) if due else self.start
        super().delete(log)
        self._raise_start(log)

    def clean(self, log: WritableLog) -> None:
        self.cleaned_end = max(self.cleaned_end, log.segments[-1].base_offset)
        self.settled_end = log.log_end_offset
        log.compact(is_forced=True, drops_keyless=True)
        self.adopt(log)

    def _raise_start(self, log: WritableLog) -> None:
        self.start = self.most_start = log.log_start_offset

    def _forget_from(self, target: int) -> None:
        self.appended = [one for one in self.appended if one.last_offset < target]
        self.batches = [one for one in self.batches if one.last_offset < target]
        self.note_flushed(0)
        self._find_open()

    def _begin_at(self, offset: int) -> None:
        self.appended, self.batches = [], []
        self.open = set()
        self.start = self.most_start = self.flushed_end = offset
        self.restarting_at = self.removing_to = None
        self.cleaned_end = self.settled_end = offset

    def _find_open(self) -> None:
        self.open = {
            one.producer_id
            for one in self.appended
            if one.is_transactional and one.ends is None and self.is_last_of(one)
        }

    # What is there

    def uncleaned_from(self, log: Log) -> int:
        del log
        return self.cleaned_end

    def check_committed(self, log: Log, found: list[ModelBatch], history: list[ModelBatch]) -> None:
        """As ever; but a transaction that began below the log start may have been forgotten by a truncation."""
        start, seen = log.log_start_offset, committed(log)
        served = [one for one in history if one.last_offset >= start]
        allowed = [[one for one in committed_of(found, of) if one >= start] for of in (history, served)]
        assert seen in allowed, (seen, *allowed)

    def settle(self, log: WritableLog) -> None:
        """Hold a log that was opened after a crash to the history, and go on from what it has."""
        start, end = log.log_start_offset, log.log_end_offset
        if self.restarting_at is not None and start == end and (end <= self.start or end == self.restarting_at):
            # If all segments are gone and the new one is not there, it begins where the checkpoint says, as in Kafka.
            if not log.producer_state.active_producers:
                self._begin_at(end)
                return
            # As if all had been deleted: a snapshot tells of transactions that are open.
            self.start, self.most_start = min(self.start, end), end
        least = self.start if self.restarting_at is not None else self.flushed_end
        if self.removing_to is not None:
            kept = [one for one in self.appended if one.last_offset < self.removing_to]
            least = min(least, max([self.start, *(one.last_offset + 1 for one in kept[-1:])]))
        self.flushed_end = least
        if self.restarting_at is not None and end < self.settled_end:
            # A compaction removed records for the sake of markers that are gone now.
            self.appended = [one for one in self.appended if one.last_offset < start] + self.known(stored(log))
        assert self.start <= start <= max(self.start, self.most_start), (self.start, start, self.most_start)
        self.resume(log)
        self.start = self.most_start = start
        self.removing_to = self.restarting_at = None
        self.note_flushed(log.flushed_offset)

    def known(self, found: list[ModelBatch]) -> list[ModelBatch]:
        """Return batches whose records were appended in this order."""
        appended = {record.offset: record for batch in self.appended for record in batch.records}
        records = [record for batch in found for record in batch.records]
        assert all(one.offset < two.offset for one, two in pairwise(records))
        assert all(appended[one.offset] == one for one in records)
        return found


Operation = Callable[[CrashHistory, WritableLog], None]
OPERATIONS: dict[str, Operation] = {
    "append": CrashHistory.append,
    "append flushed": CrashHistory.append_flushed,
    "roll": CrashHistory.roll,
    "flush": CrashHistory.flush,
    "truncate": CrashHistory.truncate,
    "restart": CrashHistory.restart,
    "delete records": CrashHistory.delete_records,
    "retention": CrashHistory.delete,
    "compaction": CrashHistory.clean,
}
ALL_OPERATIONS = (*OPERATIONS, "reopen")
WEIGHTS = {"append": 60, "append flushed": 12, "roll": 6, "flush": 4, "truncate": 5, "restart": 1, "delete records": 2}
WEIGHTS |= {"retention": 4, "compaction": 6, "reopen": 2}


def abandon(log: WritableLog) -> None:
    """Let go of a log as a process does that dies."""
    log._dropping()


def check_files(history: CrashHistory, env: CrashEnv) -> None:
    """Every byte of the log and its side files is as a broker would leave it."""
    with open_log(history.path, config=history.config, env=env) as log:
        found = list(verify(log, env=env))
        assert not found, found
