"""Goal: a client's batch is written with a new header from where it lies, byte for byte as a copy of it would be, and
from a copy if anyone could change it there; what the system leaves of one write is written or undone.
Method: the same batch as bytes, as memory that may change, and through an Env whose files are not plain; the limit of
the system on file sizes."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV, Env
from kstore.errors import LogFailedError, StorageError
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords, MemoryRecordsBuilder
from kstore.store.opening import open_log
from tests.fakes.faults import FaultyEnv

NOW_MS = DEFAULT_ENV.wall_clock_ms()
PRODUCER = {"producer_id": 7, "producer_epoch": 0}


def sent(count: int = 3, **options: Any) -> bytes:
    """Return a batch as a producer sends it."""
    builder = MemoryRecordsBuilder(**options)
    for number in range(count):
        builder.append(timestamp_ms=NOW_MS + number, key=b"k", value=b"v" * 100)
    built: MemoryRecords = builder.build()
    return bytes(built)


def appended(directory: Path, batches: list[Any], config: LogConfig, env: Env = DEFAULT_ENV) -> tuple[Any, bytes]:
    """Append one batch after the other to a new log; return the results and the file."""
    with open_log(directory / "t-0", "a", config, env=env) as log:
        infos = [log.append(MemoryRecords(data))[:3] for data in batches]
    return infos, (directory / "t-0" / f"{0:020}.log").read_bytes()


def whole(data: bytes) -> Any:
    return data


def within(data: bytes) -> Any:
    return memoryview(b"before" + data + b"after")[6:-5]


@pytest.mark.parametrize("form", [whole, within, bytearray], ids=["bytes", "a part of bytes", "bytearray"])
@pytest.mark.parametrize("env", [None, FaultyEnv], ids=["plain files", "other files"])
@pytest.mark.parametrize(
    ("settings", "options"),
    [
        pytest.param({}, {}, id="common"),
        pytest.param({}, {"compression": "lz4"}, id="compressed"),
        pytest.param({}, {"compression": "zstd"}, id="compressed by a package"),
        pytest.param({}, PRODUCER, id="a producer"),
        pytest.param({"segment_bytes": 900}, {}, id="a full segment"),
        pytest.param({"max_message_bytes": 2**21, "segment_bytes": 2**30}, {"count": 4000}, id="several calls"),
    ],
)
def test_batch_is_written_as_a_copy_that_was_stamped(
    tmp_path: Path, form: Callable[[bytes], Any], env: type[Env] | None, settings: Any, options: Any
) -> None:
    sequences = (dict(options, base_sequence=3 * number) if options == PRODUCER else options for number in range(3))
    batches = [sent(**one) for one in sequences]
    infos, file = appended(
        tmp_path, [form(data) for data in batches], LogConfig(**settings), DEFAULT_ENV if env is None else env()
    )
    count = options.get("count", 3)
    stamped = []
    for number, data in enumerate(batches):
        copy = bytearray(data)
        copy[:8], copy[12:16] = (number * count).to_bytes(8, "big"), bytes(4)
        stamped.append(bytes(copy))
    assert b"".join(stamped).startswith(file) if "segment_bytes" in settings else file == b"".join(stamped)
    assert [info[:2] for info in infos] == [(number * count, (number + 1) * count - 1) for number in range(3)]


def test_batch_with_log_append_time_is_left_as_it_was(tmp_path: Path) -> None:
    data = sent()
    before = bytes(bytearray(data))
    with open_log(tmp_path / "t-0", "a", LogConfig(message_timestamp_type="LogAppendTime")) as log:
        for _ in range(2):
            log.append(MemoryRecords(data))
        times = {record.timestamp_ms for record in log.read()}
    assert data == before
    assert min(times) >= NOW_MS
    assert len(times) <= 2


@contextmanager
def limited(size: int) -> Iterator[Callable[[], None]]:
    """Let files of this process have `size` bytes at most; yield a function that ends that early."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WritableLog]:
    with open_log(tmp_path / "t-0", "a") as log:
        log.append(MemoryRecords(sent()))
        yield log


@pytest.mark.parametrize("taken", [1, 60, 61, 62, 200], ids=lambda taken: f"{taken} bytes")
def test_write_that_takes_a_part_is_gone_on_with(log: WritableLog, monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    data, path, pwrite = sent(), Path(log.path) / f"{0:020}.log", os.pwrite
    with limited(len(data) + taken) as end_limit, monkeypatch.context() as patch:

        def write(fd: int, rest: Any, position: int) -> int:
            assert (len(rest), position) == (len(data) - taken, len(data) + taken)
            end_limit()
            return pwrite(fd, rest, position)

        patch.setattr(os, "pwrite", write)
        assert log.append(MemoryRecords(data)).base_offset == 3
    assert path.read_bytes()[len(data) + 17 :] == data[17:]
    assert [record.offset for record in log.read()] == list(range(6))


@pytest.mark.parametrize("taken", [0, 1, 200], ids=lambda taken: f"{taken} bytes")
def test_write_that_fails_leaves_nothing_of_the_batch(log: WritableLog, taken: int) -> None:
    path = Path(log.path) / f"{0:020}.log"
    before = path.read_bytes()
    with limited(len(before) + taken), pytest.raises(StorageError) as caught:
        log.append(MemoryRecords(sent()))
    assert (caught.value.errno, caught.value.path) == (errno.EFBIG, str(path))
    assert path.read_bytes() == before
    assert [record.offset for record in log.read()] == [0, 1, 2]
    with pytest.raises(LogFailedError):
        log.append(MemoryRecords(sent()))
