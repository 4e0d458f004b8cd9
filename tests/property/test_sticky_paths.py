"""Goal: records that name no partition go the same way by one compiled call as by the general path, mostly by it.
Method: two accumulators with equal draws get equal sends and drains, one through its general path alone."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.producer.batches.accumulator import RecordAccumulator
from tests.making.producing import CLUSTER, NODE_1, NODE_2, TOPIC, TP_1, TP_2, TP_3, drain, finish, new_accumulator

BATCH_BYTES = 400
MEMORY = 1 << 22

sizes = st.one_of(st.integers(0, 60), st.integers(0, BATCH_BYTES + 50))
steps = st.lists(st.one_of(sizes, st.sampled_from(["drain", "drain one"])), min_size=1, max_size=200)


def general(accumulator: RecordAccumulator, value: bytes) -> Any:
    return accumulator._append_slowly(
        TOPIC,
        None,
        0,
        None,
        value,
        (),
        None,
        max_time_to_block_ms=0,
        now_ms=0,
        cluster=CLUSTER,
        abort_on_new_batch=False,
    )


def compiled(accumulator: RecordAccumulator, value: bytes) -> Any:
    return accumulator.append(TOPIC, None, 0, None, value, max_time_to_block_ms=0, now_ms=0, cluster=CLUSTER)


def history(append: Callable[[RecordAccumulator, bytes], Any], todo: list[int | str], *, seed: int, codec: str) -> Any:
    """Return where each record went, and how many records and bytes the batches have."""
    accumulator = new_accumulator(batch_size=BATCH_BYTES, memory=MEMORY, random=Random(seed), compression=codec)
    went: list[tuple[int, int, bool, bool]] = []
    for step in todo:
        if isinstance(step, int):
            result = append(accumulator, b"v" * step)
            went.append((result.partition, result.appended_bytes, result.batch_is_full, result.new_batch_created))
        else:
            finish(accumulator, drain(accumulator, nodes=[NODE_1, NODE_2][: 2 if step == "drain" else 1]))
    left = [[batch.record_count for batch in accumulator.queue_of(one).copy()] for one in (TP_1, TP_2, TP_3)]
    return went, left


@given(todo=steps, seed=st.integers(0, 1 << 16), codec=st.sampled_from(["none", "lz4"]))
def test_both_paths_choose_the_same_partitions_and_fill_the_same_batches(todo, seed, codec):
    assert history(compiled, todo, seed=seed, codec=codec) == history(general, todo, seed=seed, codec=codec)


@pytest.mark.parametrize("drained_behind", [1, 3, 10**6], ids=["each", "few", "none"])
def test_most_records_take_one_compiled_call_however_soon_they_are_drained(monkeypatch, drained_behind):
    accumulator = new_accumulator(batch_size=16384, memory=MEMORY, random=Random(1))
    by_general_path = 0
    append_slowly = accumulator.queues_of

    def counting(topic):
        nonlocal by_general_path
        by_general_path += 1
        return append_slowly(topic)

    monkeypatch.setattr(accumulator, "queues_of", counting)
    for count in range(1, 3001):
        compiled(accumulator, b"v" * 100)
        if count % drained_behind == 0:
            monkeypatch.undo()
            finish(accumulator, drain(accumulator, nodes=[NODE_1, NODE_2]))
            monkeypatch.setattr(accumulator, "queues_of", counting)
    assert by_general_path < 100
