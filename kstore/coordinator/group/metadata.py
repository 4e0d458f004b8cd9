"""Group metadata: the groups of a store, as the records of its `__consumer_offsets` describe them."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kstore._html import table_html
from kstore.coordinator.group.records import DecodedRecord, GroupRecords, decoded
from kstore.coordinator.store import ReadableLog, ReadableStore
from kstore.errors import KStoreError, LogNotFoundError
from kstore.types import GROUP_OFFSETS_TOPIC, OffsetAndMetadata, TopicPartition

# Names of Kafka's GroupType and GroupState.
CLASSIC, CONSUMER, SHARE, STREAMS = "Classic", "Consumer", "Share", "Streams"
EMPTY, STABLE, ASSIGNING, RECONCILING = "Empty", "Stable", "Assigning", "Reconciling"
TYPES, STATES = (CLASSIC, CONSUMER, SHARE, STREAMS), (EMPTY, STABLE, ASSIGNING, RECONCILING)
# The types of keys, by what their records hold.
_CLASSIC_KEY = 2
_GROUP_KEYS = {3: CONSUMER, 11: SHARE, 17: STREAMS}
_MEMBER_KEYS = (5, 10, 19)
_TARGET_KEYS = (6, 12, 20)
_CURRENT_KEYS = (8, 14, 22)
_STABLE_MEMBER = 0
_PROTOCOL_TYPES = {CONSUMER: "consumer", SHARE: "share", STREAMS: "streams"}

_Result = TypeVar("_Result")


class GroupMember(NamedTuple):
    """A member of a group, as its coordinator last stored it; it need not be alive.

    member_id, client_id, host: as the client said.
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
    """A group's committed offset in a partition; log_end_offset, log_start_offset: None if the root does not have the
    partition; topic_id: of the topic in the root, None if it has none.
    """

    committed: OffsetAndMetadata
    log_end_offset: int | None
    log_start_offset: int | None = None
    topic_id: UUID | None = None

    @property
    def lag(self) -> int | None:
        """The log end offset minus the committed offset, as Kafka's tools show it; not every offset has a record."""
        return None if self.log_end_offset is None else self.log_end_offset - self.committed.offset

    @property
    def problem(self) -> str | None:
        """Why a consumer of the group can't go on at the offset, None if it can, or the root lacks the partition.

        The lag is negative if the offset is above the log end.
        """
        offset, end, start = self.committed.offset, self.log_end_offset, self.log_start_offset
        if end is None or start is None:
            return None
        is_recreated = None not in (self.committed.topic_id, self.topic_id) and (
            self.committed.topic_id != self.topic_id
        )
        if is_recreated:
            return "it was committed for an earlier topic of this name, which was deleted and created again"
        if offset > end:
            return f"it is above the log end {end}: the log was truncated, or the topic created again, after the commit"
        if offset < start:
            return f"it is below the log start {start}: the records up to there were removed before they were read"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group: its type and state by Kafka's names, its members, and its offsets by partition.

    group_id: its name; protocol_type: what its clients said that they are, "consumer" mostly.
    A group that only commits offsets is "Classic" and "Empty", as for a broker. epoch: the generation of a classic
    group. protocol, leader: of a classic group with members. offsets: what is committed; pending: what transactions
    that are not decided hold, also for a partition of which a later commit will win.
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

    def _repr_html_(self) -> str:
        """Return the committed offsets as a table, for notebooks."""
        title = f"Group {self.group_id}: {self.type}, {self.state}, {len(self.members)} members"
        rows = (
            (*partition, offset.committed.offset, offset.log_end_offset, offset.lag)
            for partition, offset in self.offsets.items()
        )
        names = ("topic", "partition", "committed offset", "log end offset", "lag")
        return table_html(title, names, rows, count=len(self.offsets))


class Groups(tuple[Group, ...]):
    """Groups by group id: a tuple that notebooks show as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the groups as a table, for notebooks; lag: in total, of partitions whose log end is known."""
        rows = (
            (
                group.group_id,
                group.type,
                group.state,
                len(group.members),
                len(group.offsets),
                sum(offset.lag or 0 for offset in group.offsets.values()),
            )
            for group in self
        )
        names = ("group", "type", "state", "members", "partitions", "lag")
        return table_html(f"{len(self)} groups", names, rows, count=len(self))


def groups_in(
    store: ReadableStore,
    *,
    groups: Collection[str] | None = None,
    on_error: Callable[[KStoreError], object] | None = None,
) -> tuple[Group, ...]:
    """Return the groups whose coordinator state is in a store, by group id.

    Args: groups: only these; on_error: called with the error of a partition or topic that can't be read, whose groups,
        log end or name are then missing; None to raise it.
    Raises: InvalidRecordError, CorruptRecordError and the other errors of a read; UnsupportedError for a record of a
        version that kstore does not know.
    Cost: one pass over `__consumer_offsets`; memory for one record per key.
    """
    states: dict[str, _GroupState] = {}
    for topic, partition in store.partitions:
        if topic != GROUP_OFFSETS_TOPIC:
            continue
        try:
            states |= _states_in(store.log(topic, partition))
        except KStoreError as error:
            if on_error is None:
                raise
            on_error(error)
    view = _StoreView(store, on_error)
    names = states.keys() if groups is None else states.keys() & set(groups)
    return Groups(states[name].group(view) for name in sorted(names) if states[name].exists)


def _states_in(log: ReadableLog) -> dict[str, _GroupState]:
    """Return what a partition has of each of its groups."""
    records = GroupRecords()
    records.update(log)
    states: dict[str, _GroupState] = {}
    for record in decoded(records.current(), log):
        states.setdefault(record.group_id, _GroupState(record.group_id)).replay(record)
    for record in decoded(records.pending(), log):
        if record.is_offset_commit:
            state = states.setdefault(record.group_id, _GroupState(record.group_id))
            state.pending[record.topic_partition] = record.committed_offset
    return states


class _StoreView:
    """Log ends and names of topics in a store, each looked up once."""

    def __init__(self, store: ReadableStore, on_error: Callable[[KStoreError], object] | None) -> None:
        self._store = store
        self._on_error = on_error
        self._partitions = set(store.partitions)
        self._bounds: dict[TopicPartition, tuple[int | None, int | None, UUID | None]] = {}
        self._names: dict[UUID, str] | None = None

    def bounds(self, topic_partition: TopicPartition) -> tuple[int | None, int | None, UUID | None]:
        """Return log end offset, log start offset and topic id of a partition; None for what the root does not have."""
        if topic_partition not in self._bounds:
            self._bounds[topic_partition] = self._look_up_bounds(topic_partition)
        return self._bounds[topic_partition]

    def topic(self, topic_id: UUID) -> str:
        """Return the name of a topic, its id as Kafka writes it if the root has no partition of it."""
        if self._names is None:
            ids = ((self._look_up_id(name), name) for name in self._store.topics)
            self._names = {known_id: name for known_id, name in ids if known_id is not None}
        return self._names.get(topic_id) or urlsafe_b64encode(topic_id.bytes).decode("ascii").rstrip("=")

    def _look_up_id(self, name: str) -> UUID | None:
        return self._result_of(lambda: self._store.topic_id(name))

    def _look_up_bounds(self, topic_partition: TopicPartition) -> tuple[int | None, int | None, UUID | None]:
        if topic_partition not in self._partitions:
            return None, None, None
        log = self._result_of(lambda: self._store.log(*topic_partition))
        if log is None:
            return None, None, None
        end, start = self._result_of(lambda: log.log_end_offset), self._result_of(lambda: log.log_start_offset)
        return end, start, self._look_up_id(topic_partition.topic)

    def _result_of(self, look: Callable[[], _Result | None]) -> _Result | None:
        """Return the result of a call, None if it fails: because of a deletion, or with an error that is reported."""
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
class _GroupState:
    """The state of one group, built up from its records."""

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
    def exists(self) -> bool:
        """Whether the group exists; a few records of a group that is gone may remain."""
        return self.is_stored or bool(self.offsets or self.pending)

    def replay(self, record: DecodedRecord) -> None:
        """Apply a record to the state."""
        type_id, key, value = record
        if record.is_offset_commit:
            self.offsets[record.topic_partition] = record.committed_offset
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
            offsets={
                topic_partition: GroupOffset(committed, *view.bounds(topic_partition))
                for topic_partition, committed in sorted(self.offsets.items())
            },
            pending=dict(sorted(self.pending.items())),
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
            assigned = assignment["assignedPartitions"] if isinstance(assignment, dict) else ()
            yield GroupMember(
                member["memberId"],
                member.get("groupInstanceId"),
                member["clientId"],
                member["clientHost"],
                None,
                tuple(topics),
                tuple(
                    sorted(TopicPartition(part["topic"], number) for part in assigned for number in part["partitions"])
                ),
            )

    def _members(self, view: _StoreView) -> Iterator[GroupMember]:
        for member_id, member in self.members.items():
            current = self.current.get(member_id, {})
            assigned = [(view.topic(part["topicId"]), part) for part in current.get("assignedPartitions", ())]
            yield GroupMember(
                member_id,
                member.get("instanceId"),
                member["clientId"],
                member["clientHost"],
                current.get("memberEpoch"),
                tuple(member.get("subscribedTopicNames", ())),
                tuple(sorted(TopicPartition(name, number) for name, part in assigned for number in part["partitions"])),
            )
