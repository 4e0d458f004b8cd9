"""Goal: wherever the power fails during changes of topics and maintenance, a store opens with every record of the
topics that are there, and a topic whose deletion returned stays gone. Method: random histories on a simulated disk that
stops at a call; what may be left is opened and held to a model."""

from __future__ import annotations

import random

import pytest

from kstore.config import LogConfig
from kstore.log.store import WritableStore, open_store
from kstore.record import Record
from tests.fakes.disk import PowerCut, SimulatedDisk

TOPICS = ("a", "b", "c")
CONFIG = LogConfig(segment_bytes=400, file_delete_delay_ms=0, retention_ms=-1)


class Model:
    """What a store must have: the flushed end of each partition; and what a call that was cut may have changed."""

    def __init__(self) -> None:
        self.flushed: dict[tuple[str, int], int] = {}
        self.settings: dict[str, int] = {}
        self.unsure: str | None = None

    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.flushed})

    def check(self, store: WritableStore) -> None:
        there = {tuple(one) for one in store.partitions}
        if self.unsure is None:
            assert there == set(self.flushed)
        assert {one for one in there if one[0] != self.unsure} == {one for one in self.flushed if one[0] != self.unsure}
        for one in sorted(there):
            log = store.log(*one)
            if one[0] != self.unsure:
                assert log.log_end_offset >= self.flushed[one]
                assert store.topic_config(one[0]).segment_ms == self.settings.get(one[0], CONFIG.segment_ms)
            values = [record.value for record in log.read()]
            assert values == [b"%s-%d" % (str(one).encode(), number) for number in range(log.log_end_offset)]

    def resume(self, store: WritableStore) -> None:
        """Take over what is there after a power cut."""
        self.flushed = {tuple(one): store.log(*one).log_end_offset for one in store.partitions}  # type: ignore[misc]
        self.settings = {
            topic: store.topic_config(topic).segment_ms
            for topic in store.topics
            if store.topic_config(topic).segment_ms != CONFIG.segment_ms
        }
        self.unsure = None


def step(rng: random.Random, store: WritableStore, model: Model) -> None:
    topic = rng.choice(TOPICS)
    action = rng.choice(["delete", "grow", "set", "maintain", "append", "append", "append"])
    partitions = [one for one in model.flushed if one[0] == topic]
    if action == "append" and partitions:
        one = rng.choice(partitions)
        log = store.log(*one)
        for _ in range(rng.randint(1, 4)):
            value = b"%s-%d" % (str(one).encode(), log.log_end_offset)
            log.append([Record(offset=0, timestamp_ms=1, value=value)])
        if rng.random() < 0.6:
            end = log.log_end_offset
            log.flush()
            model.flushed[one] = end
        return
    if action == "maintain":
        assert not store.run_maintenance(now_ms=1000).failures
        return
    model.unsure = topic
    if not partitions:
        store.create_topic(topic, rng.randint(1, 2))
        model.flushed |= {(topic, number): 0 for name, number in store.partitions if name == topic}
    elif action == "delete":
        store.delete_topic(topic)
        model.flushed = {one: end for one, end in model.flushed.items() if one[0] != topic}
        model.settings.pop(topic, None)
    elif action == "grow":
        store.create_partitions(topic, len(partitions) + 1)
        model.flushed[topic, len(partitions)] = 0
    elif action == "set":
        model.settings[topic] = rng.randint(10**6, 10**7)
        store.change_topic_config(topic, {"segment_ms": model.settings[topic]})
    model.unsure = None


def run(rng: random.Random, disk: SimulatedDisk, model: Model) -> None:
    store = None
    try:
        store = open_store("/root", "a", CONFIG, env=disk, max_open_files=rng.choice([1, 2, 100]))
        model.check(store)
        model.resume(store)
        for log in store.open_logs():
            model.flushed[tuple(log.topic_partition)] = log.flush()  # type: ignore[index]
        for _ in range(25):
            step(rng, store, model)
        store.close()
    except PowerCut:
        if store is not None:
            abandon(store)


def abandon(store: WritableStore) -> None:
    """Let go of a store as a process does that dies."""
    for log in store._logs.values():
        log._dropping()
    store._dropping()


def cut_and_check(seed: int, disk_class: type[SimulatedDisk] = SimulatedDisk) -> None:
    rng = random.Random(seed)
    disk, model = disk_class({}), Model()
    disk.directories |= {"/", "/root"}
    for _ in range(4):
        disk.cut_at = disk.calls + rng.randint(5, 250)
        run(rng, disk, model)
        directories = set(disk.directories)
        left = disk.after_cut(rng)
        disk = disk_class(left.names)
        disk.directories |= directories
    with open_store("/root", "a", CONFIG, env=disk) as store:
        model.check(store)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.filterwarnings("ignore:unclosed")
def test_topics_after_power_cuts(seed: int) -> None:
    cut_and_check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1400))
@pytest.mark.filterwarnings("ignore:unclosed")
def test_topics_after_many_power_cuts(seed: int) -> None:
    cut_and_check(seed)
