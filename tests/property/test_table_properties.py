"""Goal: whatever becomes of a topic, a table is the dict that a reader of its logs would fill, also after many lookups.
Method: random histories of a topic with several partitions: appends, tombstones, transactions, compactions, deletions,
truncations, new partitions and openings; tables of the writer and of a reader beside it, held to Log.read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from kstore import LogConfig, Record, Table, WritableStore
from kstore.log.reads import Isolation
from kstore.log.write.writable_log import WritableLog
from kstore.record import ControlRecordType, EndTransactionMarker
from kstore.record.builder import with_end_transaction_marker, with_records, with_transactional_records
from tests.making.strategies import examples

CODECS = ("none", "none", "none", "gzip", "lz4", "zstd")
ISOLATIONS: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")


class History:
    """A topic, its writer, a reader beside it, and tables of both."""

    def __init__(self, root: Path, rng: random.Random, *, key_count: int) -> None:
        self.rng, self.root = rng, root
        self.keys = [b"", *(b"k%d" % number for number in range(key_count))]
        self.config = LogConfig(
            segment_bytes=rng.choice([1500, 6000]),
            segment_index_bytes=240,
            index_interval_bytes=100,
            cleanup_policy="compact",
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=0,
            file_delete_delay_ms=0,
            read_chunk_bytes=4096,
        )
        self.serial = 0
        self.open: set[tuple[int, int]] = set()
        self.tables: list[Table] = []
        self.store = self.opened()
        self.store.create_topic("t", rng.choice([1, 3]))
        self.make_tables()

    def opened(self) -> WritableStore:
        return kstore.open_store(self.root, "a", self.config)

    def make_tables(self) -> None:
        self.reader = kstore.open_store(self.root, config=self.config)
        self.tables = [
            store.table("t", isolation_level=isolation)
            for store in (self.store, self.reader)
            for isolation in ISOLATIONS
        ]

    def reopen(self) -> None:
        self.close()
        self.store = self.opened()
        self.make_tables()

    def close(self) -> None:
        for table in self.tables:
            table.close()
        self.reader.close()
        self.store.close()

    @property
    def logs(self) -> list[WritableLog]:
        return [self.store.log(*name) for name in self.store.partitions if name.topic == "t"]

    def records(self) -> list[Record]:
        made = []
        for _ in range(self.rng.randint(1, 6)):
            self.serial += 1
            key = None if self.rng.random() < 0.03 else self.rng.choice(self.keys)
            value = None if self.rng.random() < 0.3 else b"%d" % self.serial + b"v" * self.rng.choice([0, 5, 200])
            made.append(Record(timestamp_ms=self.rng.randint(0, 50), key=key, value=value))
        return made

    def step(self) -> None:
        log, choice = self.rng.choice(self.logs), self.rng.random()
        number = log.topic_partition.partition
        if choice < 0.5:
            log.append_as_follower(
                with_records(self.records(), base_offset=log.log_end_offset, compression=self.rng.choice(CODECS))
            )
        elif choice < 0.65:
            self.send(log, self.rng.choice([7, 8]))
        elif choice < 0.75 and any(partition == number for partition, _ in self.open):
            self.end(log, self.rng.choice(sorted(one for one in self.open if one[0] == number))[1])
        elif choice < 0.85:
            log.roll()
            log.compact(is_forced=True, drops_keyless=True)
        elif choice < 0.9:
            # Not above it: a reader would not know any more of a transaction that the writer knows to be open.
            log.delete_records(
                self.rng.randint(log.log_start_offset, max(log.last_stable_offset, log.log_start_offset))
            )
        elif choice < 0.93:
            self.truncate(log)
        elif choice < 0.95 and len(self.logs) < 5:
            self.store.create_partitions("t", len(self.logs) + 1)
        elif choice < 0.97:
            self.reopen()

    def send(self, log: WritableLog, producer_id: int) -> None:
        self.open.add((log.topic_partition.partition, producer_id))
        base = {"base_sequence": 0, "base_offset": log.log_end_offset}
        records = with_transactional_records(self.records(), producer_id=producer_id, producer_epoch=0, **base)
        log.append_as_follower(records)

    def end(self, log: WritableLog, producer_id: int) -> None:
        self.open.discard((log.topic_partition.partition, producer_id))
        how = self.rng.choice([ControlRecordType.COMMIT, ControlRecordType.ABORT])
        marker = EndTransactionMarker(control_type=how, coordinator_epoch=0)
        offset = {"offset": log.log_end_offset, "timestamp_ms": 1}
        log.append_as_follower(with_end_transaction_marker(marker, producer_id=producer_id, producer_epoch=0, **offset))

    def truncate(self, log: WritableLog) -> None:
        # Transactions are ended first: a truncation would bring some of them back.
        for partition, producer_id in sorted(self.open):
            if partition == log.topic_partition.partition:
                self.end(log, producer_id)
        ends = [batch.next_offset for batch in log.batches() if not batch.header.is_transactional]
        after = max((batch.next_offset for batch in log.batches() if batch.header.is_transactional), default=0)
        places = [place for place in ends if place >= max(after, log.log_start_offset)]
        if places:
            log.truncate_to(self.rng.choice(places))

    def expected(self, isolation: Isolation) -> dict[bytes, bytes]:
        """Return what one reads from the logs."""
        newest: dict[bytes, tuple[int, int, bytes]] = {}
        for log in self.logs:
            of_log: dict[bytes, tuple[int, int, bytes]] = {}
            for record in log.read(isolation=isolation):
                if record.key is not None and record.value is None:
                    of_log.pop(record.key, None)
                elif record.key is not None and record.value is not None:
                    of_log[record.key] = record.timestamp_ms, log.topic_partition.partition, record.value
            for key, found in of_log.items():
                newest[key] = max(found, newest.get(key, found))
        return {key: value for key, (_, _, value) in newest.items()}

    def check(self, table: Table) -> None:
        expected = self.expected(table.isolation_level)
        assert len(table) == len(expected)
        key = self.rng.choice(self.keys)
        assert (key in table, table.get(key)) == (key in expected, expected.get(key))
        if self.rng.random() < 0.3:
            assert dict(table.items()) == expected
            assert [each for each in self.keys if each in table] == [each for each in self.keys if each in expected]
            assert {each: table[each] for each in table} == expected if self.rng.random() < 0.2 else True


def run(root: Path, seed: int, *, steps: int, key_count: int) -> None:
    history = History(root, random.Random(seed), key_count=key_count)
    try:
        for _ in range(steps):
            history.step()
            if history.rng.random() < 0.4:
                history.check(history.rng.choice(history.tables))
        for table in history.tables:
            history.check(table)
            assert dict(table.items()) == history.expected(table.isolation_level)
    finally:
        history.close()


@examples(8)
@given(seed=st.integers(0, 2**32))
def test_tables_are_what_a_reader_of_the_logs_would_fill(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    run(tmp_path_factory.mktemp("root") / "root", seed, steps=50, key_count=random.Random(seed).choice([3, 30]))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(300))
def test_tables_of_long_histories(seed: int, tmp_path: Path) -> None:
    run(tmp_path / "root", seed, steps=400, key_count=random.Random(seed).choice([3, 30, 300]))
