"""Goal: a verbatim export ends each transaction as its source does, whatever a cleaner removes from the source between
two runs, or between two parts of one run. Method: logs whose markers are removed on command; the records that readers
of committed data get from both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kstore.archive import ExportSummary, export, read_manifest
from kstore.archive.manifest import OpenTransaction
from kstore.archive.options import export_options
from kstore.archive.parts import PartResult, Work
from kstore.archive.plan import Source, make_plan
from kstore.archive.run import LocalThreads, run_export
from kstore.archive.tasks import Job
from kstore.config import LogConfig
from kstore.errors import ExportTransactionError
from kstore.log.segment.segment import LogSegment
from kstore.log.state import transactions
from kstore.log.write.writable_log import WritableLog
from kstore.record import Record
from kstore.record.builder import with_end_transaction_marker, with_transactional_records
from kstore.record.control import EndTransactionMarker
from kstore.record.validation import AppendOrigin
from kstore.store.opening import open_log
from kstore.store.store import open_store
from kstore.types import ControlRecordType, TopicPartition

TOPIC, PLACE = "t", TopicPartition("t", 0)
CLEANED = LogConfig(
    cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, delete_retention_ms=0, file_delete_delay_ms=0
)
NOW_MS, LATER_MS = 1_700_000_000_000, 1_900_000_000_000


class LogToExport:
    """A log with transactions, batch by batch."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = open_store(root, "a", CLEANED)
        self.store.create_topic(TOPIC)
        self._sequences: dict[int, int] = {}

    @property
    def log(self) -> WritableLog:
        return self.store.log(TOPIC)

    def data(self, producer_id: int, key: bytes, value: bytes) -> int:
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + 1
        batch = with_transactional_records(
            [Record(offset=0, timestamp_ms=NOW_MS, key=key, value=value)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        return self.log.append(batch).base_offset

    def end(self, producer_id: int, kind: ControlRecordType) -> int:
        marker = EndTransactionMarker(control_type=kind, coordinator_epoch=0)
        batch = with_end_transaction_marker(marker, timestamp_ms=NOW_MS, producer_id=producer_id, producer_epoch=0)
        return self.log.append(batch, origin=AppendOrigin.COORDINATOR).base_offset

    def plain(self, key: bytes, value: bytes = b"plain") -> None:
        self.log.append([Record(offset=0, timestamp_ms=NOW_MS, key=key, value=value)])

    def clean(self) -> None:
        """Remove what is replaced, aborted, or a marker of nothing."""
        for at in range(3):
            self.plain(b"filler %d" % at)
            self.log.roll()
            self.log.compact(now_ms=LATER_MS + at, is_forced=True)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[LogToExport]:
    found = LogToExport(tmp_path / "source")
    with found.store:
        yield found


COMMIT, ABORT = ControlRecordType.COMMIT, ControlRecordType.ABORT


def committed(path: Path) -> list[tuple[int, bytes]]:
    with open_log(path / "t-0") as log:
        return [(one.offset, bytes(one.value or b"")) for one in log.read(isolation="read_committed")]


def check_same(source: LogToExport, target: Path, *, last_stable_offset: int | None = None) -> None:
    source.log.flush()
    assert committed(target) == committed(source.root)
    with open_log(target / "t-0") as copy:
        stable = copy.transactions().last_stable_offset
        assert stable == (copy.log_end_offset if last_stable_offset is None else last_stable_offset)


def open_of(target: Path) -> tuple[OpenTransaction, ...]:
    manifest = read_manifest(target)
    assert manifest is not None
    found = manifest.partition(PLACE)
    assert found is not None
    return found.open_transactions


def again(source: LogToExport, target: Path, **options: object) -> ExportSummary:
    return export(source.root, target, "kstore", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [COMMIT, ABORT])
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_run_ends_at_the_last_stable_offset_so_that_no_cleaning_changes_what_is_committed(
    source: LogToExport, tmp_path: Path, kind: ControlRecordType, comes_back: bool
) -> None:
    target = tmp_path / "out"
    source.plain(b"before")
    source.data(7, b"a", b"first")
    first = again(source, target)
    assert first.partitions[0].end_offset == 1
    assert [tuple(one) for one in first.waiting] == [("t", 0, 1, 2)]
    source.end(7, kind)
    source.plain(b"a", b"newer")
    if comes_back:
        source.data(7, b"b", b"of the next transaction")
        source.end(7, ABORT if kind is COMMIT else COMMIT)
    source.clean()
    assert again(source, target).waiting == ()
    check_same(source, target)


def test_a_run_that_keeps_open_transactions_goes_on_as_long_as_their_markers_are_there(
    source: LogToExport, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    for kind in (ABORT, COMMIT):
        source.data(7, b"a", b"first")
        start = source.log.log_end_offset - 1
        assert again(source, target, open_transactions="keep").waiting == ()
        assert open_of(target) == (OpenTransaction(7, start),)
        source.data(8, b"b", b"other")
        again(source, target, open_transactions="keep")
        source.end(7, kind)
        source.end(8, kind)
        again(source, target, open_transactions="keep")
        check_same(source, target)
        assert open_of(target) == ()


@pytest.mark.parametrize("kind", [COMMIT, ABORT])
@pytest.mark.parametrize("comes_back", [False, True])
def test_an_open_transaction_whose_marker_the_source_lost_is_refused(
    source: LogToExport, tmp_path: Path, kind: ControlRecordType, comes_back: bool
) -> None:
    target = tmp_path / "out"
    source.data(7, b"a", b"first")
    again(source, target, open_transactions="keep")
    source.end(7, kind)
    source.plain(b"a", b"newer")
    if comes_back:
        source.data(7, b"b", b"of the next transaction")
        source.end(7, ABORT if kind is COMMIT else COMMIT)
    else:
        source.log.remove_expired_producers()
    source.clean()
    before = read_manifest(target)
    for _ in range(2):
        with pytest.raises(ExportTransactionError, match="transaction of producer 7 from offset 0 on") as caught:
            again(source, target, open_transactions="keep")
        error = caught.value
        assert (error.topic, error.partition, error.offset) == ("t", 0, 1)
        assert (error.producer_id, error.first_offset, error.marker_offset) == (7, 0, -1)
        assert read_manifest(target) == before
    again(source, tmp_path / "another")
    check_same(source, tmp_path / "another")


def test_an_open_transaction_with_data_in_the_source_has_its_marker_there(source: LogToExport, tmp_path: Path) -> None:
    target = tmp_path / "out"
    source.data(7, b"a", b"stays")
    source.plain(b"b")
    again(source, target, open_transactions="keep")
    # What the cleaner removes between the end of the run and the marker.
    source.plain(b"c", b"old")
    source.end(7, COMMIT)
    source.plain(b"c", b"new")
    source.clean()
    again(source, target, open_transactions="keep")
    check_same(source, target)


def overlapping(source: LogToExport) -> int:
    """Write a transaction that is decided above the last stable offset; return the offset of its marker."""
    source.data(0, b"a", b"decided")
    source.data(9, b"b", b"open")
    marker = source.end(0, ABORT)
    source.data(9, b"c", b"open too")
    return marker


def test_markers_above_the_last_stable_offset_are_in_the_manifest(source: LogToExport, tmp_path: Path) -> None:
    target = tmp_path / "out"
    marker = overlapping(source)
    assert again(source, target).partitions[0].end_offset == 1
    assert open_of(target) == (OpenTransaction(0, 0, marker),)
    source.end(9, COMMIT)
    again(source, target)
    check_same(source, target)
    assert open_of(target) == ()


def test_a_marker_above_the_last_stable_offset_that_a_cleaner_removed_is_missed(
    source: LogToExport, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    marker = overlapping(source)
    again(source, target)
    source.end(9, COMMIT)
    source.data(0, b"d", b"of the next transaction")
    source.end(0, COMMIT)
    source.clean()
    with pytest.raises(ExportTransactionError) as caught:
        again(source, target)
    assert (caught.value.producer_id, caught.value.marker_offset) == (0, marker)


class CleaningBetween(LocalThreads):
    """Runs the first part, cleans the source once, and goes on, or stops there."""

    def __init__(self, source: LogToExport, *, stops: bool) -> None:
        super().__init__(1)
        self._source = source
        self._stops = stops
        self.has_cleaned = False

    def __call__(self, todo: Sequence[Work], job: Job) -> Iterator[PartResult]:
        parts = super().__call__(todo, job)
        if not self.has_cleaned:
            yield next(parts)
            self.has_cleaned = True
            self._source.clean()
            if self._stops:
                raise InterruptedError
        yield from parts


@pytest.mark.parametrize("stops", [False, True], ids=["goes on", "is resumed"])
@pytest.mark.parametrize("kind", [COMMIT, ABORT])
def test_a_marker_that_a_cleaner_removes_between_two_parts_of_a_run_makes_it_plan_again(
    source: LogToExport, tmp_path: Path, kind: ControlRecordType, stops: bool
) -> None:
    target = tmp_path / "out"
    source.data(7, b"a", b"first")
    source.log.roll()
    source.end(7, kind)
    source.plain(b"a", b"newer")
    source.data(7, b"b", b"of the next transaction")
    source.end(7, ABORT if kind is COMMIT else COMMIT)
    execute = CleaningBetween(source, stops=stops)
    options = export_options("kstore", topics=[TOPIC])
    given = Source(source.root, CLEANED, None)
    if stops:
        with pytest.raises(InterruptedError):
            run_export(given, target, options, execute, tasks=1)
    run_export(given, target, options, execute, tasks=1)
    assert execute.has_cleaned
    again(source, target, topics=[TOPIC])
    check_same(source, target)


def test_what_a_run_waits_for_is_no_open_transaction_above_its_end_offset(source: LogToExport, tmp_path: Path) -> None:
    source.plain(b"a")
    source.plain(b"b")
    source.data(7, b"c", b"open")
    summary = again(source, tmp_path / "out", end_offset=2)
    assert (summary.waiting, summary.partitions[0].end_offset) == ((), 2)


def walks_of_plan(
    source: LogToExport, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[list[int], list[OpenTransaction]]:
    """Return the base offset of the segment of each header walk of a plan, and the markers that its parts must copy."""
    walked: list[int] = []
    walk = transactions._next_of_transaction

    def noted(segment: LogSegment, reached: tuple[int, int], **limits: int) -> object:
        walked.append(segment.base_offset)
        return walk(segment, reached, **limits)

    monkeypatch.setattr(transactions, "_next_of_transaction", noted)
    source.log.flush()
    given = export_options("kstore", topics=[TOPIC], **options)
    plan = make_plan(Source(source.root, CLEANED, None), given, None, tasks=1)
    monkeypatch.undo()
    return walked, [marker for part in plan.parts for marker in part.markers]


def test_a_copy_of_a_log_without_transactions_is_planned_by_one_walk_over_its_headers(
    source: LogToExport, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(3):
        source.plain(b"%d" % at)
        source.log.roll()
    source.plain(b"last")
    bases = [segment.base_offset for segment in source.log.segments]
    assert walks_of_plan(source, monkeypatch) == (bases, [])
    # Without the wait for open transactions there is the walk for markers alone.
    assert walks_of_plan(source, monkeypatch, open_transactions="keep") == (bases, [])


@pytest.mark.parametrize("kind", [COMMIT, ABORT])
def test_headers_are_walked_again_from_the_first_transaction_on(
    source: LogToExport, monkeypatch: pytest.MonkeyPatch, kind: ControlRecordType
) -> None:
    for at in range(3):
        source.plain(b"%d" % at)
        source.log.roll()
    source.plain(b"before")
    first = source.data(7, b"a", b"first")
    source.log.roll()
    marker = source.end(7, kind)
    bases = [segment.base_offset for segment in source.log.segments]
    walked, markers = walks_of_plan(source, monkeypatch)
    assert sorted({*walked}) == bases
    assert [walked.count(base) for base in bases[:3]] == [1, 1, 1]
    assert markers == [OpenTransaction(7, first, marker)]
