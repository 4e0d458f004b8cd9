"""ConsumerGroup: one group of KIP-848 as a state machine, without threads, sockets or a clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import uuid4

from kstore.coordinator.group.classic import Answer, Client, Outcome, leave_answer, leaving_members
from kstore.coordinator.group.consumer.assignors import ASSIGNORS, Places
from kstore.coordinator.group.consumer.facts import ConsumerFacts, Draft, Resolved
from kstore.coordinator.group.consumer.members import (
    LEAVES,
    LEAVES_FOR_A_WHILE,
    ConsumerMember,
    MemberState,
    RefusedError,
    listed,
)
from kstore.coordinator.group.consumer.patterns import Pattern, PatternError
from kstore.coordinator.group.consumer.topics import TopicsImage
from kstore.coordinator.group.membership import Call, KeyValue
from kstore.coordinator.group.metadata import ASSIGNING, EMPTY, RECONCILING, STABLE
from kstore.coordinator.group.settings import ConsumerGroupSettings
from kstore.types import OffsetAndMetadata
from kstore.wire.codes import ErrorCode
from kstore.wire.messages import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    LeaveGroupRequest,
    ListGroupsResponse,
)

# From this version on a client makes its member id.
_OWN_MEMBER_ID_VERSION = 1
# OffsetCommit and OffsetFetch have member epochs from this version on.
_MEMBER_EPOCH_VERSION = 9
_NOT_GIVEN = -1
_CONSUMER_MEMBER = 1
# The type of the protocol, and of the group.
_CONSUMER = "consumer"
# How long after a removal that could not be appended it is tried again.
_RETRY_MS = 500


class _Write(NamedTuple):
    on_written: Callable[[int], Outcome]
    on_failure: Callable[[ErrorCode], Answer | None]


class _Seen(NamedTuple):
    """The topics that there are, and the number of the rights by which clients may see them."""

    image: TopicsImage
    rights: int

    def is_of(self, last: _Seen | None) -> bool:
        return last is not None and self.image is last.image and self.rights == last.rights


class ConsumerGroup:
    """A group whose members the coordinator tells what they have, by their heartbeats (KIP-848).

    Each call takes the time and returns what is to be done, as with ClassicGroup: records to append, or an answer.
    While records wait for written() or not_written(), other calls raise RuntimeError, and nothing has changed.
    Args: facts: restored from records, or new; topics: returns the topics that there are, the same object while these
        are the same; first_records: appended with the first change, such as the tombstone of a group that this one
        takes the place of; new_id: makes member ids, for clients that do not.
    Attributes: facts.
    Threads: not safe.  Cost: of a heartbeat that changes nothing, copies of a few dicts of members; of one that changes
        members or topics, an assignment.
    Source: Kafka GroupMetadataManager (consumerGroupHeartbeat), ConsumerGroup.
    """

    def __init__(
        self,
        facts: ConsumerFacts,
        settings: ConsumerGroupSettings,
        now_ms: int,
        *,
        topics: Callable[[], TopicsImage],
        first_records: Iterable[KeyValue] = (),
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self.facts = facts
        self._settings = settings
        self._topics = topics
        self._first_records = tuple(first_records)
        self._new_id = new_id
        # For which topics and rights targets, patterns and the hash were last looked at.
        self._seen: _Seen | None = None
        self._session_ends_ms = dict.fromkeys(facts.members, now_ms + settings.session_timeout_ms)
        # Until when a member has to give up partitions, and in which epoch.
        self._revocation_ends_ms: dict[str, tuple[int, int]] = {}
        for member in facts.members.values():
            self._time_revocation(member, now_ms)
        self._write: _Write | None = None
        # Before then nothing is due: the removal of a member could not be appended.
        self._retry_ms = now_ms

    @property
    def group_id(self) -> str:
        return self.facts.group_id

    @property
    def state(self) -> str:
        """The group's state, by Kafka's name."""
        facts = self.facts
        if not facts.members:
            return EMPTY
        if facts.epoch > facts.target_epoch:
            return ASSIGNING
        is_stable = all(member.is_reconciled(facts.target_epoch) for member in facts.members.values())
        return STABLE if is_stable else RECONCILING

    @property
    def next_ms(self) -> int | None:
        """When expire() is to be called next, None for never; it may be in the past. None while records wait.

        Source: Kafka CoordinatorRuntime.EventBasedCoordinatorTimer, of the time until a removal is tried again.
        """
        if self.waits_for_write:
            return None
        ends = (ends_ms for ends_ms, _ in self._revocation_ends_ms.values())
        due_ms = min((*self._session_ends_ms.values(), *ends), default=None)
        return None if due_ms is None else max(due_ms, self._retry_ms)

    @property
    def is_unused(self) -> bool:
        """Whether nothing would be lost with the group: it has no record."""
        return not self.facts.epoch

    @property
    def waits_for_write(self) -> bool:
        """Whether records wait for written() or not_written()."""
        return self._write is not None

    def heartbeat(self, call: Call, request: ConsumerGroupHeartbeatRequest, client: Client, now_ms: int) -> Outcome:
        """Let a client join, stay or leave, and tell a member what it has if that is not what it had."""
        self._check_no_write()
        draft = Draft(self.facts, self._first_records)
        try:
            check_request(request, version=call.version)
            if request.member_epoch in (LEAVES, LEAVES_FOR_A_WHILE):
                return self._begin(draft, call, self._left(draft, request), now_ms)
            seen = _Seen(self._topics(), client.rights)
            return self._begin(draft, call, self._beat(draft, request, client, seen, now_ms), now_ms, seen=seen)
        except RefusedError as refused:
            return Outcome(self.group_id, answers=(refusal(call, refused),))

    def leave(self, call: Call, request: LeaveGroupRequest) -> Outcome:
        """Remove members, by id or by group instance id, as an operator does.

        Source: Kafka GroupMetadataManager.classicGroupLeaveToConsumerGroup.
        """
        self._check_no_write()
        draft = Draft(self.facts)
        leaving = leaving_members(call, request)
        answer = leave_answer(call, [(*one, self._removed(draft, *one)) for one in leaving])
        if not draft.records:
            return Outcome(self.group_id, answers=(answer,))
        self._begin_epoch(draft)

        def settle(_: int) -> Outcome:
            self._take_over(draft)
            return Outcome(self.group_id, answers=(answer,))

        def refuse(code: ErrorCode) -> Answer:
            return leave_answer(call, [(*one, code) for one in leaving])

        self._write = _Write(settle, refuse)
        return Outcome(self.group_id, records=tuple(draft.records))

    def commit_code(self, member_id: str, *, epoch: int, version: int | None) -> ErrorCode:
        """Return whether a commit of offsets is taken.

        Args: version: of OffsetCommit; None for a transaction's offsets.
        """
        if epoch < 0 and not self.facts.members:
            return ErrorCode.NONE
        member = self.facts.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if version is not None and version < _MEMBER_EPOCH_VERSION:
            return ErrorCode.UNSUPPORTED_VERSION
        if epoch == member.epoch:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if version is None else ErrorCode.STALE_MEMBER_EPOCH

    def fetch_code(self, member_id: str | None, *, epoch: int) -> ErrorCode:
        """Return whether somebody may read committed offsets: a member in its epoch, or who does not say that it is."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.facts.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def offset_delete_code(self) -> ErrorCode:
        """Return whether offsets of the group may be deleted, of topics to which no member is subscribed."""
        return ErrorCode.NONE

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member is subscribed to a topic."""
        return topic in self.facts.subscribed()

    def retention_start_ms(self, committed: OffsetAndMetadata) -> int | None:
        """Return since when the time runs after which a committed offset expires (Kafka: offsetExpirationCondition)."""
        return committed.commit_timestamp_ms

    def end_sessions(self, member_ids: Collection[str] | None, now_ms: int) -> int:
        """Let the sessions of members end now, None for all: expire() is to be called then. Return how many."""
        ended = [one for one in self._session_ends_ms if member_ids is None or one in member_ids]
        self._session_ends_ms |= dict.fromkeys(ended, now_ms)
        return len(ended)

    def expire(self, now_ms: int) -> Outcome:
        """Remove one member whose session or rebalance timeout has ended, if there is one."""
        self._check_no_write()
        for member_id, ends_ms in self._session_ends_ms.items():
            if ends_ms <= now_ms:
                return self._expel(member_id, now_ms)
        for member_id, (ends_ms, epoch) in list(self._revocation_ends_ms.items()):
            if ends_ms <= now_ms:
                if self.facts.members[member_id].epoch == epoch:
                    return self._expel(member_id, now_ms)
                del self._revocation_ends_ms[member_id]
        return Outcome(self.group_id)

    def remove(self, then: Callable[[int], Outcome], refuse: Callable[[ErrorCode], Answer]) -> Outcome:
        """Begin to remove a group without members.

        Args: then: called with the time when the records are appended; refuse: makes the answer if they cannot be.
        """
        self._check_no_write()
        draft = Draft(self.facts)
        draft.remove_group()
        self._write = _Write(then, refuse)
        return Outcome(self.group_id, records=tuple(draft.records))

    def written(self, now_ms: int) -> Outcome:
        """The records of the last outcome were appended."""
        return self._ended_write().on_written(now_ms)

    def not_written(self, now_ms: int, code: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> Outcome:
        """The records of the last outcome could not be appended; who sent the request gets the code."""
        answer = self._ended_write().on_failure(code)
        if answer is None:
            self._retry_ms = now_ms + _RETRY_MS
        return Outcome(self.group_id, answers=() if answer is None else (answer,))

    def described(self) -> ConsumerGroupDescribeResponse.DescribedGroup:
        """Return the group as ConsumerGroupDescribe does."""
        facts, kinds = self.facts, ConsumerGroupDescribeResponse
        members = [
            kinds.Member(
                member_id=one.member_id,
                instance_id=one.instance_id,
                rack_id=one.rack_id,
                member_epoch=one.epoch,
                client_id=one.client_id,
                client_host=one.client_host,
                subscribed_topic_names=sorted(one.topics),
                subscribed_topic_regex=one.pattern or None,
                assignment=self._described_places(one.assigned),
                target_assignment=self._described_places(facts.targets.get(one.member_id, frozenset())),
                member_type=_CONSUMER_MEMBER,
            )
            for one in facts.members.values()
        ]
        return kinds.DescribedGroup(
            group_id=facts.group_id,
            group_state=self.state,
            group_epoch=facts.epoch,
            assignment_epoch=facts.target_epoch,
            assignor_name=facts.assignor,
            members=members,
        )

    def listed(self) -> ListGroupsResponse.ListedGroup:
        """Return the group as ListGroups does."""
        return ListGroupsResponse.ListedGroup(
            group_id=self.group_id, protocol_type=_CONSUMER, group_state=self.state, group_type=_CONSUMER
        )

    def _described_places(self, places: Places) -> ConsumerGroupDescribeResponse.Assignment:
        kinds, names = ConsumerGroupDescribeResponse, self._topics().names
        topics = [
            kinds.TopicPartitions(
                topic_id=one["topicId"], topic_name=names[one["topicId"]], partitions=one["partitions"]
            )
            for one in listed(places)
            if one["topicId"] in names
        ]
        return kinds.Assignment(topic_partitions=topics)

    # Members that come and stay.

    def _beat(
        self,
        draft: Draft,
        request: ConsumerGroupHeartbeatRequest,
        client: Client,
        seen: _Seen,
        now_ms: int,
    ) -> ConsumerGroupHeartbeatResponse:
        """Change the draft as a heartbeat does, and return its answer."""
        owned = _owned(request)
        known = self._known(draft, request, owned)
        member = replace(known, client_id=client.client_id, client_host=client.host, **_given(request))
        if member.pattern not in ("", known.pattern, *draft.facts.patterns):
            _check_pattern(member.pattern)
        if member != known:
            draft.set_member(member)
        has_changed = not draft.facts.epoch or member.topics != known.topics or member.pattern != known.pattern
        self._follow_topics(draft, client, seen, now_ms, has_changed=has_changed)
        if draft.facts.epoch > draft.facts.target_epoch:
            _assign(draft, seen.image)
        after = _reconcile(draft, member, owned)
        response = ConsumerGroupHeartbeatResponse(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._settings.heartbeat_interval_ms,
        )
        if _is_full(request) or after.assigned != known.assigned:
            kinds = ConsumerGroupHeartbeatResponse
            response.assignment = kinds.Assignment(
                topic_partitions=[
                    kinds.TopicPartitions(topic_id=one["topicId"], partitions=one["partitions"])
                    for one in listed(after.assigned)
                ]
            )
        return response

    def _known(self, draft: Draft, request: ConsumerGroupHeartbeatRequest, owned: Places | None) -> ConsumerMember:
        """Return the member that sends a heartbeat, a new one if it joins.

        A static member that comes back takes the place of the one that said it would.
        """
        facts, member_id, instance_id = draft.facts, request.member_id, request.instance_id
        joins = request.member_epoch == 0
        if len(facts.members) >= self._settings.max_size and member_id not in facts.members:
            raise RefusedError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self._settings.max_size} members.",
            )
        if instance_id is not None:
            known_id = facts.ids.get(instance_id)
            if not joins:
                _check_instance(facts, instance_id, member_id)
            elif known_id is not None and facts.members[known_id].epoch == LEAVES_FOR_A_WHILE:
                return _take_place(draft, facts.members[known_id], member_id or self._new_id())
            elif known_id not in (None, member_id):
                raise RefusedError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                    f"instance id is owned by {known_id} member.",
                )
        known = facts.members.get(member_id)
        if known is not None:
            known.check_epoch(request.member_epoch, owned)
            return known
        if not joins:
            raise RefusedError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return ConsumerMember(member_id=member_id or self._new_id())

    def _unknown(self, member_id: str) -> RefusedError:
        message = f"Member {member_id} is not a member of group {self.group_id}."
        return RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, message)

    def _follow_topics(self, draft: Draft, client: Client, seen: _Seen, now_ms: int, *, has_changed: bool) -> None:
        """Begin another epoch if members, patterns or topics have changed."""
        facts = draft.facts
        if seen.is_of(self._seen) and not has_changed:
            return
        has_changed |= self._resolve(draft, client, seen, now_ms)
        metadata_hash = seen.image.hash_of(facts.subscribed())
        if has_changed or metadata_hash != facts.metadata_hash:
            draft.set_group(facts.epoch + 1, metadata_hash=metadata_hash)

    def _resolve(self, draft: Draft, client: Client, seen: _Seen, now_ms: int) -> bool:
        """Find the topics of new patterns, and of all if there are other topics or rights; return whether they differ.

        A pattern has the topics that the client may see whose heartbeat makes it be looked at.
        Source: Kafka GroupMetadataManager.refreshRegularExpressions.
        """
        facts = draft.facts
        wanted = sorted({member.pattern for member in facts.members.values() if member.pattern})
        _drop_patterns(draft)
        has_changed = False
        for source in wanted:
            known = facts.patterns.get(source)
            if known is not None and seen.is_of(self._seen):
                continue
            try:
                pattern = Pattern(source)
            except PatternError:
                # One that a broker knew; what it found stays.
                continue
            topics = frozenset(name for name in seen.image.topics if pattern.matches(name) and client.may_see(name))
            if known is None or topics != known.topics:
                draft.set_pattern(source, Resolved(topics, 0, now_ms))
                has_changed = True
        return has_changed

    # Members that go.

    def _left(self, draft: Draft, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """Change the draft as a member does that leaves, and return the answer."""
        facts, member_id, epoch = draft.facts, request.member_id, request.member_epoch
        if request.instance_id is not None:
            _check_instance(facts, request.instance_id, member_id)
        elif member_id not in facts.members:
            raise RefusedError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        if epoch == LEAVES_FOR_A_WHILE:
            draft.set_current(replace(facts.members[member_id], epoch=epoch, revoking=frozenset()))
        else:
            self._remove(draft, member_id)
        return ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch)

    def _removed(self, draft: Draft, member_id: str, instance_id: str | None) -> ErrorCode:
        """Take a member out of the draft, an instance also without its id; return the code of what came of it."""
        facts = draft.facts
        if instance_id is not None:
            member_id = member_id or facts.ids.get(instance_id, "")
            try:
                _check_instance(facts, instance_id, member_id)
            except RefusedError as refused:
                return refused.code
        if member_id not in facts.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        draft.remove_member(member_id)
        return ErrorCode.NONE

    def _remove(self, draft: Draft, member_id: str) -> None:
        draft.remove_member(member_id)
        self._begin_epoch(draft)

    def _begin_epoch(self, draft: Draft) -> None:
        """Begin another epoch of those who are left."""
        _drop_patterns(draft)
        metadata_hash = self._topics().hash_of(draft.facts.subscribed())
        draft.set_group(draft.facts.epoch + 1, metadata_hash=metadata_hash)

    def _expel(self, member_id: str, now_ms: int) -> Outcome:
        draft = Draft(self.facts)
        self._remove(draft, member_id)
        return self._begin(draft, None, ConsumerGroupHeartbeatResponse(member_id=member_id), now_ms)

    # Changes and their records.

    def _begin(
        self,
        draft: Draft,
        call: Call | None,
        response: ConsumerGroupHeartbeatResponse,
        now_ms: int,
        *,
        seen: _Seen | None = None,
    ) -> Outcome:
        if not draft.records:
            return self._settle(draft, call, response, now_ms, seen=seen)

        def settle(then_ms: int) -> Outcome:
            return self._settle(draft, call, response, then_ms, seen=seen)

        def refuse(code: ErrorCode) -> Answer | None:
            return None if call is None else refusal(call, RefusedError(code, ""))

        self._write = _Write(settle, refuse)
        return Outcome(self.group_id, records=tuple(draft.records))

    def _settle(
        self,
        draft: Draft,
        call: Call | None,
        response: ConsumerGroupHeartbeatResponse,
        now_ms: int,
        *,
        seen: _Seen | None,
    ) -> Outcome:
        """Take over a change whose records are appended, and answer."""
        before = self._take_over(draft)
        self._seen = seen or self._seen
        member_id = response.member_id or ""
        member = self.facts.members.get(member_id)
        if member is not None and member.epoch != LEAVES_FOR_A_WHILE:
            self._session_ends_ms[member_id] = now_ms + self._settings.session_timeout_ms
            if member != before.members.get(member_id):
                self._time_revocation(member, now_ms)
        answers = () if call is None else (Answer(call.token, response),)
        return Outcome(self.group_id, answers=answers)

    def _take_over(self, draft: Draft) -> ConsumerFacts:
        """Make a draft what the group is, without the timers of who is gone; return what it was."""
        before, self.facts, self._first_records = self.facts, draft.facts, ()
        for gone in before.members.keys() - self.facts.members.keys():
            self._session_ends_ms.pop(gone, None)
            self._revocation_ends_ms.pop(gone, None)
        return before

    def _time_revocation(self, member: ConsumerMember, now_ms: int) -> None:
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self._revocation_ends_ms[member.member_id] = now_ms + member.rebalance_timeout_ms, member.epoch
        else:
            self._revocation_ends_ms.pop(member.member_id, None)

    def _check_no_write(self) -> None:
        if self._write is not None:
            raise RuntimeError(f"group {self.group_id!r}: records wait for written() or not_written()")

    def _ended_write(self) -> _Write:
        write, self._write = self._write, None
        if write is None:
            raise RuntimeError(f"group {self.group_id!r}: no record waits to be written")
        return write


def refusal(call: Call, refused: RefusedError) -> Answer:
    """Return the answer to a heartbeat that is refused."""
    response = ConsumerGroupHeartbeatResponse(error_code=refused.code, error_message=str(refused) or None)
    return Answer(call.token, response)


def check_request(request: ConsumerGroupHeartbeatRequest, *, version: int) -> None:
    """Raise RefusedError for a heartbeat that no group takes.

    Source: Kafka GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid.
    """
    epoch, message = request.member_epoch, None
    if _is_blank(request.member_id) and (version >= _OWN_MEMBER_ID_VERSION or epoch):
        message = "MemberId can't be empty."
    elif _is_blank(request.group_id):
        message = "GroupId can't be empty."
    elif _is_blank(request.instance_id):
        message = "InstanceId can't be empty."
    elif _is_blank(request.rack_id):
        message = "RackId can't be empty."
    elif epoch < LEAVES_FOR_A_WHILE:
        message = f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
    elif epoch == LEAVES_FOR_A_WHILE and request.instance_id is None:
        message = "InstanceId can't be null."
    elif epoch == 0 and request.rebalance_timeout_ms == _NOT_GIVEN:
        message = "RebalanceTimeoutMs must be provided in first request."
    elif epoch == 0 and request.topic_partitions != []:
        message = "TopicPartitions must be empty when (re-)joining."
    elif epoch == 0 and request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        message = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    if message is not None:
        raise RefusedError(ErrorCode.INVALID_REQUEST, message)
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
        )


def _is_blank(text: str | None) -> bool:
    return text is not None and not text.strip()


def _check_pattern(source: str) -> None:
    try:
        Pattern(source)
    except PatternError as error:
        raise RefusedError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{source}` is not a valid regular expression: {error}.",
        ) from None


def _check_instance(facts: ConsumerFacts, instance_id: str, member_id: str) -> None:
    """Raise RefusedError unless a static member is the one that has the instance id."""
    known_id = facts.ids.get(instance_id)
    if known_id is None:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if known_id != member_id:
        raise RefusedError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {known_id}.",
        )


def _take_place(draft: Draft, old: ConsumerMember, new_id: str) -> ConsumerMember:
    """Let a static member take over what one of its instance id left, and return it."""
    target = draft.facts.targets.get(old.member_id, frozenset())
    member = replace(old, member_id=new_id, epoch=0, previous_epoch=0)
    draft.remove_member(old.member_id)
    draft.set_member(member)
    draft.set_target(new_id, target)
    draft.set_current(member)
    return member


def _drop_patterns(draft: Draft) -> None:
    """Forget the patterns that no member subscribes to any more."""
    wanted = {member.pattern for member in draft.facts.members.values()}
    for source in sorted(draft.facts.patterns.keys() - wanted):
        draft.set_pattern(source, None)


def _assign(draft: Draft, image: TopicsImage) -> None:
    """Say anew who is to have what."""
    facts = draft.facts
    for member_id, places in facts.assigned(image).items():
        if facts.targets.get(member_id) != places:
            draft.set_target(member_id, places)
    draft.set_target_epoch(facts.epoch)


def _reconcile(draft: Draft, member: ConsumerMember, owned: Places | None) -> ConsumerMember:
    """Bring a member one step nearer to its target, and return it."""
    facts, member_id = draft.facts, member.member_id
    if member.is_reconciled(facts.target_epoch):
        return member
    after = member.reconciled(
        target_epoch=facts.target_epoch,
        target=facts.targets.get(member_id, frozenset()),
        taken=facts.taken_from(member_id),
        owned=owned,
    )
    if after != member:
        draft.set_current(after)
    return after


def _owned(request: ConsumerGroupHeartbeatRequest) -> Places | None:
    """Return the partitions that a member says it has, None if it says nothing."""
    listing = request.topic_partitions
    return (
        None if listing is None else frozenset((one.topic_id, number) for one in listing for number in one.partitions)
    )


def _given(request: ConsumerGroupHeartbeatRequest) -> dict[str, Any]:
    """Return what a heartbeat says of its member; what it does not say stays as it was."""
    timeout_ms, names = request.rebalance_timeout_ms, request.subscribed_topic_names
    given = {
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "rebalance_timeout_ms": None if timeout_ms == _NOT_GIVEN else timeout_ms,
        "assignor": request.server_assignor,
        "topics": None if names is None else frozenset(names),
        "pattern": request.subscribed_topic_regex,
    }
    return {name: value for name, value in given.items() if value is not None}


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether a heartbeat says all of its member, which wants to be told all then."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != _NOT_GIVEN and subscribes and request.topic_partitions is not None
