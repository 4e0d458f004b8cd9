"""Calls that an interrupt, or a lack of memory, ends at any place: nothing acknowledged is lost, nothing hangs.

A case is one method and one part of its places. For each place: a store is made, the method is called and ended there;
then what was used is used again, closed, opened again (strict) and compared with what was acknowledged.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import kstore
from kstore.env import DEFAULT_ENV
from kstore.errors import KStoreError, LogReplacedError
from kstore.record import MemoryRecords, with_records
from tests.fakes.faulty_lines import FailingLine
from tests.fakes.interrupts import Place, Tracer, traced
from tests.making.in_memory import IN_MEMORY

TOPIC = "t"
OTHER = "u"
CONFIG = kstore.LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0, retention_ms=-1)
PARTS = 8
# How often a line that is passed again and again is looked at.
MOST_VISITS = 3
PATIENCE_S = 20.0
TIME_MS = 1_700_000_000_000


class World:
    """A store, and what must be in it.

    Attributes: kept: the values that were acknowledged, by partition and in order, and that no call may have removed;
        tried: those that a call may have written, or removed.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.kept: dict[tuple[str, int], list[bytes]] = {}
        self.tried: set[bytes] = set()
        self.gone_topics: set[str] = set()
        self._count = 0
        self.store: Any = kstore.open_store(root, "a", CONFIG)
        self.other: Any = None

    def new_record(self, key: bytes | None = None) -> kstore.Record:
        self._count += 1
        value = b"%d." % self._count + b"v" * 60
        key = b"own key %d" % self._count if key is None else key
        self.tried.add(value)
        return kstore.Record(offset=0, timestamp_ms=TIME_MS + self._count, key=key, value=value)

    def note(self, topic: str, partition: int, value: bytes) -> None:
        self.tried.discard(value)
        self.kept.setdefault((topic, partition), []).append(value)

    def append(self, topic: str = TOPIC, partition: int = 0, *, key: bytes | None = None, store: Any = None) -> None:
        """Append one record, flushed; it counts once the call has returned."""
        record = self.new_record(key)
        (self.store if store is None else store).log(topic, partition).append([record], ack="flushed")
        self.note(topic, partition, bytes(record.value or b""))

    def may_lose(self, topic: str, partition: int, count: int | None = None, *, first: int | None = None) -> None:
        """Say that a call may remove the last `count`, or the first `first`, of what is kept; None for all."""
        kept = self.kept.get((topic, partition), [])
        lost = kept[:first] if first is not None else kept[-count:] if count is not None else kept[:]
        self.tried |= set(lost)
        self.kept[topic, partition] = [value for value in kept if value not in self.tried]


class Method(NamedTuple):
    """prepare: brings a new world into the state before the call; call: what is ended at some place; after: looks at
    what the call left, before all is closed.
    """

    name: str
    prepare: Callable[[World], Any]
    call: Callable[[World, Any], object]
    after: Callable[[World, Any], object] | None = None


def fill(world: World, count: int = 8, *, topic: str = TOPIC, keys: int = 0) -> Any:
    if topic not in world.store.topics:
        world.store.create_topic(topic)
    for number in range(count):
        world.append(topic, key=b"%d" % (number % keys) if keys else None)
    return world.store.log(topic)


def close_quietly(close: Callable[[], object]) -> None:
    try:
        close()
    except KStoreError:
        close()


def bounded(what: str, call: Callable[[], object]) -> None:
    """Make a call in another thread, in which a typed error may end it.  Raises: AssertionError if it hangs."""
    done: Future[None] = Future()

    def body() -> None:
        try:
            call()
        except KStoreError:
            done.set_result(None)
        except BaseException as error:  # noqa: BLE001 - told to the thread that waits
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=body, daemon=True).start()
    try:
        done.result(PATIENCE_S)
    except TimeoutError:
        raise AssertionError(f"{what} hangs") from None


def read_all(root: str) -> dict[tuple[str, int], list[bytes]]:
    """Return the values of the user's topics, as another reader sees them."""
    with kstore.open_store(root) as reader:
        return {
            (topic, partition): [bytes(record.value or b"") for record in reader.log(topic, partition).read()]
            for topic, partition in reader.partitions
            if not topic.startswith("__")
        }


def compare(world: World, found: dict[tuple[str, int], list[bytes]], when: str) -> None:
    for (topic, partition), kept in world.kept.items():
        if topic in world.gone_topics and (topic, partition) not in found:
            continue
        values = found.get((topic, partition), [])
        assert len(set(values)) == len(values), f"{when}: doubled in {topic}-{partition}"
        unknown = set(values) - set(kept) - world.tried
        assert not unknown, f"{when}: unknown in {topic}-{partition}: {sorted(unknown)[:3]}"
        left = [value for value in values if value not in world.tried]
        assert left == kept, f"{when}: {topic}-{partition} has {len(left)} of {len(kept)} that were acknowledged"


def check(world: World, is_live: bool) -> None:
    """Use what was interrupted, close it, open it again, and compare."""
    store = world.store
    if store is None:
        # The call was to open one.
        store = world.store = kstore.open_store(world.root, "a", CONFIG)
    if is_live:
        for topic, partition in list(store.partitions):
            if not topic.startswith("__"):
                bounded("an append", partial(world.append, topic, partition))
        try:
            compare(world, read_all(world.root), "before closing")
        except LogReplacedError:
            # As after a crash, until the next opening, if an interrupt came as cleaned segments were put in place.
            assert any(log.has_failed for log in store.open_logs())
    bounded("close", partial(close_quietly, store.close))
    if world.other is not None:
        bounded("close of the second", partial(close_quietly, world.other.close))
    store = world.store = world.other = None
    assert not DEFAULT_ENV.is_locked(f"{world.root}/.lock"), "the root is still locked"
    with kstore.open_store(world.root, "a", CONFIG) as again:
        assert not again.refused, f"refused: {again.refused}"
        compare(world, read_all(world.root), "opened again")
        for topic, partition in again.partitions:
            if not topic.startswith("__"):
                world.append(topic, partition, store=again)
    compare(world, read_all(world.root), "at the end")
    report = kstore.verify(world.root)
    assert report.is_unharmed, report.damage


class Fault(NamedTuple):
    """How a call is ended: `signals` by a real signal, where the interpreter looks for them; else by an error."""

    name: str
    error: type[BaseException] | None


FAULTS = (Fault("signals", None), Fault("KeyboardInterrupt", KeyboardInterrupt), Fault("MemoryError", MemoryError))


# Where a flush costs nothing; None: where temporary files go anyway.


@contextmanager
def new_world() -> Iterator[World]:
    directory = tempfile.mkdtemp(prefix="kstore-interrupts-", dir=IN_MEMORY)
    world = World(f"{directory}/root")
    try:
        yield world
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run_once(method: Method, fault: Fault, target: int | Place | None) -> list[Place]:
    """Make the call in a new world, end it at a place, and check; return the places that there are."""
    with new_world() as world:
        prepared = method.prepare(world)
        call = partial(ended, partial(method.call, world, prepared))
        gc.collect()
        if fault.error is None:
            tracer = Tracer(target if isinstance(target, Place) else None, watched=("/kstore/",))
            traced(call, tracer)
            places = tracer.places
        else:
            failing = FailingLine(fault.error, target if isinstance(target, int) else None)
            gc.disable()
            try:
                failing.run(call)
            finally:
                gc.enable()
            places = failing.places
        if method.after is not None:
            method.after(world, prepared)
        del prepared, call
        check(world, is_live=world.store is None or not world.store.is_closed)
        return places


def check_sample(method: Method, fault: Fault, *, count: int, within: str = "") -> int:
    """Check about `count` places, evenly spread over those that are passed for the first time in files whose paths have
    a part; return how many.
    """
    places = run_once(method, fault, None)
    firsts = [number for number, place in enumerate(places) if place.visit == 1 and within in place.code.co_filename]
    # Not the same place of a function for all methods.
    shift = len(method.name) % max(len(firsts) // count, 1)
    return check_places(method, fault, places, firsts[shift :: max(len(firsts) // count, 1)])


def check_part(number: int) -> int:
    """Check a part of all places of one method, ended in one way; return how many."""
    pair, part = divmod(number, PARTS)
    method, fault = METHODS[pair // len(FAULTS)], FAULTS[pair % len(FAULTS)]
    places = run_once(method, fault, None)
    wanted = [at for at, place in enumerate(places) if place.visit <= MOST_VISITS]
    return check_places(method, fault, places, wanted[part::PARTS])


def check_places(method: Method, fault: Fault, places: list[Place], numbers: list[int]) -> int:
    problems = []
    for number in numbers:
        try:
            run_once(method, fault, places[number] if fault.error is None else number)
        except (AssertionError, KStoreError, MemoryError, KeyboardInterrupt) as error:
            problems.append(f"{places[number]}: {type(error).__name__}: {error}")
    assert not problems, f"{method.name}, {fault.name}: {len(problems)} of {len(numbers)} places: {problems[:5]}"
    return len(numbers)


def ended(call: Callable[[], object]) -> None:
    """Make a call that a typed error may end, which an error in its place may cause."""
    try:
        call()
    except KStoreError as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, KeyboardInterrupt | MemoryError):
                return
            cause = cause.__cause__ or cause.__context__
        raise


def append_several(world: World, _log: Any) -> None:
    for _ in range(5):
        world.append()


def append_fetched(world: World, log: Any) -> None:
    record = world.new_record()
    log.append_as_follower(MemoryRecords(bytes(with_records([record], base_offset=log.log_end_offset))), ack="flushed")
    world.note(TOPIC, 0, bytes(record.value or b""))


def append_together(world: World, log: Any) -> None:
    records = [world.new_record() for _ in range(7)]
    infos = log.append_batches([with_records([record]) for record in records], ack="flushed")
    for record, info in zip(records, infos, strict=True):
        if not isinstance(info, KStoreError):
            world.note(TOPIC, 0, bytes(record.value or b""))


def fill_unflushed(world: World) -> Any:
    log = fill(world, 2)
    records = [world.new_record() for _ in range(6)]
    for record in records:
        log.append([record])
        world.note(TOPIC, 0, bytes(record.value or b""))
    return log


def truncate(world: World, log: Any) -> None:
    world.may_lose(TOPIC, 0, 5)
    log.truncate_to(3)


def start_anew(world: World, log: Any) -> None:
    world.may_lose(TOPIC, 0)
    log.truncate_fully_and_start_at(100)


def delete_records(world: World, log: Any) -> None:
    world.may_lose(TOPIC, 0, first=6)
    log.delete_records(6)


def make_retention_due(world: World) -> Any:
    log = fill(world, 12)
    log.update_config(replace(CONFIG, retention_bytes=300))
    return log


def retain(world: World, log: Any) -> None:
    world.may_lose(TOPIC, 0, first=11)
    log.delete_old_segments(TIME_MS)


def fill_compacted(world: World) -> Any:
    world.store.create_topic(TOPIC, config=replace(CONFIG, cleanup_policy="compact"))
    return fill(world, 14, keys=3)


def compact(world: World, log: Any) -> None:
    world.may_lose(TOPIC, 0, first=11)
    log.compact(is_forced=True, now_ms=TIME_MS)


def maintain(world: World, _log: Any) -> None:
    world.may_lose(TOPIC, 0, first=11)
    world.store.run_maintenance(TIME_MS)


def two_topics(world: World) -> Any:
    log = fill(world)
    world.store.create_topic(OTHER, 3)
    for partition in range(3):
        world.append(OTHER, partition)
    return log


def delete_topic(world: World, _log: Any) -> None:
    world.gone_topics.add(TOPIC)
    world.store.delete_topic(TOPIC)


def leave_open(world: World) -> None:
    """As a process that was killed leaves it."""
    two_topics(world)
    killed = world.root + "-killed"
    shutil.copytree(world.root, killed)
    world.store.close()
    world.root, world.store = killed, None


def leave_closed(world: World) -> None:
    two_topics(world)
    world.store.close()
    world.store = None


def open_again(world: World, _: Any) -> None:
    world.store = kstore.open_store(world.root, "a", CONFIG)


def open_one_log(world: World, _: Any) -> None:
    world.other = kstore.open_log(f"{world.root}/{TOPIC}-0", "a", CONFIG)


def close_other(world: World, _: Any) -> None:
    """One log that was opened by itself keeps the root."""
    if world.other is not None:
        bounded("close", lambda: close_quietly(world.other.close))
    world.other = None


def one_log(world: World) -> None:
    leave_closed(world)
    world.other = kstore.open_log(f"{world.root}/{TOPIC}-0", "a", CONFIG)


def close_one_log(world: World, _: Any) -> None:
    world.other.close()


def create_small(world: World, topic: str) -> None:
    """Create a coordinator's topic with one partition: of fifty, each is opened and verified after each place."""
    world.store.create_topic(topic, 1)


class Sending(NamedTuple):
    producer: Any
    values: list[bytes]
    futures: list[Any]


def send(world: World, **settings: Any) -> Sending:
    fill(world, 2)
    world.store.create_topic(OTHER)
    create_small(world, "__transaction_state")
    producer = kstore.Producer(world.store, linger_ms=0, acks="all", **settings)
    if "transactional_id" in settings:
        producer.init_transactions()
        producer.begin_transaction()
    sending = Sending(producer, [], [])
    for _ in range(3):
        value = bytes(world.new_record().value or b"")
        sending.values.append(value)
        sending.futures.append(producer.send(OTHER, value, timestamp_ms=TIME_MS))
    return sending


def send_in_transaction(world: World) -> Sending:
    return send(world, transactional_id="x")


def commit(world: World, sending: Sending) -> None:
    sending.producer.commit_transaction()
    for value in sending.values:
        world.note(OTHER, 0, value)


def abort(_world: World, sending: Sending) -> None:
    sending.producer.abort_transaction()


def end_transaction(world: World, sending: Sending) -> None:
    """The producer can be closed; then another one with its id begins, and all or nothing was committed."""
    bounded("close of the producer", lambda: sending.producer.close(PATIENCE_S))
    with kstore.Producer(world.store, transactional_id="x") as following:
        following.init_transactions()
    log = world.store.log(OTHER)
    assert log.last_stable_offset == log.log_end_offset
    committed = [bytes(one.value or b"") for one in log.read(isolation="read_committed")]
    assert committed in ([], sending.values), committed
    assert committed or (OTHER, 0) not in world.kept


def flush_producer(world: World, sending: Sending) -> None:
    sending.producer.flush(PATIENCE_S)


def close_producer(world: World, sending: Sending) -> None:
    sending.producer.close(PATIENCE_S)


def finish_sending(world: World, sending: Sending) -> None:
    """What a future says is true, and each says something once the producer is closed."""
    bounded("close of the producer", lambda: sending.producer.close(PATIENCE_S))
    for value, future in zip(sending.values, sending.futures, strict=True):
        assert future.done()
        if future.exception(0) is None:
            world.note(OTHER, 0, value)


class Reading(NamedTuple):
    reader: Any
    got: list[bytes]


def consume(world: World) -> Reading:
    fill(world)
    create_small(world, "__consumer_offsets")
    return Reading(kstore.Consumer(world.store, topics=[TOPIC], group="g", auto_offset_reset="earliest"), [])


def poll(world: World, reading: Reading) -> None:
    reading.got.extend(bytes(one.value or b"") for one in reading.reader.poll(0.05))


def poll_rest(world: World, reading: Reading) -> None:
    """The next polls return what the interrupted one did not, and what comes then."""
    world.append()
    wanted = world.kept[TOPIC, 0]

    def rest() -> None:
        while len(reading.got) < len(wanted) and (values := reading.reader.poll(5)):
            reading.got.extend(bytes(one.value or b"") for one in values)

    bounded("poll", rest)
    assert reading.got == wanted
    bounded("close of the consumer", reading.reader.close)


def consume_some(world: World) -> Reading:
    reading = consume(world)
    poll(world, reading)
    # The topic of the offsets is there then.
    reading.reader.commit()
    world.append()
    poll(world, reading)
    return reading


def commit_consumed(world: World, reading: Reading) -> None:
    reading.reader.commit()
    reading.got.clear()


def look_at_commit(world: World, reading: Reading) -> None:
    """The offset was committed if the call returned; and a later commit succeeds."""
    with kstore.Consumer(world.store, topics=[TOPIC], group="g") as other:
        partition = kstore.TopicPartition(TOPIC, 0)
        found = other.committed([partition])[partition]
        committed = None if found is None else found.offset
    end = len(world.kept[TOPIC, 0])
    assert committed in ((end,) if not reading.got else (end - 1, end)), committed
    bounded("commit", reading.reader.commit)
    bounded("close of the consumer", reading.reader.close)


def follow(world: World) -> Reading:
    log = fill(world)
    return Reading(log.follow(timeout=0.02, from_offset=0), [])


def follow_some(world: World, reading: Reading) -> None:
    for record in reading.reader:
        reading.got.append(bytes(record.value or b""))


def follow_rest(world: World, reading: Reading) -> None:
    world.append()
    bounded("the follower", lambda: follow_some(world, reading))
    assert reading.got == world.kept[TOPIC, 0]
    bounded("close of the follower", reading.reader.close)


def delete_within_a_segment(world: World) -> Any:
    log = fill(world)
    world.may_lose(TOPIC, 0, first=7)
    log.delete_records(7)
    assert log.segments[0].base_offset < 6
    return log


def truncate_below_the_start(world: World, log: Any) -> None:
    world.may_lose(TOPIC, 0)
    log.truncate_to(6)


METHODS = (
    Method("append", fill, append_several),
    Method("append_batches", fill, append_together),
    Method("append_as_follower", fill, append_fetched),
    Method("roll", fill, lambda _world, log: log.roll()),
    Method("flush", fill_unflushed, lambda _world, log: log.flush()),
    Method("truncate_to", fill, truncate),
    Method("truncate_fully_and_start_at", fill, start_anew),
    Method("delete_records", fill, delete_records),
    Method("delete_old_segments", make_retention_due, retain),
    Method("compact", fill_compacted, compact),
    Method("update_config", fill, lambda _world, log: log.update_config(replace(CONFIG, segment_bytes=700))),
    Method("close of a log", fill_unflushed, lambda _world, log: log.close()),
    Method("close of a store", two_topics, lambda world, _: world.store.close()),
    Method("create_topic", fill, lambda world, _: world.store.create_topic(OTHER, 2, config=CONFIG)),
    Method("create_partitions", fill, lambda world, _: world.store.create_partitions(TOPIC, 3)),
    Method("delete_topic", two_topics, delete_topic),
    Method("checkpoint", two_topics, lambda world, _: world.store.checkpoint()),
    Method("run_maintenance", make_retention_due, maintain),
    Method("open_store after a crash", leave_open, open_again),
    Method("open_store", leave_closed, open_again),
    Method("open_log", leave_closed, open_one_log, close_other),
    Method("close of an only log", one_log, close_one_log, close_other),
    Method("commit_transaction", send_in_transaction, commit, end_transaction),
    Method("abort_transaction", send_in_transaction, abort, end_transaction),
    Method("flush of a producer", send, flush_producer, finish_sending),
    Method("close of a producer", send, close_producer, finish_sending),
    Method("poll", consume, poll, poll_rest),
    Method("commit of a consumer", consume_some, commit_consumed, look_at_commit),
    Method("follow", follow, follow_some, follow_rest),
    Method("truncate_to below the log start", delete_within_a_segment, truncate_below_the_start),
)

CASES = len(METHODS) * len(FAULTS) * PARTS
