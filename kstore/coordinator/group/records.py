"""GroupRecords: the newest record of each key in a partition of `__consumer_offsets`, as a coordinator loads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kstore.coordinator.store import ReadableLog
from kstore.errors import InvalidRecordError, LogReplacedError, OffsetOutOfRangeError
from kstore.record import ControlRecordType, RecordBatch, control_record_type
from kstore.record.schemas.topics import (
    OFFSET_COMMIT_TYPES,
    CoordinatorRecord,
    decode_group_record,
    has_name,
    is_of_type,
    sized_name,
)

_MOST_READS = 3


class GroupRecord(NamedTuple):
    """A record and its offset; the value is None for a tombstone."""

    offset: int
    key: bytes
    value: bytes | None


def is_offset_commit_of(group: str) -> Callable[[bytes], bool]:
    """Return a function that tells whether a key is one of the group's committed offsets, without decoding it."""
    name = sized_name(group.encode("utf-8", "surrogateescape"))

    def is_wanted(key: bytes) -> bool:
        return is_of_type(key, OFFSET_COMMIT_TYPES) and has_name(key, name)

    return is_wanted


class GroupRecords:
    """What the records of a partition say so far; update() reads on from where it ended.

    An offset of a transaction counts once its commit marker was read, but by the offset of its own record: a later
    record of the same key wins over it, a tombstone too, whichever came first.
    Args: wants: whether the record of a key is kept; None for all.
    Attributes: next_offset (up to which the log was read).
    Threads: not safe.  Cost: memory for one record per key, and per key and open transaction.
    Source: Kafka OffsetMetadataManager.replay, replayEndTransactionMarker.
    """

    def __init__(self, wants: Callable[[bytes], bool] | None = None) -> None:
        self._wants = wants
        self._newest: dict[bytes, GroupRecord] = {}
        self._pending: dict[int, dict[bytes, GroupRecord]] = {}
        self.next_offset = 0

    def update(self, log: ReadableLog) -> None:
        """Read what the log holds beyond next_offset; of a log that ends before it, everything again.

        Raises: CorruptRecordError and the other errors of a read; LogReplacedError if the log was deleted, or changes
            too often.
        """
        for reads_left in reversed(range(_MOST_READS)):
            try:
                self._read(log)
                return
            except (LogReplacedError, OffsetOutOfRangeError):
                # Records that a compaction removed since have newer ones; those that were read stand.
                if not reads_left:
                    raise
                log.refresh()

    def current(self) -> list[GroupRecord]:
        """Return the newest record of each key that has a value, in the order of their offsets."""
        return sorted(record for record in self._newest.values() if record.value is not None)

    def pending(self) -> list[GroupRecord]:
        """Return the records of undecided transactions that would count if these were committed, in order."""
        found = (record for records in self._pending.values() for record in records.values())
        return sorted(record for record in found if self._is_newer(record))

    def _read(self, log: ReadableLog) -> None:
        if self.next_offset > log.log_end_offset:
            self._newest.clear()
            self._pending.clear()
            self.next_offset = 0
        for batch in log.batches(max(self.next_offset, log.log_start_offset)):
            if batch.is_control:
                self._end_transaction(batch)
            else:
                self._take(batch)
            self.next_offset = batch.header.last_offset + 1

    def _take(self, batch: RecordBatch) -> None:
        header = batch.header
        pending = self._pending.setdefault(header.producer_id, {}) if header.is_transactional else None
        for record in batch.records(verify=False, headers=False):
            key = record.key
            if record.offset < self.next_offset or key is None or (self._wants is not None and not self._wants(key)):
                continue
            found = GroupRecord(record.offset, key, record.value)
            if pending is None or found.value is None:
                self._newest[key] = found
            else:
                pending[key] = found

    def _end_transaction(self, batch: RecordBatch) -> None:
        for record in batch.records(verify=False, headers=False):
            outcome = control_record_type(record, batch)
            if outcome not in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                continue
            ended = self._pending.pop(batch.header.producer_id, {})
            if outcome is ControlRecordType.COMMIT:
                self._newest.update((key, found) for key, found in ended.items() if self._is_newer(found))

    def _is_newer(self, record: GroupRecord) -> bool:
        known = self._newest.get(record.key)
        return known is None or known.offset < record.offset


def decoded(records: list[GroupRecord], log: ReadableLog) -> Iterator[CoordinatorRecord]:
    """Yield records decoded.

    Raises: InvalidRecordError, with the offset of the record, for bytes that do not match their type and version.
    """
    for record in records:
        try:
            yield decode_group_record(record.key, record.value)
        except InvalidRecordError as error:
            message = f"record at offset {record.offset} of {log.topic_partition} in {log.path}: {error}"
            raise InvalidRecordError(
                message, path=log.path, reason=error.reason, expected=error.expected, found=error.found
            ) from error
