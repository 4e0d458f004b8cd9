"""What a broker answers to lookups, worked out from the manifests alone: no index, no kstore."""

from __future__ import annotations

from typing import NamedTuple

from tests.golden.manifests import ExpectedBatch, ExpectedLog, manifest
from tests.golden.sets import OLD_FORMAT_SETS, GoldenPartition, read_offset_checkpoint


class Found(NamedTuple):
    """A batch and the .log that holds it."""

    log: ExpectedLog
    batch: ExpectedBatch


def log_start_offset(partition: GoldenPartition) -> int:
    """Return the greater of the root's checkpoint and the first segment's base, as Kafka's loader does."""
    checkpoint = partition.root / "log-start-offset-checkpoint"
    offsets = read_offset_checkpoint(checkpoint) if checkpoint.exists() else {}
    return max(offsets.get(partition.name, 0), manifest(partition).logs[0].base_offset)


def high_watermark(partition: GoldenPartition) -> int | None:
    checkpoint = partition.root / "replication-offset-checkpoint"
    return read_offset_checkpoint(checkpoint).get(partition.name) if checkpoint.exists() else None


def find_batch(partition: GoldenPartition, offset: int) -> Found | None:
    """Return the first batch whose last offset is at or above `offset`, from the floor segment on."""
    logs = manifest(partition).logs
    floor = max((number for number, log in enumerate(logs) if log.base_offset <= offset), default=0)
    for log in logs[floor:]:
        for batch in log.batches:
            if batch.last_offset >= offset:
                return Found(log, batch)
    return None


def fetch_bytes(partition: GoldenPartition, offset: int, *, max_bytes: int) -> bytes:
    """Return the record bytes of a Fetch answer: from the batch that holds `offset`, never past its segment's end.

    The last batch may be cut by max_bytes; the first one is whole, except in the answers of 0.8 and 0.10.0.
    """
    found = find_batch(partition, offset)
    if found is None:
        return b""
    start = found.batch.position
    least = 0 if partition.set_name in OLD_FORMAT_SETS else found.batch.size_in_bytes
    size = min(max(max_bytes, least), found.log.valid_bytes - start)
    with (partition.directory / found.log.name).open("rb") as file:
        file.seek(start)
        return file.read(size)


def offset_for_timestamp(partition: GoldenPartition, timestamp_ms: int) -> tuple[int, int] | None:
    """Return (offset, timestamp ms) of the first record in log order, control ones included, at or after the time."""
    start = log_start_offset(partition)
    for record in manifest(partition).records():
        if record.offset >= start and record.timestamp_ms >= timestamp_ms:
            return record.offset, record.timestamp_ms
    return None


def first_qualifying_segment_has_no_such_record(partition: GoldenPartition, timestamp_ms: int) -> bool:
    """Tell where a broker answers "none" although a later segment holds a record at or after the time.

    The cleaner keeps an emptied batch with its max timestamp, so the segment still seems to qualify; the
    broker looks into the first segment that does, and into no other.
    """
    for log in manifest(partition).logs:
        if any(batch.max_timestamp_ms >= timestamp_ms for batch in log.batches):
            return not any(_has_record_at_or_after(batch, timestamp_ms) for batch in log.batches)
    return False


def _has_record_at_or_after(batch: ExpectedBatch, timestamp_ms: int) -> bool:
    if batch.records is None:
        return batch.record_count > 0 and batch.max_timestamp_ms >= timestamp_ms
    return any(record.timestamp_ms >= timestamp_ms for record in batch.records)
