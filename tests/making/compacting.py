"""Random histories of a log that is compacted: appends of every kind, rolls, retention, compactions, with a clock."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

from kstore.compression import CompressionType
from kstore.config import LogConfig
from kstore.log.log import Log
from kstore.log.write.compaction import CompactionReport
from kstore.log.write.writable_log import WritableLog
from kstore.record import ControlRecordType, MemoryRecords
from kstore.record.builder import MemoryRecordsBuilder
from kstore.store.opening import open_log
from tests.fakes.disk import SimulatedDisk
from tests.fakes.power import CuttingEnv
from tests.reference.compaction import ModelBatch, ModelRecord, Round, aborted_batches, cleaned, replayed

PATH = "/root/t-0"
NOW_MS = 1_700_000_000_000
CODECS = ("none", "none", "none", "gzip", "snappy", "lz4", "zstd")


class History:
    """One log on a disk, and the batches that it has to hold.

    Attributes: batches (the model, exact as long as no power was cut), appended (every batch ever), flushed_end (what
        is below it survives).
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        has_old_formats: bool = True,
        is_small_map: bool | None = None,
        has_retention: bool = False,
        producer_count: int = 4,
    ) -> None:
        self.rng = rng
        self.producer_count = producer_count
        self.config = LogConfig(
            segment_bytes=rng.choice([1200, 2500]),
            segment_index_bytes=rng.choice([60, 240, 4096]),
            index_interval_bytes=rng.choice([0, 100]),
            cleanup_policy="compact,delete" if has_retention else "compact",
            retention_bytes=rng.choice([2000, 6000]) if has_retention else -1,
            retention_ms=rng.choice([-1, 200]) if has_retention else -1,
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=rng.choice([1, 50, 5000]),
            min_compaction_lag_ms=rng.choice([0, 0, 20]),
            cleaner_dedupe_buffer_bytes=1024
            if (rng.random() < 0.3 if is_small_map is None else is_small_map)
            else 65536,
            cleaner_io_buffer_bytes=rng.choice([1024, 65536]),
            file_delete_delay_ms=rng.choice([0, 1000]),
        )
        self.has_old_formats = has_old_formats
        self.batches: list[ModelBatch] = []
        self.appended: list[ModelBatch] = []
        self.flushed_end = 0
        self.key_count = rng.choice([3, 12, 60])
        self.serial = 0
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()
        self.now_ms = NOW_MS

    def opened(self, disk: SimulatedDisk) -> WritableLog:
        disk._now_ms = self.now_ms
        return open_log(PATH, "a", self.config, env=disk)

    # Steps

    def step(self, log: WritableLog) -> None:
        choice = self.rng.random()
        if choice < 0.75:
            self.append(log)
        elif choice < 0.85:
            log.roll()
        elif choice < 0.9:
            self.flushed_end = log.flush()
        elif choice < 0.93 and "delete" in self.config.cleanup_policy:
            self.delete(log)
        else:
            self.compact(log)
        self.flushed_end = max(self.flushed_end, log.flushed_offset)

    def pass_time(self, disk: SimulatedDisk | CuttingEnv) -> None:
        self.now_ms += self.rng.choice([0, 1, 10, 100, 10_000])
        disk._now_ms = self.now_ms

    def append(self, log: WritableLog) -> None:
        base = log.log_end_offset + (self.rng.choice([1, 3]) if self.rng.random() < 0.05 else 0)
        self.put(log, self.made(base))

    def put(self, log: WritableLog, batch: ModelBatch) -> None:
        """Append a batch to the log and to the model."""
        self.appended.append(batch)
        log.append_as_follower(encoded(batch))
        self.batches.append(batch)

    def made(self, base: int) -> ModelBatch:
        choice = self.rng.random()
        if choice < 0.15 and self.open:
            return self.marker(base)
        producer = self.rng.choice([-1, -1, *range(self.producer_count)])
        magic = self.rng.choice([0, 1]) if self.has_old_formats and self.rng.random() < 0.2 else 2
        if magic < 2 or producer < 0:
            codec = self.rng.choice(CODECS[:-1] if magic < 2 else CODECS)
            count = 1 if magic < 2 and codec == "none" else self.rng.randint(1, 5)
            return ModelBatch(base, base + count - 1, self.records(base, count, magic), magic, codec)
        return self.sent_by(producer, base)

    def sent_by(self, producer: int, base: int) -> ModelBatch:
        """Return the next batch of a producer; the second half of the producers is transactional."""
        count = self.rng.randint(1, 4)
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + count
        is_transactional = 2 * producer >= self.producer_count
        if is_transactional:
            self.open.add(producer)
        return ModelBatch(
            base,
            base + count - 1,
            self.records(base, count, 2),
            codec=self.rng.choice(CODECS),
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )

    def marker(self, base: int) -> ModelBatch:
        producer = self.rng.choice(sorted(self.open))
        self.open.discard(producer)
        return ModelBatch(
            base,
            base,
            (),
            producer_id=producer,
            producer_epoch=0,
            is_transactional=True,
            ends=self.rng.choice(["commit", "abort"]),
        )

    def records(self, base: int, count: int, magic: int) -> tuple[ModelRecord, ...]:
        found = []
        for offset in range(base, base + count):
            self.serial += 1
            number = self.rng.randrange(self.key_count)
            key = None if self.rng.random() < 0.02 else b"" if number == 0 else b"k%d" % number
            value = None if self.rng.random() < 0.2 else b"%d-" % self.serial + b"v" * self.rng.choice([0, 5, 40, 150])
            timestamp_ms = -1 if magic == 0 else self.now_ms - self.rng.choice([0, 5, 100])
            found.append(ModelRecord(offset, timestamp_ms, key, value))
        return tuple(found)

    def compact(self, log: WritableLog) -> CompactionReport:
        """Compact, and let the model do the same if it took one round."""
        found = log.cleanable()
        last_data = {
            one.producer_id: (one.batches[-1].last_offset if one.batches else -1, one.producer_epoch)
            for one in log.producer_state.active_producers.values()
        }
        report = log.compact(drops_keyless=True)
        if report.rounds == 1:
            given = Round(
                first_dirty_offset=found.first_dirty_offset,
                end_offset=found.first_uncleanable_offset,
                high_watermark=log.high_watermark,
                now_ms=self.now_ms,
                delete_retention_ms=self.config.delete_retention_ms,
                last_data=last_data,
            )
            self.batches = cleaned(self.batches, given)
        elif report.rounds:
            self.adopt(log)
        return report

    def delete(self, log: WritableLog) -> None:
        due = log.delete_old_segments(self.now_ms)
        start = log.log_start_offset
        assert not due or start >= due[-1].end_offset
        assert start <= log.last_stable_offset
        self.batches = [one for one in self.batches if one.last_offset >= start]

    # What is there

    def resume(self, log: Log) -> None:
        """Go on from what a crash left, after it was held to the history."""
        self.appended = [one for one in self.appended if one.last_offset < log.log_end_offset]
        self.adopt(log)
        self.open = {
            one.producer_id
            for one in self.appended
            if one.is_transactional and one.ends is None and self.is_last_of(one)
        }

    def is_last_of(self, batch: ModelBatch) -> bool:
        return not any(
            one.ends is not None and one.producer_id == batch.producer_id and one.base_offset > batch.base_offset
            for one in self.appended
        )

    def adopt(self, log: Log) -> None:
        """Hold the log to what no compaction may change, and go on from what it has."""
        found = stored(log)
        self.check_history(log, found)
        self.batches = found

    def check_exactly(self, log: Log) -> None:
        found = stored(log)
        assert [shown(one) for one in found] == [shown(one) for one in self.batches]
        self.check_history(log, found)

    def uncleaned_from(self, log: Log) -> int:
        """Return the offset from which on no compaction has removed a record."""
        return log.segments[-1].base_offset

    def check_history(self, log: Log, found: list[ModelBatch]) -> None:
        """No record was invented, doubled, reordered, lost or resurrected."""
        start = log.log_start_offset
        appended = {record.offset: record for batch in self.appended for record in batch.records}
        records = [record for batch in found for record in batch.records if record.offset >= start]
        assert all(one.offset < two.offset for one, two in pairwise(records))
        assert all(appended[one.offset] == one for one in records)
        end = log.log_end_offset
        assert end >= self.flushed_end
        # With the markers of the whole history: a marker goes only after all data of its transaction.
        history = [one for one in self.appended if one.last_offset < end]
        gone = aborted_batches(history)
        here = [one for one in found if one.base_offset not in gone]
        assert replayed(here, start_offset=start) == replayed(history, start_offset=start)
        uncleaned = max(self.uncleaned_from(log), start)
        assert {one.offset for one in records if one.offset >= uncleaned} == {
            record.offset for one in history for record in one.records if record.offset >= uncleaned
        }
        self.check_committed(log, found, history)

    def check_committed(self, log: Log, found: list[ModelBatch], history: list[ModelBatch]) -> None:
        assert committed(log) == [one for one in committed_of(found, history) if one >= log.log_start_offset]


def committed(log: Log) -> list[int]:
    return [record.offset for record in log.read(isolation="read_committed")]


def committed_of(found: list[ModelBatch], history: list[ModelBatch]) -> list[int]:
    """Return the offsets that a reader of committed records gets: up to the first transaction that is open."""
    aborted, started = aborted_batches(history), dict[int, int]()
    for one in history:
        if one.ends is not None:
            started.pop(one.producer_id, None)
        elif one.is_transactional:
            started.setdefault(one.producer_id, one.base_offset)
    end = min(started.values(), default=2**63)
    return [r.offset for one in found if one.base_offset not in aborted for r in one.records if r.offset < end]


def shown(batch: ModelBatch) -> ModelBatch:
    """Return what is compared of a batch."""
    # A batch of magic 0 or 1 begins with its first record.
    base = batch.base_offset if batch.magic == 2 or not batch.records else batch.records[0].offset
    last = batch.last_offset if batch.magic == 2 or not batch.records else batch.records[-1].offset
    return replace(batch, base_offset=base, last_offset=last)


def encoded(batch: ModelBatch, *, marker_ms: int = NOW_MS, leader_epoch: int = 0) -> MemoryRecords:
    builder = MemoryRecordsBuilder(
        magic=batch.magic,
        compression=batch.codec,
        base_offset=batch.base_offset,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        is_control=batch.ends is not None,
        partition_leader_epoch=leader_epoch,
    )
    if batch.ends is not None:
        kind = ControlRecordType.ABORT if batch.ends == "abort" else ControlRecordType.COMMIT
        builder.append_end_transaction_marker(kind, timestamp_ms=marker_ms, coordinator_epoch=0)
    for record in batch.records:
        builder.append(
            offset=record.offset, timestamp_ms=max(record.timestamp_ms, 0), key=record.key, value=record.value
        )
    return builder.build()


def stored(log: Log) -> list[ModelBatch]:
    """Return the batches of a log as the model has them."""
    found = []
    for batch in log.batches():
        header = batch.header
        ends = None
        records: tuple[ModelRecord, ...] = ()
        if header.is_control:
            keys = [record.key for record in batch.records()]
            ends = "" if not keys else "abort" if keys[0] is not None and keys[0][3] == 0 else "commit"
        else:
            records = tuple(
                ModelRecord(one.offset, one.timestamp_ms if header.magic else -1, one.key, one.value)
                for one in batch.records()
            )
        found.append(
            ModelBatch(
                header.base_offset if header.has_base_offset else records[0].offset,
                header.last_offset,
                records,
                header.magic,
                CompressionType(header.codec).label,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.is_transactional,
                ends,
                header.base_timestamp_ms if header.has_delete_horizon else None,
            )
        )
    return found
