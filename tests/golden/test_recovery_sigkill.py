"""Goal: what a killed broker left is recovered to what that broker made of it when it was started again, and stopped.
Method: the trees before and after are of the broker; every file of the log is compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.log.files.names import PartitionDirectory
from kstore.log.recovery.load import load_log
from kstore.log.recovery.modes import RecoveryMode
from kstore.types import TopicPartition
from tests.golden.recovery_cases import epoch_entries, read_state
from tests.golden.sets import (
    PACKED_DIRECTORY,
    SIGKILL_SET,
    GoldenPartition,
    golden_partitions,
    read_offset_checkpoint,
    unpack,
)
from tests.making.collecting import over

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"


def topic_partitions() -> list[GoldenPartition]:
    return [one for one in golden_partitions(SIGKILL_SET, trees=("before",)) if one.topic.startswith("sk-")]


def config_of(topic: str) -> LogConfig:
    settings = json.loads((PACKED_DIRECTORY / SIGKILL_SET / "topics.json").read_text())["topics"][topic]
    numbers = {
        name: int(settings[setting])
        for name, setting in (
            ("segment_index_bytes", "segment.index.bytes"),
            ("index_interval_bytes", "index.interval.bytes"),
        )
        if setting in settings
    }
    return LogConfig(**numbers)


@pytest.mark.parametrize("mode", ["strict", "point_in_time", "salvage"])
@over("partition", topic_partitions())
def test_killed_broker_s_log_becomes_what_the_broker_made_of_it(
    partition: GoldenPartition, mode: RecoveryMode, tmp_path: Path
) -> None:
    path = tmp_path / partition.name
    shutil.copytree(partition.directory, path)
    loaded = load_log(
        PartitionDirectory(TopicPartition(partition.topic, partition.partition), str(path), str(tmp_path)),
        config=config_of(partition.topic),
        mode=mode,
        recovery_point=read_offset_checkpoint(partition.root / RECOVERY_POINTS)[partition.name],
    )
    root_after = unpack(SIGKILL_SET, "trees") / "after-stopped"
    assert loaded.log_end_offset == read_offset_checkpoint(root_after / RECOVERY_POINTS)[partition.name]
    ours, theirs = read_state(path), read_state(root_after / partition.name)
    # The broker began an epoch of its own at the log end, when it became leader.
    of_broker = epoch_entries(theirs.pop(LEADER_EPOCHS))
    assert epoch_entries(ours.pop(LEADER_EPOCHS)) == [one for one in of_broker if one[1] < loaded.log_end_offset]
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
