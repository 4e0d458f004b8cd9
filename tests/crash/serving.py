"""`python -m tests.crash.serving --kills 200 --seed 1`: `kstore serve` is killed again and again under three producers.

The producers are librdkafka's: one without idempotence, one with it, and one that commits transactions. After the last
start they go on until everything is acknowledged; then the root is read. A clean stop (SIGTERM) in place of a kill
leaves not even a doubled record of the first one.
"""

from __future__ import annotations

import argparse
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import confluent_kafka

import kstore

PLAIN, ONCE, OUT = "plain", "once", "out"
RECORDS_OF_A_TRANSACTION = 5
_AHEAD = 500


class LostError(AssertionError):
    """A server that was killed lost, doubled or tore something."""


class ServedRoot:
    """`kstore serve` of a root on a port that stays the same."""

    def __init__(self, root: Path, *options: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self._command = [sys.executable, "-m", "kstore", "serve", str(root), "--listen", self.address, *options]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if not (self._process.stdout and self._process.stdout.readline()):
            raise LostError("the server did not start again")

    def end(self, number: int) -> None:
        """End the server by a signal."""
        if self._process is not None:
            self._process.send_signal(number)
            status = self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            if number == signal.SIGTERM and status:
                raise LostError(f"a clean stop ended with {status}")
            self._process = None


class Sender(threading.Thread):
    """Sends numbered records until it is told to stop; knows which were acknowledged."""

    def __init__(self, address: str, topic: str, *, is_idempotent: bool) -> None:
        super().__init__()
        self._topic = topic
        self._stopping = threading.Event()
        self.acknowledged: list[bytes] = []
        self.failures: list[str] = []
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "enable.idempotence": is_idempotent,
                "linger.ms": 1,
                "message.timeout.ms": 120_000,
                "retries": 1_000_000,
                "retry.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "socket.timeout.ms": 10_000,
            }
        )

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            if len(self._producer) < _AHEAD:
                self._producer.produce(self._topic, b"%d" % number, partition=number % 2, on_delivery=self._delivered)
                number += 1
            self._producer.poll(0.0005)
        if self._producer.flush(120):
            self.failures.append("records were not acknowledged in two minutes")

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is None:
            self.acknowledged.append(message.value() or b"")
        else:
            self.failures.append(str(error))

    def stop(self) -> None:
        self._stopping.set()
        self.join()


class Transactor(threading.Thread):
    """Commits one transaction after the other, each of some records."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self._stopping = threading.Event()
        self.committed: list[int] = []

    def _made(self) -> confluent_kafka.Producer:
        settings = {
            "bootstrap.servers": self._address,
            "transactional.id": "transactor",
            "transaction.timeout.ms": 60_000,
            "retry.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
        }
        producer = confluent_kafka.Producer(settings)
        _until(partial(producer.init_transactions, 10))
        return producer

    def run(self) -> None:
        producer, number = self._made(), 0
        while not self._stopping.is_set():
            try:
                producer.begin_transaction()
                for at in range(RECORDS_OF_A_TRANSACTION):
                    producer.produce(OUT, b"%d:%d" % (number, at), partition=at % 2)
                _until(partial(producer.commit_transaction, 10))
                self.committed.append(number)
            except confluent_kafka.KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    producer = self._made()
                else:
                    with suppress(confluent_kafka.KafkaException):
                        _until(partial(producer.abort_transaction, 10))
            number += 1

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def _until(call: Callable[[], object]) -> None:
    """Repeat a call that may be repeated."""
    while True:
        try:
            call()
            return
        except confluent_kafka.KafkaException as error:
            if not error.args[0].retriable():
                raise


def check(root: Path, plain: Sender, once: Sender, transactor: Transactor, *, was_killed: bool) -> Counter[str]:
    """Read the root, and return how many records there are of each kind.

    Raises: LostError.
    """
    with kstore.open_store(root) as store:
        counts = Counter({PLAIN: _present(store, plain), ONCE: _present(store, once)})
        for sender in (once,) if was_killed else (plain, once):
            doubled = [value for value, times in _values(store, sender._topic).items() if times > 1]
            if doubled:
                raise LostError(f"{sender._topic}: {len(doubled)} records are there twice, such as {doubled[0]!r}")
        batches: Counter[int] = Counter()
        for value, times in _values(store, OUT).items():
            batches[int(value.partition(b":")[0])] += 1
            if times > 1:
                raise LostError(f"{OUT}: {value!r} is there {times} times")
        torn = [number for number, size in batches.items() if size != RECORDS_OF_A_TRANSACTION]
        missing = set(transactor.committed) - batches.keys()
        if torn or missing:
            raise LostError(f"{OUT}: transactions that are not whole: {torn[:5]}, not there: {sorted(missing)[:5]}")
        counts[OUT] = len(batches)
    if not kstore.verify(root).is_unharmed:
        raise LostError(f"damage: {kstore.verify(root).damage[:3]}")
    return counts


def _values(store: kstore.Store, topic: str) -> Counter[bytes]:
    return Counter(
        bytes(record.value or b"")
        for name, number in store.partitions
        if name == topic
        for record in store.log(name, number).read(isolation="read_committed")
    )


def _present(store: kstore.Store, sender: Sender) -> int:
    found = _values(store, sender._topic)
    lost = [value for value in sender.acknowledged if value not in found]
    if lost or sender.failures:
        raise LostError(f"{sender._topic}: {len(lost)} acknowledged records are gone; {sender.failures[:3]}")
    return len(sender.acknowledged)


def run(root: Path, ends: list[int], *, seed: int, options: tuple[str, ...] = ()) -> Counter[str]:
    """End the server by each of these signals, at random moments; return what was written.

    Raises: LostError.
    """
    chance = random.Random(seed)
    with kstore.open_store(root, "a") as store:
        for topic in (PLAIN, ONCE, OUT):
            store.create_topic(topic, 2)
    served = ServedRoot(root, *options)
    served.start()
    plain, once = (Sender(served.address, topic, is_idempotent=topic == ONCE) for topic in (PLAIN, ONCE))
    transactor = Transactor(served.address)
    try:
        for thread in (plain, once, transactor):
            thread.start()
        for number in ends:
            time.sleep(chance.uniform(0.05, 0.8))
            served.end(number)
            served.start()
        # Each gets something through after the last start too.
        before = len(plain.acknowledged), len(once.acknowledged), len(transactor.committed)
        deadline = time.monotonic() + 120
        while any(
            now <= then
            for now, then in zip(
                (len(plain.acknowledged), len(once.acknowledged), len(transactor.committed)), before, strict=True
            )
        ):
            if time.monotonic() > deadline:
                raise LostError(f"nothing is acknowledged any more: {plain.failures[:1]} {once.failures[:1]}")
            time.sleep(0.05)
    finally:
        for thread in (plain, once, transactor):
            thread.stop()
        served.end(signal.SIGTERM)
    return check(root, plain, once, transactor, was_killed=signal.SIGKILL in ends)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.serving")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--round", type=int, default=20, help="kills before the root is read and another one begun")
    arguments = parser.parse_args()
    total: Counter[str] = Counter()
    for number, first in enumerate(range(0, arguments.kills, arguments.round)):
        kills = [signal.SIGKILL] * min(arguments.round, arguments.kills - first)
        with tempfile.TemporaryDirectory() as directory:
            total += run(Path(directory) / "root", list(kills), seed=arguments.seed * 1000 + number)
        sys.stdout.write(f"{first + len(kills)} kills: {dict(total)}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
