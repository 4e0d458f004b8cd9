"""Goal: a log that is stopped halfway through a change goes on only where nothing is left of it, and frees its lock.
Method: one call on a chosen file raises, before or behind its effect: an interrupt, a full disk, a close that fails."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from kstore.config import MAX_INT64, LogConfig
from kstore.env import LocalEnv, WriteFile
from kstore.errors import CorruptLogError, LogFailedError, LogLockedError, StorageError
from kstore.log.files.transaction_index import AbortedTxn, TransactionIndexFile
from kstore.log.write.writable_log import WritableLog
from kstore.record import AppendOrigin, MemoryRecords
from kstore.store.opening import open_log
from kstore.types import Ack
from tests.fakes.short_writes import ShortWrites
from tests.making.batches import batch, batches, flip_bit
from tests.making.messages import packed_entry
from tests.reference.codec import write_end_transaction_marker

DATA = batches(0, 4, records_per_batch=2, value_bytes=40)
# Two batches a segment.
SMALL = LogConfig(segment_bytes=2 * max(map(len, DATA)) + 10, index_interval_bytes=0)
# So many appends, each with an index entry but for the first, and the next one writes index pages behind its records.
APPENDS_BEFORE_A_PAGE = 512


class StoppingEnv(LocalEnv):
    """Stops the first call of a name on a file that ends so, with an error, once it is armed."""

    def __init__(self) -> None:
        self._armed: tuple[str, str, BaseException] | None = None

    def arm(self, call: str, suffix: str, error: BaseException) -> None:
        self._armed = call, suffix, error

    def pass_by(self, call: str, path: str) -> None:
        if self._armed is not None and self._armed[0] == call and path.endswith(self._armed[1]):
            error, self._armed = self._armed[2], None
            raise error

    def open_write(self, path: str) -> WriteFile:
        file = super().open_write(path)
        stopping = _StoppingFile(os.dup(file.fileno()), path=path, is_new=file.is_new)
        file.close()
        stopping.env = self
        return stopping


class _StoppingFile(ShortWrites):
    env: StoppingEnv

    def pwrite(self, data: bytes | bytearray | memoryview, *, position: int) -> None:
        self.env.pass_by("write", self.path)
        super().pwrite(data, position=position)

    def close(self) -> None:
        super().close()
        self.env.pass_by("close", self.path)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


@pytest.fixture
def env() -> StoppingEnv:
    return StoppingEnv()


def no_space() -> StorageError:
    return StorageError("no space", path="", errno=errno.ENOSPC)


def sent(count: int = 1, **options: int) -> MemoryRecords:
    return MemoryRecords(batch(0, count, **options))


def offsets(log: WritableLog) -> list[int]:
    return [record.offset for record in log.read()]


def test_append_interrupted_before_its_write_leaves_nothing_behind(directory: Path, env: StoppingEnv) -> None:
    with open_log(directory, "a", env=env) as log:
        log.append(sent())
        env.arm("write", ".log", KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            log.append(sent())
        log.append(sent())
        assert offsets(log) == [0, 1]


def test_plain_append_interrupted_behind_its_write_stops_the_log(directory: Path, env: StoppingEnv) -> None:
    with open_log(directory, "a", LogConfig(index_interval_bytes=0), env=env) as log:
        # The next append is the one behind which a page of the index is written.
        while log.log_end_offset < APPENDS_BEFORE_A_PAGE:
            log.append(sent())
        env.arm("write", ".index", KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            log.append(sent())
        written = log.log_end_offset
        with pytest.raises(LogFailedError, match="KeyboardInterrupt"):
            log.append(sent())
    with open_log(directory, "a") as log:
        assert offsets(log) == list(range(written + 1))


def test_producers_append_interrupted_behind_its_write_stops_the_log(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(prepared: object) -> None:
        raise KeyboardInterrupt

    with open_log(directory, "a") as log:
        monkeypatch.setattr(log.producer_state, "commit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            log.append(sent(2, producer_id=7, producer_epoch=0, base_sequence=0))
        with pytest.raises(LogFailedError):
            log.append(sent())
    with open_log(directory, "a") as log:
        assert offsets(log) == [0, 1]
        assert log.log_end_offset == 2


def test_append_interrupted_behind_its_publication_keeps_its_leader_epoch(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_log(directory, "a") as log:
        publish = log._local.publish

        def interrupted(log_end_offset: int) -> None:
            publish(log_end_offset)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(log._local, "publish", interrupted)
            with pytest.raises(KeyboardInterrupt):
                log.append(sent(2), partition_leader_epoch=5)
        assert (offsets(log), log.leader_epochs.entries) == ([0, 1], ((5, 0),))
        log.append(sent())
    with open_log(directory, "a") as log:
        assert log.leader_epochs.entries == ((5, 0),)


def test_full_disk_behind_a_roll_over_a_gap_stops_the_log(directory: Path, env: StoppingEnv) -> None:
    with open_log(directory, "a", SMALL, env=env) as log:
        for data in DATA[:2]:
            log.append_as_follower(MemoryRecords(data))
        env.arm("write", "00000000000000000100.log", no_space())
        with pytest.raises(StorageError, match="no space") as caught:
            log.append_as_follower(MemoryRecords(batch(100, 2, value_bytes=40)))
        assert not caught.value.is_retriable
        with pytest.raises(LogFailedError):
            log.append_as_follower(MemoryRecords(DATA[2]))
    with open_log(directory, "a", SMALL) as log:
        assert offsets(log) == [0, 1, 2, 3]
        log.append_as_follower(MemoryRecords(batch(100, 2, value_bytes=40)))
        assert offsets(log) == [0, 1, 2, 3, 100, 101]


def test_full_disk_behind_any_other_roll_does_not_stop_the_log(directory: Path, env: StoppingEnv) -> None:
    with open_log(directory, "a", SMALL, env=env) as log:
        for data in DATA[:2]:
            log.append_as_follower(MemoryRecords(data))
        env.arm("write", "00000000000000000004.log", no_space())
        with pytest.raises(StorageError, match="no space") as caught:
            log.append_as_follower(MemoryRecords(DATA[2]))
        assert caught.value.is_retriable
        log.append_as_follower(MemoryRecords(DATA[2]))
        assert (log.flush(), offsets(log)) == (6, [0, 1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    "data",
    [batch(2, 1, partition_leader_epoch=5), packed_entry(b"v", None, offset=2, magic=1)],
    ids=["epoch", "message"],
)
def test_append_that_finds_no_space_leaves_the_leader_epochs_as_they_were(
    directory: Path, env: StoppingEnv, data: bytes
) -> None:
    with open_log(directory, "a", env=env) as log:
        log.append_as_follower(MemoryRecords(batch(0, 2, partition_leader_epoch=3)))
        env.arm("write", ".log", no_space())
        with pytest.raises(StorageError, match="no space"):
            log.append_as_follower(MemoryRecords(data))
        assert log.leader_epochs.entries == ((3, 0),)
        log.append(sent())
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n3 0\n"


def test_leader_epochs_that_can_not_be_put_back_stop_the_log(
    directory: Path, env: StoppingEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_no_space(entries: object) -> None:
        raise no_space()

    with open_log(directory, "a", env=env) as log:
        log.append_as_follower(MemoryRecords(batch(0, 2, partition_leader_epoch=3)))
        monkeypatch.setattr(log.leader_epochs, "restore", find_no_space)
        env.arm("write", ".log", no_space())
        with pytest.raises(StorageError, match="no space") as caught:
            log.append_as_follower(MemoryRecords(batch(2, 1, partition_leader_epoch=5)))
        assert (log.has_failed, caught.value.is_retriable) == (True, False)
    with open_log(directory, "a") as log:
        assert (log.leader_epochs.entries, offsets(log)) == (((3, 0),), [0, 1])


def test_records_whose_deletion_found_no_space_are_deleted_by_the_next_call(directory: Path, env: StoppingEnv) -> None:
    with open_log(directory, "a", SMALL, env=env) as log:
        for data in DATA:
            log.append_as_follower(MemoryRecords(data))
        env.arm("write", "leader-epoch-checkpoint.tmp", no_space())
        with pytest.raises(StorageError, match="no space"):
            log.delete_records(5)
        assert log.delete_records(5) == 5
        assert ([one.base_offset for one in log.segments], log.leader_epochs.entries) == ([4], ((0, 5),))


def test_readers_see_the_end_of_a_transaction_once_its_abort_is_noted(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_log(directory, "a") as log:
        log.append(sent(2, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
        append, seen = TransactionIndexFile.append, []

        def look_and_append(index: TransactionIndexFile, txn: AbortedTxn) -> None:
            seen.append((log.log_end_offset, log.last_stable_offset))
            append(index, txn)

        monkeypatch.setattr(TransactionIndexFile, "append", look_and_append)
        marker = write_end_transaction_marker(0, timestamp_ms=1, producer_id=7, producer_epoch=0, commit=False)
        log.append(MemoryRecords(marker), origin=AppendOrigin.COORDINATOR)
        assert (seen, log.last_stable_offset) == ([(2, 0)], 3)


def test_sync_that_finds_no_space_before_a_roll_stops_the_log(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_no_space(_file: WriteFile) -> None:
        raise no_space()

    with open_log(directory, "a") as log:
        log.append(sent())
        monkeypatch.setattr(WriteFile, "sync", find_no_space)
        with pytest.raises(StorageError, match="no space") as caught:
            log.roll()
        assert (log.has_failed, caught.value.is_retriable) == (True, False)
        with pytest.raises(LogFailedError):
            log.append(sent())


@pytest.mark.parametrize("ack", ["written", "flushed"])
def test_flush_that_finds_no_space_fails_the_append_whose_records_are_in_the_log(
    directory: Path, monkeypatch: pytest.MonkeyPatch, ack: Ack
) -> None:
    """With ack "written" the flush is due to flush_messages."""

    def find_no_space(_file: WriteFile) -> None:
        raise no_space()

    with open_log(directory, "a", LogConfig(flush_messages=1 if ack == "written" else MAX_INT64)) as log:
        log.append(sent(), ack=ack)
        with monkeypatch.context() as patched:
            patched.setattr(WriteFile, "sync", find_no_space)
            with pytest.raises(StorageError, match="no space") as caught:
                log.append(sent(), ack=ack)
        assert (log.has_failed, caught.value.is_retriable, offsets(log)) == (True, False, [0, 1])


def test_marker_whose_transaction_index_finds_no_space_is_in_the_log_when_it_is_opened_again(
    directory: Path, env: StoppingEnv
) -> None:
    with open_log(directory, "a", env=env) as log:
        log.append(sent(2, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
        env.arm("write", ".txnindex", no_space())
        marker = write_end_transaction_marker(0, timestamp_ms=1, producer_id=7, producer_epoch=0, commit=False)
        with pytest.raises(StorageError, match="no space") as caught:
            log.append(MemoryRecords(marker), origin=AppendOrigin.COORDINATOR)
        assert (log.has_failed, caught.value.is_retriable, log.log_end_offset) == (True, False, 2)
    with open_log(directory, "a") as log:
        assert (log.log_end_offset, log.last_stable_offset) == (3, 3)


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", "kstore-durable-point"])
@pytest.mark.parametrize("has_failed", [False, True], ids=["whole", "failed"])
def test_file_that_does_not_close_keeps_no_lock(
    directory: Path, env: StoppingEnv, suffix: str, has_failed: bool
) -> None:
    log = open_log(directory, "a", env=env)
    log.append(sent(), ack="flushed")
    if has_failed:
        env.arm("write", ".log", StorageError("broken", path="", errno=errno.EIO))
        with pytest.raises(StorageError, match="broken"):
            log.append(sent())
    env.arm("close", suffix, StorageError("cannot close", path="", errno=errno.EIO))
    # An index is open only while it is written, perhaps not at the end.
    is_told = suffix in (".log", "kstore-durable-point")
    with pytest.raises(StorageError, match="cannot close") if is_told else suppress(StorageError):
        log.close()
    with open_log(directory, "a") as again:
        assert offsets(again) == [0]


def test_close_that_cannot_write_a_checkpoint_leaves_what_strict_recovery_needs(
    directory: Path, env: StoppingEnv
) -> None:
    log = open_log(directory, "a", env=env)
    log.append(sent(), ack="flushed")
    env.arm("write", "recovery-point-offset-checkpoint.tmp", no_space())
    with pytest.raises(StorageError, match="no space"):
        log.close()
    flip_bit(directory / f"{0:020d}.log", -1, bit=0)
    with pytest.raises(CorruptLogError):
        open_log(directory, "a")


def test_clean_log_has_no_durable_point(directory: Path) -> None:
    """It would not describe what a broker does to the log after that."""
    with open_log(directory, "a") as log:
        log.append(sent(), ack="flushed")
        assert (directory / "kstore-durable-point").exists()
    assert not (directory / "kstore-durable-point").exists()


def test_fork_while_another_thread_appends_does_not_block_the_child(directory: Path) -> None:
    taken, done = threading.Event(), threading.Event()

    def hold(log: WritableLog) -> None:
        with log._gate.flush_lock, log._gate.append_lock:
            taken.set()
            done.wait()

    with open_log(directory, "a") as log:
        thread = threading.Thread(target=hold, args=(log,))
        thread.start()
        taken.wait()
        pid = os.fork()
        if pid == 0:
            try:
                log.append(sent())
            except LogLockedError:
                log.close()
                os._exit(3)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
        done.set()
        thread.join()
        assert log.append(sent()).base_offset == 0
