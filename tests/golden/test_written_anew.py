"""Goal: a log that kstore writes from a broker's batches has the broker's side files beside it, and its answers.
Method: each log that was never cleaned appended as a follower, rolled where the broker rolled, compared by byte."""

from __future__ import annotations

from pathlib import Path

from kstore import LogConfig, MemoryRecords, open_log
from kstore.env import LocalEnv
from kstore.log.write.writable_log import WritableLog
from tests.golden.manifests import manifest
from tests.golden.places import difference
from tests.golden.probes import LATEST, answers, probed
from tests.golden.sets import CLEANED_TOPICS, MAIN_SETS, GoldenPartition, golden_partitions
from tests.making.collecting import over

# The order and the timestamps of snapshots are others in the first set.
SNAPSHOT_SETS = MAIN_SETS[1:]
# Rolled by hand only; the cleaner and deleteRecords took nothing.
CONFIG = LogConfig(segment_ms=2**63 - 1, segment_bytes=2**31 - 1)
PARTITIONS = [
    one
    for one in golden_partitions(*MAIN_SETS)
    if one.topic not in CLEANED_TOPICS and not one.topic.startswith(("ret-", "__"))
]


class RecordTimeEnv(LocalEnv):
    """An Env whose clock stands before all records, so that no producer expires."""

    def wall_clock_ms(self) -> int:
        return 0


def written(partition: GoldenPartition, root: Path) -> WritableLog:
    """Append the batches of a partition to a new log, which is left open."""
    log = open_log(root / partition.name, "a", CONFIG, env=RecordTimeEnv())
    for number, expected in enumerate(manifest(partition).logs):
        if number:
            assert log.roll() == expected.base_offset
        data = (partition.directory / expected.name).read_bytes()[: expected.valid_bytes]
        for one in expected.batches:
            log.append_as_follower(MemoryRecords(data[one.position : one.position + one.size_in_bytes]))
    return log


def content(directory: Path, suffix: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob(f"*{suffix}")}


@over("partition", PARTITIONS)
def test_files_beside_the_log_are_the_broker_s(partition: GoldenPartition, tmp_path: Path) -> None:
    with written(partition, tmp_path) as log:
        assert log.log_end_offset == manifest(partition).end_offset
    directory = tmp_path / partition.name
    for suffix in (".log", ".txnindex"):
        assert content(directory, suffix) == content(partition.directory, suffix)
    if partition.set_name in SNAPSHOT_SETS:
        assert content(directory, ".snapshot") == content(partition.directory, ".snapshot")
    epochs = (partition.directory / "leader-epoch-checkpoint").read_bytes()
    if epochs and manifest(partition).end_offset:
        assert (directory / "leader-epoch-checkpoint").read_bytes() == epochs


ASKED = [one for one in probed(PARTITIONS) if one.topic.startswith(("txn", "idem"))]


@over("partition", ASKED)
def test_last_stable_offset_and_committed_records_are_the_broker_s(partition: GoldenPartition, tmp_path: Path) -> None:
    (expected,) = (
        answer["offset"]
        for answer in answers(partition)["list_offsets"]
        if answer.get("isolation") == "read_committed" and answer["query_timestamp"] == LATEST
    )
    with written(partition, tmp_path) as log, open_log(partition.directory) as golden:
        assert log.last_stable_offset == log.transactions().last_stable_offset == expected
        committed = [one.offset for one in golden.read(isolation="read_committed")]
        found = [one.offset for one in log.read(isolation="read_committed")]
        assert found == committed, difference(partition, found, committed)
        for start_offset in range(0, log.log_end_offset, 23):
            later = [offset for offset in committed if offset >= start_offset]
            found = [one.offset for one in log.read(start_offset, isolation="read_committed")]
            assert found == later, (start_offset, difference(partition, found, later))
