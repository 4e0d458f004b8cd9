"""GroupRemoval: takes away groups and committed offsets, those that clients ask for and those whose time is over."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import NamedTuple

from kstore.coordinator.group.coordinator import GroupCoordinator
from kstore.coordinator.group.offsets import GroupOffsets, is_of_group, keys_of_group
from kstore.coordinator.group.records import GroupRecord, GroupRecords, decoded
from kstore.coordinator.store import ReadableLog
from kstore.errors import KStoreError
from kstore.record.schemas.topics import OFFSET_COMMIT_TYPES, is_of_type
from kstore.store.store import WritableStore
from kstore.types import GROUP_OFFSETS_TOPIC, OffsetAndMetadata, TopicPartition
from kstore.wire.codes import ErrorCode

_logger = logging.getLogger("kstore.serve")


class _Committed(NamedTuple):
    """An offset that a group committed, and its record."""

    record: GroupRecord
    partition: TopicPartition
    offset: OffsetAndMetadata


class GroupRemoval:
    """Removes groups and offsets by tombstones in `__consumer_offsets`.

    Records are read in a thread. What was appended meanwhile is read in the loop, which is the one that appends: so no
    commit is lost.
    Args: now_ms: tells the time.
    Threads: the loop's.
    """

    def __init__(
        self, store: WritableStore, coordinator: GroupCoordinator, offsets: GroupOffsets, now_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._offsets = offsets
        self._now_ms = now_ms

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Delete a group with its offsets; return the code of the answer.  Raises: the errors of reads and appends."""
        return await self._remove(group_id, lambda: self._coordinator.delete_code(group_id))

    async def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> ErrorCode:
        """Delete offsets of a group; return the code of the answer.  Raises: as delete_group."""
        return await self._remove(group_id, lambda: self._coordinator.offset_delete_code(group_id), partitions)

    async def _remove(
        self, group_id: str, check: Callable[[], ErrorCode], partitions: Collection[TopicPartition] | None = None
    ) -> ErrorCode:
        """Remove a group's records, or its offsets in partitions."""
        code = check() if group_id else ErrorCode.INVALID_GROUP_ID
        if code is not ErrorCode.NONE:
            return code
        log = self._store.log(*self._offsets.partition_of(group_id))
        records = GroupRecords(is_of_group(group_id))
        await asyncio.to_thread(records.update, log)
        records.update(log)
        code = check()
        if code is ErrorCode.NONE:
            if partitions is not None:
                partitions = {one for one in partitions if not self._coordinator.subscribes_to(group_id, one.topic)}
            self._offsets.append(group_id, [(key, None) for key in keys_of_group(group_id, records, log, partitions)])
            if partitions is None:
                self._coordinator.forget(group_id, self._now_ms())
        return code

    async def expire(self) -> None:
        """Remove the offsets whose time is over, and empty groups that have no others; a failure is logged."""
        for place in self._store.partitions:
            if place.topic == GROUP_OFFSETS_TOPIC:
                try:
                    await self._expire_in(place)
                except KStoreError as error:
                    _logger.warning("offsets whose time is over are left in %s: %s", place, error)

    async def _expire_in(self, place: TopicPartition) -> None:
        log = self._store.log(*place)
        records = GroupRecords()

        def found() -> dict[str, list[_Committed]]:
            records.update(log)
            by_group: dict[str, list[_Committed]] = defaultdict(list)
            for record in records.current():
                for one in decoded((record,), log):
                    if one.is_offset_commit:
                        by_group[one.group_id].append(_Committed(record, one.topic_partition, one.committed_offset))
            return by_group

        by_group = await asyncio.to_thread(found)
        records.update(log)
        pending = {one.group_id for one in decoded(records.pending(), log)}
        for group_id in [name for name in self._coordinator.group_ids if self._offsets.partition_of(name) == place]:
            if group_id not in pending:
                self._expire_of(group_id, by_group.get(group_id, []), records, log)

    def _expire_of(self, group_id: str, committed: list[_Committed], records: GroupRecords, log: ReadableLog) -> None:
        """Remove the expired offsets of a group, and an empty group that has no others."""
        now_ms = self._now_ms()
        expired = [
            one.record.key
            for one in committed
            if self._coordinator.is_expired(group_id, one.partition, one.offset, now_ms)
            and records.is_newest(one.record)
        ]
        if len(expired) == len(committed) and self._coordinator.delete_code(group_id) is ErrorCode.NONE:
            keys = keys_of_group(group_id, records, log)
            if not any(is_of_type(key, OFFSET_COMMIT_TYPES) for key in {*keys}.difference(expired)):
                self._offsets.append(group_id, [(key, None) for key in keys])
                self._coordinator.forget(group_id, now_ms)
                return
        self._offsets.append(group_id, [(key, None) for key in expired])
