"""Goal: threads that switch anywhere lose, double, reorder and mix nothing, transactions neither.
Method: producers of all kinds at once on one store, threads changed as often as the interpreter can; all is read."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kstore.config import LogConfig
from kstore.errors import TransactionStateError
from kstore.producer import Producer
from kstore.store.store import WritableStore, open_store

SWITCH_SECONDS = 1e-6
PLAIN, COLUMNS, TRANSACTIONS = "plain", "columns", "transactions"
PARTITIONS = 3
WAIT_SECONDS = 60


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WritableStore]:
    with open_store(tmp_path / "root", "a", LogConfig(segment_bytes=300_000)) as opened:
        for topic in (PLAIN, COLUMNS, TRANSACTIONS):
            opened.create_topic(topic, PARTITIONS)
        yield opened


@pytest.fixture
def switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    yield
    sys.setswitchinterval(before)


class Race:
    """What the threads sent; the first error of one ends them all."""

    def __init__(self, store: WritableStore, seed: int) -> None:
        self.store = store
        self.seed = seed
        self.sent: dict[tuple[str, int], int] = {}
        self.outcomes: dict[tuple[int, int], int] = {}
        self._is_over = threading.Event()

    def run(self, seconds: float, *runners: Callable[[random.Random, int], None]) -> None:
        with ThreadPoolExecutor(len(runners)) as pool:
            running = [
                pool.submit(runner, random.Random(self.seed * 100 + number), number)
                for number, runner in enumerate(runners)
            ]
            wait(running, seconds, FIRST_EXCEPTION)
            self._is_over.set()
        for one in running:
            one.result()

    def plain(self, producer: Producer) -> Callable[[random.Random, int], None]:
        """One key for each thread, so that all it sends has an order."""

        def run(rng: random.Random, number: int) -> None:
            count = 0
            while not self._is_over.is_set():
                producer.send(PLAIN, b"%d/%d" % (number, count), key=b"%d" % number)
                count += 1
                if rng.random() < 0.01:
                    producer.flush(WAIT_SECONDS)
            self.sent[PLAIN, number] = count

        return run

    def columns(self, producer: Producer) -> Callable[[random.Random, int], None]:
        def run(rng: random.Random, number: int) -> None:
            count = 0
            while not self._is_over.is_set():
                rows = range(count, count + rng.randint(1, 300))
                values = [b"%d/%d" % (number, row) for row in rows]
                producer.send_columns(COLUMNS, pa.record_batch({"value": values})).result(WAIT_SECONDS)
                count = rows.stop
            self.sent[COLUMNS, number] = count

        return run

    def transactions(self, rng: random.Random, number: int) -> None:
        transaction = 0
        with Producer(self.store, transactional_id=f"id-{number}", linger_ms=rng.choice([0, 3])) as producer:
            producer.init_transactions()
            while not self._is_over.is_set():
                count = rng.choice([0, 1, 1, 2, 5, 60])
                producer.begin_transaction()
                futures = [
                    producer.send(TRANSACTIONS, b"%d/%d/%d" % (number, transaction, at), key=b"%d" % at)
                    for at in range(count)
                ]
                if rng.random() < 0.4:
                    producer.abort_transaction()
                    self.outcomes[number, transaction] = 0
                else:
                    producer.commit_transaction()
                    self.outcomes[number, transaction] = count
                assert all(future.done() for future in futures)
                transaction += 1


def numbers(store: WritableStore, topic: str) -> Iterator[tuple[int, ...]]:
    """The numbers in the values of committed records, partition by partition."""
    for partition in range(PARTITIONS):
        log = store.log(topic, partition)
        assert log.last_stable_offset == log.log_end_offset
        for record in log.read(isolation="read_committed"):
            yield tuple(int(number) for number in bytes(record.value or b"").split(b"/"))


def check(race: Race) -> None:
    for (topic, number), count in race.sent.items():
        found = [at for sender, at in numbers(race.store, topic) if sender == number]
        assert (found if topic == PLAIN else sorted(found)) == list(range(count))
    committed = Counter((number, transaction) for number, transaction, _ in numbers(race.store, TRANSACTIONS))
    assert committed == Counter({one: count for one, count in race.outcomes.items() if count})


def race_for(store: WritableStore, seconds: float, *, seed: int) -> None:
    rng = random.Random(seed)
    race = Race(store, seed)
    settings = {
        "compression_type": rng.choice(["none", "lz4"]),
        "linger_ms": rng.choice([0, 5]),
        "batch_size": rng.choice([300, 16384]),
        "buffer_memory": rng.choice([1 << 16, 1 << 25]),
    }
    with Producer(store, **settings) as producer:
        senders = [race.plain(producer), race.plain(producer), race.columns(producer)]
        race.run(seconds, *senders, *[race.transactions] * 3)
    assert len(race.sent) == len(senders)
    assert race.outcomes
    check(race)


@pytest.mark.usefixtures("switching")
def test_producers_of_all_kinds_beside_each_other_keep_all_in_order(store: WritableStore) -> None:
    race_for(store, 5, seed=1)


@pytest.mark.long
@pytest.mark.usefixtures("switching")
@pytest.mark.parametrize("seed", range(2, 10))
def test_producers_of_all_kinds_keep_all_in_order_for_long(store: WritableStore, seed: int) -> None:
    race_for(store, 15, seed=seed)


def send_and_end(producer: Producer, seconds: float, rng: random.Random) -> tuple[dict[bytes, Any], set[bytes]]:
    """Begin and end transactions while two threads send; return the futures by value, and what was refused."""
    futures: dict[bytes, Any] = {}
    refused: set[bytes] = set()
    is_over = threading.Event()

    def send(number: int) -> None:
        count = 0
        while not is_over.is_set():
            value = b"%d/%d" % (number, count)
            count += 1
            try:
                futures[value] = producer.send(TRANSACTIONS, value, key=b"%d" % (count % 7))
            except TransactionStateError:
                refused.add(value)

    senders = [threading.Thread(target=send, args=(number,)) for number in range(2)]
    for one in senders:
        one.start()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        producer.begin_transaction()
        time.sleep(rng.choice([0, 0.001, 0.01]))
        if rng.random() < 0.4:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    is_over.set()
    for one in senders:
        one.join(WAIT_SECONDS)
    return futures, refused


@pytest.mark.parametrize("batch_size", [300, 16384])
def test_record_that_meets_the_end_of_its_transaction_is_refused_or_part_of_it(store, switching, batch_size):
    with Producer(store, transactional_id="shared", batch_size=batch_size, buffer_memory=1 << 16) as producer:
        producer.init_transactions()
        futures, refused = send_and_end(producer, 3, random.Random(batch_size))
    found: dict[bytes, tuple[int, int]] = {}
    for partition in range(PARTITIONS):
        for record in store.log(TRANSACTIONS, partition).read():
            assert found.setdefault(bytes(record.value), (partition, record.offset)) == (partition, record.offset)
    assert futures
    assert refused
    assert not refused & set(found)
    kept = {value: future.result(0) for value, future in futures.items() if future.exception(0) is None}
    assert found == {value: (metadata.partition, metadata.offset) for value, metadata in kept.items()}
