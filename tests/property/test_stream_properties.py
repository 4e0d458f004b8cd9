"""Goal: a stream reads every record once and in order, whatever happens to its driver, and to the logs between its
calls. Method: random histories of a root and of a query over it, whose driver dies at random places; then the rows of
the committed micro-batches are held against what the logs held."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path

import pytest

from kstore.store.opening import open_log
from tests.fakes.stream_query import Crash, Killed, StreamQuery, Trigger
from tests.making.growing import GrowingRoot

CRASHES: tuple[Crash, ...] = ("before offsets", "before read", "before commit")
NAMES = ("t-0", "t-1", "u-0", "u-10")


class History:
    """A root, a query over it, and what happened to the records."""

    def __init__(self, path: Path, rng: random.Random, *, loses: bool) -> None:
        self._rng = rng
        self._loses = loses
        self.root = GrowingRoot(path)
        self.root.append("t-0", rng.randint(0, 5))
        options = {"startingOffsets": "earliest", "failOnDataLoss": "false" if loses else "true"}
        self.most = rng.choice([None, 3, 10])
        if self.most is not None:
            options["maxOffsetsPerTrigger"] = str(self.most)
        if rng.random() < 0.3:
            options["minOffsetsPerTrigger"] = "2"
        self.query = StreamQuery(path, **options)
        # Everything that was ever at an offset, and the offsets that once were gone.
        self.ever: dict[tuple[str, int], set[bytes | None]] = defaultdict(set)
        self.gone: set[tuple[str, int]] = set()
        self.note()

    def note(self) -> None:
        for name in self.root.path.glob("*-[0-9]*"):
            for offset, value in self.root.content(name.name).items():
                self.ever[name.name, offset].add(value)

    def step(self) -> None:
        names = sorted(path.name for path in self.root.path.glob("*-[0-9]*"))
        name = self._rng.choice(names)
        operations = [self.append] * 5 + [self.run] * 5 + [self.roll] * 2 + [self.delete_read]
        if self._loses:
            operations += [self.delete_any, self.truncate]
        self._rng.choice(operations)(name)

    def append(self, name: str) -> None:
        if self._rng.random() < 0.2:
            name = self._rng.choice(NAMES)
        self.root.append(name, self._rng.randint(1, 8), flushes=False)
        self.note()

    def roll(self, name: str) -> None:
        self.root.roll(name)

    def delete_read(self, name: str) -> None:
        """Delete what was read, which is no loss."""
        topic, _, number = name.rpartition("-")
        committed = self.query.offsets[self.query.commits - 1] if self.query.commits else "{}"
        position = json_offset(committed, topic, number)
        with open_log(self.root.path / name) as log:
            end = log.log_end_offset
        self.root.delete_records(name, self._rng.randint(0, min(position, end)))

    def delete_any(self, name: str) -> None:
        with open_log(self.root.path / name) as log:
            start, end = log.log_start_offset, log.log_end_offset
        before = self._rng.randint(start, end)
        self.gone |= {(name, offset) for offset in range(start, before)}
        self.root.delete_records(name, before)

    def truncate(self, name: str) -> None:
        with open_log(self.root.path / name) as log:
            start, end = log.log_start_offset, log.log_end_offset
        to = self._rng.randint(start, end)
        # Where a micro-batch was planned beyond the new end, the offsets after it count as read.
        self.gone |= {(name, offset) for offset in range(to, end + 1000)}
        self.root.truncate(name, to)

    def run(self, _name: str) -> None:
        crash = self._rng.choice(CRASHES) if self._rng.random() < 0.3 else None
        trigger: Trigger = self._rng.choice(["processing time", "processing time", "available now", "once"])
        try:
            if trigger == "processing time":
                self.query.micro_batch(crash=crash)
                return
            self.query.start()
            self.query.run(trigger, crash=crash)
        except Killed:
            pass
        self.query.start()


def json_offset(text: str, topic: str, number: str) -> int:
    found: int = json.loads(text).get(topic, {}).get(number, 0)
    return found


@pytest.mark.parametrize("loses", [False, True], ids=["nothing lost", "with losses"])
@pytest.mark.parametrize("seed", range(15))
def test_every_record_is_read_once(tmp_path: Path, seed: int, loses: bool) -> None:
    history = History(tmp_path / "root", random.Random(seed), loses=loses)
    for _ in range(40):
        history.step()
    history.query.start()
    history.query.run("available now")
    read: dict[tuple[str, int], list[bytes | None]] = defaultdict(list)
    for batch in history.query.batches:
        in_batch: dict[str, list[int]] = defaultdict(list)
        for topic, partition, offset, value in batch.rows:
            read[f"{topic}-{partition}", offset].append(value)
            in_batch[f"{topic}-{partition}"].append(offset)
        assert all(offsets == sorted(set(offsets)) for offsets in in_batch.values())
    assert {place: values for place, values in read.items() if not set(values) <= history.ever[place]} == {}
    kept = {place for place in history.ever if place not in history.gone}
    assert {place: len(values) for place, values in read.items() if place in kept and len(values) != 1} == {}
    assert sorted(kept - read.keys()) == []
    if not loses:
        last = {}
        for topic, partition, offset, _ in history.query.rows():
            assert last.get((topic, partition), -1) == offset - 1
            last[topic, partition] = offset


@pytest.mark.parametrize("seed", range(10))
def test_micro_batches_keep_to_their_limit(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    root = GrowingRoot(tmp_path / "root")
    for name in NAMES[: rng.randint(1, 4)]:
        root.append(name, rng.randint(0, 40))
    most = rng.randint(1, 20)
    query = StreamQuery(root.path, startingOffsets="earliest", maxOffsetsPerTrigger=str(most))
    query.run()
    assert all(0 < len(batch.rows) <= most + len(NAMES) for batch in query.batches)
    assert len(query.rows()) == root.numbers
