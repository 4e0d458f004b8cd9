"""Goal: topics that come, change and go later are in the metadata of the root too, so that a broker takes them.
Method: changes of stores, by the command, a server and Spark's sink, in roots that no broker has started on and in
those that one has; the metadata is read afterwards."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path

import pytest

import kstore
from kstore.adoption.changes import keep_topics_in_metadata
from kstore.errors import AdoptionError
from kstore.log.files.root_files import MetaProperties, write_meta_properties
from kstore.serve.config import ServerConfig
from kstore.serve.server import Server
from kstore.staging import prepare_root
from kstore.store.metadata.image import TOPIC_RESOURCE, MetadataImage
from kstore.store.store import open_store
from kstore.types import OffsetAndMetadata, TopicPartition
from tests.adoption.test_adopt import append, batch_of_leader
from tests.cli.runner import runner
from tests.making.cluster import metadata, write_metadata

ID = uuid.UUID(int=5 << 64 | 1)
METADATA = "__cluster_metadata-0"


@pytest.fixture
def root(tmp_path):
    """An adopted root, on which no broker has started."""
    path = tmp_path / "root"
    with open_store(path, "a") as store:
        store.create_topic("t", 2)
        append(store.log("t", 0))
    kstore.adopt(path, node_id=4)
    return path


@pytest.fixture
def used_root(root):
    """The same, after a broker: its log has the records of the snapshot, and a quorum's state."""
    directory = root / METADATA
    (snapshot,) = directory.glob("*.checkpoint")
    (directory / "quorum-state").write_text('{"leaderId":4,"leaderEpoch":9,"currentVoters":[{"voterId":4}]}')
    end = int(snapshot.name[:20])
    write_metadata(root, [metadata(20)], base_offset=end)
    return root


def never(reason: str) -> None:
    raise AssertionError(reason)


def image_of(root: Path) -> MetadataImage:
    from kstore.adoption.cluster import read_cluster
    from kstore.env import DEFAULT_ENV

    state = read_cluster([str(root)], DEFAULT_ENV)
    assert not state.image.problems
    return state.image


def partitions_of(root: Path, topic: str) -> list[int]:
    return sorted(image_of(root).topics_by_name()[topic].partitions)


def settings_of(root: Path, topic: str) -> dict[str, str]:
    return image_of(root).configs.get((TOPIC_RESOURCE, topic), {})


@pytest.fixture(params=["root", "used_root"])
def either(request):
    return request.getfixturevalue(request.param)


def test_a_new_topic_is_in_the_metadata(either):
    before = image_of(either)
    with open_store(either, "a") as store:
        keep_topics_in_metadata(store, never)
        topic_id = store.create_topic("new", 3, config={"retention_ms": 99, "segment_bytes": 2**21})
        new = image_of(either).topics_by_name()["new"]
    assert (new.topic_id, sorted(new.partitions)) == (topic_id, [0, 1, 2])
    directory_id = store.meta_properties.directory_id
    for partition in new.partitions.values():
        assert (partition.replicas, partition.leader, partition.leader_epoch) == ([4], 4, 0)
        assert partition.directories == [directory_id]
    assert settings_of(either, "new") == {
        "cleanup.policy": "delete",
        "retention.bytes": "-1",
        "retention.ms": "99",
        "segment.bytes": "2097152",
    }
    after = image_of(either)
    assert after.topics_by_name()["t"] == before.topics_by_name()["t"]
    assert (after.brokers, after.features, after.next_producer_id) == (
        before.brokers,
        before.features,
        before.next_producer_id,
    )


def test_settings_that_a_topic_was_given_are_in_the_metadata_where_they_are_the_default(either):
    with open_store(either, "a") as store:
        keep_topics_in_metadata(store, never)
        store.create_topic("new", config={"message_timestamp_type": "CreateTime"})
        store.change_topic_config("t", {"segment_ms": 604_800_000})
    assert settings_of(either, "new")["message.timestamp.type"] == "CreateTime"
    assert settings_of(either, "t")["segment.ms"] == "604800000"


def test_a_root_can_be_adopted_again_after_it(root):
    with open_store(root, "a") as store:
        keep_topics_in_metadata(store, never)
        store.create_topic("new")
    assert [topic.name for topic in kstore.adopt(root).topics] == ["new", "t"]
    assert not kstore.adopt(root).is_changed


def test_added_partitions_are_in_the_metadata(either):
    with open_store(either, "a") as store:
        keep_topics_in_metadata(store, never)
        store.create_partitions("t", 5)
    assert partitions_of(either, "t") == [0, 1, 2, 3, 4]


def test_a_deleted_topic_is_gone_from_the_metadata(either):
    with open_store(either, "a") as store:
        keep_topics_in_metadata(store, never)
        store.delete_topic("t")
    assert "t" not in image_of(either).topics_by_name()
    assert settings_of(either, "t") == {}


def test_a_topic_that_is_made_again_has_its_new_id_in_the_metadata(either):
    with open_store(either, "a") as store:
        old = store.topic_id("t")
        store.delete_topic("t")
        keep_topics_in_metadata(store, never)
        new = store.create_topic("t")
    assert old != new
    assert image_of(either).topics_by_name()["t"].topic_id == new
    assert partitions_of(either, "t") == [0]


def test_a_changed_setting_is_in_the_metadata(either):
    with open_store(either, "a") as store:
        keep_topics_in_metadata(store, never)
        store.change_topic_config("t", {"retention_ms": 55})
        store.change_topic_config("t", {"max_message_bytes": 77}, validate_only=True)
    assert settings_of(either, "t")["retention.ms"] == "55"
    assert "max.message.bytes" not in settings_of(either, "t")


def test_topics_of_coordinators_are_in_the_metadata(either):
    with open_store(either, "a") as store:
        keep_topics_in_metadata(store, never)
        with kstore.Consumer(store, group="g") as consumer:
            consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(1)})
    assert partitions_of(either, "__consumer_offsets") == [*range(50)]
    assert settings_of(either, "__consumer_offsets")["cleanup.policy"] == "compact"


def test_the_epoch_of_a_log_that_was_filled_is_respected(either):
    with open_store(either, "a") as store:
        store.create_topic("filled")
        store.log("filled").append_as_follower(batch_of_leader(6))
        keep_topics_in_metadata(store, never)
        store.create_partitions("filled", 2)
    partitions = image_of(either).topics_by_name()["filled"].partitions
    assert [partitions[number].leader_epoch for number in (0, 1)] == [7, 0]


def test_records_go_behind_the_last_whole_batch_in_the_epoch_of_the_leader(used_root):
    (log,) = (used_root / METADATA).glob("*.log")
    whole = log.read_bytes()
    log.write_bytes(whole + whole[:40])
    with open_store(used_root, "a") as store:
        keep_topics_in_metadata(store, never)
        store.create_topic("new")
    data = log.read_bytes()
    assert data.startswith(whole)
    added = data[len(whole) :]
    assert int.from_bytes(added[8:12], "big") + 12 == len(added)
    assert int.from_bytes(added[12:16], "big") == 9
    assert int.from_bytes(added[:8], "big") == int(log.name[:20]) + 1


def test_the_topics_of_another_root_of_the_broker_stay(root, tmp_path):
    other = tmp_path / "other"
    with open_store(other, "a") as store:
        store.create_topic("u")
    kstore.adopt([root, other], replace=True)
    with open_store(root, "a") as store:
        keep_topics_in_metadata(store, never)
        store.create_topic("new")
    assert sorted(image_of(root).topics_by_name()) == ["new", "t", "u"]


def test_a_cluster_of_several_nodes_is_left_alone(root):
    (root / METADATA / next((root / METADATA).iterdir()).name).unlink()
    write_metadata(root, [metadata(12, name="metadata.version", featureLevel=21)])
    (root / METADATA / "quorum-state").write_text(
        '{"leaderId":4,"leaderEpoch":9,"currentVoters":[{"voterId":4},{"voterId":5}]}'
    )
    before = {path: path.read_bytes() for path in (root / METADATA).iterdir()}
    told: list[str] = []
    with open_store(root, "a") as store:
        keep_topics_in_metadata(store, told.append)
        store.create_topic("new")
        store.create_topic("another")
    assert told == ["its cluster has other nodes: 5"]
    assert {path: path.read_bytes() for path in (root / METADATA).iterdir()} == before


def test_metadata_of_a_version_without_directories_is_left_alone(root):
    (root / METADATA / next((root / METADATA).iterdir()).name).unlink()
    write_metadata(root, [metadata(12, name="metadata.version", featureLevel=16)])
    told: list[str] = []
    with open_store(root, "a") as store:
        keep_topics_in_metadata(store, told.append)
        store.create_topic("new")
    assert "metadata.version 16, needed 17" in told[0]


def test_metadata_in_another_root_is_said(tmp_path):
    told: list[str] = []
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
    (tmp_path / "root" / "kstore-topic-settings").unlink()
    with open_store(tmp_path / "root", "a") as store:
        keep_topics_in_metadata(store, told.append)
        store.create_topic("new")
    assert "is not in" in told[0]


def test_a_root_that_no_cluster_has_is_as_before(tmp_path):
    with open_store(tmp_path / "root", "a") as store:
        keep_topics_in_metadata(store, never)
        store.create_topic("t")
    assert not (tmp_path / "root" / METADATA).exists()


def test_damaged_metadata_is_said_and_not_written(used_root):
    (log,) = (used_root / METADATA).glob("*.log")
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    told: list[str] = []
    with open_store(used_root, "a") as store:
        keep_topics_in_metadata(store, told.append)
        store.create_topic("new")
    assert "the cluster's metadata cannot be read" in told[0]
    assert log.read_bytes() == data


def test_a_setting_that_is_taken_back_is_the_default_of_the_root_in_the_metadata(either):
    """A broker's own default of retention would delete the records."""
    with open_store(either, "a") as store:
        keep_topics_in_metadata(store, never)
        store.change_topic_config("t", {"retention_ms": 55, "max_message_bytes": 77, "cleanup_policy": "compact"})
        assert settings_of(either, "t")["max.message.bytes"] == "77"
        config = store.change_topic_config("t", {}, reset=["retention_ms", "max_message_bytes", "cleanup_policy"])
        assert (config.retention_ms, config.cleanup_policy) == (-1, "delete")
        assert store.topic_config("t") == config == store.config
    assert settings_of(either, "t") == {"cleanup.policy": "delete", "retention.ms": "-1"}


def test_a_setting_that_only_the_metadata_has_can_be_taken_back(tmp_path):
    root = tmp_path / "root"
    with open_store(root, "a") as store:
        store.create_topic("t")
    others = {"max.message.bytes": "88", "unclean.leader.election.enable": "true"}
    kstore.adopt(root, settings={"t": {"retention.ms": "99", **others}})
    with open_store(root, "a") as store:
        keep_topics_in_metadata(store, never)
        assert store.topic_config("t").retention_ms == 99
        assert store.change_topic_config("t", {}, reset=["retention_ms", "max_message_bytes"]).retention_ms == -1
    assert settings_of(root, "t") == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "unclean.leader.election.enable": "true",
    }
    with open_store(root, "a") as store:
        assert store.topic_config("t").retention_ms == -1


def test_settings_of_a_brokers_own_topic_are_taken_back_to_the_brokers(either):
    with open_store(either, "a") as store:
        keep_topics_in_metadata(store, never)
        with kstore.Consumer(store, group="g") as consumer:
            consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(1)})
        store.change_topic_config("__consumer_offsets", {"cleanup_policy": "delete"})
        assert settings_of(either, "__consumer_offsets")["cleanup.policy"] == "delete"
        store.change_topic_config("__consumer_offsets", {}, reset=["cleanup_policy"])
    assert settings_of(either, "__consumer_offsets")["cleanup.policy"] == "compact"


def test_a_store_goes_by_the_metadata_after_a_change_of_it(either):
    """The setting goes back to what the metadata said when the store was opened."""
    with open_store(either, "a") as store:
        keep_topics_in_metadata(store, never)
        store.change_topic_config("t", {"retention_ms": 55})
    with open_store(either, "a") as store:
        keep_topics_in_metadata(store, never)
        log = store.log("t", 0)
        for value in (66, 55):
            store.change_topic_config("t", {"retention_ms": value})
            assert settings_of(either, "t")["retention.ms"] == str(value)
            assert store.topic_config("t").retention_ms == log.config.retention_ms == value
    with open_store(either, "a") as store:
        assert store.topic_config("t").retention_ms == 55


def test_metadata_that_went_away_meanwhile_is_an_error(root):
    with open_store(root, "a") as store:
        keep_topics_in_metadata(store, never)
        store.create_topic("one")
        for path in (root / METADATA).iterdir():
            path.unlink()
        with pytest.raises(AdoptionError, match="no longer in"):
            store.create_topic("new")


# Who changes topics


def test_the_command_writes_what_it_changes_into_the_metadata(root, monkeypatch, capsysbinary):
    run = runner(monkeypatch, capsysbinary)
    refused = run("topics", root, "--create", "new")
    assert (refused.status, "--force" in refused.err) == (2, True)
    done = run("topics", root, "--create", "new", "--partitions", 2, "--config", "retention.ms=5", "--force")
    assert (done.status, "-stray" in done.err) == (0, False)
    assert partitions_of(root, "new") == [0, 1]
    assert settings_of(root, "new")["retention.ms"] == "5"
    assert run("topics", root, "--alter", "new", "--partitions", 3, "--force").status == 0
    assert partitions_of(root, "new") == [0, 1, 2]
    assert run("configs", root, "--topic", "new", "--set", "retention.ms=6", "--force").status == 0
    assert settings_of(root, "new")["retention.ms"] == "6"
    assert run("configs", root, "--topic", "new", "--unset", "retention.ms", "--force").status == 0
    assert settings_of(root, "new")["retention.ms"] == "-1"
    assert run("delete-topic", root, "--topic", "new", "--force").status == 0
    assert "new" not in image_of(root).topics_by_name()


def test_a_server_writes_topics_that_it_is_asked_for_into_the_metadata(either):
    with Server(str(either), config=ServerConfig(port=0, changes_topics_of_clusters=True)) as server:
        server.store.create_topic("new")
    assert partitions_of(either, "new") == [0]


def test_a_server_writes_the_topics_of_its_groups_into_the_metadata_unasked(either):
    with Server(str(either), config=ServerConfig(port=0)) as server, kstore.Consumer(server.store, group="g") as one:
        one.commit({TopicPartition("t", 0): OffsetAndMetadata(1)})
    assert partitions_of(either, "__consumer_offsets") == [*range(50)]


def test_sparks_sink_writes_the_topics_that_it_makes_into_the_metadata(either):
    prepare_root(either, new_topics=[("new", 2)])
    assert partitions_of(either, "new") == [0, 1]
    assert partitions_of(either, "__kstore_sink") == [0]


@pytest.fixture
def source(tmp_path):
    """A root whose logs have the leader epochs 0 and 5."""
    path = tmp_path / "source"
    with open_store(path, "a") as store:
        store.create_topic("t", 2)
        append(store.log("t", 0))
        store.log("t", 0).append_as_follower(batch_of_leader(5, base_offset=store.log("t", 0).log_end_offset))
        store.create_topic("new", 3, config={"retention_ms": 44})
        store.log("new", 1).append_as_follower(batch_of_leader(5))
    return path


def epochs_of(root: Path, topic: str) -> list[int]:
    partitions = image_of(root).topics_by_name()[topic].partitions
    return [partitions[number].leader_epoch for number in sorted(partitions)]


def test_a_restore_writes_its_topics_into_the_metadata_with_the_epochs_of_their_records(either, source):
    assert kstore.restore(source, either, topics=["new"]).is_complete
    new = image_of(either).topics_by_name()["new"]
    with open_store(either) as store:
        assert new.topic_id == store.topic_id("new")
    assert epochs_of(either, "new") == [0, 6, 0]
    assert settings_of(either, "new")["retention.ms"] == "44"


def test_an_adoption_has_nothing_to_add_to_what_was_restored(root, source):
    assert kstore.restore(source, root, topics=["new", "t"]).is_complete
    before = image_of(root)
    kstore.adopt(root)
    assert (image_of(root).topics, image_of(root).configs) == (before.topics, before.configs)


def test_a_restore_that_goes_on_in_a_topic_raises_its_epoch_in_the_metadata(either, source):
    before = image_of(either).topics_by_name()["t"].partitions
    assert kstore.restore(source, either, topics=["t"]).is_complete
    assert epochs_of(either, "t") == [6, before[1].leader_epoch]
    after = image_of(either).topics_by_name()["t"].partitions
    # A broker has seen the record before, if any has started.
    has_started = (either / METADATA / "quorum-state").exists()
    assert [after[number].partition_epoch for number in (0, 1)] == [int(has_started), 0]


def test_a_restore_into_a_root_of_several_nodes_says_which_topics_a_broker_sets_aside(root, source, caplog):
    (root / METADATA / next((root / METADATA).iterdir()).name).unlink()
    write_metadata(root, [metadata(12, name="metadata.version", featureLevel=21)])
    (root / METADATA / "quorum-state").write_text(
        '{"leaderId":4,"leaderEpoch":9,"currentVoters":[{"voterId":4},{"voterId":5}]}'
    )
    with caplog.at_level(logging.WARNING, "kstore.log"):
        assert kstore.restore(source, root, topics=["new"]).is_complete
    assert "sets topics aside (-stray)" in caplog.text
    assert "its cluster has other nodes: 5" in caplog.text


def test_an_import_writes_its_topics_into_the_metadata(either, tmp_path, monkeypatch, capsysbinary):
    line = '{"topic":"new","partition":1,"timestamp":1,"key":null,"value":"eA==","headers":[]}'
    (tmp_path / "in.json").write_text(line)
    assert runner(monkeypatch, capsysbinary)("import", tmp_path / "in.json", either).status == 0
    assert partitions_of(either, "new") == [0, 1]
    with open_store(either) as store:
        assert image_of(either).topics_by_name()["new"].topic_id == store.topic_id("new")


def test_an_import_of_another_root_writes_its_topics_into_the_metadata(either, source, monkeypatch, capsysbinary):
    assert runner(monkeypatch, capsysbinary)("import", source / "new-1", either, "--topic", "new").status == 0
    assert epochs_of(either, "new") == [0, 6]


def test_sparks_sink_says_which_topics_a_broker_sets_aside(tmp_path, caplog):
    with open_store(tmp_path / "root", "a"):
        pass
    (tmp_path / "root" / "kstore-topic-settings").unlink()
    write_meta_properties(str(tmp_path / "root"), MetaProperties(1, "Z29sZGVuLWtzdG9yZS0wMQ", 1, ID))
    with caplog.at_level(logging.WARNING, "kstore.log"):
        prepare_root(tmp_path / "root", new_topics=[("new", 2)])
    assert "sets topics aside (-stray)" in caplog.text
