"""Goal: whatever a store holds, and wherever replays of it end, the cluster has each record that its readers see, once,
in its partition and order.
Method: random stores with transactions, gaps, codecs and groups; replays with random bounds that are interrupted at
random parts, or forget what was acknowledged, as one that is killed; held to Log.read of source and cluster."""

from __future__ import annotations

import itertools
import json
import random
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from kstore.log.files.json_state import with_checksum
from kstore.log.reads import Isolation
from kstore.log.write.writable_log import WritableLog
from kstore.record import ControlRecordType, EndTransactionMarker
from kstore.record.builder import with_end_transaction_marker, with_records, with_transactional_records
from kstore.testing import KafkaServer
from tests.making.in_memory import IN_MEMORY
from tests.making.replaying import contents, read, replayed
from tests.making.strategies import examples

pytest.importorskip("confluent_kafka")

CODECS = ("none", "none", "gzip", "lz4", "zstd", "snappy")
HEADERS = [(), (("a", b"x"),), (("a", None), ("a", b""), ("", b"\0"), ("é😀", b"\xff" * 40))]
names = itertools.count()


class Source:
    """A root with one topic, written by random appends and transactions; groups have committed in it."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root, self.rng = root, rng
        self.topic = f"t{next(names)}"
        self.open: set[tuple[int, int]] = set()
        with kstore.open_store(root, "a", kstore.LogConfig(segment_bytes=rng.choice([9000, 1 << 20]))) as store:
            store.create_topic(self.topic, rng.choice([1, 2, 3]))
            self.logs = [store.log(*place) for place in store.partitions if place.topic == self.topic]
            for _ in range(rng.randint(1, 25)):
                self.step(rng.choice(self.logs))
            self.ends = [log.log_end_offset for log in self.logs]
            self.groups = {
                f"g{n}": {number: rng.randint(0, end) for number, end in enumerate(self.ends)} for n in range(2)
            }
            for group, offsets in self.groups.items():
                places = {kstore.TopicPartition(self.topic, number): at for number, at in offsets.items()}
                kstore.reset_offsets(store, group, places)

    def payload(self) -> bytes | None:
        return self.rng.choice(
            [None, b"", b"k%d" % self.rng.randint(0, 9), self.rng.randbytes(self.rng.randint(1, 300))]
        )

    def records(self) -> list[kstore.Record]:
        return [
            kstore.Record(
                timestamp_ms=self.rng.choice([-1, 1, 1_600_000_000_000 + self.rng.randint(-50, 50)]),
                key=self.payload(),
                value=self.payload(),
                headers=self.rng.choice(HEADERS),
            )
            for _ in range(self.rng.randint(1, 12))
        ]

    def step(self, log: WritableLog) -> None:
        number, choice = log.topic_partition.partition, self.rng.random()
        gap = self.rng.choice([0, 0, 0, 7])
        base = {"base_offset": log.log_end_offset + gap, "compression": self.rng.choice(CODECS)}
        mine = sorted(producer for partition, producer in self.open if partition == number)
        if choice < 0.5:
            log.append_as_follower(with_records(self.records(), **base))
        elif choice < 0.75:
            producer = self.rng.choice([7, 8])
            self.open.add((number, producer))
            sent = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
            log.append_as_follower(with_transactional_records(self.records(), **sent, **base))
        elif choice < 0.95 and mine:
            producer = self.rng.choice(mine)
            self.open.discard((number, producer))
            how = self.rng.choice([ControlRecordType.COMMIT, ControlRecordType.ABORT])
            marker = EndTransactionMarker(control_type=how, coordinator_epoch=0)
            at = {"offset": log.log_end_offset, "timestamp_ms": 1}
            log.append_as_follower(with_end_transaction_marker(marker, producer_id=producer, producer_epoch=0, **at))
        elif choice < 0.97 and not mine:
            log.delete_records(self.rng.randint(log.log_start_offset, log.log_end_offset))

    def read(self, number: int, start: int, end: int, isolation: Isolation) -> list[tuple[Any, ...]]:
        with kstore.open_log(self.root / f"{self.topic}-{number}") as log:
            first = min(max(start, log.log_start_offset), log.log_end_offset)
            return read(self.root / f"{self.topic}-{number}", first, max(end, first), isolation=isolation)


def forget(state: Path, rng: random.Random, start_offset: int) -> None:
    """Make of a state file one of some time before, as if the run had been killed before it wrote it again."""
    fields = json.loads(state.read_text())
    for each in fields["partitions"]:
        if rng.random() < 0.7:
            with kstore.open_log(each["source_path"]) as log:
                first = min(max(start_offset, log.log_start_offset), log.log_end_offset)
            each.update(next_offset=first, target_offset=each["base_target_offset"], record_count=0, syncs=[])
        each["is_settled"] = False
    state.write_text(json.dumps(with_checksum(fields)))


@pytest.fixture(scope="module")
def cluster():
    with KafkaServer() as server:
        yield server


@examples(20, deadline=None)
@given(st.integers(0, 1 << 32))
def test_replays_that_end_anywhere_bring_each_record_once_and_in_order(cluster: KafkaServer, seed: int) -> None:
    rng = random.Random(seed)
    with TemporaryDirectory(dir=IN_MEMORY) as directory:
        source, state = Source(Path(directory) / "root", rng), Path(directory) / "state"
        isolation = rng.choice(["read_committed", "read_committed", "read_uncommitted"])
        start, end = rng.choice([(0, 1000), (5, 1000), (0, 20)])
        others = [rng.randint(0, 3) for _ in source.ends]
        cluster.create_topic(source.topic, len(source.ends))
        for number, count in enumerate(others):
            for _ in range(count):
                cluster.store.log(source.topic, number).append(kstore.Record(value=b"of another", timestamp_ms=9))
        options = {"topics": [source.topic], "start_offset": start, "end_offset": end, "isolation": isolation}
        for _ in range(rng.randint(0, 3)):
            left = rng.randint(1, 12)

            def interrupt(*_: int) -> None:
                nonlocal left
                left -= 1
                if not left:
                    raise KeyboardInterrupt

            with suppress(KeyboardInterrupt):
                replayed(source.root, cluster, state=state, progress=interrupt, **options)
            if state.exists() and rng.random() < 0.5:
                forget(state, rng, start)
        summary = replayed(source.root, cluster, state=state, groups=["g*"], **options)
        for number in range(len(others)):
            there = [each for each in cluster.records(source.topic, number) if each.value != b"of another"]
            assert contents(there) == source.read(number, start, end, isolation)
            for offset in (each for each in summary.offsets if each.partition == number):
                # Exact, or at an earlier record where it had been sent before its group was known.
                goes_on = contents(each for each in there if each.offset >= offset.offset)
                wanted = source.read(number, max(start, offset.source_offset), end, isolation)
                assert goes_on[len(goes_on) - len(wanted) :] == wanted
        cluster.delete_topic(source.topic)
