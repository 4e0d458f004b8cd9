"""Goal: the producers of a log, its open transactions and its snapshots follow appends, marks, truncation and reload.
Method: a manager over an empty directory driven step by step; snapshots damaged on disk; tables of offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV, LocalEnv
from kstore.errors import InvalidProducerEpochError, InvalidTxnStateError, OutOfOrderSequenceError, StorageError
from kstore.log.files.snapshots import ProducerSnapshotEntry, read_snapshot, write_snapshot
from kstore.log.state.producer_append import CompletedTransaction, ProducerStateBatch, TransactionMarker
from kstore.log.state.producer_state import LATE_TRANSACTION_BUFFER_MS, ProducerStateManager, VerificationGuard
from kstore.record import AppendOrigin
from kstore.types import TopicPartition
from tests.fakes.counting import CountingEnv
from tests.fakes.faults import Fault, FaultyEnv

TOPIC_PARTITION = TopicPartition("t", 0)
DAY_MS = 24 * 60 * 60 * 1000
NOW_MS = 1_700_000_000_000
# It is opened, its size is asked for, it is read, then synced.
_SYNC_OF_THE_ONE_THAT_STAYS = 4
CLIENT, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.REPLICATION


class RefusingEnv(CountingEnv):
    """Can refuse to remove."""

    is_read_only = False

    def unlink(self, path: str) -> bool:
        if self.is_read_only:
            raise StorageError(f"cannot remove {path}: read-only", path=path)
        return super().unlink(path)


@pytest.fixture
def env() -> RefusingEnv:
    return RefusingEnv()


@pytest.fixture
def manager(tmp_path: Path, env: RefusingEnv) -> ProducerStateManager:
    return manager_of(tmp_path, env)


def manager_of(
    directory: Path, env: LocalEnv = DEFAULT_ENV, *, requires_verification: bool = False
) -> ProducerStateManager:
    return ProducerStateManager(
        TOPIC_PARTITION,
        str(directory),
        config=LogConfig(),
        env=env,
        requires_verification=requires_verification,
    )


def batch(
    producer_id: int, offset: int, *, sequence: int | None = None, epoch: int = 0, transactional: bool = False
) -> ProducerStateBatch:
    """One record, whose sequence is its offset unless said."""
    sequence = offset if sequence is None else sequence
    return ProducerStateBatch(producer_id, epoch, sequence, offset, offset, NOW_MS + offset, transactional)


def data(producer_id: int, offset: int) -> ProducerStateBatch:
    return batch(producer_id, offset, transactional=True)


def end(producer_id: int, offset: int, *, epoch: int = 0, abort: bool = False) -> ProducerStateBatch:
    content = TransactionMarker(abort, 0, NOW_MS + offset)
    return ProducerStateBatch(producer_id, epoch, -1, offset, offset, NOW_MS + offset, True, True, content)


def append(
    manager: ProducerStateManager, *batches: ProducerStateBatch, origin: AppendOrigin = REPLICATION
) -> list[CompletedTransaction]:
    prepared = manager.analyze(batches, origin=origin)
    assert prepared.duplicate is None
    completed = manager.commit(prepared)
    manager.update_map_end_offset(batches[-1].last_offset + 1)
    return completed


def file_names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def snapshot_names(*offsets: int) -> list[str]:
    return [f"{offset:020d}.snapshot" for offset in offsets]


def empty_snapshots(directory: Path, *offsets: int) -> None:
    for offset in offsets:
        write_snapshot(str(directory / f"{offset:020d}.snapshot"), [])


def test_analyze_changes_nothing(manager: ProducerStateManager) -> None:
    append(manager, data(1, 0))
    prepared = manager.analyze([data(1, 1), data(2, 2), end(1, 3)], origin=CLIENT)
    entry = manager.entry(1)
    assert entry is not None
    assert (len(manager), entry.last_sequence, manager.first_unstable_offset) == (1, 0, 0)
    manager.commit(prepared)
    assert len(manager) == 2
    assert manager.first_unstable_offset == 0
    manager.on_high_watermark(4)
    assert manager.first_unstable_offset == 2


def test_refused_append_changes_nothing(manager: ProducerStateManager) -> None:
    append(manager, batch(1, 0), origin=CLIENT)
    with pytest.raises(OutOfOrderSequenceError):
        manager.analyze([batch(1, 1), batch(1, 2, sequence=5)], origin=CLIENT)
    append(manager, batch(1, 1), origin=CLIENT)
    assert manager.active_producers[1].last_sequence == 1


def test_batches_without_a_producer_leave_nothing(manager: ProducerStateManager) -> None:
    append(manager, batch(-1, 0), batch(-1, 1), origin=CLIENT)
    assert manager.replay(batch(-1, 2)) is None
    assert len(manager) == 0


@pytest.mark.parametrize("offset", range(2, 7))
def test_batch_sent_again_is_answered_by_its_first_place(manager: ProducerStateManager, offset: int) -> None:
    for number in range(7):
        append(manager, batch(1, number), origin=CLIENT)
    prepared = manager.analyze([batch(1, 50, sequence=offset)], origin=CLIENT)
    assert prepared.duplicate is not None
    assert (prepared.duplicate.first_offset, prepared.duplicate.timestamp_ms) == (offset, NOW_MS + offset)


def test_batch_that_was_forgotten_is_out_of_order(manager: ProducerStateManager) -> None:
    for number in range(7):
        append(manager, batch(1, number), origin=CLIENT)
    with pytest.raises(OutOfOrderSequenceError):
        manager.analyze([batch(1, 50, sequence=1)], origin=CLIENT)


def test_replicated_batch_is_never_a_duplicate(manager: ProducerStateManager) -> None:
    append(manager, batch(1, 0))
    append(manager, batch(1, 1, sequence=0))
    assert manager.active_producers[1].batches[-1].last_offset == 1


def test_transaction_is_open_until_its_marker_is_below_the_high_watermark(manager: ProducerStateManager) -> None:
    append(manager, data(1, 10))
    assert manager.first_unstable_offset == 10
    assert append(manager, end(1, 11, abort=True)) == [CompletedTransaction(1, 10, 11, True, 12)]
    for high_watermark, unstable in ((11, 10), (12, None)):
        manager.on_high_watermark(high_watermark)
        assert manager.first_unstable_offset == unstable


@pytest.mark.parametrize("ended", [(1, 2, 3), (3, 2, 1), (2, 1, 3), (2, 3, 1), (3, 1, 2)])
def test_least_start_of_all_that_is_undecided_or_not_replicated_is_unstable_in_whatever_order_they_end(
    manager: ProducerStateManager, ended: tuple[int, ...]
) -> None:
    """Of the transactions that start at 10, 20 and 30 one after another ends; no marker is replicated until then."""
    append(manager, *(data(number, 10 * number) for number in (1, 2, 3)))
    for at, number in enumerate(ended):
        append(manager, end(number, 40 + at))
        assert manager.first_unstable_offset == 10
    for at, number in enumerate(ended):
        manager.on_high_watermark(41 + at)
        left = [10 * later for later in ended[at + 1 :]]
        assert manager.first_unstable_offset == min(left, default=None), number


def test_open_transaction_that_starts_below_an_ended_one_is_the_unstable_one(manager: ProducerStateManager) -> None:
    append(manager, data(1, 10), data(2, 20))
    append(manager, end(2, 30))
    assert manager.first_unstable_offset == 10
    manager.on_high_watermark(31)
    assert manager.first_unstable_offset == 10


def test_ended_transaction_that_starts_below_an_open_one_is_the_unstable_one_until_it_is_replicated(
    manager: ProducerStateManager,
) -> None:
    append(manager, data(1, 10), data(2, 20))
    append(manager, end(1, 30))
    assert manager.first_unstable_offset == 10
    manager.on_high_watermark(31)
    assert manager.first_unstable_offset == 20


def test_log_is_late_if_the_transaction_with_the_oldest_record_is_whichever_started_first(
    manager: ProducerStateManager,
) -> None:
    """Producer 1 starts first and writes last."""
    append(manager, data(1, 0), data(2, 1), batch(1, 2, transactional=True, sequence=1))
    limit_ms = 60_000 + 5 * 60_000
    assert manager.has_late_transaction(NOW_MS + 1 + limit_ms + 1, max_transaction_timeout_ms=60_000)
    assert not manager.has_late_transaction(NOW_MS + 1 + limit_ms, max_transaction_timeout_ms=60_000)


def test_last_stable_offset_of_an_abort_is_where_another_transaction_starts(manager: ProducerStateManager) -> None:
    append(manager, data(1, 10))
    append(manager, data(2, 20))
    append(manager, data(3, 30))
    (first,) = append(manager, end(2, 40, abort=True))
    assert first == CompletedTransaction(2, 20, 40, True, 10)
    (second,) = append(manager, end(1, 41, abort=True))
    assert second.last_stable_offset == 30
    (third,) = append(manager, end(3, 42))
    assert third == CompletedTransaction(3, 30, 42, False, 43)


def test_transactions_within_one_append_end_one_by_one(manager: ProducerStateManager) -> None:
    completed = append(manager, data(1, 0), end(1, 1), data(1, 2), data(2, 3), end(2, 4, abort=True))
    assert completed == [CompletedTransaction(1, 0, 1, False, 3), CompletedTransaction(2, 3, 4, True, 2)]
    manager.on_high_watermark(5)
    assert manager.first_unstable_offset == 2


LAST_STABLE = [
    pytest.param(None, 50, 0, 50, id="nothing-open"),
    pytest.param(20, 50, 0, 20, id="open"),
    pytest.param(20, 15, 0, 15, id="open-above-the-high-watermark"),
    pytest.param(20, 50, 30, 30, id="log-start-above"),
    pytest.param(None, 50, 60, 60, id="log-start-above-all"),
]


@pytest.mark.parametrize(("opened", "high_watermark", "log_start_offset", "expected"), LAST_STABLE)
def test_last_stable_offset(
    manager: ProducerStateManager, opened: int | None, high_watermark: int, log_start_offset: int, expected: int
) -> None:
    if opened is not None:
        append(manager, data(1, opened))
    found = manager.last_stable_offset(high_watermark=high_watermark, log_start_offset=log_start_offset)
    assert found == expected


def test_replay_gives_what_the_appends_gave(tmp_path: Path) -> None:
    batches = [data(2, 0), data(1, 1), batch(7, 2), end(2, 3, abort=True), data(2, 4), end(1, 5), batch(7, 6)]
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    live, replayed = manager_of(tmp_path / "one"), manager_of(tmp_path / "other")
    of_live = [completed for one in batches for completed in append(live, one)]
    of_replay = [completed for one in batches if (completed := replayed.replay(one)) is not None]
    assert of_live == of_replay
    assert live.snapshot_entries() == replayed.snapshot_entries()
    assert live.first_unstable_offset == replayed.first_unstable_offset == 0


def test_replay_of_falling_offsets_still_knows_the_lowest_open_one(manager: ProducerStateManager) -> None:
    manager.replay(data(1, 30))
    manager.replay(data(2, 10))
    assert manager.first_unstable_offset == 10


def test_snapshot_is_taken_once_for_an_offset(manager: ProducerStateManager, tmp_path: Path) -> None:
    assert manager.take_snapshot() is None
    append(manager, batch(17, 0), batch(1, 1), batch(5, 2))
    path = manager.take_snapshot()
    assert path == str(tmp_path / "00000000000000000003.snapshot")
    # 1 and 17 share a bucket, to which Kafka adds the producers of one append from the front.
    assert [entry.producer_id for entry in read_snapshot(path)] == [1, 17, 5]
    assert manager.take_snapshot() is None
    append(manager, batch(-1, 3))
    manager.take_snapshot()
    assert list(manager.snapshot_offsets) == [3, 4]
    assert file_names(tmp_path) == snapshot_names(3, 4)


def test_reload_goes_on_from_the_newest_snapshot(manager: ProducerStateManager, tmp_path: Path) -> None:
    append(manager, batch(1, 0), data(2, 1))
    manager.take_snapshot()
    append(manager, data(3, 2), end(2, 3))
    reloaded = manager_of(tmp_path)
    reloaded.truncate_and_reload(log_start_offset=0, log_end_offset=4, now_ms=NOW_MS)
    assert reloaded.map_end_offset == 2
    assert reloaded.first_unstable_offset == 0
    assert list(reloaded.active_producers) == [1, 2]
    for replayed in (data(3, 2), end(2, 3)):
        reloaded.replay(replayed)
    reloaded.update_map_end_offset(4)
    assert reloaded.snapshot_entries() == manager.snapshot_entries()
    assert reloaded.first_unstable_offset == manager.first_unstable_offset


def test_open_transactions_of_a_snapshot_are_in_the_order_of_their_offsets(tmp_path: Path) -> None:
    entries = [ProducerSnapshotEntry(producer, 0, 0, 9, 0, NOW_MS, -1, 9 - producer) for producer in (1, 2, 3)]
    write_snapshot(str(tmp_path / "00000000000000000010.snapshot"), entries)
    manager = manager_of(tmp_path)
    manager.truncate_and_reload(log_start_offset=0, log_end_offset=10, now_ms=NOW_MS)
    assert manager.first_unstable_offset == 6
    completed = manager.replay(end(3, 10))
    assert completed is not None
    assert completed.last_stable_offset == 7


def test_snapshots_outside_of_the_log_are_removed_for_good(tmp_path: Path, env: RefusingEnv) -> None:
    empty_snapshots(tmp_path, 5, 10, 11, 20, 21)
    manager = manager_of(tmp_path, env)
    manager.truncate_and_reload(log_start_offset=10, log_end_offset=20, now_ms=NOW_MS)
    assert file_names(tmp_path) == snapshot_names(11, 20)
    assert env.directory_syncs == 1
    assert manager.map_end_offset == 20


def at_5(directory: Path, env: LocalEnv) -> ProducerStateManager:
    """The state below 5, from the snapshot there; of others at 3, 8 and 9 that at 8 is to be taken again."""
    empty_snapshots(directory, 3, 5, 8, 9)
    manager = manager_of(directory, env)
    manager.truncate_and_reload(log_start_offset=4, log_end_offset=5, now_ms=NOW_MS, retaken={3, 8})
    assert manager.map_end_offset == 5
    assert file_names(directory) == snapshot_names(5, 8)
    return manager


def test_snapshot_that_is_taken_again_with_the_same_content_stays_and_is_synced(tmp_path: Path) -> None:
    env = FaultyEnv()
    manager = at_5(tmp_path, env)
    path = tmp_path / snapshot_names(8)[0]
    before = path.stat()
    env.watch("EIO")
    manager.update_map_end_offset(8)
    assert manager.take_snapshot() == str(path)
    assert path.stat() == before
    assert env.watched("sync") == [path.name]
    assert manager.snapshot_offsets == (5, 8)
    assert manager.take_snapshot() is None


@pytest.mark.parametrize("producer_id", [1, None])
def test_snapshot_that_is_taken_again_with_other_content_is_replaced(tmp_path: Path, producer_id: int | None) -> None:
    manager = at_5(tmp_path, LocalEnv())
    path = tmp_path / snapshot_names(8)[0]
    if producer_id is None:
        path.write_bytes(bytes(path.stat().st_size))
    else:
        append(manager, batch(producer_id, 7))
    manager.update_map_end_offset(8)
    manager.take_snapshot()
    expected = [] if producer_id is None else [producer_id]
    assert [one.producer_id for one in read_snapshot(str(path))] == expected


@pytest.mark.parametrize("is_for_good", [False, True])
def test_snapshot_that_stays_and_can_not_be_synced_is_written_again(tmp_path: Path, is_for_good: bool) -> None:
    env = FaultyEnv()
    manager = at_5(tmp_path, env)
    path = tmp_path / snapshot_names(8)[0]
    before = path.stat()
    manager.update_map_end_offset(8)
    env.watch("EIO")
    env.arm(Fault(_SYNC_OF_THE_ONE_THAT_STAYS, "EIO", is_for_good=is_for_good))
    if is_for_good:
        with pytest.raises(StorageError):
            manager.take_snapshot()
        return
    manager.take_snapshot()
    assert env.has_failed
    assert path.stat().st_ino != before.st_ino
    assert read_snapshot(str(path)) == []


def test_log_start_does_not_make_a_snapshot_above_the_log_end_the_last_one(tmp_path: Path) -> None:
    manager = at_5(tmp_path, LocalEnv())
    manager.truncate_and_reload(log_start_offset=4, log_end_offset=5, now_ms=NOW_MS, retaken={8})
    manager.update_map_end_offset(7)
    assert manager.take_snapshot() == str(tmp_path / snapshot_names(7)[0])


def test_state_at_the_log_end_is_kept(manager: ProducerStateManager) -> None:
    append(manager, data(1, 0), end(1, 1))
    manager.truncate_and_reload(log_start_offset=0, log_end_offset=2, now_ms=NOW_MS + 9 * DAY_MS)
    assert len(manager) == 1
    assert manager.first_unstable_offset == 0


def test_truncation_without_a_snapshot_starts_empty(manager: ProducerStateManager) -> None:
    append(manager, data(1, 7))
    manager.truncate_and_reload(log_start_offset=3, log_end_offset=5, now_ms=NOW_MS)
    assert (len(manager), manager.map_end_offset, manager.first_unstable_offset) == (0, 3, 3)
    manager.update_map_end_offset(5)
    assert manager.first_unstable_offset is None


@pytest.mark.parametrize("content", [b"", b"\0" * 56, b"\0\1"], ids=["empty", "zeros", "short"])
def test_damaged_snapshot_gives_way_to_the_one_before(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    empty_snapshots(tmp_path, 5)
    (tmp_path / "00000000000000000009.snapshot").write_bytes(content)
    manager = manager_of(tmp_path)
    with caplog.at_level("WARNING", logger="kstore.log"):
        manager.truncate_and_reload(log_start_offset=0, log_end_offset=9, now_ms=NOW_MS)
    assert manager.map_end_offset == 5
    assert file_names(tmp_path) == snapshot_names(5)
    assert "continuing with an older snapshot" in caplog.text


def test_producer_expires_a_day_after_its_last_record(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    append(manager, batch(1, 0), data(2, 1), batch(3, 2))
    manager.take_snapshot()
    reloaded = manager_of(tmp_path)
    reloaded.truncate_and_reload(log_start_offset=0, log_end_offset=3, now_ms=NOW_MS + DAY_MS + 1)
    assert list(reloaded.active_producers) == [2, 3]
    assert manager.remove_expired_producers(NOW_MS + DAY_MS - 1) == 0
    assert manager.remove_expired_producers(NOW_MS + DAY_MS) == 1
    assert manager.remove_expired_producers(NOW_MS + 9 * DAY_MS) == 1
    assert list(manager.active_producers) == [2]


def test_order_of_a_snapshot_remembers_how_many_there_were(manager: ProducerStateManager) -> None:
    append(manager, *(batch(producer, producer) for producer in range(13)))
    manager.remove_expired_producers(NOW_MS + 9 * DAY_MS)
    append(manager, batch(17, 20), batch(1, 21), batch(33, 22))
    # In 32 buckets 17 no longer shares that of 1 and 33.
    assert [entry.producer_id for entry in manager.snapshot_entries()] == [33, 1, 17]


def test_log_start_forgets_decided_transactions_and_keeps_producers(manager: ProducerStateManager) -> None:
    append(manager, data(1, 0), end(1, 1), data(2, 2))
    manager.on_log_start_offset_incremented(1)
    assert manager.first_unstable_offset == 0
    manager.on_log_start_offset_incremented(2)
    assert manager.first_unstable_offset == 2
    assert (len(manager), manager.map_end_offset) == (2, 3)
    manager.on_log_start_offset_incremented(9)
    assert manager.map_end_offset == 9
    assert manager.take_snapshot() is None


def test_full_truncation_leaves_nothing(manager: ProducerStateManager, tmp_path: Path) -> None:
    append(manager, data(1, 0))
    manager.take_snapshot()
    manager.truncate_fully_and_start_at(50)
    assert (len(manager), manager.map_end_offset, manager.first_unstable_offset) == (0, 50, None)
    assert file_names(tmp_path) == []
    assert manager.take_snapshot() == str(tmp_path / "00000000000000000050.snapshot")


STRAYS = [
    pytest.param([0, 5, 9], [5, 9], [5, 9], id="none"),
    pytest.param([0, 5, 9], [5, 7, 9], [5, 9], id="below-the-last-base"),
    pytest.param([0, 5, 9], [3, 5, 9, 12], [5, 9, 12], id="above-all-bases-stays"),
    pytest.param([0, 5], [2, 7, 12], [12], id="only-the-largest-stays"),
    pytest.param([], [2, 7], [7], id="no-segment"),
]


@pytest.mark.parametrize(("bases", "offsets", "left"), STRAYS)
def test_stray_snapshots_are_removed(tmp_path: Path, bases: list[int], offsets: list[int], left: list[int]) -> None:
    empty_snapshots(tmp_path, *offsets)
    manager_of(tmp_path).remove_stray_snapshots(bases)
    assert file_names(tmp_path) == snapshot_names(*left)


def test_snapshots_go_with_their_segments(tmp_path: Path) -> None:
    empty_snapshots(tmp_path, 3, 5, 8)
    (tmp_path / "00000000000000000003.snapshot.deleted").touch()
    manager = manager_of(tmp_path)
    manager.delete_snapshots_before(5)
    assert list(manager.snapshot_offsets) == [5, 8]
    assert file_names(tmp_path) == ["00000000000000000003.snapshot.deleted", *snapshot_names(5, 8)]


@pytest.mark.parametrize("markers", [{1: 5, 2: 40}, {2: 40, 1: 5}])
def test_snapshots_with_an_open_transaction_go_whose_marker_is_gone_whichever_was_noted_first(
    tmp_path: Path, markers: dict[int, int]
) -> None:
    manager = manager_of(tmp_path)
    append(manager, data(2, 10))
    manager.take_snapshot()
    manager.delete_snapshots_with_open(markers)
    assert file_names(tmp_path) == []


def test_snapshot_that_can_not_be_removed_is_still_known(tmp_path: Path, env: RefusingEnv) -> None:
    empty_snapshots(tmp_path, 3)
    manager = manager_of(tmp_path, env)
    env.is_read_only = True
    with pytest.raises(StorageError):
        manager.delete_snapshots_before(4)
    assert list(manager.snapshot_offsets) == [3]


@pytest.mark.parametrize(("open_ms", "is_late"), [(60_000, False), (60_000 + LATE_TRANSACTION_BUFFER_MS + 1, True)])
def test_transaction_is_late_after_its_timeout_and_a_buffer(
    manager: ProducerStateManager, open_ms: int, is_late: bool
) -> None:
    assert not manager.has_late_transaction(NOW_MS * 2, max_transaction_timeout_ms=60_000)
    append(manager, data(1, 0))
    assert manager.has_late_transaction(NOW_MS + open_ms, max_transaction_timeout_ms=60_000) is is_late


def test_first_transactional_batch_has_to_be_verified(tmp_path: Path) -> None:
    manager = manager_of(tmp_path, requires_verification=True)
    for guard in (None, VerificationGuard()):
        with pytest.raises(InvalidTxnStateError, match="neither open nor verified"):
            manager.analyze([data(1, 0)], origin=CLIENT, verification_guard=guard)
    guard = manager.start_verification(1, producer_epoch=0, sequence=0, now_ms=NOW_MS)
    assert guard is manager.start_verification(1, producer_epoch=0, sequence=3, now_ms=NOW_MS)
    assert guard is not None
    manager.commit(manager.analyze([data(1, 0)], origin=CLIENT, verification_guard=guard))
    assert manager.start_verification(1, producer_epoch=0, sequence=1, now_ms=NOW_MS) is None
    append(manager, data(1, 1), origin=CLIENT)
    append(manager, end(1, 2), origin=AppendOrigin.COORDINATOR)
    with pytest.raises(InvalidTxnStateError):
        manager.analyze([batch(1, 3, sequence=2, transactional=True)], origin=CLIENT, verification_guard=guard)


@pytest.mark.parametrize("origin", [REPLICATION, AppendOrigin.RAFT_LEADER])
def test_what_a_leader_took_needs_no_verification(tmp_path: Path, origin: AppendOrigin) -> None:
    manager = manager_of(tmp_path, requires_verification=True)
    append(manager, data(1, 0), origin=origin)
    assert manager.first_unstable_offset == 0


VERIFIED_SEQUENCES = [
    pytest.param([(0, 5), (0, 3), (0, 4)], 3, True, id="lowest"),
    pytest.param([(0, 5), (0, 3), (0, 4)], 4, False, id="above-the-lowest"),
    pytest.param([(0, 0), (1, 5)], 5, True, id="newer-epoch-starts-over"),
    pytest.param([(1, 5), (0, 0)], 5, True, id="older-epoch-counts-for-nothing"),
]


@pytest.mark.parametrize(("seen", "sequence", "is_taken"), VERIFIED_SEQUENCES)
def test_sequence_above_the_lowest_of_a_verification_is_refused(
    manager: ProducerStateManager, seen: list[tuple[int, int]], sequence: int, is_taken: bool
) -> None:
    for epoch, lowest in seen:
        manager.start_verification(1, producer_epoch=epoch, sequence=lowest, now_ms=NOW_MS)
    sent = [batch(1, 0, sequence=sequence, epoch=1, transactional=True)]
    if is_taken:
        manager.commit(manager.analyze(sent, origin=CLIENT))
    else:
        with pytest.raises(OutOfOrderSequenceError, match="lowest"):
            manager.analyze(sent, origin=CLIENT)


def test_verification_expires_with_the_producers(tmp_path: Path) -> None:
    manager = manager_of(tmp_path, requires_verification=True)
    guard = manager.start_verification(1, producer_epoch=0, sequence=0, now_ms=NOW_MS)
    manager.remove_expired_producers(NOW_MS + DAY_MS)
    with pytest.raises(InvalidTxnStateError):
        manager.analyze([data(1, 0)], origin=CLIENT, verification_guard=guard)


def test_marker_takes_the_guard_of_a_transaction_that_never_began(tmp_path: Path) -> None:
    manager = manager_of(tmp_path, requires_verification=True)
    guard = manager.start_verification(1, producer_epoch=0, sequence=0, now_ms=NOW_MS)
    append(manager, end(1, 0, abort=True), origin=AppendOrigin.COORDINATOR)
    with pytest.raises(InvalidTxnStateError):
        manager.analyze([batch(1, 1, sequence=0, transactional=True)], origin=CLIENT, verification_guard=guard)


def start(manager: ProducerStateManager, *, epoch: int = 0, sequence: int = 0, bumps: bool = True) -> VerificationGuard:
    guard = manager.start_verification(
        1, producer_epoch=epoch, sequence=sequence, now_ms=NOW_MS, supports_epoch_bump=bumps
    )
    assert guard is not None
    return guard


@pytest.mark.parametrize("bumps", [True, False], ids=["epoch-bumps", "one-epoch"])
@pytest.mark.parametrize("is_known", [True, False], ids=["by-a-marker", "unknown"])
def test_new_producer_with_epoch_bumps_starts_at_sequence_0(
    manager: ProducerStateManager, bumps: bool, is_known: bool
) -> None:
    if is_known:
        append(manager, end(1, 0, epoch=1), origin=AppendOrigin.COORDINATOR)
    start(manager, epoch=2, sequence=7, bumps=bumps)
    sent = [batch(1, 1, sequence=7, epoch=2, transactional=True)]
    if bumps:
        with pytest.raises(OutOfOrderSequenceError, match="expected sequence 0, because no batch"):
            manager.analyze(sent, origin=CLIENT)
    elif is_known:
        with pytest.raises(OutOfOrderSequenceError, match="0 in a new epoch"):
            manager.analyze(sent, origin=CLIENT)
    else:
        manager.analyze(sent, origin=CLIENT)
    manager.analyze([batch(1, 1, sequence=0, epoch=2, transactional=True)], origin=CLIENT)


@pytest.mark.parametrize(("bumps", "marker_epoch", "stays"), [(True, 2, True), (True, 3, False), (False, 2, False)])
def test_marker_of_the_transaction_before_leaves_the_guard_of_a_bumped_epoch(
    tmp_path: Path, bumps: bool, marker_epoch: int, stays: bool
) -> None:
    manager = manager_of(tmp_path, requires_verification=True)
    guard = start(manager, epoch=2, bumps=bumps)
    append(manager, end(1, 0, epoch=marker_epoch), origin=AppendOrigin.COORDINATOR)
    sent = [batch(1, 1, sequence=0, epoch=marker_epoch, transactional=True)]
    if stays:
        manager.commit(manager.analyze(sent, origin=CLIENT, verification_guard=guard))
        assert manager.first_unstable_offset == 1
    else:
        with pytest.raises(InvalidTxnStateError):
            manager.analyze(sent, origin=CLIENT, verification_guard=guard)


def test_stale_epoch_is_named_before_the_missing_verification(tmp_path: Path) -> None:
    manager = manager_of(tmp_path, requires_verification=True)
    append(manager, end(1, 0, epoch=2), origin=AppendOrigin.COORDINATOR)
    with pytest.raises(InvalidProducerEpochError, match="at least 2, found 1"):
        manager.analyze([batch(1, 1, sequence=0, epoch=1, transactional=True)], origin=CLIENT)
    with pytest.raises(InvalidProducerEpochError, match="at least 2, found 1"):
        start(manager, epoch=1)


def test_replay_of_a_transaction_ends_its_verification(tmp_path: Path) -> None:
    manager = manager_of(tmp_path, requires_verification=True)
    guard = start(manager, bumps=False)
    manager.replay(data(1, 0))
    manager.replay(end(1, 1))
    with pytest.raises(InvalidTxnStateError):
        manager.analyze([batch(1, 2, sequence=1, transactional=True)], origin=CLIENT, verification_guard=guard)
