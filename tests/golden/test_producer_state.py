"""Goal: replaying a log gives the producer snapshots, aborted transactions and last stable offsets of the brokers.
Method: every snapshot read and written anew; every log that was never cleaned replayed from its first batch on."""

from __future__ import annotations

import shutil
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kstore import LogConfig, open_log
from kstore.log.files.snapshots import decode_snapshot, encode_snapshot, read_snapshot
from kstore.log.state.producer_append import producer_batch
from kstore.log.state.producer_state import ProducerStateManager
from tests.golden.manifests import ExpectedAborted, ExpectedProducer, manifest
from tests.golden.places import place_of
from tests.golden.probes import LATEST, answers, probed
from tests.golden.sets import (
    CLEANED_TOPICS,
    EPOCHS_SET,
    MAIN_SETS,
    SIGKILL_SET,
    V2_SETS,
    GoldenPartition,
    golden_partitions,
)
from tests.making.collecting import over

# Its brokers were restarted; their clock was of 2026, the records of 2023, so that their producers had expired.
FORGETFUL_SETS = frozenset({EPOCHS_SET})
# Its snapshots have the order of a Scala map, and timestamps of data only.
SCALA_ORDER_SETS = frozenset({"main-1.1.1"})

PARTITIONS = golden_partitions(*V2_SETS)
REPLAYED = [one for one in golden_partitions(*MAIN_SETS, EPOCHS_SET, SIGKILL_SET) if one.topic not in CLEANED_TOPICS]
ASKED = [one for one in probed(REPLAYED) if one.set_name in MAIN_SETS]


class Replay(NamedTuple):
    """What a replay gave: at each snapshot of the broker's its entries, then the end of the log."""

    snapshots: dict[int, tuple[ExpectedProducer, ...]]
    aborted: tuple[ExpectedAborted, ...]
    first_unstable_offset: int | None


Replayed = Callable[[GoldenPartition], Replay]


def snapshot_offsets(partition: GoldenPartition) -> list[int]:
    return sorted(int(path.name.removesuffix(".snapshot")) for path in partition.directory.glob("*.snapshot"))


@cache
def replay(partition: GoldenPartition, scratch: Path) -> Replay:
    """Replay a log, from the snapshot at its first segment's base if the ones before are gone."""
    snapshots: dict[int, tuple[ExpectedProducer, ...]] = {}
    aborted: list[ExpectedAborted] = []
    scratch.mkdir()
    with open_log(partition.directory) as log:
        start, end = log.segments[0].base_offset, log.log_end_offset
        first = f"{start:020d}.snapshot"
        if start and (partition.directory / first).exists():
            shutil.copyfile(partition.directory / first, scratch / first)
        manager = ProducerStateManager(log.topic_partition, str(scratch), config=LogConfig())
        manager.truncate_and_reload(log_start_offset=0, log_end_offset=end, now_ms=0)
        manager.update_map_end_offset(start)
        wanted = [offset for offset in snapshot_offsets(partition) if start <= offset <= end]

        def note(up_to: int) -> None:
            while wanted and wanted[0] <= up_to:
                snapshots[wanted.pop(0)] = tuple(ExpectedProducer(*one) for one in manager.snapshot_entries())

        for batch in log.batches(log.log_start_offset):
            note(batch.base_offset)
            completed = manager.replay(producer_batch(batch))
            if completed is not None and completed.is_aborted:
                aborted.append(ExpectedAborted(*completed[:3], completed.last_stable_offset))
        note(end)
    manager.update_map_end_offset(end)
    manager.on_high_watermark(end)
    return Replay(snapshots, tuple(aborted), manager.first_unstable_offset)


@pytest.fixture
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[GoldenPartition], Replay]:
    base = tmp_path_factory.getbasetemp()
    return lambda partition: replay(partition, base / str(partition).replace("/", "-"))


@over("partition", PARTITIONS)
def test_snapshots_are_read_and_written_as_the_brokers_did(partition: GoldenPartition) -> None:
    expected = manifest(partition).snapshots
    for path in sorted(partition.directory.glob("*.snapshot")):
        entries = read_snapshot(str(path))
        assert tuple(tuple(one) for one in entries) == expected[path.name], path.name
        assert encode_snapshot(entries) == path.read_bytes(), path.name


@over("partition", REPLAYED)
def test_replay_gives_the_snapshots_of_the_brokers(partition: GoldenPartition, replayed: Replayed) -> None:
    for offset, found in replayed(partition).snapshots.items():
        content = (partition.directory / f"{offset:020d}.snapshot").read_bytes()
        written = tuple(ExpectedProducer(*one) for one in decode_snapshot(content))
        if partition.set_name in FORGETFUL_SETS:
            kept = {one.producer_id for one in written}
            found = tuple(one for one in found if one.producer_id in kept)
        if partition.set_name in SCALA_ORDER_SETS:
            assert sorted(map(timeless, found)) == sorted(map(timeless, written)), place_of(partition, offset)
        else:
            assert found == written, place_of(partition, offset)


def timeless(one: ExpectedProducer) -> ExpectedProducer:
    """Leave out the timestamp."""
    return one._replace(timestamp_ms=0)


@over("partition", REPLAYED)
def test_replay_finds_the_aborted_transactions_of_the_indexes(partition: GoldenPartition, replayed: Replayed) -> None:
    indexes = manifest(partition).transaction_indexes
    assert replayed(partition).aborted == tuple(entry for name in sorted(indexes) for entry in indexes[name])


@over("partition", ASKED)
def test_last_stable_offset_is_what_the_broker_answered(partition: GoldenPartition, replayed: Replayed) -> None:
    found = [
        answer["offset"]
        for answer in answers(partition)["list_offsets"]
        if answer.get("isolation") == "read_committed" and answer["query_timestamp"] == LATEST
    ]
    end_offset = manifest(partition).end_offset
    unstable = replayed(partition).first_unstable_offset
    assert found == [end_offset if unstable is None else unstable]


@over("partition", ASKED)
def test_aborted_transactions_of_a_fetch_are_those_that_the_broker_listed(
    partition: GoldenPartition, replayed: Replayed
) -> None:
    for answer in answers(partition)["fetches"]:
        if answer.get("isolation") != "read_committed" or answer["error"] != "NONE" or not answer["bytes"]:
            continue
        log, bounds = replayed(partition), upper_bounds(partition, answer)
        expected = [aborted_between(log, answer["fetch_offset"], one) for one in bounds]
        assert answer["aborted_transactions"] in expected, place_of(partition, answer["fetch_offset"])


def aborted_between(replayed: Replay, fetch_offset: int, upper_bound_offset: int) -> list[list[int]]:
    """Return producer ids and first offsets as TransactionIndex.collectAbortedTxns collects them."""
    found = []
    for one in replayed.aborted:
        if one.last_offset >= fetch_offset and one.first_offset < upper_bound_offset:
            found.append([one.producer_id, one.first_offset])
        if one.last_stable_offset >= upper_bound_offset:
            break
    return found


def upper_bounds(partition: GoldenPartition, answer: dict[str, Any]) -> list[int]:
    """The first index entry behind the bytes of a fetch, else the next segment, else the log end.

    An entry just at their end counts as behind them or not, by where the binary search of the broker met it.
    """
    logs = manifest(partition).logs
    slot = max(number for number, log in enumerate(logs) if log.base_offset <= answer["first_entry_offset_field"])
    position = next(
        batch.position for batch in logs[slot].batches if batch.base_offset == answer["first_entry_offset_field"]
    )
    (index,) = [one for one in manifest(partition).offset_indexes if one.name.startswith(logs[slot].name[:20])]
    last = logs[slot + 1].base_offset if slot + 1 < len(logs) else manifest(partition).end_offset
    end_position = position + answer["bytes"]
    positions = [entry[1] for entry in index.entries]
    slots = {bisect_left(positions, end_position), bisect_right(positions, end_position)}
    return [index.entries[above][0] if above < len(positions) else last for above in sorted(slots)]
