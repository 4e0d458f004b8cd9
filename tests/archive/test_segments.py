"""Goal: exported segments are what a broker would have there: restored to an offset or a time, extended by later runs.
Method: small roots with producers and transactions; logs that are opened, verified and compared with the source."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from kstore import Producer
from kstore.archive import export
from kstore.config import LogConfig
from kstore.errors import ExportError
from kstore.log.files.checkpoints import read_leader_epoch_checkpoint, write_leader_epoch_checkpoint
from kstore.log.files.root_files import parse_id, read_partition_metadata
from kstore.log.files.snapshots import read_snapshot
from kstore.record import Record
from kstore.store.checks import verify
from kstore.store.opening import open_log
from kstore.store.store import open_store
from kstore.types import TopicPartition
from tests.making.exporting import (
    DAY_MS,
    SMALL_SEGMENTS,
    START_MS,
    TOPIC,
    checked_manifest,
    grow,
    partition_of,
    rows_of_export,
    rows_of_source,
)

ID = "a3N0b3JlLWludGVyb3AtMQ"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    grow(root, 200)
    return root


def batches_of(path: Path) -> list[bytes]:
    with open_log(path) as log:
        return [bytes(batch) for batch in log.batches()]


def check_loads(target: Path) -> None:
    """Check that every byte is right, and that nothing has to be recovered or rebuilt."""
    found = verify(target)
    assert [(one.topic_partition, one.damage) for one in found.partitions if one.damage] == []
    assert found.damage == ()
    with open_store(target, "a") as store:
        assert store.recovery_reports == {}
        for one in store.partitions:
            report = store.log(*one).recovery_report
            assert report.rebuilt == ()
            assert report.is_unharmed


def test_later_runs_and_joins_end_with_the_segments_of_the_source(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    for count in (30, 50, 10, 20, 40, 10, 10, 10, 60, 10):
        grow(source, count)
        export(source, target, "kstore")
        check_copies(source, target)
    check_loads(target)
    with open_log(source / f"{TOPIC}-0") as log:
        sizes = {one.base_offset: one.size_in_bytes for one in log.segments}
    copied = {file.first_offset: file.size_in_bytes for file in checked_manifest(target).files if file.partition == 0}
    assert len(copied) <= len(sizes) + 4
    assert len(sizes.items() & copied.items()) > len(sizes) // 2


def check_copies(source: Path, target: Path) -> None:
    for number in range(2):
        name = f"{TOPIC}-{number}"
        assert batches_of(target / name) == batches_of(source / name)


@pytest.mark.parametrize(("last_batch", "end"), [("keep", 120), ("drop", 110)])
def test_restore_to_an_offset_keeps_or_drops_the_batch_that_spans_it(
    source: Path, tmp_path: Path, last_batch: str, end: int
) -> None:
    target = tmp_path / "out"
    export(source, target, "kstore", end_offset=115, last_batch=last_batch)
    assert partition_of(checked_manifest(target), 0).end_offset == end
    assert rows_of_export(target) == [row for row in rows_of_source(source) if row.offset < end]
    check_loads(target)
    with open_store(source, "a", SMALL_SEGMENTS) as store:
        store.log(TOPIC, 0).truncate_to(115)
    if last_batch == "drop":
        assert batches_of(target / f"{TOPIC}-0") == batches_of(source / f"{TOPIC}-0")


def test_restore_to_an_offset_between_batches_drops_none(source: Path, tmp_path: Path) -> None:
    export(source, tmp_path / "out", "kstore", end_offset=120, last_batch="drop")
    assert partition_of(checked_manifest(tmp_path / "out"), 0).end_offset == 120


def test_restore_to_a_time_ends_at_the_first_record_from_then_on(source: Path, tmp_path: Path) -> None:
    until = START_MS + DAY_MS
    export(source, tmp_path / "out", "kstore", until=until, last_batch="drop")
    with open_log(source / f"{TOPIC}-0") as log:
        found = log.offset_for_timestamp(until)
    assert found is not None
    assert partition_of(checked_manifest(tmp_path / "out"), 0).end_offset == found.offset // 10 * 10
    check_loads(tmp_path / "out")


def test_sample_begins_with_the_batch_that_holds_its_first_offset(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(source, target, "kstore", start_offset=75, end_offset=95)
    assert rows_of_export(target) == [row for row in rows_of_source(source) if 75 <= row.offset < 100]
    with open_log(target / f"{TOPIC}-0") as log:
        assert (log.log_start_offset, log.log_end_offset) == (75, 100)
        assert log.segments[0].base_offset == 70
    check_loads(target)


def test_partition_without_records_in_the_range_is_there_and_empty(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(source, target, "kstore", start_offset=150, end_offset={TopicPartition(TOPIC, 1): 150})
    with open_log(target / f"{TOPIC}-1") as log:
        assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (150, 150, 1)
    check_loads(target)


def test_leader_epochs_and_ids_are_those_of_the_source(source: Path, tmp_path: Path) -> None:
    path = f"{TOPIC}-0/leader-epoch-checkpoint"
    with open_store(source, "a", SMALL_SEGMENTS) as store:
        log = store.log(TOPIC, 0)
        log.append(list(log.read(0, 10)), partition_leader_epoch=4)
        topic_id = store.topic_id(TOPIC)
    export(source, tmp_path / "out", "kstore")
    found = read_leader_epoch_checkpoint(str(tmp_path / "out" / path))
    assert found == read_leader_epoch_checkpoint(str(source / path)) == [(0, 0), (4, 200)]
    assert read_partition_metadata(str(tmp_path / "out" / f"{TOPIC}-0")) == topic_id
    export(source, tmp_path / "earlier", "kstore", end_offset=150, topic_ids={TOPIC: ID})
    assert read_leader_epoch_checkpoint(str(tmp_path / "earlier" / path)) == [(0, 0)]
    assert read_partition_metadata(str(tmp_path / "earlier" / f"{TOPIC}-1")).bytes == b"kstore-interop-1"[:16]
    (source / path).unlink()
    export(source, tmp_path / "rebuilt", "kstore")
    assert read_leader_epoch_checkpoint(str(tmp_path / "rebuilt" / path)) == [(0, 0), (4, 200)]


def test_given_ids_are_those_of_all_partitions_from_then_on(source: Path, tmp_path: Path) -> None:
    def ids(topic: str) -> set[uuid.UUID | None]:
        return {read_partition_metadata(str(path)) for path in target.glob(f"{topic}-*")}

    grow(source, 20, topic="other")
    target = tmp_path / "out"
    export(source, target, "kstore")
    (own,), (other,) = ids(TOPIC), ids("other")
    assert export(source, target, "kstore", topic_ids={TOPIC: ID}).new_records == 0
    assert ids(TOPIC) == {parse_id(ID)} != {own}
    grow(source, 20)
    assert export(source, target, "kstore").new_records == 40
    assert (ids(TOPIC), ids("other")) == ({parse_id(ID)}, {other})
    check_loads(target)
    with pytest.raises(ValueError, match="names topics that are not exported: typo"):
        export(source, target, "kstore", topic_ids={"typo": ID})


def test_epochs_of_earlier_runs_stay_when_the_source_forgets_them(source: Path, tmp_path: Path) -> None:
    path = source / f"{TOPIC}-0" / "leader-epoch-checkpoint"
    export(source, tmp_path / "out", "kstore")
    grow(source, 20)
    write_leader_epoch_checkpoint(str(path), [])
    export(source, tmp_path / "out", "kstore")
    assert read_leader_epoch_checkpoint(str(tmp_path / "out" / f"{TOPIC}-0" / path.name)) == [(0, 0)]


def transact(root: Path, rounds: int, *, segment_bytes: int = 2000) -> None:
    """Write committed, aborted and, last, undecided transactions of several producers."""
    with open_store(root, "a", LogConfig(segment_bytes=segment_bytes)) as store:
        if TOPIC not in store.topics:
            store.create_topic(TOPIC, 2)
            store.create_topic("__transaction_state", 1)
        for number in range(rounds):
            with Producer(store, transactional_id=f"tx-{number % 3}") as producer:
                producer.init_transactions()
                producer.begin_transaction()
                for at in range(7):
                    producer.send(TOPIC, b"%d/%d" % (number, at), partition=at % 2)
                if number % 2:
                    producer.commit_transaction()
                else:
                    producer.flush()
                    producer.abort_transaction()


@pytest.mark.parametrize(("segment_bytes", "rounds"), [(2000, 9), (1 << 20, 3)], ids=["segments", "pieces"])
def test_transactions_and_producers_are_those_of_the_source(tmp_path: Path, segment_bytes: int, rounds: int) -> None:
    both = source, target = tmp_path / "source", tmp_path / "out"
    for _ in range(4):
        transact(source, rounds, segment_bytes=segment_bytes)
        export(source, target, "kstore", topics=[TOPIC, "__transaction_state"])
        check_loads(target)
        for name in (f"{TOPIC}-0", f"{TOPIC}-1", "__transaction_state-0"):
            with open_log(source / name) as log, open_log(target / name) as copy:
                assert copy.transactions() == log.transactions()
                assert copy.log_end_offset == log.log_end_offset
                committed = [record.value for record in log.read(isolation="read_committed")]
                assert [record.value for record in copy.read(isolation="read_committed")] == committed
                end = log.log_end_offset
            snapshots = [read_snapshot(str(root / name / f"{end:020d}.snapshot")) for root in both]
            assert snapshots[0] == snapshots[1]
        aborted = [b"".join(map(Path.read_bytes, sorted((root / f"{TOPIC}-0").glob("*.txnindex")))) for root in both]
        assert aborted[0] == aborted[1] != b""


def test_restore_inside_of_a_transaction_leaves_it_open(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    transact(source, 4)
    with open_log(source / f"{TOPIC}-0") as log:
        markers = [batch.base_offset for batch in log.batches() if batch.is_control]
        first = markers[-2] + 1
    export(
        source, target, "kstore", topics=TOPIC, end_offset={TopicPartition(TOPIC, 0): markers[-1]}, last_batch="drop"
    )
    check_loads(target)
    with open_log(target / f"{TOPIC}-0") as copy:
        assert copy.log_end_offset == markers[-1]
        assert copy.transactions().last_stable_offset == first


def test_target_that_was_written_since_is_refused(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(source, target, "kstore")
    grow(target, 10)
    grow(source, 10)
    with pytest.raises(ExportError, match="was written since it was exported"):
        export(source, target, "kstore")


def test_log_start_offset_of_the_source_is_kept(source: Path, tmp_path: Path) -> None:
    with open_store(source, "a", SMALL_SEGMENTS) as store:
        store.log(TOPIC, 0).delete_records(115)
    export(source, tmp_path / "out", "kstore")
    with open_log(tmp_path / "out" / f"{TOPIC}-0") as log:
        assert (log.log_start_offset, log.log_end_offset) == (115, 200)
    check_loads(tmp_path / "out")


def test_pieces_that_a_cleaner_merged_in_the_source_are_joined_only_if_they_follow_each_other(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    cleaned = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0, "file_delete_delay_ms": 0}
    small, large = (LogConfig(segment_bytes=size, **cleaned) for size in (2000, 20_000))

    def append(count: int, config: LogConfig, *, is_cleaned: bool = False) -> None:
        with open_store(source, "a", config) as store:
            if TOPIC not in store.topics:
                store.create_topic(TOPIC, 1)
            log = store.log(TOPIC, 0)
            for _ in range(0, count, 5):
                first = log.log_end_offset
                log.append([Record(offset=0, key=b"%d" % (first + at), value=b"x" * 50) for at in range(5)])
            if is_cleaned:
                log.roll()
                log.compact()

    append(45, small)
    export(source, target, "kstore")
    append(40, large, is_cleaned=True)
    with open_log(source / f"{TOPIC}-0") as log:
        assert [segment.base_offset for segment in log.segments] == [0, 85]
    for _ in range(2):
        export(source, target, "kstore")
        assert batches_of(target / f"{TOPIC}-0") == batches_of(source / f"{TOPIC}-0")
    check_loads(target)
