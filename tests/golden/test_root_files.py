"""Goal: the small files of every broker's root are read, and written anew with the same bytes.
Method: meta.properties, partition.metadata and checkpoints of each golden tree; only the line with the time differs."""

from __future__ import annotations

from pathlib import Path

from kstore.log.files.checkpoints import (
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
    write_leader_epoch_checkpoint,
    write_offset_checkpoint,
)
from kstore.log.files.root_files import (
    read_clean_shutdown,
    read_meta_properties,
    read_partition_metadata,
    write_clean_shutdown,
    write_meta_properties,
    write_partition_metadata,
)
from tests.golden.sets import GoldenPartition, partition_names
from tests.making.collecting import over

ROOTS = [
    GoldenPartition(set_name, tree, names[0])
    for set_name, trees in partition_names().items()
    for tree, names in trees.items()
]
# Since this version the file has content.
FIRST_WITH_BROKER_EPOCH = (3, 7)
EMPTY_FILE = b""


def version(partition: GoldenPartition) -> tuple[int, ...]:
    return tuple(map(int, partition.set_name.rpartition("-")[2].split(".")))


def without_time(content: bytes) -> list[bytes]:
    return [line for number, line in enumerate(content.split(b"\n")) if number != 1]


@over("partition", ROOTS, label=lambda partition: f"{partition.set_name}/{partition.tree}")
def test_files_of_a_root_are_written_anew_with_the_same_bytes(partition: GoldenPartition, tmp_path: Path) -> None:
    root = partition.root
    properties = read_meta_properties(str(root))
    if properties is not None:
        write_meta_properties(str(tmp_path), properties)
        rewritten = (tmp_path / "meta.properties").read_bytes()
        assert without_time(rewritten) == without_time((root / "meta.properties").read_bytes())
    for path in root.glob("*-checkpoint"):
        offsets = read_offset_checkpoint(str(path)) if path.name != "cleaner-offset-checkpoint" else None
        if offsets is not None:
            write_offset_checkpoint(str(tmp_path / path.name), offsets)
            assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name
    clean_shutdown = read_clean_shutdown(str(root))
    if clean_shutdown is not None:
        write_clean_shutdown(str(tmp_path), clean_shutdown)
        has_content = version(partition) >= FIRST_WITH_BROKER_EPOCH
        expected = (tmp_path / ".kafka_cleanshutdown").read_bytes() if has_content else EMPTY_FILE
        assert (root / ".kafka_cleanshutdown").read_bytes() == expected
        assert (clean_shutdown.broker_epoch >= 0) == has_content


@over("partition", ROOTS, label=lambda partition: f"{partition.set_name}/{partition.tree}")
def test_files_of_each_partition_are_written_anew_with_the_same_bytes(
    partition: GoldenPartition, tmp_path: Path
) -> None:
    for name in partition_names()[partition.set_name][partition.tree]:
        directory = partition.root / name
        topic_id = read_partition_metadata(str(directory))
        assert (topic_id is not None) == (directory / "partition.metadata").exists(), name
        if topic_id is not None:
            write_partition_metadata(str(tmp_path), topic_id)
            written = (tmp_path / "partition.metadata").read_bytes()
            assert written == (directory / "partition.metadata").read_bytes(), name
        path = directory / "leader-epoch-checkpoint"
        entries = read_leader_epoch_checkpoint(str(path))
        # Older brokers make the file before they have an epoch.
        if entries is not None and path.read_bytes() != EMPTY_FILE:
            write_leader_epoch_checkpoint(str(tmp_path / path.name), entries)
            assert (tmp_path / path.name).read_bytes() == path.read_bytes(), (name, path.name)
