"""The rules of one classic group and of transactional producers as Kafka 4.1 has them, small enough to be read at once.

They know no bytes, versions or logs: a group has members by symbols, time is a number that the caller raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

# In ticks: how long a member's session lasts, how long a rebalance waits, how long a transaction may be open.
SESSION, REBALANCE, OPEN = 6, 10, 4
NEW_MEMBER = 1000
ID_REQUIRED, FENCED_INSTANCE, UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCING = 79, 82, 25, 22, 27
GROUP_NOT_FOUND, UNSTABLE, FENCED, OLD_EPOCH, WRONG_STATE = 69, 88, 90, 47, 48
EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"


class Caller(NamedTuple):
    """Who made a call: an actor, in one of its lives, by a version of the api."""

    actor: str
    life: int
    version: int


class Expected(NamedTuple):
    """The answer to a call: its code, and what else it says."""

    caller: Caller
    code: int
    says: dict[str, Any]


@dataclass
class Member:
    instance: str | None
    metadata: bytes
    join: Caller | None = None
    sync: Caller | None = None
    is_new: bool = True
    has_to_sync: bool = False
    assignment: bytes = b""
    session_ends: float = 0


@dataclass
class Group:
    """A group; `answers` has those that are due and were not taken yet.

    forgets: whether a group of which nothing was written is not there any more once nobody is in it.
    """

    forgets: bool
    now: float = 0
    state: str = EMPTY
    generation: int = 0
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    given: dict[str, float] = field(default_factory=dict)
    join_ends: float | None = None
    sync_ends: float | None = None
    stored: Group | None = None
    is_stored: bool = False
    was_joined: bool = False
    answers: list[Expected] = field(default_factory=list)
    names: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def exists(self) -> bool:
        is_kept = not self.forgets and self.was_joined
        return is_kept or self.is_stored or bool(self.generation or self.given) or self.state != EMPTY

    def answer(self, caller: Caller | None, code: int, **says: Any) -> None:
        if caller is not None:
            self.answers.append(Expected(caller, code, says))

    def of_instance(self, instance: str) -> str | None:
        return next((name for name, member in self.members.items() if member.instance == instance), None)

    def code_of(self, name: str | None, instance: str | None) -> int:
        if instance is not None:
            known = self.of_instance(instance)
            if known is not None and known != name:
                return FENCED_INSTANCE
            if known is None:
                return UNKNOWN_MEMBER
        return 0 if name in self.members else UNKNOWN_MEMBER

    # Requests

    def join(self, caller: Caller, name: str | None, instance: str | None, metadata: bytes) -> None:
        if name is None:
            if not self.exists:
                self.was_joined = True
            if instance is None and caller.version >= 4:
                given = self.new_name()
                self.given[given] = self.now + SESSION
                self.answer(caller, ID_REQUIRED, member=given)
                return
            old = None if instance is None else self.of_instance(instance)
            if old is None:
                self.add(caller, self.new_name(), instance, metadata)
            else:
                self.replace(caller, old, metadata)
            return
        if name in self.given:
            del self.given[name]
            self.add(caller, name, instance, metadata)
            return
        code = self.code_of(name, instance)
        if code:
            self.answer(caller, code)
            return
        member = self.members[name]
        is_again = member.metadata == metadata and not (self.state == STABLE and self.leader == name)
        if self.state == PREPARING or not is_again:
            member.join, member.metadata = caller, metadata
            self.rebalance()
        else:
            member.session_ends = self.now + SESSION
            self.answer_join(name, caller)

    def new_name(self) -> str:
        return f"m{next(self.names)}"

    def add(self, caller: Caller, name: str, instance: str | None, metadata: bytes) -> None:
        self.members[name] = Member(instance, metadata, join=caller, session_ends=self.now + NEW_MEMBER)
        self.leader = self.leader or name
        self.rebalance()

    def replace(self, caller: Caller, old: str, metadata: bytes) -> None:
        """A static member is back without its id."""
        new, old_leader = self.new_name(), self.leader
        member = self.members[old]
        self.answer(member.join, FENCED_INSTANCE)
        self.answer(member.sync, FENCED_INSTANCE)
        self.members = {new if name == old else name: one for name, one in self.members.items()}
        self.leader = new if self.leader == old else self.leader
        member.join, member.sync, member.metadata, member.is_new = caller, None, metadata, False
        member.session_ends = self.now + SESSION
        if self.state == STABLE:
            member.join = None
            self.store()
            knows = caller.version >= 9
            self.answer_join(new, caller, leader=None if knows else old_leader, skips=True)
        elif self.state == COMPLETING:
            self.prepare()
        else:
            self.rebalance()

    def answer_join(self, name: str, caller: Caller, *, leader: str | None = None, skips: bool = False) -> None:
        leads = leader is None and self.leader == name
        members = {one: member.metadata for one, member in self.members.items()} if leads else {}
        says = {"generation": self.generation, "leader": leader or self.leader, "member": name, "members": members}
        self.answer(caller, 0, **says, skips=skips and leads)

    def sync(
        self, caller: Caller, name: str, instance: str | None, generation: int, assignments: dict[str, bytes]
    ) -> None:
        code = self.code_of(name, instance)
        if not code and generation != self.generation:
            code = ILLEGAL_GENERATION
        if not code and self.state == PREPARING:
            code = REBALANCING
        if code:
            self.answer(caller, code)
            return
        member = self.members[name]
        member.session_ends = self.now + SESSION
        member.has_to_sync = False
        if not any(one.has_to_sync for one in self.members.values()):
            self.sync_ends = None
        if self.state == STABLE:
            self.answer(caller, 0, assignment=member.assignment)
            return
        member.sync = caller
        if name == self.leader:
            self.state = STABLE
            for one, other in self.members.items():
                other.assignment = assignments.get(one, b"")
                self.answer_sync(other, 0, assignment=other.assignment)
            self.store()

    def answer_sync(self, member: Member, code: int, **says: Any) -> None:
        if member.sync is not None:
            self.answer(member.sync, code, **says)
            member.sync, member.session_ends = None, self.now + SESSION

    def heartbeat(self, caller: Caller, name: str, instance: str | None, generation: int) -> None:
        code = self.code_of(name, instance)
        if not code and generation != self.generation:
            code = ILLEGAL_GENERATION
        if not code:
            self.members[name].session_ends = self.now + SESSION
            code = REBALANCING if self.state == PREPARING else 0
        self.answer(caller, code)

    def leave(self, caller: Caller, name: str | None, instance: str | None) -> None:
        if name in self.given:
            code = 0
            del self.given[name]
        else:
            if name is None and instance is not None:
                name = self.of_instance(instance)
            code = self.code_of(name, instance)
            if not code and name is not None:
                self.remove(name)
        self.answer(caller, code)
        if not code and self.state in (STABLE, COMPLETING):
            self.prepare()
        elif not code:
            self.complete_if_all_joined()

    def commit_code(self, name: str | None, instance: str | None, generation: int, *, in_transaction: bool) -> int:
        if not self.exists:
            if generation < 0:
                return 0
            return ILLEGAL_GENERATION if in_transaction else GROUP_NOT_FOUND
        if generation < 0 and self.state == EMPTY:
            return 0
        if generation >= 0 or name is not None or instance is not None:
            code = self.code_of(name, instance)
            if code or generation != self.generation:
                return code or ILLEGAL_GENERATION
        elif not in_transaction:
            return UNKNOWN_MEMBER
        if self.state == COMPLETING and not in_transaction:
            return REBALANCING
        return 0

    # Rebalances

    def rebalance(self) -> None:
        if self.state == PREPARING:
            self.complete_if_all_joined()
        else:
            self.prepare()

    def prepare(self) -> None:
        was, self.state = self.state, PREPARING
        for member in self.members.values():
            member.has_to_sync = False
            if was == COMPLETING:
                member.assignment = b""
                self.answer_sync(member, REBALANCING)
        self.sync_ends, self.join_ends = None, self.now + REBALANCE
        if was == EMPTY or not self.members:
            self.complete()
        else:
            self.complete_if_all_joined()

    def complete_if_all_joined(self) -> None:
        if self.state == PREPARING and not self.given and all(one.join for one in self.members.values()):
            self.complete()

    def complete(self) -> None:
        self.join_ends = None
        for name in [name for name, one in self.members.items() if one.join is None and one.instance is None]:
            self.remove(name)
        joined = [name for name, member in self.members.items() if member.join]
        if self.members and not joined:
            self.join_ends = self.now + REBALANCE
            return
        self.generation += 1
        if not self.members:
            self.state = EMPTY
            self.store()
            return
        if self.leader not in joined:
            self.leader = joined[0]
        self.state, self.sync_ends = COMPLETING, self.now + REBALANCE
        for name, member in self.members.items():
            if member.join is not None:
                self.answer_join(name, member.join)
            member.join, member.is_new, member.has_to_sync = None, False, True
            member.session_ends = self.now + SESSION

    def remove(self, name: str) -> None:
        member = self.members.pop(name)
        self.answer(member.join, UNKNOWN_MEMBER)
        self.answer(member.sync, UNKNOWN_MEMBER)
        if self.leader == name:
            self.leader = next(iter(self.members), None)

    # Time

    def expire(self, now: float) -> None:
        """Do what is due until now."""
        self.now = now
        while self.expire_one():
            pass

    def expire_one(self) -> bool:
        if self.join_ends is not None and self.join_ends <= self.now:
            self.complete()
        elif self.sync_ends is not None and self.sync_ends <= self.now:
            for name in [name for name, one in self.members.items() if one.has_to_sync]:
                self.remove(name)
            self.prepare()
        elif late := next((name for name, ends in self.given.items() if ends <= self.now), None):
            del self.given[late]
            self.complete_if_all_joined()
        elif silent := next((name for name, one in self.members.items() if self.is_silent(one)), None):
            self.remove(silent)
            if self.state in (STABLE, COMPLETING):
                self.prepare()
            else:
                self.complete_if_all_joined()
        else:
            return False
        return True

    def is_silent(self, member: Member) -> bool:
        waits = member.join is not None or member.sync is not None
        return member.session_ends <= self.now and (member.is_new or not waits)

    # Restarts

    def store(self) -> None:
        self.is_stored = True
        self.stored = None
        kept = deepcopy(self, {id(self.names): self.names, id(self.answers): []})
        for member in kept.members.values():
            member.join = member.sync = None
            member.has_to_sync = member.is_new = False
        kept.given, kept.join_ends, kept.sync_ends = {}, None, None
        self.stored = kept

    def restarted(self, *, has_offsets: bool) -> Group:
        """What a coordinator knows that read what this one wrote."""
        is_stored = self.stored is not None or has_offsets
        again = self.stored or Group(self.forgets, names=self.names)
        again.now, again.stored = self.now, None
        for member in again.members.values():
            member.session_ends = self.now + SESSION
        if self.stored is not None:
            again.store()
        again.is_stored = is_stored
        return again


class Ended(NamedTuple):
    """What a producer is told of the end of a transaction: a code, and the epoch it goes on with."""

    code: int
    epoch: int


@dataclass
class Transaction:
    """A transactional id: its epoch, None before the first producer, and its transaction, or how the last one ended.

    version: that of the transactions of the request that was stored last. held: what it would commit.
    """

    epoch: int | None = None
    version: int = 1
    is_open: bool = False
    was_committed: bool | None = None
    began: float = 0
    held: list[Any] = field(default_factory=list)

    def start(self) -> int:
        """Another producer begins; returns its epoch. What the last one left open is aborted, with an epoch more."""
        if self.epoch is None:
            self.epoch = 0
        else:
            self.epoch += 2 if self.is_open else 1
        self.is_open, self.was_committed, self.held = False, None, []
        return self.epoch

    def takes(self, epoch: int, version: int, now: float) -> bool:
        """Whether data of an epoch is taken, whose partition is in the transaction then."""
        if epoch != self.epoch:
            return False
        if not self.is_open:
            self.began, self.held = now, []
        self.is_open, self.was_committed, self.version = True, None, version
        return True

    def end(self, epoch: int, version: int, *, commits: bool) -> tuple[Ended, list[Any]]:
        """Return what the producer is told, and what is committed."""
        assert self.epoch is not None
        raises = version == 2
        is_repeated = raises and self.version == 2 and self.was_committed is not None and epoch == self.epoch - 1
        if not is_repeated and epoch != self.epoch:
            return Ended(FENCED, -1), []
        if self.was_committed is commits and (is_repeated or not raises):
            return Ended(0, self.epoch), []
        if is_repeated or (not self.is_open and (commits or not raises)):
            return Ended(WRONG_STATE, -1), []
        committed = self.held if commits else []
        self.epoch += raises
        self.is_open, self.was_committed, self.version, self.held = False, commits, version, []
        return Ended(0, self.epoch), committed

    def expire(self, now: float) -> None:
        """The coordinator aborts what is open for too long, and the next producer has another epoch."""
        if self.is_open and now - self.began > OPEN:
            assert self.epoch is not None
            self.epoch += 1
            self.is_open, self.was_committed, self.held = False, False, []
