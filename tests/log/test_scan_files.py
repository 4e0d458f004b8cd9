"""Goal: a scan opens a file as seldom as it may, however many ranges of it it reads, and leaves none open.
Method: logs read in many small ranges, by an Env that counts what is opened, and by one that calls its reads slow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kstore.arrow import record_batches
from kstore.log.plan import ScanRange
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


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_scan_opens_a_local_file_for_its_threads_not_for_its_ranges(ranges: list[ScanRange], threads: int) -> None:
    env = CountingEnv()
    found = record_batches(ranges, columns=["offset"], env=env, threads=threads)
    assert sum(len(rows) for rows in found) == sum(COUNTS)
    opened = Counter(Path(file.path).name for file in env.opened)
    assert len(opened) == len(COUNTS)
    # One to read, and one for the last batch of the log or the ends of two ranges.
    assert max(opened.values()) <= 2 * threads


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
