"""Goal: a store under every kind of load survives kills and failed calls, and the soak would notice if not.
Method: a few seconds of `python -m tests.crash.soak`; its model and follower against stores that are not as told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

from kstore.env import LocalEnv
from kstore.producer import Producer
from kstore.store.store import WritableStore
from tests.crash import soak_writer
from tests.crash.soak import Model, Soak, Use, growth
from tests.crash.soak_reader import Follower
from tests.crash.soak_records import (
    KEYED,
    KEYS,
    PARTITIONS,
    PLAIN,
    RECORDS_OF_TRANSACTION,
    TOMBSTONES,
    TRANSACTIONAL,
    TRUNCATED,
    columns_of,
    opened,
)

COUNT = 100


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WritableStore]:
    (tmp_path / "root").mkdir()
    with opened(str(tmp_path / "root"), LocalEnv()) as found:
        yield found


def send(store: WritableStore, topic: str, serials: range, second: int = 0) -> None:
    with Producer(store, enable_idempotence=False) as producer:
        columns = columns_of(numpy.array(serials, dtype="<i8"), second, is_keyed=topic == KEYED)
        producer.send_columns(topic, columns, partition=0)


def told(topic: str, end: int) -> Model:
    model = Model()
    model.take(soak_writer.APPENDED, PARTITIONS.index((topic, 0)), end)
    return model


@pytest.mark.timeout(300)
def test_store_survives_kills_and_failed_calls(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    soak = Soak(tmp_path / "root", seed=3, period_seconds=1.0)
    soak.run(3)
    assert soak.events["kill"] > 0
    assert soak.model.records > 0
    assert soak.read > 0


def test_records_that_were_told_and_are_there_are_right(store: WritableStore) -> None:
    send(store, PLAIN, range(COUNT))
    send(store, KEYED, range(COUNT))
    model = told(PLAIN, COUNT)
    model.check(store)
    assert model.ends[PARTITIONS.index((KEYED, 0))] == COUNT


def test_lost_record_is_noticed(store: WritableStore) -> None:
    send(store, PLAIN, range(COUNT))
    with pytest.raises(AssertionError, match="ends at 100, was told 101"):
        told(PLAIN, COUNT + 1).check(store)


@pytest.mark.parametrize("serials", [range(1, COUNT), range(COUNT, 0, -1)], ids=["missing", "reordered"])
def test_record_at_another_offset_is_noticed(store: WritableStore, serials: range) -> None:
    send(store, PLAIN, serials)
    with pytest.raises(AssertionError, match="records of other offsets"):
        Model().check(store)


def test_record_that_was_truncated_and_is_back_is_noticed(store: WritableStore) -> None:
    send(store, TRUNCATED, range(COUNT))
    model = told(TRUNCATED, COUNT)
    model.take(soak_writer.TRUNCATING, 1, 50)
    model.check(store)
    model.take(soak_writer.TRUNCATION_DONE, 1, 50)
    with pytest.raises(AssertionError, match="records that were truncated"):
        model.check(store)


def test_newest_value_that_is_gone_and_deleted_key_that_is_back_are_noticed(store: WritableStore) -> None:
    send(store, KEYED, range(2 * KEYS))
    log = store.log(KEYED)
    log.roll()
    Model().check(store)
    # As a compaction that keeps the older value of a key: its offset is not that of the newest.
    send(store, KEYED, range(KEYS + 1, KEYS + 2))
    with pytest.raises(AssertionError, match="other records"):
        Model().check(store)
    assert KEYS % TOMBSTONES != 0


def test_transaction_that_is_lost_torn_or_aborted_is_noticed(store: WritableStore) -> None:
    with Producer(store, transactional_id="soak") as producer:
        producer.init_transactions()
        for number, count in ((0, 5), (1, 6), (2, 7)):
            first = number * RECORDS_OF_TRANSACTION
            producer.begin_transaction()
            serials = numpy.arange(first, first + count - (number == 2), dtype="<i8")
            producer.send_columns(TRANSACTIONAL, columns_of(serials, count), partition=0)
            producer.commit_transaction()
    with pytest.raises(AssertionError, match=r"parts of transactions: \[\(2, 6, 7\)\]"):
        Model().check(store)
    store.log(TRANSACTIONAL).truncate_to(13)
    model = Model()
    model.take(soak_writer.COMMITTED, 1, 6)
    model.check(store)
    model.take(soak_writer.COMMITTED, 2, 7)
    with pytest.raises(AssertionError, match=r"lacks \[2\]"):
        model.check(store)
    other = Model()
    other.take(soak_writer.ABORTED, 1, 6)
    with pytest.raises(AssertionError, match="aborted transactions"):
        other.check(store)


def test_follower_notices_a_record_that_is_missed_or_doubled(store: WritableStore) -> None:
    send(store, PLAIN, range(COUNT))
    follower = Follower(store.root, PLAIN, 0)
    assert [follower.follow(), follower.follow()] == [COUNT, 0]
    send(store, PLAIN, range(COUNT - 1, COUNT))
    with pytest.raises(AssertionError, match="not its records"):
        follower.follow()


def test_growth_is_that_after_the_warm_up() -> None:
    uses = [Use(0, 0)] * 5 + [Use(100, 5)] * 8 + [Use(150, 7)] * 7
    assert growth(uses) == Use(50, 2)
