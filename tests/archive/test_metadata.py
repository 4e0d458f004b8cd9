"""Goal: what an export says of its rows is what the source says of the same rows: checkpoints, leader epochs, ids,
producers, and the timestamps in the manifest, also after a second run. Method: small roots, compared file by file."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from kstore.archive import export
from kstore.archive.options import Format
from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV
from kstore.log.files.checkpoints import (
    EpochEntry,
    read_checkpoint,
    read_leader_epoch_checkpoint,
    save_offset,
    write_leader_epoch_checkpoint,
)
from kstore.log.files.root_files import read_partition_metadata
from kstore.log.files.snapshots import read_snapshot
from kstore.record import Record
from kstore.record.builder import with_records
from kstore.store.opening import open_log
from kstore.store.store import open_store
from kstore.types import NO_TIMESTAMP, TopicPartition
from tests.making.exporting import checked_manifest, table_of

PLACE = TopicPartition("t", 0)
# Neither rises with the offsets; zero and records without a time are among them.
TIMES_MS = (700, 0, NO_TIMESTAMP, 900, 30, 899, NO_TIMESTAMP, 5)
HIGH_WATERMARK, LOG_START, RECOVERY_POINT = (
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
)


def time_of(offset: int, times: str) -> int:
    """Return the time of a record; those that spread are, of later ones, both earlier and later."""
    if times == "spreading":
        return 10_000 + (offset if offset % 2 else -offset)
    return 0 if times == "zero" else TIMES_MS[(offset // 4 + offset) % len(TIMES_MS)]


def put(root: Path, batch_count: int, *, leader_epoch: int, magic: int = 2, times: str = "mixed") -> None:
    """Append batches of a producer with id 0, four records each, in one leader epoch."""
    with open_store(root, "a", LogConfig(segment_bytes=700)) as store:
        if "t" not in store.topics:
            store.create_topic("t")
        log = store.log("t")
        for _ in range(batch_count):
            base = log.log_end_offset
            records = [
                Record(offset=0, timestamp_ms=time_of(offset, times), value=b"%d" % offset)
                for offset in range(base, base + 4)
            ]
            if magic == 2:
                batch = with_records(records, producer_id=0, producer_epoch=0, base_sequence=base)
            else:
                batch = with_records(records, magic=magic)
            log.append(batch, partition_leader_epoch=leader_epoch)


def offset_in(root: Path, checkpoint: str) -> int | None:
    return read_checkpoint(str(root), checkpoint, DEFAULT_ENV).get(PLACE)


def epochs_in(root: Path) -> list[tuple[int, int]]:
    return [tuple(one) for one in read_leader_epoch_checkpoint(str(root / "t-0" / "leader-epoch-checkpoint")) or ()]


def snapshots_in(root: Path) -> dict[str, object]:
    return {path.name: read_snapshot(str(path)) for path in (root / "t-0").glob("*.snapshot")}


def check_metadata(source: Path, target: Path, *, end: int, high_watermark: int) -> None:
    """Hold the files beside the segments of a target to those of its source."""
    start = offset_in(source, LOG_START) or 0
    assert (offset_in(target, LOG_START) or 0) == start
    assert offset_in(target, RECOVERY_POINT) == end
    assert offset_in(target, HIGH_WATERMARK) == high_watermark
    assert epochs_in(target) == [one for one in epochs_in(source) if one[1] <= end]
    topic_id = read_partition_metadata(str(source / "t-0"))
    assert topic_id is not None
    assert read_partition_metadata(str(target / "t-0")) == topic_id
    manifest = checked_manifest(target)
    (exported,) = manifest.partitions
    assert (exported.start_offset, exported.end_offset) == (start, end)
    of_source, of_target = snapshots_in(source), snapshots_in(target)
    assert f"{end:020d}.snapshot" in of_target
    assert {name: of_source.get(name) for name in of_target if name in of_source} == {
        name: content for name, content in of_target.items() if name in of_source
    }
    with open_log(source / "t-0") as log, open_log(target / "t-0") as copy:
        assert (copy.log_start_offset, copy.log_end_offset) == (start, end)
        for file in manifest.files:
            headers = [batch.header for batch in log.batches(max(start, file.first_offset), file.last_offset + 1)]
            greatest = max((one.max_timestamp_ms for one in headers), default=NO_TIMESTAMP)
            assert file.max_timestamp_ms == (None if greatest == NO_TIMESTAMP else greatest)
            assert file.min_timestamp_ms is None


@pytest.mark.parametrize("first_end", [4, 20, None])
def test_files_beside_exported_segments_say_what_those_of_the_source_say(tmp_path: Path, first_end: int | None) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    put(source, 4, leader_epoch=0)
    put(source, 4, leader_epoch=3)
    if first_end is not None:
        export(source, tmp_path / "part", "kstore", end_offset=first_end)
        check_metadata(source, tmp_path / "part", end=first_end, high_watermark=first_end)
    export(source, target, "kstore")
    check_metadata(source, target, end=32, high_watermark=32)
    put(source, 3, leader_epoch=7)
    export(source, target, "kstore")
    check_metadata(source, target, end=44, high_watermark=44)


@pytest.mark.parametrize(
    ("of_source", "of_target"), [(0, 8), (12, 12), (32, 32), (99, 32)], ids=["zero", "below", "end", "above"]
)
def test_high_watermark_of_an_export_is_that_of_the_source_within_its_own_offsets(
    tmp_path: Path, of_source: int, of_target: int
) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    put(source, 8, leader_epoch=0)
    with open_store(source, "a") as store:
        store.log("t").delete_records(8)
    save_offset(str(source), HIGH_WATERMARK, PLACE, of_source, DEFAULT_ENV)
    export(source, target, "kstore")
    check_metadata(source, target, end=32, high_watermark=of_target)
    put(source, 2, leader_epoch=1)
    save_offset(str(source), HIGH_WATERMARK, PLACE, 36, DEFAULT_ENV)
    export(source, target, "kstore")
    check_metadata(source, target, end=40, high_watermark=36)


def test_an_epoch_that_begins_above_the_end_of_an_export_is_none_of_it(tmp_path: Path) -> None:
    source = tmp_path / "source"
    put(source, 8, leader_epoch=0)
    checkpoint = str(source / "t-0" / "leader-epoch-checkpoint")
    write_leader_epoch_checkpoint(checkpoint, [EpochEntry(*one) for one in ((0, 0), (2, 8), (3, 9), (5, 32))])
    for end, expected in ((8, [(0, 0), (2, 8)]), (12, [(0, 0), (2, 8), (3, 9)]), (32, epochs_in(source))):
        target = tmp_path / str(end)
        export(source, target, "kstore", end_offset=end)
        assert epochs_in(target) == expected
        check_metadata(source, target, end=end, high_watermark=end)


@pytest.mark.parametrize("times", ["mixed", "spreading", "zero"])
@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("format", ["parquet", "arrow", "kstore"])
def test_timestamps_in_the_manifest_are_those_of_the_rows(
    tmp_path: Path, format: Format, magic: int, times: str
) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    # The second file is the larger one, so that they are joined by the third run.
    for count in (3, 9, 2):
        put(source, count, leader_epoch=0, magic=magic, times=times)
        export(source, target, format)
        with open_log(source / "t-0") as log:
            records = {record.offset: record.timestamp_ms for record in log.read()}
        manifest = checked_manifest(target)
        assert sum(file.record_count for file in manifest.files) == len(records)
        for file in manifest.files:
            offsets = range(file.first_offset, file.last_offset + 1)
            if format != "kstore":
                offsets = table_of(target / file.path).column("offset").to_pylist()
            known = [records[offset] for offset in offsets if records[offset] != NO_TIMESTAMP]
            least = min(known, default=None) if format != "kstore" else None
            assert (file.min_timestamp_ms, file.max_timestamp_ms) == (least, max(known, default=None))


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_offsets_in_the_manifest_of_rows_are_those_of_the_log(tmp_path: Path, format: Format) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    put(source, 8, leader_epoch=0)
    with open_store(source, "a") as store:
        store.log("t").delete_records(6)
        topic_id = store.topic_id("t")
    for count in (0, 3):
        put(source, count, leader_epoch=3)
        export(source, target, format)
        (exported,) = checked_manifest(target).partitions
        with open_log(source / "t-0") as log:
            assert (
                (exported.start_offset, exported.end_offset)
                == (log.log_start_offset, log.log_end_offset)
                == (
                    6,
                    32 + 4 * count,
                )
            )
            (last,) = [batch.header for batch in log.batches(log.log_end_offset - 1)]
        assert exported.topic_id is not None
        assert topic_id is not None
        assert exported.last_batch is not None
        assert (exported.last_batch["last_offset"], exported.last_batch["crc"]) == (last.last_offset, last.crc)
        rows = [table_of(target / file.path).column("offset") for file in checked_manifest(target).files]
        assert min(pc.min(one).as_py() for one in rows) == 6
