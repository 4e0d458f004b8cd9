"""Goal: any root gets what one broker needs, and what would lose records, or keep the broker from starting, is refused
with what to do. Method: small roots, each with one fact in it; the snapshot is read by a decoder of its own."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import pytest

import kstore
from kstore.coordinator.producer_ids import LEAST_RANDOM_ID
from kstore.errors import (
    AdoptionError,
    ClusterOwnedError,
    CorruptCheckpointError,
    LogLockedError,
    LogNotFoundError,
    TopicSettingsError,
    UnknownSettingsError,
)
from kstore.log.files.checkpoints import EpochEntry, write_leader_epoch_checkpoint
from kstore.log.files.root_files import (
    MetaProperties,
    read_clean_shutdown,
    read_meta_properties,
    read_partition_metadata,
    write_meta_properties,
)
from kstore.record import MemoryRecordsBuilder
from kstore.record.schemas.topics import coordinator_partition
from kstore.store.store import open_store
from kstore.types import OffsetAndMetadata, TopicPartition
from tests.fakes.counting import CountingEnv
from tests.golden.sets import unpack
from tests.making.cluster import metadata, write_metadata
from tests.making.cluster import topic as topic_record
from tests.reference.metadata import read_snapshot

CLUSTER = "Z29sZGVuLWtzdG9yZS0wMQ"
GROUP_IN_45 = next(
    name
    for name in map(str, range(9999))
    if coordinator_partition(name, partition_count=50) == 45 != coordinator_partition(name, partition_count=46)
)
ID, OTHER_ID = uuid.UUID(int=5 << 64 | 1), uuid.UUID(int=6 << 64 | 1)
ACL = {"id": ID, "resourceType": 2, "resourceName": "t", "patternType": 3, "principal": "User:alice", "host": "*"}


@pytest.fixture
def root(tmp_path):
    """A root that kstore made: a topic of two partitions, and a compacted one."""
    path = tmp_path / "root"
    with open_store(path, "a") as store:
        store.create_topic("t", 2)
        store.create_topic("keys", config={"cleanup_policy": "compact", "segment_bytes": 2**21})
        append(store.log("t", 0))
    return path


@pytest.fixture
def brokers_root(root):
    """The same, of a broker without its metadata: the root says no settings."""
    (root / "kstore-topic-settings").unlink()
    return root


def append(log, **options):
    builder = MemoryRecordsBuilder(**options)
    builder.append(timestamp_ms=1, value=b"x")
    return log.append(builder.build())


def records_of(report) -> list[tuple[str, dict]]:
    return read_snapshot(Path(report.snapshot).read_bytes())


def found(report, kind: str) -> list[dict]:
    return [fields for name, fields in records_of(report) if name == kind]


def settings_of(report, topic: str) -> dict[str, str]:
    return {one["name"]: one["value"] for one in found(report, "config") if (one["resource"], one["of"]) == (2, topic)}


def epochs_of(report) -> list[int]:
    return [one["leader_epoch"] for one in found(report, "partition")]


def content(*roots: Path) -> dict[str, bytes | None]:
    """All files and directories, but for the lock, which is made for a look at it."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for root in roots
        for path in sorted(root.parent.rglob("*"))
        if path.name != ".lock"
    }


def log_bytes(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.glob("*-[0-9]*/*.log"))}


# What is written


def test_a_root_gets_its_topics_with_their_ids_and_settings(root):
    before = log_bytes(root)
    report = kstore.adopt(root, node_id=4)
    names = [name for name, _ in records_of(report)]
    order = ["feature", "broker", "topic", "config", "partition"]
    assert sorted(set(names), key=names.index) == [*order, "producer ids"]
    assert names[-1] == "producer ids"
    ids = {one["name"]: one["id"] for one in found(report, "topic")}
    assert ids == {
        "keys": read_partition_metadata(str(root / "keys-0")),
        "t": read_partition_metadata(str(root / "t-0")),
    }
    assert settings_of(report, "t") == {"cleanup.policy": "delete", "retention.ms": "-1"}
    assert settings_of(report, "keys") == {
        "cleanup.policy": "compact",
        "retention.ms": "-1",
        "segment.bytes": "2097152",
    }
    directory_id = read_meta_properties(str(root)).directory_id
    for partition in found(report, "partition"):
        assert (partition["replicas"], partition["isr"], partition["leader"]) == ([4], [4], 4)
        assert partition["directories"] == [directory_id]
    (broker,) = found(report, "broker")
    assert (broker["id"], broker["fenced"], broker["directories"]) == (4, 1, [directory_id])
    assert read_clean_shutdown(str(root)).broker_epoch == broker["epoch"] == 1
    assert read_meta_properties(str(root))[:3] == (1, report.cluster_id, 4)
    assert log_bytes(root) == before
    assert Path(report.snapshot).name == f"{len(names) + 2:020d}-0000000001.checkpoint"


def test_kstore_reads_and_verifies_an_adopted_root(root):
    kstore.adopt(root)
    assert kstore.verify(root).is_unharmed
    with open_store(root, "a") as store:
        append(store.log("t", 0))
        assert not store.refused
    assert read_clean_shutdown(str(root)).broker_epoch == 1
    assert not kstore.adopt(root).is_changed


def test_an_unclean_root_gets_no_marker(root):
    (root / ".kafka_cleanshutdown").unlink()
    kstore.adopt(root)
    assert read_clean_shutdown(str(root)) is None


def test_a_second_adoption_changes_nothing(root):
    first = kstore.adopt(root)
    before = content(root)
    second = kstore.adopt(root)
    assert (first.is_changed, second.is_changed) == (True, False)
    assert content(root) == before
    assert second.snapshot == first.snapshot


def test_a_topic_that_came_later_is_added_with_all_ids_kept(root):
    first = kstore.adopt(root)
    with open_store(root, "a") as store:
        store.create_topic("new")
    second = kstore.adopt(root)
    assert second.is_changed
    assert [path.name for path in (root / "__cluster_metadata-0").iterdir()] == [Path(second.snapshot).name]
    assert Path(second.snapshot).name > Path(first.snapshot).name
    assert {topic.name: topic.topic_id for topic in first.topics}.items() <= {
        topic.name: topic.topic_id for topic in second.topics
    }.items()


def test_a_dry_run_changes_nothing_and_says_the_same(root, brokers_root):
    (root / "t-1" / "partition.metadata").unlink()
    (root / ".lock").unlink()
    before = content(root)
    dry = kstore.adopt(root, keep_forever=True, dry_run=True)
    assert content(root) == before
    assert not (root / ".lock").exists()
    done = kstore.adopt(root, keep_forever=True)
    assert (dry.is_dry_run, done.is_dry_run) == (True, False)
    assert [topic.name for topic in dry.topics] == [topic.name for topic in done.topics]
    assert [topic.settings for topic in dry.topics] == [topic.settings for topic in done.topics]
    assert dry.snapshot == done.snapshot


# Epochs and producers


def test_the_epoch_of_a_leader_is_above_those_of_its_batches(root):
    with open_store(root, "a") as store:
        store.log("t", 1).append_as_follower(batch_of_leader(7))
    assert epochs_of(kstore.adopt(root)) == [0, 1, 8]


def batch_of_leader(epoch, *, base_offset=0):
    builder = MemoryRecordsBuilder(base_offset=base_offset, partition_leader_epoch=epoch)
    builder.append(timestamp_ms=1, value=b"x")
    return builder.build()


def test_the_epoch_of_a_leader_is_above_those_of_its_checkpoint(root):
    write_leader_epoch_checkpoint(str(root / "t-1" / "leader-epoch-checkpoint"), [EpochEntry(3, 0), EpochEntry(11, 0)])
    assert epochs_of(kstore.adopt(root)) == [0, 1, 12]


def test_the_epoch_of_a_leader_is_above_those_that_groups_committed(root):
    with open_store(root, "a") as store, kstore.Consumer(store, group="g") as consumer:
        consumer.commit({TopicPartition("t", 1): OffsetAndMetadata(0, leader_epoch=20)})
        consumer.commit({TopicPartition("t", 1): OffsetAndMetadata(0, leader_epoch=4)})
        consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(0, leader_epoch=9)})
    report = kstore.adopt(root)
    assert [one["leader_epoch"] for one in found(report, "partition") if one["id"] == id_of(report, "t")] == [10, 5]


def id_of(report, topic):
    return next(one["id"] for one in found(report, "topic") if one["name"] == topic)


@pytest.mark.parametrize(
    ("producer_id", "following"), [(0, 1000), (999, 1000), (1000, 2000), (LEAST_RANDOM_ID - 1, 2305843009213694000)]
)
def test_producers_get_ids_after_those_in_batches(root, producer_id, following):
    with open_store(root, "a") as store:
        append(store.log("t", 1), producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert kstore.adopt(root).next_producer_id == following


def test_ids_that_kstore_drew_do_not_count(root):
    with open_store(root, "a") as store:
        append(store.log("t", 1), producer_id=LEAST_RANDOM_ID, producer_epoch=0, base_sequence=0)
    report = kstore.adopt(root)
    assert report.next_producer_id == 0
    assert found(report, "producer ids") == [{"broker": -1, "epoch": -1, "next": 0}]


def test_producers_get_ids_after_those_in_snapshots(root):
    with open_store(root, "a") as store:
        append(store.log("t", 1), producer_id=4321, producer_epoch=0, base_sequence=0)
        store.log("t", 1).roll()
        append(store.log("t", 1))
        store.log("t", 1).delete_records(1)
    for path in (root / "t-1").glob("*0.log"):
        path.unlink()
    assert kstore.adopt(root).next_producer_id == 5000


def test_producers_get_ids_after_those_of_transactional_ids():
    report = kstore.adopt(unpack("main-4.4.0", "trees") / "data", replace=True, dry_run=True)
    assert report.next_producer_id == 1000


# Settings


def test_without_settings_nothing_is_done(brokers_root):
    before = content(brokers_root)
    with pytest.raises(UnknownSettingsError, match="--keep-forever") as raised:
        kstore.adopt(brokers_root)
    assert raised.value.topics == ("keys", "t")
    assert content(brokers_root) == before


def test_records_are_kept_if_that_is_asked_for(brokers_root):
    report = kstore.adopt(brokers_root, keep_forever=True)
    forever = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
    assert settings_of(report, "t") == settings_of(report, "keys") == forever
    assert {topic.settings_from for topic in report.topics} == {"--keep-forever"}


def test_settings_are_taken_from_a_file_and_for_the_others_from_a_star(brokers_root, tmp_path):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"keys": {"cleanup.policy": "compact"}, "*": {"retention.ms": "5"}}))
    report = kstore.adopt(brokers_root, settings=path)
    assert settings_of(report, "keys") == {"cleanup.policy": "compact"}
    assert settings_of(report, "t") == {"retention.ms": "5"}


def test_given_settings_come_over_those_of_the_root(root):
    report = kstore.adopt(root, settings={"t": {"retention.ms": 99}, "*": {"retention.ms": 5}})
    assert settings_of(report, "t") == {"cleanup.policy": "delete", "retention.ms": "99"}
    assert settings_of(report, "keys")["retention.ms"] == "-1"


def test_settings_with_which_no_broker_starts_are_refused(root):
    before = content(root)
    with pytest.raises(TopicSettingsError, match=r"retention\.ms=soon"):
        kstore.adopt(root, settings={"t": {"retention.ms": "soon"}})
    assert content(root) == before


def test_settings_of_topics_that_are_not_there_are_refused(root):
    with pytest.raises(TopicSettingsError, match=r"topics that the roots do not have: kees.*did you mean keys"):
        kstore.adopt(root, settings={"kees": {"retention.ms": "5"}})


def test_a_damaged_file_of_settings_is_refused(root):
    (root / "kstore-topic-settings").write_text("{}")
    before = content(root)
    with pytest.raises(AdoptionError, match="put back kstore-topic-settings from a copy") as raised:
        kstore.adopt(root, keep_forever=True)
    assert isinstance(raised.value.__cause__, CorruptCheckpointError)
    assert content(root) == before


def test_topics_of_brokers_need_no_settings(brokers_root):
    with open_store(brokers_root, "a") as store, kstore.Consumer(store, group="g") as consumer:
        consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(1)})
    report = kstore.adopt(brokers_root, keep_forever=True)
    offsets = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
    assert settings_of(report, "__consumer_offsets") == offsets


# Ids, holes, several roots


def test_a_topic_without_an_id_gets_one_for_all_its_partitions(root):
    for number in (0, 1):
        (root / f"t-{number}" / "partition.metadata").unlink()
    report = kstore.adopt(root)
    ids = {read_partition_metadata(str(root / f"t-{number}")) for number in (0, 1)}
    assert ids == {id_of(report, "t")}
    assert [topic.has_new_id for topic in report.topics] == [False, True]


def test_a_partition_without_an_id_gets_that_of_its_topic(root):
    (root / "t-1" / "partition.metadata").unlink()
    kstore.adopt(root)
    assert read_partition_metadata(str(root / "t-1")) == read_partition_metadata(str(root / "t-0"))


def test_partitions_of_two_topics_of_one_name_are_refused(root):
    shutil.copy(root / "keys-0" / "partition.metadata", root / "t-1" / "partition.metadata")
    with pytest.raises(AdoptionError, match="the partitions of topic 't' are of different topics"):
        kstore.adopt(root)


def test_a_malformed_id_is_refused_with_what_to_do(root):
    (root / "t-1" / "partition.metadata").write_text("version: 0\ntopic_id: ?")
    with pytest.raises(AdoptionError, match="remove the file if the id of the topic does not matter"):
        kstore.adopt(root)


def test_a_missing_number_gets_a_record_and_is_said(root):
    with open_store(root, "a") as store:
        store.create_partitions("t", 4)
    shutil.rmtree(root / "t-1")
    report = kstore.adopt(root)
    (topic,) = (topic for topic in report.topics if topic.name == "t")
    assert (topic.partitions, topic.holes) == (4, (1,))
    assert "the broker makes them, empty" in topic.notes[0]
    assert [one["number"] for one in found(report, "partition") if one["id"] == topic.topic_id] == [0, 1, 2, 3]


@pytest.mark.parametrize(("left", "count"), [([*range(50)], 50), ([*range(40)], 50), ([45], 50), ([*range(46)], 50)])
def test_an_internal_topic_has_as_many_partitions_as_its_names_prove(brokers_root, left, count):
    """A group of the name is in partition 45 of 50, and not in that of 46."""
    with open_store(brokers_root, "a") as store, kstore.Consumer(store, group=GROUP_IN_45) as consumer:
        consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(1)})
    for number in set(range(50)) - set(left):
        shutil.rmtree(brokers_root / f"__consumer_offsets-{number}")
    report = kstore.adopt(brokers_root, keep_forever=True)
    (topic,) = (topic for topic in report.topics if topic.name == "__consumer_offsets")
    expected = count if 45 in left else len(left)
    assert (topic.partitions, topic.holes) == (expected, tuple(sorted(set(range(expected)) - set(left))))


def test_an_internal_topic_that_does_not_show_its_number_is_refused(brokers_root):
    with open_store(brokers_root, "a") as store, kstore.Consumer(store, group="g") as consumer:
        consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(1)})
    (home,) = (
        path for path in brokers_root.glob("__consumer_offsets-*") if any(p.stat().st_size for p in path.glob("*.log"))
    )
    number = int(home.name.rpartition("-")[2])
    other = brokers_root / f"__consumer_offsets-{(number + 1) % 50}"
    shutil.rmtree(other)
    home.rename(other)
    with pytest.raises(AdoptionError, match="do not show how many there were"):
        kstore.adopt(brokers_root, keep_forever=True)


def test_partitions_of_several_roots_name_their_directories(root, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (root / "t-1").rename(other / "t-1")
    report = kstore.adopt([root, other], node_id=2)
    ids = {path: read_meta_properties(str(path)).directory_id for path in (root, other)}
    assert {
        one["number"]: one["directories"] for one in found(report, "partition") if one["id"] == id_of(report, "t")
    } == {
        0: [ids[root]],
        1: [ids[other]],
    }
    assert {read_meta_properties(str(path))[:3] for path in (root, other)} == {(1, report.cluster_id, 2)}
    assert found(report, "broker")[0]["directories"] == sorted(ids.values())
    assert not (other / "__cluster_metadata-0").exists()
    assert f"log.dirs={root},{other}" in report.server_properties
    assert not kstore.adopt([root, other]).is_changed


def test_a_partition_in_two_roots_is_refused(root, tmp_path):
    shutil.copytree(root, tmp_path / "copy", ignore=shutil.ignore_patterns("meta.properties"))
    before = content(root)
    with pytest.raises(AdoptionError, match="partition keys-0 is in two roots"):
        kstore.adopt([root, tmp_path / "copy"])
    assert content(root) == before


def test_a_copied_directory_id_is_refused(root, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(root / "meta.properties", other / "meta.properties")
    with pytest.raises(AdoptionError, match=r"have the same directory\.id"):
        kstore.adopt([root, other])


@pytest.mark.parametrize("state", ["delete", "stray", "future"])
def test_what_a_broker_set_aside_is_left_alone_and_said(root, state):
    path = root / f"old-0.{uuid.uuid4().hex}-{state}"
    path.mkdir()
    report = kstore.adopt(root)
    assert report.left_alone == (str(path),)
    assert [topic.name for topic in report.topics] == ["keys", "t"]
    assert path.is_dir()


def test_a_directory_that_is_no_partition_is_refused(root):
    (root / "lost+found").mkdir()
    with pytest.raises(AdoptionError, match="is no directory of a partition: a broker does not start with it"):
        kstore.adopt(root)
    (root / "lost+found").rename(root / "remote-log-index-cache")
    kstore.adopt(root)


def test_damage_of_a_log_is_said(root):
    log = next((root / "t-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-3])
    (notice,) = kstore.adopt(root).notices
    assert notice.startswith("damaged: ")
    assert "kstore recover" in notice


# Whose a root is


def test_a_root_in_use_is_refused(root):
    with open_store(root, "a"):
        for is_dry in (False, True):
            with pytest.raises(LogLockedError):
                kstore.adopt(root, dry_run=is_dry)


def test_a_root_of_another_node_or_cluster_is_refused_unless_it_is_replaced(brokers_root):
    for options in ({"node_id": 9}, {"cluster_id": CLUSTER}):
        with pytest.raises(ClusterOwnedError, match="take the root over with --replace"):
            kstore.adopt(brokers_root, keep_forever=True, **options)
    report = kstore.adopt(brokers_root, keep_forever=True, replace=True, node_id=9, cluster_id=CLUSTER)
    assert read_meta_properties(str(brokers_root))[:3] == (1, CLUSTER, 9)
    assert (report.node_id, report.cluster_id) == (9, CLUSTER)


def test_a_root_of_zookeepers_time_becomes_one_of_kraft(brokers_root):
    write_meta_properties(str(brokers_root), MetaProperties(0, CLUSTER, 6))
    kstore.adopt(brokers_root, keep_forever=True)
    made = read_meta_properties(str(brokers_root))
    assert made[:3] == (1, CLUSTER, 6)
    assert made.directory_id is not None


def test_a_root_of_zookeepers_time_without_ids_is_adopted():
    report = kstore.adopt(unpack("v0-0.8.2.2", "trees") / "data", keep_forever=True, dry_run=True)
    assert all(topic.has_new_id for topic in report.topics)


def test_an_export_and_a_restored_root_are_adopted(root, tmp_path):
    kstore.export(root, tmp_path / "exported", format="kstore")
    kstore.restore(root, tmp_path / "restored")
    with pytest.raises(UnknownSettingsError):
        kstore.adopt(tmp_path / "exported")
    assert kstore.adopt(tmp_path / "exported", keep_forever=True).partition_count == 3
    report = kstore.adopt(tmp_path / "restored")
    assert settings_of(report, "keys")["cleanup.policy"] == "compact"
    assert settings_of(report, "t")["retention.ms"] == "-1"


def test_an_empty_root_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(AdoptionError, match="there is no partition"):
        kstore.adopt(tmp_path / "empty")
    with pytest.raises(LogNotFoundError):
        kstore.adopt(tmp_path / "none")


def test_wrong_arguments_are_refused(root):
    with pytest.raises(ValueError, match="at least one directory"):
        kstore.adopt([])
    with pytest.raises(ValueError, match="different directories"):
        kstore.adopt([root, root])
    with pytest.raises(ValueError, match="release must be one of"):
        kstore.adopt(root, release="2.8")
    with pytest.raises(ValueError, match="node_id"):
        kstore.adopt(root, node_id=-1)


# Clusters


def write_cluster(root: Path, *values: bytes) -> None:
    """The metadata of a cluster that has used the root: a log with a topic t, and an old quorum's state."""
    topic_id = read_partition_metadata(str(root / "t-0"))
    write_metadata(
        root,
        [
            metadata(12, name="metadata.version", featureLevel=27),
            metadata(12, name="transaction.version", featureLevel=2),
            topic_record("t", topic_id),
            metadata(4, resourceType=2, resourceName="t", name="retention.ms", value="777"),
            metadata(4, resourceType=2, resourceName="t", name="min.insync.replicas", value="2"),
            metadata(4, resourceType=4, resourceName="", name="min.insync.replicas", value="2"),
            metadata(4, resourceType=4, resourceName="1", name="log.cleaner.threads", value="3"),
            partition_record(topic_id, 2, epoch=30),
            metadata(15, brokerId=1, brokerEpoch=5, nextProducerId=70_000),
            *values,
        ],
    )
    (root / "__cluster_metadata-0" / "quorum-state").write_text(
        json.dumps({"leaderId": 1, "leaderEpoch": 6, "currentVoters": [{"voterId": 1}]})
    )


def partition_record(topic_id, number, *, epoch):
    return metadata(
        3,
        1,
        partitionId=number,
        topicId=topic_id,
        replicas=[1, 2],
        isr=[1],
        removingReplicas=[],
        addingReplicas=[],
        leader=1,
        leaderEpoch=epoch,
        partitionEpoch=3,
        directories=[ID, ID],
    )


def test_the_metadata_of_a_cluster_is_left_alone(root):
    write_cluster(root)
    before = content(root)
    with pytest.raises(ClusterOwnedError, match=r"a broker starts on it as it is.*--replace"):
        kstore.adopt(root)
    assert content(root) == before


def test_a_cluster_is_taken_over_with_its_topics_settings_and_features(root):
    write_cluster(root)
    old = content(root / "__cluster_metadata-0")
    report = kstore.adopt(root, replace=True)
    assert settings_of(report, "t") == {
        "cleanup.policy": "delete",
        "min.insync.replicas": "1",
        "retention.ms": "777",
    }
    of_brokers = {(one["of"], one["name"]): one["value"] for one in found(report, "config") if one["resource"] == 4}
    assert of_brokers == {("", "min.insync.replicas"): "1", ("1", "log.cleaner.threads"): "3"}
    assert report.features == {"metadata.version": 27, "transaction.version": 2}
    partitions = [
        (one["number"], one["leader_epoch"]) for one in found(report, "partition") if one["id"] == id_of(report, "t")
    ]
    assert partitions == [(0, 1), (1, 0), (2, 31)]
    assert report.next_producer_id == 70_000
    assert Path(report.snapshot).name.endswith("-0000000007.checkpoint")
    aside = Path(report.set_aside)
    assert sorted(path.name for path in aside.iterdir()) == ["00000000000000000000.log", "quorum-state"]
    for path in aside.iterdir():
        assert path.read_bytes() == old[str(root / "__cluster_metadata-0" / path.name)]
    assert [path.name for path in (root / "__cluster_metadata-0").iterdir()] == [Path(report.snapshot).name]
    assert not kstore.adopt(root).is_changed


def test_what_is_not_carried_over_is_listed(root):
    write_cluster(
        root,
        metadata(18, **ACL, operation=3, permissionType=3),
        metadata(
            14, entity=[{"entityType": "user", "entityName": "bob"}], key="consumer_byte_rate", value=5.0, remove=False
        ),
        metadata(11, name="carol", mechanism=1, salt=b"s", storedKey=b"k", serverKey=b"x", iterations=4096),
        topic_record("elsewhere", OTHER_ID),
    )
    lost = "\n".join(kstore.adopt(root, replace=True).lost)
    for said in ("User:alice", "quota of user 'bob': consumer_byte_rate=5", "user 'carol'", "topic 'elsewhere'"):
        assert said in lost


def test_settings_of_another_topic_of_the_name_are_not_taken(root):
    write_metadata(
        root,
        [topic_record("t", OTHER_ID), metadata(4, resourceType=2, resourceName="t", name="retention.ms", value="777")],
    )
    report = kstore.adopt(root, replace=True)
    assert settings_of(report, "t")["retention.ms"] == "-1"
    assert id_of(report, "t") == read_partition_metadata(str(root / "t-0"))


def test_a_release_has_its_own_features(root):
    report = kstore.adopt(root, release="4.1")
    assert report.features["metadata.version"] == 27
    assert ("config", {"resource": 4, "of": "", "name": "min.insync.replicas", "value": "1"}) in records_of(report)
    report = kstore.adopt(root, release="4.4")
    assert report.features["share.version"] == 2
    assert "share.coordinator.state.topic.replication.factor=1" in report.server_properties


def test_an_old_bootstrap_file_is_set_aside(root):
    (root / "bootstrap.checkpoint").write_bytes(b"old")
    report = kstore.adopt(root)
    assert (Path(report.set_aside) / "bootstrap.checkpoint").read_bytes() == b"old"
    assert not (root / "bootstrap.checkpoint").exists()


def test_what_is_set_aside_never_lands_on_what_was_before(root, tmp_path):
    for name in ("one", "two"):
        (root / "bootstrap.checkpoint").write_text(name)
        kstore.adopt(root)
    assert [(tmp_path / f"root.set-aside-{number}" / "bootstrap.checkpoint").read_text() for number in (1, 2)] == [
        "one",
        "two",
    ]


def test_the_place_for_what_is_set_aside_can_be_named(root, tmp_path):
    write_cluster(root)
    report = kstore.adopt(root, replace=True, set_aside=tmp_path / "kept")
    assert report.set_aside == str(tmp_path / "kept")
    assert (tmp_path / "kept" / "quorum-state").exists()


def test_damaged_metadata_is_refused_with_what_to_do(root):
    write_cluster(root)
    log = root / "__cluster_metadata-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[80] ^= 1
    log.write_bytes(data)
    with pytest.raises(AdoptionError, match=r"to go on without it, move .* out of the root"):
        kstore.adopt(root, replace=True)


def test_metadata_in_two_roots_is_refused(root, tmp_path):
    other = tmp_path / "other"
    with open_store(other, "a") as store:
        store.create_topic("u")
    for path in (root, other):
        write_metadata(path, [topic_record("t", ID)])
    with pytest.raises(AdoptionError, match="lies in two roots"):
        kstore.adopt([root, other], replace=True)


def test_topics_that_left_retention_to_their_broker_are_said(root):
    (root / "kstore-topic-settings").unlink()
    topic_id = read_partition_metadata(str(root / "t-0"))
    keys_id = read_partition_metadata(str(root / "keys-0"))
    write_metadata(root, [topic_record("t", topic_id), topic_record("keys", keys_id)])
    report = kstore.adopt(root, replace=True)
    assert "put the log.* settings of the old server.properties into the new one" in report.notices[0]
    assert "log.retention.ms=-1" in report.server_properties


@pytest.mark.parametrize("name", ["main-3.9.2", "main-4.4.0"])
def test_the_roots_of_brokers_are_taken_over_whole(tmp_path, name):
    root = tmp_path / "data"
    shutil.copytree(unpack(name, "trees") / "data", root)
    before = log_bytes(root)
    report = kstore.adopt(root, replace=True)
    partitions = {path.name for path in root.glob("*-[0-9]") if path.name != "__cluster_metadata-0"}
    assert {f"{topic.name}-{number}" for topic in report.topics for number in range(topic.partitions)} == partitions
    assert settings_of(report, "compact-keep")["cleanup.policy"] == "compact"
    assert log_bytes(root) == {path: data for path, data in before.items() if "__cluster_metadata" not in path}
    assert len(list(Path(report.set_aside).glob("*.log"))) == 1


def test_each_log_is_read_once(root):
    with open_store(root, "a") as store:
        for _ in range(50):
            append(store.log("t", 0))
        size = store.log("t", 0).size_in_bytes
    env = CountingEnv()
    kstore.adopt(root, env=env, dry_run=True)
    assert env.log_bytes == size
    assert [Path(file.path).parent.name for file in env.opened if file.path.endswith(".log")] == [
        "keys-0",
        "t-0",
        "t-1",
    ]
    assert env.open_names() == []
