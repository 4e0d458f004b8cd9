"""ClassicGroup: one group of the classic protocol as a state machine, without threads, sockets or a clock."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import Any, NamedTuple
from uuid import uuid4

from kstore.coordinator.group.membership import Call, ClassicMember, KeyValue, Membership, Protocols, protocols_of
from kstore.coordinator.group.settings import GroupSettings
from kstore.errors import InvalidRecordError
from kstore.record.schemas.topics import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from kstore.types import OffsetAndMetadata
from kstore.wire.classes import Message
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import (
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

# From these versions on a JoinGroup without a member id gets one to join with, and its answer may have no protocol or
# skipAssignment.
_MEMBER_ID_REQUIRED_VERSION = 4
_NULL_PROTOCOL_VERSION = 7
_SKIP_ASSIGNMENT_VERSION = 9
_SEVERAL_LEAVE_VERSION = 3
_CLASSIC = "classic"
# Kafka's group.new.member.join.timeout: a client that gave up its first join can't say so.
_NEW_MEMBER_JOIN_MS = 300_000


class GroupState(str, Enum):
    """The states of a classic group, by Kafka's names (Kafka: ClassicGroupState)."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Client(NamedTuple):
    """Who sent a request: the client id of its header, the host it came from, and which topics it may know of.

    rights: another number once anybody's rights have changed.
    """

    client_id: str
    host: str
    may_see: Callable[[str], bool] = lambda _: True
    rights: int = 0


class Answer(NamedTuple):
    """The answer to the call with a token."""

    token: object
    response: Message


class Outcome(NamedTuple):
    """What a call leaves for its caller to do: append records, or send answers; never both.

    If there are records, they are appended to the partition of the group, and then written() or not_written() of the
    group is called, whose outcome has the answers.
    """

    group_id: str
    records: tuple[KeyValue, ...] = ()
    answers: tuple[Answer, ...] = ()


class _Write(NamedTuple):
    record: KeyValue
    on_written: Callable[[int], None]
    on_failure: Callable[[ErrorCode, int], None]


class ClassicGroup:
    """A group of the classic protocol. Each call takes the time and returns what is to be done.

    The answer to a call comes with the outcome of that call, or of a later one, exactly once. A call that waits when
    the same member calls again is answered REBALANCE_IN_PROGRESS. While records wait for written() or not_written(),
    every other call but commit_code() raises RuntimeError: the caller keeps the requests of the group back.
    Args: membership: restored from records, or a new one; new_id: makes the unique part of member ids.
    Attributes: membership, state, state_since_ms (when it came to the state, None if that is not known), is_stored
        (whether a record of the group was appended).
    Threads: not safe.  Cost: of a heartbeat a few lookups, next_ms one pass over the members.
    Source: Kafka GroupMetadataManager (classicGroupJoin, classicGroupSync, ...), ClassicGroup; KIP-345, KIP-394.
    """

    def __init__(
        self,
        membership: Membership,
        settings: GroupSettings,
        now_ms: int,
        *,
        is_stored: bool = False,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self.membership = membership
        self.state = GroupState.STABLE if membership.members else GroupState.EMPTY
        self.state_since_ms: int | None = now_ms
        self.is_stored = is_stored
        self._settings = settings
        self._new_id = new_id
        # Ids that were given to clients which have not joined with them yet, and until when they may.
        self._pending: dict[str, int] = {}
        self._join_ends_ms: int | None = None
        self._sync_ends_ms: int | None = None
        # Of the first rebalance of an empty group: whether it is one, how long it waits each time and in all, and
        # whether a member came since it waits.
        self._is_initial = False
        self._delay_ms = 0
        self._delay_left_ms = 0
        self._has_newcomer = False
        self._answers: list[Answer] = []
        self._write: _Write | None = None
        for member in membership.members.values():
            member.renew_session(now_ms)
        if len(membership.members) > settings.max_size:
            self._prepare_rebalance(now_ms)

    @property
    def group_id(self) -> str:
        return self.membership.group_id

    @property
    def next_ms(self) -> int | None:
        """When expire() is to be called next, None for never; it may be in the past. None while records wait."""
        if self._write is not None:
            return None
        sessions = [one.session_ends_ms for one in self.membership.members.values() if one.session_ends_ms is not None]
        ends = [end for end in (self._join_ends_ms, self._sync_ends_ms) if end is not None]
        return min((*sessions, *ends, *self._pending.values()), default=None)

    @property
    def is_unused(self) -> bool:
        """Whether nothing would be lost with the group: no record, no generation, no id that was given to a client."""
        is_new = self.state is GroupState.EMPTY and not self.membership.generation
        return is_new and not self.is_stored and not self._pending

    @property
    def waits_for_write(self) -> bool:
        """Whether records wait for written() or not_written()."""
        return self._write is not None

    def join(self, call: Call, request: JoinGroupRequest, client: Client, now_ms: int) -> Outcome:
        """Let a client become a member, or a member join the next generation."""
        self._check_no_write()
        settings, member_id, protocols = self._settings, request.member_id, protocols_of(request.protocols)
        in_bounds = settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms
        if self.state is GroupState.DEAD:
            self._refuse_join(call, ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
        elif not in_bounds:
            self._refuse_join(call, ErrorCode.INVALID_SESSION_TIMEOUT)
        elif not self._accepts(member_id):
            self._refuse_join(call, ErrorCode.GROUP_MAX_SIZE_REACHED)
            self._remove(member_id)
            self._complete_join_if_all_joined(now_ms)
        elif not self._supports(request.protocol_type, protocols):
            self._refuse_join(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif member_id:
            self._join_known(call, request, client, now_ms)
        else:
            self._join_unknown(call, request, client, now_ms)
        return self._outcome()

    def sync(self, call: Call, request: SyncGroupRequest, now_ms: int) -> Outcome:
        """Give a member its assignment, of the leader's call at the latest; the leader brings all."""
        self._check_no_write()
        code = self._sync_code(request)
        if code is not ErrorCode.NONE:
            self._answers.append(Answer(call.token, SyncGroupResponse(error_code=code)))
            return self._outcome()
        member = self.membership.members[request.member_id]
        member.renew_session(now_ms)
        member.has_to_sync = False
        if not any(one.has_to_sync for one in self.membership.members.values()):
            self._sync_ends_ms = None
        self._answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync = call
        if self.state is GroupState.STABLE:
            self._answer_sync(member)
        elif member.member_id == self.membership.leader:
            brought = {one.member_id: bytes(one.assignment) for one in request.assignments}
            assignments = {name: brought.get(name, b"") for name in self.membership.members}
            self._write = _Write(
                self.membership.to_record(now_ms, assignments),
                lambda then_ms: self._stabilize(assignments, then_ms),
                self._fail_generation,
            )
        return self._outcome()

    def heartbeat(self, call: Call, request: HeartbeatRequest, now_ms: int) -> Outcome:
        """Renew a member's session; the answer tells it to join again if the group rebalances."""
        self._check_no_write()
        code = self._member_code(request.member_id, request.group_instance_id)
        if code is ErrorCode.NONE:
            if request.generation_id != self.membership.generation:
                code = ErrorCode.ILLEGAL_GENERATION
            else:
                self.membership.members[request.member_id].renew_session(now_ms)
                if self.state is GroupState.PREPARING_REBALANCE:
                    code = ErrorCode.REBALANCE_IN_PROGRESS
        self._answers.append(Answer(call.token, HeartbeatResponse(error_code=code)))
        return self._outcome()

    def leave(self, call: Call, request: LeaveGroupRequest, now_ms: int) -> Outcome:
        """Remove members, by id or by group instance id."""
        self._check_no_write()
        leaving = leaving_members(call, request)
        left = [(member_id, instance_id, self._leave(member_id, instance_id)) for member_id, instance_id in leaving]
        self._answers.append(leave_answer(call, left))
        if any(code is ErrorCode.NONE for _, _, code in left):
            if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._prepare_rebalance(now_ms)
            else:
                self._complete_join_if_all_joined(now_ms)
        return self._outcome()

    def commit_code(
        self,
        member_id: str,
        instance_id: str | None,
        *,
        generation: int,
        now_ms: int,
        is_transactional: bool = False,
    ) -> ErrorCode:
        """Return whether a commit of offsets is taken; one that is renews the member's session."""
        state, member = self.state, self.membership.members.get(member_id)
        if state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation >= 0 or member_id or instance_id is not None:
            code = self._member_code(member_id, instance_id)
            if code is not ErrorCode.NONE:
                return code
            if generation != self.membership.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not is_transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if is_transactional:
            return ErrorCode.NONE
        if state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        if member is not None:
            member.renew_session(now_ms)
        return ErrorCode.NONE

    def end_sessions(self, member_ids: Collection[str] | None, now_ms: int) -> int:
        """Let the sessions of members end now, None for all: expire() is to be called then. Return how many."""
        ended = [one for one in self.membership.members.values() if member_ids is None or one.member_id in member_ids]
        for member in ended:
            member.session_ends_ms = now_ms
        return len(ended)

    def expire(self, now_ms: int) -> Outcome:
        """Do what is due: sessions, rebalance timeouts, the initial delay, ids that nobody joined with.

        It stops at the first record; next_ms is then in the past once that is written.
        """
        self._check_no_write()
        while self._write is None:
            due_ms = self.next_ms
            if due_ms is None or due_ms > now_ms:
                break
            self._expire_one(due_ms, now_ms=now_ms)
        return self._outcome()

    def written(self, now_ms: int) -> Outcome:
        """The records of the last outcome were appended."""
        write = self._ended_write()
        self.is_stored = True
        write.on_written(now_ms)
        return self._outcome()

    def not_written(self, now_ms: int, code: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> Outcome:
        """The records of the last outcome could not be appended; members whose state they would be get the code."""
        write = self._ended_write()
        write.on_failure(code, now_ms)
        return self._outcome()

    def bury(self, now_ms: int) -> None:
        """The group was deleted: every later call is refused."""
        self._check_no_write()
        self._enter(GroupState.DEAD, now_ms)
        self._pending.clear()

    def described(self) -> DescribeGroupsResponse.DescribedGroup:
        """Return the group as DescribeGroups does: with metadata and assignments when it is stable."""
        facts, is_stable = self.membership, self.state is GroupState.STABLE
        protocol = facts.protocol if is_stable else None
        members = [
            DescribeGroupsResponse.DescribedGroupMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                member_metadata=one.metadata(protocol) if is_stable else b"",
                member_assignment=one.assignment if is_stable else b"",
            )
            for one in facts.members.values()
        ]
        return DescribeGroupsResponse.DescribedGroup(
            group_id=facts.group_id,
            group_state=self.state.value,
            protocol_type=facts.protocol_type or "",
            protocol_data=protocol or "",
            members=members,
        )

    def listed(self) -> ListGroupsResponse.ListedGroup:
        """Return the group as ListGroups does."""
        return ListGroupsResponse.ListedGroup(
            group_id=self.membership.group_id,
            protocol_type=self.membership.protocol_type or "",
            group_state=self.state.value,
            group_type=_CLASSIC,
        )

    def offset_delete_code(self) -> ErrorCode:
        """Return whether offsets of the group may be deleted, of topics to which no member is subscribed."""
        if self.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        is_free = self.state is GroupState.EMPTY or self._is_of_consumers
        return ErrorCode.NONE if is_free else ErrorCode.NON_EMPTY_GROUP

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member is subscribed to a topic, or may be."""
        topics = self._subscribed_topics()
        return self._is_of_consumers if topics is None else topic in topics

    def retention_start_ms(self, committed: OffsetAndMetadata) -> int | None:
        """Return since when the time runs after which a committed offset expires, None while it does not run.

        It is that of the commit for clients that only commit, and for topics that no member of a stable group uses.
        Source: KIP-211, Kafka ClassicGroup.offsetExpirationCondition.
        """
        if self.membership.protocol_type is None:
            return committed.commit_timestamp_ms
        if self.state is GroupState.EMPTY:
            return committed.commit_timestamp_ms if self.state_since_ms is None else self.state_since_ms
        is_known = self.state is GroupState.STABLE and self._subscribed_topics() is not None
        return committed.commit_timestamp_ms if is_known else None

    @property
    def _is_of_consumers(self) -> bool:
        return self.membership.protocol_type == CONSUMER_PROTOCOL_TYPE

    def _subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics of the members, None if they do not say it by the consumer protocol."""
        facts = self.membership
        if not self._is_of_consumers:
            return None
        try:
            topics = (subscribed_topics(one.metadata(facts.protocol)) for one in facts.members.values())
            return frozenset[str]().union(*topics)
        except InvalidRecordError:
            return None

    # Joins.

    def _join_unknown(self, call: Call, request: JoinGroupRequest, client: Client, now_ms: int) -> None:
        """A client without a member id joins."""
        instance_id = request.group_instance_id
        new_id = f"{client.client_id if instance_id is None else instance_id}-{self._new_id()}"
        if instance_id is not None:
            old_id = self.membership.member_of(instance_id)
            if old_id is not None:
                self._replace_static(call, request, old_id, new_id, now_ms)
                return
        elif call.version >= _MEMBER_ID_REQUIRED_VERSION:
            self._pending[new_id] = now_ms + request.session_timeout_ms
            self._refuse_join(call, ErrorCode.MEMBER_ID_REQUIRED, new_id)
            return
        self._add(call, request, client, new_id, now_ms)

    def _join_known(self, call: Call, request: JoinGroupRequest, client: Client, now_ms: int) -> None:
        """A client joins with the member id that it was given."""
        member_id, instance_id = request.member_id, request.group_instance_id
        if member_id in self._pending and instance_id is None:
            del self._pending[member_id]
            self._add(call, request, client, member_id, now_ms)
            return
        code = self._member_code(member_id, instance_id)
        if code is not ErrorCode.NONE:
            self._refuse_join(call, code, member_id)
            return
        member = self.membership.members[member_id]
        is_same = member.protocols == protocols_of(request.protocols)
        is_leader_again = self.state is GroupState.STABLE and self.membership.leader == member_id
        if self.state is GroupState.PREPARING_REBALANCE or not is_same or is_leader_again:
            self._update(member, call, request)
            self._rebalance(now_ms)
        else:
            # It did not get the answer to its join of this generation.
            member.renew_session(now_ms)
            self._answer_join(member, call)

    def _add(self, call: Call, request: JoinGroupRequest, client: Client, member_id: str, now_ms: int) -> None:
        member = ClassicMember(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=client.client_id,
            client_host=client.host,
            rebalance_timeout_ms=0,
            session_timeout_ms=0,
            protocols=(),
            is_new=True,
            session_ends_ms=now_ms + _NEW_MEMBER_JOIN_MS,
        )
        self._update(member, call, request)
        self._has_newcomer = self.state is GroupState.PREPARING_REBALANCE
        self.membership.add(member, request.protocol_type)
        self._rebalance(now_ms)

    def _update(self, member: ClassicMember, call: Call, request: JoinGroupRequest) -> None:
        """Take over what a member says of itself, with its call, which waits from now on."""
        if member.join is not None:
            self._refuse_join(member.join, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        member.join = call
        member.protocols = protocols_of(request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        has_rebalance_timeout = call.version >= 1 and request.rebalance_timeout_ms >= 0
        member.rebalance_timeout_ms = (
            request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms
        )

    def _replace_static(self, call: Call, request: JoinGroupRequest, old_id: str, new_id: str, now_ms: int) -> None:
        """A static member came back without its id: it gets a new one, and the old one is fenced."""
        facts = self.membership
        member = facts.members[old_id]
        if member.join is not None:
            self._refuse_join(member.join, ErrorCode.FENCED_INSTANCE_ID, old_id)
            member.join = None
        self._answer_sync(member, ErrorCode.FENCED_INSTANCE_ID)
        before = member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
        old_leader = facts.leader
        facts.rename(old_id, new_id)
        self._update(member, call, request)
        member.is_new = False
        member.renew_session(now_ms)
        if self.state is GroupState.COMPLETING_REBALANCE:
            # The leader may be assigning to the old id.
            self._prepare_rebalance(now_ms)
        elif self.state is not GroupState.STABLE or facts.chosen_protocol() != facts.protocol:
            self._rebalance(now_ms)
        else:

            def go_on(_ms: int) -> None:
                self._answer_replaced(member, old_leader)

            def go_back(code: ErrorCode, then_ms: int) -> None:
                member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
                facts.rename(new_id, old_id)
                member.renew_session(then_ms)
                member.join = None
                self._refuse_join(call, code)

            assignments = {name: one.assignment for name, one in facts.members.items()}
            self._write = _Write(facts.to_record(now_ms, assignments), go_on, go_back)

    def _answer_replaced(self, member: ClassicMember, old_leader: str | None) -> None:
        """Answer the join of a static member that goes on with its assignment.

        A version without skipAssignment names the old id as the leader, so that the member does not assign.
        """
        call, member.join = member.join, None
        if call is not None:
            self._answer_join(member, call, skips=True, leader=old_leader)

    def _accepts(self, member_id: str) -> bool:
        """Whether there is room for a member; those that have joined count while the group rebalances."""
        members = self.membership.members
        if self.state is GroupState.PREPARING_REBALANCE:
            joined = sum(member.join is not None for member in members.values())
            is_waiting = member_id in members and members[member_id].join is not None
            return is_waiting or joined < self._settings.max_size
        if self.state is GroupState.EMPTY:
            return True
        return member_id in members or len(members) < self._settings.max_size

    def _supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        return self.membership.protocol_type == protocol_type and self.membership.supports(protocols)

    def _refuse_join(self, call: Call, code: ErrorCode, member_id: str = "") -> None:
        self._answers.append(refused_join(call, code, member_id))

    def _answer_join(
        self, member: ClassicMember, call: Call, *, skips: bool = False, leader: str | None = None
    ) -> None:
        """Answer a join with the generation; skips: the member keeps its assignment, and `leader` names the leader."""
        facts = self.membership
        tells_leader = not skips or call.version >= _SKIP_ASSIGNMENT_VERSION
        is_leader = tells_leader and facts.leader == member.member_id
        members = [
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=one.member_id, group_instance_id=one.instance_id, metadata=one.metadata(facts.protocol)
            )
            for one in (facts.members.values() if is_leader else ())
        ]
        response = JoinGroupResponse(
            generation_id=facts.generation,
            protocol_type=facts.protocol_type,
            protocol_name=facts.protocol,
            leader=(facts.leader if tells_leader else leader) or "",
            skip_assignment=skips and is_leader,
            member_id=member.member_id,
            members=members,
        )
        self._answers.append(Answer(call.token, response))

    # Rebalances.

    def _rebalance(self, now_ms: int) -> None:
        """Begin a rebalance, or go on with the one that is under way."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_all_joined(now_ms)
        else:
            self._prepare_rebalance(now_ms)

    def _prepare_rebalance(self, now_ms: int) -> None:
        for member in self.membership.members.values():
            if self.state is GroupState.COMPLETING_REBALANCE:
                member.assignment = b""
                if self._answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS):
                    member.renew_session(now_ms)
            member.has_to_sync = False
        self._sync_ends_ms = None
        self._is_initial = self.state is GroupState.EMPTY
        self._enter(GroupState.PREPARING_REBALANCE, now_ms)
        if self._is_initial:
            self._delay_ms = self._settings.initial_rebalance_delay_ms
            self._delay_left_ms = max(self.membership.rebalance_timeout_ms - self._delay_ms, 0)
            self._has_newcomer = False
            self._join_ends_ms = now_ms + self._delay_ms
        elif self._have_all_joined():
            self._complete_join(now_ms)
        else:
            self._join_ends_ms = now_ms + self.membership.rebalance_timeout_ms

    def _have_all_joined(self) -> bool:
        return not self._pending and all(member.join is not None for member in self.membership.members.values())

    def _complete_join_if_all_joined(self, now_ms: int) -> None:
        is_waiting = self.state is GroupState.PREPARING_REBALANCE and not self._is_initial
        if is_waiting and self._have_all_joined():
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """End the wait for members: those that have joined, and static ones, make the next generation."""
        self._join_ends_ms = None
        facts = self.membership
        for member in list(facts.members.values()):
            if member.join is None and member.instance_id is None:
                self._remove(member.member_id)
        if facts.members and not facts.elect_joined_leader():
            # Static members alone are left, and none has joined: the end of their sessions decides.
            self._join_ends_ms = now_ms + facts.rebalance_timeout_ms
            return
        facts.generation += 1
        facts.protocol = facts.chosen_protocol()
        if not facts.members:
            self._enter(GroupState.EMPTY, now_ms)
            self._write = _Write(facts.to_record(now_ms, {}), lambda _ms: None, lambda _code, _ms: None)
            return
        self._enter(GroupState.COMPLETING_REBALANCE, now_ms)
        for member in facts.members.values():
            call, member.join = member.join, None
            if call is not None:
                self._answer_join(member, call)
            member.renew_session(now_ms)
            member.is_new = False
            member.has_to_sync = True
        self._sync_ends_ms = now_ms + facts.rebalance_timeout_ms

    def _stabilize(self, assignments: dict[str, bytes], now_ms: int) -> None:
        self._enter(GroupState.STABLE, now_ms)
        for member in self.membership.members.values():
            member.assignment = assignments[member.member_id]
            if self._answer_sync(member):
                member.renew_session(now_ms)

    def _fail_generation(self, code: ErrorCode, now_ms: int) -> None:
        for member in self.membership.members.values():
            if self._answer_sync(member, code):
                member.renew_session(now_ms)
        self._prepare_rebalance(now_ms)

    def _answer_sync(self, member: ClassicMember, code: ErrorCode = ErrorCode.NONE) -> bool:
        """Answer the sync of a member that waits. Returns whether one does."""
        call, member.sync = member.sync, None
        if call is None:
            return False
        response = SyncGroupResponse(error_code=code)
        if code is ErrorCode.NONE:
            response.protocol_type, response.protocol_name = self.membership.protocol_type, self.membership.protocol
            response.assignment = member.assignment
        self._answers.append(Answer(call.token, response))
        return True

    def _sync_code(self, request: SyncGroupRequest) -> ErrorCode:
        facts = self.membership
        code = self._member_code(request.member_id, request.group_instance_id)
        if code is not ErrorCode.NONE:
            return code
        if request.generation_id != facts.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, facts.protocol_type) or (
            request.protocol_name not in (None, facts.protocol)
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        is_preparing = self.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE

    # Members that go.

    def _member_code(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return whether somebody is a member of the group, under the instance id if one is given."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if instance_id is not None:
            known_id = self.membership.member_of(instance_id)
            if known_id is not None and known_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if known_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.membership.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if member_id in self._pending:
            del self._pending[member_id]
            return ErrorCode.NONE
        if not member_id and instance_id is not None:
            member_id = self.membership.member_of(instance_id) or ""
        code = self._member_code(member_id, instance_id)
        if code is ErrorCode.NONE:
            self._remove(member_id)
        return code

    def _remove(self, member_id: str) -> None:
        """Remove a member, or an id that nobody joined with; calls that wait are told that it is no member."""
        self._pending.pop(member_id, None)
        member = self.membership.remove(member_id)
        if member is not None:
            if member.join is not None:
                self._refuse_join(member.join, ErrorCode.UNKNOWN_MEMBER_ID)
            self._answer_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)

    # Time.

    def _expire_one(self, due_ms: int, *, now_ms: int) -> None:
        """Do one thing that was due at due_ms."""
        if self._join_ends_ms == due_ms:
            self._end_join_wait(now_ms)
            return
        if self._sync_ends_ms == due_ms:
            for late in [one.member_id for one in self.membership.members.values() if one.has_to_sync]:
                self._remove(late)
            self._prepare_rebalance(now_ms)
            return
        for member_id, ends_ms in self._pending.items():
            if ends_ms == due_ms:
                self._remove(member_id)
                if self.state is GroupState.PREPARING_REBALANCE and self._have_all_joined():
                    self._complete_join(now_ms)
                return
        member = next(one for one in self.membership.members.values() if one.session_ends_ms == due_ms)
        member.session_ends_ms = None
        # A call that waits keeps a member alive; but who gave up its first join can't say so.
        if member.is_new or (member.join is None and member.sync is None):
            self._remove(member.member_id)
            if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._prepare_rebalance(now_ms)
            elif self._have_all_joined():
                self._complete_join(now_ms)

    def _end_join_wait(self, now_ms: int) -> None:
        if self._is_initial and self._has_newcomer and self._delay_left_ms:
            self._has_newcomer = False
            delay_ms = min(self._settings.initial_rebalance_delay_ms, self._delay_left_ms)
            self._delay_left_ms = max(self._delay_left_ms - self._delay_ms, 0)
            self._delay_ms = delay_ms
            self._join_ends_ms = now_ms + delay_ms
        else:
            self._complete_join(now_ms)

    def _enter(self, state: GroupState, now_ms: int) -> None:
        self.state, self.state_since_ms = state, now_ms

    def _check_no_write(self) -> None:
        if self._write is not None:
            raise RuntimeError(f"group {self.membership.group_id!r}: a record waits for written() or not_written()")

    def _ended_write(self) -> _Write:
        write, self._write = self._write, None
        if write is None:
            raise RuntimeError(f"group {self.membership.group_id!r}: no record waits to be written")
        return write

    def _outcome(self) -> Outcome:
        if self._write is not None:
            return Outcome(self.membership.group_id, records=(self._write.record,))
        answers, self._answers = tuple(self._answers), []
        return Outcome(self.membership.group_id, answers=answers)


def refused_join(call: Call, code: ErrorCode, member_id: str) -> Answer:
    """Return the answer to a join that is refused; before version 7 it can't be without a protocol."""
    name = None if call.version >= _NULL_PROTOCOL_VERSION else ""
    return Answer(call.token, JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=name))


def leaving_members(call: Call, request: LeaveGroupRequest) -> list[tuple[str, str | None]]:
    """Return the member ids and group instance ids in a LeaveGroupRequest of any version."""
    if call.version < _SEVERAL_LEAVE_VERSION:
        return [(request.member_id, None)]
    return [(one.member_id, one.group_instance_id) for one in request.members]


def leave_answer(call: Call, left: list[tuple[str, str | None, ErrorCode]]) -> Answer:
    """Return the answer to a LeaveGroupRequest: the code of each member, of the one before version 3."""
    if call.version < _SEVERAL_LEAVE_VERSION:
        return Answer(call.token, LeaveGroupResponse(error_code=left[0][2]))
    members: list[Any] = [
        LeaveGroupResponse.MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
        for member_id, instance_id, code in left
    ]
    return Answer(call.token, LeaveGroupResponse(members=members))
