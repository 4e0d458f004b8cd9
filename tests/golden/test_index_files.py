"""Goal: the index files that kstore writes are those that brokers wrote, byte for byte.
Method: the batches of broker segments, appended one by one as a broker appends them, or walked as recovery does."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV
from kstore.log.files.indexes import OffsetIndexFile, TimeIndexFile
from kstore.log.files.transaction_index import TransactionIndexFile
from kstore.log.recovery.walk import walk_segment
from kstore.types import TimestampOffset
from tests.golden.sets import PACKED_DIRECTORY, GoldenPartition, golden_partitions, unpack
from tests.making.collecting import over
from tests.reference.codec import Header

# Before 4.0 an append of several batches has one entry; in this broker every append is one batch. The metadata log is
# never closed, and its time index has a closing entry only if it is.
BATCH_BY_BATCH = [p for p in golden_partitions("main-4.4.0") if p.topic != "__cluster_metadata"]
RECOVERY_INTERVAL_BYTES = 256


@cache
def topic_settings(set_name: str) -> dict[str, dict[str, str]]:
    topics = json.loads((PACKED_DIRECTORY / set_name / "topics.json").read_text())["topics"]
    return {name: topic.get("config", {}) for name, topic in topics.items()}


def config_of(partition: GoldenPartition) -> LogConfig:
    settings = topic_settings(partition.set_name).get(partition.topic, {})
    return LogConfig(
        index_interval_bytes=int(settings.get("index.interval.bytes", 4096)),
        segment_index_bytes=int(settings.get("segment.index.bytes", 10485760)),
    )


def is_but_for_padding(written: bytes, expected: bytes) -> bool:
    return expected[: len(written)] == written and not any(expected[len(written) :])


def append_batch_by_batch(log: Path, target: Path, config: LogConfig) -> None:
    """Do what LogSegment.append and its roll do about the indexes."""
    base_offset, options = int(log.stem), {"max_bytes": config.segment_index_bytes}
    offsets = OffsetIndexFile.open(target / f"{log.stem}.index", base_offset=base_offset, **options)
    times = TimeIndexFile.open(target / f"{log.stem}.timeindex", base_offset=base_offset, **options)
    data, position, since_last_entry = log.read_bytes(), 0, 0
    largest = TimestampOffset(-1, -1)
    while position < len(data):
        header = Header.unpack(data[position : position + 61])
        if header.max_timestamp_ms > largest.timestamp_ms:
            largest = TimestampOffset(header.max_timestamp_ms, header.last_offset)
        if since_last_entry > config.index_interval_bytes:
            offsets.append(offset=header.last_offset, position=position)
            times.maybe_append(timestamp_ms=largest.timestamp_ms, offset=largest.offset)
            since_last_entry = 0
        since_last_entry += header.size
        position += header.size
    if largest > times.last_entry:
        times.maybe_append(timestamp_ms=largest.timestamp_ms, offset=largest.offset, skip_full_check=True)
    offsets.close()
    times.close()


def rebuild(log: Path, target: Path, config: LogConfig) -> None:
    """Write the indexes that recovery makes of a segment."""
    walk = walk_segment(str(log), base_offset=int(log.stem), next_base_offset=None, config=config, env=DEFAULT_ENV)
    assert walk.status == "end"
    (target / f"{log.stem}.index").write_bytes(walk.offset_entries)
    (target / f"{log.stem}.timeindex").write_bytes(walk.time_entries)


@over("partition", BATCH_BY_BATCH)
def test_appended_and_rebuilt_indexes_are_the_brokers_own(partition: GoldenPartition, tmp_path: Path) -> None:
    for log in sorted(partition.directory.glob("*.log")):
        for number, write in enumerate((append_batch_by_batch, rebuild)):
            target = tmp_path / f"{log.stem}-{number}"
            target.mkdir()
            write(log, target, config_of(partition))
            for suffix in (".index", ".timeindex"):
                written = (target / f"{log.stem}{suffix}").read_bytes()
                expected = log.with_suffix(suffix).read_bytes()
                assert is_but_for_padding(written, expected), (write.__name__, log.name, suffix)


def test_rebuilt_indexes_are_those_that_recovery_left(tmp_path: Path) -> None:
    """Recovery from offset 0 rebuilds every segment; those that follow damage which recovery saw are gone."""
    after = unpack("recovery-4.4.0", "trees") / "after-stopped" / "rec-none-rp0-0"
    logs = sorted(after.glob("*.log"))
    config = LogConfig(index_interval_bytes=RECOVERY_INTERVAL_BYTES)
    assert len(logs) > 3
    for log in logs:
        rebuild(log, tmp_path, config)
        for suffix in (".index", ".timeindex"):
            written = (tmp_path / f"{log.stem}{suffix}").read_bytes()
            assert is_but_for_padding(written, log.with_suffix(suffix).read_bytes()), log.name


@over("partition", golden_partitions("main-1.1.1", "main-2.8.2", "main-3.9.2", "main-4.4.0"))
def test_transaction_index_is_written_as_brokers_write_it(partition: GoldenPartition, tmp_path: Path) -> None:
    for path in sorted(partition.directory.glob("*.txnindex")):
        theirs = TransactionIndexFile.open(path, base_offset=int(path.stem))
        ours = TransactionIndexFile.open(tmp_path / path.name, base_offset=int(path.stem))
        for txn in theirs.entries:
            ours.append(txn)
        ours.close()
        theirs.close_handlers()
        assert not path.stat().st_size or (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name
