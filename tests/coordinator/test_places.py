"""Goal: groups and transactional ids are found in a root that has only some partitions of the internal topics.
Method: roots with all 50 partitions, of which some are removed while they are closed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kstore import Consumer, Producer, TopicPartition, open_store
from kstore.config import LogConfig
from kstore.coordinator.places import CoordinatorPlaces, CoordinatorTopic
from kstore.errors import UnknownTopicOrPartitionError
from kstore.log.files.names import TOPIC_SETTINGS
from kstore.record import Record
from kstore.record.schemas.topics import coordinator_partition
from kstore.store.store import WritableStore
from tests.golden.sets import unpack
from tests.making.batches import flip_bit

OFFSETS, STATE = "__consumer_offsets", "__transaction_state"
T0 = TopicPartition("t", 0)
GROUPS = ("orders-app", "billing", "shipping")


def placed(name: str, count: int = 50) -> int:
    return coordinator_partition(name, partition_count=count)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
        store.create_topic(OFFSETS, 50)
        store.create_topic(STATE, 50)
        for number in range(9):
            store.log("t").append(Record(timestamp_ms=1, value=b"%d" % number))
        for number, group in enumerate(GROUPS):
            commit(store, group, number + 1)
    return tmp_path / "root"


def commit(store: WritableStore, group: str, offset: int) -> None:
    with Consumer(store, group=group, topics=["t"]) as consumer:
        consumer.commit({T0: offset})


def committed(store: WritableStore, group: str) -> int | None:
    with Consumer(store, group=group, topics=["t"]) as consumer:
        found = consumer.committed()[T0]
        return None if found is None else found.offset


def keep(root: Path, topic: str, numbers: set[int]) -> None:
    for number in set(range(50)) - numbers:
        shutil.rmtree(root / f"{topic}-{number}")


def name_in(wanted: int) -> str:
    return next(name for name in map("g{}".format, range(10_000)) if placed(name) == wanted)


def without_gap() -> set[int]:
    return set(range(max(map(placed, GROUPS)) + 2))


def with_gaps() -> set[int]:
    return {*map(placed, GROUPS), 1}


@pytest.mark.parametrize("numbers", [without_gap(), with_gaps()], ids=["the first ones", "some"])
def test_groups_of_some_partitions_are_read_and_written_where_brokers_look(root: Path, numbers: set[int]) -> None:
    keep(root, OFFSETS, numbers)
    with open_store(root, "a") as store:
        assert [committed(store, group) for group in GROUPS] == [1, 2, 3]
        commit(store, GROUPS[0], 7)
        new = name_in(1)
        assert committed(store, new) is None
        commit(store, new, 8)
        assert [committed(store, one) for one in (GROUPS[0], new)] == [7, 8]
        assert store.log(OFFSETS, placed(GROUPS[0])).log_end_offset == 2
        assert store.log(OFFSETS, 1).log_end_offset == 1
    with open_store(root) as reader:
        assert committed(reader, GROUPS[0]) == 7


def test_a_group_whose_partition_is_elsewhere_is_refused(root: Path) -> None:
    keep(root, OFFSETS, with_gaps())
    with open_store(root, "a") as store:
        consumer = Consumer(store, group=name_in(2), topics=["t"])
        for call in (consumer.poll, consumer.committed, lambda: consumer.commit({T0: 1})):
            with pytest.raises(UnknownTopicOrPartitionError, match="belongs in partition 2 of the 50 of"):
                call()


def test_the_first_partitions_of_a_cluster_s_topic_do_not_take_a_group_of_another_one(root: Path) -> None:
    """Ten partitions of fifty are numbered as ten of ten."""
    keep(root, OFFSETS, set(range(10)))
    (root / TOPIC_SETTINGS).unlink()
    with open_store(root, "a") as store:
        for number in (33, 13):
            with pytest.raises(UnknownTopicOrPartitionError, match=f"partition 3 if .* and in {number} if it has 50"):
                commit(store, name_in(number), 1)
        commit(store, name_in(7), 1)
        assert [store.log(OFFSETS, number).log_end_offset for number in (3, 7)] == [0, 1]


def test_one_partition_of_a_cluster_s_topic_does_not_take_a_group_of_another_one(root: Path) -> None:
    """One of fifty looks as the one that kstore makes."""
    keep(root, OFFSETS, {0})
    (root / TOPIC_SETTINGS).unlink()
    with open_store(root, "a") as store:
        with pytest.raises(UnknownTopicOrPartitionError, match=r"partition 0 if .* and in 13 if it has 50"):
            commit(store, name_in(13), 1)
        commit(store, name_in(0), 1)
        assert store.log(OFFSETS, 0).log_end_offset == 1


def test_the_metadata_of_the_cluster_says_how_many_partitions_there_are(tmp_path: Path) -> None:
    source, root = unpack("main-4.4.0", "trees") / "data", tmp_path / "root"
    for name in ("__cluster_metadata-0", f"{OFFSETS}-0"):
        shutil.copytree(source / name, root / name)
    count = len(list(source.glob(f"{OFFSETS}-*")))
    assert count > 1
    with open_store(root) as store:
        places = CoordinatorPlaces(store, OFFSETS, default_count=50)
        for name in map("g{}".format, range(20)):
            if placed(name, count) == 0:
                assert places.place_of(name).partition == 0
            else:
                with pytest.raises(UnknownTopicOrPartitionError, match=f"of the {count} of"):
                    places.place_of(name)


def test_a_number_of_partitions_that_nothing_tells_is_refused_but_for_groups_that_are_there(root: Path) -> None:
    keep(root, OFFSETS, with_gaps())
    (root / f"{OFFSETS}-1").rename(root / f"{OFFSETS}-70")
    with open_store(root, "a") as store, pytest.raises(UnknownTopicOrPartitionError, match="up to number 70"):
        committed(store, "new")


@pytest.mark.parametrize("count", [1, 3, 60])
def test_all_partitions_of_another_number_are_used(tmp_path: Path, count: int) -> None:
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
        store.log("t").append(Record(timestamp_ms=1, value=b"v"))
        store.create_topic(OFFSETS, count)
        for group in GROUPS:
            commit(store, group, 1)
        for group in GROUPS:
            assert store.log(OFFSETS, placed(group, count)).log_end_offset >= 1
    with open_store(tmp_path / "root", "a") as store:
        assert [committed(store, group) for group in (*GROUPS, "new")] == [1, 1, 1, None]
        commit(store, "new", 1)
        assert CoordinatorPlaces(store, OFFSETS, default_count=50).place_of("new").partition == placed("new", count)


def test_the_first_commit_to_a_root_of_kstore_makes_one_partition_and_groups_stay_in_it(tmp_path: Path) -> None:
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
        for number, group in enumerate(GROUPS):
            commit(store, group, number)
        with Producer(store, transactional_id="id") as producer:
            producer.init_transactions()
        assert [name for name in store.partitions if name.topic != "t"] == [(OFFSETS, 0), (STATE, 0)]
        store.create_partitions(OFFSETS, 4)
        commit(store, GROUPS[0], 7)
        assert [committed(store, group) for group in GROUPS] == [7, 1, 2]
        new = next(name for name in map("g{}".format, range(99)) if placed(name, 4) == 3)
        commit(store, new, 8)
        assert [store.log(OFFSETS, number).log_end_offset for number in range(4)] == [4, 0, 0, 1]
    with open_store(tmp_path / "root") as reader:
        assert [committed(reader, group) for group in (*GROUPS, new)] == [7, 1, 2, 8]


def test_one_partition_in_a_root_of_kstore_is_not_read_to_place_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic(OFFSETS)
        monkeypatch.setattr(CoordinatorPlaces, "_names", lambda *_: pytest.fail("read"))
        assert CoordinatorPlaces(store, OFFSETS).place_of("g").partition == 0


def test_the_topic_is_created_with_the_partitions_that_the_cluster_says(tmp_path: Path) -> None:
    source, root = unpack("main-4.4.0", "trees") / "data", tmp_path / "root"
    for name in ("__cluster_metadata-0", "meta.properties"):
        (shutil.copytree if (source / name).is_dir() else shutil.copy)(source / name, root / name)
    count = len(list(source.glob(f"{OFFSETS}-*")))
    with open_store(root, "a") as store:
        CoordinatorTopic(store, OFFSETS, config=LogConfig()).partition_of("g")
        assert [name.partition for name in store.partitions if name.topic == OFFSETS] == list(range(count))


def test_groups_stay_where_they_are_when_partitions_are_added(tmp_path: Path) -> None:
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
        store.create_topic(OFFSETS, 2)
        for number, group in enumerate(GROUPS):
            commit(store, group, number)
        store.create_partitions(OFFSETS, 5)
        assert [committed(store, group) for group in GROUPS] == [0, 1, 2]
        commit(store, "new", 4)
        assert committed(store, "new") == 4


def test_a_damaged_partition_hides_only_its_own_groups(root: Path) -> None:
    keep(root, OFFSETS, with_gaps())
    flip_bit(root / f"{OFFSETS}-{placed(GROUPS[1])}" / "00000000000000000000.log", 66, bit=0)
    with open_store(root, "a") as store:
        assert committed(store, GROUPS[0]) == 1


def test_a_transactional_id_goes_on_in_its_partition_of_some(root: Path) -> None:
    def write(store: WritableStore) -> int:
        with Producer(store, transactional_id="writer") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"v")
            producer.commit_transaction()
        return next(reversed(list(store.log("t").batches()))).header.producer_epoch

    with open_store(root, "a") as store:
        first = write(store)
    keep(root, STATE, {placed("writer"), 3})
    with open_store(root, "a") as store:
        assert write(store) == first + 1
        assert store.log(STATE, 3).log_end_offset == 0
