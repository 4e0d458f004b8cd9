"""Goal: verify names each side file that contradicts the log, and no file that the log merely can't confirm.
Method: a log of two segments with transactions and its right side files, then one wrong thing at a time."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kstore.env import FileStatus, LocalEnv, LocalFile
from kstore.log.files.snapshots import ProducerSnapshotEntry, encode_snapshot
from kstore.log.verify import verify
from kstore.store.opening import open_log
from tests.making.batches import batch, flip_bit, patch_header, write_offset_checkpoint, write_partition
from tests.reference.codec import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    write_checkpoint,
    write_empty_batch,
    write_end_transaction_marker,
)

LATER_SEGMENT = 10
TXN_INDEX = f"{0:020d}.txnindex"
LATER_TXN_INDEX = f"{LATER_SEGMENT:020d}.txnindex"
SNAPSHOT = f"{LATER_SEGMENT:020d}.snapshot"
LAST_SNAPSHOT = f"{20:020d}.snapshot"
EPOCHS = "leader-epoch-checkpoint"
LOG = f"{LATER_SEGMENT:020d}.log"

Damages = list[tuple[str, int, int]]


def data(offset: int, *, producer_id: int, sequence: int, epoch: int = 0) -> bytes:
    """Two records of a transaction."""
    return batch(
        offset,
        2,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
        partition_leader_epoch=epoch,
    )


def marker(offset: int, *, producer_id: int, commit: bool, epoch: int = 0) -> bytes:
    written = write_end_transaction_marker(
        offset, timestamp_ms=offset, producer_id=producer_id, producer_epoch=0, commit=commit
    )
    return patch_header(written, partition_leader_epoch=epoch)


# Producer 1 aborts at 4 what it wrote from 0 on, 2 commits at 5; 2 aborts at 12 what it wrote from 6 on.
SEGMENTS = [
    [
        data(0, producer_id=1, sequence=0),
        data(2, producer_id=2, sequence=0),
        marker(4, producer_id=1, commit=False),
        marker(5, producer_id=2, commit=True),
        data(6, producer_id=2, sequence=2),
        batch(8, 2),
    ],
    [
        data(10, producer_id=2, sequence=4, epoch=3),
        marker(12, producer_id=2, commit=False, epoch=3),
        batch(13, 7, partition_leader_epoch=3),
    ],
]
ABORTED = (1, 0, 4, 2)
LATER_ABORTED = (2, 6, 12, 13)
PRODUCERS = [
    ProducerSnapshotEntry(1, 0, 1, 1, 1, 4, 0, -1),
    ProducerSnapshotEntry(2, 0, 3, 7, 1, 7, 0, 6),
]
LAST_PRODUCERS = [PRODUCERS[0], ProducerSnapshotEntry(2, 0, 5, 11, 1, 12, 0, -1)]


def txn_index(*entries: tuple[int, int, int, int], version: int = 0) -> bytes:
    return b"".join(struct.pack(">hqqqq", version, *entry) for entry in entries)


def epochs(*entries: tuple[int, int]) -> bytes:
    return write_checkpoint(entries).encode()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = write_partition(tmp_path, SEGMENTS, leader_epochs=((0, 0), (3, 10)))
    (path / TXN_INDEX).write_bytes(txn_index(ABORTED))
    (path / LATER_TXN_INDEX).write_bytes(txn_index(LATER_ABORTED))
    (path / SNAPSHOT).write_bytes(encode_snapshot(PRODUCERS))
    (path / LAST_SNAPSHOT).write_bytes(encode_snapshot(LAST_PRODUCERS))
    return path


def damages(directory: Path, *, deep: bool = True) -> Damages:
    with open_log(directory) as log:
        return [(Path(path).name, position, size) for path, position, size, _ in verify(log, deep=deep)]


def reasons(directory: Path) -> list[str]:
    with open_log(directory) as log:
        return [damage.reason for damage in verify(log)]


def producers(slot: int, **fields: int) -> bytes:
    changed = list(PRODUCERS)
    changed[slot] = changed[slot]._replace(**fields)
    return encode_snapshot(changed)


def test_right_side_files_are_no_damage(directory: Path) -> None:
    assert damages(directory) == []


WRONG = [
    pytest.param(TXN_INDEX, txn_index(ABORTED)[:-1], 0, 33, "size of an entry", id="txnindex-cut"),
    pytest.param(TXN_INDEX, txn_index(ABORTED) + b"\0", 34, 1, "size of an entry", id="txnindex-a-byte-more"),
    pytest.param(TXN_INDEX, txn_index(ABORTED, version=1), 0, 34, "version", id="txnindex-version"),
    pytest.param(TXN_INDEX, txn_index(ABORTED, ABORTED), 34, 34, "last offset", id="txnindex-twice"),
    pytest.param(
        TXN_INDEX,
        b"",
        0,
        0,
        "no entry of the transaction of producer 1 that was aborted at offset 4",
        id="txnindex-empty",
    ),
    pytest.param(TXN_INDEX, txn_index(ABORTED, (2, 2, 5, 6)), 34, 34, "that was committed", id="txnindex-commit"),
    pytest.param(TXN_INDEX, txn_index(ABORTED, (2, 2, 15, 6)), 34, 34, "after the last batch", id="txnindex-behind"),
    pytest.param(TXN_INDEX, txn_index((7, 0, 4, 2)), 0, 34, "expected producer 1", id="txnindex-producer"),
    pytest.param(TXN_INDEX, txn_index((1, 1, 4, 2)), 0, 34, "from offset 0 or below", id="txnindex-first-offset"),
    pytest.param(TXN_INDEX, txn_index((1, 0, 4, 999)), 0, 34, "above the log end", id="txnindex-last-stable-offset"),
    pytest.param(SNAPSHOT, b"", 0, 0, "size of the file", id="snapshot-empty"),
    pytest.param(SNAPSHOT, encode_snapshot(PRODUCERS)[:-1], 2, 99, "CRC", id="snapshot-cut"),
    pytest.param(
        SNAPSHOT, producers(1, last_offset=10), 56, 46, "last offset of producer 2", id="snapshot-last-offset"
    ),
    pytest.param(
        SNAPSHOT, producers(0, current_txn_first_offset=10), 10, 46, "open transaction", id="snapshot-transaction"
    ),
    pytest.param(SNAPSHOT, producers(0, offset_delta=-1), 10, 46, "offset delta of -1", id="snapshot-delta"),
    pytest.param(
        SNAPSHOT,
        producers(0, last_sequence=2),
        10,
        46,
        "sequence 1, as in the log, found 1, 0, 2",
        id="snapshot-sequence",
    ),
    pytest.param(SNAPSHOT, producers(0, producer_id=9), 10, 46, "expected producer 1", id="snapshot-producer"),
    pytest.param(SNAPSHOT, producers(0, producer_epoch=1), 10, 46, "found 1, 1, 1", id="snapshot-epoch"),
    pytest.param(EPOCHS, b"0\n1\nx 0\n", 0, 8, "line 3", id="epochs-malformed"),
    pytest.param(EPOCHS, epochs((3, 0), (0, 10)), 0, 13, "do not increase", id="epochs-falling"),
    pytest.param(EPOCHS, epochs((0, 10), (3, 10)), 0, 14, "do not increase", id="epochs-at-one-offset"),
    pytest.param("partition.metadata", b"version: 0\n", 0, 11, "", id="topic-id"),
]


@pytest.mark.parametrize(("name", "content", "position", "size", "reason"), WRONG)
def test_wrong_side_file_is_named(
    directory: Path, name: str, content: bytes, position: int, size: int, reason: str
) -> None:
    (directory / name).write_bytes(content)
    assert damages(directory) == [(name, position, size)]
    assert reason in reasons(directory)[0]


def test_first_offset_above_its_marker_is_named(directory: Path) -> None:
    (directory / TXN_INDEX).write_bytes(txn_index((1, 5, 4, 5)))
    assert reasons(directory)[0] == "first offset 5 above the marker"


def test_follower_s_last_stable_offset_may_lie_where_a_later_transaction_begins(directory: Path) -> None:
    (directory / TXN_INDEX).write_bytes(txn_index((1, 0, 4, 6)))
    assert damages(directory) == []


def test_missing_transaction_index_is_named_where_it_hides_an_abort(directory: Path) -> None:
    (directory / LATER_TXN_INDEX).unlink()
    assert damages(directory) == [(LATER_TXN_INDEX, 0, 0)]


@pytest.mark.parametrize("name", [SNAPSHOT, LAST_SNAPSHOT, EPOCHS, "partition.metadata"])
def test_other_missing_files_are_no_damage(directory: Path, name: str) -> None:
    (directory / name).unlink()
    assert damages(directory) == []


def test_batches_of_another_leader_epoch_are_one_range(directory: Path) -> None:
    (directory / EPOCHS).write_bytes(epochs((0, 0), (2, 10)))
    size = (directory / LOG).stat().st_size
    assert damages(directory) == [(LOG, 0, size)]
    assert reasons(directory) == ["leader epoch: by leader-epoch-checkpoint 2, found 3"]


def test_flipped_bit_of_a_leader_epoch_is_found_though_no_crc_covers_it(directory: Path) -> None:
    start = len(SEGMENTS[1][0]) + len(SEGMENTS[1][1])
    flip_bit(directory / LOG, start + 15, bit=2)
    assert damages(directory) == [(LOG, start, len(SEGMENTS[1][2]))]


def test_snapshot_above_the_log_end_is_named(directory: Path) -> None:
    (directory / LAST_SNAPSHOT).rename(directory / f"{21:020d}.snapshot")
    assert damages(directory) == [(f"{21:020d}.snapshot", 0, 102)]


def test_entry_that_is_in_several_snapshots_is_named_once(directory: Path) -> None:
    wrong = PRODUCERS[0]._replace(last_sequence=7)
    for name, others in ((SNAPSHOT, PRODUCERS[1:]), (LAST_SNAPSHOT, LAST_PRODUCERS[1:])):
        (directory / name).write_bytes(encode_snapshot([wrong, *others]))
    assert damages(directory) == [(SNAPSHOT, 10, 46)]


def test_damage_in_the_log_is_not_charged_to_the_side_files(directory: Path) -> None:
    path = directory / f"{0:020d}.log"
    flip_bit(path, 70, bit=0)
    (directory / TXN_INDEX).unlink()
    assert damages(directory) == [(path.name, 0, len(SEGMENTS[0][0]))]


def test_what_the_cleaner_removed_confirms_and_refutes_nothing(tmp_path: Path) -> None:
    emptied = write_empty_batch(4, last_offset=4, max_timestamp_ms=7)
    path = write_partition(tmp_path, [[emptied, batch(8, 2)], []])
    (path / TXN_INDEX).write_bytes(txn_index(ABORTED))
    (path / SNAPSHOT).write_bytes(encode_snapshot(PRODUCERS))
    assert damages(path) == []


def test_log_that_starts_inside_a_transaction_is_no_damage(directory: Path) -> None:
    for name in (f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex")):
        (directory / name).unlink()
    (directory / EPOCHS).write_bytes(epochs((3, 10)))
    assert damages(directory) == []


def test_file_that_can_not_be_read_is_named(directory: Path) -> None:
    (directory / TXN_INDEX).unlink()
    (directory / TXN_INDEX).mkdir()
    assert damages(directory) == [(TXN_INDEX, 0, 0)]


BESIDE: list[tuple[str, Callable[[Path], object]]] = [
    (TXN_INDEX, lambda path: path.write_bytes(b"x")),
    (SNAPSHOT, lambda path: path.write_bytes(b"x")),
]


@pytest.mark.parametrize(("name", "change"), BESIDE, ids=["txnindex", "snapshot"])
def test_shallow_leaves_them_alone(directory: Path, name: str, change: Callable[[Path], object]) -> None:
    change(directory / name)
    assert damages(directory, deep=False) == []
    assert damages(directory) != []


def test_epoch_above_the_log_end_is_named(directory: Path) -> None:
    (directory / EPOCHS).write_bytes(epochs((0, 0), (3, 10), (4, 20)))
    assert damages(directory) == []
    (directory / EPOCHS).write_bytes(epochs((0, 0), (3, 10), (4, 21)))
    assert damages(directory) == [(EPOCHS, 0, 18)]


def test_torn_log_has_no_end_to_judge_by(directory: Path) -> None:
    path = directory / LOG
    path.write_bytes(path.read_bytes()[:-1])
    path.with_suffix(".timeindex").unlink()
    assert damages(directory) == [(LOG, len(SEGMENTS[1][0]) + len(SEGMENTS[1][1]), len(SEGMENTS[1][2]) - 1)]


def test_transaction_across_a_hole_is_not_judged(tmp_path: Path) -> None:
    # Between 2 and 10 producer 1 may have ended a transaction and begun the one that is aborted at 12.
    abort = marker(12, producer_id=1, commit=False)
    path = write_partition(
        tmp_path, [[data(0, producer_id=1, sequence=0)], [data(10, producer_id=1, sequence=6), abort]]
    )
    (path / LATER_TXN_INDEX).write_bytes(txn_index((1, 8, 12, 13)))
    assert damages(path) == []
    (path / LATER_TXN_INDEX).unlink()
    assert damages(path) == []


def test_emptied_control_batch_ends_a_transaction(tmp_path: Path) -> None:
    empty = write_empty_batch(2, last_offset=2, max_timestamp_ms=7, attributes=TRANSACTIONAL_BIT | CONTROL_BIT)
    emptied = patch_header(empty, producer_id=1, producer_epoch=0)
    abort = marker(5, producer_id=1, commit=False)
    later = data(3, producer_id=1, sequence=2)
    path = write_partition(tmp_path, [[data(0, producer_id=1, sequence=0), emptied, later, abort]])
    (path / TXN_INDEX).write_bytes(txn_index((1, 3, 5, 6)))
    assert damages(path) == []


def test_snapshot_of_kafka_0_11_names_the_marker_and_the_sequence_before_it(directory: Path) -> None:
    ended = ProducerSnapshotEntry(2, 0, 5, 12, 0, 12, 0, -1)
    (directory / LAST_SNAPSHOT).write_bytes(encode_snapshot([PRODUCERS[0], ended]))
    assert damages(directory) == []
    for wrong in (ended._replace(producer_id=3), ended._replace(producer_epoch=1), ended._replace(offset_delta=1)):
        (directory / LAST_SNAPSHOT).write_bytes(encode_snapshot([PRODUCERS[0], wrong]))
        assert damages(directory) == [(LAST_SNAPSHOT, 56, 46)]


def test_abort_of_what_lies_below_the_log_start_needs_no_entry(directory: Path) -> None:
    (directory / TXN_INDEX).unlink()
    for log_start_offset in (5, 4, 2):
        write_offset_checkpoint(directory.parent / "log-start-offset-checkpoint", {"t-0": log_start_offset})
        assert damages(directory) == []
    write_offset_checkpoint(directory.parent / "log-start-offset-checkpoint", {"t-0": 1})
    assert damages(directory) == [(TXN_INDEX, 0, 0)]


NO_ENTRY = "no entry of the transaction of producer 2 that was aborted at offset 12"
LATE_ENTRY = "expected producer 2 from offset 10 or below, found producer 2 from offset 12"


@pytest.mark.parametrize(
    ("log_start_offset", "entries", "expected"),
    [(12, [], []), (12, [12], []), (11, [], [NO_ENTRY]), (11, [12], [LATE_ENTRY]), (11, [10], []), (11, [6], [])],
)
def test_transaction_needs_an_entry_from_its_first_batch_that_is_served(
    tmp_path: Path, log_start_offset: int, entries: list[int], expected: list[str]
) -> None:
    later = [data(10, producer_id=2, sequence=2), marker(12, producer_id=2, commit=False), batch(13)]
    path = write_partition(tmp_path, [[batch(0, 6), data(6, producer_id=2, sequence=0), batch(8, 2)], later])
    write_offset_checkpoint(tmp_path / "log-start-offset-checkpoint", {"t-0": log_start_offset})
    (path / LATER_TXN_INDEX).write_bytes(txn_index(*((2, first, 12, 13) for first in entries)))
    assert reasons(path) == expected


def test_abort_of_which_a_cleaner_left_an_empty_batch_needs_no_entry(tmp_path: Path) -> None:
    emptied = write_empty_batch(0, last_offset=1, max_timestamp_ms=1, attributes=TRANSACTIONAL_BIT)
    emptied = patch_header(emptied, producer_id=1, producer_epoch=0, base_sequence=0)
    segments = [[emptied, marker(2, producer_id=1, commit=False)], [batch(3, 2)]]
    assert damages(write_partition(tmp_path, segments)) == []


class LockedEnv(LocalEnv):
    """As beside a writer that holds the lock of the root."""

    def is_locked(self, path: str) -> bool:
        return path.endswith("/.lock")


def damages_beside_a_writer(directory: Path) -> list[str]:
    with open_log(directory) as log:
        return [damage.reason for damage in verify(log, env=LockedEnv())]


def test_marker_that_was_just_appended_has_no_entry_yet_beside_a_writer(directory: Path) -> None:
    (directory / LATER_TXN_INDEX).write_bytes(b"")
    assert len(damages(directory)) == 1
    assert damages_beside_a_writer(directory) == []


def test_entry_of_a_marker_that_is_being_truncated_is_no_damage_beside_a_writer(directory: Path) -> None:
    """A writer truncates the .log before the index."""
    (directory / LOG).write_bytes(SEGMENTS[1][0])
    assert "entry of offset 12, which is after the last batch" in reasons(directory)
    assert damages_beside_a_writer(directory) == []


def test_entry_whose_last_stable_offset_is_above_the_end_is_no_damage_beside_a_writer(directory: Path) -> None:
    (directory / LATER_TXN_INDEX).write_bytes(txn_index((2, 6, 12, 25)))
    assert reasons(directory) == ["last stable offset 25 above the log end offset"]
    assert damages_beside_a_writer(directory) == []


def test_entry_after_the_end_of_an_older_segment_is_damage_beside_a_writer_too(directory: Path) -> None:
    (directory / TXN_INDEX).write_bytes(txn_index(ABORTED, (2, 2, 15, 6)))
    assert damages_beside_a_writer(directory) == ["entry of offset 15, which is after the last batch"]


def test_marker_of_an_older_segment_has_its_entry_beside_a_writer_too(directory: Path) -> None:
    (directory / TXN_INDEX).write_bytes(b"")
    assert len(damages_beside_a_writer(directory)) == 1


def test_marker_before_one_with_an_entry_has_its_own_beside_a_writer_too(directory: Path) -> None:
    later = [
        data(20, producer_id=2, sequence=6, epoch=3),
        marker(22, producer_id=2, commit=False, epoch=3),
    ]
    log = directory / LOG
    log.write_bytes(log.read_bytes() + b"".join(later))
    (directory / LATER_TXN_INDEX).write_bytes(txn_index((2, 20, 22, 23)))
    assert ["at offset 12" in reason for reason in damages_beside_a_writer(directory)] == [True]


def test_files_that_refer_to_offsets_above_the_end_are_no_damage_beside_a_writer(directory: Path) -> None:
    """A writer that truncates, or appends to preallocated space, changes the log and these files one by one."""
    (directory / f"{30:020d}.snapshot").write_bytes(encode_snapshot([]))
    (directory / EPOCHS).write_bytes(epochs((0, 0), (3, 10), (4, 30)))
    index = directory / f"{LATER_SEGMENT:020d}.index"
    index.write_bytes(index.read_bytes() + struct.pack(">ii", 15, 10**6))
    assert len(damages(directory)) == 3
    assert damages_beside_a_writer(directory) == []


def test_wrong_entry_is_damage_beside_a_writer_too(directory: Path) -> None:
    (directory / LATER_TXN_INDEX).write_bytes(txn_index((7, 6, 12, 13)))
    index = directory / f"{LATER_SEGMENT:020d}.index"
    index.write_bytes(struct.pack(">ii", 2, 1))
    assert len(damages_beside_a_writer(directory)) == 2


# A transaction of the first segment alone, that an abort marker in the second one ends.
CLEANED = [
    [data(0, producer_id=1, sequence=0), data(2, producer_id=2, sequence=0), batch(4, 6)],
    [marker(10, producer_id=1, commit=False), marker(11, producer_id=2, commit=False), batch(12, 3)],
]


def cleaned_segment(directory: Path) -> None:
    """Put the batches that a cleaner leaves in place of the first segment, and an index without its transactions."""
    first = directory / f"{0:020d}.log"
    swap = first.with_suffix(".log.swap")
    swap.write_bytes(CLEANED[0][2])
    first.rename(first.with_suffix(".log.deleted"))
    for suffix in (".index", ".timeindex"):
        first.with_suffix(suffix).write_bytes(b"")
    (directory / LATER_TXN_INDEX).write_bytes(b"")
    swap.rename(first)


class CleaningEnv(LocalEnv):
    """Cleans the first segment before a call of the system, the n-th one."""

    def __init__(self, clean: Callable[[], None], at: int) -> None:
        self.calls = 0
        self._clean = clean
        self._at = at

    def _step(self) -> None:
        if self.calls == self._at:
            self._clean()
        self.calls += 1

    def open_read(self, path: str) -> LocalFile:
        self._step()
        return super().open_read(path)

    def listdir(self, path: str) -> list[str]:
        self._step()
        return super().listdir(path)

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        self._step()
        return super().stat(path, follow_symlinks=follow_symlinks)


def test_transaction_index_need_not_hold_what_a_cleaner_removed_while_the_log_was_verified(tmp_path: Path) -> None:
    """The segments before were walked when they still held the data of the aborted transactions."""
    count, at = 1, 0
    while at < count:
        directory = write_partition(tmp_path / f"at-{at}", CLEANED)
        (directory / LATER_TXN_INDEX).write_bytes(txn_index((1, 0, 10, 2), (2, 2, 11, 12)))
        env = CleaningEnv(lambda directory=directory: cleaned_segment(directory), at)
        with open_log(directory, env=env) as log:
            assert list(verify(log, env=env)) == [], at
        count, at = max(count, env.calls), at + 1
    assert count > 10


def test_transaction_index_holds_what_no_cleaner_removed(tmp_path: Path) -> None:
    directory = write_partition(tmp_path, CLEANED)
    (directory / LATER_TXN_INDEX).write_bytes(b"")
    assert [name for name, _, _ in damages(directory)] == [LATER_TXN_INDEX] * 2
    cleaned_segment(directory)
    assert damages(directory) == []


class ClosingEnv(LocalEnv):
    """Beside a writer that removes a snapshot and closes the log just before anybody asks for its lock."""

    def __init__(self, snapshot: Path) -> None:
        self._snapshot = snapshot

    def is_locked(self, path: str) -> bool:
        del path
        self._snapshot.unlink(missing_ok=True)
        return False


def test_snapshot_above_the_end_that_a_writer_removed_as_it_closed_is_no_damage(directory: Path) -> None:
    snapshot = directory / f"{99:020d}.snapshot"
    snapshot.write_bytes(encode_snapshot([]))
    assert reasons(directory) == ["snapshot is above the log end offset 20"]
    with open_log(directory) as log:
        assert list(verify(log, env=ClosingEnv(snapshot))) == []
    assert not snapshot.exists()
