"""GroupCoordinator: the groups of a server, found by their ids; it restores them and tells when the next is due."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heappop, heappush
from typing import NamedTuple
from uuid import uuid4

from kstore.config import MAX_INT64
from kstore.coordinator.group.classic import (
    Answer,
    ClassicGroup,
    Client,
    GroupState,
    Outcome,
    leave_answer,
    leaving_members,
    refused_join,
)
from kstore.coordinator.group.consumer.facts import KEY_TYPES, ConsumerFacts
from kstore.coordinator.group.consumer.group import ConsumerGroup, check_request, refusal
from kstore.coordinator.group.consumer.members import RefusedError
from kstore.coordinator.group.consumer.topics import TopicsImage
from kstore.coordinator.group.membership import Call, KeyValue, Membership, restored_membership
from kstore.coordinator.group.offsets import MAX_METADATA_BYTES
from kstore.coordinator.group.records import GroupRecord
from kstore.coordinator.group.settings import ConsumerGroupSettings, GroupSettings
from kstore.record.schemas.topics import (
    OFFSET_COMMIT_TYPES,
    DecodedMessage,
    decode_group_record,
    encode_group_record,
    encode_offset_commit,
    is_of_type,
    name_of_key,
)
from kstore.types import NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP, OffsetAndMetadata, TopicPartition
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
)

_CLASSIC_KEY, _CLASSIC_VERSION = 2, 3
# A value of version 1 has the time at which the offset expires; version 3 the leader epoch.
_EXPIRING_COMMIT_VERSION = 1
_COMMIT_VERSION = 3
_NO_RETENTION_MS = -1
# OffsetCommit says from this version on that a group does not exist.
_GROUP_NOT_FOUND_VERSION = 9
# A SyncGroup names the protocol that the member knows from this version on.
_SYNC_NAMES_PROTOCOL_VERSION = 5
_NO_OFFSET = -1
_NO_TOPICS = TopicsImage({})


class Commit(NamedTuple):
    """The records of a commit, and the answer that is true once they are appended; it may refuse some, or all."""

    records: tuple[KeyValue, ...]
    response: OffsetCommitResponse


class FetchedOffset(NamedTuple):
    """What OffsetFetch says of a partition: offset -1 where there is none."""

    offset: int
    leader_epoch: int
    metadata: str
    code: ErrorCode


class GroupCoordinator:
    """The groups of a server, as ClassicGroup and ConsumerGroup have each; without threads, sockets or a clock.

    The caller does what an Outcome says before the next call for that group; calls for other groups may come between.
    It calls expire() at next_ms.
    Args: topics: those that there are, for groups of KIP-848, the same object while these are the same; new_id: makes
        the unique part of member ids.
    Attributes: groups (the classic ones by id), consumer_groups (those of KIP-848 by id), other_groups (the ids of
        those of other types, of which only records are known).
    Threads: not safe.  Cost: one object per group; expire() looks at the groups that are due alone.
    Source: Kafka GroupCoordinatorService, GroupMetadataManager, OffsetMetadataManager.
    """

    def __init__(
        self,
        settings: GroupSettings,
        *,
        consumer_settings: ConsumerGroupSettings | None = None,
        topics: Callable[[], TopicsImage] = lambda: _NO_TOPICS,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self.other_groups: set[str] = set()
        self._settings = settings
        self._consumer_settings = consumer_settings or ConsumerGroupSettings()
        self._topics = topics
        self._new_id = new_id
        # When to look at each group: the first entry of a group is in _due_ms.
        self._queue: list[tuple[int, str]] = []
        self._due_ms: dict[str, int] = {}

    @property
    def group_ids(self) -> list[str]:
        """The ids of all groups but those of other types."""
        return [*self.groups, *self.consumer_groups]

    @property
    def next_ms(self) -> int | None:
        """When expire() is to be called next, None for never; it may be in the past, and early."""
        return self._queue[0][0] if self._queue else None

    def load(self, records: Iterable[GroupRecord], now_ms: int) -> None:
        """Take over the groups of a partition of `__consumer_offsets`, from GroupRecords.current() and pending().

        Members have their assignments, and new sessions. A group that only commits offsets is an empty one, also where
        a transaction holds them.
        Raises: InvalidRecordError for a record of a group that does not match its type and version.
        """
        simple: set[str] = set()
        consumers: dict[str, ConsumerFacts] = {}
        for record in records:
            if is_of_type(record.key, OFFSET_COMMIT_TYPES):
                simple.add(_group_of_commit(record.key))
                continue
            key, value = decode_group_record(record.key, record.value, decode_members=False)
            if not isinstance(key, DecodedMessage):
                continue
            if key.type_id in KEY_TYPES:
                group_id = key.fields["groupId"]
                facts = consumers.setdefault(group_id, ConsumerFacts(group_id=group_id))
                if isinstance(value, DecodedMessage):
                    facts.replay(key.type_id, key.fields, value.fields)
            elif key.type_id != _CLASSIC_KEY:
                self.other_groups.add(key.fields["groupId"])
            elif isinstance(value, DecodedMessage):
                group_id = key.fields["group"]
                self._store(restored_membership(group_id, value.fields), now_ms)
                since_ms = value.fields.get("currentStateTimestamp", NO_TIMESTAMP)
                self.groups[group_id].state_since_ms = None if since_ms == NO_TIMESTAMP else since_ms
        for facts in consumers.values():
            if facts.epoch:
                self._look_after(self._consumer_group(facts, now_ms))
        for group_id in simple - self.groups.keys() - self.consumer_groups.keys() - self.other_groups:
            self._store(Membership(group_id=group_id), now_ms)

    def join(self, call: Call, request: JoinGroupRequest, client: Client, now_ms: int) -> Outcome:
        """Let a client become a member; the group is created for a client without a member id."""
        group_id = request.group_id
        group = self.groups.get(group_id)
        consumers = self.consumer_groups.get(group_id)
        if consumers is not None and not consumers.facts.members and not request.member_id:
            return self._replaced(consumers, call, request, client)
        code = ErrorCode.NONE
        if not group_id:
            code = ErrorCode.INVALID_GROUP_ID
        elif group_id in self.other_groups or consumers is not None:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif group is None and request.member_id:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code is not ErrorCode.NONE:
            return Outcome(group_id, answers=(refused_join(call, code, request.member_id),))
        if group is None:
            group = ClassicGroup(Membership(group_id=group_id), self._settings, now_ms, new_id=self._new_id)
            self.groups[group_id] = group
        return self._looked_after(group, group.join(call, request, client, now_ms))

    def _replaced(self, group: ConsumerGroup, call: Call, request: JoinGroupRequest, client: Client) -> Outcome:
        """Remove an empty group of KIP-848, and let a client join a classic one in its place."""

        def join(now_ms: int) -> Outcome:
            del self.consumer_groups[group.group_id]
            return self.join(call, request, client, now_ms)

        def refuse(code: ErrorCode) -> Answer:
            return refused_join(call, code, request.member_id)

        return group.remove(join, refuse)

    def consumer_heartbeat(
        self, call: Call, request: ConsumerGroupHeartbeatRequest, client: Client, now_ms: int
    ) -> Outcome:
        """Let a client join, stay in or leave a group of KIP-848, which takes the place of a classic one that is empty.

        Source: Kafka GroupMetadataManager.getOrMaybeCreateConsumerGroup.
        """
        group_id = request.group_id
        group = self.consumer_groups.get(group_id)
        if group is None:
            try:
                check_request(request, version=call.version)
                group = self._created_consumer_group(group_id, now_ms, joins=request.member_epoch == 0)
            except RefusedError as refused:
                return Outcome(group_id, answers=(refusal(call, refused),))
        epoch = group.facts.epoch
        outcome = group.heartbeat(call, request, client, now_ms)
        # One that changes nothing only puts off what is due, so the queue stays as it is.
        return outcome if epoch and outcome.answers else self._looked_after(group, outcome)

    def _created_consumer_group(self, group_id: str, now_ms: int, *, joins: bool) -> ConsumerGroup:
        classic = self.groups.get(group_id)
        if group_id in self.other_groups or (classic is not None and classic.state is not GroupState.EMPTY):
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if not joins:
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        first_records = []
        if classic is not None:
            key = {"group": group_id}
            first_records.append(encode_group_record(key, None, type_id=_CLASSIC_KEY, version=_CLASSIC_VERSION))
        return self._consumer_group(ConsumerFacts(group_id=group_id), now_ms, first_records=first_records)

    def sync(self, call: Call, request: SyncGroupRequest, now_ms: int) -> Outcome:
        group = self.groups.get(request.group_id)
        names_none = request.protocol_type is None or request.protocol_name is None
        code = ErrorCode.NONE if group is not None else _missing(request.group_id)
        if names_none and call.version >= _SYNC_NAMES_PROTOCOL_VERSION:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group is None or code is not ErrorCode.NONE:
            return Outcome(request.group_id, answers=(Answer(call.token, SyncGroupResponse(error_code=code)),))
        return self._looked_after(group, group.sync(call, request, now_ms))

    def heartbeat(self, call: Call, request: HeartbeatRequest, now_ms: int) -> Outcome:
        group = self.groups.get(request.group_id)
        if group is None:
            response = HeartbeatResponse(error_code=_missing(request.group_id))
            return Outcome(request.group_id, answers=(Answer(call.token, response),))
        # It only puts off what is due, so the queue stays as it is.
        return group.heartbeat(call, request, now_ms)

    def leave(self, call: Call, request: LeaveGroupRequest, now_ms: int) -> Outcome:
        consumers = self.consumer_groups.get(request.group_id)
        if consumers is not None:
            return self._looked_after(consumers, consumers.leave(call, request))
        group = self.groups.get(request.group_id)
        if group is None:
            code = _missing(request.group_id)
            left = [(member_id, instance_id, code) for member_id, instance_id in leaving_members(call, request)]
            return Outcome(request.group_id, answers=(leave_answer(call, left),))
        return self._looked_after(group, group.leave(call, request, now_ms))

    def commit(self, request: OffsetCommitRequest, *, version: int, now_ms: int) -> Commit:
        """Return the records and the answer of a commit; a client without a group creates one.

        The partitions exist: the caller refuses the others. The group may have a record that waits.
        """
        code = self._commit_code(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
            version=version,
            now_ms=now_ms,
        )
        if code is ErrorCode.GROUP_ID_NOT_FOUND and version < _GROUP_NOT_FOUND_VERSION:
            code = ErrorCode.ILLEGAL_GENERATION
        retention_ms = request.retention_time_ms
        expires_ms = None if retention_ms == _NO_RETENTION_MS else min(now_ms + retention_ms, MAX_INT64)
        records, topics = [], []
        for topic in request.topics:
            partitions = []
            for one in topic.partitions:
                metadata, of_one = one.committed_metadata or "", code
                if of_one is ErrorCode.NONE and len(metadata.encode("utf-8", "surrogateescape")) > MAX_METADATA_BYTES:
                    of_one = ErrorCode.OFFSET_METADATA_TOO_LARGE
                if of_one is ErrorCode.NONE:
                    epoch = one.committed_leader_epoch
                    committed = OffsetAndMetadata(
                        one.committed_offset,
                        metadata,
                        leader_epoch=None if epoch == NO_PARTITION_LEADER_EPOCH else epoch,
                        commit_timestamp_ms=now_ms,
                        expire_timestamp_ms=expires_ms,
                    )
                    place = TopicPartition(topic.name, one.partition_index)
                    written_as = _COMMIT_VERSION if expires_ms is None else _EXPIRING_COMMIT_VERSION
                    records.append(encode_offset_commit(request.group_id, place, committed, version=written_as))
                answer = OffsetCommitResponse.OffsetCommitResponsePartition(
                    partition_index=one.partition_index, error_code=of_one
                )
                partitions.append(answer)
            topics.append(OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        if records and request.group_id not in self.consumer_groups:
            self._created(request.group_id, now_ms).is_stored = True
        return Commit(tuple(records), OffsetCommitResponse(topics=topics))

    def transactional_commit_code(self, request: TxnOffsetCommitRequest, now_ms: int) -> ErrorCode:
        """Return whether the offsets of a transaction may be committed; a client without a group creates one."""
        code = self._commit_code(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            generation=request.generation_id,
            version=None,
            now_ms=now_ms,
        )
        if code is ErrorCode.NONE and request.group_id not in self.consumer_groups:
            self._created(request.group_id, now_ms).is_stored = True
        return ErrorCode.ILLEGAL_GENERATION if code is ErrorCode.GROUP_ID_NOT_FOUND else code

    def fetch_code(self, group_id: str, member_id: str | None, *, epoch: int) -> ErrorCode:
        """Return whether somebody may read the offsets that a group committed."""
        group = self.consumer_groups.get(group_id)
        return ErrorCode.NONE if group is None else group.fetch_code(member_id, epoch=epoch)

    def delete_code(self, group_id: str) -> ErrorCode:
        """Return whether a group may be deleted; the caller then appends its tombstones and calls forget()."""
        group = self._group(group_id)
        if group is None:
            return ErrorCode.NON_EMPTY_GROUP if group_id in self.other_groups else ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.state == GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def offset_delete_code(self, group_id: str) -> ErrorCode:
        """Return whether offsets of a group may be deleted, of topics that are not in use (subscribes_to)."""
        group = self._group(group_id)
        return ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.offset_delete_code()

    def subscribes_to(self, group_id: str, topic: str) -> bool:
        """Whether members of a group are subscribed to a topic, or may be."""
        group = self._group(group_id)
        return group is not None and group.subscribes_to(topic)

    def is_expired(self, group_id: str, partition: TopicPartition, committed: OffsetAndMetadata, now_ms: int) -> bool:
        """Whether the time of an offset that a group committed is over.

        Source: Kafka OffsetMetadataManager.cleanupExpiredOffsets.
        """
        group = self._group(group_id)
        if group is None or group.subscribes_to(partition.topic):
            return False
        start_ms = group.retention_start_ms(committed)
        if start_ms is None:
            return False
        expire_ms = committed.expire_timestamp_ms
        return now_ms >= (start_ms + self._settings.offsets_retention_ms if expire_ms is None else expire_ms)

    def described(self, group_id: str) -> DescribeGroupsResponse.DescribedGroup | None:
        """Return a classic group as DescribeGroups does, None if there is none."""
        group = self.groups.get(group_id)
        return None if group is None else group.described()

    def described_consumers(self, group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup | None:
        """Return a group of KIP-848 as ConsumerGroupDescribe does, None if there is none."""
        group = self.consumer_groups.get(group_id)
        return None if group is None else group.described()

    def listed(self, *, states: Iterable[str], types: Iterable[str]) -> list[ListGroupsResponse.ListedGroup]:
        """Return the groups as ListGroups does.  Args: states, types: those that are wanted, all if there are none."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {kind.lower() for kind in types}
        all_listed = [group.listed() for group in self.groups.values()]
        all_listed += [group.listed() for group in self.consumer_groups.values()]
        return [
            one
            for one in all_listed
            if (not wanted_states or one.group_state.lower() in wanted_states)
            and (not wanted_types or one.group_type.lower() in wanted_types)
        ]

    def forget(self, group_id: str, now_ms: int) -> None:
        """The group's records have tombstones: it does not exist any more."""
        self.consumer_groups.pop(group_id, None)
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.bury(now_ms)

    def end_sessions(self, group_id: str, member_ids: Collection[str] | None, now_ms: int) -> int:
        """Let the sessions of members of a group end now, None for all; return how many. expire() removes them."""
        group = self._group(group_id)
        if group is None:
            return 0
        count = group.end_sessions(member_ids, now_ms)
        self._look_after(group)
        return count

    def expire(self, now_ms: int) -> list[Outcome]:
        """Do what is due in each group, and return what is to be done for each of them."""
        outcomes = []
        while self._queue and self._queue[0][0] <= now_ms:
            due_ms, group_id = heappop(self._queue)
            if self._due_ms.get(group_id) != due_ms:
                continue
            del self._due_ms[group_id]
            group = self._group(group_id)
            if group is not None and not group.waits_for_write:
                outcome = self._looked_after(group, group.expire(now_ms))
                if outcome.records or outcome.answers:
                    outcomes.append(outcome)
        return outcomes

    def written(self, group_id: str, now_ms: int) -> Outcome:
        """The records of the group's last outcome were appended; what it returns may have others."""
        consumers = self.consumer_groups.get(group_id)
        if consumers is not None:
            self.groups.pop(group_id, None)
        group = consumers or self.groups[group_id]
        return self._looked_after(group, group.written(now_ms))

    def not_written(self, group_id: str, now_ms: int, code: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> Outcome:
        """The records of the group's last outcome could not be appended."""
        group = self.consumer_groups.get(group_id) or self.groups[group_id]
        return self._looked_after(group, group.not_written(now_ms, code))

    def _commit_code(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        *,
        generation: int,
        version: int | None,
        now_ms: int,
    ) -> ErrorCode:
        """Return whether a commit is taken.  Args: version: of OffsetCommit, None for the offsets of a transaction."""
        consumers, group = self.consumer_groups.get(group_id), self.groups.get(group_id)
        if consumers is not None:
            return consumers.commit_code(member_id, epoch=generation, version=version)
        if group is not None:
            return group.commit_code(
                member_id, instance_id, generation=generation, now_ms=now_ms, is_transactional=version is None
            )
        if group_id in self.other_groups:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation < 0 else ErrorCode.GROUP_ID_NOT_FOUND

    def _created(self, group_id: str, now_ms: int) -> ClassicGroup:
        if group_id not in self.groups:
            self._store(Membership(group_id=group_id), now_ms)
        return self.groups[group_id]

    def _store(self, membership: Membership, now_ms: int) -> None:
        """Keep a group of which there are records."""
        group = ClassicGroup(membership, self._settings, now_ms, is_stored=True, new_id=self._new_id)
        self.groups[membership.group_id] = group
        self._look_after(group)

    def _consumer_group(
        self, facts: ConsumerFacts, now_ms: int, *, first_records: Iterable[KeyValue] = ()
    ) -> ConsumerGroup:
        group = ConsumerGroup(
            facts,
            self._consumer_settings,
            now_ms,
            topics=self._topics,
            first_records=first_records,
            new_id=self._new_id,
        )
        self.consumer_groups[facts.group_id] = group
        return group

    def _group(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        return self.consumer_groups.get(group_id) or self.groups.get(group_id)

    def _looked_after(self, group: ClassicGroup | ConsumerGroup, outcome: Outcome) -> Outcome:
        self._look_after(group)
        return outcome

    def _look_after(self, group: ClassicGroup | ConsumerGroup) -> None:
        """Queue the group for when something is due in it, or drop it if nothing would be lost."""
        group_id, next_ms = group.group_id, group.next_ms
        if group.is_unused and not group.waits_for_write:
            groups = self.consumer_groups if isinstance(group, ConsumerGroup) else self.groups
            groups.pop(group_id, None)
        elif next_ms is not None and next_ms < self._due_ms.get(group_id, next_ms + 1):
            self._due_ms[group_id] = next_ms
            heappush(self._queue, (next_ms, group_id))


def fetched_offset(
    partition: TopicPartition,
    current: Mapping[TopicPartition, OffsetAndMetadata],
    pending: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    require_stable: bool,
) -> FetchedOffset:
    """Return what OffsetFetch says of a partition.

    Args: current, pending: of the group, as CommittedOffsets has them; require_stable: an undecided transaction that
        holds an offset of the partition keeps the committed one from being told.
    """
    committed = current.get(partition)
    if require_stable and partition in pending:
        return FetchedOffset(_NO_OFFSET, NO_PARTITION_LEADER_EPOCH, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    if committed is None:
        return FetchedOffset(_NO_OFFSET, NO_PARTITION_LEADER_EPOCH, "", ErrorCode.NONE)
    epoch = NO_PARTITION_LEADER_EPOCH if committed.leader_epoch is None else committed.leader_epoch
    return FetchedOffset(committed.offset, epoch, committed.metadata, ErrorCode.NONE)


def _missing(group_id: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID


def _group_of_commit(key: bytes) -> str:
    name = name_of_key(key)
    return "" if name is None else name.decode("utf-8", "surrogateescape")
