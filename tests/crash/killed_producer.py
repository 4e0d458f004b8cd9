"""A transactional producer to be killed, that reports how each transaction ended; for test_kill_producer.py."""

from __future__ import annotations

import random

from kstore.config import LogConfig
from kstore.coordinator.transaction.coordinator import TransactionCoordinator
from kstore.env.process import SYSTEM_CLOCK
from kstore.producer.sending.store_sink import StoreSink
from kstore.producer.transactions import TransactionManager
from kstore.store.store import WritableStore, open_store
from kstore.types import TopicPartition
from tests.crash.nursery import report, serve
from tests.fakes.sending import Producing

# Kinds of a report, with the number of the transaction.
COMMITTED, ABORTED = range(2, 4)
TOPIC, PARTITIONS, TRANSACTIONAL_ID = "t", 3, "killed"
MOST_RECORDS = 30
CONFIG = LogConfig(segment_bytes=32 * 1024, segment_index_bytes=4096)


def opened(path: str) -> WritableStore:
    """Open the store, with all partitions of its topic."""
    store = open_store(path, "a", CONFIG)
    if TOPIC not in store.topics:
        store.create_topic(TOPIC, PARTITIONS)
    store.create_partitions(TOPIC, PARTITIONS)
    return store


def coordinator_of(store: WritableStore) -> TransactionCoordinator:
    return TransactionCoordinator(store, partition_count=2)


def values_of(number: int) -> list[bytes]:
    """The records of a transaction; each says how many there are."""
    rng = random.Random(number)
    count = rng.randint(1, MOST_RECORDS)
    return [b"%d/%d/%d/" % (number, at, count) + b"x" * rng.choice([10, 300]) for at in range(count)]


def produce_until_killed(path: str, number: int, seed: int, is_honest: bool) -> None:
    """Not honest, a planted fault: a commit is reported before it is made."""
    rng = random.Random(seed)
    store = opened(path)
    coordinator = coordinator_of(store)
    manager = TransactionManager(transactional_id=TRANSACTIONAL_ID, coordinator=coordinator)
    parts = Producing(
        StoreSink(store, coordinator=coordinator),
        manager=manager,
        clock=SYSTEM_CLOCK,
        delivery_timeout_ms=120_000,
        max_block_ms=60_000,
    )
    parts.sender.start()
    result = manager.init_transactions()
    parts.sender.wakeup()
    result.wait(60)
    while True:
        manager.begin_transaction()
        for value in values_of(number):
            to = TopicPartition(TOPIC, rng.randrange(PARTITIONS))
            parts.append(value, to=to)
            manager.maybe_add_partition(to)
        is_commit = rng.random() < 0.7
        if is_commit and not is_honest:
            report(COMMITTED, number)
        result = manager.begin_commit() if is_commit else manager.begin_abort()
        parts.sender.wakeup()
        result.wait(60)
        report(COMMITTED if is_commit else ABORTED, number)
        number += 1


if __name__ == "__main__":
    serve(produce_until_killed)
