"""Goal: load_log on small logs: what is read, rebuilt, cut, kept and refused, and where the durable point decides.
Method: partitions written by the reference are damaged in one way and loaded; an Env counts what is opened."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstore.config import LogConfig
from kstore.env import FileStatus, LocalEnv, LocalFile, WriteFile
from kstore.errors import CorruptLogError, CorruptRecordError, SegmentTooLargeError, StorageError
from kstore.log.files.durable_point import DurablePoint, DurablePointFile
from kstore.log.files.names import (
    LEADER_EPOCH_CHECKPOINT,
    QUARANTINE_DIRECTORY,
    RECOVERY_POINT_CHECKPOINT,
    PartitionDirectory,
)
from kstore.log.files.root_files import NO_BROKER_EPOCH, CleanShutdown, write_clean_shutdown
from kstore.log.files.snapshots import ProducerSnapshotEntry, encode_snapshot
from kstore.log.recovery.context import LoadedLog
from kstore.log.recovery.load import load_log
from kstore.log.recovery.modes import RecoveryMode
from kstore.store.opening import open_log
from kstore.types import TopicPartition
from tests.fakes.faults import FaultyEnv
from tests.making.batches import batch, batches, flip_bit, patch_header, write_offset_checkpoint, write_partition
from tests.making.messages import packed_entry
from tests.reference import codecs as codecs
from tests.reference.codec import write_end_transaction_marker

CONFIG = LogConfig(index_interval_bytes=100)
MAX_RELATIVE_OFFSET = 2**31 - 1
# Version, producer id, first offset, offset of the marker, last stable offset.
ABORTED_TXN = struct.Struct(">hqqqq")


def load(path: Path, **options: Any) -> LoadedLog:
    directory = PartitionDirectory(TopicPartition("t", 0), str(path), str(path.parent))
    return load_log(directory, config=CONFIG, **options)


def two_segments(root: Path) -> Path:
    """Offsets 0 to 9 and 10 to 19, a record of 100 bytes in each batch."""
    return write_partition(root, [batches(0, 10, value_bytes=100), batches(10, 10, value_bytes=100)])


def log_file(path: Path, base_offset: int) -> Path:
    return path / f"{base_offset:020d}.log"


def damage_batch(path: Path, *, base_offset: int, number: int) -> int:
    """Flip a bit in the value of a batch of a segment; return where the batch starts."""
    log = log_file(path, base_offset)
    start = starts_of(log.read_bytes())[number]
    flip_bit(log, start + 90, bit=0)
    return start


def starts_of(content: bytes) -> list[int]:
    """Return where each batch starts, and the end."""
    starts = [0]
    while starts[-1] < len(content):
        size_at = starts[-1] + 8
        starts.append(starts[-1] + 12 + int.from_bytes(content[size_at : size_at + 4], "big"))
    return starts


def test_log_without_files_gets_its_first_segment(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    path.mkdir()
    loaded = load(path, log_start_offset=7)
    assert [one.base_offset for one in loaded.segments] == [7]
    assert (loaded.log_start_offset, loaded.log_end_offset) == (7, 7)
    assert sorted(one.name for one in path.iterdir()) == [
        f"{7:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")
    ]


def test_sound_log_is_loaded_with_nothing_rebuilt_or_cut(tmp_path: Path) -> None:
    loaded = load(two_segments(tmp_path))
    assert [(one.base_offset, one.next_offset) for one in loaded.segments] == [(0, 10), (10, 20)]
    assert loaded.report.is_unharmed
    assert loaded.producer_state.map_end_offset == 20


class ReadingEnv(LocalEnv):
    """Notes the names of the files that are opened to be read."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def open_read(self, path: str) -> LocalFile:
        self.names.add(path.rpartition("/")[2])
        return super().open_read(path)


def test_clean_load_reads_the_last_log_file_only(tmp_path: Path) -> None:
    path, env = two_segments(tmp_path), ReadingEnv()
    load(path, is_clean=True)
    env.names.clear()
    loaded = load(path, is_clean=True, env=env)
    assert loaded.log_end_offset == loaded.recovery_point == 20
    assert {name for name in env.names if name.endswith(".log")} == {f"{10:020d}.log"}


def test_clean_load_reads_no_log_file_where_the_durable_point_is_its_end(tmp_path: Path) -> None:
    path, env = two_segments(tmp_path), ReadingEnv()
    load(path, is_clean=True)
    DurablePointFile(str(path)).advance(DurablePoint(20, 10, log_file(path, 10).stat().st_size))
    env.names.clear()
    assert load(path, is_clean=True, env=env).log_end_offset == 20
    assert {name for name in env.names if name.endswith(".log")} == set()


@pytest.mark.parametrize("offset", [13, 19, 20])
def test_damage_below_the_durable_point_is_refused_and_nothing_changed(tmp_path: Path, offset: int) -> None:
    path = two_segments(tmp_path)
    position = damage_batch(path, base_offset=10, number=2)
    DurablePointFile(str(path)).advance(DurablePoint(offset, 10, 0))
    before = {one.name: one.read_bytes() for one in path.iterdir()}
    with pytest.raises(CorruptLogError) as caught:
        load(path)
    assert (caught.value.path, caught.value.position) == (str(log_file(path, 10)), position)
    assert caught.value.base_offset == 12
    assert {one.name: one.read_bytes() for one in path.iterdir()} == before


@pytest.mark.parametrize("offset", [0, 11, 12])
def test_damage_at_or_behind_the_durable_point_is_cut_and_a_copy_kept(tmp_path: Path, offset: int) -> None:
    path = two_segments(tmp_path)
    position = damage_batch(path, base_offset=10, number=2)
    cut = log_file(path, 10).read_bytes()[position:]
    if offset:
        DurablePointFile(str(path)).advance(DurablePoint(offset, 10, 0))
    loaded = load(path)
    assert loaded.log_end_offset == 12
    assert loaded.report.truncated_bytes == len(cut)
    (kept,) = loaded.report.quarantined
    assert Path(kept).parent.name == QUARANTINE_DIRECTORY
    assert Path(kept).read_bytes() == cut


def test_no_copy_is_kept_of_zeros_or_when_declined(tmp_path: Path) -> None:
    path = two_segments(tmp_path)
    with log_file(path, 10).open("ab") as log:
        log.write(bytes(5000))
    loaded = load(path)
    assert (loaded.log_end_offset, loaded.report.preallocated_bytes) == (20, 5000)
    damage_batch(path, base_offset=10, number=2)
    assert load(path, mode="point_in_time", keeps_copies=False).report.truncated_bytes
    assert not (path / QUARANTINE_DIRECTORY).exists()


@pytest.mark.parametrize("point", [3, 4])
def test_wrapper_at_the_recovery_point_that_can_not_be_opened_is_kept(tmp_path: Path, point: int) -> None:
    path = write_partition(tmp_path, [batches(0, 3)])
    with log_file(path, 0).open("ab") as log:
        log.write(packed_entry(b"no gzip", None, offset=5, magic=1, attributes=codecs.GZIP))
    assert load(path, recovery_point=point).log_end_offset == 6


@pytest.mark.parametrize(("torn", "recovery_point"), [(b"", 20), (b"torn", 15)])
def test_recovery_point_is_the_end_of_a_log_that_was_closed_cleanly_unless_it_was_cut(
    tmp_path: Path, torn: bytes, recovery_point: int
) -> None:
    path = two_segments(tmp_path)
    with log_file(path, 10).open("ab") as log:
        log.write(torn)
    loaded = load(path, is_clean=True, recovery_point=15)
    assert (loaded.log_end_offset, loaded.recovery_point) == (20, recovery_point)
    assert loaded.report.truncated_bytes == len(torn)


class SyncingEnv(FaultyEnv):
    """Notes the names of what is synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def check(self, call: str, path: str) -> bool:
        if call == "sync":
            self.synced.append(path.rpartition("/")[2])
        return super().check(call, path)


@pytest.mark.parametrize(("point", "synced"), [(0, [0, 10]), (10, [10]), (20, [])])
def test_recovered_segments_before_the_last_are_synced(tmp_path: Path, point: int, synced: list[int]) -> None:
    """A broker that was killed may have written them, and not synced."""
    path, env = write_partition(tmp_path, [batches(base, 10) for base in (0, 10, 20)]), SyncingEnv()
    load(path, recovery_point=point, env=env)
    assert [name for name in env.synced if name.endswith(".log")] == [log_file(path, base).name for base in synced]
    assert path.name in env.synced


def snapshots(path: Path) -> dict[str, tuple[int, bytes]]:
    return {one.name: (one.stat().st_ino, one.read_bytes()) for one in path.glob("*.snapshot")}


@pytest.mark.parametrize("point", [0, 10, 20])
def test_recovery_of_a_log_that_is_as_an_earlier_one_left_it_writes_and_removes_nothing(
    tmp_path: Path, point: int
) -> None:
    """It syncs what a writer that was killed may have written so."""
    path, env = write_partition(tmp_path, [batches(base, 10) for base in (0, 10, 20)]), FaultyEnv()
    load(path, recovery_point=point)
    before = snapshots(path)
    assert f"{30:020d}.snapshot" in before
    env.watch("EIO")
    load(path, recovery_point=point, env=env)
    assert snapshots(path) == before
    assert [env.watched(call) for call in ("write", "rename", "unlink")] == [[], [], []]
    taken = [f"{base:020d}.snapshot" for base in (10, 20, 30) if base > point]
    assert [name for name in env.watched("sync") if name.endswith(".snapshot")] == taken
    assert env.watched("sync").count(path.name) == 1


def test_snapshots_that_say_other_than_the_log_are_replaced(tmp_path: Path) -> None:
    producers = {"producer_id": 7, "producer_epoch": 0}
    segments = [[batch(base + n, base_sequence=base + n, **producers) for n in range(2)] for base in (0, 2, 4)]
    path = write_partition(tmp_path, segments)
    load(path)
    before = snapshots(path)
    wrong = write_snapshot_of(path, 2), write_snapshot_of(path, 6)
    stray = write_snapshot_of(path, 5)
    load(path)
    after = snapshots(path)
    assert {name: content for name, (_, content) in after.items()} == {
        name: content for name, (_, content) in before.items()
    }
    assert stray not in after
    assert all(after[name][1] != encode_snapshot([]) for name in wrong)


class VanishingEnv(LocalEnv):
    """Somebody removes a file just before it is first read."""

    def __init__(self, path: Path) -> None:
        self._left = [path]

    def read_file(self, path: str, *, max_bytes: int) -> bytes:
        if self._left and path == str(self._left[0]):
            self._left.pop().unlink()
        return super().read_file(path, max_bytes=max_bytes)


def test_snapshot_that_is_removed_since_the_listing_is_taken_again(tmp_path: Path) -> None:
    path = two_segments(tmp_path)
    load(path)
    before = {name: content for name, (_, content) in snapshots(path).items()}
    loaded = load(path, env=VanishingEnv(path / f"{20:020d}.snapshot"))
    assert loaded.producer_state.snapshot_offsets == (10, 20)
    assert {name: content for name, (_, content) in snapshots(path).items()} == before


def test_snapshots_that_can_not_be_read_are_not_loaded_from(tmp_path: Path) -> None:
    path = write_partition(tmp_path, [batches(base, 10) for base in (0, 10, 20)])
    for base in (10, 20):
        (path / f"{base:020d}.snapshot").write_bytes(b"wrong")
    loaded = load(path, recovery_point=20)
    assert loaded.producer_state.snapshot_offsets == (10, 20, 30)
    assert all(content == encode_snapshot([]) for _, content in snapshots(path).values())


def test_snapshot_in_a_gap_that_the_log_starts_in_tells_of_no_producers(tmp_path: Path) -> None:
    path = write_partition(tmp_path, [batches(0, 2), batches(10, 2)])
    name = write_snapshot_of(path, 10, ProducerSnapshotEntry(7, 0, 3, 3, 0, 2**42, -1, -1))
    loaded = load(path, log_start_offset=5)
    assert loaded.producer_state.snapshot_entries() == []
    assert snapshots(path)[name][1] == encode_snapshot([])


@pytest.mark.parametrize("size", [2**31 - 1, 2**31])
def test_log_file_beyond_the_reach_of_an_index_is_refused(tmp_path: Path, size: int) -> None:
    path = two_segments(tmp_path)
    os.truncate(log_file(path, 0), size)
    if size < 2**31:
        assert load(path, is_clean=True).log_end_offset == 20
        return
    with pytest.raises(SegmentTooLargeError):
        load(path, is_clean=True)


def write_snapshot_of(path: Path, offset: int, *producers: ProducerSnapshotEntry) -> str:
    """Write a snapshot, and return its name."""
    name = f"{offset:020d}.snapshot"
    (path / name).write_bytes(encode_snapshot(producers))
    return name


@pytest.mark.parametrize(("is_other_open", "stable"), [(False, 6), (True, 3)])
def test_transaction_index_that_is_made_anew_has_first_offset_marker_and_stable_offset(
    tmp_path: Path, is_other_open: bool, stable: int
) -> None:
    """The transaction has three batches, and perhaps another one begins between them."""
    ours = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    log = [batch(n, base_sequence=n, **ours) for n in (1, 2)]
    log += [batch(3, base_sequence=0, producer_id=8, producer_epoch=0, is_transactional=is_other_open)]
    log += [batch(4, base_sequence=3, **ours)]
    log += [write_end_transaction_marker(5, timestamp_ms=0, producer_id=7, producer_epoch=0, commit=False)]
    path = write_partition(tmp_path, [log])
    loaded = load(path)
    (entry,) = ABORTED_TXN.iter_unpack((path / f"{1:020d}.txnindex").read_bytes())
    assert entry == (0, 7, 1, 5, stable)
    assert loaded.log_end_offset == 6


@pytest.mark.parametrize(("last_offset", "is_right"), [(MAX_RELATIVE_OFFSET, True), (MAX_RELATIVE_OFFSET + 1, False)])
def test_segment_that_was_closed_cleanly_ends_at_most_two_to_the_31_above_its_base(
    tmp_path: Path, last_offset: int, is_right: bool
) -> None:
    path = write_partition(tmp_path, [[batch(0)]])
    with log_file(path, 0).open("ab") as log:
        log.write(batch(last_offset))
    loaded = load(path, is_clean=True)
    assert loaded.log_end_offset == last_offset + 1
    # Without a right end the segment is recovered, and split.
    assert [one.base_offset for one in loaded.segments] == ([0] if is_right else [0, last_offset])
    assert loaded.report.rebuilt == () or not is_right


def test_log_that_ends_before_the_durable_point_is_refused(tmp_path: Path) -> None:
    path = two_segments(tmp_path)
    DurablePointFile(str(path)).advance(DurablePoint(21, 10, 0))
    with pytest.raises(CorruptLogError, match="flushed up to offset 21"):
        load(path)


def test_durable_point_is_lowered_before_a_cut_below_it(tmp_path: Path) -> None:
    path = two_segments(tmp_path)
    position = damage_batch(path, base_offset=10, number=2)
    DurablePointFile(str(path)).advance(DurablePoint(20, 10, log_file(path, 10).stat().st_size))
    load(path, mode="point_in_time")
    assert DurablePointFile(str(path)).read() == DurablePoint(12, 10, position)
    assert load(path).log_end_offset == 12


def test_damage_in_an_older_segment_is_left_by_point_in_time_and_skipped_by_salvage(tmp_path: Path) -> None:
    path = two_segments(tmp_path)
    position = damage_batch(path, base_offset=0, number=4)
    content = log_file(path, 0).read_bytes()
    size, lost = len(content), starts_of(content)[5] - position
    loaded = load(path, mode="point_in_time", recovery_point=20)
    assert loaded.log_end_offset == 20
    assert [one.position for one in loaded.report.damage] == [position]
    assert log_file(path, 0).stat().st_size == size
    salvaged = load(path, mode="salvage", recovery_point=20)
    assert salvaged.log_end_offset == 20
    assert salvaged.report.truncated_bytes == lost
    assert log_file(path, 0).stat().st_size == size - lost
    assert load(path, recovery_point=20).report.is_unharmed


@pytest.mark.parametrize(("trusts", "read"), [(False, (0, 10)), (True, (10,))])
def test_segments_below_the_recovery_point_are_left_unread_if_it_is_trusted(
    tmp_path: Path, trusts: bool, read: tuple[int, ...]
) -> None:
    path, env = two_segments(tmp_path), ReadingEnv()
    load(path)
    loaded = load(path, recovery_point=15, trusts_recovery_point=trusts, env=env)
    assert loaded.log_end_offset == 20
    assert {name for name in env.names if name.endswith(".log")} == {log_file(path, base).name for base in read}


def test_damage_in_a_segment_that_was_trusted_is_met_by_its_reader(tmp_path: Path) -> None:
    path = two_segments(tmp_path)
    load(path)
    position = damage_batch(path, base_offset=0, number=4)
    write_offset_checkpoint(tmp_path / RECOVERY_POINT_CHECKPOINT, {path.name: 15})
    with pytest.raises(CorruptLogError) as refused:
        open_log(path, "a", CONFIG)
    with open_log(path, "a", CONFIG, trusts_recovery_point=True) as log:
        assert (log.log_end_offset, log.recovery_report.is_unharmed) == (20, True)
        assert [record.offset for record in log.read(5)] == list(range(5, 20))
        with pytest.raises(CorruptRecordError) as caught:
            list(log.read())
    for error in (refused.value, caught.value):
        assert (error.path, error.position) == (str(log_file(path, 0)), position)


def test_damage_behind_a_recovery_point_that_is_trusted_is_cut_all_the_same(tmp_path: Path) -> None:
    path = two_segments(tmp_path)
    damage_batch(path, base_offset=10, number=2)
    assert load(path, recovery_point=12, trusts_recovery_point=True).log_end_offset == 12
    damage_batch(path, base_offset=10, number=1)
    with pytest.raises(CorruptLogError):
        load(path, recovery_point=12, trusts_recovery_point=True)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_missing_index_below_a_recovery_point_that_is_trusted_is_rebuilt(tmp_path: Path, suffix: str) -> None:
    path = two_segments(tmp_path)
    load(path)
    index = log_file(path, 0).with_suffix(suffix)
    content = index.read_bytes()
    index.unlink()
    loaded = load(path, recovery_point=15, trusts_recovery_point=True)
    assert loaded.report.rebuilt == (index.name,)
    assert index.read_bytes() == content


def test_salvage_that_would_trust_the_recovery_point_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="salvage reads every segment"):
        load(two_segments(tmp_path), mode="salvage", trusts_recovery_point=True)


def test_segments_behind_a_cut_go_to_the_quarantine(tmp_path: Path) -> None:
    path = two_segments(tmp_path)
    damage_batch(path, base_offset=0, number=4)
    loaded = load(path, mode="point_in_time")
    assert loaded.log_end_offset == 4
    assert loaded.report.deleted_segments == (10,)
    assert not log_file(path, 10).exists()
    assert (path / QUARANTINE_DIRECTORY / log_file(path, 10).name).exists()


def test_batch_that_reaches_into_the_next_segment_is_cut_and_the_next_segment_stays(tmp_path: Path) -> None:
    path = two_segments(tmp_path)
    with log_file(path, 0).open("ab") as log:
        log.write(batch(10, 1))
    loaded = load(path, mode="point_in_time")
    assert [(one.base_offset, one.next_offset) for one in loaded.segments] == [(0, 10), (10, 20)]
    assert loaded.report.deleted_segments == ()


def test_segment_with_others_behind_it_is_never_cut_in_place(tmp_path: Path) -> None:
    path = two_segments(tmp_path)
    with log_file(path, 0).open("ab") as log, log_file(path, 10).open("ab") as last:
        log.write(batch(10, 1))
        last.write(bytes(100))
    before = [log_file(path, base).stat().st_ino for base in (0, 10)]
    load(path, mode="point_in_time")
    after = [log_file(path, base).stat().st_ino for base in (0, 10)]
    assert (after[0] != before[0], after[1] == before[1]) == (True, True)


def test_salvage_puts_a_batch_with_an_impossible_offset_behind_the_one_before(tmp_path: Path) -> None:
    whole = batches(0, 5, value_bytes=100)
    path = write_partition(tmp_path, [whole])
    moved = patch_header(whole[2], repair_crc=False, base_offset=0)
    log_file(path, 0).write_bytes(b"".join([*whole[:2], moved, *whole[3:]]))
    loaded = load(path, mode="salvage")
    assert log_file(path, 0).read_bytes() == b"".join(whole)
    assert (loaded.log_end_offset, loaded.report.truncated_bytes) == (5, 0)
    assert len(loaded.report.damage) == 1


def test_offset_beyond_the_reach_of_an_index_begins_a_segment_of_its_own(tmp_path: Path) -> None:
    far = MAX_RELATIVE_OFFSET + 1
    path = write_partition(tmp_path, [batches(0, 3)])
    with log_file(path, 0).open("ab") as log:
        log.write(batch(far, 1))
    loaded = load(path)
    assert [(one.base_offset, one.next_offset) for one in loaded.segments] == [(0, 3), (far, far + 1)]
    assert log_file(path, far).read_bytes() == batch(far, 1)


@pytest.mark.parametrize("dry_run", [True, False])
def test_salvage_takes_out_all_batches_that_run_into_the_next_segment(tmp_path: Path, dry_run: bool) -> None:
    path = two_segments(tmp_path)
    beyond = batches(10, 4)
    with log_file(path, 0).open("ab") as log:
        log.write(b"".join(beyond))
    loaded = load(path, mode="salvage", dry_run=dry_run)
    assert (loaded.log_end_offset, loaded.report.truncated_bytes) == (20, len(b"".join(beyond)))
    assert [one.reason for one in loaded.report.damage] == [
        f"1 offsets from {offset}, expected at most 0 from 10" for offset in range(10, 14)
    ]


def test_salvage_leaves_out_a_batch_that_no_offset_is_left_for(tmp_path: Path) -> None:
    first = 2**63 - 3
    whole, lost = patch_header(batch(0), repair_crc=False, base_offset=first), batch(5, 2)
    path = write_partition(tmp_path, [[whole]])
    with log_file(path, first).open("ab") as log:
        log.write(lost)
    loaded = load(path, mode="salvage")
    assert log_file(path, first).read_bytes() == whole
    assert (loaded.log_end_offset, loaded.report.truncated_bytes) == (first + 1, len(lost))
    assert len(loaded.report.quarantined) == 1


# The record count of an abort marker, under a right CRC, and whether the transaction is still open behind it.
COUNTS = {
    "right": (1, False),
    "too-large": (2, False),
    "largest": (2**31 - 1, False),
    "none": (0, True),
    "-1": (-1, True),
}


@pytest.mark.parametrize("mode", ["strict", "point_in_time", "salvage"])
@pytest.mark.parametrize(("record_count", "is_open"), COUNTS.values(), ids=COUNTS)
def test_wrong_record_count_of_a_control_batch_costs_no_log(
    tmp_path: Path, record_count: int, is_open: bool, mode: RecoveryMode
) -> None:
    begun = batch(0, 3, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    marker = write_end_transaction_marker(3, timestamp_ms=1, producer_id=7, producer_epoch=0, commit=False)
    path = write_partition(tmp_path, [[begun, patch_header(marker, record_count=record_count), *batches(4, 2)]])
    loaded = load(path, mode=mode)
    assert (loaded.log_end_offset, loaded.report.damage) == (6, ())
    assert loaded.producer_state.first_unstable_offset == (0 if is_open else None)


def test_control_batch_that_can_not_be_read_ends_no_transaction(tmp_path: Path) -> None:
    begun = batch(0, 3, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    marker = write_end_transaction_marker(3, timestamp_ms=1, producer_id=7, producer_epoch=0, commit=False)
    compressed = patch_header(marker, attributes=int.from_bytes(marker[21:23], "big") | 3)
    loaded = load(write_partition(tmp_path, [[begun, compressed]]))
    assert (loaded.log_end_offset, loaded.producer_state.first_unstable_offset) == (4, 0)


def test_leader_epochs_are_made_anew_from_the_whole_log_when_their_file_is_empty(tmp_path: Path) -> None:
    path = write_partition(tmp_path, [batches(0, 2, partition_leader_epoch=3), batches(2, 2, partition_leader_epoch=5)])
    (path / LEADER_EPOCH_CHECKPOINT).write_text("")
    loaded = load(path, recovery_point=4)
    assert [tuple(one) for one in loaded.leader_epochs.entries] == [(3, 0), (5, 2)]


def test_leader_epochs_are_made_anew_from_the_whole_log_when_their_file_is_damaged(tmp_path: Path) -> None:
    path = write_partition(tmp_path, [batches(0, 2, partition_leader_epoch=3), batches(2, 2, partition_leader_epoch=5)])
    (path / LEADER_EPOCH_CHECKPOINT).write_text("no checkpoint")
    loaded = load(path, recovery_point=4)
    assert [tuple(one) for one in loaded.leader_epochs.entries] == [(3, 0), (5, 2)]
    assert LEADER_EPOCH_CHECKPOINT in loaded.report.rebuilt


def test_leader_epoch_that_starts_behind_the_log_end_hides_none_of_the_log_s_own(tmp_path: Path) -> None:
    path = write_partition(tmp_path, [batches(0, 2, partition_leader_epoch=3), batches(2, 2, partition_leader_epoch=5)])
    (path / LEADER_EPOCH_CHECKPOINT).write_text("0\n2\n3 0\n9 1000\n")
    for _ in range(2):
        assert [tuple(one) for one in load(path).leader_epochs.entries] == [(3, 0), (5, 2)]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("is_clean", [False, True], ids=["unclean", "clean"])
def test_missing_index_is_rebuilt(tmp_path: Path, suffix: str, is_clean: bool) -> None:
    path = two_segments(tmp_path)
    load(path)
    index = log_file(path, 0).with_suffix(suffix)
    content = index.read_bytes()
    index.unlink()
    loaded = load(path, is_clean=is_clean, recovery_point=20)
    assert loaded.report.rebuilt == (index.name,)
    assert index.read_bytes() == content


def test_bits_flipped_anywhere_in_the_last_segment_never_lose_what_is_before_them(tmp_path: Path) -> None:
    whole = batches(0, 4, value_bytes=30)
    content = b"".join(whole)
    starts = starts_of(content)
    for bit in range(0, len(content) * 8, 97):
        root = tmp_path / str(bit)
        root.mkdir()
        path = write_partition(root, [whole])
        flip_bit(log_file(path, 0), bit // 8, bit=bit % 8)
        loaded = load(path, mode="point_in_time", keeps_copies=False)
        assert loaded.log_end_offset >= sum(start <= bit // 8 for start in starts) - 1


class MeteredEnv(LocalEnv):
    """Counts the bytes that are read of .log files, and the calls that look at names."""

    def __init__(self) -> None:
        self.log_bytes: dict[str, int] = {}
        self.stats = 0

    def open_read(self, path: str) -> LocalFile:
        return _metered(LocalFile, super().open_read(path), self)

    def open_write(self, path: str) -> WriteFile:
        file = super().open_write(path)
        return _metered(WriteFile, file, self, is_new=file.is_new)

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        self.stats += 1
        return super().stat(path, follow_symlinks=follow_symlinks)


def _metered(kind: type[Any], file: LocalFile, env: MeteredEnv, **options: Any) -> Any:
    class Metered(kind):
        def pread(self, size: int, *, position: int) -> bytes:
            data: bytes = super().pread(size, position=position)
            if self.path.endswith(".log"):
                env.log_bytes[self.path] = env.log_bytes.get(self.path, 0) + len(data)
            return data

        def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
            size: int = super().pread_into(buffer, position=position)
            env.log_bytes[self.path] = env.log_bytes.get(self.path, 0) + size
            return size

    return Metered(file._fd, path=file.path, **options)


def test_opening_many_segments_after_a_clean_close_reads_the_end_of_the_last_one_only(tmp_path: Path) -> None:
    count = 500
    path = write_partition(tmp_path, [batches(10 * number, 10, value_bytes=1000) for number in range(count)])
    write_clean_shutdown(str(tmp_path), CleanShutdown(NO_BROKER_EPOCH), LocalEnv())
    open_log(path, "a", CONFIG).close()
    env = MeteredEnv()
    with open_log(path, "a", CONFIG, env=env) as log:
        assert (len(log.segments), log.log_end_offset) == (count, 10 * count)
    last = log_file(path, 10 * (count - 1))
    assert list(env.log_bytes) == [str(last)]
    assert env.log_bytes[str(last)] < last.stat().st_size / 4
    assert env.stats < 4 * count


def last_index_ends_in(path: Path, tail: bytes) -> Path:
    (path / f"{10:020d}.index").write_bytes((path / f"{10:020d}.index").read_bytes() + tail)
    write_clean_shutdown(str(path.parent), CleanShutdown(NO_BROKER_EPOCH))
    return path


@pytest.mark.parametrize("recovery", ["strict", "point_in_time", "salvage"])
@pytest.mark.parametrize("tail", ["ff" * 8, "ff" * 512, "00000060ffffffff", "7fffffff7fffffff", "8000000080000000"])
def test_wrong_last_entry_of_an_index_costs_no_log_that_was_closed(
    tmp_path: Path, recovery: RecoveryMode, tail: str
) -> None:
    path = last_index_ends_in(two_segments(tmp_path), bytes.fromhex(tail))
    with open_log(path, "a", CONFIG, recovery=recovery) as log:
        assert log.log_end_offset == 20
        assert [record.offset for record in log.read()] == list(range(20))


@pytest.mark.parametrize("after_the_last", [0, 1])
def test_time_index_entry_for_an_offset_that_the_log_does_not_have_gives_no_timestamp(
    tmp_path: Path, after_the_last: int
) -> None:
    path = two_segments(tmp_path)
    position = starts_of(log_file(path, 10).read_bytes())[-2]
    last_index_ends_in(path, struct.pack(">ii", 9, position))
    expected = load(path, is_clean=True).segments[-1]
    assert expected.max_timestamp_ms < 2**60
    time_index = path / f"{10:020d}.timeindex"
    entry = (2**60).to_bytes(8, "big") + (10 + after_the_last).to_bytes(4, "big")
    time_index.write_bytes(time_index.read_bytes() + entry)
    loaded = load(path, is_clean=True)
    assert (loaded.log_end_offset, loaded.segments[-1]) == (20, expected)


def test_last_entry_that_points_to_a_batch_inside_of_a_value_does_not_move_the_log_end(tmp_path: Path) -> None:
    inner = batch(500, value_bytes=20)
    outer = packed_entry(inner, None, offset=11, magic=1)
    path = write_partition(tmp_path, [batches(0, 10), [*batches(10, 1)]])
    log_file(path, 10).write_bytes(batch(10) + outer)
    position = log_file(path, 10).stat().st_size - len(inner)
    entry = (490).to_bytes(4, "big") + position.to_bytes(4, "big")
    (path / f"{10:020d}.index").write_bytes(bytes(8) + entry)
    last_index_ends_in(path, b"")
    assert load(path, is_clean=True).log_end_offset == 12


MISPLACED: dict[str, Callable[[Path], object]] = {
    "sparse": lambda path: path.touch() or os.truncate(path, 2**40),
    "fifo": os.mkfifo,
    "directory": lambda path: (path / "inner").mkdir(parents=True),
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path),
    "link to a directory": lambda path: path.symlink_to(path.parent),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", MISPLACED)
@pytest.mark.parametrize(
    "name",
    [f"{10:020d}.index", f"{0:020d}.timeindex", f"{10:020d}.txnindex", f"{10:020d}.snapshot", LEADER_EPOCH_CHECKPOINT],
)
def test_what_is_no_side_file_counts_as_missing_and_is_set_aside(tmp_path: Path, name: str, kind: str) -> None:
    for mode in ("strict", "point_in_time", "salvage"):
        for is_clean in (True, False):
            path = two_segments(tmp_path / f"{mode}-{is_clean}")
            (path / name).unlink(missing_ok=True)
            MISPLACED[kind](path / name)
            with open_log(path) as log:
                assert [record.offset for record in log.read(15)] == list(range(15, 20))
                assert not log.high_watermark
            for keeps_copies in (is_clean, True):
                loaded = load(path, mode=mode, is_clean=is_clean, keeps_copies=keeps_copies)
                assert loaded.log_end_offset == 20
            assert not (path / name).exists() or ((path / name).is_file() and not (path / name).is_symlink())
            kept = path / QUARANTINE_DIRECTORY / name
            assert os.path.lexists(kept) == (is_clean or kind == "directory")


def test_index_larger_than_any_is_refused_by_its_size_and_not_read(tmp_path: Path) -> None:
    env = MeteredEnv()
    path = tmp_path / "large.log"
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(StorageError, match="larger than the limit"):
        env.read_file(str(path), max_bytes=2**20)
    assert not env.log_bytes
