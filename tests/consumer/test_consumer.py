"""Goal: a Consumer reads each record of its partitions once, from where its group stands, and commits as a broker does.
Method: stores that kstore writes, read by their writer and beside it; logs that are truncated and deleted."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from kstore import (
    EARLIEST,
    LATEST,
    Consumer,
    LogConfig,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    open_log,
    open_store,
)
from kstore.aio import Consumer as AsyncConsumer
from kstore.coordinator.group import offsets as group_offsets
from kstore.coordinator.group.offsets import MAX_METADATA_BYTES
from kstore.env import DEFAULT_ENV
from kstore.errors import (
    ConsumerClosedError,
    CorruptRecordError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from kstore.log.files.names import TOPIC_SETTINGS
from kstore.record import Record
from kstore.record.schemas.topics import coordinator_partition, decode_group_record
from tests.making.batches import flip_bit
from tests.making.consuming import T0, T1, fill, numbers, values

OFFSETS = "__consumer_offsets"


# Reading


def test_every_record_of_all_partitions_comes_once(store):
    fill(store)
    fill(store, to=T1, first=100)
    with Consumer(store, topics=["t"], auto_offset_reset="earliest", max_poll_records=3) as consumer:
        assert consumer.assignment() == (T0, T1)
        polls = iter(consumer.poll, [])
        found = [record for records in polls for record in records]
    assert sorted(values(found)) == sorted(numbers((10,), (100, 110)))
    by_partition = {one: [r.offset for r in found if r.topic_partition == one] for one in (T0, T1)}
    assert by_partition == {T0: [*range(10)], T1: [*range(10)]}


def test_partitions_come_in_turn_where_one_has_more_than_a_poll(store):
    fill(store, count=20)
    fill(store, to=T1, count=20)
    with Consumer(store, topics=["t"], auto_offset_reset="earliest", max_poll_records=5) as consumer:
        polls = [consumer.poll() for _ in range(4)]
    assert [{record.topic_partition for record in records} for records in polls] == [{T0}, {T1}, {T0}, {T1}]


def test_chosen_partitions_are_read_and_no_others(store):
    fill(store)
    fill(store, to=T1)
    with Consumer(store, partitions=[T1], auto_offset_reset="earliest") as consumer:
        assert {record.topic_partition for record in consumer.poll()} == {T1}
        consumer.assign(partitions=[T0, T1])
        assert {record.topic_partition for record in consumer.poll()} == {T0}
        assert consumer.position(T1) == 10


def test_partitions_that_a_topic_gets_later_are_read(store):
    with Consumer(store, topics=["t"], auto_offset_reset="earliest") as consumer:
        assert consumer.poll() == []
        store.create_partitions("t", 3)
        fill(store, to=TopicPartition("t", 2), count=1)
        assert values(consumer.poll(5)) == [b"0"]


def test_partitions_that_are_gone_are_read_no_more(store, monkeypatch):
    fill(store)
    with Consumer(store, topics=["t"], auto_offset_reset="earliest") as consumer:
        assert len(consumer.poll()) == 10
        monkeypatch.setattr(store._logs, "partitions", tuple(name for name in store.partitions if name != T0))
        assert consumer.poll() == []
        assert consumer.assignment() == (T1,)


def test_latest_begins_at_the_end_and_sees_what_comes(store):
    fill(store)
    with Consumer(store, topics=["t"]) as consumer:
        assert consumer.poll() == []
        fill(store, first=10, count=2)
        assert values(consumer.poll()) == numbers((10, 12))


def test_a_reader_beside_the_writer_sees_what_is_appended(root, store):
    fill(store)
    with open_store(root) as read_only, Consumer(read_only, topics=["t"], auto_offset_reset="earliest") as consumer:
        assert len(consumer.poll()) == 10
        assert consumer.poll() == []
        fill(store, first=10)
        assert values(consumer.poll()) == numbers((10, 20))


def test_a_poll_that_reaches_the_end_of_what_it_knew_goes_on(store):
    fill(store, count=2)
    with Consumer(store, partitions=[T0], auto_offset_reset="earliest", max_poll_records=2) as consumer:
        assert values(consumer.poll()) == numbers((2,))
        fill(store, first=2, count=1)
        assert values(consumer.poll()) == numbers((2, 3))


def test_poll_waits_for_a_record(store):
    with Consumer(store, topics=["t"]) as consumer:
        consumer.poll()
        timer = threading.Timer(0.05, fill, (store,), {"count": 1})
        timer.start()
        assert values(consumer.poll(30)) == [b"0"]
        timer.join()


def test_poll_returns_nothing_after_the_timeout(store):
    with Consumer(store, topics=["t"]) as consumer:
        start = time.monotonic()
        assert consumer.poll(0.2) == []
    # The clock of a poll counts whole milliseconds.
    assert time.monotonic() - start >= 0.198


@pytest.mark.parametrize("mode", ["a", "r"])
def test_poll_that_waits_asks_only_when_something_came(store, root, mode, monkeypatch):
    looks = []
    has_news = Consumer._has_news
    monkeypatch.setattr(Consumer, "_has_news", lambda self: looks.append(1) or has_news(self))
    with store if mode == "a" else open_store(root) as read, Consumer(read, topics=["t"]) as consumer:
        with DEFAULT_ENV.watch() as watch:
            watch.add(str(root))
            if not watch.is_notified:
                pytest.skip("the file system of the temporary folder reports no changes")
        consumer.poll()
        timer = threading.Timer(0.5, fill, (store,), {"count": 1})
        start = time.monotonic()
        timer.start()
        assert values(consumer.poll(60)) == [b"0"]
        assert time.monotonic() - start < 30
        timer.join()
    # A few more, for an append changes several files.
    assert 1 < len(looks) < 10


def test_seek_moves_the_position(store):
    fill(store)
    with Consumer(store, topics=["t"]) as consumer:
        assert consumer.position(T0) == 10
        consumer.seek(T0, 7)
        assert consumer.position(T0) == 7
        assert values(consumer.poll()) == numbers((7, 10))
        consumer.seek_to_beginning(T0)
        assert consumer.position(T0) == 0
        consumer.seek_to_end()
        assert consumer.poll() == []
        assert consumer.position(T0) == 10


def test_partitions_have_a_position_once_they_are_polled_or_asked_for(store):
    fill(store)
    with Consumer(store, topics=["t"], auto_offset_reset="earliest") as consumer:
        assert consumer.positions() == {}
        assert consumer.position(T0) == 0
        assert consumer.positions() == {T0: 0}
        consumer.poll()
        assert consumer.positions() == {T0: 10, T1: 0}


@pytest.mark.parametrize("named", ["t-0", "t", ("t",), ("t", "0"), ("t", 0, 1), 0])
def test_what_is_no_partition_is_refused_with_the_form_of_one(store, named):
    with Consumer(store, group="g", topics=["t"]) as consumer:
        calls = (
            partial(consumer.position, named),
            partial(consumer.seek, named, 0),
            partial(consumer.seek_to_end, named),
            partial(consumer.committed, [named]),
            partial(consumer.assign, partitions=[named]),
        )
        for call in calls:
            with pytest.raises(TypeError, match=r"a topic and a number, \('t', 0\)|partition must be an int, got '0'"):
                call()
        # One where several are expected.
        with pytest.raises(TypeError, match=r"several a collection of these, got 't'"):
            consumer.committed(("t", 0))
        assert consumer.committed([["t", 0]]) == {T0: None}


def test_a_seek_drops_what_was_read_ahead(store):
    fill(store)
    with Consumer(store, partitions=[T0], auto_offset_reset="earliest", max_poll_records=2) as consumer:
        consumer.poll()
        for offset in (5, 1):
            consumer.seek(T0, offset)
            assert values(consumer.poll()) == numbers((offset, offset + 2))


def send_in_a_transaction(producer, end=lambda: None):
    producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    producer.flush()
    end()


def test_position_passes_markers_and_aborted_records(store):
    with Producer(store, transactional_id="x") as producer:
        producer.init_transactions()
        for end in (producer.commit_transaction, producer.abort_transaction):
            send_in_a_transaction(producer, end)
    with Consumer(store, topics=["t"], auto_offset_reset="earliest", isolation="read_committed") as consumer:
        assert values(consumer.poll()) == [b"v"]
        assert consumer.poll() == []
        assert consumer.position(T0) == store.log("t", 0).log_end_offset == 4


def test_position_passes_aborted_records_alone(store):
    with Producer(store, transactional_id="x") as producer:
        producer.init_transactions()
        send_in_a_transaction(producer, producer.abort_transaction)
    with Consumer(store, topics=["t"], auto_offset_reset="earliest", isolation="read_committed") as consumer:
        assert consumer.poll() == []
        assert consumer.position(T0) == store.log("t", 0).log_end_offset == 2


def test_an_open_transaction_ends_what_is_read_of_committed_records(store):
    with Producer(store, transactional_id="x") as producer:
        producer.init_transactions()
        send_in_a_transaction(producer)
        with Consumer(store, topics=["t"], auto_offset_reset="earliest", isolation="read_committed") as consumer:
            assert consumer.poll(0.01) == []
            consumer.seek(T0, 1)
            assert consumer.poll(0.01) == []
            consumer.seek(T0, 0)
            producer.commit_transaction()
            assert values(consumer.poll(5)) == [b"v"]


# Offsets that the log does not have


@pytest.mark.parametrize(("reset", "expected"), [("earliest", numbers((4, 10))), ("latest", [])])
def test_an_offset_that_was_deleted_is_reset(store, reset, expected):
    fill(store)
    with Consumer(store, topics=["t"], auto_offset_reset=reset) as consumer:
        consumer.seek(T0, 2)
        store.log("t", 0).delete_records(4)
        assert values(consumer.poll()) == expected


def test_an_offset_after_the_end_is_reset(store):
    fill(store)
    with Consumer(store, topics=["t"], auto_offset_reset="earliest") as consumer:
        consumer.seek(T0, 11)
        assert values(consumer.poll()) == numbers((10,))
        store.log("t", 0).truncate_to(5)
        assert values(consumer.poll()) == numbers((5,))
        assert consumer.position(T0) == 5


def test_none_raises_where_there_is_no_offset(store):
    fill(store)
    with Consumer(store, topics=["t"], group="g", auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffsetForPartitionError, match="t-0") as info:
            consumer.poll()
        assert (info.value.topic, info.value.partition) == T0
        consumer.commit({T0: 3, T1: 0})
        assert values(consumer.poll()) == numbers((3, 10))
        consumer.seek(T0, 11)
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll()
        assert consumer.position(T0) == 11


def test_records_go_on_where_segments_are_deleted_under_the_reader(root, store):
    fill(store, count=200)
    first = store.log("t", 0).segments[1].base_offset
    settings = {"topics": ["t"], "auto_offset_reset": "earliest", "max_poll_records": 10}
    with open_store(root) as read_only, Consumer(read_only, **settings) as consumer:
        assert values(consumer.poll()) == numbers((10,))
        store.log("t", 0).delete_records(first)
        rest = [record for records in iter(consumer.poll, []) for record in records]
        assert values(rest)[-(200 - first) :] == numbers((first, 200))
        assert values(rest) in (numbers((first, 200)), numbers((10, 200)))


# Errors


def test_a_record_that_cannot_be_decoded_comes_after_those_before_it(store):
    log = store.log("t", 0)
    for value in (b"1234", b"5678", b"not a number", b"9999"):
        log.append(Record(timestamp_ms=1, value=value))
    with Consumer(
        store, partitions=[T0], auto_offset_reset="earliest", key_deserializer="string", value_deserializer="integer"
    ) as consumer:
        assert values(consumer.poll()) == [int.from_bytes(value, "big") for value in (b"1234", b"5678")]
        for _ in range(2):
            with pytest.raises(RecordDeserializationError) as info:
                consumer.poll()
            assert info.value.offset == consumer.position(T0) == 2
        consumer.seek(T0, 3)
        assert len(consumer.poll()) == 1


def test_an_interrupt_loses_no_record(store):
    fill(store)
    fill(store, to=T1)
    interrupts = [7, 15]

    def interrupted(value):
        interrupts[:] = [left - 1 for left in interrupts]
        if 0 in interrupts:
            raise KeyboardInterrupt
        return value

    found = []
    with Consumer(store, topics=["t"], auto_offset_reset="earliest", value_deserializer=interrupted) as consumer:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                consumer.poll()
            assert [consumer.position(one) for one in (T0, T1)] == [0, 0]
        found = consumer.poll()
    assert sorted(values(found)) == sorted([*numbers((10,)), *numbers((10,))])


def test_damage_comes_after_the_records_before_it(root):
    with open_store(root, "a") as store:
        fill(store, count=3)
    path = root / "t-0" / "00000000000000000000.log"
    flip_bit(path, path.stat().st_size - 1, bit=0)
    with open_store(root) as read_only, Consumer(read_only, topics=["t"], auto_offset_reset="earliest") as consumer:
        assert values(consumer.poll()) == numbers((2,))
        with pytest.raises(CorruptRecordError):
            consumer.poll()
        assert consumer.position(T0) == 2


def test_wrong_arguments_are_refused(store):
    with pytest.raises(TypeError, match="open_store"):
        Consumer(store.log("t"))
    with pytest.raises(TypeError, match="group must be a str"):
        Consumer(store, group=7)
    with pytest.raises(ValueError, match="must not be empty"):
        Consumer(store, group="")
    with pytest.raises(ValueError, match="auto_offset_reset must be one of none, earliest"):
        Consumer(store, auto_offset_reset="oldest")
    with pytest.raises(ValueError, match="isolation must be one of"):
        Consumer(store, isolation="serializable")
    with pytest.raises(ValueError, match="max_poll_records"):
        Consumer(store, max_poll_records=0)
    with pytest.raises(TypeError, match="collection of names"):
        Consumer(store, topics="t")
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 'u'"):
        Consumer(store, topics=["u"])
    with pytest.raises(UnknownTopicOrPartitionError, match="partition t-2"):
        Consumer(store, partitions=[("t", 2)])
    with Consumer(store, partitions=[T0]) as consumer:
        with pytest.raises(ValueError, match="t-1 is not assigned"):
            consumer.position(T1)
        with pytest.raises(ValueError, match="timeout"):
            consumer.poll(-1)
        with pytest.raises(ValueError, match="belong to a group"):
            consumer.committed()
        with pytest.raises(ValueError, match="belong to a group"):
            consumer.commit()


def test_a_closed_consumer_refuses_every_call(store):
    consumer = Consumer(store, group="g", topics=["t"])
    consumer.close()
    consumer.close()
    for call in (
        consumer.poll,
        consumer.assignment,
        consumer.commit,
        consumer.committed,
        consumer.assign,
        consumer.seek_to_end,
        lambda: consumer.seek(T0, 0),
        lambda: consumer.position(T0),
    ):
        with pytest.raises(ConsumerClosedError):
            call()
    assert store.log("t", 0).log_end_offset == 0


# Committed offsets


def test_a_group_goes_on_where_it_committed(root):
    with open_store(root, "a") as store:
        fill(store)
        with Consumer(store, group="g", topics=["t"], auto_offset_reset="earliest", max_poll_records=4) as consumer:
            consumer.poll()
            assert consumer.commit() == {T0: OffsetAndMetadata(4), T1: OffsetAndMetadata(0)}
            consumer.poll()
    with open_store(root) as store, Consumer(store, group="g", topics=["t"]) as consumer:
        assert values(consumer.poll()) == numbers((4, 10))
    with open_store(root) as store, Consumer(store, group="h", topics=["t"]) as consumer:
        assert consumer.committed() == {T0: None, T1: None}


def test_committed_offsets_are_the_newest_ones(store):
    with Consumer(store, group="g", topics=["t"]) as one, Consumer(store, group="g") as other:
        one.commit({T0: 1})
        assert other.committed([T0])[T0].offset == 1
        one.commit({T0: OffsetAndMetadata(2, "text \N{SNOWMAN}", leader_epoch=5)})
        committed = other.committed([T0])[T0]
        assert committed[:3] == (2, "text \N{SNOWMAN}", 5)
        assert committed.commit_timestamp_ms > 0
        assert one.committed([T0]) == {T0: committed}


def test_the_record_is_in_the_partition_of_the_group_as_brokers_write_it(store):
    with Consumer(store, group="group-a") as consumer:
        consumer.commit({T1: OffsetAndMetadata(7, "m")})
    log = store.log(OFFSETS, coordinator_partition("group-a", partition_count=2))
    (batch,) = log.batches()
    (record,) = batch
    key, value = decode_group_record(record.key, record.value)
    assert (key.version, key.fields) == (1, {"group": "group-a", "topic": "t", "partition": 1})
    assert (value.version, value.fields["offset"], value.fields["metadata"]) == (3, 7, "m")
    assert value.fields["leaderEpoch"] == -1
    assert value.fields["commitTimestamp"] == record.timestamp_ms
    header = batch.header
    assert (header.producer_id, header.is_transactional, header.codec) == (-1, False, 0)


@pytest.mark.parametrize("partitions", [1, 50])
def test_the_topic_is_created_as_a_broker_does(tmp_path, partitions):
    """In a root of another origin than kstore, with the number of partitions that brokers have by default."""
    with open_store(tmp_path / "root", "a") as store:
        if partitions == 50:
            (tmp_path / "root" / TOPIC_SETTINGS).unlink()
        store.create_topic("t")
        with Consumer(store, group="g", topics=["t"]) as consumer:
            assert consumer.committed() == {T0: None}
            assert (consumer.commit(), OFFSETS in store.topics) == ({}, False)
            consumer.poll()
            consumer.commit()
            assert consumer.committed()[T0].offset == 0
        assert [one.partition for one in store.partitions if one.topic == OFFSETS] == [*range(partitions)]
        config = store.log(OFFSETS, 0).config
        assert (config.cleanup_policy, config.segment_bytes) == ("compact", 104857600)
        assert config.compression_type == "producer"


def test_a_commit_that_is_invalid_writes_nothing(root, store):
    with Consumer(store, group="g", topics=["t"]) as consumer:
        with pytest.raises(UnknownTopicOrPartitionError, match="t-2"):
            consumer.commit({T0: 1, TopicPartition("t", 2): 1})
        with pytest.raises(ValueError, match="offset of t-0"):
            consumer.commit({T0: -1})
        with pytest.raises(ValueError, match="at most 4096 bytes"):
            consumer.commit({T0: OffsetAndMetadata(1, "x" * (MAX_METADATA_BYTES + 1))})
        with pytest.raises(TypeError):
            consumer.commit({T0: "1"})
        assert consumer.commit({}) == {}
        assert consumer.committed() == {T0: None, T1: None}
    with open_store(root) as read_only, pytest.raises(ValueError, match="open for writing"):
        Consumer(read_only, group="g", topics=["t"]).commit({T0: 1})


def test_a_commit_of_many_partitions_takes_several_batches(root, monkeypatch):
    monkeypatch.setattr(group_offsets, "_MOST_BATCH_BYTES", 8 * MAX_METADATA_BYTES)
    many = [TopicPartition("many", number) for number in range(30)]
    with open_store(root, "a") as store, Consumer(store, group="g") as consumer:
        store.create_topic("many", len(many))
        consumer.commit({one: OffsetAndMetadata(one.partition, "x" * MAX_METADATA_BYTES) for one in many})
        assert [one.offset for one in consumer.committed(many).values()] == [*range(30)]
        log = store.log(OFFSETS, coordinator_partition("g", partition_count=2))
        sizes = [batch.header.size_in_bytes for batch in log.batches()]
    assert len(sizes) == 4
    assert max(sizes) < 9.5 * MAX_METADATA_BYTES


def test_committed_offsets_are_read_again_where_the_log_was_truncated(store):
    log = store.log(OFFSETS, coordinator_partition("g", partition_count=2))
    with Consumer(store, group="g", topics=["t"]) as consumer:
        consumer.commit({T0: 1})
        consumer.commit({T0: 2})
        assert consumer.committed([T0])[T0].offset == 2
        log.truncate_to(1)
        assert consumer.committed([T0])[T0].offset == 1


def test_committed_offsets_outlive_compaction(root):
    config = LogConfig(cleanup_policy="compact", segment_bytes=1024, min_cleanable_dirty_ratio=0.0)
    number = coordinator_partition("g", partition_count=2)
    with (
        open_store(root, "a", topic_configs={OFFSETS: config}) as store,
        Consumer(store, group="g", topics=["t"]) as consumer,
    ):
        for offset in range(100):
            consumer.commit({T0: offset})
        consumer.commit({T1: 5})
        log = store.log(OFFSETS, number)
        log.roll()
        before = sum(1 for _ in log.read())
        log.compact(is_forced=True)
        assert sum(1 for _ in log.read()) == 2 < before
        for one in (consumer, Consumer(store, group="g", topics=["t"])):
            assert [found.offset for found in one.committed().values()] == [99, 5]


def test_a_topic_that_is_created_again_is_read_by_the_reset_rule(store):
    fill(store)
    by_topic = Consumer(store, topics=["t"], auto_offset_reset="earliest")
    by_name = Consumer(store, group="g", partitions=[T0], auto_offset_reset="earliest")
    assert [len(by_topic.poll()), len(by_name.poll())] == [10, 10]
    store.delete_topic("t")
    store.create_topic("t")
    assert by_name.commit() == {}
    fill(store, count=20, first=100)
    assert [values(one.poll()) for one in (by_topic, by_name)] == [numbers((100, 120))] * 2
    assert by_name.committed() == {T0: None}


def test_a_topic_that_is_created_again_during_a_poll_is_not_read_at_the_old_offset(store, monkeypatch):
    fill(store)
    consumer = Consumer(store, topics=["t"], auto_offset_reset="earliest")
    assert len(consumer.poll()) == 10

    def replace(partitions):
        store.delete_topic("t")
        store.create_topic("t")
        fill(store, count=20, first=100)

    with monkeypatch.context() as patched:
        patched.setattr(consumer, "_look_up", replace)
        assert consumer.poll() == []
    assert values(consumer.poll()) == numbers((100, 120))


def test_a_consumer_beside_a_writer_sees_partitions_that_are_added_deleted_and_created_again(store, root):
    fill(store)
    with open_store(root) as reader:
        consumer = Consumer(reader, group="g", topics=["t"], auto_offset_reset="earliest")
        named = Consumer(reader, partitions=[T1])
        assert (len(consumer.poll()), named.poll()) == (10, [])
        store.create_partitions("t", 3)
        fill(store, to=TopicPartition("t", 2), count=3)
        assert len(consumer.poll()) == 3
        assert len(consumer.assignment()) == 3
        store.delete_topic("t")
        assert consumer.poll() == []
        assert consumer.assignment() == ()
        assert named.poll() == []
        store.create_topic("t", 2)
        fill(store, to=T1, count=2)
        fill(store, count=20, first=100)
        named.seek_to_beginning()
        assert values(named.poll()) == numbers((2,))
        consumer.seek_to_end(T1)
        assert values(consumer.poll()) == numbers((100, 120))
        store.delete_topic("t")
        store.create_topic("t")
        fill(store, count=30, first=200)
        assert values(consumer.poll()) == numbers((200, 230))


def test_a_consumer_beside_a_writer_sees_offsets_whose_topic_is_created_later(tmp_path):
    with open_store(tmp_path / "new", "a") as store:
        store.create_topic("t")
        fill(store)
        with open_store(tmp_path / "new") as reader:
            consumer = Consumer(reader, group="g", topics=["t"])
            assert consumer.committed() == {T0: None}
            Consumer(store, group="g").commit({T0: 4})
            assert consumer.committed()[T0].offset == 4


def test_a_named_partition_that_was_deleted_is_left_out_with_a_word(store, caplog):
    store.create_topic("u")
    consumer = Consumer(store, partitions=[T0, ("u", 0)], auto_offset_reset="earliest")
    fill(store, count=3)
    assert len(consumer.poll()) == 3
    store.delete_topic("t")
    fill(store, to=TopicPartition("u", 0))
    assert values(consumer.poll(1)) == numbers((10,))
    assert caplog.messages == ["t-0 was deleted, and is not read any more; its position was 3"]


def test_a_topic_that_is_deleted_while_a_poll_waits_is_dropped(store):
    store.create_topic("u")
    consumer = Consumer(store, topics=["t", "u"], auto_offset_reset="earliest")
    consumer.poll()
    deletion = threading.Timer(0.1, lambda: (store.delete_topic("u"), fill(store)))
    deletion.start()
    assert consumer.poll(10)
    deletion.join()
    assert consumer.assignment() == (T0, T1)


def test_a_damaged_partition_is_told_and_keeps_no_other_from_being_read(root):
    with open_store(root, "a") as store:
        store.create_topic("u")
        fill(store, to=T1)
        fill(store, to=TopicPartition("u", 0))
    flip_bit(root / "t-1" / "00000000000000000000.log", 66, bit=0)
    with open_store(root, "a") as store:
        consumer = Consumer(store, topics=["t", "u"], auto_offset_reset="earliest")
        seen, errors = [], 0
        for number in range(6):
            fill(store, count=1, first=number)
            try:
                seen += consumer.poll()
            except CorruptRecordError:
                errors += 1
    assert errors == 3
    assert {one: sum(record.topic_partition == one for record in seen) for one in (T0, ("u", 0))} == {
        T0: 5,
        ("u", 0): 10,
    }


def test_an_interrupt_after_the_records_were_taken_loses_none(store):
    class Clock:
        calls = 0

        def wall_clock_ms(self):
            return 1000

        def monotonic_ms(self):
            self.calls += 1
            if self.calls == 2:
                raise KeyboardInterrupt
            return 0

    fill(store)
    consumer = Consumer(store, topics=["t"], auto_offset_reset="earliest", clock=Clock())
    assert len(consumer.poll(1)) == 10
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(1)


def test_seek_takes_kafkas_names_of_both_ends_and_no_other_negative_offset(store):
    fill(store)
    consumer = Consumer(store, topics=["t"])
    consumer.seek(T0, EARLIEST)
    assert consumer.position(T0) == 0
    consumer.seek(T0, LATEST)
    assert consumer.position(T0) == 10
    for offset in (-3, -7, 2**63):
        with pytest.raises(ValueError, match="offset must be"):
            consumer.seek(T0, offset)
    assert consumer.position(T0) == 10


def test_topics_may_come_from_an_iterator(store):
    assert Consumer(store, topics=(name for name in ["t"])).assignment() == (T0, T1)


@pytest.mark.parametrize(
    ("timeout", "error"), [(float("inf"), ValueError), (float("nan"), ValueError), ("1", TypeError)]
)
def test_a_timeout_that_is_none_is_refused(store, timeout, error):
    with pytest.raises(error, match="timeout must be"):
        Consumer(store, topics=["t"]).poll(timeout)


# Offsets in transactions


@pytest.fixture
def producer(store):
    with Producer(store, transactional_id="x") as made:
        made.init_transactions()
        yield made


def test_an_undecided_transaction_commits_no_offset_of_a_topic_that_is_deleted(store, producer):
    fill(store)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: 5}, "g")
    store.delete_topic("t")
    producer.commit_transaction()
    store.create_topic("t")
    fill(store)
    with Consumer(store, group="g", topics=["t"], auto_offset_reset="earliest") as consumer:
        assert consumer.committed() == {T0: None}
        assert len(consumer.poll()) == 10


def test_offsets_of_a_transaction_count_with_its_commit(store, producer):
    with Consumer(store, group="g", topics=["t"]) as consumer:
        producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        producer.send_offsets_to_transaction({T0: 1, T1: OffsetAndMetadata(2, "m")}, "g")
        assert consumer.committed() == {T0: None, T1: None}
        producer.commit_transaction()
        found = consumer.committed()
        assert (found[T0][:2], found[T1][:2]) == ((1, ""), (2, "m"))


def test_offsets_of_an_aborted_transaction_never_count(store, producer):
    with Consumer(store, group="g", topics=["t"]) as consumer:
        consumer.commit({T0: 1})
        producer.begin_transaction()
        producer.send_offsets_to_transaction({T0: 9}, "g")
        producer.abort_transaction()
        assert consumer.committed()[T0].offset == 1


def test_a_transaction_of_offsets_alone_is_one(store, producer):
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: 4}, "g")
    producer.commit_transaction()
    with Consumer(store, group="g", topics=["t"]) as consumer:
        assert consumer.committed()[T0].offset == 4
    log = store.log(OFFSETS, coordinator_partition("g", partition_count=2))
    first, marker = log.batches()
    assert (first.header.is_transactional, first.header.base_sequence, marker.is_control) == (True, 0, True)


def test_several_calls_in_a_transaction_and_of_several_transactions(store, producer):
    with Consumer(store, group="g", topics=["t"]) as consumer:
        for offset in range(1, 7):
            producer.begin_transaction()
            producer.send_offsets_to_transaction({T0: 0}, "g")
            producer.send_offsets_to_transaction({T0: offset}, "g")
            producer.send_offsets_to_transaction({T1: offset}, "another")
            (producer.commit_transaction if offset % 2 else producer.abort_transaction)()
        assert consumer.committed()[T0].offset == 5
        assert consumer.committed()[T1] is None


def test_a_reader_of_committed_records_waits_for_the_decision(store, producer):
    fill(store)
    settings = {"topics": ["t"], "group": "g", "auto_offset_reset": "earliest"}
    with Consumer(store, **settings) as consumer:
        consumer.commit({T0: 2, T1: 0})
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: 6}, "g")
    with Consumer(store, **settings) as consumer:
        assert values(consumer.poll()) == numbers((2, 10))
    with Consumer(store, **settings, isolation="read_committed") as consumer:
        assert consumer.poll(0.01) == []
        with pytest.raises(UnstableOffsetCommitError, match="t-0"):
            consumer.position(T0)
        assert consumer.position(T1) == 0
        producer.commit_transaction()
        assert values(consumer.poll(5)) == numbers((6, 10))


def test_the_consumer_of_a_read_only_store_sees_offsets_of_transactions(root, store, producer):
    producer.begin_transaction()
    producer.send_offsets_to_transaction({T0: 6}, "g")
    with open_store(root) as read_only, Consumer(read_only, group="g", topics=["t"]) as consumer:
        assert consumer.committed()[T0] is None
        producer.commit_transaction()
        assert consumer.committed()[T0].offset == 6


def test_read_process_write_does_each_record_once(root):
    """Transactions that end either way, each by a new producer and consumer."""
    with open_store(root, "a") as store:
        fill(store, count=50)
        store.create_topic("out")
        for attempt in range(20):
            with (
                Producer(store, transactional_id="x") as producer,
                Consumer(
                    store, group="g", partitions=[T0], auto_offset_reset="earliest", max_poll_records=7
                ) as consumer,
            ):
                producer.init_transactions()
                producer.begin_transaction()
                records = consumer.poll()
                for record in records:
                    producer.send("out", record.value)
                producer.send_offsets_to_transaction({T0: consumer.position(T0)}, "g")
                (producer.abort_transaction if attempt % 3 == 0 else producer.commit_transaction)()
    with open_log(root / "out-0") as log:
        assert values(log.read(isolation="read_committed")) == numbers((50,))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("group_id", ": did you mean 'group'"),
        ("isolation_level", ": did you mean 'isolation'"),
        ("auto_offset_rest", ": did you mean 'auto_offset_reset'"),
        ("bootstrap_servers", ": there is no broker to connect to"),
        ("enable_auto_commit", ": there is no auto-commit, call commit"),
        ("session_timeout_ms", ": a consumer is in no membership"),
        ("xyz", "; kstore.Consumer lists them"),
    ],
)
@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer], ids=["kstore", "aio"])
def test_keyword_of_another_client_is_answered_with_what_is_here_in_its_place(store, kind, given, said):
    with pytest.raises(TypeError, match=f"a consumer has no setting '{given}'{said}"):
        kind(store, **{given: "g"})
