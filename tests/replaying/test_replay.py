"""Goal: what a replay wrote into a cluster is what a consumer reads of the source, in its partitions and order.
Method: small roots, replayed into kstore's own server; records of both sides compared; answers that are errors."""

from __future__ import annotations

from pathlib import Path

import pytest

import kstore
from kstore.testing import KafkaServer
from tests.making.batches import batch, batches, flip_bit, record, write_root
from tests.making.replaying import contents, read, replayed
from tests.reference.codec import write_batch


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """t-0 and t-1 with offsets 0..39 in batches of 10, u-0 with one batch."""
    parts = {name: [batches(0, 4, records_per_batch=10)] for name in ("t-0", "t-1")}
    return write_root(tmp_path / "source", {**parts, "u-0": [[batch(0, 5)]]})


@pytest.fixture
def cluster(cluster: KafkaServer) -> KafkaServer:
    cluster.create_topic("t", 2)
    cluster.create_topic("u", 1)
    return cluster


def test_records_go_to_their_partitions_in_their_order(source: Path, cluster: KafkaServer) -> None:
    summary = replayed(source, cluster)
    for topic, partition in (("t", 0), ("t", 1), ("u", 0)):
        assert contents(cluster.records(topic, partition)) == read(source / f"{topic}-{partition}")
    assert summary.is_complete
    assert [each[:6] for each in summary.partitions] == [
        ("t", 0, "t", 0, 40, 40),
        ("t", 1, "t", 0, 40, 40),
        ("u", 0, "u", 0, 5, 5),
    ]
    assert [each.record_count for each in summary.partitions] == [40, 40, 5]


def test_null_and_empty_keys_values_and_headers_arrive_as_they_are(tmp_path: Path, cluster: KafkaServer) -> None:
    sent = [
        record(0, None, b"k"),
        record(1, b"", b""),
        record(2, b"v", None),
        record(3, b"v", b"k", headers=[(b"a", None), (b"a", b""), (b"", b"x"), ("é".encode(), b"y")]),
        record(4, b"v", timestamp_ms=-1),
        record(5, b"v", timestamp_ms=1),
    ]
    root = write_root(tmp_path / "root", {"t-0": [[write_batch(sent)]]})
    replayed(root, cluster)
    assert contents(cluster.records("t", 0)) == read(root / "t-0")
    assert [each.value for each in cluster.records("t", 0)][:3] == [None, b"", b"v"]


def test_bounds_of_offsets_and_times_are_those_of_a_scan(source: Path, cluster: KafkaServer) -> None:
    replayed(source, cluster, topics=["t"], partitions=0, start_offset=5, end_offset=25)
    assert contents(cluster.records("t", 0)) == read(source / "t-0", 5, 25)
    assert cluster.records("t", 1) == []
    replayed(source, cluster, topics=["t"], partitions=1, since=1_600_000_000_013, until=1_600_000_000_031)
    assert contents(cluster.records("t", 1)) == read(source / "t-1", 13, 31)


def test_names_are_changed_one_by_one_or_by_a_rule(source: Path, cluster: KafkaServer) -> None:
    cluster.create_topic("copy", 2)
    cluster.create_topic("old.t", 2)
    replayed(source, cluster, topics=["t"], rename={"t": "copy"})
    replayed(source, cluster, topics=["t"], rename="old.{topic}")
    assert contents(cluster.records("copy")) == contents(cluster.records("old.t"))
    assert cluster.records("t") == []
    with pytest.raises(kstore.ReplayError, match="two topics would become u: t and u"):
        replayed(source, cluster, rename={"t": "u"})
    with pytest.raises(kstore.ReplayError, match="not replayed: v"):
        replayed(source, cluster, rename={"v": "u"})
    with pytest.raises(ValueError, match=r"must have \{topic\} in it"):
        replayed(source, cluster, rename="old")
    with pytest.raises(ValueError, match="no topic of the name 'a/b'"):
        replayed(source, cluster, rename={"t": "a/b"})


def test_a_partition_that_is_missing_is_refused_before_the_first_record(source: Path) -> None:
    with KafkaServer(topics={"t": 1, "u": 1}) as cluster:
        with pytest.raises(kstore.ReplayError, match=r"has no partition 1 of topic t; nothing was sent") as caught:
            replayed(source, cluster)
        assert caught.value.summary is None
        assert cluster.records("t") == cluster.records("u") == []
        cluster.delete_topic("u")
        with pytest.raises(kstore.ReplayError, match=r"has no partition 1 of topic t, no topic u;"):
            replayed(source, cluster)
        assert cluster.store.topics == ("t",)


def test_missing_topics_are_created_as_they_are_in_the_source(source: Path) -> None:
    with kstore.open_store(source, "a") as store:
        settings = {"cleanup_policy": "compact", "message_timestamp_type": "LogAppendTime", "segment_bytes": 1 << 20}
        store.create_topic("new", 3, config=settings)
        store.log("new", 1).append(kstore.Record(key=b"k", value=b"v", timestamp_ms=5))
    with KafkaServer(topics={"t": 1}) as cluster:
        summary = replayed(source, cluster, partitions=1, create_topics=True)
        assert summary.created == ("new", "t")
        assert [place for place in cluster.store.partitions if place.topic == "new"] == [("new", n) for n in range(3)]
        config = cluster.store.log("new", 1).config
        assert (config.cleanup_policy, config.segment_bytes) == ("compact", 1 << 20)
        assert config.message_timestamp_type == "CreateTime", "else the timestamps would be those of the replay"
        for place in ("new-1", "t-1"):
            assert contents(cluster.records(place[:-2], 1)) == read(source / place)


def test_a_topic_whose_timestamps_would_be_replaced_is_refused(source: Path, cluster: KafkaServer) -> None:
    cluster.create_topic("now", 2, config={"message_timestamp_type": "LogAppendTime"})
    with pytest.raises(kstore.ReplayError, match=r"topic now of .* LogAppendTime"):
        replayed(source, cluster, topics=["t"], rename={"t": "now"})
    assert cluster.records("now") == []


def test_a_timestamp_of_zero_is_refused_with_its_place(tmp_path: Path, cluster: KafkaServer) -> None:
    sent = [record(0, b"a"), record(1, b"b", timestamp_ms=0), record(2, b"c")]
    root = write_root(tmp_path / "root", {"t-0": [[write_batch(sent)]]})
    with pytest.raises(kstore.ReplayError, match=r"t-0 at offset 1 .* timestamp 0") as caught:
        replayed(root, cluster)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 1)
    assert [each.value for each in cluster.records("t", 0)] in ([b"a"], [])


def test_the_name_of_a_header_with_nul_is_refused_with_its_place(tmp_path: Path, cluster: KafkaServer) -> None:
    root = write_root(tmp_path / "root", {"t-0": [[write_batch([record(0, b"a", headers=[(b"x\0y", b"")])])]]})
    with pytest.raises(kstore.ReplayError, match=r"t-0 at offset 0 .* NUL"):
        replayed(root, cluster)


def test_internal_topics_are_left_out_and_refused_by_name(source: Path, cluster: KafkaServer) -> None:
    with kstore.open_store(source, "a") as store:
        kstore.reset_offsets(store, "g", {kstore.TopicPartition("t", 0): 3})
    replayed(source, cluster)
    with pytest.raises(kstore.ReplayError, match=r"__consumer_offsets is a topic that a cluster writes itself"):
        replayed(source, cluster, topics=["__consumer_offsets"])


def test_only_what_a_consumer_saw_is_sent_and_no_control_record(tmp_path: Path, cluster: KafkaServer) -> None:
    root = tmp_path / "root"
    with kstore.open_store(root, "a") as store:
        store.create_topic("t", 1)
        with kstore.Producer(store, transactional_id="x") as producer:
            producer.init_transactions()
            for value, end in ((b"kept", "commit_transaction"), (b"aborted", "abort_transaction")):
                producer.begin_transaction()
                producer.send("t", value)
                producer.flush()
                getattr(producer, end)()
    replayed(root, cluster)
    assert [each.value for each in cluster.records("t", 0)] == [b"kept"]
    replayed(root, cluster, rename={"t": "u"}, isolation="read_uncommitted")
    assert [each.value for each in cluster.records("u", 0)] == [b"kept", b"aborted"]
    assert cluster.store.log("u", 0).log_end_offset == 2, "a marker would have an offset too"


def test_damage_ends_a_replay_or_is_left_out_as_by_every_reader(source: Path, cluster: KafkaServer) -> None:
    flip_bit(source / "t-0" / f"{0:020}.log", len(batch(0, 10)) + 80, bit=3)
    with pytest.raises(kstore.ReplayError, match="CRC mismatch") as caught:
        replayed(source, cluster, topics=["t"], partitions=0)
    assert isinstance(caught.value.__cause__, kstore.CorruptRecordError)
    assert caught.value.summary.partitions[0].end_offset == len(cluster.records("t", 0))
    skipped: list[kstore.SkippedRange] = []
    replayed(source, cluster, topics=["t"], partitions=0, rename={"t": "u"}, on_error="skip", on_skip=skipped.append)
    assert contents(cluster.records("u")) == read(source / "t-1", 0, 10) + read(source / "t-1", 20)
    assert len(skipped) == 1


@pytest.mark.parametrize(
    ("code", "number"), [("MESSAGE_TOO_LARGE", 10), ("INVALID_RECORD", 87), ("TOPIC_AUTHORIZATION_FAILED", 29)]
)
def test_a_record_that_the_cluster_refuses_is_named_and_nothing_follows_it(
    source: Path, cluster: KafkaServer, code: str, number: int
) -> None:
    cluster.fail_next("Produce", code)
    options = {"topics": ["t"], "partitions": 0, "client": {"batch.num.messages": 1, "linger.ms": 0}}
    with pytest.raises(kstore.ReplayError, match="the record of t-0 at offset 0 was not written: Broker: ") as caught:
        replayed(source, cluster, **options)
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.kafka_code) == ("t", 0, 0, number)
    assert error.summary.partitions[0].record_count == 0
    assert not error.summary.is_complete
    assert cluster.records("t") == [], "a batch after the one that failed would leave a gap"


def test_a_record_that_is_too_large_for_its_topic_is_refused_with_its_place(
    tmp_path: Path, cluster: KafkaServer
) -> None:
    cluster.create_topic("small", 1, config={"max_message_bytes": 1000})
    sent = [record(0, b"v"), record(1, b"v" * 2000), record(2, b"v")]
    root = write_root(tmp_path / "root", {"small-0": [[write_batch(sent)]]})
    with pytest.raises(kstore.ReplayError, match="size too large") as caught:
        replayed(root, cluster, client={"batch.num.messages": 1})
    assert (caught.value.offset, caught.value.kafka_code) == (1, 10)
    assert [each.value for each in cluster.records("small")] == [b"v"]


def test_a_record_of_more_than_a_megabyte_is_the_brokers_to_refuse(tmp_path: Path, cluster: KafkaServer) -> None:
    cluster.create_topic("large", 1, config={"max_message_bytes": 8 << 20})
    root = tmp_path / "root"
    with kstore.open_store(root, "a", kstore.LogConfig(max_message_bytes=8 << 20)) as store:
        store.create_topic("large", 1)
        store.log("large", 0).append(kstore.Record(value=b"v" * (3 << 20), timestamp_ms=5))
    replayed(root, cluster)
    assert [len(each.value) for each in cluster.records("large")] == [3 << 20]


def test_a_record_that_the_queue_cannot_hold_is_refused(tmp_path: Path, cluster: KafkaServer) -> None:
    root = write_root(tmp_path / "root", {"t-0": [[write_batch([record(0, b"v" * 5000)])]]})
    with pytest.raises(kstore.ReplayError, match=r"queue\.buffering\.max\.kbytes"):
        replayed(root, cluster, client={"queue.buffering.max.kbytes": 1})


def test_more_records_than_the_queue_holds_are_sent(tmp_path: Path, cluster: KafkaServer) -> None:
    root = write_root(tmp_path / "root", {"t-0": [batches(0, 20, records_per_batch=100)]})
    replayed(root, cluster, client={"queue.buffering.max.messages": 10})
    assert contents(cluster.records("t", 0)) == read(root / "t-0")


def test_more_partitions_than_logs_that_are_open_at_a_time_are_replayed(tmp_path: Path, cluster: KafkaServer) -> None:
    root = write_root(tmp_path / "root", {f"many-{n}": [[batch(0, 3)], [batch(3, n + 1)]] for n in range(40)})
    summary = replayed(root, cluster, create_topics=True)
    assert [each.record_count for each in summary.partitions] == [n + 4 for n in range(40)]
    assert all(contents(cluster.records("many", n)) == read(root / f"many-{n}") for n in range(40))


@pytest.mark.parametrize(
    "client", [{"acks": 1}, {"enable.idempotence": False}, {"transactional.id": "x"}, {"bootstrap.servers": "y"}]
)
def test_settings_that_a_replay_depends_on_are_refused(source: Path, cluster: KafkaServer, client: dict) -> None:
    with pytest.raises(ValueError, match=f"a replay sets {next(iter(client))} itself"):
        replayed(source, cluster, client=client)


def test_settings_that_librdkafka_does_not_know_are_refused(source: Path, cluster: KafkaServer) -> None:
    with pytest.raises(ValueError, match="librdkafka refuses its settings: No such configuration property"):
        replayed(source, cluster, client={"no.such.setting": 1})
    with pytest.raises(ValueError, match="above 0"):
        replayed(source, cluster, records_per_s=0)


def test_a_cluster_that_is_not_there_is_an_error(source: Path) -> None:
    with pytest.raises(kstore.ReplayError, match=r"127\.0\.0\.1:1 did not describe the cluster"):
        kstore.replay(source, "127.0.0.1:1", timeout=0.2)


def test_a_dry_run_changes_nothing_and_says_what_would_be_done(source: Path) -> None:
    with KafkaServer(topics={"t": 2}) as cluster:
        cluster.store.log("t", 0).append(kstore.Record(value=b"there"))
        summary = replayed(source, cluster, create_topics=True, dry_run=True)
        assert (summary.is_dry_run, summary.is_complete, summary.created) == (True, False, ("u",))
        assert [each[:7] for each in summary.partitions] == [
            ("t", 0, "t", 0, 40, 41, 40),
            ("t", 1, "t", 0, 40, 40, 40),
            ("u", 0, "u", 0, 5, 5, 5),
        ]
        assert cluster.store.topics == ("t",)
        assert len(cluster.records("t")) == 1


def test_progress_is_told_in_bytes_of_the_source(source: Path, cluster: KafkaServer) -> None:
    told: list[tuple[int, int]] = []
    replayed(source, cluster, topics=["t"], progress=lambda done, total: told.append((done, total)))
    size = sum((source / name / f"{0:020}.log").stat().st_size for name in ("t-0", "t-1"))
    assert told[0] == (0, size)
    assert told[-1] == (size, size)
