"""Goal: an error, an interrupt or a cancelled task takes no record away and doubles none: what was not given comes with
the next iteration. Method: reads and decoders that fail once or always, signals in the middle of a read, damage."""

from __future__ import annotations

import asyncio
import errno
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kstore import Record, open_log, open_store
from kstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KStoreError,
    LogReplacedError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    StorageError,
)
from kstore.log.following import partitions as partitions_module
from kstore.log.following.follower import Follower
from kstore.log.following.tail import LogTail
from kstore.log.log import Log
from kstore.log.write.writable_log import WritableLog
from kstore.record import RecordBatch
from kstore.store.store import WritableStore
from kstore.types import TopicPartition
from tests.making.batches import set_byte
from tests.reference.codec import crc32c

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def append(log: WritableLog, *values: str) -> None:
    log.append([Record(offset=0, timestamp_ms=1, value=value.encode()) for value in values])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


@pytest.fixture
def log(path: Path) -> Iterator[WritableLog]:
    with open_log(path, "a") as opened:
        for number in range(6):
            append(opened, str(number))
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WritableStore]:
    with open_store(tmp_path, "a") as opened:
        opened.create_topic("t", 2)
        yield opened


def iterated(follower: Follower[Any], times: int, *, of: Callable[[Any], list[int]]) -> tuple[list[int], list[str]]:
    """Iterate several times, and return the offsets that came and how each iteration ended."""
    offsets, endings = list[int](), list[str]()
    for _ in range(times):
        try:
            for one in follower:
                offsets += of(one)
            endings.append("end")
        except KStoreError as error:
            endings.append(type(error).__name__)
    return offsets, endings


def of_record(record: Record) -> list[int]:
    return [record.offset]


def of_table(table: Any) -> list[int]:
    found: list[int] = table.column("offset").to_pylist()
    return found


def failing_once(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Let one read of a tail fail as for want of a descriptor."""
    real, calls = LogTail.next_part, 0

    def next_part(self: LogTail) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise StorageError("cannot open a file", path=self.path, errno=errno.EMFILE)
        return real(self)

    monkeypatch.setattr(LogTail, "next_part", next_part)


def test_records_before_one_that_cannot_be_decoded_are_given_and_it_is_not_passed_over(path: Path) -> None:
    with open_log(path, "a") as log:
        append(log, "0", "1", "not a number", "3")
        append(log, "4")
        follower = log.follow(timeout=0, value_deserializer=lambda value: int(value or b""))
        found = iterated(follower, 3, of=of_record)
        assert found == ([0, 1], [RecordDeserializationError.__name__] * 3)
        assert follower.position == 2


def test_records_before_a_bad_one_in_a_batch_with_a_valid_crc_are_given(path: Path) -> None:
    write_bad_record(path)
    with open_log(path) as log:
        follower = log.follow(timeout=0)
        assert iterated(follower, 2, of=of_record) == ([0, 1, 2, 3], [InvalidRecordError.__name__] * 2)


def test_tables_of_the_batches_before_one_with_a_bad_record_are_given(path: Path) -> None:
    pytest.importorskip("pyarrow")
    write_bad_record(path)
    with open_log(path) as log:
        table = log.follow(timeout=0).to_arrow_batches(columns=["offset", "value"])
        assert iterated(table, 2, of=of_table) == ([0, 1, 2], [InvalidRecordError.__name__] * 2)
        assert table.position == 3


def write_bad_record(path: Path) -> None:
    """Write batches of one, two and three records, of which the last one has a valid CRC and a bad second record."""
    with open_log(path, "a") as log:
        for number in range(3):
            append(log, *"abc"[: 1 + number])
    file = path / f"{0:020d}.log"
    content = bytearray(file.read_bytes())
    position = _last_batch(content)
    # The size of its second record.
    content[position + 61 + 8] = 0x7F
    content[position + 17 : position + 21] = struct.pack(">I", crc32c(bytes(content[position + 21 :])))
    file.write_bytes(content)


def _last_batch(content: bytes) -> int:
    position = last = 0
    while position < len(content):
        last, position = position, position + 12 + int.from_bytes(content[position + 8 : position + 12], "big")
    return last


@pytest.mark.parametrize("form", ["records", "arrow"])
def test_what_comes_before_damage_is_given_and_the_damage_raised_each_time(
    log: WritableLog, path: Path, form: str
) -> None:
    pytest.importorskip("pyarrow")
    set_byte(path / f"{0:020d}.log", 4 * log.size_in_bytes // 6 + 20, value=0)
    with open_log(path) as reader:
        follower: Follower[Any] = reader.follow(timeout=0)
        of: Callable[[Any], list[int]] = of_record
        if form == "arrow":
            follower, of = follower.to_arrow_batches(columns=["offset"]), of_table
        assert iterated(follower, 3, of=of) == ([0, 1, 2, 3], [CorruptRecordError.__name__] * 3)
        assert follower.position == 4


@pytest.mark.parametrize("call", range(1, 6))
@pytest.mark.parametrize("form", ["records", "arrow"])
def test_a_read_that_fails_once_takes_nothing_away(
    log: WritableLog, monkeypatch: pytest.MonkeyPatch, form: str, call: int
) -> None:
    pytest.importorskip("pyarrow")
    failing_once(monkeypatch, call)
    follower: Follower[Any] = log.follow(timeout=0)
    of: Callable[[Any], list[int]] = of_record
    if form == "arrow":
        follower, of = follower.to_arrow_batches(columns=["offset"], batch_bytes=150), of_table
    assert iterated(follower, 3, of=of)[0] == list(range(6))


def test_a_partition_whose_read_fails_once_is_read_again(store: WritableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for partition in (T0, T1):
        for _ in range(3):
            append(store.log(*partition), "v")
    failing_once(monkeypatch, 2)
    follower = store.follow(timeout=0)
    assert sorted(iterated(follower, 2, of=of_record)[0]) == [0, 0, 1, 1, 2, 2]


def test_records_that_are_gone_from_a_partition_are_raised_each_time(store: WritableStore) -> None:
    append(store.log(*T0), "a", "b")
    append(store.log(*T0), "c")
    follower = store.follow(timeout=0)
    follower_of_one = store.log(*T0).follow(0, timeout=0)
    store.log(*T0).roll()
    append(store.log(*T0), "d")
    store.log(*T0).delete_records(3)
    for one in (follower, follower_of_one):
        assert iterated(one, 3, of=of_record) == ([], [OffsetOutOfRangeError.__name__] * 3)


def test_new_partitions_are_followed_although_one_could_not_be_opened_at_first(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = store.follow(timeout=0)
    assert list(follower) == []
    store.create_partitions("t", 4)
    real, calls = partitions_module.ManyLogs._open, 0

    def open_tail(self: Any, *args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise StorageError("cannot open a file", errno=errno.EMFILE)
        real(self, *args)

    monkeypatch.setattr(partitions_module.ManyLogs, "_open", open_tail)
    for number in range(4):
        append(store.log("t", number), "v")
    offsets, endings = iterated(follower, 2, of=of_record)
    assert (offsets, endings) == ([0] * 4, [StorageError.__name__, "end"])


def test_topic_that_is_made_again_is_followed_from_its_start(store: WritableStore) -> None:
    follower = store.follow(timeout=0)
    append(store.log(*T0), "a", "b", "c")
    assert iterated(follower, 1, of=of_record)[0] == [0, 1, 2]
    store.delete_topic("t")
    store.create_topic("t")
    for _ in range(5):
        append(store.log(*T0), "d")
    assert iterated(follower, 1, of=of_record)[0] == [0, 1, 2, 3, 4]


def test_partition_that_changes_too_often_is_followed_on_where_it_was(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store.log(*T0), "a", "b")
    with open_store(store.root) as reader:
        follower = reader.follow(timeout=0)
        assert iterated(follower, 1, of=of_record)[0] == [0, 1]
        append(store.log(*T0), "c")
        with monkeypatch.context() as patched:
            patched.setattr(LogTail, "next_part", _raising(LogReplacedError("too often", path=f"{store.root}/t-0")))
            assert iterated(follower, 1, of=of_record) == ([], [LogReplacedError.__name__])
        store.create_topic("u")
        assert iterated(follower, 2, of=of_record)[0] == [2]


def test_log_that_is_opened_again_below_the_position_is_not_followed_from_its_start(store: WritableStore) -> None:
    log = store.log(*T0)
    for _ in range(6):
        append(log, "a")
    follower = store.follow(timeout=0)
    assert iterated(follower, 1, of=of_record)[0] == list(range(6))
    log.truncate_to(4)
    log.close()
    found = [iterated(follower, 1, of=of_record)]
    store.create_topic("u")
    found += [iterated(follower, 1, of=of_record) for _ in range(2)]
    assert found == [([], [OffsetOutOfRangeError.__name__])] * 3


def _raising(error: Exception) -> Callable[..., Any]:
    def fail(*args: object) -> Any:
        raise error

    return fail


class _InTheMiddle:
    """Sends this process a signal while a follower reads a batch: at the n-th check of a CRC."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: int, number: signal.Signals) -> None:
        self._real, self._left, self._number = RecordBatch.verify, call, number
        middle = self

        def verify(self: RecordBatch) -> Any:
            middle._left -= 1
            if middle._left == 0:
                signal.raise_signal(middle._number)
            return middle._real(self)

        monkeypatch.setattr(RecordBatch, "verify", verify)


@pytest.mark.parametrize("call", range(1, 7))
def test_an_interrupt_takes_nothing_away(log: WritableLog, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    follower, offsets = log.follow(timeout=0), list[int]()
    _InTheMiddle(monkeypatch, call, signal.SIGINT)
    interrupts = 0
    for _ in range(2):
        try:
            for record in follower:
                offsets.append(record.offset)
        except KeyboardInterrupt:
            interrupts += 1
    assert (offsets, interrupts) == (list(range(6)), 1)


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], object]], None]]:
    before = signal.getsignal(signal.SIGUSR1)

    def install(call: Callable[[], object]) -> None:
        def handle(number: int, frame: FrameType | None) -> None:
            del number, frame
            call()

        signal.signal(signal.SIGUSR1, handle)

    yield install
    signal.signal(signal.SIGUSR1, before)


def test_close_in_a_signal_handler_ends_a_read_that_it_interrupts(
    path: Path, log: WritableLog, monkeypatch: pytest.MonkeyPatch, on_signal: Callable[[Callable[[], object]], None]
) -> None:
    with open_log(path) as reader:
        follower = reader.follow(timeout=5)
        on_signal(follower.close)
        _InTheMiddle(monkeypatch, 3, signal.SIGUSR1)
        assert len(list(follower)) < 6
        assert follower.is_closed


class _SlowReads:
    """Lets reads in worker threads wait until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        real = LogTail.next_part

        def next_part(tail: LogTail) -> Any:
            if threading.current_thread() is not threading.main_thread():
                self.began.set()
                assert self.go.wait(10)
            return real(tail)

        monkeypatch.setattr(LogTail, "next_part", next_part)


@pytest.mark.parametrize("goes_on", ["async", "sync"])
def test_what_a_cancelled_task_read_is_given_after_its_loop_has_ended(
    log: Log, monkeypatch: pytest.MonkeyPatch, goes_on: str
) -> None:
    reads, follower = _SlowReads(monkeypatch), log.follow(timeout=0)

    async def begin() -> None:
        waiting = asyncio.ensure_future(follower.__anext__())
        assert await asyncio.to_thread(reads.began.wait, 10)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        reads.go.set()

    async def take() -> list[int]:
        return [record.offset async for record in follower]

    asyncio.run(begin())
    found = asyncio.run(take()) if goes_on == "async" else [record.offset for record in follower]
    assert found == list(range(6))


def test_an_interrupt_while_a_worker_thread_reads_takes_nothing_away(
    log: Log, monkeypatch: pytest.MonkeyPatch, on_signal: Callable[[Callable[[], object]], None]
) -> None:
    reads, follower = _SlowReads(monkeypatch), log.follow(timeout=0)

    async def begin() -> None:
        waiting = asyncio.ensure_future(follower.__anext__())
        assert await asyncio.to_thread(reads.began.wait, 10)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        # The executor of the loop would wait for the read.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))

    def interrupt() -> None:
        raise KeyboardInterrupt

    asyncio.run(begin())
    on_signal(interrupt)
    later = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1))
    later.start()
    with pytest.raises(KeyboardInterrupt):
        next(follower)
    reads.go.set()
    assert [record.offset for record in follower] == list(range(6))


def test_forms_of_a_follower_go_on_where_the_other_one_met_an_error(path: Path) -> None:
    pytest.importorskip("pyarrow")
    with open_log(path, "a") as log:
        append(log, "0", "1", "not a number", "3")
        append(log, "4")
        follower = log.follow(timeout=0, value_deserializer=lambda value: int(value or b""))
        assert iterated(follower, 1, of=of_record) == ([0, 1], [RecordDeserializationError.__name__])
        table = follower.to_arrow_batches(columns=["offset"])
        assert table.position == follower.position == 2
        assert iterated(table, 1, of=of_table) == ([2, 3, 4], ["end"])
        assert follower.position == 5
        assert iterated(follower, 1, of=of_record) == ([], ["end"])


def test_a_closed_follower_ends_also_where_a_record_cannot_be_decoded(path: Path) -> None:
    with open_log(path, "a") as log:
        append(log, "not a number")
        follower = log.follow(timeout=0, value_deserializer=lambda value: int(value or b""))
        assert iterated(follower, 1, of=of_record) == ([], [RecordDeserializationError.__name__])
        follower.close()
        assert iterated(follower, 2, of=of_record) == ([], ["end", "end"])


def test_a_read_that_fails_once_is_tried_again_by_async_for(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_once(monkeypatch, 1)
    follower = log.follow(timeout=0)

    async def take() -> list[int]:
        return [record.offset async for record in follower]

    with pytest.raises(StorageError):
        asyncio.run(take())
    assert asyncio.run(take()) == list(range(6))
