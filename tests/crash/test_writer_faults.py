"""Goal: whatever call to the system fails, a log acknowledges no more than is there, and is usable or says it is not.
Method: in each scenario each call fails in turn, in every way; a list of what was acknowledged is the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.env import LocalEnv
from kstore.errors import KStoreError, LogClosedError, LogFailedError, StorageError
from kstore.log.verify import verify
from kstore.log.write.writable_log import WritableLog
from kstore.record import Record
from kstore.store.opening import open_log
from kstore.types import TimestampType
from tests.fakes.faults import FAULT_KINDS, Fault, FaultyEnv

CONFIG = LogConfig(segment_bytes=2048, segment_index_bytes=1024, index_interval_bytes=100)
PREALLOCATED = replace(CONFIG, preallocate=True)
ROOMY = LogConfig(segment_index_bytes=1024)
TIMESTAMP_MS = 1_700_000_000_000
DEFAULT_STEP = 5


class Writer:
    """A log and what it was told: acknowledged values by offset, and those that a failed call may have left or taken.

    doubtful_end: a truncation that failed may have cut the log down to there.
    """

    def __init__(self, path: Path, env: LocalEnv) -> None:
        self.path = path
        self.env = env
        self.config = CONFIG
        self.log: WritableLog | None = None
        self.acknowledged: list[bytes] = []
        self.attempted: bytes | None = None
        self.doubtful_end: int | None = None
        self.start = 0

    def open(self) -> WritableLog:
        self.log = open_log(self.path, "a", self.config, env=self.env)
        return self.log

    def append(self, ack: str = "written", *, value_bytes: int = 200) -> None:
        assert self.log is not None
        self.attempted = f"{len(self.acknowledged)}-".encode().ljust(value_bytes, b"v")
        record = Record(
            offset=0,
            timestamp_ms=TIMESTAMP_MS + len(self.acknowledged),
            value=self.attempted,
            timestamp_type=TimestampType.CREATE_TIME,
        )
        self.log.append([record], ack=ack)
        self.acknowledged.append(self.attempted)
        self.attempted = None

    def truncate(self, offset: int) -> None:
        assert self.log is not None
        self.doubtful_end = offset
        self.log.truncate_to(offset)
        del self.acknowledged[offset:]
        self.doubtful_end = None

    def delete(self, offset: int) -> None:
        assert self.log is not None
        self.start = offset
        self.log.delete_records(offset)

    def close(self) -> None:
        if self.log is not None:
            self.log.close()

    def check(self, values: dict[int, bytes], end: int) -> None:
        """Hold what a log has against what it was told; what is beyond that was asked for."""
        expected = dict(enumerate(self.acknowledged))
        if self.attempted is not None:
            expected[len(self.acknowledged)] = self.attempted
        least_end = len(self.acknowledged) if self.doubtful_end is None else self.doubtful_end
        assert least_end <= end <= len(expected)
        assert all(expected[offset] == value for offset, value in values.items())
        assert set(range(self.start, end)) <= set(values)


Script = Callable[[Writer], Iterator[None]]


def appends(writer: Writer) -> Iterator[None]:
    for _ in range(4):
        yield writer.append()


def flushed_appends(writer: Writer) -> Iterator[None]:
    yield writer.append()
    for _ in range(2):
        yield writer.append("flushed")


def large_appends(writer: Writer) -> Iterator[None]:
    """So much between two flushes that the disk is asked to begin before the second."""
    writer.close()
    writer.config = ROOMY
    writer.open()
    yield writer.append("flushed")
    for _ in range(3):
        yield writer.append(value_bytes=200_000)
    yield writer.append("flushed")


def rolls(writer: Writer) -> Iterator[None]:
    for _ in range(14):
        yield writer.append()


def preallocated_rolls(writer: Writer) -> Iterator[None]:
    writer.close()
    writer.config = PREALLOCATED
    writer.open()
    yield from rolls(writer)


def truncations(writer: Writer) -> Iterator[None]:
    yield from rolls(writer)
    yield writer.truncate(12)
    yield writer.truncate(3)
    yield writer.append("flushed")


def deletions(writer: Writer) -> Iterator[None]:
    yield from rolls(writer)
    yield writer.delete(10)
    yield writer.append()


def reopenings(writer: Writer) -> Iterator[None]:
    yield from flushed_appends(writer)
    yield writer.close()
    writer.open()
    yield writer.append()


SCENARIOS: dict[str, Script] = {
    "appends": appends,
    "flushed-appends": flushed_appends,
    "large-appends": large_appends,
    "rolls": rolls,
    "preallocated-rolls": preallocated_rolls,
    "truncations": truncations,
    "deletions": deletions,
    "reopenings": reopenings,
}


def run(script: Script, writer: Writer) -> None:
    writer.open()
    for _ in script(writer):
        pass
    writer.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_log_tells_the_truth_about_a_failed_call(scenario: str, tmp_path: Path) -> None:
    check_faults(SCENARIOS[scenario], tmp_path, step=DEFAULT_STEP)


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_log_tells_the_truth_about_any_failed_call(scenario: str, tmp_path: Path) -> None:
    check_faults(SCENARIOS[scenario], tmp_path, step=1)


def check_faults(script: Script, tmp_path: Path, *, step: int) -> None:
    env = FaultyEnv()
    (tmp_path / "whole").mkdir()
    run(script, Writer(tmp_path / "whole" / "t-0", env))
    kinds = [(kind, is_for_good) for kind in FAULT_KINDS for is_for_good in (False, True)]
    turns = count()
    failed = 0
    for call_number in range(1, env.calls + 1, step):
        for kind, is_for_good in kinds if step == 1 else [kinds[next(turns) % len(kinds)]]:
            fault = Fault(call_number, kind, is_for_good)
            (tmp_path / str(fault)).mkdir()
            failed += run_with(fault, script, tmp_path / str(fault) / "t-0")
    assert failed


def run_with(fault: Fault, script: Script, path: Path) -> bool:
    env = FaultyEnv(fault)
    writer = Writer(path, env)
    has_raised = False
    try:
        run(script, writer)
    except StorageError:
        has_raised = True
    assert env.has_failed or not has_raised, fault
    env.heal()
    if has_raised and writer.log is not None and not writer.log.is_closed:
        go_on(writer, fault)
    close_quietly(writer)
    with open_log(path, "a", CONFIG, env=LocalEnv()) as log:
        writer.check({record.offset: record.value for record in log.read()}, log.log_end_offset)
        log.append([Record(offset=0, timestamp_ms=TIMESTAMP_MS, value=b"usable")])
    with open_log(path) as reader:
        assert list(verify(reader)) == [], fault
    return env.has_failed


def go_on(writer: Writer, fault: Fault) -> None:
    """Once the system is well: readers go on, and the log takes an append or says that it has failed."""
    log = writer.log
    assert log is not None
    if writer.doubtful_end is not None:
        # A truncation that failed half-way leaves readers what stays, or a typed error.
        with suppress(KStoreError):
            values = {record.offset: record.value for record in log.read(end_offset=writer.doubtful_end)}
            writer.check(values, writer.doubtful_end)
        return
    values = {record.offset: record.value for record in log.read()}
    writer.check(values, log.log_end_offset)
    if writer.attempted is None:
        try:
            writer.append()
        except LogFailedError:
            writer.attempted = None
            assert log.has_failed, fault


def close_quietly(writer: Writer) -> None:
    try:
        writer.close()
    except (LogClosedError, LogFailedError):
        pass
    except KStoreError as error:
        raise AssertionError("a system that is well has failed to close a log") from error
