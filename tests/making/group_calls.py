"""A GroupCoordinator as a server uses it: with a log that keeps the newest record of each key, and calls by tokens."""

from __future__ import annotations

from itertools import count
from uuid import UUID

from kstore.coordinator.group.classic import Client
from kstore.coordinator.group.consumer.topics import Topic, TopicsImage
from kstore.coordinator.group.coordinator import GroupCoordinator
from kstore.coordinator.group.membership import Call
from kstore.coordinator.group.records import GroupRecord
from kstore.coordinator.group.settings import ConsumerGroupSettings, GroupSettings
from kstore.record.schemas.topics import decode_group_record
from kstore.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

SESSION_MS, REBALANCE_MS = 10_000, 60_000
# Of what is due at one time.
MOST_ROUNDS = 10_000
RANGE, STICKY = ("range", b"topics"), ("sticky", b"topics")


class GroupServer:
    """Appends what the coordinator says, gives it the time, and keeps the answer of each call by its token.

    Attributes: now_ms; log (value by key); answers (by token); fails (whether appends fail); crashes (whether the
    process ends after its next append); image (the topics of groups of KIP-848).
    """

    def __init__(self, *, topics=None, consumer_settings=None, **settings):
        self.settings = GroupSettings(**settings)
        self.consumer_settings = consumer_settings or ConsumerGroupSettings()
        self.set_topics(topics or {})
        self.now_ms = 1000
        self.log, self.answers, self.tokens, self.appends = {}, {}, count(), 0
        self.fails = self.crashes = False
        self.ids = count(1)
        self.start()

    def start(self):
        """A new process: all that it knows is in the log."""
        self.coordinator = GroupCoordinator(
            self.settings,
            consumer_settings=self.consumer_settings,
            topics=lambda: self.image,
            new_id=lambda: str(next(self.ids)),
        )
        newest = (GroupRecord(offset, key, value) for offset, (key, value) in enumerate(self.log.items()))
        self.coordinator.load([one for one in newest if one.value is not None], self.now_ms)

    def set_topics(self, topics):
        """Let there be these topics, each with so many partitions; the id of one is that of its name."""
        self.image = TopicsImage({name: Topic(topic_id(name), partitions) for name, partitions in topics.items()})

    def beat(
        self, member_id, epoch, owned=None, *, group="g", version=1, host="/host", may_see=bool, rights=0, **fields
    ):
        """Send a heartbeat of KIP-848, with the partitions (name, number) that the member owns; returns the answer."""
        kind = ConsumerGroupHeartbeatRequest.TopicPartitions
        listing = [kind(topic_id=topic_id(name), partitions=[number]) for name, number in sorted(owned or ())]
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=None if owned is None else listing,
            **fields,
        )
        method = self.coordinator.consumer_heartbeat
        return self.answer(self.call(method, request, Client("client", host, may_see, rights), version=version))

    def enter(self, member_id, topics=("t",), **fields):
        """Let a member join a group of KIP-848; returns the answer."""
        fields = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": list(topics), **fields}
        return self.beat(member_id, 0, (), **fields)

    def join(self, member_id="", *, group="g", instance=None, protocols=(RANGE,), version=9, **fields):
        fields = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS, **fields}
        request = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=fields.pop("protocol_type", "consumer"),
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
            **fields,
        )
        return self.call(self.coordinator.join, request, Client("client", "/host"), version=version)

    def sync(self, member_id, generation, assignments=None, *, group="g", version=4, **fields):
        brought = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=data)
            for name, data in (assignments or {}).items()
        ]
        request = SyncGroupRequest(
            group_id=group, member_id=member_id, generation_id=generation, assignments=brought, **fields
        )
        return self.call(self.coordinator.sync, request, version=version)

    def heartbeat(self, member_id, generation, *, group="g", instance=None):
        request = HeartbeatRequest(
            group_id=group, member_id=member_id, generation_id=generation, group_instance_id=instance
        )
        return self.code(self.call(self.coordinator.heartbeat, request))

    def leave(self, *members, group="g"):
        """Let members leave: each an id, or an id and an instance id. Returns the code of each."""
        pairs = [(one, None) if isinstance(one, str) else one for one in members]
        identities = [
            LeaveGroupRequest.MemberIdentity(member_id=name, group_instance_id=instance) for name, instance in pairs
        ]
        token = self.call(self.coordinator.leave, LeaveGroupRequest(group_id=group, members=identities), version=5)
        return [one.error_code for one in self.answers[token].members]

    def call(self, method, request, *further, version=9):
        """Make a call and do what it leaves to be done; returns its token."""
        token = next(self.tokens)
        self.obey(method(Call(token, version), request, *further, self.now_ms))
        self.run_due()
        return token

    def obey(self, outcome):
        while True:
            assert not (outcome.records and outcome.answers)
            for token, response in outcome.answers:
                assert token not in self.answers, "answered twice"
                self.answers[token] = response
            if not outcome.records:
                return
            if self.fails:
                outcome = self.coordinator.not_written(outcome.group_id, self.now_ms)
            else:
                self.append(outcome.records)
                if self.crashes:
                    return
                outcome = self.coordinator.written(outcome.group_id, self.now_ms)

    def append(self, records):
        self.appends += len(records)
        for key, value in records:
            self.log.pop(key, None)
            self.log[key] = value

    def pass_time(self, milliseconds):
        """Let time pass; what is due is done when it is due."""
        end_ms = self.now_ms + milliseconds
        while self.coordinator.next_ms is not None and self.coordinator.next_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.coordinator.next_ms)
            self.run_due()
        self.now_ms = end_ms

    def run_due(self):
        rounds = count(1)
        while self.coordinator.next_ms is not None and self.coordinator.next_ms <= self.now_ms:
            assert next(rounds) < MOST_ROUNDS, "what is due stays due"
            for outcome in self.coordinator.expire(self.now_ms):
                self.obey(outcome)

    def answer(self, token):
        """Return the answer to a call, None while it waits."""
        return self.answers.get(token)

    def code(self, token):
        """Return the code of the answer to a call, None while it waits."""
        response = self.answers.get(token)
        return None if response is None else response.error_code

    def group(self, group="g"):
        return self.coordinator.groups[group]

    def state(self, group="g"):
        return self.group(group).state.value

    def stored(self):
        """Return the fields of the newest GroupMetadata record, None if there is none."""
        records = [decode_group_record(key, value, decode_members=False) for key, value in self.log.items()]
        groups = [record.value.fields for record in records if record.key.name == "GroupMetadataKey"]
        return groups[-1] if groups else None

    def stable(self, count=2, **options):
        """Make a stable group of so many members and return their ids; the first leads. Each is assigned its id."""
        ids = [self.answers[self.join(**options)].member_id for _ in range(count)]
        for one in ids:
            self.join(one, **options)
        if count > 1:
            # It had a generation of its own before the others came.
            self.join(ids[0], **options)
        for one in reversed(ids):
            self.sync(one, self.generation, {name: name.encode() for name in ids})
        assert self.state() == "Stable"
        return ids

    @property
    def generation(self):
        return self.group().membership.generation


def topic_id(name):
    return UUID(bytes=name.encode().ljust(16, b".")[-16:])


def partitions_of(answer):
    """The partitions (name, number) that an answer to a heartbeat assigns, None if it says nothing of them."""
    if answer.assignment is None:
        return None
    return {
        (one.topic_id.bytes.decode().rstrip("."), number)
        for one in answer.assignment.topic_partitions
        for number in one.partitions
    }
