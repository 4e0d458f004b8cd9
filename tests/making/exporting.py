"""A root to export that grows, and what an export of it must hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kstore.archive.files import crc_of
from kstore.archive.manifest import MANIFEST_FILE, Manifest, read_manifest
from kstore.archive.target import STAGING_DIRECTORY
from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV
from kstore.record import Record
from kstore.store.opening import open_log
from kstore.store.store import open_store
from kstore.types import NO_TIMESTAMP, TopicPartition

TOPIC, PARTITIONS = "orders", 2
DAY_MS = 24 * 60 * 60 * 1000
START_MS = 19_000 * DAY_MS
# So that a small topic has several segments, and these several batches.
SMALL_SEGMENTS = LogConfig(segment_bytes=4000)
BATCH_ROWS = 10


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    value: bytes


def grow(root: Path, count: int, *, topic: str = TOPIC, days: int = 3, config: LogConfig = SMALL_SEGMENTS) -> None:
    """Append records to each partition, in batches; times move on over the days, and one of 16 has none."""
    with open_store(root, "a", config) as store:
        if topic not in store.topics:
            store.create_topic(topic, PARTITIONS)
        for partition in range(PARTITIONS):
            log = store.log(topic, partition)
            for start in range(0, count, BATCH_ROWS):
                base = log.log_end_offset
                log.append(
                    [
                        Record(
                            offset=0,
                            timestamp_ms=time_of(base + at, days=days, count=count),
                            key=b"%d" % (at % 3),
                            value=b"%s/%d/%d/" % (topic.encode(), partition, base + at) + b"x" * 50,
                        )
                        for at in range(min(BATCH_ROWS, count - start))
                    ]
                )


def time_of(offset: int, *, days: int, count: int) -> int:
    return NO_TIMESTAMP if offset % 16 == 15 else START_MS + offset * days * DAY_MS // max(count, 1)


def rows_of_source(root: Path, *, topic: str = TOPIC, start: int = 0) -> list[Row]:
    found = []
    for partition in range(PARTITIONS):
        with open_log(root / f"{topic}-{partition}") as log:
            found += [Row(topic, partition, one.offset, bytes(one.value or b"")) for one in log.read(start)]
    return sorted(found)


def checked_manifest(target: Path) -> Manifest:
    """Return the manifest of a target that no run works on, after comparing it with the files that are there."""
    manifest = read_manifest(target)
    assert manifest is not None
    for file in manifest.files:
        assert crc_of(str(target / file.path), DEFAULT_ENV) == (file.size_in_bytes, file.crc32c), file
    there = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    listed = {file.path for file in manifest.files}
    assert listed <= there
    if manifest.format == "kstore":
        there = {path for path in there if path.endswith(".log")}
        listed = {path for path in listed if path.endswith(".log")}
    assert there - listed <= {MANIFEST_FILE}, "files that the manifest does not list"
    assert not (target / STAGING_DIRECTORY).exists()
    return manifest


def rows_of_export(target: Path) -> list[Row]:
    """Return the rows of all finished files, in order, each as often as it is there."""
    manifest = checked_manifest(target)
    found = []
    if manifest.format == "kstore":
        for one in manifest.partitions:
            with open_log(target / str(one.topic_partition)) as log:
                assert (log.log_start_offset, log.log_end_offset) == (one.start_offset, one.end_offset)
                found += [Row(*log.topic_partition, row.offset, bytes(row.value or b"")) for row in log.read()]
        return sorted(found)
    for file in manifest.files:
        table = table_of(target / file.path)
        offsets = table.column("offset").to_pylist()
        assert (offsets[0], offsets[-1], len(offsets)) == (file.first_offset, file.last_offset, file.record_count)
        values = table.column("value").to_pylist()
        found += [Row(file.topic, file.partition, *row) for row in zip(offsets, values, strict=True)]
    return sorted(found)


def table_of(path: Path) -> pa.Table:
    """Return what is in a file, whatever the names of its directories say."""
    with path.open("rb") as file:
        read: Any = pq.read_table if path.suffix == ".parquet" else lambda one: pa.ipc.open_file(one).read_all()
        return read(file)


def partition_of(manifest: Manifest, partition: int, topic: str = TOPIC) -> Any:
    found = manifest.partition(TopicPartition(topic, partition))
    assert found is not None
    return found
