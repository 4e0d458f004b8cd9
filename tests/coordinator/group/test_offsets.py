"""Goal: the offsets that groups committed for a topic go with it, whatever happens during its deletion.
Method: roots with an `__consumer_offsets` of two partitions, whose records are read back; a crash is a copy of the root
taken while the store is open."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kstore import read_groups
from kstore.coordinator.group import offsets as group_offsets
from kstore.coordinator.group.offsets import CommittedOffsets, GroupOffsets
from kstore.coordinator.producer_ids import ProducerIdAndEpoch
from kstore.env import DEFAULT_ENV
from kstore.errors import StorageError
from kstore.record import MemoryRecordsBuilder, Record
from kstore.record.schemas.topics import encode_offset_commit
from kstore.record.validation import AppendOrigin
from kstore.store.settings.file import SettingsFile, write_settings
from kstore.store.store import WritableStore, open_store
from kstore.types import GROUP_OFFSETS_TOPIC as OFFSETS
from kstore.types import OffsetAndMetadata, TopicPartition
from tests.fakes.faults import Fault, FaultKind, FaultyEnv, calls_of_a_deletion
from tests.making.batches import flip_bit

GONE, KEPT = TopicPartition("gone", 0), TopicPartition("kept", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Group `a` commits to partition 0, `b` to 1, each for `gone` and `kept`."""
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("gone", 2)
        store.create_topic("kept")
        store.create_topic(OFFSETS, 2)
        for number, group in enumerate("ab"):
            for one in (GONE, TopicPartition("gone", 1), KEPT):
                commit(store, number, group, one, 5)
    return tmp_path / "root"


def commit(store: WritableStore, number: int, group: str, partition: TopicPartition, offset: int | None) -> None:
    made = None if offset is None else OffsetAndMetadata(offset, "")
    key, value = encode_offset_commit(group, partition, made)
    builder = MemoryRecordsBuilder()
    builder.append(timestamp_ms=1000, key=key, value=value)
    store.log(OFFSETS, number).append(builder.build(), origin=AppendOrigin.COORDINATOR)


def offsets(root: Path) -> dict[str, set[TopicPartition]]:
    return {group.group_id: set(group.offsets) for group in read_groups(root)}


def test_deletion_of_a_topic_removes_what_groups_committed_for_it(root: Path) -> None:
    with open_store(root, "a") as store:
        commit(store, 0, "a", TopicPartition("gone", 1), None)
        store.delete_topic("gone")
        assert offsets(root) == {"a": {KEPT}, "b": {KEPT}}
        # A tombstone for each key that had a value, durable when the call returns.
        assert [store.log(OFFSETS, number).log_end_offset for number in (0, 1)] == [5, 5]
        assert [store.log(OFFSETS, number).flushed_offset for number in (0, 1)] == [5, 5]


def test_a_topic_whose_name_begins_alike_keeps_its_offsets(root: Path) -> None:
    with open_store(root, "a") as store:
        store.create_topic("gone2")
        commit(store, 0, "a", TopicPartition("gone2", 0), 7)
        commit(store, 1, "gone", KEPT, 7)
        store.delete_topic("gone")
    assert offsets(root) == {"a": {KEPT, TopicPartition("gone2", 0)}, "b": {KEPT}, "gone": {KEPT}}


def test_tombstones_of_many_offsets_are_in_several_batches(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "_MOST_BATCH_BYTES", 100)
    with open_store(root, "a") as store:
        for number in range(20):
            commit(store, 0, f"group-{number}", GONE, 7)
        end = store.log(OFFSETS).log_end_offset
        store.delete_topic("gone")
        assert len(list(store.log(OFFSETS).batches(end))) > 2
    assert offsets(root) == {"a": {KEPT}, "b": {KEPT}}


def test_a_deletion_that_a_crash_ended_is_completed_by_the_next_opening(root: Path) -> None:
    write_settings(str(root), SettingsFile({}, ("gone",)), DEFAULT_ENV)
    (root / ".kafka_cleanshutdown").unlink()
    with open_store(root, "a") as store:
        assert store.topics == (OFFSETS, "kept")
    assert offsets(root) == {"a": {KEPT}, "b": {KEPT}}
    with open_store(root, "a") as store:
        assert store.log(OFFSETS).log_end_offset == 5


def test_a_damaged_partition_of_offsets_does_not_keep_a_topic_from_its_deletion(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flip_bit(root / f"{OFFSETS}-0" / "00000000000000000000.log", 70, bit=0)
    with open_store(root, "a") as store:
        store.delete_topic("gone")
        assert store.topics == (OFFSETS, "kept")
        assert store.create_topic("gone")
    assert f"offsets of the deleted topic gone may be left in {OFFSETS}-0" in caplog.text
    errors: list[Exception] = []
    assert {group.group_id for group in read_groups(root, on_error=errors.append)} == {"b"}


@pytest.mark.parametrize("kind", [pytest.param("EIO", marks=pytest.mark.long), "ENOSPC", "EMFILE"])
def test_deletion_under_an_nth_call_that_fails_keeps_no_offset_of_a_topic_that_is_gone(
    root: Path, tmp_path: Path, kind: FaultKind
) -> None:
    failures = 0
    was_met = True
    for number in calls_of_a_deletion(root, tmp_path / "watched", kind):
        assert was_met, number
        copy, crashed = tmp_path / "copy", tmp_path / "crashed"
        for place in (copy, crashed):
            shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(root, copy)
        env = FaultyEnv()
        store = open_store(copy, "a", env=env)
        first = env.calls
        env.arm(Fault(number, kind, is_for_good=False))
        try:
            store.delete_topic("gone")
        except StorageError:
            failures += 1
        was_met = env.calls >= first + number
        env.heal()
        shutil.copytree(copy, crashed)
        (crashed / ".lock").unlink(missing_ok=True)
        try:
            store.close()
        except StorageError:
            assert failures
        for place in (copy, crashed):
            with open_store(place, "a") as again:
                has_topic = "gone" in again.topics
                if has_topic:
                    again.delete_topic("gone")
                again.create_topic("gone")
            assert offsets(place) == {"a": {KEPT}, "b": {KEPT}}
    assert failures
    assert not was_met


def test_records_of_no_group_are_left_alone(root: Path) -> None:
    with open_store(root, "a") as store:
        for key in (b"x", b"\0\1", b"\0\1\0\4gone", b"\0\2\0\4gone", b"\0\1\xff\xff\0\4gone"):
            store.log(OFFSETS).append(Record(timestamp_ms=1, key=key, value=b"v"))
        end = store.log(OFFSETS).log_end_offset
        store.delete_topic("gone")
        assert store.log(OFFSETS).log_end_offset == end + 2


def test_committed_offsets_of_a_group_are_its_own_and_follow_the_store(tmp_path: Path) -> None:
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("kept", 2)
        reader = CommittedOffsets(store, "a")
        assert (reader.partition, reader.current(), reader.pending()) == (None, {}, {})
        GroupOffsets(store, partition_count=1).commit("a", {KEPT: OffsetAndMetadata(7, "m")})
        assert reader.partition == TopicPartition(OFFSETS, 0)
        assert {name: committed.offset for name, committed in reader.current().items()} == {KEPT: 7}
        GroupOffsets(store, partition_count=1).commit("b", {KEPT: OffsetAndMetadata(8)})
        GroupOffsets(store, partition_count=1).commit("a", {KEPT: OffsetAndMetadata(9)})
        assert {name: committed.offset for name, committed in reader.current().items()} == {KEPT: 9}
        store.delete_topic(OFFSETS)
        assert reader.current() == {}
        store.create_topic(OFFSETS)
        assert reader.current() == {}


def test_offsets_of_an_undecided_transaction_are_pending(tmp_path: Path) -> None:
    """Producer id 0 is one like any other."""
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("kept")
        commits, reader = GroupOffsets(store, partition_count=1), CommittedOffsets(store, "a")
        commits.commit("a", {KEPT: OffsetAndMetadata(7)})
        commits.commit("a", {KEPT: OffsetAndMetadata(9)}, producer=ProducerIdAndEpoch(0, 0))
        assert [reader.current()[KEPT].offset, reader.pending()[KEPT].offset] == [7, 9]
