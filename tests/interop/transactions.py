"""Transactions of kstore's own producer in a root that a broker takes over, and that kstore takes back from it.

Each step gives problems, one line each; none means that it went as promised.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kstore.coordinator.transaction.coordinator import TransactionCoordinator
from kstore.env.process import SYSTEM_CLOCK
from kstore.errors import LogFailedError
from kstore.producer.sending.store_sink import StoreSink
from kstore.producer.transactions import TransactionManager
from kstore.store.store import WritableStore, open_store
from kstore.types import TRANSACTION_STATE_TOPIC, TopicPartition
from tests.fakes.sending import Producing
from tests.interop.broker import NODE_ID, Broker, tool
from tests.interop.comparison import hashed
from tests.interop.store import CLUSTER_ID, records_of, topic_id

TOPIC = "sent"
TRANSACTIONS_COMMAND = "org.apache.kafka.tools.TransactionsCommand"
# How each transactional id is left, and what a broker then says of it.
LEFT = {"done": "CompleteCommit", "undone": "CompleteAbort", "decided": "CompleteCommit", "open": "Ongoing"}
COMMITTED = [b"done", b"decided"]

Problems = Iterator[str]


def steps(work: Path) -> Iterator[tuple[str, Problems]]:
    root = work / "root"
    with open_store(root, "a", cluster_id=CLUSTER_ID, node_id=NODE_ID):
        pass
    broker = Broker(root, work)
    broker.format(CLUSTER_ID)
    with broker.running() as client:
        topic_id(client, TOPIC, ())
        topic_id(client, TRANSACTION_STATE_TOPIC, ("cleanup.policy=compact",))
    with open_store(root, "a") as store:
        for transactional_id in LEFT:
            leave(store, transactional_id)
    with broker.running() as client:
        yield "a broker knows the transactions that kstore left", described(broker)
        lines = records_of(client, TOPIC, "read_committed")
        values = [line["value"] for line in lines]
        wanted = [hashed(value) for value in COMMITTED]
        yield "a consumer reads what kstore committed", differing("hashes of the values", values, wanted)
    with open_store(root, "a") as store:
        yield "kstore goes on where the broker stopped", taken_back(store)


def producer(store: WritableStore, transactional_id: str, coordinator: Any = None) -> Producing:
    """A producer that has its id."""
    found = TransactionCoordinator(store) if coordinator is None else coordinator
    manager = TransactionManager(transactional_id=transactional_id, coordinator=found)
    parts = Producing(StoreSink(store, coordinator=found), manager=manager, clock=SYSTEM_CLOCK)
    result = manager.init_transactions()
    parts.run(2)
    result.wait(0)
    return parts


def send(parts: Producing, value: bytes) -> None:
    to = TopicPartition(TOPIC, 0)
    manager = parts.manager
    if manager is None:
        raise TypeError("a transactional producer has a manager")
    manager.begin_transaction()
    parts.append(value, to=to)
    manager.maybe_add_partition(to)
    parts.run(4)


def end(parts: Producing, *, is_commit: bool) -> None:
    manager = parts.manager
    if manager is None:
        raise TypeError("a transactional producer has a manager")
    result = manager.begin_commit() if is_commit else manager.begin_abort()
    parts.run(6)
    result.wait(0)


class MarkerlessCoordinator(TransactionCoordinator):
    """One that dies before its first marker."""

    def _marker(self, *_: Any, **__: Any) -> Any:
        raise LogFailedError("died")


def leave(store: WritableStore, transactional_id: str) -> None:
    coordinator = MarkerlessCoordinator(store) if transactional_id == "decided" else TransactionCoordinator(store)
    parts = producer(store, transactional_id, coordinator)
    send(parts, transactional_id.encode())
    if transactional_id in ("done", "undone"):
        end(parts, is_commit=transactional_id == "done")
    elif transactional_id == "decided":
        try:
            end(parts, is_commit=True)
        except LogFailedError:
            return


def described(broker: Broker) -> Problems:
    for transactional_id, wanted in LEFT.items():
        address = f"127.0.0.1:{broker.port}"
        arguments = ("--bootstrap-server", address, "describe", "--transactional-id", transactional_id)
        words = tool(TRANSACTIONS_COMMAND, *arguments).split()
        if transactional_id not in words:
            yield f"{transactional_id}: not known: {words}"
        elif words[words.index(transactional_id) + 3] != wanted:
            yield f"{transactional_id}: expected {wanted}, found {words[words.index(transactional_id) + 3]}"


def taken_back(store: WritableStore) -> Problems:
    for transactional_id in LEFT:
        parts = producer(store, transactional_id)
        send(parts, b"again " + transactional_id.encode())
        end(parts, is_commit=True)
    log = store.log(TOPIC)
    values = [record.value for record in log.read(isolation="read_committed")]
    again = [b"again " + transactional_id.encode() for transactional_id in LEFT]
    yield from differing("values", values, COMMITTED + again)
    yield from differing("last stable offset", log.last_stable_offset, log.log_end_offset)


def differing(what: str, found: object, wanted: object) -> Problems:
    if found != wanted:
        yield f"{what}: expected {wanted}, found {found}"
