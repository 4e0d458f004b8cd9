"""Many threads at what kstore documents as safe for them, with an installed kstore and any Python.

python tests/wheel/stress.py [--threads N] [--rounds N] [WORK ...]

Prints a line for each work: "WORK: ok". Exit status: 1 if a thread got anything else than one thread alone gets.
It is what has to hold on a Python without its lock, under PYTHON_GIL=0, before the core declares that it needs none.
The script imports only kstore and the standard library, so that any Python can run it outside of the tree.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import kstore

TOPIC = "t"
PARTITIONS = 3
RECORDS = 2000
# Above the size from which freed memory is kept for the next batch that is read.
VALUE_BYTES = 200

Sent = tuple[bytes | None, bytes | None]


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Let threads begin some work together; raise the first error of any."""
    together = Barrier(count)

    def begin(number: int) -> None:
        together.wait()
        work(number)

    with ThreadPoolExecutor(count) as pool:
        for ended in [pool.submit(begin, number) for number in range(count)]:
            ended.result()


def value_of(number: int, thread: int = 0) -> bytes:
    return (b"%d-%d|" % (thread, number)).ljust(VALUE_BYTES, b"%d" % (number % 10))


def filled(root: Path) -> list[Sent]:
    """Write records, the later half of them compressed, to a partition; return them."""
    records = [(b"%d" % number, value_of(number)) for number in range(RECORDS)]
    with kstore.open_store(root, "a") as store:
        store.create_topic(TOPIC)
        for half, codec in ((records[: RECORDS // 2], "none"), (records[RECORDS // 2 :], "lz4")):
            with kstore.Producer(store, compression_type=codec) as producer:
                for key, value in half:
                    producer.send(TOPIC, value, key=key)
    return records


def read_one_log(root: Path, *, threads: int, rounds: int) -> None:
    """Records, offsets and batches of one Log, from many threads."""
    expected = filled(root)
    with kstore.open_log(root / f"{TOPIC}-0") as log:

        def read(thread: int) -> None:
            for turn in range(rounds):
                start = (thread * 37 + turn * 101) % RECORDS
                found = [(record.key, record.value) for record in log.read(start)]
                assert found == expected[start:], f"thread {thread} read other records from offset {start} on"
                assert log[start].value == expected[start][1]
                assert sum(batch.record_count for batch in log.batches()) == RECORDS

        in_threads(threads, read)


def read_logs_of_their_own(root: Path, *, threads: int, rounds: int) -> None:
    """A Log for each thread: they share the memory that was freed, and caches of the process."""
    expected = filled(root)

    def read(thread: int) -> None:
        for _ in range(rounds):
            with kstore.open_log(root / f"{TOPIC}-0") as log:
                found = [(record.key, record.value) for record in log.read()]
                assert found == expected, f"thread {thread} read other records"

    in_threads(threads, read)


def send_by_one_producer(root: Path, *, threads: int, rounds: int) -> None:
    """One Producer for many threads: each record is in the log once, those of a thread in their order."""
    with kstore.open_store(root, "a") as store:
        store.create_topic(TOPIC, partitions=PARTITIONS)
        with kstore.Producer(store, batch_size=1024, linger_ms=0) as producer:

            def send(thread: int) -> None:
                for number in range(rounds * 500):
                    partition = number % PARTITIONS
                    sent = producer.send(TOPIC, value_of(number, thread), key=b"%d" % thread, partition=partition)
                    if number % 97 == 0:
                        assert sent.result().partition == partition

            in_threads(threads, send)
        for partition in range(PARTITIONS):
            numbers = range(partition, rounds * 500, PARTITIONS)
            found: dict[bytes | None, list[bytes | None]] = {}
            for record in store.log(TOPIC, partition).read():
                found.setdefault(record.key, []).append(record.value)
            expected = {b"%d" % thread: [value_of(n, thread) for n in numbers] for thread in range(threads)}
            assert found == expected, f"partition {partition} has other records than were sent"


def append_and_read(root: Path, *, threads: int, rounds: int) -> None:
    """One WritableLog that threads append to, while each reads what there is."""
    with kstore.open_store(root, "a") as store:
        store.create_topic(TOPIC)
        log = store.log(TOPIC)

        def append(thread: int) -> None:
            for number in range(rounds * 20):
                info = log.append([kstore.Record(key=b"%d" % thread, value=value_of(number, thread))])
                assert log[info.base_offset].value == value_of(number, thread)
            offsets = [record.offset for record in log.read()]
            assert offsets == list(range(len(offsets)))

        in_threads(threads, append)
        assert log.log_end_offset == threads * rounds * 20


def consume_for_each(root: Path, *, threads: int, rounds: int) -> None:
    """A Consumer of its own group for each thread, over one store."""
    expected = filled(root)
    with kstore.open_store(root, "a") as store:

        def consume(thread: int) -> None:
            for turn in range(rounds):
                options = {"group": f"g{thread}-{turn}", "topics": [TOPIC], "auto_offset_reset": "earliest"}
                found: list[Sent] = []
                with kstore.Consumer(store, **options) as consumer:
                    while len(found) < RECORDS and (polled := consumer.poll(timeout=60)):
                        found += [(record.key, record.value) for record in polled]
                    consumer.commit()
                assert found == expected, f"thread {thread} consumed other records"

        in_threads(threads, consume)


WORKS = {
    "read_one_log": read_one_log,
    "read_logs_of_their_own": read_logs_of_their_own,
    "send_by_one_producer": send_by_one_producer,
    "append_and_read": append_and_read,
    "consume_for_each": consume_for_each,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", metavar="WORK", choices=[[], *WORKS])
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for name in options.works or WORKS:
        with tempfile.TemporaryDirectory() as scratch:
            WORKS[name](Path(scratch) / "root", threads=options.threads, rounds=options.rounds)
        print(f"{name}: ok", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
