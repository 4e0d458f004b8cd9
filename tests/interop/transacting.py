"""Transactional requests of both versions: a server of kstore answers them as a broker, and each goes on with the
transactions that the other one left in a root.

Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kstore.coordinator.producer_ids import MAX_PRODUCER_EPOCH, ProducerIdAndEpoch
from kstore.coordinator.transaction.coordinator import TransactionCoordinator
from kstore.errors import LogFailedError
from kstore.serve.config import ServerConfig
from kstore.serve.server import Server
from kstore.store.store import WritableStore, open_store
from kstore.wire.messages import CreateTopicsRequest, FindCoordinatorRequest
from tests.fakes.failing_store import FailingStore
from tests.interop.broker import NODE_ID, Broker
from tests.interop.store import CLUSTER_ID, Problems
from tests.interop.transactions import differing
from tests.making.serving import RawClient
from tests.making.transacting import (
    NOBODY,
    T0,
    T1,
    added,
    committed_offset,
    ended,
    next_of,
    offsets_added,
    produced,
    producer_of,
    read,
    started,
)
from tests.making.transactions import data

# A broker asks for patience while it loads, and while the markers of the last transaction are not all written.
PATIENCE = {14, 15, 16, 19, 51}
TRIES, PAUSE_S = 200, 0.1
# How kstore leaves transactions: the appends of the end before it dies, and whether the epoch is the last one.
LEFT = {"open": (0, False), "decided": (1, False), "marked": (2, False), "used up": (1, True), "renewed": (9, True)}


class At(NamedTuple):
    bootstrap_servers: str


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    root = work / "root"
    with open_store(root, "a", cluster_id=CLUSTER_ID, node_id=NODE_ID):
        pass
    broker = Broker(root, work)
    broker.format(CLUSTER_ID)
    with asked(broker) as client:
        found = list(codes(client))
        undone = begun(client, "of a broker")
        done = begun(client, "ended by a broker")
        following = patient(next_of, client, done, of="ended by a broker")
    with open_store(work / "own", "a") as store, Server(store, config=ServerConfig(port=0)) as server:
        store.create_topic("t", 2)
        with RawClient(server) as client:
            wanted = list(codes(client))
    yield "a server gives transactional producers the codes of a broker", different(found, wanted)
    with Server(root, config=ServerConfig(port=0)) as server, RawClient(server) as client:
        again = next_of(client, done, of="ended by a broker")
        yield "a server repeats what a broker said", differing("the next epoch", again, following)
        next_of(client, undone, of="of a broker")
        values = read(client, T0)[-2:]
        yield (
            "a server ends what a broker left open",
            differing("values", values, [b"of a broker", b"ended by a broker"]),
        )
    with open_store(root, "a") as store:
        left = {name: leave(store, name) for name in LEFT}
    with asked(broker) as client:
        yield "a broker goes on with what kstore left", gone_on(client, left)


@contextmanager
def asked(broker: Broker) -> Iterator[RawClient]:
    """Start a broker with the topic t and both coordinators."""
    with broker.running(), RawClient(At(f"127.0.0.1:{broker.port}")) as client:
        topic = CreateTopicsRequest.CreatableTopic(
            name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[]
        )
        client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), version=7)
        for key_type in (0, 1):
            request = FindCoordinatorRequest(key="x", key_type=key_type)
            patient(client.ask, request, version=1)
        yield client


def patient(ask: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return what is answered once the broker does not ask for patience any more."""
    for _ in range(TRIES):
        with suppress(AssertionError):
            answer = ask(*arguments, **options)
            codes = answer if isinstance(answer, list) else [getattr(answer, "error_code", answer)]
            if isinstance(answer, ProducerIdAndEpoch) or not PATIENCE.intersection(codes):
                return answer
        time.sleep(PAUSE_S)
    raise AssertionError("a broker asked for patience for too long")


def begun(client: RawClient, of: str) -> ProducerIdAndEpoch:
    """Leave a transaction of version 2 open."""
    producer = patient(producer_of, client, of=of)
    patient(produced, client, producer, T0, of=of, version=12, value=of.encode())
    return ProducerIdAndEpoch(*producer)


def codes(client: RawClient) -> Iterator[tuple[str, Any]]:
    """Ask what a transactional producer may ask, right and wrong, in all versions; yield what is answered."""
    for arguments in ({"of": ""}, {"timeout_ms": 0}, {"timeout_ms": 900_001}, {"producer_id": 5}, {"epoch": 5}):
        yield f"init {arguments}", started(client, **arguments).error_code
    fenced = patient(producer_of, client, of="fenced")
    patient(producer_of, client, of="fenced")
    for of, producer in (("fenced", fenced), ("fenced", NOBODY), ("nobody", NOBODY)):
        name = f"{of}, {'fenced' if producer == fenced else 'another'}"
        for version in range(6):
            yield f"{name}: add {version}", patient(added, client, producer, T0, of=of, version=version)
        for version in (4, 5):
            asked = patient(added, client, producer, T0, of=of, version=version, verifies=True)
            yield f"{name}: verify {version}", asked
        for version in range(4):
            yield f"{name}: offsets {version}", patient(offsets_added, client, producer, of=of, version=version)
        for version in range(6):
            yield f"{name}: end {version}", patient(ended, client, producer, of=of, version=version).error_code
        for version in (9, 10, 11, 12):
            yield f"{name}: data {version}", patient(produced, client, producer, T0, of=of, version=version)
        for version in range(6):
            yield f"{name}: commit {version}", patient(committed_offset, client, producer, of=of, version=version)
    yield from additions(client)
    for version, data_version in ((4, 11), (5, 12)):
        for commits in (True, False):
            yield from ends(client, f"ends {version} {commits}", version, data_version, commits=commits)


def additions(client: RawClient) -> Iterator[tuple[str, Any]]:
    """Add partitions, and ask for them, as brokers do for their clients."""
    for version in (4, 5):
        of = f"added {version}"
        producer = patient(producer_of, client, of=of)
        for verifies in (True, False, True):
            for places in ((T0, ("none", 0)), (T0,), (T1,)):
                answer = patient(added, client, producer, *places, of=of, version=version, verifies=verifies)
                yield f"{of}: {places}, {verifies}", answer
        yield f"{of}: data", patient(produced, client, producer, T0, of=of)
        yield f"{of}: end", patient(ended, client, producer, of=of).error_code
        yield f"{of}: none open", patient(added, client, producer, T0, of=of, version=version, verifies=True)


def ends(client: RawClient, of: str, version: int, data_version: int, *, commits: bool) -> Iterator[tuple[str, Any]]:
    """End transactions of one producer in all ways."""
    producer = patient(producer_of, client, of=of)

    def end(what: str, *, commits: bool, version: int = version, epoch: int = producer.epoch) -> tuple[str, Any]:
        asks = producer._replace(epoch=epoch)
        answer = patient(ended, client, asks, of=of, commits=commits, version=version)
        return f"{of}: {what}", (answer.error_code, answer.producer_epoch)

    yield end("commit of nothing", commits=True)
    yield f"{of}: data", patient(produced, client, producer, T0, of=of, version=data_version)
    if version == 4:
        yield f"{of}: add", patient(added, client, producer, T0, of=of)
        yield f"{of}: added", patient(produced, client, producer, T0, of=of, version=data_version)
    yield end("end", commits=commits)
    yield end("again", commits=commits)
    yield end("the other way", commits=not commits)
    yield end("in the other version", commits=True, version=9 - version)
    yield end("the next epoch commits nothing", commits=True, epoch=producer.epoch + 1)
    yield end("the next epoch aborts nothing", commits=False, epoch=producer.epoch + 1)


def leave(store: WritableStore, of: str) -> ProducerIdAndEpoch:
    """Leave a transaction of version 2 as a process that dies while it commits."""
    appends, is_last_epoch = LEFT[of]
    coordinator = TransactionCoordinator(store)
    producer = coordinator.init_producer_id(of)
    if is_last_epoch:
        producer = producer._replace(epoch=MAX_PRODUCER_EPOCH - 1)
        state = coordinator.state(of)
        if state is not None:
            coordinator._save(coordinator._entry(of), replace(state, producer=producer), ack="written")
    coordinator.add_partitions(of, producer, [T0], client_version=2)
    store.log(*T0).append(data(producer, count=1, value=of.encode()))
    failing = FailingStore(store)
    failing.left = appends
    if appends:
        with suppress(LogFailedError):
            TransactionCoordinator(failing).end_transaction(of, producer, is_commit=True, client_version=2)
    return producer


def gone_on(client: RawClient, left: dict[str, ProducerIdAndEpoch]) -> Problems:
    """Commit what was left, and one transaction more of each producer."""
    for of, producer in left.items():
        following = patient(next_of, client, producer, of=of)
        is_new = following.producer_id != producer.producer_id
        wanted_next = (True, 0) if LEFT[of][1] else (False, producer.epoch + 1)
        yield from differing(f"{of}: the next producer", (is_new, following.epoch), wanted_next)
        patient(produced, client, following, T0, of=of, version=12, value=b"more")
        patient(next_of, client, following, of=of)
    wanted = [of.encode() for of in left] + [b"more"] * len(left)
    for _ in range(TRIES):
        if len(read(client, T0)) >= len(wanted) and read(client, T0)[-1] == b"more":
            break
        time.sleep(PAUSE_S)
    yield from differing("values", sorted(read(client, T0)[-len(wanted) :]), sorted(wanted))


def different(found: list[tuple[str, Any]], wanted: list[tuple[str, Any]]) -> Problems:
    for (name, of_broker), (_, of_server) in zip(found, wanted, strict=True):
        yield from differing(f"{name} (a broker, and kstore)", of_server, of_broker)
