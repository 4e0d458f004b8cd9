"""Goal: what a task stages is in files as it was encoded, and no file of a failed attempt is passed on.
Method: producers over staging sinks in temporary folders; more partitions than files may be open; writes that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore.errors import StorageError, UnknownTopicOrPartitionError
from kstore.producer.producer import Producer
from kstore.staging import StagingArea, StagingSink, job_name, partitions_by_topic, prepare_root
from kstore.store.store import open_store
from kstore.types import INTERNAL_TOPICS
from tests.fakes.full_disk import FullEnv
from tests.making.staging import PARTITIONS, TOPIC, make_root, stage
from tests.reference import codec as reference


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_root(tmp_path / "root")


def test_partitions_are_those_that_records_can_be_sent_to(root: Path) -> None:
    (root / "not-a-partition").mkdir()
    (root / "x-01").mkdir()
    assert partitions_by_topic(root) == {TOPIC: list(range(PARTITIONS))}
    assert not INTERNAL_TOPICS & partitions_by_topic(root).keys()


def test_staged_files_hold_the_batches_of_a_producer_without_an_id(root: Path) -> None:
    records = [(at % PARTITIONS, b"%d" % at) for at in range(100)]
    app = ("q", 1)
    files = stage(root, app, records, batch_size=128, compression_type="zstd")
    assert {one.job for one in files} == {job_name(*app)}
    for one in files:
        data = Path(StagingArea(root).path_of(one)).read_bytes()
        assert len(data) == one.size_in_bytes
        batches = list(reference.read_batches(data))
        assert len(batches) > 1
        assert {(batch.header.producer_id, batch.header.base_offset) for batch in batches} == {(-1, 0)}
        values = [record.value for batch in batches for record in batch.records]
        assert values == [value for partition, value in records if partition == one.partition]
        assert len(values) == one.record_count


def test_more_partitions_than_open_files_are_staged_whole(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with open_store(root, "a") as store:
        store.create_topic("wide", 50)
    prepare_root(root)
    records = [(at % 50, b"%d" % at) for at in range(500)]
    files = stage(root, ("q", 0), records, topic="wide", batch_size=0)
    assert len({one.name for one in files}) == len(files) == 50
    for one in files:
        data = Path(StagingArea(root).path_of(one)).read_bytes()
        found = [record.value for record in reference.read_records(data)]
        assert found == [value for partition, value in records if partition == one.partition]


def test_attempts_of_one_job_share_no_file(root: Path) -> None:
    first, second = (stage(root, ("q", 0), [(0, b"x")]) for _ in range(2))
    assert first[0].job == second[0].job
    assert first[0].name != second[0].name


def test_failed_write_fails_the_attempt_for_good(root: Path) -> None:
    env = FullEnv()
    sink = StagingSink(StagingArea(root, env), "job", partitions=partitions_by_topic(root), env=env)
    with Producer(sink, enable_idempotence=False) as producer:
        producer.send(TOPIC, b"written", partition=0).result()
        env.full = ("-0", "-1", "-2")
        with pytest.raises(StorageError, match="no space"):
            producer.send(TOPIC, b"lost", partition=0).result()
        env.full = ()
        with pytest.raises(StorageError, match="no space"):
            producer.send(TOPIC, b"after it", partition=0).result()
    with pytest.raises(StorageError, match="no space"):
        sink.finish()
    sink.discard()
    assert list(Path(StagingArea(root).path).iterdir()) == []


def test_topic_that_is_missing_has_the_partitions_of_a_new_one_or_is_refused(root: Path) -> None:
    area = StagingArea(root)
    sink = StagingSink(area, "job", partitions=partitions_by_topic(root), new_topic_partitions=5)
    assert (sink.partition_count(TOPIC), sink.partition_count("new")) == (PARTITIONS, 5)
    assert sink.cluster().partition_count("new") == 5
    strict = StagingSink(area, "job", partitions=partitions_by_topic(root))
    with pytest.raises(UnknownTopicOrPartitionError, match="'new' is not in"):
        strict.partition_count("new")


def test_job_of_any_application_is_one_directory_name() -> None:
    names = {job_name(app_id, 3) for app_id in ("q", "a/b", "../..", "", "é" * 300, "a" * 101, "q.3", "\ud800")}
    assert len(names) == 8
    assert all("/" not in name and len(name) <= 120 and name not in (".", "..") for name in names)
