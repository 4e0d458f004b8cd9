"""Goal: a reader of files that somebody else removes or replaces gives records of one history, a new answer or
LogReplacedError, and calls nothing damaged that is sound.
Method: an Env that changes the files right before the n-th call of the system, for every n."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from kstore.arrow import record_batches
from kstore.env import UNKNOWN_FILE, FileIdentity, FileStatus, LocalEnv, is_same_file
from kstore.errors import CorruptRecordError, KStoreError, LogNotFoundError, LogReplacedError, OffsetOutOfRangeError
from kstore.log.damage import Damage
from kstore.log.log import Log
from kstore.log.reads import Isolation
from kstore.log.verify import verify
from kstore.store.opening import open_log
from tests.fakes.changing_files import (
    CHANGES,
    COUNT,
    GONE,
    Change,
    ChangingEnv,
    delete_first_segment,
    history,
    log_file,
    recreate,
    remove_and_recreate,
    remove_segments,
)
from tests.making.batches import batches, flip_bit, grow


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return history(tmp_path / "root")


def read(log: Log) -> list[tuple[int, int]]:
    """Offsets, each with the size of the value, which tells the history."""
    return [(record.offset, len(record.value or b"")) for record in log.read()]


def read_batches(log: Log) -> list[tuple[int, int]]:
    return [(record.offset, len(record.value or b"")) for batch in log.batches() for record in batch]


def read_columns(log: Log) -> list[tuple[int, int]]:
    return [
        (offset, len(value))
        for table in log.to_arrow_batches(columns=["offset", "value"], batch_bytes=400)
        for offset, value in zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
    ]


def read_columns_to_a_known_end(log: Log) -> list[tuple[int, int]]:
    assert log.log_end_offset >= 0
    return read_columns(log)


def read_planned(log: Log) -> list[tuple[int, int]]:
    ranges = pickle.loads(pickle.dumps(log.plan(max_bytes=500)))
    return [
        (offset, len(value))
        for table in record_batches(ranges, columns=["offset", "value"], env=log._env)
        for offset, value in zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
    ]


READS = {read.__name__: read for read in (read, read_batches, read_columns, read_columns_to_a_known_end, read_planned)}


def fetch(log: Log) -> object:
    return log.fetch(log.log_start_offset + 3, 300).base_offset


def look_up_offsets(log: Log) -> object:
    return [log.fetch(offset, 1).base_offset for offset in range(log.log_start_offset, log.log_end_offset)]


def look_up_records(log: Log) -> object:
    return [
        (record.offset, len(record.value or b""))
        for offset in range(log.log_start_offset, log.log_end_offset, 7)
        if (record := log.get(offset))
    ]


def look_up_time(log: Log) -> object:
    return log.offset_for_timestamp(2**62)


def plan(log: Log) -> object:
    return [one.start_offset for one in log.plan(max_bytes=500)]


def bounds(log: Log) -> object:
    return log.log_start_offset, log.log_end_offset, log.transactions()


LOOKUPS = {lookup.__name__: lookup for lookup in (fetch, look_up_offsets, look_up_records, look_up_time, plan, bounds)}


def runs_with_a_change(tmp_path: Path, use: Callable[[Log], object], change: Change) -> Iterator[tuple[int, object]]:
    """Use a log once for each of its calls of the system, with the change before that call; give answer or error."""
    count, at = 1, 0
    while at < count:
        directory = history(tmp_path / f"at-{at}")
        if at == 0:
            counting = ChangingEnv()
            with open_log(directory, env=counting) as log:
                use(log)
            count = counting.calls
        env = ChangingEnv(lambda directory=directory: change(directory), at=at)
        try:
            with open_log(directory, env=env) as log:
                yield at, use(log)
        except KStoreError as error:
            yield at, error
        at += 1


@pytest.mark.parametrize("change", ["recreate", "remove_and_recreate"])
@pytest.mark.parametrize("name", READS)
def test_topic_that_is_deleted_and_made_again_under_a_reader_gives_no_two_histories(
    tmp_path: Path, name: str, change: str
) -> None:
    outcomes = set()
    for at, found in runs_with_a_change(tmp_path, READS[name], CHANGES[change]):
        if isinstance(found, list):
            assert len({size for _, size in found}) == 1, at
            assert [offset for offset, _ in found] == list(range(COUNT)), at
        else:
            assert isinstance(found, LogReplacedError | LogNotFoundError), (at, found)
        outcomes.add(type(found))
    assert LogReplacedError in outcomes


@pytest.mark.parametrize("change", sorted(CHANGES))
@pytest.mark.parametrize("name", READS)
def test_no_change_of_the_files_is_taken_for_damage_by_a_reader(tmp_path: Path, name: str, change: str) -> None:
    for at, found in runs_with_a_change(tmp_path, READS[name], CHANGES[change]):
        if isinstance(found, list):
            assert [offset for offset, _ in found] == sorted({offset for offset, _ in found}), at
        else:
            assert isinstance(found, LogReplacedError | OffsetOutOfRangeError | LogNotFoundError), (at, found)


@pytest.mark.parametrize("change", ["compact", "delete_first_segment", "remove_first_segment"])
def test_no_record_that_was_there_all_the_time_is_missing_from_an_answer(tmp_path: Path, change: str) -> None:
    for at, found in runs_with_a_change(tmp_path, read, CHANGES[change]):
        if isinstance(found, list):
            kept = set(range(0, 20, 2)) if change == "compact" else set(range(10, 20))
            assert {*kept, *range(20, 30)} <= {offset for offset, _ in found}, at


def offsets_read(log: Log, start_offset: int, isolation: Isolation) -> Iterator[int]:
    return (record.offset for record in log.read(start_offset, isolation=isolation))


def offsets_of_columns(log: Log, start_offset: int, isolation: Isolation) -> Iterator[int]:
    tables = log.to_arrow_batches(start_offset, columns=["offset"], batch_bytes=100, isolation=isolation)
    return (offset for table in tables for offset in table["offset"].to_pylist())


def offsets_of_ranges(log: Log, start_offset: int, isolation: Isolation) -> Iterator[int]:
    tables = record_batches(
        log.plan(start_offset=start_offset, max_bytes=500, isolation=isolation), columns=["offset"], env=log._env
    )
    return (offset for table in tables for offset in table["offset"].to_pylist())


Offsets: TypeAlias = Callable[[Log, int, Isolation], Iterator[int]]


@pytest.mark.parametrize("change", ["delete_first_segment", "remove_first_segment", "begin_again", "remove_segments"])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("use", [offsets_read, offsets_of_columns, offsets_of_ranges])
def test_reader_that_asks_for_an_offset_gets_no_later_ones_instead(
    tmp_path: Path, use: Offsets, isolation: Isolation, change: str
) -> None:
    for at, found in runs_with_a_change(tmp_path, lambda log: [*use(log, 2, isolation)], CHANGES[change]):
        if isinstance(found, list):
            assert found == [*range(2, max(found, default=1) + 1)], at
        else:
            assert isinstance(found, OffsetOutOfRangeError | LogReplacedError | LogNotFoundError), (at, found)


@pytest.mark.parametrize("use", [offsets_read, offsets_of_columns])
def test_iterator_that_starts_after_its_log_was_listed_again_gets_no_later_records_instead(
    directory: Path, use: Offsets
) -> None:
    with open_log(directory) as log:
        from_two, to_all = use(log, 2, "read_uncommitted"), log.read()
        delete_first_segment(directory)
        log.refresh(keeps_known=False)
        with pytest.raises(OffsetOutOfRangeError):
            next(from_two)
        assert [record.offset for record in to_all] == [*range(10, COUNT)]


@pytest.mark.parametrize("change", sorted(CHANGES))
@pytest.mark.parametrize("name", LOOKUPS)
def test_lookup_is_answered_anew_where_files_changed_under_it(tmp_path: Path, name: str, change: str) -> None:
    for at, found in runs_with_a_change(tmp_path, LOOKUPS[name], CHANGES[change]):
        if isinstance(found, KStoreError):
            is_gone = change in GONE and isinstance(found, LogReplacedError | LogNotFoundError)
            assert is_gone or isinstance(found, OffsetOutOfRangeError), (at, found)


def test_range_that_was_planned_before_a_topic_was_made_again_gives_no_record(directory: Path) -> None:
    with open_log(directory) as log:
        ranges = pickle.loads(pickle.dumps(log.plan(max_bytes=500)))
    remove_and_recreate(directory)
    for one in ranges:
        with pytest.raises(LogReplacedError, match="replaced since it was listed"):
            list(record_batches([one]))


def test_file_that_a_reader_has_open_is_read_to_its_end_after_it_was_renamed(directory: Path) -> None:
    with open_log(directory) as log:
        records = log.read(end_offset=10)
        first = next(records).offset
        delete_first_segment(directory)
        assert [first, *(record.offset for record in records)] == list(range(10))


def test_damage_of_a_file_that_nobody_changes_stays_damage(directory: Path) -> None:
    flip_bit(log_file(directory, 10), 90, bit=0)
    with open_log(directory) as log:
        for use in READS.values():
            with pytest.raises(CorruptRecordError, match="CRC"):
                use(log)


@pytest.mark.parametrize("left", [0, 70, 100])
def test_half_written_batch_in_preallocated_space_is_not_read_yet(directory: Path, left: int) -> None:
    log = log_file(directory, 20)
    coming = batches(30, 1, value_bytes=50)[0]
    with log.open("ab") as file:
        file.write(coming[:left] + bytes(5000))
    with open_log(directory) as reader:
        assert reader.log_end_offset == COUNT
        assert [offset for offset, _ in read(reader)] == list(range(COUNT))
        assert [offset for offset, _ in read_planned(reader)] == list(range(COUNT))


def test_damaged_last_batch_before_preallocated_space_is_damage(directory: Path) -> None:
    log = log_file(directory, 20)
    flip_bit(log, log.stat().st_size - 20, bit=0)
    grow(log, bytes(5000))
    with open_log(directory) as reader, pytest.raises(CorruptRecordError, match="CRC"):
        read(reader)


def test_swap_that_a_crash_left_holds_no_reader_up(directory: Path) -> None:
    env = ChangingEnv()
    (directory / f"{0:020d}.log.swap").write_bytes(b"")
    with open_log(directory, env=env) as log:
        assert log.log_end_offset == COUNT
    assert env.calls < 40


class CleanerThatWaits(LocalEnv):
    """A cleaner that has removed a segment, and renames its replacement after so many looks at the directory."""

    def __init__(self, directory: Path, *, looks: int) -> None:
        self._directory = directory
        self._left = looks

    def listdir(self, path: str) -> list[str]:
        if path == str(self._directory):
            self._left -= 1
            swap = self._directory / f"{10:020d}.log.swap"
            if not self._left:
                swap.rename(swap.with_suffix(""))
        return super().listdir(path)

    def sleep_ms(self, duration_ms: float) -> None:
        pass


@pytest.mark.parametrize("looks", [2, 60])
def test_log_is_listed_when_a_running_cleaner_has_renamed_its_files(directory: Path, looks: int) -> None:
    log_file(directory, 10).rename(directory / f"{10:020d}.log.swap")
    lock = LocalEnv().lock_file(str(directory.parent / ".lock"))
    assert lock is not None
    with open_log(directory, env=CleanerThatWaits(directory, looks=looks)) as log:
        assert [record.offset for record in log.read()] == [*range(COUNT)]
    lock.close()


def test_log_whose_cleaner_does_not_go_on_is_not_read_in_part(directory: Path) -> None:
    log_file(directory, 10).rename(directory / f"{10:020d}.log.swap")
    lock = LocalEnv().lock_file(str(directory.parent / ".lock"))
    assert lock is not None
    with pytest.raises(LogReplacedError, match="changes too often"):
        open_log(directory, env=CleanerThatWaits(directory, looks=-1))
    lock.close()


def test_file_that_gets_the_inode_of_another_one_is_not_taken_for_it() -> None:
    first = FileIdentity(1, 100, 5)
    assert is_same_file(first, FileIdentity(1, 100, 5))
    assert not is_same_file(first, FileIdentity(1, 100, 6))
    assert not is_same_file(first, FileIdentity(1, 101, 5))
    assert is_same_file(first, UNKNOWN_FILE)
    assert is_same_file(UNKNOWN_FILE, first)


class UnstableEnv(LocalEnv):
    """A file system, such as an object store's, that tells nothing of a file that stays."""

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        status = super().stat(path, follow_symlinks=follow_symlinks)
        return None if status is None else status._replace(file=UNKNOWN_FILE)


def test_log_is_read_where_files_have_no_identity(directory: Path) -> None:
    with open_log(directory, env=UnstableEnv()) as log:
        assert [offset for offset, _ in read(log)] == list(range(COUNT))
        assert [offset for offset, _ in read_planned(log)] == list(range(COUNT))


def verified(log: Log) -> list[Damage]:
    return list(verify(log, env=log._env))


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_no_change_of_the_files_is_taken_for_damage_by_verify(tmp_path: Path, change: str) -> None:
    for at, found in runs_with_a_change(tmp_path, verified, CHANGES[change]):
        if isinstance(found, list):
            assert not found, at
        else:
            assert isinstance(found, LogReplacedError | LogNotFoundError), (at, found)
            assert change in GONE, (at, found)


class LockedEnv(LocalEnv):
    """As beside a writer that holds the lock of the root."""

    def is_locked(self, path: str) -> bool:
        return path.endswith("/.lock")


@pytest.mark.parametrize("zeros", [0, 5000])
def test_append_that_is_half_done_is_damage_only_where_nobody_writes(directory: Path, zeros: int) -> None:
    coming = batches(30, 1, value_bytes=50)[0]
    grow(log_file(directory, 20), coming[:80] + bytes(zeros))
    with open_log(directory) as log:
        assert [one.path for one in verify(log)] == [str(log_file(directory, 20))]
        assert not list(verify(log, env=LockedEnv()))


def test_damage_before_the_end_is_told_beside_a_writer_too(directory: Path) -> None:
    flip_bit(log_file(directory, 20), 90, bit=0)
    with open_log(directory) as log:
        assert [one.position for one in verify(log, env=LockedEnv())] == [0]


def test_lock_that_somebody_holds_is_seen_without_taking_it(tmp_path: Path) -> None:
    env, path = LocalEnv(), str(tmp_path / ".lock")
    assert not env.is_locked(path)
    lock = env.lock_file(path)
    assert lock is not None
    assert env.is_locked(path)
    assert env.lock_file(path) is None
    lock.close()
    assert not env.is_locked(path)


def test_segments_that_go_while_damage_is_confirmed_are_no_error_of_verify(tmp_path: Path) -> None:
    def damaged(root: Path) -> Path:
        directory = history(root)
        flip_bit(log_file(directory, 10), 90, bit=0)
        return directory

    with open_log(damaged(tmp_path / "whole"), env=(counting := ChangingEnv())) as log:
        assert len(verified(log)) == 1
    outcomes = set()
    for at in range(counting.calls):
        directory = damaged(tmp_path / f"at-{at}")
        env = ChangingEnv(lambda directory=directory: remove_segments(directory), at=at)
        with open_log(directory, env=env) as log:
            found = verified(log)
            assert [one.reason for one in found if one.path != str(log_file(directory, 10))] == [], at
            outcomes.add(len(found))
    assert outcomes == {0, 1}


@pytest.mark.parametrize("name", [*READS, *LOOKUPS])
def test_log_of_a_topic_that_was_made_again_gives_nothing_of_the_new_one(directory: Path, name: str) -> None:
    with open_log(directory) as log:
        recreate(directory)
        with pytest.raises(LogReplacedError):
            {**READS, **LOOKUPS}[name](log)
