"""kstore inside a program: one record at a time, many by threads and by tasks, lookups and polls, beside other stores.

Rivals: sqlite3, lmdb, diskcache and persist-queue in the same directory, without a sync for each write: what they write
survives the end of the process, as what kstore has written. What is alike is compared: a record that is written before
the call returns, a value by its number. aiokafka needs a broker: it has `kstore serve`, a process of its own.

Measured: records of 100 bytes one at a time by `append` and by `send().result()`, written and flushed; 100,000 sent by
one thread, and by a task of an event loop with `send_nowait`; 20,000 sends gathered; `log.get` of offsets in no order;
a `Consumer` over a log; the loop's longest gap, with a full buffer and each batch flushed.
Compared with: sqlite3, lmdb, diskcache and persist-queue that write one value at a time, without sync; as many bare
futures of asyncio; SQLite's SELECT by rowid (target by processor time); `log.read`; a loop in which nothing runs.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import kstore
from bench.bench_append import rated
from bench.bench_serve import kstore_server
from bench.common import MIB, Bound, Case, Settings, require_equal, seconds_of
from kstore import aio

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer

VALUE = b"v" * 100
TOPIC = "t"
APPEND, SEND_RESULT = "log.append of a Record", "Producer.send().result()"
FLUSHED_APPEND, FLUSHED_SEND = "log.append, flushed", "Producer.send().result(), flushed"
SQLITE, LMDB, DISKCACHE, QUEUE, AIOKAFKA = (
    "sqlite3, INSERT and COMMIT",
    "lmdb, a transaction",
    "diskcache, set",
    "persist-queue, put",
    "aiokafka, send_and_wait to kstore serve",
)
AIOKAFKA_SENDS = "aiokafka, send, flush to kstore serve"
THREADED, NOWAIT = "Producer.send, flush", "aio.Producer.send_nowait, flush"
GATHERED, FUTURES = "aio.Producer.send, gathered", "bare asyncio futures, gathered"
GET, SELECT = "log.get(offset)", "sqlite3, SELECT by rowid"
READ, POLL = "log.read", "Consumer.poll"
TARGET_OF_SEND_RESULT, TARGET_OF_TASKS, TARGET_OF_FUTURES = 1 / 1.5, 0.8, 1 / 1.5
TARGET_OF_GET, TARGET_OF_POLL = 1.0, 0.7
MOST_GAP_MS = 20.0
SENDS_PER_TURN = 256


def run(settings: Settings) -> Iterator[Case]:
    """Measure writes one by one, writes together, reads, and what an event loop notices of them."""
    is_tiny = settings.segment_bytes < MIB
    with tempfile.TemporaryDirectory() as scratch:
        yield one_by_one(settings, 50 if is_tiny else 3000, Path(scratch))
        yield flushed_one_by_one(settings, 5 if is_tiny else 200, Path(scratch))
        yield together(settings, 500 if is_tiny else 100_000, Path(scratch))
        yield gathered(settings, 200 if is_tiny else 20_000, Path(scratch))
        yield lookups(settings, 500 if is_tiny else 100_000, Path(scratch))
        yield polls(settings, 500 if is_tiny else 200_000, Path(scratch))
        yield gaps(settings, 200 if is_tiny else 20_000, Path(scratch))


def fresh(scratch: Path) -> Path:
    shutil.rmtree(scratch / "root", ignore_errors=True)
    return scratch / "root"


def in_store(scratch: Path, count: int, work: Callable[[kstore.WritableStore], float]) -> float:
    """Return what `work` measures in a new store, and check that it wrote `count` records."""
    with kstore.open_store(fresh(scratch), "a") as store:
        store.create_topic(TOPIC)
        store.log(TOPIC)
        seconds = work(store)
        require_equal("records in the log", {"expected": count, "log": store.log(TOPIC).log_end_offset})
    return seconds


def appends(count: int, ack: Any, store: kstore.WritableStore) -> float:
    log = store.log(TOPIC)

    def work() -> None:
        for _ in range(count):
            log.append(kstore.Record(value=VALUE), ack=ack)

    return seconds_of(work)


def send_results(count: int, acks: Any, store: kstore.WritableStore) -> float:
    with kstore.Producer(store, acks=acks) as producer:

        def work() -> None:
            for _ in range(count):
                producer.send(TOPIC, VALUE).result()

        return seconds_of(work)


def one_by_one(settings: Settings, count: int, scratch: Path) -> Case:
    """Measure records that are written before the next one is made."""
    case = Case(title=f"One record of {len(VALUE)} bytes at a time, written", unit="rec", bytes_per_unit=len(VALUE))
    runs = {
        APPEND: partial(in_store, scratch, count, partial(appends, count, "written")),
        SEND_RESULT: partial(in_store, scratch, count, partial(send_results, count, "all")),
        SQLITE: partial(sqlite_inserts, count, scratch),
        LMDB: partial(lmdb_puts, count, scratch),
        DISKCACHE: partial(diskcache_sets, count, scratch),
        QUEUE: partial(queue_puts, count, scratch),
        AIOKAFKA: partial(by_aiokafka, count, scratch, wait_for_each),
    }
    case.samples = rated(runs, settings, units=count)
    case.add_ratio(SEND_RESULT, APPEND, target=TARGET_OF_SEND_RESULT)
    for rival in (SQLITE, LMDB, DISKCACHE, QUEUE, AIOKAFKA):
        case.add_ratio(APPEND, rival)
    return case


def flushed_one_by_one(settings: Settings, count: int, scratch: Path) -> Case:
    """Measure records that are durable before the next one is made."""
    case = Case(title="One record at a time, flushed", unit="rec", bytes_per_unit=len(VALUE))
    runs = {
        FLUSHED_APPEND: partial(in_store, scratch, count, partial(appends, count, "flushed")),
        FLUSHED_SEND: partial(in_store, scratch, count, partial(send_results, count, "flushed")),
    }
    case.samples = rated(runs, settings, units=count)
    case.add_ratio(FLUSHED_SEND, FLUSHED_APPEND)
    return case


def sqlite_inserts(count: int, scratch: Path) -> float:
    path = fresh(scratch)
    path.mkdir()
    connection = sqlite3.connect(path / "log.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE log (offset INTEGER PRIMARY KEY, value BLOB)")

    def work() -> None:
        for _ in range(count):
            connection.execute("INSERT INTO log (value) VALUES (?)", (VALUE,))

    seconds = seconds_of(work)
    (written,) = connection.execute("SELECT count(*) FROM log WHERE value = ?", (VALUE,)).fetchone()
    connection.close()
    require_equal("records", {"expected": count, SQLITE: written})
    return seconds


def lmdb_puts(count: int, scratch: Path) -> float:
    import lmdb

    with lmdb.open(str(fresh(scratch)), map_size=1 << 30, sync=False, metasync=False) as environment:

        def work() -> None:
            for number in range(count):
                with environment.begin(write=True) as transaction:
                    transaction.put(b"%016d" % number, VALUE)

        seconds = seconds_of(work)
        require_equal("records", {"expected": count, LMDB: environment.stat()["entries"]})
        return seconds


def diskcache_sets(count: int, scratch: Path) -> float:
    import diskcache

    with diskcache.Cache(str(fresh(scratch)), sqlite_synchronous=0) as cache:

        def work() -> None:
            for number in range(count):
                cache.set(number, VALUE)

        seconds = seconds_of(work)
        require_equal("records", {"expected": count, DISKCACHE: len(cache)})
        return seconds


def queue_puts(count: int, scratch: Path) -> float:
    import persistqueue

    queue = persistqueue.Queue(str(fresh(scratch)))

    def work() -> None:
        for _ in range(count):
            queue.put(VALUE)

    seconds = seconds_of(work)
    require_equal("records", {"expected": count, QUEUE: queue.qsize()})
    return seconds


async def wait_for_each(producer: AIOKafkaProducer, count: int) -> None:
    for _ in range(count):
        await producer.send_and_wait(TOPIC, VALUE)


async def send_and_flush(producer: AIOKafkaProducer, count: int) -> None:
    for _ in range(count):
        await producer.send(TOPIC, VALUE)
    await producer.flush()


def by_aiokafka(count: int, scratch: Path, work: Callable[[AIOKafkaProducer, int], Coroutine[Any, Any, None]]) -> float:
    """Return the seconds that a coroutine takes with a producer of a broker, which keeps what survives its process."""
    from aiokafka import AIOKafkaProducer

    root = fresh(scratch)
    with kstore.open_store(root, "a") as store:
        store.create_topic(TOPIC)

    async def main(address: str) -> float:
        async with AIOKafkaProducer(bootstrap_servers=address, acks="all", linger_ms=0) as producer:
            await producer.partitions_for(TOPIC)
            start = time.perf_counter()
            await work(producer, count)
            return time.perf_counter() - start

    with kstore_server(root) as server:
        seconds = asyncio.run(main(server.address))
    with kstore.open_store(root) as read:
        require_equal("records", {"expected": count, AIOKAFKA: read[TOPIC].log_end_offset})
    return seconds


def in_loop(
    work: Callable[[aio.Producer[Any, Any]], Coroutine[Any, Any, object]], store: kstore.WritableStore
) -> float:
    """Return the seconds that a coroutine takes with a producer of the loop."""

    async def main() -> float:
        async with aio.Producer(store) as producer:
            await producer.partitions_for(TOPIC)
            start = time.perf_counter()
            await work(producer)
            await producer.flush()
            return time.perf_counter() - start

    return asyncio.run(main())


async def send_without_waiting(count: int, producer: aio.Producer[Any, Any]) -> None:
    """Send as long as there is memory; let the loop go round now and then, as a service has to."""
    for start in range(0, count, SENDS_PER_TURN):
        for _ in range(start, min(start + SENDS_PER_TURN, count)):
            try:
                producer.send_nowait(TOPIC, VALUE)
            except kstore.BufferExhaustedError:
                await producer.send(TOPIC, VALUE)
        await asyncio.sleep(0)


async def gather_sends(count: int, producer: aio.Producer[Any, Any]) -> None:
    await asyncio.gather(*(producer.send(TOPIC, VALUE) for _ in range(count)))


def threaded_sends(count: int, store: kstore.WritableStore) -> float:
    with kstore.Producer(store) as producer:

        def work() -> None:
            for _ in range(count):
                producer.send(TOPIC, VALUE)
            producer.flush()

        return seconds_of(work)


def together(settings: Settings, count: int, scratch: Path) -> Case:
    """Measure many records, by a task of a loop and by a thread."""
    case = Case(title=f"{count} records sent together", unit="rec", bytes_per_unit=len(VALUE))
    runs = {
        THREADED: partial(in_store, scratch, count, partial(threaded_sends, count)),
        NOWAIT: partial(in_store, scratch, count, partial(in_loop, partial(send_without_waiting, count))),
        AIOKAFKA_SENDS: partial(by_aiokafka, count, scratch, send_and_flush),
    }
    case.samples = rated(runs, settings, units=count)
    case.add_ratio(NOWAIT, THREADED, target=TARGET_OF_TASKS)
    case.add_ratio(NOWAIT, AIOKAFKA_SENDS)
    return case


def bare_futures(count: int) -> float:
    """Return the seconds that as many tasks take of which each waits for a future that another callback sets."""

    async def wait(loop: asyncio.AbstractEventLoop) -> None:
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        await future

    async def main() -> float:
        loop = asyncio.get_running_loop()
        start = time.perf_counter()
        await asyncio.gather(*(wait(loop) for _ in range(count)))
        return time.perf_counter() - start

    return asyncio.run(main())


def gathered(settings: Settings, count: int, scratch: Path) -> Case:
    """Measure gathered sends beside gathered futures that nothing is done for."""
    case = Case(title=f"{count} sends gathered in an event loop", unit="rec", bytes_per_unit=len(VALUE))
    runs = {
        GATHERED: partial(in_store, scratch, count, partial(in_loop, partial(gather_sends, count))),
        FUTURES: partial(bare_futures, count),
    }
    case.samples = rated(runs, settings, units=count)
    case.add_ratio(GATHERED, FUTURES, target=TARGET_OF_FUTURES)
    return case


def filled(count: int, scratch: Path) -> kstore.WritableStore:
    store = kstore.open_store(fresh(scratch), "a")
    store.create_topic(TOPIC)
    with kstore.Producer(store) as producer:
        for number in range(count):
            producer.send(TOPIC, b"%0100d" % number)
    return store


def lookups(settings: Settings, count: int, scratch: Path) -> Case:
    """Measure records by their offsets, in no order, beside rows of SQLite by their numbers."""
    case = Case(title="A record by its offset", unit="rec", bytes_per_unit=len(VALUE))
    wanted = Random(1).choices(range(count), k=min(count, 10_000))
    with filled(count, scratch) as store:
        log = store.log(TOPIC)
        connection = sqlite3.connect(scratch / "rows.db")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE log (offset INTEGER PRIMARY KEY, value BLOB)")
        rows = ((number, b"%0100d" % number) for number in range(count))
        connection.executemany("INSERT INTO log VALUES (?, ?)", rows)
        connection.commit()

        def value_at(offset: int) -> object:
            record = log.get(offset)
            return None if record is None else record.value

        def row_at(offset: int) -> object:
            return connection.execute("SELECT value FROM log WHERE offset = ?", (offset,)).fetchone()[0]

        require_equal("values", {GET: [*map(value_at, wanted)], SELECT: [*map(row_at, wanted)]})
        runs = {
            GET: partial(seconds_of, lambda: [value_at(offset) for offset in wanted]),
            SELECT: partial(seconds_of, lambda: [row_at(offset) for offset in wanted]),
        }
        case.samples = rated(runs, settings, units=len(wanted))
        connection.close()
    (scratch / "rows.db").unlink()
    case.add_ratio(GET, SELECT, target=TARGET_OF_GET, by="cpu")
    return case


def polls(settings: Settings, count: int, scratch: Path) -> Case:
    """Measure all records of a log by a consumer and by a read, keys and values untouched."""
    case = Case(title="All records, as objects", unit="rec", bytes_per_unit=len(VALUE))
    with filled(count, scratch) as store:
        log = store.log(TOPIC)

        def read() -> int:
            return sum(1 for _ in log.read())

        def poll() -> int:
            with kstore.Consumer(store, topics=[TOPIC], auto_offset_reset="earliest") as consumer:
                found = 0
                while records := consumer.poll():
                    found += len(records)
            return found

        require_equal("records", {"expected": count, READ: read(), POLL: poll()})
        case.samples = rated({READ: partial(seconds_of, read), POLL: partial(seconds_of, poll)}, settings, units=count)
    case.add_ratio(POLL, READ, target=TARGET_OF_POLL)
    return case


async def longest_gap(work: Coroutine[Any, Any, object]) -> float:
    """Return the longest time, in milliseconds, between two turns of the loop while a coroutine runs."""
    running = asyncio.ensure_future(work)
    longest, before = 0.0, time.perf_counter()
    while not running.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    await running
    return longest * 1000


async def feed(producer: aio.Producer[Any, Any], count: int) -> None:
    """Send by fifty tasks, as a service does, which wait while the buffer is full."""

    async def some() -> None:
        for _ in range(count // 50):
            await producer.send(TOPIC, VALUE)

    await asyncio.gather(*(some() for _ in range(50)))


def gap_of_load(count: int, scratch: Path) -> float:
    """Return the longest gap under load, with a full buffer, each batch flushed to the disk."""
    with kstore.open_store(fresh(scratch), "a") as store:
        store.create_topic(TOPIC)

        async def main() -> float:
            async with aio.Producer(store, acks="flushed", buffer_memory=16 * 1024, batch_size=4096) as producer:
                await producer.partitions_for(TOPIC)
                return await longest_gap(feed(producer, count))

        return asyncio.run(main())


def gap_of_bare_loop(seconds: float) -> float:
    """Return the longest gap of a loop in which nothing else runs: what the machine itself does."""
    return asyncio.run(longest_gap(asyncio.sleep(seconds)))


def gaps(settings: Settings, count: int, scratch: Path) -> Case:
    """Measure the longest time for which a loop stands still."""
    case = Case(title="The loop's longest gap, full buffer, each batch flushed", unit="ms", bytes_per_unit=1.0)
    rounds = range(min(settings.rounds, 5))
    values = [gap_of_load(count, scratch) for _ in rounds]
    bare = [gap_of_bare_loop(1.0 if settings.segment_bytes >= MIB else 0.01) for _ in rounds]
    case.bounds.append(
        Bound(name="loop gap", unit="ms", values=values, at_most=MOST_GAP_MS, bare="a bare loop", bare_values=bare)
    )
    return case
