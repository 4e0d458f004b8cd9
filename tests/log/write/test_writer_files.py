"""Goal: what a writer holds on the disk is its own, given back in order, and missed in time: space, files, locks.
Method: real directories in which files, directories and locks are taken away or refused under an open log."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kstore.config import LogConfig
from kstore.env import OPEN_FILES_LIMIT, REWRITTEN_FILES_LIMIT, LocalEnv, WriteFile
from kstore.errors import KStoreError, LogClosedError, LogFailedError, LogLockedError, StorageError
from kstore.log.files.checkpoints import read_checkpoint
from kstore.log.files.durable_point import DurablePoint, DurablePointFile
from kstore.log.files.names import RECOVERY_POINT_CHECKPOINT
from kstore.log.verify import verify
from kstore.log.write.rules import LogAppendInfo
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords, Record
from kstore.store.opening import open_log
from kstore.store.store import open_store
from kstore.types import TopicPartition
from tests.fakes.disk import SimulatedDisk
from tests.making.batches import batch
from tests.making.record_files import failing


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


def sent(count: int) -> MemoryRecords:
    """A batch as a producer sends it: offsets from 0."""
    return MemoryRecords(batch(0, count))


def offsets(log: WritableLog) -> list[int]:
    return [record.offset for record in log.read()]


# Preallocated space


def test_first_segment_of_a_log_is_preallocated_too(directory: Path) -> None:
    config = LogConfig(preallocate=True, segment_bytes=100_000)
    path = directory / "00000000000000000000.log"
    for _ in range(2):
        # The second time it is there, and empty.
        with open_log(directory, "a", config) as log:
            assert (path.stat().st_size, log.size_in_bytes) == (100_000, 0)
        assert path.stat().st_size == 0
    with open_log(directory, "a", config) as log:
        log.append(sent(1))
        assert path.stat().st_size == 100_000
    size = path.stat().st_size
    with open_log(directory, "a", config) as log:
        assert offsets(log) == [0]
        assert path.stat().st_size == size < 1000


def test_empty_segment_without_space_for_its_preallocation_stays_empty(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_log(directory, "a").close()

    def take_a_part(fd: int, position: int, size: int) -> None:
        os.ftruncate(fd, position + size // 2)
        raise OSError(errno.ENOSPC, "planted")

    monkeypatch.setattr(os, "posix_fallocate", take_a_part)
    with pytest.raises(StorageError) as caught:
        open_log(directory, "a", LogConfig(preallocate=True, segment_bytes=100_000))
    assert caught.value.errno == errno.ENOSPC
    assert (directory / "00000000000000000000.log").stat().st_size == 0


class SizesDisk(SimulatedDisk):
    """Notes, when a file is made, what would be left of the first segment if the power failed now."""

    def __init__(self) -> None:
        super().__init__()
        self.directories |= {"/", "/root"}
        self.left: dict[str, int] = {}

    def open_write(self, path: str) -> WriteFile:
        first = self.names.get(f"/root/t-0/{0:020d}.log")
        if first is not None and path not in self.names:
            self.left[path.rpartition("/")[2]] = len(first.durable)
        return super().open_write(path)


def test_roll_trims_a_segment_durably_before_it_makes_a_file_of_the_next() -> None:
    disk = SizesDisk()
    with open_log("/root/t-0", "a", LogConfig(preallocate=True, segment_bytes=100_000), env=disk) as log:
        log.append(sent(2), ack="flushed")
        log.append(sent(2))
        size = log.segments[0].size_in_bytes
        log.roll()
        made = {name: left for name, left in disk.left.items() if name.startswith(f"{4:020d}")}
        assert made.keys() >= {f"{4:020d}.log", f"{4:020d}.index", f"{4:020d}.timeindex"}
        assert set(made.values()) == {size}


def test_segment_that_could_not_be_rolled_goes_on(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was trimmed, and has the last entry of its time index."""
    with open_log(directory, "a", LogConfig(preallocate=True, segment_bytes=100_000)) as log:
        log.append(sent(2))
        with monkeypatch.context() as patched:
            patched.setattr(os, "posix_fallocate", failing(errno.ENOSPC))
            with pytest.raises(StorageError):
                log.roll()
        assert not log.has_failed
        log.append(sent(2))
        assert offsets(log) == list(range(4))
        assert log.roll() == 4
        log.append(sent(1))
    with open_log(directory) as reader:
        assert [segment.base_offset for segment in reader.segments] == [0, 4]
        assert list(verify(reader)) == []


# Checkpoints


@pytest.mark.parametrize("offset", [4, 3, 0], ids=["by-one", "by-two", "wholly"])
def test_checkpoint_never_calls_durable_what_a_truncation_took(directory: Path, offset: int) -> None:
    with open_log(directory, "a") as log:
        for _ in range(5):
            log.append(sent(1))
    with open_log(directory, "a") as log:
        assert checkpointed(directory) == 5
        log.truncate_to(offset)
        assert checkpointed(directory) == offset
        assert DurablePointFile(str(directory)).read() in (None, DurablePoint(offset, 0, log.size_in_bytes))


def test_checkpoint_below_a_cut_stays_where_it_is(directory: Path) -> None:
    with open_log(directory, "a") as log:
        log.append(sent(2))
    with open_log(directory, "a") as log:
        for _ in range(5):
            log.append(sent(1))
        log.truncate_to(6)
        assert checkpointed(directory) == 2


def checkpointed(directory: Path) -> int:
    return read_checkpoint(str(directory.parent), RECOVERY_POINT_CHECKPOINT, LocalEnv())[TopicPartition("t", 0)]


# Directories and locks that are taken away


def make(log: WritableLog) -> None:
    """Three segments, the last with records, all flushed."""
    for _ in range(3):
        log.append(sent(2))
        log.roll()
    log.append(sent(2), ack="flushed")


CALLS: dict[str, Callable[[WritableLog], object]] = {
    "flush": WritableLog.flush,
    "flushed append": lambda log: log.append(sent(1), ack="flushed"),
    "flushed appends": lambda log: raise_first(log.append_batches([sent(1)], ack="flushed")),
    "roll": WritableLog.roll,
    "truncation": lambda log: log.truncate_to(1),
    "restart": lambda log: log.truncate_fully_and_start_at(5),
    "deletion": lambda log: log.delete_records(3),
    "close": WritableLog.close,
}


def raise_first(done: list[LogAppendInfo | KStoreError]) -> None:
    if isinstance(done[0], KStoreError):
        raise done[0]


def content(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("is_replaced", [False, True], ids=["removed", "replaced"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_writer_of_a_directory_that_is_gone_is_told_and_harms_no_other(
    directory: Path, call: Callable[[WritableLog], object], is_replaced: bool
) -> None:
    log = open_log(directory, "a")
    make(log)
    directory.rename(directory.parent / "kept")
    if is_replaced:
        shutil.copytree(directory.parent / "kept", directory)
    left = content(directory.parent)
    with pytest.raises(StorageError, match="was removed or replaced while a writer had it open") as caught:
        call(log)
    assert caught.value.errno == errno.ENOENT
    assert log.has_failed
    with suppress(LogClosedError, LogFailedError):
        log.append(sent(1))
    log.close()
    # An append in the file that was open is all that there can be.
    changed = {name for name, data in content(directory.parent).items() if left.get(name) != data}
    assert changed <= {str(directory.parent / "kept" / f"{6:020d}.log")}
    assert not (directory.parent / ".kafka_cleanshutdown").exists()


def test_writer_whose_root_is_gone_is_told(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    log = open_log(tmp_path / "root" / "t-0", "a")
    log.append(sent(1))
    shutil.rmtree(tmp_path / "root")
    with pytest.raises(StorageError):
        log.flush()
    log.close()


@pytest.mark.parametrize("is_replaced", [False, True], ids=["removed", "replaced"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_writer_whose_lock_file_is_gone_is_told_and_harms_no_other(
    directory: Path, call: Callable[[WritableLog], object], is_replaced: bool
) -> None:
    log = open_log(directory, "a")
    make(log)
    lock = directory.parent / ".lock"
    lock.unlink()
    if is_replaced:
        lock.touch()
    left = content(directory)
    with pytest.raises(LogLockedError, match="was removed or replaced, and another writer may have come in"):
        call(log)
    log.close()
    appended = str(directory / f"{6:020d}.log")
    assert {**content(directory), appended: left[appended]} == left
    assert not (directory.parent / ".kafka_cleanshutdown").exists()


OPENERS: dict[str, Callable[[Path], object]] = {
    "log": lambda path: open_log(path, "a"),
    "store": lambda path: open_store(path.parent, "a"),
}


@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS)
def test_removed_lock_file_lets_no_second_kstore_in(directory: Path, opener: Callable[[Path], object]) -> None:
    log = open_log(directory, "a")
    make(log)
    (directory.parent / ".lock").unlink()
    left = content(directory)
    for path in (directory, directory.parent / "u-0"):
        with pytest.raises(LogLockedError, match="was removed since"):
            opener(path)
    assert content(directory) == left
    with pytest.raises(LogLockedError):
        log.close()
    with open_log(directory, "a") as again:
        assert offsets(again) == list(range(8))


def test_store_whose_lock_file_is_gone_writes_no_checkpoint_and_no_marker(tmp_path: Path) -> None:
    store = open_store(tmp_path, "a")
    store.create_topic("t")
    store.log("t").append(sent(3), ack="flushed")
    store.checkpoint()
    store.log("t").append(sent(3), ack="flushed")
    (tmp_path / ".lock").unlink()
    left = content(tmp_path)
    with pytest.raises(LogLockedError):
        store.checkpoint()
    with pytest.raises(LogLockedError):
        store.create_topic("u")
    with pytest.raises(LogLockedError):
        store.close()
    assert content(tmp_path) == left


# Logs and stores that nobody closed


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def put_to_use(log: WritableLog) -> None:
    log.append(sent(2), ack="flushed")
    log.roll()
    log.append(sent(2))
    log.append([Record(offset=0, timestamp_ms=1, value=b"v")])
    log.truncate_to(5)
    assert [record.offset for record in log.read(isolation="read_committed")] == list(range(5))
    assert log.offset_for_timestamp(0) is not None
    assert log.fetch(0, 1000).records
    assert sum(len(list(segment.records.read_bytes(1, position=0))) for segment in log.segments[:1]) == 1


@pytest.mark.usefixtures("no_collection")
def test_dropped_log_gives_its_lock_and_its_files_back_at_once(directory: Path) -> None:
    log = open_log(directory, "a")
    put_to_use(log)
    held = open_descriptors(directory)
    with pytest.warns(ResourceWarning, match=f"unclosed log {directory}"):
        del log
    assert held
    assert not [path for path in open_descriptors(directory) if path.endswith((".lock", "index", "point"))]
    assert not (directory.parent / ".kafka_cleanshutdown").exists()
    with open_log(directory, "a") as again:
        assert offsets(again) == list(range(5))


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("method", [WritableLog.read, WritableLog.batches])
@pytest.mark.usefixtures("no_collection")
def test_iterator_of_a_dropped_log_keeps_it(directory: Path, method: Callable[..., Any], on_error: str) -> None:
    log = open_log(directory, "a")
    for _ in range(3):
        log.append(sent(1))
    items = method(log, on_error=on_error)
    del log
    with pytest.raises(LogLockedError):
        open_log(directory, "a")
    next(items)
    with pytest.raises(LogLockedError):
        open_log(directory, "a")
    with pytest.warns(ResourceWarning, match="unclosed log"):
        assert len(list(items)) == 2
    open_log(directory, "a").close()


@pytest.mark.usefixtures("no_collection")
def test_dropped_store_gives_its_lock_back_at_once(tmp_path: Path) -> None:
    store = open_store(tmp_path, "a")
    store.create_topic("t")
    put_to_use(store.log("t"))
    with pytest.warns(ResourceWarning) as caught:
        del store
    assert sorted(str(one.message) for one in caught) == [f"unclosed log {tmp_path}/t-0", f"unclosed store {tmp_path}"]
    with open_store(tmp_path, "a") as again:
        assert offsets(again.log("t")) == list(range(5))


@pytest.mark.usefixtures("no_collection")
def test_closed_log_is_dropped_without_a_word(directory: Path) -> None:
    with open_log(directory, "a") as log:
        put_to_use(log)
    kept = weakref.ref(log)
    del log
    assert kept() is None


def open_descriptors(directory: Path) -> list[str]:
    """The files of a root that this process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [path for path in found if path.startswith(str(directory.parent))]


# Descriptors


MANY_PARTITIONS = """
import os, resource, sys
from kstore.errors import StorageError
from kstore.store.store import open_store
from kstore.record import Record
root, wanted, partitions, most = sys.argv[1], *map(int, sys.argv[2:])
resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
store = open_store(root, "a", max_open_files=most)
logs = []
try:
    for number in range(partitions):
        if (f"t{number}", 0) not in store.partitions:
            store.create_topic(f"t{number}")
        logs.append(store.log(f"t{number}"))
        for _ in range(2):
            logs[-1].append([Record(offset=0, timestamp_ms=1, value=b"v")], ack="flushed")
            logs[-1].roll()
        assert len(list(logs[-1].read())) == 2
except StorageError as error:
    print(error)
print(len(logs), len(os.listdir("/proc/self/fd")) if len(logs) == partitions else 0)
spare = []
if len(logs) < partitions:
    while True:
        try:
            spare.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            break
store.close()
print(os.path.exists(root + "/.kafka_cleanshutdown") if not spare else "closed")
"""


def open_many(root: Path, *, limit: int, partitions: int, max_open_files: int = 1000) -> list[str]:
    command = (sys.executable, "-c", MANY_PARTITIONS, str(root), str(limit), str(partitions), str(max_open_files))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_log_that_is_written_holds_one_descriptor_beside_the_shared_ones(tmp_path: Path) -> None:
    counts, is_clean = open_many(tmp_path, limit=256, partitions=120)
    logs, descriptors = map(int, counts.split())
    assert logs == 120
    assert descriptors <= 120 + OPEN_FILES_LIMIT + REWRITTEN_FILES_LIMIT + 10
    assert is_clean == "True"


def test_store_of_more_logs_than_descriptors_keeps_few_open(tmp_path: Path) -> None:
    counts, is_clean = open_many(tmp_path, limit=128, partitions=200, max_open_files=10)
    logs, descriptors = map(int, counts.split())
    assert logs == 200
    assert descriptors <= 10 + OPEN_FILES_LIMIT + REWRITTEN_FILES_LIMIT + 10
    assert is_clean == "True"


def test_store_at_the_limit_of_descriptors_names_it_and_can_be_closed(tmp_path: Path) -> None:
    """Also where the process has taken every descriptor that was left."""
    error, counts, state = open_many(tmp_path, limit=64, partitions=100)
    assert "the limit of this process is 64 (RLIMIT_NOFILE)" in error
    assert int(counts.split()[0]) > 20
    assert state == "closed"
    with open_store(tmp_path) as store:
        written = [offset for one in store.partitions for offset in (store.log(*one).log_end_offset,)]
        # The last one may have met the limit before its second append.
        assert written.count(2) >= int(counts.split()[0]) - 1
