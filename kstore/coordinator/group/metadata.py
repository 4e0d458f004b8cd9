"""Group metadata: the groups of a store, as the records of its `__consumer_offsets` describe them."""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kstore.coordinator.group.records import GroupRecords, decoded
from kstore.coordinator.store import ReadableLog, ReadableStore
from kstore.errors import KStoreError, LogNotFoundError, UnsupportedError
from kstore.record.schemas.topics import CoordinatorRecord, DecodedMessage
from kstore.types import (
    GROUP_OFFSETS_TOPIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_TIMESTAMP,
    ZERO_UUID,
    OffsetAndMetadata,
    TopicPartition,
)

# Names of Kafka's GroupType and GroupState.
CLASSIC, CONSUMER, SHARE, STREAMS = "Classic", "Consumer", "Share", "Streams"
EMPTY, STABLE, ASSIGNING, RECONCILING = "Empty", "Stable", "Assigning", "Reconciling"
# The types of keys, by what their records tell.
_OFFSET_KEYS = (0, 1)
_CLASSIC_KEY = 2
_GROUP_KEYS = {3: CONSUMER, 11: SHARE, 17: STREAMS}
_MEMBER_KEYS = (5, 10, 19)
_TARGET_KEYS = (6, 12, 20)
_CURRENT_KEYS = (8, 14, 22)
_STABLE_MEMBER = 0
_PROTOCOL_TYPES = {CONSUMER: "consumer", SHARE: "share", STREAMS: "streams"}

_logger = logging.getLogger("kstore.consumer")
_Result = TypeVar("_Result")


class GroupMember(NamedTuple):
    """A member of a group, as its coordinator last stored it; it need not be alive.

    instance_id: group.instance.id, None for a dynamic member. epoch: None in a classic group. topics: those that it
    subscribes to. assignment: its partitions; a topic of which the root has no partition is named by its id. Both are
    empty where they are unknown: of clients with protocols of their own, and of the tasks of Kafka Streams.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]


class GroupOffset(NamedTuple):
    """A group's committed offset in a partition; log_end_offset: None if the root does not have the partition."""

    committed: OffsetAndMetadata
    log_end_offset: int | None

    @property
    def lag(self) -> int | None:
        """How many offsets the group has to go, as of Kafka's tools: not all of them need be records."""
        return None if self.log_end_offset is None else self.log_end_offset - self.committed.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group: its type and state by Kafka's names, its members, and its offsets by partition.

    A group that only commits offsets is "Classic" and "Empty", as for a broker. epoch: the generation of a classic
    group. protocol, leader: of a classic group with members. offsets: what is committed; pending: what transactions
    that are not decided would commit.
    """

    group_id: str
    type: str
    state: str
    protocol_type: str
    protocol: str | None
    leader: str | None
    epoch: int | None
    members: tuple[GroupMember, ...]
    offsets: Mapping[TopicPartition, GroupOffset]
    pending: Mapping[TopicPartition, OffsetAndMetadata]


def groups_in(
    store: ReadableStore,
    *,
    groups: Collection[str] | None = None,
    on_error: Callable[[KStoreError], object] | None = None,
) -> tuple[Group, ...]:
    """Return the groups of a store, by group id; see kstore.read_groups."""
    found: dict[str, _Found] = {}
    for topic, partition in store.partitions:
        if topic != GROUP_OFFSETS_TOPIC:
            continue
        try:
            found |= _found_in(store.log(topic, partition))
        except KStoreError as error:
            if on_error is None:
                raise
            on_error(error)
    view = _StoreView(store, on_error)
    names = found.keys() if groups is None else found.keys() & set(groups)
    return tuple(found[name].group(view) for name in sorted(names) if found[name].is_there)


def committed_offsets(records: Iterable[CoordinatorRecord]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets that decoded records of one group commit; a later record of a partition wins.

    Raises: UnsupportedError for a record of a version that kstore does not know.
    """
    return {
        TopicPartition(key["topic"], key["partition"]): _offset_of(value)
        for type_id, key, value in _known(records)
        if type_id in _OFFSET_KEYS
    }


def _known(records: Iterable[CoordinatorRecord]) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """Yield the type of the key, and the fields of key and value, of each record of a known type."""
    for key, value in records:
        if not isinstance(key, DecodedMessage):
            # As a broker does, which can be older than the record.
            _logger.warning("a record of %s is left out: %s", GROUP_OFFSETS_TOPIC, key.reason)
        elif isinstance(value, DecodedMessage):
            yield key.type_id, key.fields, value.fields
        elif value is not None:
            raise UnsupportedError(f"a record of {GROUP_OFFSETS_TOPIC} for {key.fields}: {value.reason}")


def _offset_of(fields: Mapping[str, Any]) -> OffsetAndMetadata:
    epoch, expires_ms = fields.get("leaderEpoch"), fields.get("expireTimestamp")
    topic_id = fields.get("topicId")
    return OffsetAndMetadata(
        fields["offset"],
        fields["metadata"],
        leader_epoch=None if epoch == NO_PARTITION_LEADER_EPOCH else epoch,
        commit_timestamp_ms=fields["commitTimestamp"],
        expire_timestamp_ms=None if expires_ms == NO_TIMESTAMP else expires_ms,
        topic_id=None if topic_id == ZERO_UUID else topic_id,
    )


def _found_in(log: ReadableLog) -> dict[str, _Found]:
    """Return what a partition says of each of its groups."""
    records = GroupRecords()
    records.update(log)
    found: dict[str, _Found] = {}
    for type_id, key, value in _known(decoded(records.current(), log)):
        name = key["group"] if "group" in key else key["groupId"]
        found.setdefault(name, _Found(name)).take(type_id, key, value)
    for type_id, key, value in _known(decoded(records.pending(), log)):
        if type_id in _OFFSET_KEYS:
            group = found.setdefault(key["group"], _Found(key["group"]))
            group.pending[TopicPartition(key["topic"], key["partition"])] = _offset_of(value)
    return found


class _StoreView:
    """What the groups ask of the root: log ends and the topics of ids, each looked up once."""

    def __init__(self, store: ReadableStore, on_error: Callable[[KStoreError], object] | None) -> None:
        self._store = store
        self._on_error = on_error
        self._partitions = set(store.partitions)
        self._ends: dict[TopicPartition, int | None] = {}
        self._names: dict[UUID, str] | None = None

    def log_end_offset(self, topic_partition: TopicPartition) -> int | None:
        if topic_partition not in self._ends:
            self._ends[topic_partition] = self._found_end(topic_partition)
        return self._ends[topic_partition]

    def topic(self, topic_id: UUID) -> str:
        """Return the name of a topic, its id as Kafka writes it if the root has no partition of it."""
        if self._names is None:
            ids = ((self._found_id(name), name) for name in self._store.topics)
            self._names = {one: name for one, name in ids if one is not None}
        return self._names.get(topic_id) or urlsafe_b64encode(topic_id.bytes).decode("ascii").rstrip("=")

    def _found_id(self, name: str) -> UUID | None:
        return self._tried(lambda: self._store.topic_id(name))

    def _found_end(self, topic_partition: TopicPartition) -> int | None:
        if topic_partition not in self._partitions:
            return None
        return self._tried(lambda: self._store.log(*topic_partition).log_end_offset)

    def _tried(self, look: Callable[[], _Result | None]) -> _Result | None:
        """Return what is found, None after an error: of what was deleted since, or one that is reported."""
        try:
            return look()
        except LogNotFoundError:
            return None
        except KStoreError as error:
            if self._on_error is None:
                raise
            self._on_error(error)
            return None


@dataclass(slots=True)
class _Found:
    """What the records of one group say."""

    group_id: str
    type: str = CLASSIC
    is_stored: bool = False
    epoch: int | None = None
    target_epoch: int = -1
    classic: dict[str, Any] = field(default_factory=dict)
    members: dict[str, dict[str, Any]] = field(default_factory=dict)
    current: dict[str, dict[str, Any]] = field(default_factory=dict)
    offsets: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    pending: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)

    @property
    def is_there(self) -> bool:
        """Whether the group exists; a few records of a group that is gone may remain."""
        return self.is_stored or bool(self.offsets or self.pending)

    def take(self, type_id: int, key: Mapping[str, Any], value: dict[str, Any]) -> None:
        """Take over a record that has a value."""
        if type_id in _OFFSET_KEYS:
            self.offsets[TopicPartition(key["topic"], key["partition"])] = _offset_of(value)
        elif type_id == _CLASSIC_KEY:
            self.type, self.is_stored = CLASSIC, True
            self.classic, self.epoch = value, value["generation"]
        elif type_id in _GROUP_KEYS:
            self.type, self.is_stored = _GROUP_KEYS[type_id], True
            self.epoch = value["epoch"]
        elif type_id in _MEMBER_KEYS:
            self.members[key["memberId"]] = value
        elif type_id in _TARGET_KEYS:
            self.target_epoch = value["assignmentEpoch"]
        elif type_id in _CURRENT_KEYS:
            self.current[key["memberId"]] = value

    def group(self, view: _StoreView) -> Group:
        is_classic = self.type == CLASSIC
        members = self._classic_members() if is_classic else self._members(view)
        return Group(
            group_id=self.group_id,
            type=self.type,
            state=self._state(),
            protocol_type=self.classic.get("protocolType", "") if is_classic else _PROTOCOL_TYPES[self.type],
            protocol=self.classic.get("protocol") if is_classic else None,
            leader=self.classic.get("leader") if is_classic else None,
            epoch=self.epoch,
            members=tuple(sorted(members, key=attrgetter("member_id"))),
            offsets={one: GroupOffset(self.offsets[one], view.log_end_offset(one)) for one in sorted(self.offsets)},
            pending={one: self.pending[one] for one in sorted(self.pending)},
        )

    def _state(self) -> str:
        """Return the state that a coordinator would be in after it loaded these records.

        Source: Kafka ClassicGroup, ConsumerGroup.maybeUpdateGroupState, ShareGroup, StreamsGroup.
        """
        if self.type == CLASSIC:
            return STABLE if self.classic.get("members") else EMPTY
        if not self.members:
            return EMPTY
        if self.type == SHARE:
            return STABLE
        if (self.epoch or 0) > self.target_epoch:
            return ASSIGNING
        return STABLE if all(map(self._is_reconciled, self.members)) else RECONCILING

    def _is_reconciled(self, member_id: str) -> bool:
        current = self.current.get(member_id)
        return (
            current is not None
            and current["state"] == _STABLE_MEMBER
            and bool(current["memberEpoch"] == self.target_epoch)
        )

    def _classic_members(self) -> Iterator[GroupMember]:
        for member in self.classic.get("members", ()):
            subscription, assignment = member["subscription"], member["assignment"]
            # Bytes where a client has a protocol of its own.
            topics = subscription["topics"] if isinstance(subscription, dict) else ()
            parts = assignment["assignedPartitions"] if isinstance(assignment, dict) else ()
            yield GroupMember(
                member["memberId"],
                member.get("groupInstanceId"),
                member["clientId"],
                member["clientHost"],
                None,
                tuple(topics),
                tuple(sorted(TopicPartition(one["topic"], number) for one in parts for number in one["partitions"])),
            )

    def _members(self, view: _StoreView) -> Iterator[GroupMember]:
        for member_id, member in self.members.items():
            current = self.current.get(member_id, {})
            parts = [(view.topic(one["topicId"]), one) for one in current.get("assignedPartitions", ())]
            yield GroupMember(
                member_id,
                member.get("instanceId"),
                member["clientId"],
                member["clientHost"],
                current.get("memberEpoch"),
                tuple(member.get("subscribedTopicNames", ())),
                tuple(sorted(TopicPartition(name, number) for name, one in parts for number in one["partitions"])),
            )
