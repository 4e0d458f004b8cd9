"""Goal: leader epochs are read, answered, rebuilt from the log and written as the brokers did.
Method: the checkpoints of all partitions, beside OffsetForLeaderEpoch answers and the epochs of the batches."""

from __future__ import annotations

from pathlib import Path

from kstore import open_log
from kstore.log.files.checkpoints import write_leader_epoch_checkpoint
from kstore.log.state.leader_epochs import LeaderEpochCache
from tests.golden.manifests import manifest
from tests.golden.probes import answers, probed
from tests.golden.sets import (
    CLEANED_TOPICS,
    EPOCHS_SET,
    MAIN_SETS,
    MIXED_SET,
    SIGKILL_SET,
    V2_SETS,
    GoldenPartition,
    golden_partitions,
)
from tests.making.collecting import over

PARTITIONS = golden_partitions(*V2_SETS, MIXED_SET)
ASKED = [one for one in probed(golden_partitions(*MAIN_SETS, EPOCHS_SET, SIGKILL_SET)) if one.tree != "after-stopped"]
REPLAYED = [one for one in golden_partitions(*V2_SETS) if one.topic not in CLEANED_TOPICS]
# Its answers have no epoch in them.
OLD_ANSWERS = "main-1.1.1"


def checkpoint(partition: GoldenPartition) -> Path:
    return partition.directory / "leader-epoch-checkpoint"


@over("partition", PARTITIONS)
def test_checkpoint_is_written_with_the_same_bytes(partition: GoldenPartition, tmp_path: Path) -> None:
    if not checkpoint(partition).exists():
        # Dropped with the append of an older format.
        assert partition.set_name == MIXED_SET
        return
    if partition.topic == "empty" and partition.set_name == OLD_ANSWERS:
        assert checkpoint(partition).read_bytes() == b""
        return
    written = tmp_path / "leader-epoch-checkpoint"
    write_leader_epoch_checkpoint(str(written), LeaderEpochCache(str(checkpoint(partition))).entries)
    assert written.read_bytes() == checkpoint(partition).read_bytes()


@over("partition", ASKED)
def test_epochs_end_where_the_broker_answered(partition: GoldenPartition) -> None:
    cache = LeaderEpochCache(str(checkpoint(partition)))
    end_offset = manifest(partition).end_offset
    asked = answers(partition)["end_offset_for_leader_epoch"]
    assert asked
    for answer in asked:
        if answer["error"] != "NONE":
            continue
        found = cache.end_offset_for(answer["query_epoch"], log_end_offset=end_offset)
        assert found.end_offset == answer["end_offset"], answer
        assert found.epoch == answer["leader_epoch"] or partition.set_name == OLD_ANSWERS, answer


@over("partition", REPLAYED)
def test_epochs_of_the_batches_are_those_of_the_checkpoint(partition: GoldenPartition) -> None:
    rebuilt = LeaderEpochCache(None)
    with open_log(partition.directory) as log:
        for batch in log.batches(log.log_start_offset):
            rebuilt.assign(batch.partition_leader_epoch, start_offset=batch.base_offset)
        rebuilt.truncate_from_start(log.log_start_offset)
        with_records = [
            entry
            for entry in LeaderEpochCache(str(checkpoint(partition))).entries
            if entry.start_offset < log.log_end_offset
        ]
    assert list(rebuilt.entries) == with_records
