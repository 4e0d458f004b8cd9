"""Goal: a log that is refreshed answers as one that is opened again, whatever was done to its directory in between, and
reads of a log that only grew no more than what is new.
Method: random histories of a directory that a broker writes, made by the reference codec; after each step the refreshed
Log is held against a new one. Modification times go on by a second a step, or not at all, as for fast writers."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kstore.env import LocalEnv
from kstore.errors import CorruptionError, LogReplacedError, OffsetOutOfRangeError
from kstore.log.log import Log
from kstore.store.opening import open_log
from kstore.types import MAX_TIMESTAMP
from tests.fakes.counting import CountingEnv
from tests.making.batches import (
    FIRST_TIMESTAMP_MS,
    Layout,
    records,
    with_fields,
    write_offset_checkpoint,
    write_partition,
    write_segment,
)
from tests.reference import codec as reference

OLD_NS = 1_500_000_000 * 10**9
SECOND_NS = 10**9
PRODUCERS = (7, 8)
# An index entry for nearly every batch.
DENSE = Layout(index_interval_bytes=100)


class BrokerDirectory:
    """A partition directory, changed as a broker changes it; segments: the batches of each, by base offset."""

    def __init__(self, root: Path, rng: random.Random, *, ages: bool) -> None:
        self.path = root / "t-0"
        self._root = root
        self._rng = rng
        self._ages = ages
        self._steps = 0
        self._start_offset = 0
        self._has_tail = False
        self.segments: dict[int, list[bytes]] = {0: []}
        write_partition(root, [[]])
        self.end_offset = 0
        self.append()
        self._age()

    def step(self) -> str:
        """Do something to the directory and return its name."""
        operations = [self.append] * 6 + [self.transact] * 3 + [self.roll] * 3
        operations += [self.append_without_index] * 2 + [self.delete_first, self.advance_start, self.truncate]
        operations += [self.clean, self.tear, self.preallocate, self.make_again, self.do_nothing]
        operation = self._rng.choice(operations)
        self._steps += 1
        operation()
        self._age()
        return operation.__name__

    @property
    def _active(self) -> list[bytes]:
        return self.segments[max(self.segments)]

    def _write(self, base_offset: int, *, has_index: bool = True) -> None:
        if has_index:
            write_segment(self.path, self.segments[base_offset], base_offset=base_offset, layout=DENSE)
        else:
            content = b"".join(self.segments[base_offset])
            (self.path / f"{base_offset:020d}.log").write_bytes(content)
        self._has_tail = False

    def _append(self, *found: bytes, has_index: bool = True) -> None:
        for one in found:
            self._active.append(one)
            self.end_offset = reference.Header.unpack(one).last_offset + 1
        self._write(max(self.segments), has_index=has_index)

    def _batch(self, **options: object) -> bytes:
        return reference.write_batch(records(self.end_offset, self._rng.randint(1, 4), value_bytes=40), **options)

    def append(self) -> None:
        for _ in range(self._rng.randint(1, 3)):
            self._append(self._batch())

    def append_without_index(self) -> None:
        for _ in range(self._rng.randint(1, 30)):
            self._append(self._batch(), has_index=False)

    def transact(self) -> None:
        producer = {"producer_id": self._rng.choice(PRODUCERS), "producer_epoch": 0}
        self._append(self._batch(**producer, base_sequence=0, is_transactional=True))
        if self._rng.random() < 0.3:
            self.append()
        if self._rng.random() < 0.7:
            when = {"timestamp_ms": FIRST_TIMESTAMP_MS + self.end_offset, "commit": self._rng.random() < 0.4}
            self._append(reference.write_end_transaction_marker(self.end_offset, **when, **producer))

    def roll(self) -> None:
        if self._active:
            self._write(max(self.segments))
            self.segments[self.end_offset] = []
            self._write(self.end_offset)

    def delete_first(self) -> None:
        if len(self.segments) > 1:
            first = min(self.segments)
            for path in self.path.glob(f"{first:020d}.*"):
                path.unlink()
            del self.segments[first]

    def advance_start(self) -> None:
        self._start_offset = self._rng.randint(min(self.segments), self.end_offset)
        write_offset_checkpoint(self._root / "log-start-offset-checkpoint", {"t-0": self._start_offset})

    def truncate(self) -> None:
        """Truncate the active segment in place and write other batches, fewer, as many or more than before."""
        if not self._active:
            return
        kept = self._rng.randrange(len(self._active))
        del self._active[kept:]
        last = self._active[-1] if self._active else None
        self.end_offset = max(self.segments) if last is None else reference.Header.unpack(last).last_offset + 1
        for _ in range(self._rng.randint(0, 4)):
            self._append(self._batch(partition_leader_epoch=self._steps))
        self._write(max(self.segments))

    def clean(self) -> None:
        """Remove a batch of a segment that is not the active one, in a new file, as the cleaner does."""
        older = [base for base in self.segments if base != max(self.segments) and len(self.segments[base]) > 1]
        if older:
            base = self._rng.choice(older)
            del self.segments[base][self._rng.randrange(len(self.segments[base]) - 1)]
            (self.path / f"{base:020d}.log").unlink()
            self._write(base)

    def tear(self) -> None:
        """Leave half of an append at the end of the active file."""
        if not self._has_tail:
            half = self._batch()[: self._rng.randint(1, 60)]
            with (self.path / f"{max(self.segments):020d}.log").open("ab") as file:
                file.write(half)
            self._has_tail = True

    def preallocate(self) -> None:
        if not self._has_tail:
            path = self.path / f"{max(self.segments):020d}.log"
            os.truncate(path, path.stat().st_size + 500)
            self._has_tail = True

    def make_again(self) -> None:
        """Delete the log's files and write others in their place, as truncate_fully_and_start_at does."""
        if self._rng.random() < 0.3:
            for path in self.path.glob("0*"):
                path.unlink()
            self.segments = {self.end_offset: []}
            self._write(self.end_offset)

    def do_nothing(self) -> None:
        pass

    def _age(self) -> None:
        """Let what was written in this step be from a second after the step before, long ago."""
        if not self._ages:
            return
        written_ns = OLD_NS + self._steps * SECOND_NS
        for path in [*self.path.iterdir(), self.path]:
            if path.stat().st_mtime_ns > written_ns:
                os.utime(path, ns=(written_ns, written_ns))


def answers(log: Log) -> list[object]:
    """What a log answers: its bounds, records, transactions, lookups and plans."""
    start, end = log.log_start_offset, log.log_end_offset
    found: list[object] = [start, end, log.size_in_bytes, [one.base_offset for one in log.segments]]
    found.append([(one.offset, one.value) for one in log.read()])
    found.append(log.transactions())
    found.append([(one.offset, one.value) for one in log.read(isolation="read_committed")])
    for timestamp_ms in (FIRST_TIMESTAMP_MS, FIRST_TIMESTAMP_MS + (start + end) // 2, MAX_TIMESTAMP):
        found.append(log.offset_for_timestamp(timestamp_ms))
    middle = (start + end) // 2
    found.append([one.offset for one in log.read(middle)])
    # Twice: a log remembers what it proved of an index.
    found.append([log.fetch(offset, 1).base_offset for _ in range(2) for offset in range(start, end, 3)])
    found.append(
        [(one.start_offset, one.end_offset, one.aborted) for one in log.plan(max_bytes=400, isolation="read_committed")]
    )
    return found


@pytest.mark.parametrize("ages", [True, False], ids=["slow", "fast"])
@pytest.mark.parametrize("seed", range(40))
def test_refreshed_log_answers_as_one_that_is_opened_again(tmp_path: Path, seed: int, ages: bool) -> None:
    rng = random.Random(seed)
    directory = BrokerDirectory(tmp_path, rng, ages=ages)
    with open_log(directory.path) as log:
        for _ in range(25):
            name = directory.step()
            if rng.random() < 0.3:
                continue
            log.refresh()
            with open_log(directory.path) as opened:
                assert answers(log) == answers(opened), name


def test_directory_that_was_made_again_is_another_log(tmp_path: Path) -> None:
    directory = BrokerDirectory(tmp_path, random.Random(1), ages=False)
    with open_log(directory.path) as log:
        directory.path.rename(tmp_path / "old")
        with pytest.raises(LogReplacedError, match="removed or replaced"):
            log.refresh()
        write_partition(tmp_path, [[]])
        with pytest.raises(LogReplacedError, match="removed or replaced"):
            log.refresh()


class SwappingEnv(LocalEnv):
    """Calls swap() once, when a directory is listed."""

    swap: Callable[[], object] | None = None

    def listdir(self, path: str) -> list[str]:
        swap, self.swap = self.swap, None
        if swap is not None:
            swap()
        return super().listdir(path)


@pytest.mark.parametrize("keeps_known", [True, False])
def test_directory_that_is_made_again_while_it_is_listed_is_another_log(tmp_path: Path, keeps_known: bool) -> None:
    directory = BrokerDirectory(tmp_path, random.Random(1), ages=False)
    env = SwappingEnv()

    def make_again() -> None:
        directory.path.rename(tmp_path / "old")
        write_partition(tmp_path, [[]])

    with open_log(directory.path, env=env) as log:
        env.swap = make_again
        with pytest.raises(LogReplacedError, match="removed or replaced"):
            log.refresh(keeps_known=keeps_known)


def test_refresh_tells_whether_a_segment_changed(tmp_path: Path) -> None:
    directory = BrokerDirectory(tmp_path, random.Random(1), ages=True)
    with open_log(directory.path) as log:
        assert log.refresh() is False
        directory.append()
        assert log.refresh() is True
        assert log.log_end_offset == directory.end_offset


def test_file_that_is_written_again_within_a_tick_of_the_clock_is_read_again(tmp_path: Path) -> None:
    """Neither its size nor its modification time shows it."""
    directory = BrokerDirectory(tmp_path, random.Random(1), ages=False)
    path = directory.path / f"{0:020d}.log"
    os.utime(directory.path, ns=(OLD_NS, OLD_NS))
    with open_log(directory.path) as log:
        assert log.log_end_offset == directory.end_offset
        listed_ns = path.stat().st_mtime_ns
        *others, last = directory.segments[0]
        last = with_fields(last, {"last_offset_delta": reference.Header.unpack(last).last_offset_delta + 5})
        path.write_bytes(b"".join([*others, last]))
        os.utime(path, ns=(listed_ns, listed_ns))
        log.refresh()
        assert log.log_end_offset == directory.end_offset + 5


def test_checkpoints_of_the_root_are_read_again_where_no_file_of_the_log_changed(tmp_path: Path) -> None:
    directory = BrokerDirectory(tmp_path, random.Random(1), ages=True)
    with open_log(directory.path) as log:
        assert log.log_start_offset == 0
        write_offset_checkpoint(tmp_path / "log-start-offset-checkpoint", {"t-0": 1})
        write_offset_checkpoint(tmp_path / "recovery-point-offset-checkpoint", {"t-0": 1})
        assert log.refresh() is False
        assert (log.log_start_offset, log.flushed_offset) == (1, 1)
        with pytest.raises(OffsetOutOfRangeError):
            log.read(0)


def test_iterator_goes_on_after_its_log_was_refreshed(tmp_path: Path) -> None:
    directory = BrokerDirectory(tmp_path, random.Random(1), ages=False)
    with open_log(directory.path) as log:
        expected = directory.end_offset
        found = log.read()
        first = next(found).offset
        directory.append()
        log.refresh()
        assert [first, *(one.offset for one in found)] == [*range(expected)]


def test_damage_that_was_appended_is_found_after_a_refresh(tmp_path: Path) -> None:
    directory = BrokerDirectory(tmp_path, random.Random(1), ages=False)
    with open_log(directory.path) as log:
        assert [*log.read()]
        good = directory.end_offset
        directory.append()
        path = directory.path / f"{0:020d}.log"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        log.refresh()
        with pytest.raises(CorruptionError):
            list(log.read(good))


@pytest.mark.parametrize("has_index", [True, False])
def test_log_that_grew_is_read_from_its_known_end(tmp_path: Path, has_index: bool) -> None:
    """However long the active segment is, and whether its index has reached the disk or not."""
    directory = BrokerDirectory(tmp_path, random.Random(1), ages=True)
    for _ in range(300):
        directory.append_without_index()
    if has_index:
        directory._write(0)
    env = CountingEnv()
    with open_log(directory.path, env=env) as log:
        log.plan(isolation="read_committed")
        assert log.size_in_bytes > 900_000
        for _ in range(5):
            start = log.log_end_offset
            directory.append_without_index()
            before = env.log_bytes
            log.refresh()
            assert log.transactions().last_stable_offset == directory.end_offset
            (found,) = log.plan(start_offset=start, isolation="read_committed")
            assert (found.start_offset, found.end_offset) == (start, directory.end_offset)
            assert env.log_bytes - before < 100_000
