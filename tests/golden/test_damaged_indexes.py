"""Goal: an index costs time when it is missing or wrong, never an answer, and reading repairs nothing on disk.
Method: damage every index of a copied partition in one way, then ask what the manifest oracle knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kstore import open_log
from kstore.config import LogConfig
from tests.golden.damage import DAMAGES, copy_partition
from tests.golden.manifests import manifest
from tests.golden.oracle import fetch_bytes, log_start_offset, offset_for_timestamp
from tests.golden.places import difference, place_of
from tests.golden.records import as_listed
from tests.golden.sets import GoldenPartition, golden_partitions
from tests.making.collecting import over

DAMAGED_PARTITIONS = [
    partition
    for partition in golden_partitions("main-1.1.1", "main-4.4.0", "sigkill-4.4.0", trees=("data", "before"))
    if partition.name not in ("sk-default-0", "__cluster_metadata-0")
]
READ_AS_A_WHOLE = [
    GoldenPartition("main-4.4.0", "data", name)
    for name in ("basic-none-0", "idx-every-0", "segms-0", "compact-keep-0", "txn-0", "ret-del-0")
]
MOST_QUERIES = 15
# The time index is not looked at where its segment is read in one piece.
SMALL_READS = LogConfig(read_chunk_bytes=4096, time_index_proof_bytes=4096)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@over("partition", DAMAGED_PARTITIONS)
def test_lookups_answer_rightly_whatever_the_indexes_say(
    partition: GoldenPartition,
    damage: Callable[[Path], None],
    tmp_path: Path,
    unchanged: Callable[[Path], None],
) -> None:
    directory = copy_partition(partition, tmp_path / "root")
    damage(directory)
    unchanged(tmp_path)
    start, end = log_start_offset(partition), manifest(partition).end_offset
    with open_log(directory, config=SMALL_READS) as log:
        assert (log.log_start_offset, log.log_end_offset) == (start, end)
        for offset in spread(range(start, end + 1)):
            assert log.fetch(offset, 1).records == fetch_bytes(partition, offset, max_bytes=1), place_of(
                partition, offset
            )
        for timestamp_ms in timestamps_to_ask(partition):
            assert log.offset_for_timestamp(timestamp_ms) == offset_for_timestamp(partition, timestamp_ms), timestamp_ms


def timestamps_to_ask(partition: GoldenPartition) -> list[int]:
    """Return record timestamps of the whole range and their neighbours."""
    timestamps = sorted({record.timestamp_ms for record in manifest(partition).records()})
    return [0, *(near for middle in spread(timestamps) for near in (middle - 1, middle, middle + 1))]


def spread(values: range | list[int]) -> list[int]:
    """Return at most about MOST_QUERIES values, the first and the last among them."""
    step = max(1, len(values) // MOST_QUERIES)
    return sorted({*values[::step], *values[-1:]})


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@over("partition", READ_AS_A_WHOLE)
def test_reading_the_whole_log_needs_no_index(
    partition: GoldenPartition, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    directory = copy_partition(partition, tmp_path / "root")
    damage(directory)
    start = log_start_offset(partition)
    expected = [
        record for record in manifest(partition).records() if record.offset >= start and record.control_type is None
    ]
    with open_log(directory) as log:
        found = [as_listed(record) for record in log.read()]
    assert found == expected, difference(partition, found, expected)


@over("partition", golden_partitions("main-4.4.0", "realdata-4.4.0"))
def test_opening_and_reading_writes_nothing(partition: GoldenPartition, unchanged: Callable[[Path], None]) -> None:
    unchanged(partition.directory)
    with open_log(partition.directory) as log:
        middle = (log.log_start_offset + log.log_end_offset) // 2
        log.fetch(middle, 100_000)
        log.offset_for_timestamp(0)
        log.plan(max_bytes=1)
        next(iter(log.read(middle)), None)
