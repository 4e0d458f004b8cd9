"""Goal: whatever three members, the clock, the topics and the server do, no partition has two members, and in the end
each has one, evenly.
Method: random schedules against a model of clients that believe what they are told; the log is a dict."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from kstore.wire.codes import ErrorCode
from tests.making.group_calls import GroupServer, partitions_of

TOPICS = ("t", "u", "v")
SUBSCRIPTIONS = (("t",), ("t", "u"), ("u", "v"), TOPICS)
PATTERNS = ("", "", "", "t|u", "v")
SCHEDULES, STEPS = 300, 60
SESSION_MS, REBALANCE_MS = 45_000, 20_000


@dataclass
class Member:
    """A client: what it owns, and what it has been told to own, which it takes up at its own pace."""

    slot: int
    instance_id: str | None
    member_id: str = ""
    epoch: int | None = None
    owned: set = field(default_factory=set)
    told: set = field(default_factory=set)
    topics: tuple = ()
    pattern: str = ""
    is_slow: bool = False
    # Whether its next heartbeat says all, as after an answer that it missed.
    is_unsure: bool = False

    def fields(self):
        names = {"subscribed_topic_names": list(self.topics), "subscribed_topic_regex": self.pattern}
        return names | {"rebalance_timeout_ms": REBALANCE_MS}


class Schedule:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.topics = {"t": self.random.randrange(1, 6), "u": self.random.randrange(4)}
        self.server = GroupServer(topics=self.topics)
        self.members = [Member(slot, f"i{slot}" if slot == 2 else None) for slot in range(3)]
        self.joined = 0
        self.epoch = 0

    @property
    def group(self):
        return self.server.coordinator.consumer_groups.get("g")

    def run(self):
        steps = (self.join, self.leave, self.die, self.beat, self.beat, self.beat, self.beat, self.subscribe)
        steps += (self.lose_answer, self.commit, self.restart, self.change_topics, self.pass_time, self.fail)
        for _ in range(STEPS):
            step = self.random.choice(steps)
            step(self.random.choice(self.members))
            self.check()
        self.settle()

    # What clients do.

    def join(self, member):
        if member.epoch is not None:
            return
        self.joined += 1
        member.member_id = f"m{self.joined}"
        member.topics = self.random.choice(SUBSCRIPTIONS)
        member.pattern = self.random.choice(PATTERNS)
        member.is_slow = self.random.random() < 0.3
        self.enter(member)

    def enter(self, member):
        answer = self.server.beat(member.member_id, 0, (), instance_id=member.instance_id, **member.fields())
        if answer.error_code == ErrorCode.UNRELEASED_INSTANCE_ID:
            # One that died without a word; its session ends some time.
            member.epoch = None
            return
        self.take(member, answer, is_join=True)

    def take(self, member, answer, *, is_join=False):
        code = answer.error_code
        member.is_unsure = code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        if member.is_unsure:
            return
        if code:
            assert code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
            self.forget(member)
            return
        assert is_join or answer.member_epoch >= member.epoch, "epochs of a member rise"
        member.epoch = answer.member_epoch
        if answer.assignment is not None:
            member.told = partitions_of(answer)
            # It takes what is new at once, and gives up at its own pace.
            member.owned |= member.told
        if not member.is_slow:
            member.owned &= member.told

    def forget(self, member):
        """The client gives all up at once, as it is told that it is no member."""
        member.epoch, member.owned, member.told = None, set(), set()

    def beat(self, member):
        if member.epoch is None:
            return
        if member.is_slow and self.random.random() < 0.5:
            member.owned &= member.told
        self.take(member, self.said(member, **(member.fields() if member.is_unsure else {})))

    def said(self, member, **fields):
        return self.server.beat(
            member.member_id, member.epoch, set(member.owned), instance_id=member.instance_id, **fields
        )

    def lose_answer(self, member):
        if member.epoch is not None:
            self.said(member)
            member.is_unsure = True

    def subscribe(self, member):
        if member.epoch is not None:
            member.topics = self.random.choice(SUBSCRIPTIONS)
            member.pattern = self.random.choice(PATTERNS)
            self.take(member, self.said(member, **member.fields()))

    def leave(self, member):
        if member.epoch is None:
            return
        epoch = -2 if member.instance_id is not None and self.random.random() < 0.7 else -1
        answer = self.server.beat(member.member_id, epoch, instance_id=member.instance_id)
        assert answer.error_code in (0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
        self.forget(member)

    def die(self, member):
        self.forget(member)

    def commit(self, member):
        if member.epoch is not None and self.group is not None:
            known = self.group.facts.members.get(member.member_id)
            code = self.group.commit_code(member.member_id, epoch=member.epoch, version=9)
            assert (code == 0) == (known is not None and known.epoch == member.epoch)

    # What happens to the server.

    def restart(self, _):
        before = self.group
        self.server.start()
        assert (before and before.facts) == (self.group and self.group.facts)

    def fail(self, member):
        self.server.fails = True
        self.beat(member)
        self.server.fails = False

    def change_topics(self, _):
        name = self.random.choice(TOPICS)
        if self.random.random() < 0.2:
            self.topics.pop(name, None)
        else:
            self.topics[name] = self.topics.get(name, 0) + self.random.randrange(1, 3)
        self.server.set_topics(self.topics)

    def pass_time(self, _):
        """Members give up in time what they have to, and all that they own when their sessions end."""
        milliseconds = self.random.choice((1000, 5000, REBALANCE_MS - 1, SESSION_MS))
        for member in self.members:
            self.beat(member)
            for _ in range(3 if milliseconds > 1000 else 0):
                member.owned &= member.told
                self.beat(member)
            if milliseconds == SESSION_MS:
                self.forget(member)
        self.server.pass_time(milliseconds)

    # What has to hold.

    def check(self):
        owners = {}
        for member in self.members:
            for place in member.owned:
                assert place not in owners, (place, member.slot, owners[place])
                owners[place] = member.slot
        if self.group is None:
            return
        facts = self.group.facts
        assert facts.epoch >= self.epoch, "epochs of the group rise"
        self.epoch = facts.epoch
        assert facts.target_epoch <= facts.epoch
        has = [place for one in facts.members.values() for place in (*one.assigned, *one.revoking)]
        assert len(has) == len(set(has)), "the coordinator gave a partition to two members"
        assert set(facts.patterns) <= {one.pattern for one in facts.members.values()}

    def settle(self):
        """All go on for a while without trouble; then each has what it is to have, and nothing moves any more."""
        self.server.pass_time(SESSION_MS)
        for member in self.members:
            self.forget(member)
            self.join(member)
            member.is_slow = False
        for _ in range(12):
            for member in self.members:
                self.beat(member)
                self.check()
        facts = self.group.facts
        assert self.group.state == "Stable"
        ids = {self.server.image.topics[name].topic_id: name for name in self.topics}
        for member in self.members:
            known = facts.members[member.member_id]
            assert known.assigned == facts.targets[member.member_id]
            assert {(ids[topic], number) for topic, number in known.assigned} == member.owned == member.told
        wanted = set().union(*(facts.topics_of(one) for one in facts.members.values())) & self.topics.keys()
        owned = set().union(*(member.owned for member in self.members))
        assert owned == {(name, number) for name in wanted for number in range(self.topics[name])}
        assert facts.assigned(self.server.image) == facts.targets, "another assignment would move nothing"
        if len({facts.topics_of(one) for one in facts.members.values()}) == 1:
            sizes = [len(member.owned) for member in self.members]
            assert max(sizes) - min(sizes) <= 1
        appends = self.server.appends
        for member in self.members:
            self.beat(member)
        assert self.server.appends == appends


@pytest.mark.parametrize("part", range(10))
def test_no_schedule_gives_a_partition_to_two_members_or_leaves_one_out(part):
    each = SCHEDULES // 10
    for seed in range(part * each, (part + 1) * each):
        try:
            Schedule(seed).run()
        except AssertionError as error:
            raise AssertionError(f"schedule {seed}: {error}") from error


@pytest.mark.long
def test_no_schedule_of_many_gives_a_partition_to_two_members_or_leaves_one_out():
    for seed in range(SCHEDULES, 20_000):
        try:
            Schedule(seed).run()
        except AssertionError as error:
            raise AssertionError(f"schedule {seed}: {error}") from error
