"""Goal: no failure of the disk leaves half a batch in a file of records, or lets a lost write pass for a flushed one.
Method: real files; os calls replaced to write little, to fail once or for good."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from kstore.env import DEFAULT_ENV, WriteFile
from kstore.env import files as env_module
from kstore.errors import (
    LogClosedError,
    LogFailedError,
    SegmentTooLargeError,
    StorageError,
)
from kstore.log.segment.file_records import FileRecords
from kstore.record import MemoryRecords
from tests.making.record_files import BATCHES, DATA, POSITIONS, SIZE, content, failing


def writing(chunk: int, *, calls: int, code: int) -> Callable[[int, memoryview, int], int]:
    """A pwrite that takes `chunk` bytes a call, and from a number of calls on fails."""
    pwrite, made = os.pwrite, 0

    def write(fd: int, data: memoryview, position: int) -> int:
        nonlocal made
        made += 1
        if made > calls:
            raise OSError(code, os.strerror(code))
        return pwrite(fd, data[:chunk], position)

    return write


@pytest.mark.parametrize("chunk", [1, 61, 1000])
def test_short_writes_are_gone_on_with(log_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(env_module.os, "pwrite", writing(chunk, calls=10**9, code=0))
    with FileRecords.open(log_path) as records:
        records.append(MemoryRecords(DATA))
        assert content(records) == DATA


def test_write_that_takes_nothing_is_an_error_and_no_endless_loop(
    log_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileRecords.open(log_path) as records:
        monkeypatch.setattr(env_module.os, "pwrite", lambda *_: 0)
        with pytest.raises(StorageError, match="wrote 0 of"):
            records.append(MemoryRecords(DATA))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS])
@pytest.mark.parametrize("calls", [0, 1, 3])
@pytest.mark.parametrize("preallocate_bytes", [0, 4 * SIZE])
def test_failed_append_leaves_nothing_and_appends_go_on_after_it(
    log_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, calls: int, preallocate_bytes: int
) -> None:
    with FileRecords.open(log_path, preallocate_bytes=preallocate_bytes) as records:
        records.append(MemoryRecords(BATCHES[0]))
        with monkeypatch.context() as patch:
            patch.setattr(env_module.os, "pwrite", writing(100, calls=calls, code=code))
            with pytest.raises(StorageError) as caught:
                records.append(MemoryRecords(BATCHES[1]))
            assert (caught.value.errno, caught.value.path) == (code, str(log_path))
            assert caught.value.is_retriable == (code in (errno.ENOSPC, errno.EDQUOT))
        assert (content(records), log_path.read_bytes()) == (BATCHES[0], BATCHES[0])
        records.append(MemoryRecords(BATCHES[2]))
    assert log_path.read_bytes() == BATCHES[0] + BATCHES[2]


def test_interrupted_append_leaves_nothing(log_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite

    def interrupted(fd: int, data: memoryview, position: int) -> int:
        pwrite(fd, data[:50], position)
        raise KeyboardInterrupt

    with FileRecords.open(log_path) as records:
        with monkeypatch.context() as patch:
            patch.setattr(env_module.os, "pwrite", interrupted)
            with pytest.raises(KeyboardInterrupt):
                records.append(MemoryRecords(DATA))
        assert (records.size_in_bytes, log_path.read_bytes()) == (0, b"")


def test_append_that_cannot_be_undone_ends_the_writing_and_not_the_reading(
    log_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    records = FileRecords.open(log_path)
    records.append(MemoryRecords(BATCHES[0]))
    with monkeypatch.context() as patch:
        patch.setattr(env_module.os, "pwrite", writing(100, calls=1, code=errno.ENOSPC))
        patch.setattr(env_module.os, "ftruncate", failing(errno.EIO))
        with pytest.raises(StorageError) as caught:
            records.append(MemoryRecords(BATCHES[1]))
    assert (caught.value.errno, caught.value.is_retriable) == (errno.ENOSPC, False)
    assert f"after position {POSITIONS[1]}" in caplog.text
    check_only_reading_is_left(records)


def check_only_reading_is_left(records: FileRecords) -> None:
    for change in (
        lambda: records.append(MemoryRecords(DATA)),
        records.flush,
        records.trim,
        lambda: records.truncate_to(0),
    ):
        with pytest.raises(LogFailedError, match="an earlier call failed") as caught:
            change()
        assert caught.value.errno == errno.EIO
    assert content(records) == BATCHES[0]
    with pytest.raises(LogFailedError):
        records.close()
    with pytest.raises(LogClosedError):
        records.read()


@pytest.mark.parametrize("call", ["fdatasync", "fsync"], ids=["of-the-file", "of-the-directory"])
def test_nothing_is_written_after_a_failed_sync(log_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """The kernel reports lost pages once: a sync that is tried again would tell a lie."""
    records = FileRecords.open(log_path)
    records.append(MemoryRecords(BATCHES[0]))
    with monkeypatch.context() as patch:
        patch.setattr(env_module.os, call, failing(errno.EIO))
        with pytest.raises(StorageError, match="cannot sync") as caught:
            records.flush()
    assert caught.value.errno == errno.EIO
    check_only_reading_is_left(records)


def test_failed_truncation_ends_the_writing(written_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = FileRecords.open(written_log)
    with monkeypatch.context() as patch:
        patch.setattr(env_module.os, "ftruncate", failing(errno.EIO))
        with pytest.raises(StorageError, match="cannot truncate"):
            records.truncate_to(10)
    assert content(records) == DATA
    with pytest.raises(LogFailedError):
        records.append(MemoryRecords(DATA))
    records.close_handlers()


def test_no_descriptor_is_left_by_opens_that_fail(tmp_path: Path) -> None:
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 2**31)
    os.mkfifo(tmp_path / "fifo")
    before = os.listdir("/proc/self/fd")
    for name in ("large", "fifo"):
        for is_read_only in (False, True):
            with pytest.raises((StorageError, SegmentTooLargeError)):
                FileRecords.open(tmp_path / name, is_read_only=is_read_only)
    assert os.listdir("/proc/self/fd") == before
    assert DEFAULT_ENV.unlink(str(tmp_path / "missing")) is False


def test_limit_of_the_system_on_file_sizes_leaves_nothing_of_the_append(log_path: Path) -> None:
    """A short write by the kernel itself, and then EFBIG."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with FileRecords.open(log_path) as records:
        records.append(MemoryRecords(BATCHES[0]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (POSITIONS[1] + 100, before[1]))
        try:
            with pytest.raises(StorageError) as caught:
                records.append(MemoryRecords(BATCHES[1]))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert caught.value.errno == errno.EFBIG
        assert log_path.read_bytes() == BATCHES[0]
        records.append(MemoryRecords(BATCHES[1]))
    assert log_path.read_bytes() == BATCHES[0] + BATCHES[1]


def test_nothing_is_taken_for_durable_behind_a_write_back_that_failed(
    log_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileRecords.open(log_path) as records:
        records.append(MemoryRecords(DATA))
        with monkeypatch.context() as failing_now:
            failing_now.setattr(WriteFile, "start_write_back", failing_write_back)
            with pytest.raises(StorageError):
                records.start_write_back(0)
        for call in (records.flush, lambda: records.append(MemoryRecords(DATA)), lambda: records.start_write_back(0)):
            with pytest.raises(LogFailedError):
                call()
        assert content(records) == DATA
        records.close_handlers()


def failing_write_back(file: WriteFile, size: int, *, position: int) -> None:
    raise StorageError(f"cannot write back {size} bytes at {position}", path=file.path, errno=errno.EIO)
