"""Goal: a scan opens a file as seldom as it may, however many ranges of it it reads, and leaves none open.
Method: logs read in many small ranges, by an Env that counts what is opened, and by one that calls its reads slow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from kstore.arrow import record_batches
from kstore.log.plan import ScanRange
from kstore.log.scan import ScanFiles
from kstore.store.opening import open_log
from tests.fakes.counting import CountingEnv
from tests.making.batches import batches, write_partition

COUNTS = (40, 40, 20)


class SlowEnv(CountingEnv):
    is_high_latency = True


@pytest.fixture
def ranges(tmp_path: Path) -> list[ScanRange]:
    """The ranges of a log of three segments, several of each."""
    firsts = [sum(COUNTS[:number]) for number in range(len(COUNTS))]
    made = [batches(first, count, value_bytes=500) for first, count in zip(firsts, COUNTS, strict=True)]
    with open_log(write_partition(tmp_path, made)) as log:
        found = log.plan(max_bytes=5000)
    assert len(found) > 3 * len(COUNTS)
    return found


def test_a_scan_opens_a_local_file_for_its_readers_not_for_its_ranges(ranges: list[ScanRange]) -> None:
    env = CountingEnv()
    found = record_batches(ranges, columns=["offset"], env=env)
    assert sum(len(rows) for rows in found) == sum(COUNTS)
    opened = Counter(Path(file.path).name for file in env.opened)
    assert len(opened) == len(COUNTS)
    # One to read, and one for the last batch of the log or the ends of two ranges.
    assert max(opened.values()) <= 2


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_that_share_files_read_what_one_reads(ranges: list[ScanRange], threads: int) -> None:
    one, several = ([*record_batches(ranges, columns=["offset"], threads=count)] for count in (1, threads))
    assert pa.Table.from_batches(several).equals(pa.Table.from_batches(one))


def test_a_file_is_opened_as_often_as_it_is_used_at_once(ranges: list[ScanRange]) -> None:
    path = ranges[0].files[0].path
    identity = dict(ranges[0].identities)[path]
    env = CountingEnv()
    with ScanFiles(env, most_idle=2) as files:
        for _ in range(3):
            taken = [files.take(path, identity) for _ in range(2)]
            assert taken[0] is not taken[1]
            for file in taken:
                files.give_back(file, identity)
        assert len(env.opened) == 2
        for file in [files.take(path, identity) for _ in range(3)]:
            files.give_back(file, identity)
        assert len(env.opened) == 3
        assert len(env.open_names()) == 2
    assert env.open_names() == []


def test_few_files_are_kept_open(tmp_path: Path) -> None:
    made = [batches(first, 10, value_bytes=500) for first in range(0, 120, 10)]
    with open_log(write_partition(tmp_path, made)) as log:
        ranges = log.plan(max_bytes=2000)
    env = CountingEnv()
    for _ in record_batches(ranges, columns=["offset"], env=env):
        assert len(env.open_names()) <= 4
    assert len(env.opened) >= len(made)


@pytest.mark.parametrize("env", [CountingEnv(), SlowEnv()], ids=["local", "slow"])
@pytest.mark.parametrize("threads", [1, 2])
def test_no_file_is_open_after_a_scan(ranges: list[ScanRange], env: CountingEnv, threads: int) -> None:
    found = record_batches(ranges, columns=["offset"], env=env, threads=threads, batch_bytes=100)
    next(found)
    assert env.opened
    found.close()
    assert env.open_names() == []
    found = record_batches(ranges, columns=["offset"], env=env, threads=threads)
    assert sum(len(rows) for rows in found) == sum(COUNTS)
    assert env.open_names() == []


def test_each_range_of_a_file_with_slow_reads_opens_it_and_closes_it(ranges: list[ScanRange]) -> None:
    env = SlowEnv()
    for _ in record_batches(ranges, columns=["offset"], env=env):
        # The one that is read, and that of the last batch of the log.
        assert len(env.open_names()) <= 2
    assert len(env.opened) >= len(ranges)
