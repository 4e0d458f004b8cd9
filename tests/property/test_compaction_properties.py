"""Goal: whatever a log went through, a compaction leaves what a list and a dict say, and loses, invents or brings back
nothing. Method: random histories on a log in memory and on the model of tests/reference/compaction.py."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from kstore.config import MIB
from kstore.log.files.transaction_index import decode_aborted_txns
from kstore.log.verify import verify
from kstore.store.opening import open_log
from tests.fakes.disk import SimulatedDisk
from tests.making.compacting import PATH, History
from tests.making.strategies import examples


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk({})
    disk.directories |= {"/", "/root"}
    return disk


def run(rng: random.Random, *, steps: int, **options: bool) -> None:
    history, disk = History(rng, **options), new_disk()
    log = history.opened(disk)
    for _ in range(steps):
        history.pass_time(disk)
        history.step(log)
        if rng.random() < 0.1:
            history.check_exactly(log)
        if rng.random() < 0.05:
            log.close()
            log = history.opened(disk)
    history.compact(log)
    history.check_exactly(log)
    log.close()
    with open_log(PATH, config=history.config, env=disk) as read:
        history.check_exactly(read)
        assert list(verify(read, env=disk)) == []


@examples(25, suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False))
def test_compaction_leaves_what_the_model_leaves(rng: random.Random) -> None:
    run(rng, steps=60)


@examples(15, suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False))
def test_rounds_with_a_small_map_lose_and_bring_back_nothing(rng: random.Random) -> None:
    run(rng, steps=60, is_small_map=True)


def indexed_aborts(disk: SimulatedDisk, *, start_offset: int) -> list[tuple[int, int]]:
    """Return (producer id, offset of the marker) of the entries of transaction indexes, from an offset on."""
    paths = [f"{PATH}/{name}" for name in disk.listdir(PATH) if name.endswith(".txnindex")]
    entries = [
        entry
        for path in paths
        for entry in decode_aborted_txns(disk.read_file(path, max_bytes=MIB), base_offset=0, path=path)
    ]
    return [(entry.producer_id, entry.last_offset) for entry in entries if entry.last_offset >= start_offset]


@pytest.mark.parametrize("producer_count", [1, 2, 32, 64, 66, 130, 300])
def test_any_number_of_producers_keep_their_transactions_and_last_batches(producer_count: int) -> None:
    history = History(random.Random(producer_count), has_old_formats=False, producer_count=producer_count)
    # All batches of a round in one segment, and in one chunk of it.
    history.config = replace(
        history.config, segment_bytes=MIB, cleaner_io_buffer_bytes=2 * MIB, min_compaction_lag_ms=0
    )
    disk = new_disk()
    log = history.opened(disk)
    for _ in range(3):
        start = log.log_end_offset
        # All transactions are open at once, and end in another order.
        for producer in range(producer_count):
            history.put(log, history.sent_by(producer, log.log_end_offset))
        while history.open:
            history.put(log, history.marker(log.log_end_offset))
        log.roll()
        history.compact(log)
        history.check_exactly(log)
        aborts = [(one.producer_id, one.base_offset) for one in history.batches if one.ends == "abort"]
        assert indexed_aborts(disk, start_offset=start) == [one for one in aborts if one[1] >= start]
        history.pass_time(disk)
    log.close()
    with open_log(PATH, config=history.config, env=disk) as read:
        assert list(verify(read, env=disk)) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2000))
def test_long_histories_equal_the_model(seed: int) -> None:
    run(random.Random(seed), steps=200)
