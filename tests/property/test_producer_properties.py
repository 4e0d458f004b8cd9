"""Goal: however batches are grouped, cut by a reload or sent twice, producers have the state of the plain sequence.
Method: random histories of several producers, from a model that keeps open transactions in lists, driven both ways."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.config import LogConfig
from kstore.errors import OutOfOrderSequenceError
from kstore.log.state.producer_append import BATCHES_KEPT, CompletedTransaction, ProducerStateBatch, TransactionMarker
from kstore.log.state.producer_state import ProducerStateManager
from kstore.record import AppendOrigin
from kstore.types import TopicPartition

NOW_MS = 1_700_000_000_000
PRODUCERS = 4
MAX_SEQUENCE = 2**31 - 1


class Event(NamedTuple):
    """What a producer does next; kind: "plain" or "transactional" data, "commit", "abort", "epoch"."""

    producer_id: int
    kind: str
    record_count: int


class Model:
    """Producers as plain lists: what is open, what a marker ended, where each goes on."""

    def __init__(self) -> None:
        self.offset = 0
        self.epochs = dict.fromkeys(range(PRODUCERS), 0)
        self.sequences = dict.fromkeys(range(PRODUCERS), MAX_SEQUENCE - 5)
        self.seen: set[int] = set()
        self.open: dict[int, int] = {}
        self.ended: list[tuple[int, int]] = []

    def batch_of(self, event: Event) -> ProducerStateBatch | None:
        """Return the batch of an event, None for one that makes none."""
        producer, offset = event.producer_id, self.offset
        if event.kind == "epoch":
            if producer not in self.open:
                self.epochs[producer] += 1
                self.sequences[producer] = 0
            return None
        if event.kind in ("commit", "abort"):
            content = TransactionMarker(event.kind == "abort", 0, NOW_MS + offset)
            if producer not in self.seen:
                # A log that knows an epoch but no batch of it takes no sequence but 0.
                self.sequences[producer] = 0
            if producer in self.open:
                self.ended.append((self.open.pop(producer), offset))
            self.offset += 1
            return ProducerStateBatch(producer, self.epochs[producer], -1, offset, offset, NOW_MS, True, True, content)
        self.seen.add(producer)
        is_transactional = producer in self.open or event.kind == "transactional"
        if is_transactional:
            self.open.setdefault(producer, offset)
        sequence = self.sequences[producer]
        self.sequences[producer] = (sequence + event.record_count) % (MAX_SEQUENCE + 1)
        self.offset += event.record_count
        return ProducerStateBatch(
            producer, self.epochs[producer], sequence, offset, self.offset - 1, NOW_MS + offset, is_transactional
        )

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        undecided = [first for first, last in self.ended if last >= high_watermark]
        return min([*self.open.values(), *undecided], default=None)


events = st.builds(
    Event,
    st.integers(0, PRODUCERS - 1),
    st.sampled_from(["plain", "plain", "transactional", "transactional", "commit", "abort", "epoch"]),
    st.integers(1, 5),
)
histories = st.lists(events, max_size=40)


def batches_of(history: list[Event]) -> tuple[Model, list[ProducerStateBatch]]:
    model = Model()
    made = [model.batch_of(event) for event in history]
    return model, [one for one in made if one is not None]


def origin_of(batch: ProducerStateBatch) -> AppendOrigin:
    return AppendOrigin.COORDINATOR if batch.is_control else AppendOrigin.CLIENT


def manager_of(directory: str) -> ProducerStateManager:
    return ProducerStateManager(TopicPartition("t", 0), directory, config=LogConfig())


def append(
    manager: ProducerStateManager, group: list[ProducerStateBatch], origin: AppendOrigin
) -> list[CompletedTransaction]:
    prepared = manager.analyze(group, origin=origin)
    assert prepared.duplicate is None
    completed = manager.commit(prepared)
    manager.update_map_end_offset(group[-1].last_offset + 1)
    return completed


def appended(
    directory: str, batches: list[ProducerStateBatch]
) -> tuple[ProducerStateManager, list[CompletedTransaction]]:
    manager = manager_of(directory)
    return manager, [one for batch in batches for one in append(manager, [batch], origin_of(batch))]


@given(history=histories, sizes=st.lists(st.integers(1, 6), min_size=1))
def test_state_does_not_depend_on_how_replicated_batches_are_grouped(history: list[Event], sizes: list[int]) -> None:
    with TemporaryDirectory() as directory:
        _, batches = batches_of(history)
        one_by_one, completed = appended(directory, batches)
        grouped = manager_of(directory)
        found = []
        left = list(batches)
        for number in range(len(batches)):
            size = sizes[number % len(sizes)]
            if left:
                found += append(grouped, left[:size], AppendOrigin.REPLICATION)
            left = left[size:]
        assert grouped.snapshot_entries() == one_by_one.snapshot_entries()
        assert grouped.first_unstable_offset == one_by_one.first_unstable_offset
        assert [one[:4] for one in found] == [one[:4] for one in completed]


@given(history=histories, high_watermarks=st.lists(st.integers(0, 120)))
def test_first_unstable_offset_is_that_of_the_model(history: list[Event], high_watermarks: list[int]) -> None:
    with TemporaryDirectory() as directory:
        model, batches = batches_of(history)
        manager, _ = appended(directory, batches)
        assert manager.first_unstable_offset == model.first_unstable_offset(0)
        for high_watermark in sorted(high_watermarks):
            manager.on_high_watermark(high_watermark)
            assert manager.first_unstable_offset == model.first_unstable_offset(high_watermark)


@given(history=histories, cut=st.integers(0, 40))
def test_reload_and_replay_give_the_state_before(history: list[Event], cut: int) -> None:
    with TemporaryDirectory() as directory:
        _, batches = batches_of(history)
        manager, _ = appended(directory, batches[:cut])
        manager.take_snapshot()
        for batch in batches[cut:]:
            append(manager, [batch], origin_of(batch))
        reloaded = manager_of(directory)
        reloaded.truncate_and_reload(log_start_offset=0, log_end_offset=manager.map_end_offset, now_ms=NOW_MS)
        for batch in batches:
            if batch.base_offset >= reloaded.map_end_offset:
                reloaded.replay(batch)
        reloaded.update_map_end_offset(manager.map_end_offset)
        for one in (manager, reloaded):
            one.on_high_watermark(manager.map_end_offset)
        assert sorted(reloaded.snapshot_entries()) == sorted(manager.snapshot_entries())
        assert reloaded.first_unstable_offset == manager.first_unstable_offset


@given(history=histories, producer_id=st.integers(0, PRODUCERS - 1), sequence=st.integers(0, MAX_SEQUENCE))
def test_batch_of_a_client_is_next_or_known_or_refused(history: list[Event], producer_id: int, sequence: int) -> None:
    with TemporaryDirectory() as directory:
        model, batches = batches_of(history)
        manager, _ = appended(directory, batches)
        before = manager.snapshot_entries()
        own = [one for one in batches if one.producer_id == producer_id and not one.is_control]
        own = [one for one in own if one.producer_epoch == model.epochs[producer_id]]
        for known in own[-BATCHES_KEPT:]:
            found = manager.analyze([known], origin=AppendOrigin.CLIENT).duplicate
            assert found is not None
            assert (found.first_offset, found.last_offset) == (known.base_offset, known.last_offset)
        sent = ProducerStateBatch(
            producer_id,
            model.epochs[producer_id],
            sequence,
            model.offset,
            model.offset + 9,
            NOW_MS,
            producer_id in model.open,
        )
        if own and sequence != model.sequences[producer_id]:
            with pytest.raises(OutOfOrderSequenceError):
                manager.analyze([sent], origin=AppendOrigin.CLIENT)
        assert manager.snapshot_entries() == before
