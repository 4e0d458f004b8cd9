"""Goal: what is exported of the brokers' directories is what they hold: rows as of scan, batches byte for byte.
Method: export whole roots in each format, read the files back, and compare with the source; verify what was copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kstore
from kstore.archive import export, read_manifest
from kstore.archive.manifest import Manifest
from kstore.log.files.checkpoints import read_leader_epoch_checkpoint
from kstore.log.verify import verify
from kstore.store.opening import open_log
from kstore.store.store import open_store
from tests.golden.sets import ALL_SETS, GoldenPartition, golden_partitions, partition_names
from tests.making.collecting import over

ROOTS = [(name, tree) for name in ALL_SETS for tree in partition_names()[name]]
FLIGHTS = Path(__file__).resolve().parents[2] / "examples" / "flights"


def root_of(set_name: str, tree: str) -> Path:
    return golden_partitions(set_name, trees=(tree,))[0].root


def topics_of(set_name: str, tree: str) -> list[str]:
    return sorted({one.topic for one in golden_partitions(set_name, trees=(tree,))})


def read_back(directory: Path, manifest: Manifest) -> pa.Table:
    """Return the rows of all files, in the order of a scan."""
    tables = []
    for file in manifest.files:
        path = directory / file.path
        read: Any = pq.read_table if manifest.format == "parquet" else lambda found: pa.ipc.open_file(found).read_all()
        with path.open("rb") as opened:
            table = read(opened)
        topic = pa.array([file.topic] * table.num_rows, pa.string())
        tables.append(table.append_column("topic", topic))
    order = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
    return pa.concat_tables(tables).sort_by(order)


@pytest.mark.parametrize("format", ["parquet", "arrow"])
@over("set_name, tree", ROOTS, by=lambda case: case[0])
def test_files_hold_the_rows_that_a_scan_gives(set_name: str, tree: str, format: str, tmp_path: Path) -> None:
    compare_rows(root_of(set_name, tree), tmp_path / "out", format, topics_of(set_name, tree))


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_files_hold_the_rows_of_flights(format: str, tmp_path: Path) -> None:
    compare_rows(FLIGHTS, tmp_path / "out", format, ["flights-lz4"])


def compare_rows(source: Path, target: Path, format: Any, topics: list[str]) -> None:
    summary = export(source, target, format, topics=topics)
    manifest = read_manifest(target)
    assert manifest is not None
    scanned = kstore.scan(source, topics=topics).to_table()
    assert summary.record_count == manifest.record_count == scanned.num_rows
    if scanned.num_rows:
        found = read_back(target, manifest).select(scanned.schema.names)
        assert found.schema.equals(scanned.schema)
        assert found.combine_chunks().equals(scanned.combine_chunks())


@over("set_name, tree", ROOTS, by=lambda case: case[0])
def test_batches_are_copied_verbatim_and_answer_as_the_source(set_name: str, tree: str, tmp_path: Path) -> None:
    source, target = root_of(set_name, tree), tmp_path / "out"
    export(source, target, "kstore", topics=topics_of(set_name, tree), open_transactions="keep")
    for partition in golden_partitions(set_name, trees=(tree,)):
        compare_logs(partition, target / partition.name)
    with open_store(target, "a") as store:
        assert store.recovery_reports == {}
        for topic, number in store.partitions:
            report = store.log(topic, number).recovery_report
            assert report.rebuilt == ()
            assert report.is_unharmed


def compare_logs(partition: GoldenPartition, copied: Path) -> None:
    with open_log(partition.directory) as source, open_log(copied) as target:
        where = str(partition)
        assert [bytes(batch) for batch in target.batches()] == [bytes(batch) for batch in source.batches()], where
        bases, wanted = ([one.base_offset for one in log.segments] for log in (target, source))
        # Of the first segment only what was not deleted is copied.
        assert bases[1:] == wanted[1:], where
        assert wanted[0] <= bases[0] <= source.log_start_offset, where
        bounds = source.log_start_offset, source.log_end_offset
        assert (target.log_start_offset, target.log_end_offset) == bounds, where
        assert target.transactions() == source.transactions(), where
        assert list(verify(target)) == [], where
    epochs = [path / "leader-epoch-checkpoint" for path in (partition.directory, copied)]
    if epochs[0].exists():
        found, wanted = (read_leader_epoch_checkpoint(str(path)) for path in reversed(epochs))
        assert found == wanted, where
    for snapshot in copied.glob("*.snapshot"):
        if (partition.directory / snapshot.name).exists():
            assert snapshot.read_bytes() == (partition.directory / snapshot.name).read_bytes(), where
    ids = [path / "partition.metadata" for path in (partition.directory, copied)]
    assert ids[1].exists() == ids[0].exists()
