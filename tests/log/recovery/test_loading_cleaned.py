"""Goal: what retention and compaction took from a log is no loss to recovery, and no producer is forgotten for it.
Method: partitions as brokers leave them after a kill, with producer snapshots that speak of records that are gone."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from kstore.config import DAY_MS, LogConfig
from kstore.env import LocalEnv
from kstore.errors import CorruptLogError, CorruptRecordError
from kstore.log.files.names import PartitionDirectory
from kstore.log.files.records import holds_only_zeros
from kstore.log.files.snapshots import ProducerSnapshotEntry, read_snapshot, write_snapshot
from kstore.log.recovery.context import LoadedLog
from kstore.log.recovery.load import load_log
from kstore.log.recovery.modes import RecoveryMode
from kstore.log.verify import verify
from kstore.store.opening import open_log
from kstore.types import TopicPartition
from tests.making.batches import batch, batches, records, write_offset_checkpoint, write_partition
from tests.reference.codec import write_batch, write_end_transaction_marker

NOW_MS = 1_700_000_000_000
PRODUCER = 7
ABORTED_TXN = struct.Struct(">hqqqq")


class TimeEnv(LocalEnv):
    """The machine at the time of the records."""

    def wall_clock_ms(self) -> int:
        return NOW_MS + DAY_MS // 2


def load(path: Path, *, config: LogConfig | None = None, **options: Any) -> LoadedLog:
    directory = PartitionDirectory(TopicPartition("t", 0), str(path), str(path.parent))
    return load_log(directory, config=config or LogConfig(), env=TimeEnv(), **options)


def snapshot(path: Path, offset: int, *, transaction_from: int = -1) -> None:
    """Write a snapshot with one producer, its transaction open from an offset on or none."""
    entry = ProducerSnapshotEntry(PRODUCER, 0, 4, offset - 1, 0, NOW_MS, 0, transaction_from)
    write_snapshot(str(path / f"{offset:020d}.snapshot"), [entry])


def abort(offset: int) -> bytes:
    return write_end_transaction_marker(
        offset, timestamp_ms=NOW_MS, producer_id=PRODUCER, producer_epoch=0, commit=False
    )


def aborted(path: Path, base_offset: int) -> list[tuple[int, ...]] | None:
    """Return (producer id, first offset, last offset) of each entry of a transaction index, None without a file."""
    index = path / f"{base_offset:020d}.txnindex"
    if not index.exists():
        return None
    return [entry[1:4] for entry in ABORTED_TXN.iter_unpack(index.read_bytes())]


@pytest.mark.parametrize("log_start_offset", [None, 10], ids=["no-checkpoint", "checkpoint"])
def test_producers_whose_records_retention_removed_stay_known_however_often_the_log_is_recovered(
    tmp_path: Path, log_start_offset: int | None
) -> None:
    path = write_partition(tmp_path, [batches(10, 10)])
    snapshot(path, 10)
    for _ in range(3):
        loaded = load(path, recovery_point=10, log_start_offset=log_start_offset)
        assert set(loaded.producer_state.active_producers) == {PRODUCER}
        assert loaded.producer_state.map_end_offset == 20


EXPIRED = {"segments-without-a-gap": (5, [PRODUCER]), "a-gap-behind-what-it-wrote": (8, [])}


@pytest.mark.parametrize(("base_offset", "known"), EXPIRED.values(), ids=EXPIRED)
def test_expired_producer_is_left_out_of_the_snapshots_behind_the_segment_that_it_wrote_to(
    tmp_path: Path, base_offset: int, known: list[int]
) -> None:
    expired = batch(0, 5, producer_id=PRODUCER, producer_epoch=0, base_sequence=0)
    bases = [base_offset, base_offset + 5, base_offset + 10]
    path = write_partition(tmp_path, [[expired], batches(bases[0], 5), batches(bases[1], 5)])
    config = LogConfig(producer_id_expiration_ms=1)
    for _ in range(2):
        load(path, config=config)
        snapshots = [read_snapshot(str(path / f"{base:020d}.snapshot")) for base in bases]
        assert [[one.producer_id for one in found] for found in snapshots] == [known, [], []]


def test_snapshot_below_a_log_start_inside_the_first_segment_serves_no_more(tmp_path: Path) -> None:
    path = write_partition(tmp_path, [batches(10, 10)])
    snapshot(path, 10)
    loaded = load(path, recovery_point=10, log_start_offset=12)
    assert set(loaded.producer_state.active_producers) == set()


def cleaned(root: Path, *, checkpoint: int | None) -> Path:
    """A snapshot of offset 7, of a clean shutdown, in a hole that a cleaner left between the offsets 4 and 20."""
    path = write_partition(root, [batches(0, 5), batches(20, 10)])
    snapshot(path, 7)
    if checkpoint is not None:
        write_offset_checkpoint(root / "cleaner-offset-checkpoint", {"t-0": checkpoint})
    return path


CLEANED = {
    "by-the-cleaner-s-checkpoint": (20, LogConfig()),
    "by-the-settings": (None, LogConfig(cleanup_policy="compact")),
}


@pytest.mark.parametrize(("checkpoint", "config"), CLEANED.values(), ids=CLEANED)
def test_snapshot_in_a_hole_that_a_cleaner_left_is_no_sign_of_loss(
    tmp_path: Path, checkpoint: int | None, config: LogConfig
) -> None:
    loaded = load(cleaned(tmp_path, checkpoint=checkpoint), config=config, recovery_point=25)
    assert [one.base_offset for one in loaded.segments] == [0, 20]
    assert loaded.report.damage == ()


@pytest.mark.parametrize("checkpoint", [None, 0, 7])
def test_snapshot_in_a_hole_that_no_cleaner_has_reached_is_a_sign_of_loss(
    tmp_path: Path, checkpoint: int | None
) -> None:
    path = cleaned(tmp_path, checkpoint=checkpoint)
    with pytest.raises(CorruptLogError, match="segment 7 is missing, but its producer snapshot exists"):
        load(path, recovery_point=25)


def test_abort_behind_the_recovery_point_is_indexed_though_a_cleaner_removed_its_records(tmp_path: Path) -> None:
    path = write_partition(tmp_path, [batches(0, 10), [*batches(10, 2), abort(12), *batches(13, 2)]])
    snapshot(path, 10, transaction_from=3)
    load(path, recovery_point=14)
    assert aborted(path, 10) == [(PRODUCER, 3, 12)]


def test_abort_in_an_older_segment_whose_records_a_cleaner_removed_needs_no_entry(tmp_path: Path) -> None:
    path = write_partition(tmp_path, [batches(0, 5), [*batches(10, 2), abort(12)], batches(13, 2)])
    snapshot(path, 10, transaction_from=7)
    loaded = load(path, recovery_point=14)
    assert aborted(path, 10) is None
    assert loaded.report.rebuilt == ()


def begun(offset: int, *, sequence: int) -> bytes:
    return write_batch(
        records(offset, 1), producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence, is_transactional=True
    )


def test_transaction_that_ended_in_a_hole_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    older = [*batches(10, 1), begun(11, sequence=1), abort(12)]
    path = write_partition(tmp_path, [[*batches(0, 2), begun(2, sequence=0)], older, batches(13, 2)])
    write_snapshot(str(path / f"{10:020d}.snapshot"), [])
    load(path, recovery_point=14)
    assert aborted(path, 10) == [(PRODUCER, 11, 12)]


def test_transaction_that_began_in_a_hole_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    older = [*batches(10, 1), begun(11, sequence=2), abort(12)]
    path = write_partition(tmp_path, [[*batches(0, 2), begun(2, sequence=0)], older, batches(13, 2)])
    snapshot(path, 10, transaction_from=6)
    (path / f"{10:020d}.txnindex").write_bytes(ABORTED_TXN.pack(0, PRODUCER, 6, 12, 13))
    assert load(path, recovery_point=14).report.rebuilt == ()


LOG_STARTS = {
    "in-the-segment-that-it-began-in": (4, [(PRODUCER, 2, 11)]),
    "in-a-hole-behind-that-segment": (7, None),
    "at-the-base-of-the-segment-of-its-end": (10, None),
    "in-the-segment-of-its-end": (11, None),
}


@pytest.mark.parametrize(("log_start_offset", "expected"), LOG_STARTS.values(), ids=LOG_STARTS)
def test_transaction_is_forgotten_where_the_log_start_leaves_no_snapshot_of_it(
    tmp_path: Path, log_start_offset: int, expected: list[tuple[int, ...]] | None
) -> None:
    older = [*batches(0, 2), begun(2, sequence=0), *batches(3, 2)]
    path = write_partition(tmp_path, [older, [*batches(10, 1), abort(11), *batches(12, 2)]])
    loaded = load(path, log_start_offset=log_start_offset)
    assert aborted(path, 10) == expected
    assert loaded.log_start_offset == log_start_offset
    again = load(path, log_start_offset=log_start_offset, recovery_point=loaded.log_end_offset)
    assert again.report.rebuilt == ()
    assert aborted(path, 10) == expected


@pytest.mark.parametrize(("log_start_offset", "unstable"), [(4, 2), (7, None), (10, None), (11, None)])
def test_transaction_below_the_segment_of_the_log_start_holds_no_reader_back(
    tmp_path: Path, log_start_offset: int, unstable: int | None
) -> None:
    path = write_partition(tmp_path, [[*batches(0, 2), begun(2, sequence=0), *batches(3, 2)], batches(10, 5)])
    for _ in range(2):
        loaded = load(path, log_start_offset=log_start_offset)
        assert loaded.producer_state.first_unstable_offset == unstable


def preallocated(root: Path, *, next_base_offset: int, checkpoint: int | None, tail: bytes = bytes(3000)) -> Path:
    """A segment of the offsets 0 to 4 and more bytes, as the cleaner of Kafka 0.10 leaves it or a writer that makes a
    segment before it trims the one before, and two after it."""
    following = [batches(next_base_offset, 3), batches(next_base_offset + 3, 3)]
    path = write_partition(root, [batches(0, 5), *following])
    with (path / f"{0:020d}.log").open("ab") as log:
        log.write(tail)
    if checkpoint is not None:
        write_offset_checkpoint(root / "cleaner-offset-checkpoint", {"t-0": checkpoint})
    return path


PREALLOCATED = {"no-offset-is-missing": (5, None), "a-cleaner-took-what-is-missing": (20, 20)}


@pytest.mark.parametrize("recovery_point", [0, 2, 26], ids=["recovered", "recovered-from-a-point", "older"])
@pytest.mark.parametrize("mode", ["strict", "point_in_time"])
@pytest.mark.parametrize(("base_offset", "checkpoint"), PREALLOCATED.values(), ids=PREALLOCATED)
def test_preallocated_space_of_an_older_segment_goes_and_no_record_with_it(
    tmp_path: Path, base_offset: int, checkpoint: int | None, mode: RecoveryMode, recovery_point: int
) -> None:
    path = preallocated(tmp_path, next_base_offset=base_offset, checkpoint=checkpoint)
    records_of_it = (path / f"{0:020d}.log").read_bytes().removesuffix(bytes(3000))
    offsets = [*range(5), *range(base_offset, base_offset + 6)]
    with open_log(path) as log:
        assert [record.offset for record in log.read()] == offsets
    point = min(recovery_point, base_offset + 6)
    for _ in range(2):
        loaded = load(path, recovery_point=point, mode=mode)
        assert loaded.log_end_offset == base_offset + 6
        assert loaded.report.damage == ()
        assert (path / f"{0:020d}.log").read_bytes() == records_of_it
    with open_log(path) as log:
        assert [record.offset for record in log.read()] == offsets
        assert list(verify(log)) == []


@pytest.mark.parametrize("size", [1, 17, 3000, 300_000], ids=str)
@pytest.mark.parametrize("is_sparse", [False, True], ids=["written", "sparse"])
@pytest.mark.parametrize("place", [0, -1], ids=["first", "last"])
def test_a_byte_among_zeros_is_found_wherever_it_is(tmp_path: Path, size: int, is_sparse: bool, place: int) -> None:
    path = tmp_path / "zeros"
    with path.open("wb") as file:
        file.write(b"x" * 100)
        file.truncate(100 + size) if is_sparse else file.write(bytes(size))
    with LocalEnv().open_read(str(path)) as read:
        assert holds_only_zeros(read, position=100, end_position=100 + size)
        assert not holds_only_zeros(read, position=100, end_position=100 + size + 1), "zeros that are not there"
    with path.open("r+b") as file:
        file.seek(100 if place == 0 else 100 + size - 1)
        file.write(b"x")
    with LocalEnv().open_read(str(path)) as read:
        assert not holds_only_zeros(read, position=100, end_position=100 + size)


LOSSES = {
    "zeros-where-offsets-are-missing": (20, None, bytes(3000)),
    "zeros-where-no-cleaner-has-reached": (20, 19, bytes(3000)),
    "not-zeros-alone": (5, 100, bytes(2999) + b"x"),
}


@pytest.mark.parametrize(("base_offset", "checkpoint", "tail"), LOSSES.values(), ids=LOSSES)
def test_zeros_in_the_place_of_records_are_no_preallocated_space(
    tmp_path: Path, base_offset: int, checkpoint: int | None, tail: bytes
) -> None:
    path = preallocated(tmp_path, next_base_offset=base_offset, checkpoint=checkpoint, tail=tail)
    with open_log(path) as log, pytest.raises(CorruptRecordError):
        list(log.read())
    with pytest.raises(CorruptLogError):
        load(path, recovery_point=base_offset + 6)


def test_transaction_index_that_has_its_final_name_before_its_log_stays(tmp_path: Path) -> None:
    """As a crash leaves the end of a swap: of the new files the others are not renamed yet."""
    aborting = [begun(10, sequence=0), begun(11, sequence=1), *batches(12, 3), abort(15)]
    path = write_partition(tmp_path, [batches(0, 5), aborting, batches(16, 6)])
    load(path)
    assert aborted(path, 10) == [(PRODUCER, 10, 15)]
    # Nothing else tells where the transaction began.
    (path / f"{10:020d}.snapshot").unlink()
    for suffix in (".log", ".index", ".timeindex"):
        (path / f"{10:020d}{suffix}").rename(path / f"{10:020d}{suffix}.swap")
    (path / f"{10:020d}.txnindex.deleted").write_bytes(b"")
    loaded = load(path, recovery_point=22)
    assert [one.base_offset for one in loaded.segments] == [0, 10, 16]
    assert aborted(path, 10) == [(PRODUCER, 10, 15)]


def test_transaction_index_of_a_swap_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    path = write_partition(tmp_path, [[begun(0, sequence=0), *batches(1, 3), abort(4)], batches(5, 6)])
    load(path)
    old = ABORTED_TXN.pack(0, PRODUCER + 1, 0, 3, 4)
    for suffix in (".log", ".txnindex"):
        (path / f"{0:020d}{suffix}").rename(path / f"{0:020d}{suffix}.swap")
    (path / f"{0:020d}.txnindex").write_bytes(old)
    load(path, recovery_point=11)
    assert aborted(path, 0) == [(PRODUCER, 0, 4)]
