"""Changes of a store's topics on the simulated disk: each crash leaves a topic as it was, or the change done.

Two parts. `topics`: random histories, cut off at random calls. `topic-pairs`: every pair of operations, cut off before
every call that changes something, with every selection of what was not synced then, up to a bound.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import product

from kstore.config import LogConfig
from kstore.record import Record
from kstore.store.store import WritableStore, open_store
from tests.crash.crash_states import as_durable, new_disk
from tests.fakes.disk import PowerCut, SimulatedDisk, WatchedDisk

ROOT = "/root"
TOPICS = ("a", "b", "c")
CONFIG = LogConfig(segment_bytes=400, file_delete_delay_ms=0, retention_ms=-1, retention_bytes=600)
NOW_MS = 1000
LIVES = 4
STEPS = 25
LONGEST_LIFE = 250
OPERATIONS = (
    "create a",
    "create c",
    "delete a",
    "delete b",
    "grow a",
    "set a",
    "append a",
    "append b",
    "maintain",
    "reopen",
)
PAIRS = tuple(product(OPERATIONS, repeat=2))
MOST_UNITS = 4
_CHOICES = ("create", "delete", "grow", "set", "maintain", "append", "append", "append")


@dataclass
class PartitionModel:
    """What one partition must have: start, and the ends of what is flushed and of what was appended."""

    start: int = 0
    flushed: int = 0
    end: int = 0


@dataclass
class TopicModel:
    """What one topic must have; generation: which of the topics that had this name."""

    generation: int
    partitions: list[PartitionModel] = field(default_factory=list)
    segment_ms: int = CONFIG.segment_ms


class TopicHistory:
    """The topics of a store, and the change that is under way: its operation and topic."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.topics: dict[str, TopicModel] = {}
        self.under_way: tuple[str, str | None] | None = None
        self.changing_to: int | None = None
        self._generations = 0

    def copy(self) -> TopicHistory:
        other = TopicHistory(random.Random(1))
        other.topics = {
            name: replace(topic, partitions=[replace(one) for one in topic.partitions])
            for name, topic in self.topics.items()
        }
        other.under_way, other.changing_to, other._generations = self.under_way, self.changing_to, self._generations
        return other

    def value(self, topic: str, partition: int, offset: int) -> bytes:
        return f"{topic}-{self.topics[topic].generation}-{partition}-{offset}".encode()

    # Operations

    def operate(self, name: str, topic: str | None, store: WritableStore, disk: SimulatedDisk) -> WritableStore:
        """Do an operation that applies; return the store, another one if it was opened again."""
        self.under_way = (name, topic)
        if name == "reopen":
            store.close()
            self._note_closed()
            store = opened(disk, self.rng)
        elif name == "maintain":
            assert not store.run_maintenance(now_ms=NOW_MS).failures
            self._note_starts(store)
        elif topic is not None and (name == "create") != (topic in self.topics):
            self._change(name, topic, store)
        self.under_way = self.changing_to = None
        return store

    def _change(self, name: str, topic: str, store: WritableStore) -> None:
        known = self.topics.get(topic)
        if known is None:
            self._generations += 1
            count, segment_ms = self.rng.randint(1, 2), self.rng.choice([CONFIG.segment_ms, 10**7 + self._generations])
            self.changing_to = segment_ms
            is_given = segment_ms != CONFIG.segment_ms
            store.create_topic(topic, count, config={"segment_ms": segment_ms} if is_given else None)
            self.topics[topic] = TopicModel(self._generations, [PartitionModel() for _ in range(count)], segment_ms)
        elif name == "delete":
            store.delete_topic(topic)
            del self.topics[topic]
        elif name == "grow":
            store.create_partitions(topic, len(known.partitions) + 1)
            known.partitions.append(PartitionModel())
        elif name == "set":
            self.changing_to = self.rng.randint(10**6, 10**7)
            store.change_topic_config(topic, {"segment_ms": self.changing_to})
            known.segment_ms = self.changing_to
        else:
            self._append(topic, known, store)

    def _append(self, topic: str, known: TopicModel, store: WritableStore) -> None:
        number = self.rng.randrange(len(known.partitions))
        partition, log = known.partitions[number], store.log(topic, number)
        for _ in range(self.rng.randint(1, 4)):
            value = self.value(topic, number, partition.end)
            partition.end += 1
            log.append([Record(offset=0, timestamp_ms=1, value=value)])
        if self.rng.random() < 0.6:
            log.flush()
            partition.flushed = partition.end

    def _note_starts(self, store: WritableStore) -> None:
        for name, topic in self.topics.items():
            for number, partition in enumerate(topic.partitions):
                partition.start = store.log(name, number).log_start_offset

    def _note_closed(self) -> None:
        for topic in self.topics.values():
            for partition in topic.partitions:
                partition.flushed = partition.end

    # What is there

    def settle(self, store: WritableStore) -> None:
        """Hold a store that was opened after a crash to the history, and go on from what it has."""
        assert set(store.topics) <= set(TOPICS)
        for name in TOPICS:
            found = [number for topic, number in store.partitions if topic == name]
            assert found == list(range(len(found))), (name, found)
            self._settle_topic(name, len(found), store)
        self.under_way = self.changing_to = None

    def _settle_topic(self, name: str, count: int, store: WritableStore) -> None:
        under_way = None
        if self.under_way is not None and self.under_way[1] in (name, None):
            under_way = self.under_way[0]
        if under_way == "create" and name not in self.topics and count:
            assert self.changing_to is not None
            self.topics[name] = TopicModel(
                self._generations, [PartitionModel() for _ in range(count)], segment_ms=self.changing_to
            )
        elif under_way == "delete" and not count:
            self.topics.pop(name, None)
        elif under_way == "grow" and count == len(self.topics[name].partitions) + 1:
            self.topics[name].partitions.append(PartitionModel())
        known = self.topics.get(name)
        assert count == (len(known.partitions) if known is not None else 0), (name, count)
        if known is None:
            return
        segment_ms = store.topic_config(name).segment_ms
        assert segment_ms == known.segment_ms or (under_way == "set" and segment_ms == self.changing_to)
        known.segment_ms = segment_ms
        for number, partition in enumerate(known.partitions):
            self._settle_partition(name, number, partition, store, may_delete=under_way == "maintain")

    def _settle_partition(
        self, topic: str, number: int, partition: PartitionModel, store: WritableStore, *, may_delete: bool
    ) -> None:
        log = store.log(topic, number)
        start, end = log.log_start_offset, log.log_end_offset
        assert partition.flushed <= end <= partition.end, (topic, number, partition, end)
        assert start == partition.start or (may_delete and partition.start <= start <= end)
        found = [(record.offset, record.value) for record in log.read()]
        assert found == [(offset, self.value(topic, number, offset)) for offset in range(start, end)]
        partition.start, partition.end = start, end
        partition.flushed = log.flush()


def opened(disk: SimulatedDisk, rng: random.Random) -> WritableStore:
    return open_store(ROOT, "a", CONFIG, env=disk, max_open_files=rng.choice([1, 2, 100]), recovery_threads=1)


def abandon(store: WritableStore) -> None:
    """Let go of a store as a process does that dies."""
    for log in store.open_logs():
        log._dropping()
    store._dropping()


def check_state(history: TopicHistory, disk: SimulatedDisk) -> None:
    """Open what a crash left: it is of the history, and another opening finds the same; then go on with it."""
    first = opened(disk, history.rng)
    history.settle(first)
    abandon(first)
    again = opened(disk, history.rng)
    history.settle(again)
    for name in ("delete", "create", "append", "maintain"):
        again = history.operate(name, "a", again, disk)
    history.settle(again)
    abandon(again)


def live(history: TopicHistory, disk: SimulatedDisk) -> None:
    """Open the store, and operate it until the power fails."""
    store = None
    try:
        store = opened(disk, history.rng)
        history.settle(store)
        for _ in range(STEPS):
            name, topic = history.rng.choice(_CHOICES), history.rng.choice(TOPICS)
            name = name if topic in history.topics or name == "maintain" else "create"
            store = history.operate(name, None if name == "maintain" else topic, store, disk)
        store = history.operate("reopen", None, store, disk)
        abandon(store)
    except PowerCut:
        if store is not None:
            abandon(store)


def states_of_topics(seed: int | str, *, disk_class: type[SimulatedDisk] = SimulatedDisk) -> int:
    """Cut a random history of topics off several times; return how many states were looked at."""
    rng = random.Random(seed)
    history, disk = TopicHistory(rng), new_disk(disk_class)
    for _ in range(LIVES):
        disk.cut_at = disk.calls + rng.randint(5, LONGEST_LIFE)
        live(history, disk)
        left = disk.after_cut(rng)
        disk = as_durable(left.names, left.directories, disk_class)
        check_state(history.copy(), as_durable(disk.names, disk.directories, SimulatedDisk))
    return LIVES


def begun(seed: int | str) -> tuple[TopicHistory, SimulatedDisk]:
    """Return two topics with a changed setting and records in several segments, some not flushed, some deleted."""
    history, disk = TopicHistory(random.Random(seed)), new_disk()
    store = opened(disk, history.rng)
    appends = ("append a", "append b", "append a", "append a") * 4
    for name in ("create a", "create b", "grow a", "set a", *appends, "maintain", *appends):
        operation, _, topic = name.partition(" ")
        store = history.operate(operation, topic or None, store, disk)
    abandon(store)
    return history, disk


def states_of_topic_pair(seed: int | str, first: str, second: str, *, most_units: int = MOST_UNITS) -> int:
    """Cut two operations off before each call, in every way; return how many states were looked at."""
    history, before = begun(seed)
    disk = as_durable(before.names, before.directories, WatchedDisk)
    assert isinstance(disk, WatchedDisk)
    store = opened(disk, history.rng)
    history.settle(store)
    seen: set[int] = set()
    found: list[tuple[TopicHistory, SimulatedDisk]] = []

    def look() -> None:
        # Opened later: the store may hold a lock here that all stores of a process share.
        choice = random.Random(f"{seed}-{first}-{second}-{disk.calls}")
        for left in disk.states_after_cut(choice, most_units=most_units):
            state = hash((frozenset(left.files().items()), history.under_way, str(history.topics)))
            if state not in seen:
                seen.add(state)
                found.append((history.copy(), left))

    disk.before_call = look
    for name in (first, second):
        operation, _, topic = name.partition(" ")
        store = history.operate(operation, topic or None, store, disk)
    look()
    disk.before_call = None
    abandon(store)
    for one, left in found:
        check_state(one, left)
    return len(found)
