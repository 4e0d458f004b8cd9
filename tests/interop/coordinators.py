"""Random histories of members and producers (tests/making/served_histories.py) on a broker that runs.

Each is held against the same model as a server of kstore. Many go on at once, since most of a history is waiting for
sessions to end; one that differs is run again, since a broker that is slow to answer lets time pass too.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kstore.store.store import open_store
from kstore.wire.classes import Message
from kstore.wire.messages import CreateTopicsRequest, DescribeGroupsRequest
from tests.interop.broker import NODE_ID, Broker
from tests.interop.store import CLUSTER_ID, Problems
from tests.interop.transacting import PATIENCE, PAUSE_S, TRIES, At, asked
from tests.making.served_histories import PASS, History
from tests.making.serving import RawClient

HISTORIES = 200
_AT_ONCE, _BUSY = 50, 4
_TAKEN_S = 0.05
_TRIES = 3
_HALF = 0.5
SETTINGS = """
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
"""


class OfBroker:
    """A broker as one history sees it; its time is the real one.

    Args: busy: held while a history takes steps, so that it does so in much less than a tick.
    """

    tick_ms = 6000
    forgets_groups = restarts = False
    is_real = True

    def __init__(self, address: str, busy: threading.Semaphore) -> None:
        self._address = At(address)
        self._busy = busy
        self._clients: dict[str, RawClient] = {}
        self._asked: dict[str, tuple[Message, int]] = {}
        self._halves = 0
        self._began_s = self._ended_s = time.monotonic()

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

    def has_answer(self, key: str) -> bool:
        return bool(select.select([self._clients[key].socket], [], [], 0)[0])

    def drop(self, key: str) -> None:
        client = self._clients.pop(key, None)
        if client is not None:
            client.socket.close()

    def pass_time(self, ticks: float) -> None:
        """Sleep until so much is over since time began to pass."""
        if self._halves == 0:
            self._busy.release()
            # The requests before it were made between the end of the last pass and now.
            self._began_s = (self._ended_s + time.monotonic()) / 2
        self._halves += round(ticks / _HALF)
        time.sleep(max(self._began_s + self._halves * _HALF * self.tick_ms / 1000 - time.monotonic(), 0))
        if self._halves == PASS / _HALF:
            self._halves = 0
            self._ended_s = time.monotonic()
            self._busy.acquire()

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
    broker = Broker(root, work, SETTINGS)
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
        yield f"a broker tells {count} histories what the model says", different(broker, seed=seed, count=count)


def different(broker: Broker, *, seed: int, count: int) -> Problems:
    busy = threading.Semaphore(_BUSY)

    def problem(number: int) -> str | None:
        for again in range(_TRIES):
            found = one_history(broker, busy, f"{seed}-{number}", topic=f"t{number}-{again}")
            if found is None:
                break
        return found

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for number, found in enumerate(pool.map(problem, range(count))):
            if found is not None:
                yield f"history {seed}-{number}: {found}"


def one_history(broker: Broker, busy: threading.Semaphore, seed: str, *, topic: str) -> str | None:
    server = OfBroker(f"127.0.0.1:{broker.port}", busy)
    busy.acquire()
    try:
        History(seed, server, topic=topic, prefix=f"{topic}-").run()
    except (AssertionError, OSError, KeyError) as error:
        return f"{error!r}"
    finally:
        busy.release()
        server.close()
    return None
