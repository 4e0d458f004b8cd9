"""Goal: a writer searches the indexes of its sealed segments in maps, which no change of its own ever shortens.
Method: segments whose indexes take more than a page; what the process has mapped, which file has the name, and lookups
beside those of a log that reads its indexes whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kstore._core import MappedBytes
from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV, LocalEnv, LocalFile
from kstore.errors import LogClosedError, StorageError
from kstore.log.files.indexes import OffsetIndex, OffsetIndexFile, TimeIndexFile
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords
from kstore.store.opening import open_log
from tests.making.batches import batches

# The first batch of a segment gets no entry.
COUNT = 600
INDEXED = list(range(1, COUNT))
DATA = batches(0, COUNT, value_bytes=10)
SIZES = LogConfig(index_interval_bytes=0)
ACCESSES = {access: LogConfig(index_interval_bytes=0, index_access=access) for access in ("map", "read")}
SUFFIXES = (".index", ".timeindex")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A partition of a sealed segment of 600 batches and an active one of another 600."""
    path = tmp_path / "t-0"
    with open_log(path, "a", SIZES) as log:
        log.append_as_follower(MemoryRecords(b"".join(DATA)))
        log.roll()
        log.append_as_follower(MemoryRecords(b"".join(batches(COUNT, COUNT, value_bytes=10))))
    return path


def mapped_names() -> set[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {Path(line.split(maxsplit=5)[5]).name for line in lines if line.endswith(SUFFIXES)}


def sealed_names() -> set[str]:
    return {f"{0:020d}{suffix}" for suffix in SUFFIXES}


def index_of(log: WritableLog) -> OffsetIndex:
    index = log.segments[0].offset_index
    assert index is not None
    return index


@pytest.mark.parametrize("access", ACCESSES)
def test_indexes_of_sealed_segments_are_mapped_unless_they_are_to_be_read(directory: Path, access: str) -> None:
    with open_log(directory, "a", ACCESSES[access]) as log:
        sealed = log.segments[0]
        assert index_of(log).entry_count == len(INDEXED)
        assert sealed.time_index is not None
        assert mapped_names() == (sealed_names() if access == "map" else set())
        log.segments[1].translate_offset(COUNT + 5)
        assert f"{COUNT:020d}.index" not in mapped_names()
    del sealed
    assert mapped_names() == set()


def test_indexes_of_a_log_that_is_only_read_are_never_mapped(directory: Path) -> None:
    with open_log(directory, config=ACCESSES["map"]) as log:
        assert [segment.translate_offset(segment.base_offset + 9) is None for segment in log.segments] == [False] * 2
        assert mapped_names() == set()


def test_index_smaller_than_a_page_is_read(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", "a", SIZES) as log:
        log.append_as_follower(MemoryRecords(b"".join(DATA[:100])))
        log.roll()
        assert index_of(log).entry_count == 99
        assert mapped_names() == set()


@pytest.mark.parametrize("offset", range(0, 2 * COUNT, 37))
def test_mapped_indexes_give_the_answers_of_read_ones(directory: Path, offset: int) -> None:
    answers = []
    for config in ACCESSES.values():
        with open_log(directory, "a", config) as log:
            segment = log.segments[offset // COUNT]
            batch = segment.translate_offset(offset)
            assert batch is not None
            found = log.offset_for_timestamp(batch.max_timestamp_ms)
            answers.append((batch.position, batch.base_offset, found, [one.offset for one in log.read(offset)]))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("offset", [1, 100, COUNT - 1])
def test_truncation_into_a_sealed_segment_leaves_the_index_that_readers_have_mapped(
    directory: Path, offset: int
) -> None:
    with open_log(directory, "a", ACCESSES["map"]) as log:
        held = index_of(log), log.segments[0].time_index
        files = [directory / name for name in sealed_names()]
        before = [file.stat().st_ino for file in files]
        log.truncate_to(offset)
        assert all(file.stat().st_ino != inode for file, inode in zip(files, before, strict=True))
        assert [entry.offset for entry in held[0].entries()] == INDEXED
        assert held[1] is not None
        assert held[1].is_increasing()
        log.append_as_follower(MemoryRecords(b"".join(DATA[offset:])))
        log.roll()
        # Nor does the first batch that is appended after the segment was opened again.
        assert [entry.offset for entry in index_of(log).entries()] == [one for one in INDEXED if one != offset]
        assert {file.name for file in directory.iterdir() if file.suffix == ".tmp"} == set()


def test_index_of_the_active_segment_is_truncated_in_place(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", "a", SIZES) as log:
        log.append_as_follower(MemoryRecords(b"".join(DATA)))
        inode = (tmp_path / "t-0" / f"{0:020d}.index").stat().st_ino
        log.truncate_to(100)
        assert (tmp_path / "t-0" / f"{0:020d}.index").stat().st_ino == inode


def test_replaced_index_takes_entries_as_before(directory: Path) -> None:
    path = directory / f"{0:020d}.index"
    entries = path.read_bytes()
    index = OffsetIndexFile.open(path, base_offset=0, max_bytes=2**20)
    index.truncate_to(10)
    assert path.read_bytes() == entries[:72]
    index.append(offset=30, position=5000)
    index.truncate_to(30)
    assert index.entry_count == 9
    index.append(offset=31, position=5000)
    index.close()
    assert path.read_bytes() == entries[:72] + (31).to_bytes(4, "big") + (5000).to_bytes(4, "big")


@pytest.mark.parametrize("kind", [OffsetIndexFile, TimeIndexFile])
def test_index_that_is_emptied_leaves_the_file_that_readers_have_mapped(
    directory: Path, kind: type[OffsetIndexFile | TimeIndexFile]
) -> None:
    path = directory / f"{0:020d}.index"
    before = path.read_bytes()
    with DEFAULT_ENV.open_read(str(path)) as file:
        content = memoryview(file.map(file.size()))
    kind.create(path, base_offset=0, max_bytes=2**20).close()
    assert (path.read_bytes(), bytes(content)) == (b"", before)


def test_index_with_preallocated_space_is_read_since_its_writer_may_still_trim_it(directory: Path) -> None:
    path = directory / f"{0:020d}.index"
    with open_log(directory, "a", ACCESSES["map"]) as log:
        os.truncate(path, 10 * path.stat().st_size)
        assert index_of(log).entry_count == len(INDEXED)
        assert path.name not in mapped_names()


def test_map_that_fails_costs_no_lookup(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    class FailingFile(LocalFile):
        def map(self, size: int) -> MappedBytes:
            raise StorageError(f"cannot map {size} bytes of {self.path}: no memory", path=self.path, errno=errno.ENOMEM)

    class FailingEnv(LocalEnv):
        def open_read(self, path: str) -> LocalFile:
            file = super().open_read(path)
            return FailingFile(os.dup(file._fd), path=path) if path.endswith(".index") else file

    with open_log(directory, "a", ACCESSES["map"], env=FailingEnv()) as log:
        assert [record.offset for record in log.read(7, 9)] == [7, 8]
    assert "no memory" in caplog.text


# Maps


def test_map_outlives_its_file_and_is_read_only(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with DEFAULT_ENV.open_read(str(path)) as file:
        mapped = file.map(5)
    path.unlink()
    view = memoryview(mapped)
    assert (mapped.size_in_bytes, bytes(view), view.readonly) == (5, b"01234", True)
    part = view[2:4]
    del mapped, view
    assert bytes(part) == b"23"


def test_map_of_nothing_or_of_no_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    file = DEFAULT_ENV.open_read(str(path))
    for size in (0, -1):
        with pytest.raises(ValueError, match=f"size must be at least 1, got {size}"):
            file.map(size)
    with pytest.raises(OSError, match="Bad file descriptor"):
        MappedBytes(-1, size=10)
    file.close()
    with pytest.raises(LogClosedError):
        file.map(5)
