"""Goal: a restore holds exactly what the source held below its end, in the source's bytes, and changes nothing else.
Method: small roots with producers, transactions, codecs, deleted records; logs that are opened, verified, compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore import Producer, RestoreError, open_log, open_store, restore, verify
from kstore.archive import export
from kstore.config import LogConfig
from kstore.errors import CorruptRecordError, InvalidTopicError, LogNotFoundError
from kstore.log.files.checkpoints import EpochEntry, read_leader_epoch_checkpoint, write_leader_epoch_checkpoint
from kstore.log.files.snapshots import read_snapshot
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords, MemoryRecordsBuilder, Record
from kstore.types import TimestampType, TopicPartition
from tests.making.batches import flip_bit, record, write_root
from tests.making.exporting import PARTITIONS, TOPIC, grow
from tests.reference.codec import write_batch

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    grow(root, 100)
    return root


def batches_of(path: Path) -> list[bytes]:
    with open_log(path) as log:
        return [bytes(batch) for batch in log.batches()]


def records_of(path: Path, *, isolation: str = "read_uncommitted") -> list[Record]:
    with open_log(path) as log:
        return list(log.read(isolation=isolation))


def last_sequence_in(path: Path, end: int) -> int:
    """Return the last sequence of the only producer in the snapshot at an offset."""
    (entry,) = read_snapshot(str(path / f"{end:020}.snapshot"))
    return entry.last_sequence


def values_of(path: Path) -> list[bytes | None]:
    return [one.value for one in records_of(path)]


def bounds_of(path: Path) -> tuple[int, int]:
    with open_log(path) as log:
        return log.log_start_offset, log.log_end_offset


def segments_of(path: Path) -> list[str]:
    return sorted(one.name for one in path.glob("*.log"))


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


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def logs_in(root: Path) -> dict[str, bytes]:
    return {name: content for name, content in contents(root).items() if name.endswith((".log", "index"))}


def test_a_damaged_source_is_restored_up_to_the_damage_whose_place_the_error_says(tmp_path: Path) -> None:
    batches = [write_batch([record(offset, b"v" * 50)]) for offset in range(6)]
    root = write_root(tmp_path / "source", {"t-0": [batches]})
    log = root / "t-0" / f"{0:020}.log"
    position = sum(map(len, batches[:3]))
    flip_bit(log, position + 80, bit=0)
    place = rf"CRC mismatch in batch at position {position} of {log} \(base offset 3\)"
    with pytest.raises(RestoreError, match=place) as refused:
        restore(root, tmp_path / "target")
    assert refused.value.summary is not None
    assert [(one.end_offset, one.record_count) for one in refused.value.summary.partitions] == [(3, 3)]
    with pytest.raises(RestoreError, match=place):
        restore(root, tmp_path / "target")
    assert batches_of(tmp_path / "target" / "t-0") == batches[:3]
    with pytest.raises(CorruptRecordError, match=place):
        restore(root, tmp_path / "other", dry_run=True)


def test_a_root_is_restored_in_its_own_bytes_and_segments(source: Path, tmp_path: Path) -> None:
    summary = restore(source, tmp_path / "new")
    assert summary.is_complete
    assert [one.record_count for one in summary.partitions] == [100] * PARTITIONS
    for number in range(PARTITIONS):
        name = f"{TOPIC}-{number}"
        assert batches_of(tmp_path / "new" / name) == batches_of(source / name)
        assert segments_of(tmp_path / "new" / name) == segments_of(source / name)
        assert len(segments_of(source / name)) == 2
    check_loads(tmp_path / "new")


@pytest.mark.parametrize("end", [0, 1, 9, 10, 11, 55, 99, 100])
def test_a_restore_ends_exactly_at_the_offset(source: Path, tmp_path: Path, end: int) -> None:
    summary = restore(source, tmp_path / "new", end_offset=end)
    for one in summary.partitions:
        name = f"{TOPIC}-{one.partition}"
        assert bounds_of(tmp_path / "new" / name) == (0, end) == (one.start_offset, one.end_offset)
        assert records_of(tmp_path / "new" / name) == records_of(source / name)[:end]
        whole = end // 10
        assert batches_of(tmp_path / "new" / name)[:whole] == batches_of(source / name)[:whole]
        assert (one.record_count, one.is_cut) == (end, end % 10 > 0)
    check_loads(tmp_path / "new")


def test_each_partition_can_have_an_end_of_its_own(source: Path, tmp_path: Path) -> None:
    restore(source, tmp_path / "new", end_offset={TopicPartition(TOPIC, 1): 30})
    assert [bounds_of(tmp_path / "new" / f"{TOPIC}-{number}")[1] for number in range(2)] == [100, 30]


def test_a_restore_ends_before_the_first_record_of_a_time_or_later(tmp_path: Path) -> None:
    stamps = [10, 20, 15, 40, 30, 50]
    rows = [record(at, b"v", timestamp_ms=stamp) for at, stamp in enumerate(stamps)]
    root = write_root(tmp_path / "source", {"t-0": [[write_batch(rows[:2]), write_batch(rows[2:])]]})
    restore(root, tmp_path / "new", until=30)
    assert [one.timestamp_ms for one in records_of(tmp_path / "new" / "t-0")] == [10, 20, 15]
    restore(root, tmp_path / "all", until=51)
    assert len(records_of(tmp_path / "all" / "t-0")) == len(stamps)
    restore(root, tmp_path / "own", until={TopicPartition("t", 0): 20})
    assert bounds_of(tmp_path / "own" / "t-0") == (0, 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_cut_batch_keeps_producer_epoch_and_records(tmp_path: Path, codec: str) -> None:
    rows = [record(at, b"value" * at, b"k", headers=[(b"h", b"1")] * (at % 3)) for at in range(5, 25)]
    fields = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 40, "partition_leader_epoch": 9}
    whole = write_batch(rows, codec={"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[codec], **fields)
    root = write_root(tmp_path / "source", {"t-0": [[whole]]})
    restore(root, tmp_path / "new", end_offset=17)
    with open_log(tmp_path / "new" / "t-0") as log, open_log(root / "t-0") as known:
        (batch,), (before,) = log.batches(), known.batches()
        header = batch.header
        assert (header.base_offset, header.last_offset, header.record_count, header.codec) == (
            5,
            16,
            12,
            before.header.codec,
        )
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 40)
        assert (header.partition_leader_epoch, header.base_timestamp_ms) == (9, before.header.base_timestamp_ms)
        assert header.max_timestamp_ms == rows[11].timestamp_ms
        assert list(batch.records()) == list(before.records())[:12]
    assert last_sequence_in(tmp_path / "new" / "t-0", 17) == 51
    with open_log(tmp_path / "new" / "t-0", "a") as log:
        assert log.leader_epochs.latest_epoch == 9


def test_a_cut_batch_without_records_keeps_its_offsets_and_its_producer(tmp_path: Path) -> None:
    rows = [record(at, b"v", b"k") for at in (0, 1, 8, 9)]
    late = write_batch(rows[2:], base_offset=2, producer_id=7, producer_epoch=0, base_sequence=0, codec=1)
    root = write_root(tmp_path / "source", {"t-0": [[write_batch(rows[:2]), late]]})
    summary = restore(root, tmp_path / "new", end_offset=5)
    assert bounds_of(tmp_path / "new" / "t-0") == (0, 5)
    assert summary.partitions[0].record_count == 2
    assert [one.offset for one in records_of(tmp_path / "new" / "t-0")] == [0, 1]
    assert last_sequence_in(tmp_path / "new" / "t-0", 5) == 2
    check_loads(tmp_path / "new")


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_messages_of_old_formats_are_cut_too(tmp_path: Path, magic: int, codec: str) -> None:
    with open_store(tmp_path / "source", "a") as store:
        store.create_topic("t", 1)
        log = store.log("t")
        for base in (0, 10):
            builder = MemoryRecordsBuilder(magic=magic, compression=codec, base_offset=base)
            for at in range(base, base + 10):
                builder.append(key=b"k", value=b"value %d" % at, timestamp_ms=at)
            log.append_as_follower(MemoryRecords(bytes(builder.build().buffer)))
    summary = restore(tmp_path / "source", tmp_path / "new", end_offset=14)
    assert summary.partitions[0].record_count == 14
    assert bounds_of(tmp_path / "new" / "t-0") == (0, 14)
    assert records_of(tmp_path / "new" / "t-0") == records_of(tmp_path / "source" / "t-0")[:14]
    check_loads(tmp_path / "new")


def test_log_append_time_stays_that_of_the_batch(tmp_path: Path) -> None:
    with open_store(tmp_path / "source", "a", LogConfig(message_timestamp_type="LogAppendTime")) as store:
        store.create_topic("t", 1)
        store.log("t").append([Record(offset=0, timestamp_ms=at, value=b"v") for at in range(10)])
    restore(tmp_path / "source", tmp_path / "new", end_offset=4)
    found = records_of(tmp_path / "new" / "t-0")
    assert found == records_of(tmp_path / "source" / "t-0")[:4]
    assert {one.timestamp_type for one in found} == {TimestampType.LOG_APPEND_TIME}


@pytest.fixture
def transactions(tmp_path: Path) -> Path:
    """t-0: offsets 0..1 committed (marker 2), 3..4 aborted (marker 5), 6 committed (marker 7)."""
    root = tmp_path / "transactions"
    with open_store(root, "a") as store:
        store.create_topic("t", 1)
        with Producer(store, transactional_id="x") as producer:
            producer.init_transactions()
            for count, ends in ((2, producer.commit_transaction), (2, producer.abort_transaction)):
                producer.begin_transaction()
                for _ in range(count):
                    producer.send("t", value=b"v", partition=0)
                producer.flush()
                ends()
            producer.begin_transaction()
            producer.send("t", value=b"last", partition=0)
            producer.commit_transaction()
    return root


@pytest.mark.parametrize(
    ("end", "kept_open", "waits_at", "committed"),
    [(8, None, 8, 3), (7, 6, 6, 2), (5, 3, 3, 2), (3, None, 3, 2), (2, 0, 0, 0), (1, 0, 0, 0)],
)
def test_open_transactions_at_the_end_are_kept_or_left_out(
    transactions: Path, tmp_path: Path, end: int, kept_open: int | None, waits_at: int, committed: int
) -> None:
    (kept,) = restore(transactions, tmp_path / "kept", topics="t", end_offset=end).partitions
    assert [first for _, first in kept.open_transactions] == ([] if kept_open is None else [kept_open])
    assert bounds_of(tmp_path / "kept" / "t-0") == (0, end)
    with open_log(tmp_path / "kept" / "t-0", "a") as log:
        assert log.last_stable_offset == (end if kept_open is None else kept_open)
    waiting = {"end_offset": end, "open_transactions": "wait"}
    (waited,) = restore(transactions, tmp_path / "waited", topics="t", **waiting).partitions
    assert bounds_of(tmp_path / "waited" / "t-0") == (0, waits_at)
    assert (waited.waited_from, waited.open_transactions) == (None if waits_at == end else end, ())
    for name in ("kept", "waited"):
        assert len(records_of(tmp_path / name / "t-0", isolation="read_committed")) == committed
        check_loads(tmp_path / name)


def test_the_wait_ends_where_no_transaction_is_open_at_all(tmp_path: Path) -> None:
    root = tmp_path / "source"
    with open_store(root, "a") as store:
        store.create_topic("t", 1)
        with Producer(store, transactional_id="a") as one, Producer(store, transactional_id="b") as other:
            for producer in (one, other):
                producer.init_transactions()
                producer.begin_transaction()
                producer.send("t", value=b"v", partition=0)
                producer.flush()
            one.commit_transaction()
            other.commit_transaction()
    (restored,) = restore(root, tmp_path / "new", topics="t", end_offset=3, open_transactions="wait").partitions
    assert (restored.end_offset, restored.waited_from) == (0, 3)


def test_aborted_transactions_are_in_the_index_of_the_restored_segment(transactions: Path, tmp_path: Path) -> None:
    restore(transactions, tmp_path / "new", topics="t")
    found = sorted((tmp_path / "new" / "t-0").glob("*.txnindex"))
    assert [one.read_bytes() for one in found if one.stat().st_size] == [
        one.read_bytes() for one in sorted((transactions / "t-0").glob("*.txnindex")) if one.stat().st_size
    ]


def test_records_that_the_source_has_deleted_stay_hidden(source: Path, tmp_path: Path) -> None:
    with open_store(source, "a") as store:
        store.log(TOPIC, 0).delete_records(35)
    restore(source, tmp_path / "new", partitions=0)
    assert bounds_of(tmp_path / "new" / f"{TOPIC}-0") == (35, 100)
    assert records_of(tmp_path / "new" / f"{TOPIC}-0") == records_of(source / f"{TOPIC}-0")
    check_loads(tmp_path / "new")
    restore(source, tmp_path / "below", partitions=0, end_offset=20)
    assert bounds_of(tmp_path / "below" / f"{TOPIC}-0") == (20, 20)
    restore(source, tmp_path / "below", partitions=0, end_offset=20)


@pytest.mark.parametrize("step", ["truncate_fully_and_start_at", "append_as_follower", "delete_records"])
@pytest.mark.parametrize("is_after", [False, True])
def test_records_that_the_source_has_deleted_stay_hidden_if_a_restore_is_killed_and_called_again(
    source: Path, tmp_path: Path, step: str, is_after: bool
) -> None:
    with open_store(source, "a") as store:
        store.log(TOPIC, 0).delete_records(35)
    unpatched = getattr(WritableLog, step)

    def killed(log: WritableLog, *given: object, **named: object) -> None:
        if is_after:
            unpatched(log, *given, **named)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WritableLog, step, killed)
        with pytest.raises(KeyboardInterrupt):
            restore(source, tmp_path / "new", partitions=0)
    restore(source, tmp_path / "new", partitions=0)
    assert bounds_of(tmp_path / "new" / f"{TOPIC}-0") == (35, 100)
    assert records_of(tmp_path / "new" / f"{TOPIC}-0") == records_of(source / f"{TOPIC}-0")


def test_leader_epochs_are_those_of_the_source_below_the_end(source: Path, tmp_path: Path) -> None:
    name = f"{TOPIC}-0"
    path = source / name / "leader-epoch-checkpoint"
    write_leader_epoch_checkpoint(str(path), [EpochEntry(0, 0), EpochEntry(4, 50), EpochEntry(6, 80)])
    restore(source, tmp_path / "new", end_offset=60)
    found = read_leader_epoch_checkpoint(str(tmp_path / "new" / name / "leader-epoch-checkpoint"))
    assert found == [EpochEntry(0, 0), EpochEntry(4, 50)]


def test_the_same_call_goes_on_and_then_has_nothing_to_do(source: Path, tmp_path: Path) -> None:
    restore(source, tmp_path / "new", end_offset=40)
    more = restore(source, tmp_path / "new")
    assert [(one.from_offset, one.record_count) for one in more.partitions] == [(40, 60)] * PARTITIONS
    before = logs_in(tmp_path / "new")
    again = restore(source, tmp_path / "new")
    assert [one.record_count for one in again.partitions] == [0] * PARTITIONS
    assert logs_in(tmp_path / "new") == before
    assert batches_of(tmp_path / "new" / f"{TOPIC}-0") == batches_of(source / f"{TOPIC}-0")
    cut = restore(source, tmp_path / "cut", end_offset=55)
    assert restore(source, tmp_path / "cut", end_offset=55).partitions[0].record_count == 0
    assert cut.partitions[0].is_cut


def other_root(directory: Path) -> Path:
    with open_store(directory, "a") as store:
        store.create_topic(TOPIC, PARTITIONS)
        for number in range(PARTITIONS):
            store.log(TOPIC, number).append([Record(offset=0, timestamp_ms=1, value=b"other")] * 10)
    return directory


def longer(source: Path, target: Path) -> Path:
    restore(source, target, end_offset=60)
    return target


def ends_inside(source: Path, target: Path) -> Path:
    restore(source, target, end_offset=15)
    return target


def gap(source: Path, target: Path) -> Path:
    restore(source, target, end_offset=20)
    with open_store(source, "a") as store:
        for number in range(PARTITIONS):
            store.log(TOPIC, number).delete_records(40)
    return target


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda _, target: other_root(target), "its last batch, with offsets 0 to 9, is not the source's"),
        (longer, "it has records up to offset 59, above the end of the restore at 50"),
        (ends_inside, "it ends at offset 15, inside of the source's batch with offsets 10 to 19"),
        (gap, "it ends at offset 20, and the source begins at 40"),
    ],
)
def test_a_partition_that_does_not_continue_is_refused_and_nothing_is_changed(
    source: Path, tmp_path: Path, made: object, reason: str
) -> None:
    target = made(source, tmp_path / "new")  # type: ignore[operator]
    before = contents(target)
    with pytest.raises(RestoreError, match=reason) as dry:
        restore(source, target, end_offset=50, dry_run=True)
    with pytest.raises(RestoreError, match=reason) as refused:
        restore(source, target, end_offset=50)
    assert refused.value.summary is dry.value.summary is None
    assert contents(target) == before


def test_a_partition_that_ends_where_the_source_begins_is_continued(source: Path, tmp_path: Path) -> None:
    restore(source, tmp_path / "new", end_offset=40)
    export(source, tmp_path / "rest", "kstore", start_offset=40)
    summary = restore(tmp_path / "rest", tmp_path / "new")
    assert [one.from_offset for one in summary.partitions] == [40] * PARTITIONS
    assert records_of(tmp_path / "new" / f"{TOPIC}-1") == records_of(source / f"{TOPIC}-1")


def test_topics_get_other_names(source: Path, tmp_path: Path) -> None:
    grow(source, 20, topic="other")
    summary = restore(source, source, topics=TOPIC, rename={TOPIC: "copy"}, end_offset=30)
    assert {one.topic for one in summary.partitions} == {"copy"}
    assert values_of(source / "copy-1") == values_of(source / f"{TOPIC}-1")[:30]
    restore(source / f"{TOPIC}-1", tmp_path / "new", topic_as="single")
    assert batches_of(tmp_path / "new" / "single-1") == batches_of(source / f"{TOPIC}-1")
    with open_store(source) as store:
        assert store.topic_id("copy") not in (None, store.topic_id(TOPIC))
    restore(source, tmp_path / "kept", topics=TOPIC)
    with open_store(tmp_path / "kept") as kept, open_store(source) as store:
        assert kept.topic_id(TOPIC) == store.topic_id(TOPIC)


def test_a_folder_of_segments_with_any_name_is_restored_as_a_topic(source: Path, tmp_path: Path) -> None:
    expected = batches_of(source / f"{TOPIC}-1")
    (source / f"{TOPIC}-1").rename(tmp_path / "disk-of-monday")
    with pytest.raises(LogNotFoundError):
        restore(tmp_path / "disk-of-monday", tmp_path / "new")
    restore(tmp_path / "disk-of-monday", tmp_path / "new", topic_as="saved")
    assert batches_of(tmp_path / "new" / "saved-0") == expected


def test_segments_of_the_target_may_be_smaller_than_those_of_the_source(source: Path, tmp_path: Path) -> None:
    with open_store(tmp_path / "new", "a") as store:
        store.create_topic(TOPIC, PARTITIONS, config={"segment_bytes": 1000})
    restore(source, tmp_path / "new")
    assert batches_of(tmp_path / "new" / f"{TOPIC}-0") == batches_of(source / f"{TOPIC}-0")
    assert len(segments_of(tmp_path / "new" / f"{TOPIC}-0")) > len(segments_of(source / f"{TOPIC}-0"))
    check_loads(tmp_path / "new")


def test_settings_of_the_topic_come_along(source: Path, tmp_path: Path) -> None:
    with open_store(source, "a") as store:
        store.change_topic_config(TOPIC, {"retention_ms": 12345, "cleanup_policy": "delete"})
    restore(source, tmp_path / "new")
    with open_store(tmp_path / "new", "a") as store:
        assert store.topic_config(TOPIC).retention_ms == 12345


def test_partitions_below_those_that_are_restored_are_made(source: Path, tmp_path: Path) -> None:
    restore(source, tmp_path / "new", partitions=1)
    assert bounds_of(tmp_path / "new" / f"{TOPIC}-0") == (0, 0)
    restore(source, tmp_path / "new", partitions=0)
    assert bounds_of(tmp_path / "new" / f"{TOPIC}-0") == (0, 100)


def test_an_export_of_batches_is_restored_and_equals_its_source(source: Path, tmp_path: Path) -> None:
    export(source, tmp_path / "exported", "kstore")
    restore(tmp_path / "exported", tmp_path / "new")
    for number in range(PARTITIONS):
        name = f"{TOPIC}-{number}"
        assert batches_of(tmp_path / "new" / name) == batches_of(source / name)


def test_a_dry_run_says_what_a_restore_does_and_changes_nothing(source: Path, tmp_path: Path) -> None:
    dry = restore(source, tmp_path / "new", end_offset=55, dry_run=True)
    assert not (tmp_path / "new").exists()
    assert restore(source, tmp_path / "new", end_offset=55).partitions == dry.partitions
    before = contents(tmp_path / "new")
    restore(source, tmp_path / "part", end_offset=40)
    more = restore(source, tmp_path / "part", end_offset=90, dry_run=True)
    assert restore(source, tmp_path / "part", end_offset=90).partitions == more.partitions
    assert contents(tmp_path / "new") == before


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"rename": {"nothing": "x"}}, "rename names topics that are not restored: nothing"),
        ({"rename": {TOPIC: "x"}, "topic_as": "y"}, "contradict"),
        ({"topic_as": "y"}, "the source has 2"),
        ({"rename": {TOPIC: "other"}}, "two topics would become other"),
        ({"open_transactions": "abort"}, "open_transactions must be"),
        ({"topics": "missing"}, "topics not found: missing"),
        ({"end_offset": {TopicPartition("x", 0): 1}}, "end_offset names partitions"),
        ({"until": {TopicPartition("x", 0): 1}}, "until names partitions"),
    ],
)
def test_wrong_arguments_are_refused_before_a_root_is_made(
    source: Path, tmp_path: Path, options: dict[str, object], reason: str
) -> None:
    grow(source, 10, topic="other")
    with pytest.raises((ValueError, RestoreError), match=reason):
        restore(source, tmp_path / "new", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


def test_a_name_that_no_topic_can_have_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidTopicError):
        restore(source, tmp_path / "new", rename={TOPIC: "a/b"})
