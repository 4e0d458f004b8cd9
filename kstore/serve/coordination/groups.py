"""Groups: the groups of a server, whose rules are GroupCoordinator's: loading, appends, timers and answers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from functools import partial
from uuid import UUID

from kstore.coordinator.group.classic import Client, Outcome
from kstore.coordinator.group.coordinator import FetchedOffset, GroupCoordinator, fetched_offset
from kstore.coordinator.group.membership import Call as GroupCall
from kstore.coordinator.group.offsets import CommittedOffsets, GroupOffsets, MemoryOffsets
from kstore.coordinator.group.records import GroupRecords
from kstore.coordinator.group.settings import ConsumerGroupSettings, GroupSettings
from kstore.env.process import SYSTEM_CLOCK, Clock
from kstore.errors import KStoreError
from kstore.record.schemas.topics import OFFSET_COMMIT_TYPES, is_of_type
from kstore.serve.calls import Body, Call
from kstore.serve.coordination.removal import GroupRemoval
from kstore.serve.coordination.topics import StoreTopics
from kstore.serve.refusals import code_of
from kstore.serve.security.rules import Operation, Resource
from kstore.store.store import Store, WritableStore
from kstore.types import GROUP_OFFSETS_TOPIC, TopicPartition
from kstore.wire.classes import Message
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)

_MOST_GROUPS_READ = 256


class Groups:
    """The groups of a store.

    Their records are read when the first request for a group comes, which waits for it. A store that is only read keeps
    what groups commit in memory, and its groups begin without the members that are in its records: these are others'.
    Attributes: coordinator; removal (None where the store is only read).
    Threads: the loop's; it is the only one that changes groups.
    """

    def __init__(
        self,
        store: Store | WritableStore,
        settings: GroupSettings,
        *,
        consumer_settings: ConsumerGroupSettings | None = None,
        topic_id: Callable[[str], UUID],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store = store
        self._settings = settings
        self._topics = topics = StoreTopics(store, topic_id)
        self.coordinator = GroupCoordinator(settings, consumer_settings=consumer_settings, topics=lambda: topics.image)
        self._memory = MemoryOffsets()
        self._offsets: GroupOffsets | MemoryOffsets = self._memory
        self.removal: GroupRemoval | None = None
        if isinstance(store, WritableStore):
            self._offsets = offsets = GroupOffsets(store)
            self.removal = GroupRemoval(store, self.coordinator, offsets, self._now_ms)
        self._expiring: asyncio.Task[None] | None = None
        self._expiry_due_ms = 0
        # Those that were asked for last; each holds what its group committed.
        self._committed: OrderedDict[str, CommittedOffsets] = OrderedDict()
        self._reading = asyncio.Lock()
        self._loading: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Times are those of the wall clock when the server started, and rise from there whatever it does.
        self._clock = clock
        self._start_ms = clock.wall_clock_ms() - clock.monotonic_ms()

    def _now_ms(self) -> int:
        return self._start_ms + self._clock.monotonic_ms()

    async def ready(self) -> None:
        """Load the groups, once, with `__consumer_offsets` made if a store that is written has none.

        Raises: the errors of reading and writing it, to each caller until it succeeds.
        """
        if self._loading is None or (self._loading.done() and self._loading.exception() is not None):
            self._loading = asyncio.ensure_future(self._load())
        await asyncio.shield(self._loading)

    async def _load(self) -> None:
        if isinstance(self._offsets, GroupOffsets):
            await asyncio.to_thread(self._offsets.partition_of, "")
        await self._topics.look()
        wants = (lambda key: is_of_type(key, OFFSET_COMMIT_TYPES)) if self.removal is None else None
        for partition in self._store.partitions:
            if partition.topic == GROUP_OFFSETS_TOPIC:
                records = GroupRecords(wants)
                await asyncio.to_thread(records.update, self._store.log(*partition))
                # One that has offsets in a transaction alone is a group, as for a broker.
                self.coordinator.load([*records.current(), *records.pending()], self._now_ms())
        self._expiry_due_ms = self._now_ms() + self._settings.offsets_retention_check_interval_ms
        self._look_after()

    async def join(self, call: Call[JoinGroupRequest]) -> Message:
        client = Client(call.client_id, f"/{call.client_host}")
        return await self._answered(call, lambda own: self.coordinator.join(own, call.body, client, self._now_ms()))

    async def sync(self, call: Call[SyncGroupRequest]) -> Message:
        return await self._answered(call, lambda own: self.coordinator.sync(own, call.body, self._now_ms()))

    async def heartbeat(self, call: Call[HeartbeatRequest]) -> Message:
        return await self._answered(call, lambda own: self.coordinator.heartbeat(own, call.body, self._now_ms()))

    async def leave(self, call: Call[LeaveGroupRequest]) -> Message:
        return await self._answered(call, lambda own: self.coordinator.leave(own, call.body, self._now_ms()))

    async def consumer_heartbeat(self, call: Call[ConsumerGroupHeartbeatRequest]) -> Message:
        may_see = partial(call.session.access.may, Operation.DESCRIBE, Resource.TOPIC)
        client = Client(call.client_id, f"/{call.client_host}", may_see, call.session.rights)
        await self._topics.look()
        return await self._answered(
            call, lambda own: self.coordinator.consumer_heartbeat(own, call.body, client, self._now_ms())
        )

    async def commit(self, call: Call[OffsetCommitRequest]) -> OffsetCommitResponse:
        """Commit offsets of partitions that are there."""
        await self.ready()
        request = call.body
        done = self.coordinator.commit(request, version=call.version, now_ms=self._now_ms())
        self._look_after()
        if done.records:
            try:
                self._offsets.append(request.group_id, done.records)
            except KStoreError as error:
                for topic in done.response.topics:
                    for partition in topic.partitions:
                        partition.error_code = partition.error_code or code_of(error)
        return done.response

    async def transactional_code(self, request: TxnOffsetCommitRequest) -> ErrorCode:
        """Return whether the offsets of a transaction may be committed.  Raises: as ready()."""
        await self.ready()
        code = self.coordinator.transactional_commit_code(request, self._now_ms())
        self._look_after()
        return code

    async def fetched(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> list[tuple[TopicPartition, FetchedOffset]]:
        """Return what a group committed for partitions, None for all.  Raises: the errors of a read."""
        await self.ready()
        async with self._reading:
            committed = self._committed.pop(group_id, None) or CommittedOffsets(self._store, group_id)
            current, pending = await asyncio.to_thread(lambda: (committed.current(), committed.pending()))
            self._committed[group_id] = committed
            if len(self._committed) > _MOST_GROUPS_READ:
                self._committed.popitem(last=False)
        current = {**current, **self._memory.of(group_id)}
        wanted = sorted(current) if partitions is None else partitions
        return [
            (partition, fetched_offset(partition, current, pending, require_stable=require_stable))
            for partition in wanted
        ]

    async def end_sessions(self, group_id: str, member_ids: Collection[str] | None) -> int:
        """Remove members of a group as if they had not been heard of, None for all; return how many."""
        await self.ready()
        count = self.coordinator.end_sessions(group_id, member_ids, self._now_ms())
        self._look_after()
        return count

    async def _answered(self, call: Call[Body], begin: Callable[[GroupCall], Outcome]) -> Message:
        """Return the answer to a call, which may come with that of another one."""
        await self.ready()
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._do(begin(GroupCall(answer, call.version)))
        self._look_after()
        return await answer

    def _do(self, outcome: Outcome) -> None:
        """Append the records of an outcome, and then give the answers."""
        while outcome.records:
            try:
                self._offsets.append(outcome.group_id, outcome.records)
            except KStoreError:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                outcome = self.coordinator.not_written(outcome.group_id, self._now_ms(), code)
            else:
                outcome = self.coordinator.written(outcome.group_id, self._now_ms())
        for token, response in outcome.answers:
            if isinstance(token, asyncio.Future) and not token.done():
                token.set_result(response)

    def _look_after(self) -> None:
        """Do what is due in the groups, and be called when something is due next."""
        while (due_ms := self.coordinator.next_ms) is not None and due_ms <= self._now_ms():
            for outcome in self.coordinator.expire(self._now_ms()):
                self._do(outcome)
        if self.removal is not None:
            if self._expiry_due_ms <= self._now_ms():
                self._expiry_due_ms = self._now_ms() + self._settings.offsets_retention_check_interval_ms
                self._expiring = asyncio.ensure_future(self.removal.expire())
            due_ms = self._expiry_due_ms if due_ms is None else min(due_ms, self._expiry_due_ms)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if due_ms is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later((due_ms - self._now_ms()) / 1000, self._look_after)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._loading, self._expiring):
            if task is not None:
                task.cancel()
