"""Goal: a follower of a store gives the records of all its partitions in turn, also of those that come and go.
Method: a store that is written, followed by itself and as a directory."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore import LATEST, Record, open_log, open_store
from kstore.errors import LogClosedError, OffsetOutOfRangeError
from kstore.log.following.follower import Follower
from kstore.store.store import Store, WritableStore
from kstore.types import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def put(store: WritableStore, partition: TopicPartition, *values: str) -> None:
    for value in values:
        store.log(*partition).append(Record(offset=0, timestamp_ms=1, key=None, value=value.encode()))


def values(follower: Follower[Record]) -> list[str]:
    return [f"{one.topic_partition} {(one.value or b'').decode()}" for one in follower]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WritableStore]:
    with open_store(tmp_path, "a") as opened:
        opened.create_topic("t", 2)
        yield opened


@pytest.fixture(params=["live", "directory"])
def followed(request: pytest.FixtureRequest, store: WritableStore) -> Iterator[Store | WritableStore]:
    if request.param == "live":
        yield store
    else:
        with open_store(store.root) as opened:
            yield opened


def test_partitions_take_turns(store: WritableStore, followed: Store) -> None:
    put(store, T0, "a", "b", "c")
    put(store, T1, "d", "e")
    follower = followed.follow(timeout=0)
    assert values(follower) == ["t-0 a", "t-1 d", "t-0 b", "t-1 e", "t-0 c"]
    assert follower.positions == {T0: 3, T1: 2}
    with pytest.raises(ValueError, match="unpack"):
        _ = follower.position


def test_new_partitions_and_topics_are_picked_up_from_their_start(store: WritableStore, followed: Store) -> None:
    put(store, T0, "a")
    follower = followed.follow(timeout=10, from_offset=LATEST)

    def add() -> None:
        store.create_topic("u")
        put(store, U0, "b", "c")

    thread = threading.Timer(0.05, add)
    thread.start()
    assert [next(follower).value for _ in range(2)] == [b"b", b"c"]
    thread.join()
    store.create_partitions("t", 3)
    put(store, TopicPartition("t", 2), "d")
    assert next(follower).value == b"d"


def test_topics_and_partitions_are_chosen(store: WritableStore, followed: Store) -> None:
    put(store, T0, "a")
    put(store, T1, "b")
    of_topic = followed.follow("u", timeout=0)
    of_partition = followed.follow(partitions=[T1], timeout=0)
    store.create_topic("u")
    put(store, U0, "c")
    assert values(of_topic) == ["u-0 c"]
    assert values(of_partition) == ["t-1 b"]


def test_offsets_are_given_by_partition(store: WritableStore, followed: Store) -> None:
    put(store, T0, "a", "b")
    put(store, T1, "c")
    assert values(followed.follow(timeout=0, from_offset={T0: 1})) == ["t-0 b", "t-1 c"]
    with pytest.raises(OffsetOutOfRangeError):
        followed.follow(from_offset={T0: 3})


def test_batches_and_arrow_batches_are_each_of_one_partition(store: WritableStore, followed: Store) -> None:
    put(store, T0, "a", "b")
    put(store, T1, "c")
    batches = followed.follow(timeout=0).batches()
    assert [(str(one.topic_partition), one.base_offset) for one in batches] == [("t-0", 0), ("t-1", 0), ("t-0", 1)]
    tables = followed.follow(timeout=0).to_arrow_batches(columns=["partition", "offset"])
    found = [(row["partition"], row["offset"]) for table in tables for row in table.to_pylist()]
    assert sorted(found) == [(0, 0), (0, 1), (1, 0)]


def test_partition_that_is_deleted_is_left_out_and_one_made_again_is_new(store: WritableStore) -> None:
    put(store, T0, "a", "b")
    put(store, T1, "c")
    store.close()
    root = Path(store.root)
    with open_store(root) as reader:
        follower = reader.follow(timeout=0)
        assert len(values(follower)) == 3
        (root / "t-0").rename(root / "t-0.0123456789abcdef0123456789abcdef-delete")
        shutil.rmtree(root / "t-0.0123456789abcdef0123456789abcdef-delete")
        assert values(follower) == []
        assert follower.positions == {T1: 1}
        with open_log(root / "t-0", "a") as log:
            log.append(Record(offset=0, timestamp_ms=1, key=None, value=b"new"))
        assert values(follower) == ["t-0 new"]


def test_partition_made_again_between_two_looks_is_followed_from_its_start(store: WritableStore) -> None:
    put(store, T0, "a", "b")
    store.close()
    root = Path(store.root)
    with open_store(root) as reader:
        follower = reader.follow(timeout=0)
        assert len(values(follower)) == 2
        shutil.rmtree(root / "t-0")
        with open_log(root / "t-0", "a") as log:
            log.append(Record(offset=0, timestamp_ms=1, key=None, value=b"new"))
        assert values(follower) == ["t-0 new"]


def test_closing_the_store_ends_a_wait_with_an_error(followed: Store) -> None:
    follower = followed.follow(timeout=10)
    thread = threading.Timer(0.05, followed.close)
    thread.start()
    with pytest.raises(LogClosedError):
        next(follower)
    thread.join()


def test_closing_one_log_of_a_store_is_not_noticed(store: WritableStore) -> None:
    put(store, T0, "a")
    follower = store.follow(timeout=0)
    assert values(follower) == ["t-0 a"]
    store.log(*T0).close()
    put(store, T0, "b")
    assert values(follower) == ["t-0 b"]
