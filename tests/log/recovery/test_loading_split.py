"""Goal: load_log splits a segment whose index can't reach all of it, and what is damaged there is damaged nowhere else.
Method: a .log whose batches lie further apart than 2^31 is loaded; what becomes of it is told by offsets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstore.config import LogConfig
from kstore.log.files.names import PartitionDirectory
from kstore.log.recovery.context import LoadedLog
from kstore.log.recovery.load import load_log
from kstore.log.recovery.modes import RecoveryMode
from kstore.log.verify import verify
from kstore.record import MemoryRecordsBuilder
from kstore.store.opening import open_log
from kstore.types import TopicPartition
from tests.making.batches import batch, batches, flip_bit, write_partition

FAR = 2**31


def load(path: Path, **options: Any) -> LoadedLog:
    directory = PartitionDirectory(TopicPartition("t", 0), str(path), str(path.parent))
    return load_log(directory, config=LogConfig(), **options)


def overfull(root: Path, segment: list[bytes], *following: list[bytes]) -> Path:
    """A partition of which the first segment has more behind its first batch than its index reaches."""
    path = write_partition(root, [segment[:1], *following])
    with (path / f"{0:020d}.log").open("ab") as log:
        log.write(b"".join(segment[1:]))
    return path


def wrapper(base_offset: int, count: int) -> bytes:
    builder = MemoryRecordsBuilder(base_offset=base_offset, magic=1, compression="gzip")
    for offset in range(base_offset, base_offset + count):
        builder.append(offset=offset, timestamp_ms=offset, key=None, value=b"v")
    return bytes(builder.build())


def bounds(loaded: LoadedLog) -> list[tuple[int, int]]:
    return [(one.base_offset, one.next_offset) for one in loaded.segments]


def test_every_batch_out_of_reach_of_the_one_before_begins_a_segment(tmp_path: Path) -> None:
    bases = [number * FAR for number in range(600)]
    loaded = load(overfull(tmp_path, [batch(base) for base in bases]), dry_run=True)
    assert bounds(loaded) == [(base, base + 1) for base in bases]


@pytest.mark.parametrize("mode", ["strict", "point_in_time", "salvage"])
def test_first_batch_out_of_reach_leaves_its_segment_empty(tmp_path: Path, mode: RecoveryMode) -> None:
    far = batches(FAR, 2)
    path = overfull(tmp_path, [batch(0)], [batch(2 * FAR)])
    (path / f"{0:020d}.log").write_bytes(b"".join(far))
    loaded = load(path, mode=mode)
    assert bounds(loaded) == [(0, 0), (FAR, FAR + 2), (2 * FAR, 2 * FAR + 1)]
    assert (path / f"{FAR:020d}.log").read_bytes() == b"".join(far)
    assert loaded.report.is_unharmed


@pytest.mark.parametrize("mode", ["strict", "point_in_time", "salvage"])
@pytest.mark.parametrize("ahead", [100, 2 * FAR], ids=["near", "out-of-reach"])
def test_what_is_split_off_ends_before_the_next_segment(tmp_path: Path, ahead: int, mode: RecoveryMode) -> None:
    following = batches(FAR + 50, 3)
    path = overfull(tmp_path, [batch(0), batch(FAR), batch(FAR + ahead)], following)
    loaded = load(path, mode=mode)
    assert bounds(loaded)[-1] == (FAR + 50, FAR + 53)
    assert (path / f"{FAR + 50:020d}.log").read_bytes() == b"".join(following)
    with open_log(path) as log:
        assert list(verify(log)) == []


def test_wrapper_out_of_reach_begins_a_segment_at_its_first_record(tmp_path: Path) -> None:
    path = overfull(tmp_path, [batch(0), wrapper(FAR, 3), wrapper(2 * FAR, 3)])
    assert bounds(load(path)) == [(0, 1), (FAR, FAR + 3), (2 * FAR, 2 * FAR + 3)]
    with open_log(path) as log:
        assert list(verify(log)) == []


def test_zeros_behind_what_is_split_off_are_no_loss_where_no_record_can_have_been(tmp_path: Path) -> None:
    path = overfull(tmp_path, [batch(0), batch(FAR), bytes(500)], [batch(FAR + 1)])
    loaded = load(path)
    assert bounds(loaded) == [(0, 1), (FAR, FAR + 1), (FAR + 1, FAR + 2)]
    assert loaded.report.damage == ()


def test_salvage_keeps_what_is_whole_behind_damage_in_what_is_split_off(tmp_path: Path) -> None:
    path = overfull(tmp_path, [batch(0), *batches(FAR, 3)], batches(2 * FAR, 2))
    flip_bit(path / f"{0:020d}.log", len(batch(0)) + len(batch(FAR)) + 65, bit=0)
    expected = [(0, 1), (FAR, FAR + 3), (2 * FAR, 2 * FAR + 2)]
    assert load(path, mode="salvage", dry_run=True).log_end_offset == expected[-1][1]
    loaded = load(path, mode="salvage")
    assert bounds(loaded) == expected
    assert (loaded.report.truncated_bytes, loaded.report.deleted_segments) == (len(batch(FAR + 1)), ())
