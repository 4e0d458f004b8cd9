"""Goal: mode strict refuses a log of which durable batches are missing, and none that only looks like one.
Method: logs without damage, and beside them one file or offset that speaks of batches that are gone, or does not."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from kstore.config import LogConfig
from kstore.errors import CorruptLogError
from kstore.log.files.names import PartitionDirectory
from kstore.log.recovery.context import LoadedLog
from kstore.log.recovery.load import load_log
from kstore.types import TopicPartition
from tests.making.batches import batch, batches, write_partition

CONFIG = LogConfig(index_interval_bytes=100)
END = 20


def load(path: Path, **options: Any) -> LoadedLog:
    directory = PartitionDirectory(TopicPartition("t", 0), str(path), str(path.parent))
    return load_log(directory, config=CONFIG, **options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Offsets 0 to 9 and 10 to 19, one in each batch."""
    return write_partition(tmp_path, [batches(0, 10, value_bytes=100), batches(10, 10, value_bytes=100)])


def expect_refusal(path: Path, reason: str, *, position: int, offset: int, **options: Any) -> None:
    before = {one.name: one.read_bytes() for one in path.iterdir()}
    with pytest.raises(CorruptLogError) as caught:
        load(path, **options)
    error = caught.value
    assert (error.reason, error.position, error.base_offset) == (reason, position, offset)
    assert {one.name: one.read_bytes() for one in path.iterdir()} == before


@pytest.mark.parametrize(("point", "is_refused"), [(24, False), (25, True), (26, True)])
def test_snapshot_above_the_end_up_to_the_recovery_point_tells_of_missing_batches(
    path: Path, point: int, is_refused: bool
) -> None:
    (path / f"{25:020d}.snapshot").write_bytes(b"")
    if is_refused:
        reason = "batches are missing: there is a producer snapshot of offset 25"
        size = (path / f"{10:020d}.log").stat().st_size
        expect_refusal(path, reason, position=size, offset=END, recovery_point=point)
    else:
        assert load(path, recovery_point=point).log_end_offset == END


@pytest.mark.parametrize("point", range(4, 12))
def test_recovery_point_inside_of_a_gap_of_offsets_is_refused_and_at_its_ends_it_is_not(
    tmp_path: Path, point: int
) -> None:
    before = batch(0, 5)
    path = write_partition(tmp_path, [[before, batch(10, 5)]])
    if 5 < point < 10:
        reason = "offsets jump over the recovery point: expected 5, found 10"
        expect_refusal(path, reason, position=len(before), offset=5, recovery_point=point)
    else:
        assert load(path, recovery_point=point).log_end_offset == 15


def without_last_batch(path: Path) -> int:
    """Take the batch of offset 19 from its log, and the snapshot behind it; return where the batch was."""
    (path / f"{END:020d}.snapshot").unlink()
    log = path / f"{10:020d}.log"
    position = log.stat().st_size - len(batch(19, value_bytes=100))
    log.write_bytes(log.read_bytes()[:position])
    return position


@pytest.mark.parametrize("start", [9, 10])
def test_segment_that_is_missing_below_the_log_start_is_no_loss(tmp_path: Path, start: int) -> None:
    """As a crash leaves it while the segments 0 and 5 are deleted, if only the removal of the second persists."""
    path = write_partition(tmp_path, [batches(0, 5), batches(5, 5), batches(10, 5)])
    (path / f"{5:020d}.snapshot").write_bytes(b"")
    (path / f"{5:020d}.log").unlink()
    if start < 10:
        reason = "segment 5 is missing, but its producer snapshot exists"
        size = (path / f"{0:020d}.log").stat().st_size
        expect_refusal(path, reason, position=size, offset=5, recovery_point=15, log_start_offset=start)
    else:
        assert load(path, recovery_point=15, log_start_offset=start).log_end_offset == 15


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_index_entry_of_a_batch_exactly_behind_the_end_tells_that_it_is_missing(path: Path, suffix: str) -> None:
    load(path)
    position = without_last_batch(path)
    for other in {".index", ".timeindex"} - {suffix}:
        (path / f"{10:020d}{other}").unlink()
    reason = f"batches are missing: the last entry of {10:020d}{suffix} points past the end of the file"
    expect_refusal(path, reason, position=position, offset=19, recovery_point=END)


@pytest.mark.parametrize(("offset", "is_evidence"), [(19, True), (20, False), (10**6, False)])
def test_index_entry_of_an_offset_that_was_not_durable_is_evidence_of_nothing(
    path: Path, offset: int, is_evidence: bool
) -> None:
    load(path)
    position = without_last_batch(path)
    (path / f"{10:020d}.timeindex").unlink()
    (path / f"{10:020d}.index").write_bytes(struct.pack(">ii", offset - 10, position))
    if is_evidence:
        reason = f"batches are missing: the last entry of {10:020d}.index points past the end of the file"
        expect_refusal(path, reason, position=position, offset=19, recovery_point=END)
    else:
        assert load(path, recovery_point=END).log_end_offset == 19
