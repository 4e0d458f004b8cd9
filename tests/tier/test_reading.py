"""Goal: a root and its tier are one log, a tier alone is one too, and what cannot be had is an error that says what.
Method: small logs whose segments are partly local and partly uploaded by this test's own writer, with and without
events of the metadata topic."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kstore
from kstore import (
    CorruptRecordError,
    LogConfig,
    LogNotFoundError,
    RemoteSegmentError,
    StorageError,
    TierKeyError,
    open_log,
    open_store,
    scan,
)
from kstore.arrow import record_batches
from kstore.env import DEFAULT_ENV
from kstore.log import plan
from kstore.log.plan import RangeSizes, ScanRange, started_ranges
from kstore.tier import objects
from kstore.tier.files import TierFiles
from kstore.tier.keys import KeyRing
from kstore.tier.manifest import parse_manifest
from kstore.tier.objects import ChunkedFile
from kstore.tier.opening import open_tier
from tests.fakes.counting import CountingEnv
from tests.making.batches import (
    batch,
    batches,
    flip_bit,
    write_offset_checkpoint,
    write_partition,
    write_root,
)
from tests.making.tiers import (
    DELETED,
    DELETING,
    FINISHED,
    OTHER_TOPIC_ID,
    STARTED,
    Tier,
    Uploaded,
    key,
    text_of,
    write_epochs,
    write_events,
)
from tests.reference.codec import write_end_transaction_marker

SEGMENTS = [batches(start, 5, records_per_batch=2, value_bytes=60) for start in range(0, 50, 10)]


class Joined:
    """A root with a log of five segments of ten offsets, of which the first are in a tier and only the last are local.

    events: noted for the metadata topic, written by write().
    """

    def __init__(self, path: Path, *, has_events: bool, **options: Any) -> None:
        self.root = path / "root"
        self.tier = Tier(path=path / "tier", **options)
        self.has_events = has_events
        self.events: list[bytes] = []
        self.made: list[Uploaded] = []

    def upload(self, segment: Sequence[bytes], *, epochs: Any = ((0, 0),), is_finished: bool = True) -> Uploaded:
        made = self.tier.upload(segment, epochs, is_finished=is_finished)
        self.note(made, *((STARTED, FINISHED) if is_finished else (STARTED,)))
        self.made.append(made)
        return made

    def note(self, made: Uploaded, *states: int) -> None:
        self.events += [self.tier.event(made, state) for state in states]

    def write(self, local: Sequence[Sequence[bytes]], *, epochs: Any = ((0, 0),), start: int | None = None) -> None:
        write_root(self.root, {"t-0": local}, log_start_offsets=None if start is None else {"t-0": start})
        write_epochs(self.root / "t-0", epochs)
        if self.has_events:
            write_events(self.root, self.events)

    def open(self, **options: Any) -> kstore.Log:
        return open_log(self.root / "t-0", tier=self.tier.path, **options)

    def offsets(self, **options: Any) -> list[int]:
        with self.open() as log:
            return [record.offset for record in log.read(**options)]


@pytest.fixture(params=[True, False], ids=["events", "objects alone"])
def joined(request: pytest.FixtureRequest, tmp_path: Path) -> Joined:
    return Joined(tmp_path, has_events=request.param)


def joined_log(joined: Joined, *, uploaded: int = 3, local_from: int = 3) -> None:
    for segment in SEGMENTS[:uploaded]:
        joined.upload(segment)
    joined.write(SEGMENTS[local_from:], start=0)


def test_what_is_in_the_tier_and_what_is_local_is_one_log(joined: Joined) -> None:
    joined_log(joined)
    assert joined.offsets() == list(range(50))
    with joined.open() as log, open_log(joined.root / "t-0") as local:
        assert (log.log_start_offset, log.log_end_offset) == (0, 50)
        assert local.log_start_offset == 30
        assert [record.value for record in log.read(30)] == [record.value for record in local]
        assert [segment.base_offset for segment in log.segments] == [0, 10, 20, 30, 40]


def test_segments_that_are_both_in_the_tier_and_local_are_read_from_the_disk(joined: Joined) -> None:
    joined_log(joined, uploaded=5, local_from=2)
    for made in joined.made[2:]:
        made.path(".log").write_bytes(b"")
    assert joined.offsets() == list(range(50))


def test_uploads_that_never_finished_are_left_out(joined: Joined) -> None:
    joined.upload(SEGMENTS[0], is_finished=False)
    joined_log(joined)
    joined.upload(SEGMENTS[3], is_finished=False)
    assert joined.offsets() == list(range(50))


def test_segments_whose_deletion_has_begun_are_left_out(tmp_path: Path) -> None:
    joined = Joined(tmp_path, has_events=True)
    made = joined.upload(SEGMENTS[0])
    joined.note(made, DELETING)
    gone = joined.upload(SEGMENTS[1])
    joined.note(gone, DELETING, DELETED)
    joined.upload(SEGMENTS[2])
    joined.write(SEGMENTS[3:])
    assert joined.offsets() == list(range(20, 50))


def test_a_topic_that_was_created_again_has_nothing_of_the_old_one(joined: Joined) -> None:
    old = Tier(path=joined.tier.path, topic_id=OTHER_TOPIC_ID)
    for segment in SEGMENTS:
        made = old.upload([batch(0, 1, value_bytes=9)] if segment is SEGMENTS[0] else segment)
        joined.events += [old.event(made, STARTED), old.event(made, FINISHED)]
    joined_log(joined)
    assert joined.offsets() == list(range(50))
    assert joined.offsets() == [record.offset for record in open_log(joined.root / "t-0", tier=joined.tier.path)]


def test_a_tier_alone_reads_the_topic_of_a_name_that_has_the_newest_object(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = Tier(path=tmp_path / "tier", topic_id=OTHER_TOPIC_ID), Tier(path=tmp_path / "tier")
    old.upload(SEGMENTS[0])
    new.upload([batch(0, 1)])
    for tier, time_s in ((old, 1_000), (new, 2_000)):
        for path in tier.directory.iterdir():
            os.utime(path, (time_s, time_s))
    with caplog.at_level(logging.WARNING, "kstore.log"), open_store(tmp_path / "tier", tier=tmp_path / "tier") as store:
        assert [record.offset for record in store.log("t")] == [0]
    assert "several topics of this name" in caplog.text
    assert OTHER_TOPIC_ID in caplog.text


def test_the_log_start_may_lie_inside_of_a_remote_segment(joined: Joined) -> None:
    for segment in SEGMENTS[:3]:
        joined.upload(segment)
    joined.write(SEGMENTS[3:], start=15)
    assert joined.offsets() == list(range(15, 50))


def test_the_first_epoch_is_the_log_start_where_that_is_higher(joined: Joined) -> None:
    """A broker that was killed after DeleteRecords had not written its checkpoint, but its epochs."""
    for segment in SEGMENTS[:3]:
        joined.upload(segment)
    joined.write(SEGMENTS[3:], epochs=((0, 14),), start=10)
    with joined.open() as log:
        assert log.log_start_offset == 14
        assert [record.offset for record in log] == list(range(14, 50))
        assert scan(joined.root, topics="t", tier=joined.tier.path).to_table().num_rows == 36


def with_epoch(segment: Sequence[int], epoch: int, *, value: bytes = b"") -> list[bytes]:
    return [batch(start, 2, value_bytes=60, partition_leader_epoch=epoch) for start in segment]


def test_of_two_finished_segments_of_one_start_offset_that_of_the_lineage_is_read(joined: Joined) -> None:
    """After an unclean election, both are finished, and the one that was abandoned is never deleted."""
    joined.upload(SEGMENTS[0])
    abandoned = [*SEGMENTS[1][:3], *with_epoch((16, 18, 20, 22), 1)]
    right = [*SEGMENTS[1][:3], *with_epoch((16, 18), 2)]
    joined.upload(abandoned, epochs=((0, 0), (1, 16)))
    joined.upload(right, epochs=((0, 0), (2, 16)))
    joined.write([with_epoch((20, 22), 2), with_epoch((24,), 2)], epochs=((0, 0), (2, 16)), start=0)
    with joined.open() as log:
        epochs = [found.partition_leader_epoch for found in log.batches()]
        assert [record.offset for record in log] == list(range(26))
    assert epochs == [0] * 8 + [2] * 5


def test_a_segment_is_cut_where_its_epochs_leave_the_lineage(joined: Joined) -> None:
    joined.upload(SEGMENTS[0])
    joined.upload([*SEGMENTS[1][:3], *with_epoch((16, 18, 20, 22), 1)], epochs=((0, 0), (1, 16)))
    joined.write([with_epoch((16, 18), 2), with_epoch((20,), 2)], epochs=((0, 0), (2, 16)), start=0)
    with joined.open() as log:
        assert [segment.base_offset for segment in log.segments] == [0, 10, 16, 20]
        assert log.segments[1].size_in_bytes == sum(map(len, SEGMENTS[1][:3]))
        assert log.segments[1].offset_index is None
        assert [record.offset for record in log] == list(range(22))


def test_a_remote_segment_is_cut_where_the_local_log_starts(joined: Joined) -> None:
    """Another leader rolled it elsewhere."""
    for segment in SEGMENTS[:3]:
        joined.upload(segment)
    joined.write([SEGMENTS[2][2:], *SEGMENTS[3:]], start=0)
    with joined.open() as log:
        assert [segment.base_offset for segment in log.segments] == [0, 10, 20, 24, 30, 40]
        assert [record.offset for record in log] == list(range(50))
        assert log.segments[2].size_in_bytes == sum(map(len, SEGMENTS[2][:2]))


def test_a_segment_that_another_one_overlaps_is_cut_in_front_only_where_it_must_be(joined: Joined) -> None:
    """The epoch of the later one's first offsets is not that of the lineage."""
    joined.upload([*SEGMENTS[0], *SEGMENTS[1][:2]], epochs=((0, 0),))
    later = [*with_epoch((10, 12), 1), *with_epoch((14, 16, 18), 3)]
    joined.upload(later, epochs=((0, 0), (1, 10), (3, 14)))
    joined.write([with_epoch((20,), 3)], epochs=((0, 0), (3, 14)), start=0)
    with joined.open() as log:
        assert [segment.base_offset for segment in log.segments] == [0, 14, 20]
        assert [record.offset for record in log] == list(range(22))
        assert [found.partition_leader_epoch for found in log.batches()] == [0] * 7 + [3] * 4


def test_records_that_no_segment_has_are_an_error_where_they_are_read(joined: Joined) -> None:
    for segment in (SEGMENTS[0], SEGMENTS[2]):
        joined.upload(segment)
    joined.write(SEGMENTS[3:], start=0)
    with joined.open() as log:
        read = log.read()
        assert [next(read).offset for _ in range(10)] == list(range(10))
        with pytest.raises(RemoteSegmentError, match=r"records \[10, 19\]") as caught:
            next(read)
        assert (caught.value.first_offset, caught.value.last_offset) == (10, 19)
        assert [record.offset for record in log.read(20)] == list(range(20, 50))
        skipped: list[Any] = []
        records = log.read(on_error="skip", on_skip=skipped.append)
        assert [record.offset for record in records] == [*range(10), *range(20, 50)]
        assert [(one.first_missing_offset, one.last_missing_offset) for one in skipped] == [(10, 19)]
    with pytest.raises(RemoteSegmentError, match=r"records \[10, 19\]"):
        scan(joined.root, topics="t", tier=joined.tier.path).to_table()
    assert scan(joined.root, topics="t", tier=joined.tier.path, on_error="skip").to_table().num_rows == 40


@pytest.mark.parametrize("suffix", [".log", ".rsm-manifest"])
def test_a_finished_segment_whose_objects_are_gone_is_an_error_where_it_is_read(suffix: str, tmp_path: Path) -> None:
    joined = Joined(tmp_path, has_events=True)
    joined_log(joined)
    joined.made[1].path(suffix).unlink()
    with joined.open() as log:
        assert [record.offset for record in log.read(20)] == list(range(20, 50))
        with pytest.raises(RemoteSegmentError, match="objects are not in the tier"):
            list(log.read(0))
        assert len(list(log.read(on_error="skip"))) == 40


def test_a_segment_that_was_written_as_an_iceberg_table_is_named_so(tmp_path: Path) -> None:
    joined = Joined(tmp_path, has_events=True)
    joined_log(joined)
    made = joined.made[1]
    for suffix in (".log", ".indexes", ".rsm-manifest"):
        made.path(suffix).unlink()
    table = joined.tier.path / "warehouse" / "metadata"
    table.mkdir(parents=True)
    (table / f"{made.segment_id}.puffin").touch()
    with joined.open() as log, pytest.raises(RemoteSegmentError, match="Iceberg"):
        list(log)


FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "compressed": {"is_compressed": True},
    "both": {"is_compressed": True, "key": key()},
}


@pytest.mark.parametrize("form", ["compressed", "both"])
@pytest.mark.parametrize("has_events", [True, False])
def test_damage_of_a_chunk_loses_only_the_batches_that_touch_it(form: str, tmp_path: Path, has_events: bool) -> None:
    joined = Joined(tmp_path, has_events=has_events, chunk_bytes=250, **FORMS[form])
    keys = {"key1": key().write(tmp_path)}
    joined_log(joined)
    sizes = [len(one) for one in SEGMENTS[1]]
    made = joined.made[1]
    stored = made.path(".log").read_bytes()
    # The second batch has the last bytes of the first chunk.
    assert sizes[0] < 250 < sizes[0] + sizes[1]
    made.path(".log").write_bytes(b"\0\0\0\0" + stored[4:])
    lost = list(range(10, 14))
    with joined.open(tier_keys=keys) as log:
        with pytest.raises(CorruptRecordError, match="chunk 0") as caught:
            list(log)
        assert caught.value.position == 0
        assert caught.value.path == log.segments[1].path
        skipped: list[Any] = []
        records = log.read(on_error="skip", on_skip=skipped.append)
        assert [record.offset for record in records] == [offset for offset in range(50) if offset not in lost]
        assert [(one.first_missing_offset, one.last_missing_offset) for one in skipped] == [(10, 13)]
    options: dict[str, Any] = {"topics": "t", "tier": joined.tier.path, "tier_keys": keys}
    with pytest.raises(CorruptRecordError, match="chunk 0"):
        scan(joined.root, **options).to_table()
    assert scan(joined.root, on_error="skip", **options).to_table().num_rows == 46


def test_damage_at_the_end_of_a_tier_alone_is_not_the_end_of_its_log(tmp_path: Path) -> None:
    joined = Joined(tmp_path, has_events=False, is_compressed=True)
    joined_log(joined)
    made = joined.made[2]
    made.path(".log").write_bytes(made.path(".log").read_bytes()[:-5])
    with open_store(joined.tier.path, tier=joined.tier.path) as store:
        log = store.log("t")
        with pytest.raises(CorruptRecordError, match="damage"):
            list(log)
        assert list(log.read(on_error="skip"))[-1].offset < 29


@pytest.mark.parametrize("damage", ["gone", "chunk"])
def test_committed_records_that_cannot_be_had_are_the_same_error_as_others(damage: str, tmp_path: Path) -> None:
    """The walk for transactions meets them first."""
    joined = Joined(tmp_path, has_events=True, is_compressed=True)
    joined_log(joined)
    path = joined.made[1].path(".log")
    path.unlink() if damage == "gone" else path.write_bytes(bytes(path.stat().st_size))
    with joined.open() as log:
        for isolation in ("read_uncommitted", "read_committed"):
            with pytest.raises(RemoteSegmentError if damage == "gone" else CorruptRecordError) as caught:
                list(log.read(10, isolation=isolation))
            reason = "objects are not in the tier" if damage == "gone" else "chunk 0"
            assert reason in str(caught.value)


def test_a_lookup_takes_a_manifest_the_indexes_and_one_chunk(tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", is_compressed=True, key=key(), chunk_bytes=256 * 1024)
    segment = batches(0, 250, records_per_batch=2, value_bytes=2500)
    made = tier.upload(segment)
    write_root(tmp_path / "root", {"t-0": [batches(500, 1)]}, log_start_offsets={"t-0": 0})
    write_epochs(tmp_path / "root" / "t-0", ((0, 0),))
    write_events(tmp_path / "root", [tier.event(made, STARTED), tier.event(made, FINISHED)])
    keys = KeyRing.of({"key1": key().write(tmp_path)})
    chunks = parse_manifest(made.path(".rsm-manifest").read_bytes(), path="").chunks
    largest = max(chunks.chunk(number).stored_bytes for number in range(len(chunks)))
    whole = 0
    starts = list(accumulate(map(len, segment), initial=0))
    # The offset index leads to the batch before.
    for number, (before, end) in list(enumerate(zip([0, *starts], starts[1:], strict=False)))[::7]:
        remote = CountingEnv()
        files = TierFiles(
            DEFAULT_ENV, remote, tier=str(tier.path), roots=[str(tmp_path / "root")], keys=keys, config=LogConfig()
        )
        with open_log(tmp_path / "root" / "t-0", env=files.env) as log:
            assert log.get(2 * number) is not None
        assert remote.read_names.count(made.path(".rsm-manifest").name) == 1
        opened = Counter(Path(file.path).suffix for file in remote.opened)
        assert opened[".log"] == 1
        assert opened[".indexes"] <= 1
        if before // tier.chunk_bytes == (end - 1) // tier.chunk_bytes:
            whole += 1
            assert 0 < remote.log_bytes <= largest
    assert whole > 20


def test_the_first_range_takes_no_chunk_of_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    decode = ChunkedFile._decoded

    def noted(file: ChunkedFile, block: Any) -> memoryview:
        decoded.append(block.chunk.number)
        return decode(file, block)

    monkeypatch.setattr(ChunkedFile, "_decoded", noted)
    tier = Tier(path=tmp_path / "tier", is_compressed=True, key=key(), chunk_bytes=256 * 1024)
    tier.upload(batches(0, 250, records_per_batch=2, value_bytes=2500))
    with open_log(tier.path / "t-0", tier=tier.path, tier_keys={"key1": key().write(tmp_path)}) as log:
        reads, isolation = log._reads("raise"), "read_uncommitted"
        bounds = reads.scan_bounds(None, None, isolation=isolation)
        first = next(reads.scan_ranges(bounds, sizes=RangeSizes(512 * 1024), isolation=isolation))
    assert first.size_in_bytes > 400 * 1024
    assert 0 < max(decoded) <= 2


def counted_log(tmp_path: Path, remote: CountingEnv) -> tuple[kstore.Log, Uploaded]:
    """Return a log with 500 records of 2500 bytes in a tier, in chunks of 256 KiB, and one on the disk."""
    tier = Tier(path=tmp_path / "tier", is_compressed=True, key=key(), chunk_bytes=256 * 1024)
    made = tier.upload(batches(0, 250, records_per_batch=2, value_bytes=2500))
    write_root(tmp_path / "root", {"t-0": [batches(500, 1)]}, log_start_offsets={"t-0": 0})
    write_epochs(tmp_path / "root" / "t-0", ((0, 0),))
    write_events(tmp_path / "root", [tier.event(made, STARTED), tier.event(made, FINISHED)])
    keys = KeyRing.of({"key1": key().write(tmp_path)})
    roots = [str(tmp_path / "root")]
    files = TierFiles(DEFAULT_ENV, remote, tier=str(tier.path), roots=roots, keys=keys, config=LogConfig())
    return open_log(tmp_path / "root" / "t-0", env=files.env), made


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_chunks_are_decoded_once_however_many_threads_read_them(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that begin in one chunk and end in another are read whole; the chunks are read without a copy."""
    monkeypatch.setattr(objects, "_LEAST_PART_BYTES", 1)
    monkeypatch.setattr(plan, "THREAD_RANGE_BYTES", 512 * 1024)
    remote = CountingEnv()
    opened, segment = counted_log(tmp_path, remote)
    with opened as log:
        read = pa.Table.from_batches(log.to_arrow_batches(columns=["offset", "value"], threads=threads))
        again = remote.log_bytes - segment.path(".log").stat().st_size
        records = list(log.read())
    # The first chunk is decoded again if the thread that has it ready is later than the reader.
    first = parse_manifest(segment.path(".rsm-manifest").read_bytes(), path="").chunks.chunk(0)
    assert again in ((0,) if threads == 1 else (0, first.stored_bytes))
    assert read["offset"].to_pylist() == [record.offset for record in records] == list(range(501))
    assert read["value"].to_pylist() == [record.value for record in records]


def test_the_first_chunk_is_decoded_beside_the_plan_of_the_first_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = CountingEnv()
    opened, _ = counted_log(tmp_path, remote)
    with opened as log:

        def started(start: int, *, max_bytes: int) -> list[ScanRange]:
            return list(log._reads("raise")._by(started_ranges, start_offset=start, max_bytes=max_bytes))

        assert started(0, max_bytes=512 * 1024) == []
        monkeypatch.setattr(objects, "_LEAST_PART_BYTES", 1)
        assert started(1, max_bytes=512 * 1024) == []
        assert started(0, max_bytes=2 << 20) == started(10_000, max_bytes=1) == []
        (first,) = started(0, max_bytes=512 * 1024)
        assert first.size_in_bytes == 0
        before = remote.log_bytes
        assert list(record_batches([first], env=log._env)) == []
        assert 0 < remote.log_bytes - before < 256 * 1024
        given: list[ScanRange] = []

        def noted(ranges: Iterator[ScanRange]) -> Iterator[None]:
            given.extend(ranges)
            yield from ()

        for on_error, count in (("raise", 1), ("skip", 0)):
            given.clear()
            reads = log._reads(on_error)
            list(reads.scanned(None, None, noted, isolation="read_uncommitted", sizes=RangeSizes(512 * 1024)))
            assert [one.size_in_bytes for one in given].count(0) == count
            assert sum(one.size_in_bytes for one in given) > 1 << 20


def test_a_tier_alone_is_a_root(joined: Joined) -> None:
    joined_log(joined)
    with open_store(joined.tier.path, tier=joined.tier.path) as store:
        assert [str(partition) for partition in store.partitions] == ["t-0"]
        assert [record.offset for record in store.log("t")] == list(range(30))
        assert store.topic_id("t") is not None
    with open_log(joined.tier.path / "t-0", tier=joined.tier.path) as log:
        assert len(list(log)) == 30
    assert scan(joined.tier.path, tier=joined.tier.path).to_table().num_rows == 30


def test_a_tier_alone_starts_where_the_log_did_when_its_head_was_uploaded(tmp_path: Path) -> None:
    tier = Tier(path=tmp_path / "tier", layout="local")
    tier.upload(SEGMENTS[0], ((0, 0),))
    tier.upload(SEGMENTS[1], ((0, 4),))
    with open_store(tier.path, tier=tier.path) as store:
        assert [record.offset for record in store.log("t")] == list(range(4, 20))


def test_a_tier_alone_takes_the_lineage_of_the_next_best_segment_where_that_of_its_head_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tier = Tier(path=tmp_path / "tier")
    tier.upload(SEGMENTS[0], ((0, 0),))
    head = tier.upload(with_epoch((10, 12), 4), ((0, 0), (4, 10)))
    fields = json.loads(head.path(".rsm-manifest").read_text())
    place = fields["segmentIndexes"]["leaderEpoch"]
    flip_bit(head.path(".indexes"), place["position"], bit=6)
    with caplog.at_level(logging.WARNING, "kstore.log"), open_store(tier.path, tier=tier.path) as store:
        assert [record.offset for record in store.log("t")] == list(range(14))
    assert "leader epochs are taken from another segment" in caplog.text


def test_a_segment_of_a_tier_alone_whose_manifest_is_damaged_is_an_error_where_it_is_read(tmp_path: Path) -> None:
    for number in range(3):
        tier = Tier(path=tmp_path / str(number))
        made = [tier.upload(segment) for segment in SEGMENTS[:3]]
        made[number].path(".rsm-manifest").write_text("{")
        with open_store(tier.path, tier=tier.path) as store:
            log = store.log("t")
            with pytest.raises(RemoteSegmentError, match=r"malformed .*rsm-manifest"):
                list(log)
            kept = [offset for offset in range(30) if offset // 10 != number]
            assert [record.offset for record in log.read(on_error="skip")] == kept


def test_a_missing_key_is_an_error_of_the_logs_that_need_it(tmp_path: Path) -> None:
    encrypted = Tier(path=tmp_path / "tier", topic="sealed", topic_id=OTHER_TOPIC_ID, key=key())
    plain = Tier(path=tmp_path / "tier")
    encrypted.upload(SEGMENTS[0])
    plain.upload(SEGMENTS[0])
    with open_store(tmp_path / "tier", tier=tmp_path / "tier") as store:
        assert store.topics == ("sealed", "t")
        assert len(list(store.log("t"))) == 10
        with pytest.raises(TierKeyError, match="'key1'"):
            list(store.log("sealed"))


def test_an_abort_whose_marker_is_in_the_next_segment_leaves_its_records_out(joined: Joined) -> None:
    """Remote then remote, and remote then local."""
    data = [
        batch(start, 2, producer_id=start, producer_epoch=0, base_sequence=0, is_transactional=True) for start in (0, 2)
    ]
    joined.upload(data)
    marker = write_end_transaction_marker(4, producer_id=0, producer_epoch=0, commit=False, timestamp_ms=1)
    joined.upload([marker])
    last = write_end_transaction_marker(5, producer_id=2, producer_epoch=0, commit=False, timestamp_ms=1)
    joined.write([[last, batch(6, 2)]], start=0)
    assert joined.offsets() == [0, 1, 2, 3, 6, 7]
    assert joined.offsets(isolation="read_committed") == [6, 7]


def test_the_same_question_after_the_log_has_grown_has_the_new_answer(joined: Joined) -> None:
    joined_log(joined, uploaded=3, local_from=3)
    with joined.open() as log:
        assert [record.offset for record in log] == list(range(50))
        joined.upload(SEGMENTS[3])
        for suffix in ("log", "index", "timeindex"):
            (joined.root / "t-0" / f"{30:020d}.{suffix}").unlink()
        more = batches(50, 5, records_per_batch=2, value_bytes=60)
        directory = write_partition(joined.root.parent / "other", [more])
        for path in directory.glob(f"{50:020d}.*"):
            shutil.copy(path, joined.root / "t-0")
        if joined.has_events:
            write_events(joined.root, joined.events)
        assert log.refresh()
        assert [record.offset for record in log] == list(range(60))
        assert log.log_end_offset == 60


def test_the_same_question_after_retention_has_the_new_answer(tmp_path: Path) -> None:
    joined = Joined(tmp_path, has_events=True)
    joined_log(joined)
    with joined.open() as log:
        assert log.log_start_offset == 0
        joined.note(joined.made[0], DELETING, DELETED)
        for suffix in (".log", ".indexes", ".rsm-manifest"):
            joined.made[0].path(suffix).unlink()
        write_events(joined.root, joined.events)
        write_offset_checkpoint(joined.root / "log-start-offset-checkpoint", {"t-0": 10})
        log.refresh()
        assert [record.offset for record in log] == list(range(10, 50))


def test_a_segment_that_is_deleted_while_it_is_read_is_a_change_and_no_damage(tmp_path: Path) -> None:
    joined = Joined(tmp_path, has_events=True)
    joined_log(joined)
    with joined.open() as log:
        for suffix in (".log", ".indexes", ".rsm-manifest"):
            joined.made[0].path(suffix).unlink()
        joined.note(joined.made[0], DELETING)
        write_events(joined.root, joined.events)
        write_offset_checkpoint(joined.root / "log-start-offset-checkpoint", {"t-0": 10})
        assert [record.offset for record in log.read()] == list(range(10, 50))


def test_planning_by_events_reads_no_object(tmp_path: Path) -> None:
    joined = Joined(tmp_path, has_events=True, is_compressed=True)
    joined_log(joined)
    remote = CountingEnv()
    files = open_tier([joined.root], joined.tier.path)
    files.env.remote = files._remote = remote
    with open_store(joined.root, env=files.env) as store:
        log = store.log("t")
        assert len(log.plan(max_bytes=10**9)) == 1
        assert log.log_end_offset == 50
    assert remote.opened == []
    assert remote.read_names == []


def test_opening_a_tier_alone_reads_no_object_of_other_partitions(tmp_path: Path) -> None:
    tiers = [Tier(path=tmp_path / "tier", partition=number) for number in range(3)]
    made = [tier.upload(SEGMENTS[0]) for tier in tiers]
    remote = CountingEnv()
    files = open_tier([tmp_path / "tier"], tmp_path / "tier")
    files.env.remote = files._remote = remote
    with open_store(tmp_path / "tier", env=files.env) as store:
        assert len(store.partitions) == 3
        assert remote.read_names == []
        assert len(list(store.log("t", 1))) == 10
    assert {name for name in remote.read_names if name.endswith(".rsm-manifest")} == {
        made[1].path(".rsm-manifest").name
    }


def test_ranges_that_another_process_reads_say_where_the_bytes_are(joined: Joined) -> None:
    import pickle

    joined_log(joined)
    planned = scan(joined.root, topics="t", tier=joined.tier.path)
    ranges = pickle.loads(pickle.dumps(planned.ranges))
    assert scan(ranges).to_table().equals(planned.to_table())
    assert scan(ranges).to_table().num_rows == 50


def test_an_export_of_root_and_tier_can_be_adopted(joined: Joined, tmp_path: Path) -> None:
    joined_log(joined)
    kstore.export(joined.root, tmp_path / "back", format="kstore", tier=joined.tier.path)
    report = kstore.adopt(tmp_path / "back", keep_forever=True)
    assert "t" in [topic.name for topic in report.topics]
    with open_log(tmp_path / "back" / "t-0") as log:
        assert [record.offset for record in log] == list(range(50))


def test_verify_checks_the_records_of_the_tier(joined: Joined) -> None:
    joined_log(joined)
    assert kstore.verify(joined.root, topics="t", tier=joined.tier.path).damage == ()
    flip_bit(joined.made[0].path(".log"), 300, bit=0)
    assert kstore.verify(joined.root, topics="t").damage == ()
    assert kstore.verify(joined.root, topics="t", tier=joined.tier.path).damage


def test_a_tier_is_only_read(joined: Joined) -> None:
    joined_log(joined)
    writers: tuple[tuple[Any, Path], ...] = ((open_store, joined.root), (open_log, joined.root / "t-0"))
    for open_writer, path in writers:
        with pytest.raises(ValueError, match="only read"):
            open_writer(path, "a", tier=joined.tier.path)
    env = open_tier([joined.root], joined.tier.path).env
    with pytest.raises(StorageError) as caught:
        env.unlink(str(joined.root / "t-0" / f"{30:020d}.log"))
    assert caught.value.errno == errno.EROFS
    assert DEFAULT_ENV.stat(str(joined.root / "t-0" / f"{30:020d}.log")) is not None


def test_keys_without_a_tier_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tier_keys"):
        open_store(tmp_path, tier_keys={"key1": "path"})


def test_a_tier_without_segments_says_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogNotFoundError, match="LocalTieredStorage"):
        open_store(tmp_path, tier=tmp_path)


def test_a_root_with_an_empty_tier_is_that_root(joined: Joined) -> None:
    joined.write(SEGMENTS)
    joined.tier.path.mkdir(exist_ok=True)
    assert joined.offsets() == list(range(50))


def test_ids_of_segments_in_tests_differ() -> None:
    assert text_of(1) != text_of(2)
