"""The writer of the soak: producers of every kind, retention, compaction and truncation, until it is killed.

Run as `python -m tests.crash.soak_writer ROOT SEED GENERATION TRANSACTION FAULTS`. It reports each step on its standard
output (REPORT of nursery.py). FAULTS 1: a call to the system fails now and then. After an error it closes the store,
reports that, waits for a line and goes on with another store; so it does not end by itself.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from contextlib import suppress

import numpy

from kstore.errors import KStoreError
from kstore.producer import Producer
from kstore.store.store import WritableStore
from tests.crash.nursery import STARTED, report
from tests.crash.soak_records import (
    IDEMPOTENT,
    KEYED,
    PARTITIONS,
    RECORDS_OF_TRANSACTION,
    TRANSACTIONAL,
    TRUNCATED,
    columns_of,
    opened,
)
from tests.fakes.faults import FAULT_KINDS, Fault, FaultyEnv

# Kinds of a report, and what its two numbers are.
APPENDED = 2  # the partition's number, its end
TRUNCATING = 3  # the generation that begins, where the truncation goes
TRUNCATION_DONE = 4  # the same
COMMITTED, ABORTED = 5, 6  # the transaction's number, its records in each partition
FAILED = 7  # how many errors there were, 0
SECONDS_BETWEEN_FAULTS = 10.0
MOST_RECORDS = 20_000


class SoakWriter:
    def __init__(self, root: str, seed: int, *, generation: int, transaction: int, has_faults: bool) -> None:
        self._rng = random.Random(seed)
        self._env = FaultyEnv()
        self._root = root
        self._generation = generation
        self._transaction = transaction
        self._has_faults = has_faults
        self._failures = 0

    def run(self) -> None:
        while True:
            try:
                self._write()
            except KStoreError:
                self._env.heal()
                self._failures += 1
                report(FAILED, self._failures)
                sys.stdin.readline()

    def _write(self) -> None:
        """Write until a call fails."""
        with opened(self._root, self._env) as store:
            plain = Producer(store, enable_idempotence=False, linger_ms=0)
            idempotent = Producer(store, linger_ms=0)
            transactional = Producer(store, transactional_id="soak", linger_ms=0)
            producers = (plain, idempotent, transactional)
            try:
                transactional.init_transactions()
                fault_at = time.monotonic() + self._rng.uniform(0, SECONDS_BETWEEN_FAULTS)
                while True:
                    if self._has_faults and time.monotonic() > fault_at:
                        self._env.arm(Fault(self._rng.randint(1, 200), self._rng.choice(FAULT_KINDS), False))
                        fault_at = time.monotonic() + self._rng.uniform(0, SECONDS_BETWEEN_FAULTS)
                    self._round(store, plain, idempotent, transactional)
            finally:
                self._env.heal()
                for one in producers:
                    with suppress(KStoreError):
                        one.close(10)

    def _round(self, store: WritableStore, plain: Producer, idempotent: Producer, transactional: Producer) -> None:
        for number, (topic, partition) in enumerate(PARTITIONS):
            if topic != TRANSACTIONAL:
                self._send(store, idempotent if topic == IDEMPOTENT else plain, number, topic, partition)
        self._send_transaction(transactional)
        if self._rng.random() < 0.05:
            self._truncate(store)
        if self._rng.random() < 0.05:
            store.log(KEYED).compact()
        if self._rng.random() < 0.1:
            for topic, partition in PARTITIONS:
                if topic != KEYED:
                    store.log(topic, partition).delete_old_segments()
        if self._rng.random() < 0.02:
            store.checkpoint()

    def _send(self, store: WritableStore, producer: Producer, number: int, topic: str, partition: int) -> None:
        """Append records whose serial numbers are their offsets."""
        start = store.log(topic, partition).log_end_offset
        end = start + self._rng.randint(1, MOST_RECORDS)
        second = self._generation if topic == TRUNCATED else 0
        columns = columns_of(numpy.arange(start, end, dtype="<i8"), second, is_keyed=topic == KEYED)
        for at, base_offset, _ in producer.send_columns(topic, columns, partition=partition).result(60):
            assert (at, base_offset >= start) == (partition, True)
        report(APPENDED, number, end)

    def _send_transaction(self, producer: Producer) -> None:
        number, count = self._transaction, self._rng.randint(1, MOST_RECORDS)
        self._transaction += 1
        first = number * RECORDS_OF_TRANSACTION
        producer.begin_transaction()
        for topic, partition in PARTITIONS:
            if topic == TRANSACTIONAL:
                columns = columns_of(numpy.arange(first, first + count, dtype="<i8"), count)
                producer.send_columns(topic, columns, partition=partition)
        if self._rng.random() < 0.8:
            producer.commit_transaction()
            report(COMMITTED, number, count)
        else:
            producer.abort_transaction()
            report(ABORTED, number, count)

    def _truncate(self, store: WritableStore) -> None:
        log = store.log(TRUNCATED)
        target = max(log.log_end_offset - self._rng.randint(0, 3 * MOST_RECORDS), log.log_start_offset)
        # At the start of a batch: offsets inside of one would be left out.
        found = next(iter(log.batches(start_offset=target)), None)
        target = target if found is None else max(found.header.base_offset, log.log_start_offset)
        self._generation += 1
        report(TRUNCATING, self._generation, target)
        log.truncate_to(target)
        report(TRUNCATION_DONE, self._generation, target)


def main() -> None:
    logging.disable(logging.CRITICAL)
    root, seed, generation, transaction, faults = sys.argv[1:]
    report(STARTED)
    SoakWriter(
        root, int(seed), generation=int(generation), transaction=int(transaction), has_faults=faults == "1"
    ).run()


if __name__ == "__main__":
    main()
