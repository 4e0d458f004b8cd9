"""Goal: a reader of files that somebody else removes, replaces, truncates or writes gives records of one history, a new
answer or LogReplacedError, and calls nothing damaged that is sound.
Method: an Env that changes the files right before the n-th call of the system, for every n; no second process."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

import pytest

from kstore._core import crc32c
from kstore.arrow import record_batches
from kstore.config import LogConfig
from kstore.errors import CorruptRecordError, KStoreError, LogReplacedError, OffsetOutOfRangeError
from kstore.log import Log, open_log
from kstore.log.damage import Damage
from kstore.log.env import UNKNOWN_FILE, Env, FileIdentity, FileStatus, ReadFile, is_same_file
from kstore.log.verify import verify
from tests.making.batches import batches, flip_bit, grow, write_partition

Change = Callable[[Path], object]
Item = TypeVar("Item")
COUNT = 30
SEGMENTS = (0, 10, 20)


def log_file(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020d}.log"


@cache
def content(value_bytes: int) -> dict[str, bytes]:
    """The files of thirty records in three segments."""
    with tempfile.TemporaryDirectory() as root:
        segments = [batches(first, 10, value_bytes=value_bytes) for first in SEGMENTS]
        return {file.name: file.read_bytes() for file in write_partition(Path(root), segments).iterdir()}


def history(root: Path, *, value_bytes: int = 50) -> Path:
    """A partition of thirty records; values of another size make another history."""
    directory = root / "t-0"
    directory.mkdir(parents=True)
    for name, data in content(value_bytes).items():
        (directory / name).write_bytes(data)
    return directory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return history(tmp_path / "root")


def recreate(directory: Path) -> None:
    """Delete the topic, as a broker does, and make it again with other records."""
    directory.rename(directory.with_name(f"{directory.name}.0123456789abcdef-delete"))
    history(directory.parent, value_bytes=90)


def remove_and_recreate(directory: Path) -> None:
    shutil.rmtree(directory)
    history(directory.parent, value_bytes=90)


def delete_first_segment(directory: Path) -> None:
    for file in directory.glob(f"{0:020d}.*"):
        file.rename(f"{file}.deleted")


def remove_first_segment(directory: Path) -> None:
    for file in directory.glob(f"{0:020d}.*"):
        file.unlink()


def compact(directory: Path) -> None:
    """Put one segment with every other batch in place of the first two, as the cleaner does at the end of a round."""
    kept = b"".join([*batches(0, 10, value_bytes=50)[::2], *batches(10, 10, value_bytes=50)[::2]])
    swap = directory / f"{0:020d}.log.swap"
    swap.write_bytes(kept)
    for base_offset in (10, 0):
        for file in directory.glob(f"{base_offset:020d}.*[gx]"):
            file.rename(f"{file}.deleted")
    swap.rename(log_file(directory, 0))


def truncate_and_append(directory: Path) -> None:
    """Truncate the active segment in place, as a follower does, and append other batches."""
    log = log_file(directory, 20)
    kept = log.read_bytes()[: len(b"".join(batches(20, 4, value_bytes=50)))]
    os.truncate(log, len(kept))
    grow(log, b"".join(batches(24, 12, value_bytes=77)))
    for suffix in (".index", ".timeindex"):
        log.with_suffix(suffix).write_bytes(b"")


def truncate(directory: Path) -> None:
    for suffix in (".index", ".timeindex", ".log"):
        os.truncate(log_file(directory, 20).with_suffix(suffix), 0)


CHANGES: dict[str, Change] = {
    change.__name__: change
    for change in (
        recreate,
        remove_and_recreate,
        delete_first_segment,
        remove_first_segment,
        compact,
        truncate_and_append,
        truncate,
    )
}


class ChangingEnv(Env):
    """Changes the files before the call with a number; calls counts them."""

    def __init__(self, change: Callable[[], object] | None = None, *, at: int = -1) -> None:
        self.calls = 0
        self._change = change
        self._at = at
        self._stepping = threading.Lock()

    def step(self) -> None:
        with self._stepping:
            if self.calls == self._at and self._change is not None:
                self._change()
            self.calls += 1

    def open_read(self, path: str) -> ReadFile:
        self.step()
        file = super().open_read(path)
        return SteppingFile(file, self)

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        self.step()
        return super().stat(path, follow_symlinks=follow_symlinks)

    def listdir(self, path: str) -> list[str]:
        self.step()
        return super().listdir(path)


class SteppingFile(ReadFile):
    def __init__(self, file: ReadFile, env: ChangingEnv) -> None:
        super().__init__(file._fd, path=file.path)
        self._env = env

    def pread(self, size: int, *, position: int) -> bytes:
        self._env.step()
        return super().pread(size, position=position)

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        self._env.step()
        return super().pread_into(buffer, position=position)


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


def read_planned(log: Log) -> list[tuple[int, int]]:
    ranges = pickle.loads(pickle.dumps(log.plan(500)))
    return [
        (offset, len(value))
        for table in record_batches(ranges, columns=["offset", "value"], env=log._env)
        for offset, value in zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
    ]


READS = {read.__name__: read for read in (read, read_batches, read_columns, read_planned)}


def fetch(log: Log) -> object:
    return log.fetch(log.log_start_offset + 3, 300).base_offset


def look_up_offsets(log: Log) -> object:
    return [log.fetch(offset, 1).base_offset for offset in range(log.log_start_offset, log.log_end_offset)]


def look_up_time(log: Log) -> object:
    return log.offset_for_timestamp(2**62)


def plan(log: Log) -> object:
    return [one.start_offset for one in log.plan(500)]


def bounds(log: Log) -> object:
    return log.log_start_offset, log.log_end_offset, log.transactions()


LOOKUPS = {lookup.__name__: lookup for lookup in (fetch, look_up_offsets, look_up_time, plan, bounds)}


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
            assert isinstance(found, LogReplacedError | OSError), (at, found)
        outcomes.add(type(found))
    assert LogReplacedError in outcomes


@pytest.mark.parametrize("change", sorted(CHANGES))
@pytest.mark.parametrize("name", READS)
def test_no_change_of_the_files_is_taken_for_damage_by_a_reader(tmp_path: Path, name: str, change: str) -> None:
    for at, found in runs_with_a_change(tmp_path, READS[name], CHANGES[change]):
        if isinstance(found, list):
            assert [offset for offset, _ in found] == sorted({offset for offset, _ in found}), at
        else:
            assert isinstance(found, LogReplacedError | OffsetOutOfRangeError | OSError), (at, found)


@pytest.mark.parametrize("change", ["compact", "delete_first_segment", "remove_first_segment"])
def test_no_record_that_was_there_all_the_time_is_missing_from_an_answer(tmp_path: Path, change: str) -> None:
    for at, found in runs_with_a_change(tmp_path, read, CHANGES[change]):
        if isinstance(found, list):
            kept = set(range(0, 20, 2)) if change == "compact" else set(range(10, 20))
            assert {*kept, *range(20, 30)} <= {offset for offset, _ in found}, at


@pytest.mark.parametrize("change", sorted(CHANGES))
@pytest.mark.parametrize("name", LOOKUPS)
def test_lookup_is_answered_anew_where_files_changed_under_it(tmp_path: Path, name: str, change: str) -> None:
    for at, found in runs_with_a_change(tmp_path, LOOKUPS[name], CHANGES[change]):
        if change.endswith("recreate"):
            assert not isinstance(found, CorruptRecordError), (at, found)
        elif isinstance(found, KStoreError):
            assert isinstance(found, OffsetOutOfRangeError), (at, found)


def test_range_that_was_planned_before_a_topic_was_made_again_gives_no_record(directory: Path) -> None:
    with open_log(directory) as log:
        ranges = pickle.loads(pickle.dumps(log.plan(500)))
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


def test_file_that_gets_the_inode_of_another_one_is_not_taken_for_it() -> None:
    first = FileIdentity(1, 100, 5)
    assert is_same_file(first, FileIdentity(1, 100, 5))
    assert not is_same_file(first, FileIdentity(1, 100, 6))
    assert not is_same_file(first, FileIdentity(1, 101, 5))
    assert is_same_file(first, UNKNOWN_FILE)
    assert is_same_file(UNKNOWN_FILE, first)


class UnstableEnv(Env):
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
            assert isinstance(found, LogReplacedError | OSError), (at, found)
            assert change.endswith("recreate"), (at, found)


# With chunks of the least size, so that a segment takes several.
LARGE = 1500
SMALL_CHUNKS = LogConfig(read_chunk_bytes=4096)


def append_the_same_sizes(directory: Path, *, base_offset: int = 20, keeps: int = 2) -> None:
    """Truncate a segment in place and append batches with other values and the same boundaries."""
    log = log_file(directory, base_offset)
    kept = sum(map(len, batches(base_offset, keeps, value_bytes=LARGE)))
    os.truncate(log, kept)
    coming = [other_value(batch) for batch in batches(base_offset + keeps, 10 - keeps, value_bytes=LARGE)]
    grow(log, b"".join(coming))


def other_value(batch: bytes) -> bytes:
    """Return a batch with another value of the same size."""
    changed = bytearray(batch)
    changed[200:209] = b"different"
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def append_to_every_segment(directory: Path) -> None:
    """Truncate into the first segment; the later ones are made again, as those of another history."""
    append_the_same_sizes(directory, base_offset=0)
    for base_offset in SEGMENTS[1:]:
        log = log_file(directory, base_offset)
        log.unlink()
        log.touch()
        append_the_same_sizes(directory, base_offset=base_offset, keeps=0)


def values_of(log: Log) -> list[tuple[int, bytes]]:
    return [(record.offset, record.value or b"") for record in log.read()]


def values_of_batches(log: Log) -> list[tuple[int, bytes]]:
    return [(record.offset, record.value or b"") for batch in log.batches() for record in batch]


def values_of_columns(
    log: Log, *, threads: int = 1, binary: Literal["copy", "view"] = "copy"
) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    tables = log.to_arrow_batches(columns=["offset", "value"], batch_bytes=100, threads=threads, binary=binary)
    for table in tables:
        found += zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
    return found


def values_of_views(log: Log) -> list[tuple[int, bytes]]:
    return values_of_columns(log, binary="view")


def values_of_ranges(log: Log, *, threads: int = 1) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    ranges = log.plan(5000)
    for table in record_batches(
        ranges, columns=["offset", "value"], batch_bytes=100, threads=threads, config=log.config, env=log._env
    ):
        found += zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
    return found


def values_of_ranges_in_threads(log: Log) -> list[tuple[int, bytes]]:
    return values_of_ranges(log, threads=2)


VALUES: dict[str, Callable[[Log], list[tuple[int, bytes]]]] = {
    use.__name__: use for use in (values_of, values_of_batches, values_of_columns, values_of_views, values_of_ranges)
}


def found_with_a_change(directory: Path, use: Callable[[Log], Item], change: Change, at: int) -> Item | None:
    """Use a log with a change before one of its calls of the system; None for an answer that the files changed."""
    try:
        with open_log(directory, env=ChangingEnv(lambda: change(directory), at=at), config=SMALL_CHUNKS) as log:
            return use(log)
    except LogReplacedError:
        return None


@pytest.mark.parametrize("change", [append_the_same_sizes, append_to_every_segment])
@pytest.mark.parametrize("name", [*VALUES, "values_of_ranges_in_threads"])
def test_batches_of_the_same_boundaries_that_replace_others_are_never_mixed_with_them(
    tmp_path: Path, name: str, change: Change
) -> None:
    use = VALUES.get(name, values_of_ranges_in_threads)
    before, after = history(tmp_path / "before", value_bytes=LARGE), history(tmp_path / "after", value_bytes=LARGE)
    change(after)
    histories = []
    for directory in (before, after):
        counting = ChangingEnv()
        with open_log(directory, env=counting, config=SMALL_CHUNKS) as log:
            histories.append(use(log))
    assert histories[0] != histories[1]
    replaced = 0
    for at in range(counting.calls):
        found = found_with_a_change(history(tmp_path / f"at-{at}", value_bytes=LARGE), use, change, at)
        replaced += found is None
        assert found is None or found in histories, at
    assert replaced


class LockedEnv(Env):
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
    env, path = Env(), str(tmp_path / ".lock")
    assert not env.is_locked(path)
    lock = env.lock_file(path)
    assert lock is not None
    assert env.is_locked(path)
    assert env.lock_file(path) is None
    lock.close()
    assert not env.is_locked(path)
