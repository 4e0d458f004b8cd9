"""Random histories of members and producers (tests/making/served_histories.py) on a broker that runs.

Each is held against the same model as a server of kstore. The broker's time is the test's (timed_broker.py): many
histories go on at once, and time passes for all of them together when each wants it to. One that differs is run again,
since a broker says nowhere when it has done what its timers are for.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kstore.store.store import open_store
from kstore.wire.classes import Message
from kstore.wire.messages import CreateTopicsRequest, DescribeGroupsRequest, DescribeTransactionsRequest
from tests.interop.broker import NODE_ID
from tests.interop.store import CLUSTER_ID, Problems
from tests.interop.timed_broker import TimedBroker, build
from tests.interop.transacting import PATIENCE, PAUSE_S, TRIES, At, asked
from tests.making.served_histories import History
from tests.making.serving import RawClient

HISTORIES = 200
_AT_ONCE = 100
_TAKEN_S = 0.05
# How long threads of a broker need to see that its time has moved, and to do what is due.
_SEEN_S = 0.6
_TRIES = 3
# No group without members is removed, as a broker does every ten minutes: histories take hours of its time.
SETTINGS = """
offsets.retention.check.interval.ms=2000000000
transaction.abort.timed.out.transaction.cleanup.interval.ms=50
"""


class Together:
    """Lets the time of a broker pass when each of some histories that have not ended waits for that."""

    def __init__(self, broker: TimedBroker, histories: int) -> None:
        self._broker = broker
        self._changed = threading.Condition()
        self._left = histories
        self._waiting = self._moves = 0

    def pass_time(self, milliseconds: int) -> None:
        with self._changed:
            moves = self._moves
            self._waiting += 1
            self._move_if_all_wait(milliseconds)
            while self._moves == moves:
                self._changed.wait(1)

    def end(self, milliseconds: int) -> None:
        """One history has ended.  Args: as of pass_time."""
        with self._changed:
            self._left -= 1
            self._move_if_all_wait(milliseconds)

    def _move_if_all_wait(self, milliseconds: int) -> None:
        if 0 < self._waiting == self._left:
            self._broker.move(milliseconds)
            time.sleep(_SEEN_S)
            self._waiting = 0
            self._moves += 1
            self._changed.notify_all()


class OfBroker:
    """A broker as one history sees it."""

    # Of less than 30 s: a broker gives new members that wait to join 300 s, and a rebalance takes 10 ticks.
    tick_ms = 20_000
    forgets_groups = restarts = False
    is_real = True

    def __init__(self, address: str, together: Together) -> None:
        self._address = At(address)
        self._together = together
        self._clients: dict[str, RawClient] = {}
        self._asked: dict[str, tuple[Message, int]] = {}

    def send(self, key: str, body: Message, *, version: int) -> None:
        if key not in self._clients:
            self._clients[key] = RawClient(self._address)
        self._asked[key] = body, version
        self._clients[key].send(body, version=version)

    def receive(self, key: str) -> Any:
        """Return the answer to what was sent; a control that is asked for patience asks again."""
        body, version = self._asked[key]
        for _ in range(TRIES):
            try:
                _, answer = self._clients[key].receive(type(body).schema.api_keys[0], version=version)
            except TimeoutError:
                raise AssertionError(f"{key}: {type(body).__name__} has no answer") from None
            if not PATIENCE.intersection(codes_in(answer)):
                return answer
            time.sleep(PAUSE_S)
            self._clients[key].send(body, version=version)
        raise AssertionError(f"{type(body).__name__}: a broker asked for patience for too long")

    def wait_until(self, group_id: str, state: str, members: int) -> None:
        """Wait for calls to be taken that are not answered yet: connections are read in no order."""
        found = None
        for _ in range(TRIES):
            self.send("control", DescribeGroupsRequest(groups=[group_id]), version=5)
            (group,) = self.receive("control").groups
            found = group.group_state, len(group.members)
            if found == (state, members):
                break
            time.sleep(PAUSE_S)
        assert found == (state, members), f"the group is {found} in place of {(state, members)}"
        # What does not show: a member that is there has joined again.
        time.sleep(_TAKEN_S)

    def wait_for_markers(self, transactional_id: str) -> None:
        """Wait until a transaction has ended that a broker has only decided to end when it answers."""
        for _ in range(TRIES):
            self.send("control", DescribeTransactionsRequest(transactional_ids=[transactional_id]), version=0)
            (state,) = self.receive("control").transaction_states
            if not state.transaction_state.startswith("Prepare"):
                return
            time.sleep(PAUSE_S)
        raise AssertionError(f"{transactional_id}: {state.transaction_state} for too long")

    def has_answer(self, key: str) -> bool:
        return bool(select.select([self._clients[key].socket], [], [], 0)[0])

    def drop(self, key: str) -> None:
        client = self._clients.pop(key, None)
        if client is not None:
            client.socket.close()

    def pass_time(self, ticks: float) -> None:
        self._together.pass_time(int(ticks * self.tick_ms))

    def restart(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        for client in self._clients.values():
            client.socket.close()


def codes_in(answer: Any) -> Iterator[int]:
    """Yield the codes of an answer, of all that is in it."""
    if isinstance(answer, list):
        for one in answer:
            yield from codes_in(one)
    elif isinstance(answer, Message):
        for name in answer.__slots__:
            value = getattr(answer, name)
            if name.endswith("error_code"):
                yield value
            elif isinstance(value, (list, Message)):
                yield from codes_in(value)


def steps(work: Path, *, seed: int = 1, count: int = HISTORIES) -> Iterator[tuple[str, Problems]]:
    root = work / "root"
    with open_store(root, "a", cluster_id=CLUSTER_ID, node_id=NODE_ID):
        pass
    build()
    broker = TimedBroker(root, work, SETTINGS)
    broker.format(CLUSTER_ID)
    with asked(broker) as client:
        names = [f"t{number}-{again}" for number in range(count) for again in range(_TRIES)]
        for first in range(0, len(names), 50):
            topics = [
                CreateTopicsRequest.CreatableTopic(
                    name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
                )
                for name in names[first : first + 50]
            ]
            client.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), version=7)
        broker.drive()
        yield f"a broker tells {count} histories what the model says", different(broker, seed=seed, count=count)


def different(broker: TimedBroker, *, seed: int, count: int) -> Problems:
    for first in range(0, count, _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, count))
        found: dict[int, str] = dict.fromkeys(numbers, "")
        for again in range(_TRIES):
            found = at_once(broker, found, seed=seed, again=again)
        yield from (f"history {seed}-{number}: {one}" for number, one in found.items())


def at_once(broker: TimedBroker, numbers: Collection[int], *, seed: int, again: int) -> dict[int, str]:
    """Run histories at once; return what differs of those that differ."""
    together = Together(broker, len(numbers))
    with ThreadPoolExecutor(max(len(numbers), 1)) as pool:
        found = pool.map(lambda one: one_history(broker, together, f"{seed}-{one}", topic=f"t{one}-{again}"), numbers)
        return {number: problem for number, problem in zip(numbers, found, strict=True) if problem is not None}


def one_history(broker: TimedBroker, together: Together, seed: str, *, topic: str) -> str | None:
    server = OfBroker(broker.address, together)
    try:
        History(seed, server, topic=topic, prefix=f"{topic}-").run()
    except (AssertionError, OSError, KeyError) as error:
        return f"{error!r}"
    finally:
        together.end(OfBroker.tick_ms // 2)
        server.close()
    return None
