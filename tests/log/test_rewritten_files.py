"""Goal: a reader of a file that somebody else truncates in place and writes again gives records of one history, or
LogReplacedError.
Method: an Env that changes the files right before, or in the middle of, the n-th call of the system, for every n."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from kstore._core import crc32c
from kstore.arrow import record_batches
from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV, LocalEnv, LocalFile
from kstore.errors import LogReplacedError
from kstore.log.files.records import LastBatch
from kstore.log.log import Log
from kstore.log.scan import ScanFiles, check_junction
from kstore.record import ControlRecordType, MemoryRecords
from kstore.record.control import control_record_type
from kstore.store.opening import open_log
from tests.fakes.changing_files import COUNT, SEGMENTS, Change, ChangingEnv, Item, SteppingFile, history, log_file
from tests.making.batches import Layout, batch, batches, grow, record, write_partition
from tests.reference.codec import write_batch, write_end_transaction_marker

# With chunks of the least size, so that a segment takes several.
LARGE = 1500
SMALL_CHUNKS = LogConfig(read_chunk_bytes=4096)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return history(tmp_path / "root")


def append_the_same_sizes(directory: Path, *, base_offset: int = 20, keeps: int = 2, value_bytes: int = LARGE) -> None:
    """Truncate a segment in place and append batches with other values and the same boundaries."""
    log = log_file(directory, base_offset)
    kept = sum(map(len, batches(base_offset, keeps, value_bytes=value_bytes)))
    os.truncate(log, kept)
    coming = [other_value(batch) for batch in batches(base_offset + keeps, 10 - keeps, value_bytes=value_bytes)]
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
    ranges = log.plan(max_bytes=5000)
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


def test_new_listing_has_the_indexes_of_the_files_that_it_found(tmp_path: Path) -> None:
    paths = tmp_path / "before" / "t-0", tmp_path / "after" / "t-0"
    for path, value_bytes in zip(paths, (50, 90), strict=True):
        path.parent.mkdir()
        with open_log(path, "a", LogConfig(index_interval_bytes=0)) as writer:
            for base_offset in (0, 10):
                writer.append_as_follower(MemoryRecords(b"".join(batches(base_offset, 10, value_bytes=value_bytes))))
                writer.roll()
    with open_log(paths[1]) as log:
        expected = entries_of(log)
    with open_log(paths[0]) as log:
        assert entries_of(log) != expected
        for name in (f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")):
            (paths[1] / name).replace(paths[0] / name)
        assert [len(record.value or b"") for record in log.read(5, 7)] == [90, 90]
        assert entries_of(log) == expected


def entries_of(log: Log) -> list[object]:
    indexes = log.segments[0].offset_index, log.segments[0].time_index
    return [list(index.entries()) for index in indexes if index is not None]


def committed(first_offset: int, *, fates: str) -> bytes:
    """A batch of each producer in turn, and the marker of each: C commits, A aborts."""
    data = [
        batch(
            first_offset + at,
            producer_id=at,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
            value_bytes=LARGE,
        )
        for at in range(len(fates))
    ]
    ends = [
        write_end_transaction_marker(
            first_offset + len(fates) + at, timestamp_ms=5, producer_id=at, producer_epoch=0, commit=fate == "C"
        )
        for at, fate in enumerate(fates)
    ]
    return b"".join((*data, *ends))


FATES, OTHER_FATES = "CACACA", "ACACAC"


def settle_otherwise(directory: Path) -> None:
    """Truncate the transactions in place, and append the same ones with the opposite ends."""
    log = log_file(directory, 0)
    os.truncate(log, 0)
    grow(log, committed(0, fates=OTHER_FATES))


def offsets_committed(log: Log) -> list[int]:
    return [record.offset for record in log.read(isolation="read_committed")]


def columns_committed(log: Log) -> list[int]:
    tables = log.to_arrow_batches(columns=["offset"], isolation="read_committed", batch_bytes=1)
    return [offset for table in tables for offset in table["offset"].to_pylist()]


def ranges_committed(log: Log) -> list[int]:
    ranges = pickle.loads(pickle.dumps(log.plan(max_bytes=2 * LARGE, isolation="read_committed")))
    tables = record_batches(ranges, columns=["offset"], config=log.config, env=log._env)
    return [offset for table in tables for offset in table["offset"].to_pylist()]


def ranges_committed_one_by_one(log: Log) -> list[int]:
    """As by a process for each range."""
    ranges = log.plan(max_bytes=2 * LARGE, isolation="read_committed")
    tables = [
        one for part in ranges for one in record_batches([part], columns=["offset"], config=log.config, env=log._env)
    ]
    return [offset for table in tables for offset in table["offset"].to_pylist()]


def fetched_committed(log: Log) -> list[int]:
    found = log.fetch(0, 10**6, isolation="read_committed")
    aborted = {one.first_offset for one in found.aborted}
    ends = [
        control_record_type(next(iter(one)), one)
        for one in MemoryRecords(found.records).batches()
        if one.header.is_control
    ]
    # The transactions that the bytes themselves abort.
    assert aborted == {at for at, end in enumerate(ends) if end is ControlRecordType.ABORT}
    return [at for at in range(len(FATES)) if at not in aborted]


COMMITTED: dict[str, Callable[[Log], list[int]]] = {
    use.__name__: use
    for use in (offsets_committed, columns_committed, ranges_committed, ranges_committed_one_by_one, fetched_committed)
}


@pytest.mark.parametrize("name", COMMITTED)
def test_records_are_left_out_by_the_transactions_of_their_own_history(tmp_path: Path, name: str) -> None:
    def transactional(root: Path) -> Path:
        return write_partition(root, [[committed(0, fates=FATES)]])

    with open_log(transactional(tmp_path / "whole"), config=SMALL_CHUNKS) as log:
        before = COMMITTED[name](log)
    assert before == [0, 2, 4]
    count, at, answers = 1, 0, []
    while at < count:
        directory = transactional(tmp_path / f"at-{at}")
        env = ChangingEnv(lambda directory=directory: settle_otherwise(directory), at=at)
        with open_log(directory, config=SMALL_CHUNKS, env=env) as log:
            try:
                # Known from here on, so that the rest is read by what an earlier call found.
                log.transactions()
                answers.append(COMMITTED[name](log))
            except LogReplacedError:
                answers.append([])
        count, at = max(count, env.calls), at + 1
    assert set(map(tuple, answers)) <= {(), (0, 2, 4), (1, 3, 5)}
    assert [1, 3, 5] in answers
    assert [0, 2, 4] in answers


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_range_that_was_planned_before_a_truncation_after_it_gives_no_record(
    tmp_path: Path, isolation: Literal["read_uncommitted", "read_committed"]
) -> None:
    directory = history(tmp_path, value_bytes=LARGE)
    with open_log(directory) as log:
        ranges = pickle.loads(pickle.dumps(log.plan(max_bytes=5000, isolation=isolation)))
        assert len(ranges) > 2
        append_the_same_sizes(directory)
        for one in ranges:
            with pytest.raises(LogReplacedError, match="truncated and written again"):
                list(record_batches([one]))
        # Another reader lists the log anew.
        assert len(values_of_ranges(log)) == COUNT


def test_range_of_many_chunks_that_was_planned_before_a_truncation_after_it_gives_no_record(tmp_path: Path) -> None:
    directory = history(tmp_path, value_bytes=LARGE)
    with open_log(directory) as log:
        first, *_ = log.plan(max_bytes=20_000)
    append_the_same_sizes(directory)
    with pytest.raises(LogReplacedError, match="truncated and written again"):
        next(record_batches([first], config=SMALL_CHUNKS, batch_bytes=1))


@pytest.mark.parametrize("env", [DEFAULT_ENV, ChangingEnv()], ids=["direct reads", "reads by Python"])
def test_range_whose_file_is_removed_while_it_is_read_is_not_read_to_its_end(tmp_path: Path, env: LocalEnv) -> None:
    directory = history(tmp_path, value_bytes=LARGE)
    with open_log(directory) as log:
        *_, last = log.plan(max_bytes=20_000)
    tables = record_batches([last], config=SMALL_CHUNKS, batch_bytes=1, env=env)
    assert next(tables)["offset"].to_pylist() == [last.start_offset]
    Path(last.files[-1].path).unlink()
    with pytest.raises(LogReplacedError, match="was removed or replaced since it was listed"):
        list(tables)


@pytest.mark.parametrize("verify_crc", [True, False])
def test_append_after_a_planned_range_leaves_it_readable(directory: Path, verify_crc: bool) -> None:
    with open_log(directory) as log:
        ranges = log.plan(max_bytes=500)
    grow(log_file(directory, 20), b"".join(batches(30, 5, value_bytes=50)))
    tables = record_batches(ranges, columns=["offset"], verify_crc=verify_crc)
    assert [offset for table in tables for offset in table["offset"].to_pylist()] == list(range(COUNT))


class TornEnv(ChangingEnv):
    """Changes the files in the middle of a pread: its first `kept` bytes are those of before."""

    def __init__(self, change: Callable[[], object] | None = None, *, at: int = -1, kept: int = 0) -> None:
        super().__init__(change, at=at)
        self.kept = kept

    def open_read(self, path: str) -> LocalFile:
        file = LocalEnv.open_read(self, path)
        return TornFile(file, self)


class TornFile(SteppingFile):
    def pread(self, size: int, *, position: int) -> bytes:
        kept = min(self._env.kept, size)
        head = LocalFile.pread(self, kept, position=position)
        self._env.step()
        return head + LocalFile.pread(self, size - kept, position=position + kept)

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        kept = min(self._env.kept, len(buffer))
        view = memoryview(buffer)
        got = LocalFile.pread_into(self, view[:kept], position=position)
        self._env.step()
        return got + LocalFile.pread_into(self, view[kept:], position=position + kept)


def append_other_records(directory: Path) -> None:
    """Append records with keys in batches of the same sizes."""
    log = log_file(directory, 0)
    sizes = [len(one) for one in batches(0, 10, value_bytes=LARGE)]
    os.truncate(log, 0)
    grow(log, b"".join(with_a_key(offset, size) for offset, size in enumerate(sizes)))


def with_a_key(offset: int, size: int) -> bytes:
    """A batch of another record, of as many bytes."""
    value_bytes = size
    while len(data := write_batch([record(offset, b"v" * value_bytes, key=b"k" * 700)])) > size:
        value_bytes -= len(data) - size
    assert len(data) == size
    return data


def indexed(root: Path) -> Path:
    """A log of one segment whose index leads to its last batch."""
    return write_partition(root, [batches(0, 10, value_bytes=LARGE)], layout=Layout(index_interval_bytes=1))


def values_without_crc(log: Log) -> list[tuple[int, bytes]]:
    return [(record.offset, record.value or b"") for record in log.read(verify="header")]


def values_of_ranges_without_crc(log: Log) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    tables = record_batches(log.plan(), columns=["offset", "value"], verify_crc=False, config=log.config, env=log._env)
    for table in tables:
        found += zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
    return found


TORN = (*VALUES.values(), values_without_crc, values_of_ranges_without_crc)
BATCH_BYTES = len(batches(0, 1, value_bytes=LARGE)[0])


@pytest.mark.parametrize("tear", [5 * BATCH_BYTES, 5 * BATCH_BYTES + 65], ids=["between batches", "in a batch"])
@pytest.mark.parametrize("use", TORN, ids=lambda use: use.__name__)
def test_read_that_overlaps_a_rewrite_gives_no_mix_of_both(
    tmp_path: Path, use: Callable[[Log], list[tuple[int, bytes]]], tear: int
) -> None:
    """With the first `tear` bytes of a pread of before the rewrite, and the others of after it."""
    before, after = indexed(tmp_path / "before"), indexed(tmp_path / "after")
    append_other_records(after)
    with open_log(before, env=(counting := TornEnv(kept=tear))) as log:
        histories = [use(log)]
    with open_log(after) as log:
        histories.append(use(log))
    assert histories[0] != histories[1]
    found = []
    for at in range(counting.calls):
        directory = indexed(tmp_path / f"at-{at}")
        env = TornEnv(lambda directory=directory: append_other_records(directory), at=at, kept=tear)
        try:
            with open_log(directory, env=env) as log:
                found.append(use(log))
        except LogReplacedError:
            continue
        assert found[-1] in histories, at
    assert histories[1] in found


def without_index(root: Path, *, value_bytes: int = LARGE) -> Path:
    directory = history(root, value_bytes=value_bytes)
    for file in (*directory.glob("*.index"), *directory.glob("*.timeindex")):
        file.unlink()
    return directory


def values_of_columns_in_threads(log: Log) -> list[tuple[int, bytes]]:
    return values_of_columns(log, threads=2)


def values_of_bare_ranges(log: Log, *, threads: int = 1) -> list[tuple[int, bytes]]:
    """As of ranges whose last one finds the end of the log."""
    found: list[tuple[int, bytes]] = []
    ranges = [replace(one, last_batch=None) for one in log.plan(max_bytes=5000)]
    tables = record_batches(
        ranges, columns=["offset", "value"], batch_bytes=100, threads=threads, config=log.config, env=log._env
    )
    for table in tables:
        found += zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
    return found


def values_of_bare_ranges_in_threads(log: Log) -> list[tuple[int, bytes]]:
    return values_of_bare_ranges(log, threads=2)


def never_mixed(
    tmp_path: Path,
    use: Callable[[Log], list[tuple[int, bytes]]],
    change: Change,
    made: Callable[[Path], Path] = without_index,
) -> None:
    """Check that a use with a change before each call gives one history, or LogReplacedError, which some must."""
    histories = []
    after = made(tmp_path / "after")
    change(after)
    for directory in (made(tmp_path / "before"), after):
        with open_log(directory, env=(counting := ChangingEnv()), config=SMALL_CHUNKS) as log:
            histories.append(use(log))
    assert histories[0] != histories[1]
    found = [found_with_a_change(made(tmp_path / f"at-{at}"), use, change, at) for at in range(counting.calls)]
    assert [at for at, one in enumerate(found) if one is not None and one not in histories] == []
    assert None in found


@pytest.mark.parametrize("change", [append_the_same_sizes, append_to_every_segment])
@pytest.mark.parametrize("use", [values_of_columns, values_of_columns_in_threads], ids=lambda use: use.__name__)
def test_scan_without_an_index_gives_no_two_histories(
    tmp_path: Path, use: Callable[[Log], list[tuple[int, bytes]]], change: Change
) -> None:
    never_mixed(tmp_path, use, change)


# So that a chunk of the least size holds one whole batch and a part of the next.
ONE_A_CHUNK = 2500


def test_scan_with_one_batch_in_each_chunk_gives_no_two_histories(tmp_path: Path) -> None:
    never_mixed(
        tmp_path,
        values_of_columns,
        lambda directory: append_the_same_sizes(directory, value_bytes=ONE_A_CHUNK),
        made=lambda root: without_index(root, value_bytes=ONE_A_CHUNK),
    )


def values_of_open_files(log: Log) -> list[tuple[int, bytes]]:
    """Read all files before, so that they are open."""
    for _ in log.read():
        pass
    return values_of(log)


def test_files_that_are_open_are_not_read_after_they_were_removed_by_a_truncation(tmp_path: Path) -> None:
    never_mixed(
        tmp_path,
        values_of_open_files,
        append_to_every_segment,
        made=lambda root: history(root, value_bytes=LARGE),
    )


@pytest.mark.parametrize("change", [append_the_same_sizes, append_to_every_segment])
@pytest.mark.parametrize("use", [values_of_bare_ranges, values_of_bare_ranges_in_threads], ids=lambda use: use.__name__)
def test_ranges_that_are_read_ahead_are_of_one_history(
    tmp_path: Path, use: Callable[[Log], list[tuple[int, bytes]]], change: Change
) -> None:
    never_mixed(tmp_path, use, change)


def place_of(directory: Path, base_offset: int, slot: int) -> LastBatch:
    """The batch with a number of a segment, as a reader that passed it keeps it."""
    path = str(log_file(directory, base_offset))
    last = LastBatch()
    with DEFAULT_ENV.open_read(path) as file:
        last.start(path, file.identity())
        position = slot * len(batch(20, 1, value_bytes=LARGE))
        last.note(position, file.pread(61, position=position))
    return last


def test_junction_of_two_ranges_needs_both_batches(tmp_path: Path) -> None:
    directory = history(tmp_path, value_bytes=LARGE)
    earlier, later, other = place_of(directory, 20, 3), place_of(directory, 20, 8), place_of(directory, 10, 3)
    kept, files = place_of(directory, 20, 0), ScanFiles(DEFAULT_ENV, most_idle=2)
    for one in (earlier, other, kept):
        check_junction(one, later, files)
    append_the_same_sizes(directory)
    with pytest.raises(LogReplacedError, match="truncated and written again"):
        check_junction(kept, later, files)
    again = place_of(directory, 20, 8)
    with pytest.raises(LogReplacedError, match="truncated and written again"):
        check_junction(earlier, again, files)
    # While the later segment is in place, the earlier one is as it was.
    check_junction(kept, again, files)
    append_the_same_sizes(directory, base_offset=10)
    check_junction(other, again, files)
    log_file(directory, 20).unlink()
    with pytest.raises(LogReplacedError, match="was removed or replaced since it was listed"):
        check_junction(other, again, files)


@pytest.mark.parametrize("value_bytes", [10, LARGE - 100], ids=["smaller", "little smaller"])
def test_last_batch_that_is_another_since_the_end_was_found_is_none(tmp_path: Path, value_bytes: int) -> None:
    directory = write_partition(tmp_path, [batches(0, 3, value_bytes=LARGE)])
    with open_log(directory) as log:
        assert log.log_end_offset == 3
        (segment,) = log.segments
        place = segment.last_batch()
        assert place is not None
        assert place.position == len(b"".join(batches(0, 2, value_bytes=LARGE)))
        os.truncate(segment.path, place.position)
        grow(Path(segment.path), batch(2, value_bytes=value_bytes) + bytes(2 * LARGE))
        with pytest.raises(LogReplacedError, match="written again while it was read"):
            segment.last_batch()


def test_last_batch_with_another_last_offset_is_another(tmp_path: Path) -> None:
    directory = write_partition(tmp_path, [batches(0, 3, value_bytes=LARGE)])
    with open_log(directory) as log:
        assert log.log_end_offset == 3
        (segment,) = log.segments
        position = segment.size_in_bytes - len(batch(2, value_bytes=LARGE))
        os.truncate(segment.path, position)
        grow(Path(segment.path), batch(7, value_bytes=LARGE))
        with pytest.raises(LogReplacedError, match=f"batch at position {position}"):
            segment.last_batch()
