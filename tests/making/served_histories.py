"""Random histories of three members of a group and two transactional producers, step by step against served_model.py.

A history depends on its seed and on what the model says, so that it is the same for every server that is right. The
server is any object with send, receive, has_answer, drop, pass_time and restart (BrokerInProcess here, a real broker in
tests/interop/coordinators.py).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kstore.coordinator.group.settings import GroupSettings
from kstore.coordinator.producer_ids import ProducerIdAndEpoch
from kstore.coordinator.transaction.coordinator import TransactionCoordinator
from kstore.serve.apis import respond
from kstore.serve.broker import Broker
from kstore.serve.calls import Peer
from kstore.serve.config import SecurityConfig, ServerConfig
from kstore.serve.coordination.groups import Groups
from kstore.serve.faults import Faults
from kstore.serve.news import News
from kstore.serve.security.logins import Logins
from kstore.serve.security.sasl import Session
from kstore.store.store import WritableStore, open_store
from kstore.types import TopicPartition
from kstore.wire.classes import Message
from kstore.wire.frames import decode_response
from kstore.wire.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tests.fakes.sending import ManualClock
from tests.making.served_model import (
    EMPTY,
    FENCED,
    OLD_EPOCH,
    OPEN,
    REBALANCE,
    SESSION,
    STABLE,
    UNSTABLE,
    Caller,
    Expected,
    Group,
    Transaction,
)
from tests.making.serving import frame_of
from tests.making.transacting import added, committed_offset, ended, offsets_added, produced, read, started

STEPS = 40
# Ticks that pass at once, and when those who live say so: never when something else is due.
PASS, BEATS = 17, (1.5, 3.5, 5.5, 7.5, 9.5, 11.5, 13.5, 15.5, 17.0)
INCONSISTENT = 23
_TURNS = 8
_WAIT_S = 10.0


class Served(Protocol):
    """A server as histories see it; each key is a connection.

    tick_ms: how long a tick is. forgets_groups: see Group. is_real: its time is not the test's, and any member may lead
    where another one has to. restarts: whether it can start again.
    """

    tick_ms: int
    forgets_groups: bool
    is_real: bool
    restarts: bool

    def send(self, key: str, body: Message, *, version: int) -> None: ...
    def receive(self, key: str) -> Any: ...
    def has_answer(self, key: str) -> bool: ...
    def wait_until(self, group_id: str, state: str, members: int) -> None: ...
    def wait_for_markers(self, transactional_id: str) -> None: ...
    def drop(self, key: str) -> None: ...
    def pass_time(self, ticks: float) -> None: ...
    def restart(self) -> None: ...


@dataclass
class Actor:
    """Who is a member, or was, or wants to be.

    life: grows when it loses its connection; member: the symbol that it has; waits: whether a call has no answer yet.
    """

    name: str
    instance: str | None
    life: int = 0
    member: str | None = None
    generation: int = -1
    metadata: bytes = b"m1"
    has_to_sync: bool = False
    waits: str | None = None
    is_silent: bool = False

    @property
    def key(self) -> str:
        return f"{self.name}{self.life}"


@dataclass
class Asking:
    """One connection of a server as the functions of tests/making/transacting.py want it."""

    server: Served
    key: str

    def ask(self, body: Message, *, version: int) -> Any:
        self.server.send(self.key, body, version=version)
        return self.server.receive(self.key)


@dataclass
class Writer:
    """A producer: what it believes of itself; old: one that was before it."""

    name: str
    version: int = 2
    producer: ProducerIdAndEpoch | None = None
    old: ProducerIdAndEpoch | None = None
    sequences: dict[ProducerIdAndEpoch, int] = field(default_factory=dict)
    last_end: tuple[ProducerIdAndEpoch, bool] | None = None


class History:
    """One history of one group and one topic of a server.

    Raises: AssertionError, with the steps until then, where the server says something else than the model.
    """

    def __init__(self, seed: str, server: Served, *, topic: str, prefix: str = "") -> None:
        self.draw = random.Random(seed)
        self.server, self.topic, self.prefix = server, topic, prefix
        self.group = Group(server.forgets_groups)
        self.now = 0.0
        instances = [self.draw.choice((None, "i-b")), self.draw.choice(("i-c", "i-c", None))]
        self.actors = {name: Actor(name, instance) for name, instance in zip("abc", [None, *instances], strict=True)}
        self.ids: dict[str, str] = {}
        self.transactions = {name: Transaction() for name in "xy"}
        self.writers = {name: Writer(name) for name in "xy"}
        self.control = Asking(server, "control")
        self.order = 0
        # Of partition 0: what is committed and what open transactions hold, each with the order of its record.
        self.committed = (-1, -1)
        self.held: dict[str, tuple[int, int]] = {}
        self.values: list[bytes] = []
        self.steps: list[str] = []

    @property
    def group_id(self) -> str:
        return f"{self.prefix}g"

    def run(self, steps: int = STEPS) -> int:
        """Take steps, and look at what is left; returns how many there were."""
        try:
            for _ in range(steps):
                self.step()
            self.finish()
        except AssertionError as error:
            raise AssertionError(f"{error}\nsteps: {' '.join(self.steps)}") from error
        return steps

    def step(self) -> None:
        choices: list[tuple[int, str, Callable[[], None] | None]] = []
        for actor in self.actors.values():
            choices += [(weight, f"{kind}({actor.name})", do) for weight, kind, do in self.of_actor(actor)]
        for writer in self.writers.values():
            choices += [(weight, f"{kind}({writer.name})", do) for weight, kind, do in self.of_writer(writer)]
        choices += [(2, "fetch", self.fetch), (3, "pass", self.pass_time), (1, "stranger", self.stranger)]
        if self.server.restarts:
            choices.append((1, "restart", self.restart))
        possible = [(weight, name, do) for weight, name, do in choices if do is not None]
        ((_, name, do),) = self.draw.choices(possible, [weight for weight, _, _ in possible])
        self.steps.append(name)
        assert do is not None
        do()
        self.settle()

    def of_actor(self, actor: Actor) -> Iterator[tuple[int, str, Callable[[], None] | None]]:
        if actor.waits:
            yield 2, "die", lambda: self.die(actor)
            return
        yield 4 if actor.member is None or not actor.has_to_sync else 1, "join", lambda: self.join(actor)
        if actor.member is not None:
            yield 14 if actor.has_to_sync else 1, "sync", lambda: self.sync(actor)
            yield 2, "beat", lambda: self.beat(actor)
            yield 1, "leave", lambda: self.leave(actor)
            yield 1, "die", lambda: self.die(actor)
        yield 2, "commit", lambda: self.commit(actor)

    def of_writer(self, writer: Writer) -> Iterator[tuple[int, str, Callable[[], None] | None]]:
        yield 4 if writer.producer is None else 1, "init", lambda: self.init(writer)
        if writer.producer is not None:
            yield 4, "produce", lambda: self.produce(writer)
            yield 3, "offsets", lambda: self.hold_offsets(writer)
            yield 4, "end", lambda: self.end(writer)
        if writer.last_end is not None:
            yield 1, "again", lambda: self.end_again(writer)
        if writer.old is not None:
            yield 1, "old", lambda: self.use_old(writer)

    # Members

    def call(self, actor: Actor, body: Message, version: int, waits: str | None = None) -> Caller:
        actor.waits, actor.is_silent = waits or "answer", False
        self.server.send(actor.key, body, version=version)
        return Caller(actor.name, actor.life, version)

    def join(self, actor: Actor) -> None:
        """Join with the id that it has, or without one, and then with the one that it is given."""
        if actor.is_silent and self.draw.random() < 0.7:
            actor.member = None
        if self.draw.random() < 0.2:
            actor.metadata = self.draw.choice((b"m1", b"m2"))
        self.ask_to_join(actor, self.draw.choice((5, 9, 9) if actor.instance else (3, 5, 9)))

    def ask_to_join(self, actor: Actor, version: int) -> None:
        had_none = actor.member is None
        caller = self.call(actor, self.joining(actor, actor.metadata), version, "join")
        actor.has_to_sync = False
        self.group.join(caller, actor.member, actor.instance, actor.metadata)
        self.settle()
        if had_none and actor.member in self.group.given and self.draw.random() < 0.85:
            self.ask_to_join(actor, version)

    def joining(self, actor: Actor, metadata: bytes, *, protocol: str = "range") -> JoinGroupRequest:
        named = JoinGroupRequest.JoinGroupRequestProtocol(name=protocol, metadata=metadata)
        return JoinGroupRequest(
            group_id=self.group_id,
            member_id=self.id_of(actor),
            group_instance_id=actor.instance,
            session_timeout_ms=SESSION * self.server.tick_ms,
            rebalance_timeout_ms=REBALANCE * self.server.tick_ms,
            protocol_type="consumer",
            protocols=[named],
        )

    def id_of(self, actor: Actor) -> str:
        return "" if actor.member is None else self.ids[actor.member]

    def sync(self, actor: Actor) -> None:
        assert actor.member is not None
        leads = self.group.leader == actor.member
        assignments = {name: b"%d %s" % (actor.generation, name.encode()) for name in self.group.members}
        assignments = {name: part for name, part in assignments.items() if leads and name in self.ids}
        version = self.draw.choice((3, 5))
        kind = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=self.group_id,
            member_id=self.id_of(actor),
            group_instance_id=actor.instance,
            generation_id=actor.generation,
            assignments=[kind(member_id=self.ids[name], assignment=part) for name, part in assignments.items()],
        )
        if version >= 5:
            request.protocol_type, request.protocol_name = "consumer", "range"
        caller = self.call(actor, request, version, "sync")
        actor.has_to_sync = False
        self.group.sync(caller, actor.member, actor.instance, actor.generation, assignments)

    def beat(self, actor: Actor) -> None:
        assert actor.member is not None
        request = HeartbeatRequest(
            group_id=self.group_id,
            member_id=self.id_of(actor),
            group_instance_id=actor.instance,
            generation_id=actor.generation,
        )
        caller = self.call(actor, request, 4)
        self.group.heartbeat(caller, actor.member, actor.instance, actor.generation)

    def leave(self, actor: Actor) -> None:
        by_instance = actor.instance is not None and self.draw.random() < 0.5
        name = None if by_instance else actor.member
        identity = LeaveGroupRequest.MemberIdentity(
            member_id="" if name is None else self.ids[name], group_instance_id=actor.instance
        )
        caller = self.call(actor, LeaveGroupRequest(group_id=self.group_id, members=[identity]), 5)
        self.group.leave(caller, name, actor.instance)
        actor.member, actor.has_to_sync = None, False

    def die(self, actor: Actor) -> None:
        self.server.drop(actor.key)
        actor.life += 1
        actor.waits, actor.has_to_sync, actor.is_silent = None, False, True

    def stranger(self) -> None:
        """One who knows another protocol is refused as long as there are members."""
        if self.group.state != EMPTY:
            actor = Actor("stranger", None)
            answer = self.control.ask(self.joining(actor, b"m1", protocol="other"), version=9)
            assert answer.error_code == INCONSISTENT, f"a stranger: {answer.error_code}"

    def commit(self, actor: Actor) -> None:
        who = self.draw.choice(("member", "member", "member", "nobody", "late"))
        name, generation = actor.member, actor.generation
        if who == "nobody" or name is None:
            name, generation = None, -1
        generation += who == "late"
        instance = None if name is None else actor.instance
        part = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.next_order(), committed_metadata="m"
        )
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=self.topic, partitions=[part])]
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=generation,
            member_id="" if name is None else self.ids[name],
            group_instance_id=instance,
            topics=topics,
        )
        answer = self.control.ask(request, version=9)
        code = self.group.commit_code(name, instance, generation, in_transaction=False)
        found = answer.topics[0].partitions[0].error_code
        assert found == code, f"a commit of {name} in {generation}: code {found} in place of {code}"
        if not code:
            self.committed = self.order, self.order
            self.group.is_stored = True
            if name is not None and name in self.group.members:
                self.group.members[name].session_ends = self.now + SESSION

    def next_order(self) -> int:
        self.order += 1
        return self.order

    def settle(self, *, is_timed: bool = False) -> None:
        """Take the answers that are due, and see that there are no others.

        is_timed: time passes meanwhile, so that a real server is not waited for.
        """
        due, self.group.answers = self.group.answers, []
        answers = []
        for expected in due:
            actor = self.actors[expected.caller.actor]
            if expected.caller.life == actor.life:
                answers.append((actor, expected, self.server.receive(actor.key)))
                actor.waits = None
        for _, expected, answer in answers:
            if "member" in expected.says:
                self.ids.setdefault(expected.says["member"], answer.member_id)
        if self.server.is_real:
            self.take_over_leader(answers)
        for actor, expected, answer in answers:
            self.compare(actor, expected, answer)
            self.take(actor, expected)
        if self.group.exists and not is_timed and any(actor.waits for actor in self.actors.values()):
            self.server.wait_until(self.group_id, self.group.state, len(self.group.members))
        for actor in self.actors.values():
            # A timer of a real server may be early by what the steps before took.
            if actor.waits and not (is_timed and self.server.is_real):
                assert not self.server.has_answer(actor.key), f"{actor.name}: an answer that was not due"

    def take_over_leader(self, answers: list[tuple[Actor, Expected, Any]]) -> None:
        """Let a member lead that the server chose, and who hears of all members then."""
        names = {real: name for name, real in self.ids.items()}
        for _, expected, answer in answers:
            chosen = names.get(getattr(answer, "leader", None))
            if expected.says.get("leader") == self.group.leader and chosen in self.group.members:
                self.group.leader = chosen
        for _, expected, _ in answers:
            says = expected.says
            if says.get("generation") == self.group.generation and says["leader"] in self.group.members:
                says["leader"] = self.group.leader
                leads = self.group.leader == says["member"]
                of_all = {name: member.metadata for name, member in self.group.members.items()}
                says["members"] = of_all if leads else {}

    def compare(self, actor: Actor, expected: Expected, answer: Any) -> None:
        """Raises: AssertionError unless an answer says what is expected of it."""
        code = answer.members[0].error_code if hasattr(answer, "members") and not hasattr(answer, "leader") else None
        found: dict[str, Any] = {"code": answer.error_code if code is None else code}
        wanted = {"code": expected.code, **expected.says}
        names = {real: name for name, real in self.ids.items()}
        if "generation" in wanted:
            # The ids of those who died before they heard of them: in the order in which they came.
            unheard = [name for name in (wanted["leader"], *wanted["members"]) if name not in self.ids]
            unknown = [one for one in (answer.leader, *(m.member_id for m in answer.members)) if one not in names]
            self.ids |= zip(unheard, unknown, strict=False)
            names |= zip(unknown, unheard, strict=False)
            found |= {
                "generation": answer.generation_id,
                "leader": names.get(answer.leader),
                "members": {names.get(one.member_id, "?"): bytes(one.metadata) for one in answer.members},
                "skips": answer.skip_assignment,
            }
        if "member" in wanted:
            found["member"] = names.get(answer.member_id)
        if "assignment" in wanted:
            found["assignment"] = bytes(answer.assignment)
        assert found == wanted, f"{actor.name}: {found} in place of {wanted}"

    def take(self, actor: Actor, expected: Expected) -> None:
        """Let an actor know what it was told."""
        says = expected.says
        if "member" in says:
            actor.member = says["member"]
        if "generation" in says:
            actor.generation, actor.has_to_sync = says["generation"], self.group.state != STABLE
        if expected.code in (25, 82):
            actor.member = None

    # Time

    def pass_time(self) -> None:
        """Let time pass, in which those who live say so."""
        begin, beats = self.now, iter(BEATS)
        beat = next(beats)
        for half in range(1, 2 * PASS + 1):
            self.server.pass_time(0.5)
            self.now = begin + half / 2
            self.group.expire(self.now)
            for name, transaction in self.transactions.items():
                transaction.expire(self.now)
                if not transaction.is_open:
                    self.held.pop(name, None)
            self.settle(is_timed=True)
            if half / 2 == beat:
                beat = next(beats, -1.0)
                for actor in self.actors.values():
                    if not (actor.waits or actor.is_silent) and actor.member is not None:
                        self.beat(actor)
                        self.settle(is_timed=True)

    def restart(self) -> None:
        self.server.restart()
        self.group = self.group.restarted(has_offsets=bool(self.held) or self.committed[1] >= 0)
        for actor in self.actors.values():
            if actor.waits:
                actor.life, actor.waits = actor.life + 1, None
            actor.has_to_sync = False

    # Producers

    def init(self, writer: Writer) -> None:
        writer.old = writer.producer
        writer.version = self.draw.choice((1, 2))
        answer = started(self.control, of=self.prefix + writer.name, timeout_ms=OPEN * self.server.tick_ms)
        epoch = self.transactions[writer.name].start()
        self.held.pop(writer.name, None)
        assert (answer.error_code, answer.producer_epoch) == (0, epoch), f"{writer.name}: {answer}, epoch {epoch}"
        writer.producer = ProducerIdAndEpoch(answer.producer_id, epoch)
        writer.last_end = None

    def produce(self, writer: Writer) -> None:
        assert writer.producer is not None
        self.produce_as(writer, writer.producer)

    def produce_as(self, writer: Writer, producer: ProducerIdAndEpoch) -> None:
        transaction, of = self.transactions[writer.name], self.prefix + writer.name
        is_taken = transaction.takes(producer.epoch, writer.version, self.now)
        place, value = TopicPartition(self.topic, 0), b"%d" % self.next_order()
        if writer.version == 1:
            codes = added(self.control, producer, place, of=of)
            wanted = [0 if is_taken else FENCED]
            assert codes == wanted, f"add: {codes} in place of {wanted}"
            if not is_taken:
                return
        sequence = writer.sequences.get(producer, 0)
        version = 11 if writer.version == 1 else 12
        codes = produced(self.control, producer, place, of=of, version=version, sequence=sequence, value=value)
        wanted = [0 if is_taken else OLD_EPOCH]
        assert codes == wanted, f"produce: {codes} in place of {wanted}"
        if is_taken:
            writer.sequences[producer] = sequence + 1
            transaction.held.append(value)

    def hold_offsets(self, writer: Writer) -> None:
        """Commit an offset in a transaction, as a member or as nobody."""
        assert writer.producer is not None
        transaction, of = self.transactions[writer.name], self.prefix + writer.name
        is_taken = transaction.takes(writer.producer.epoch, writer.version, self.now)
        actor = self.draw.choice([*self.actors.values()])
        name, generation = (actor.member, actor.generation) if self.draw.random() < 0.6 else (None, -1)
        generation = -1 if name is None else generation
        if writer.version == 1:
            code = offsets_added(self.control, writer.producer, of=of, group=self.group_id)
            wanted = 0 if is_taken else FENCED
            assert code == wanted, f"add offsets: {code} in place of {wanted}"
            if not is_taken:
                return
        code = committed_offset(
            self.control,
            writer.producer,
            of=of,
            version=3 if writer.version == 1 else 5,
            place=TopicPartition(self.topic, 0),
            group=self.group_id,
            member="" if name is None else self.ids[name],
            generation=generation,
            offset=self.next_order(),
        )
        wanted = self.group.commit_code(name, None, generation, in_transaction=True) if is_taken else OLD_EPOCH
        assert code == wanted, f"offsets of {name} in {generation}: {code} in place of {wanted}"
        if not wanted:
            self.held[writer.name] = self.order, self.order
            self.group.is_stored = True

    def end(self, writer: Writer) -> None:
        assert writer.producer is not None
        self.end_as(writer, writer.producer, commits=self.draw.random() < 0.6)

    def end_again(self, writer: Writer) -> None:
        """Ask once more, or for the other outcome."""
        assert writer.last_end is not None
        producer, commits = writer.last_end
        self.end_as(writer, producer, commits=commits if self.draw.random() < 0.7 else not commits)

    def use_old(self, writer: Writer) -> None:
        """A producer that was replaced does not know it."""
        assert writer.old is not None
        if self.draw.random() < 0.5:
            self.produce_as(writer, writer.old)
        else:
            self.end_as(writer, writer.old, commits=True)

    def end_as(self, writer: Writer, producer: ProducerIdAndEpoch, *, commits: bool) -> None:
        version = 4 if writer.version == 1 else 5
        answer = ended(self.control, producer, commits=commits, of=self.prefix + writer.name, version=version)
        was_open = self.transactions[writer.name].is_open
        wanted, values = self.transactions[writer.name].end(producer.epoch, writer.version, commits=commits)
        assert answer.error_code == wanted.code, f"end: {answer.error_code} in place of {wanted.code}"
        if wanted.code:
            return
        self.server.wait_for_markers(self.prefix + writer.name)
        self.values += values
        if was_open:
            held = self.held.pop(writer.name, (-1, -1))
            self.committed = max(self.committed, held) if commits else self.committed
        if version == 5:
            assert answer.producer_epoch == wanted.epoch, f"end: epoch {answer.producer_epoch}, not {wanted.epoch}"
        writer.last_end = producer, commits
        if producer == writer.producer:
            writer.producer = producer._replace(epoch=wanted.epoch)

    # What is there

    def fetch(self) -> None:
        """Ask for the committed offset, as it is and as it is stable."""
        asked = OffsetFetchRequest.OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])
        for requires_stable in (False, True):
            group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.group_id, topics=[asked])
            request = OffsetFetchRequest(groups=[group], require_stable=requires_stable)
            (of_group,) = self.control.ask(request, version=8).groups
            found = of_group.topics[0].partitions[0]
            is_unstable = requires_stable and bool(self.held)
            wanted = (UNSTABLE, -1) if is_unstable else (0, self.committed[1])
            assert (found.error_code, found.committed_offset) == wanted, f"offsets: {found} in place of {wanted}"

    def finish(self) -> None:
        """End what is open, and compare what is committed."""
        for writer in self.writers.values():
            self.init(writer)
        self.fetch()
        found = read(self.control, TopicPartition(self.topic, 0))
        wanted = sorted(self.values, key=int)
        assert found == wanted, f"values {found} in place of {wanted}"


class _Inline(ThreadPoolExecutor):
    """Does at once what is to be done in a thread: nothing else goes on meanwhile."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the caller that waits for the future raises it
            done.set_exception(error)
        return done


class BrokerInProcess:
    """A broker of a new root, asked by frames in a loop of its own, whose time is the caller's.

    Threads: the caller's.
    """

    tick_ms = 1000
    forgets_groups = restarts = True
    is_real = False

    def __init__(self, root: Path | str, topic: str) -> None:
        self.clock = ManualClock()
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(_Inline())
        self.store: WritableStore = open_store(root, "a")
        self.store.create_topic(topic, 1)
        self._sent = 0
        self._calls: dict[str, tuple[type[Message], int, asyncio.Future[Any]]] = {}
        self._start()

    def _start(self) -> None:
        config = ServerConfig(groups=GroupSettings(min_session_timeout_ms=1))
        self.news = News(self.store, self.loop)
        self.broker = broker = Broker(self.store, config, self.news, Faults())
        broker.groups = Groups(self.store, config.groups, topic_id=broker.topic_id, clock=self.clock)
        assert broker.transactions is not None
        broker.transactions.coordinator = TransactionCoordinator(self.store, clock=self.clock)
        self.session = Session(Logins(SecurityConfig(), failure_delay_s=0))

    def _end(self) -> None:
        for _, _, call in self._calls.values():
            call.cancel()
        self._calls.clear()
        self._run(asyncio.sleep(0))
        self.broker.groups.close()
        self.news.close()

    def _run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def send(self, key: str, body: Message, *, version: int) -> None:
        self._sent += 1
        frame = bytearray(frame_of(body, version=version, correlation_id=self._sent)[4:])

        async def answered() -> Any:
            answer = respond(self.broker, frame, Peer("127.0.0.1", 9092), client_host="127.0.0.1", session=self.session)
            parts = await answer if asyncio.iscoroutine(answer) else answer
            return b"".join(map(bytes, parts))

        self._calls[key] = type(body), version, self.loop.create_task(answered())

    async def _turns(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    def receive(self, key: str) -> Any:
        kind, version, call = self._calls.pop(key)
        self._run(asyncio.wait({call}, timeout=_WAIT_S))
        assert call.done(), f"{key}: {kind.__name__} has no answer"
        frame = bytearray(call.result())
        return decode_response(frame[4:], api_key=kind.schema.api_keys[0], version=version)[1]

    def has_answer(self, key: str) -> bool:
        return self._calls[key][2].done()

    def wait_until(self, group_id: str, state: str, members: int) -> None:
        """Let calls be taken that are not answered yet."""
        self._run(self._turns())
        group = self.broker.groups.coordinator.groups[group_id]
        found = group.state.value, len(group.membership.members)
        assert found == (state, members), f"the group is {found} in place of {(state, members)}"

    def wait_for_markers(self, transactional_id: str) -> None:
        """They are written before a transaction's end is answered."""

    def drop(self, key: str) -> None:
        if key in self._calls:
            self._run(self._turns())
            self._calls.pop(key)[2].cancel()

    def pass_time(self, ticks: float) -> None:
        self.clock.now_ms += int(ticks * self.tick_ms)
        groups, transactions = self.broker.groups, self.broker.transactions
        assert transactions is not None
        due_ms = groups.coordinator.next_ms
        if due_ms is not None and due_ms <= groups._now_ms():
            self.loop.call_soon(groups._look_after)
            self._run(self._turns())
        transactions.look_after()

    def restart(self) -> None:
        """Start again, with the groups loaded: their sessions begin then."""
        self._end()
        self._start()
        self._run(self.broker.groups.ready())

    def close(self) -> None:
        self._end()
        self.loop.close()
        self.store.close()


@contextmanager
def broker_in_process(root: Path | str, topic: str = "t") -> Iterator[BrokerInProcess]:
    broker = BrokerInProcess(root, topic)
    try:
        yield broker
    finally:
        broker.close()
