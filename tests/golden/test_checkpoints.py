"""Goal: the checkpoint files of real brokers are read, and the leader epochs they note are those of the batches.
Method: each checkpoint of each tree against an independent reader, each batch's epoch against the noted starts."""

from __future__ import annotations

import pytest

from kstore.log.files.checkpoints import read_leader_epoch_checkpoint, read_offset_checkpoint
from tests.golden.manifests import manifest
from tests.golden.oracle import log_start_offset
from tests.golden.places import place_of
from tests.golden.sets import (
    V2_SETS,
    GoldenPartition,
    golden_partitions,
    partition_names,
)
from tests.golden.sets import (
    read_offset_checkpoint as read_independently,
)
from tests.making.collecting import over

ROOTS = [
    GoldenPartition(set_name, tree, names[0])
    for set_name, trees in partition_names().items()
    for tree, names in trees.items()
]
OFFSET_CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")


@pytest.mark.parametrize("name", OFFSET_CHECKPOINTS)
@over("partition", ROOTS, label=lambda partition: f"{partition.set_name}/{partition.tree}")
def test_offset_checkpoints_of_every_root_are_read(partition: GoldenPartition, name: str) -> None:
    path = partition.root / name
    offsets = read_offset_checkpoint(str(path))
    assert offsets
    assert {str(topic_partition): offset for topic_partition, offset in offsets.items()} == read_independently(path)


@over("partition", golden_partitions(*V2_SETS))
def test_each_batch_has_the_leader_epoch_noted_for_its_offset(partition: GoldenPartition) -> None:
    entries = read_leader_epoch_checkpoint(str(partition.directory / "leader-epoch-checkpoint"))
    start = log_start_offset(partition)
    batches = [batch for batch in manifest(partition).batches() if batch.base_offset >= start]
    assert entries is not None
    assert bool(entries) or not batches
    for batch in batches:
        noted = [entry.epoch for entry in entries if entry.start_offset <= batch.base_offset]
        assert noted[-1] == batch.partition_leader_epoch, place_of(partition, batch.base_offset)
