"""GroupRecords: the newest record of each key in a partition of `__consumer_offsets`, as a coordinator loads them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kstore.coordinator.store import ReadableLog
from kstore.errors import InvalidRecordError, LogReplacedError, OffsetOutOfRangeError, UnsupportedError
from kstore.record.batches import RecordBatch
from kstore.record.control import control_record_type
from kstore.record.schemas.topics import (
    OFFSET_COMMIT_TYPES,
    DecodedMessage,
    decode_group_record,
    has_name,
    is_of_type,
    sized_name,
)
from kstore.types import (
    GROUP_OFFSETS_TOPIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_TIMESTAMP,
    ControlRecordType,
    OffsetAndMetadata,
    TopicPartition,
)
from kstore.wire.protocol import ZERO_UUID

# The types of keys of committed offsets.
_OFFSET_KEYS = (0, 1)
_MOST_READS = 3

_logger = logging.getLogger("kstore.consumer")


class GroupRecord(NamedTuple):
    """A record and its offset; the value is None for a tombstone."""

    offset: int
    key: bytes
    value: bytes | None


class DecodedRecord(NamedTuple):
    """A record with a value: the type of its key, and the fields of key and value, by Kafka's names."""

    type_id: int
    key: dict[str, Any]
    value: dict[str, Any]

    @property
    def group_id(self) -> str:
        return str(self.key["group"] if "group" in self.key else self.key["groupId"])

    @property
    def is_offset_commit(self) -> bool:
        return self.type_id in _OFFSET_KEYS

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of a commit; only of records with is_offset_commit."""
        return TopicPartition(self.key["topic"], self.key["partition"])

    @property
    def committed_offset(self) -> OffsetAndMetadata:
        """The offset of a commit; only of records with is_offset_commit."""
        fields = self.value
        leader_epoch, topic_id = fields.get("leaderEpoch"), fields.get("topicId")
        expires_ms = fields.get("expireTimestamp")
        return OffsetAndMetadata(
            fields["offset"],
            fields["metadata"],
            leader_epoch=None if leader_epoch == NO_PARTITION_LEADER_EPOCH else leader_epoch,
            commit_timestamp_ms=fields["commitTimestamp"],
            expire_timestamp_ms=None if expires_ms == NO_TIMESTAMP else expires_ms,
            topic_id=None if topic_id == ZERO_UUID else topic_id,
        )


def is_offset_commit_of(group: str) -> Callable[[bytes], bool]:
    """Return a function that tells whether a key is one of the group's committed offsets, without decoding it."""
    name = sized_name(group.encode("utf-8", "surrogateescape"))

    def is_wanted(key: bytes) -> bool:
        return is_of_type(key, OFFSET_COMMIT_TYPES) and has_name(key, name)

    return is_wanted


class GroupRecords:
    """The newest record of each key of a partition; update() reads what was appended since it was called last.

    An offset of a transaction counts once its commit marker was read, but by the offset of its own record: a later
    record of the same key wins over it. It is pending until the marker, whatever was committed since, or until a
    tombstone of its key.
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
        """Return the records that undecided transactions hold, in order: also where a later plain commit will win."""
        return sorted(record for records in self._pending.values() for record in records.values())

    def is_newest(self, record: GroupRecord) -> bool:
        """Whether the record of a key is still that of current()."""
        return self._newest.get(record.key) == record

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
            newest = GroupRecord(record.offset, key, record.value)
            if newest.value is None:
                for undecided in self._pending.values():
                    undecided.pop(key, None)
            if pending is None or newest.value is None:
                self._newest[key] = newest
            else:
                pending[key] = newest

    def _end_transaction(self, batch: RecordBatch) -> None:
        for marker in batch.records(verify=False, headers=False):
            outcome = control_record_type(marker, batch)
            if outcome not in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                continue
            ended = self._pending.pop(batch.header.producer_id, {})
            if outcome is ControlRecordType.COMMIT:
                self._newest.update((key, record) for key, record in ended.items() if self._is_newer(record))

    def _is_newer(self, record: GroupRecord) -> bool:
        known = self._newest.get(record.key)
        return known is None or known.offset < record.offset


def decoded(records: Iterable[GroupRecord], log: ReadableLog) -> Iterator[DecodedRecord]:
    """Yield the records of known types that have a value, decoded; a record of an unknown type is left out, as a broker
    does, which can be older than the record, and a warning is logged.

    Raises: InvalidRecordError, with the offset of the record, for bytes that do not match their type and version;
        UnsupportedError for a value of a version that kstore does not know.
    """
    for record in records:
        try:
            key, value = decode_group_record(record.key, record.value)
        except InvalidRecordError as error:
            message = f"record at offset {record.offset} of {log.topic_partition} in {log.path}: {error}"
            raise InvalidRecordError(
                message, path=log.path, reason=error.reason, expected=error.expected, found=error.found
            ) from error
        if not isinstance(key, DecodedMessage):
            _logger.warning("a record of %s is left out: %s", GROUP_OFFSETS_TOPIC, key.reason)
        elif isinstance(value, DecodedMessage):
            yield DecodedRecord(key.type_id, key.fields, value.fields)
        elif value is not None:
            raise UnsupportedError(f"a record of {GROUP_OFFSETS_TOPIC} for {key.fields}: {value.reason}")


def committed_offsets(records: Iterable[DecodedRecord]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets that records of one group commit; a later record of a partition wins."""
    return {record.topic_partition: record.committed_offset for record in records if record.is_offset_commit}
