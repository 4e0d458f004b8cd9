"""Goal: a poll ends when it is told to, takes no more than its bounds, passes over what is gone, says what it skips.
Method: stores read by their writer and beside it; steps of a poll that close, wake, delete or fail."""

from __future__ import annotations

import threading

import pytest

from kstore import LATEST, Consumer, Producer, TopicPartition, open_store
from kstore.errors import ConsumerClosedError, StorageError, WakeupError
from kstore.record import Record
from tests.making.consuming import T0, T1, fill, numbers, values

# Ending a poll


def waits_in(consumer, monkeypatch, act):
    """Have a poll of the consumer call `act` where it waits, each time."""
    arrivals = consumer._store._new_arrivals()
    wait = arrivals.wait

    def waiting(timeout_s, *, idle_s):
        act()
        return wait(timeout_s, idle_s=idle_s)

    monkeypatch.setattr(arrivals, "wait", waiting, raising=False)
    consumer._arrivals = arrivals


@pytest.fixture(params=["a", "r"])
def consumer(request, root):
    with open_store(root, request.param) as opened, Consumer(opened, group="g", topics=["t"]) as made:
        yield made


def test_close_ends_a_poll_that_waits_under_it(consumer, monkeypatch):
    waits_in(consumer, monkeypatch, consumer.close)
    assert consumer.poll(1000) == []
    with pytest.raises(ConsumerClosedError):
        consumer.poll()


def test_close_by_another_thread_ends_a_poll_that_waits(consumer, monkeypatch):
    waits = threading.Event()
    waits_in(consumer, monkeypatch, waits.set)
    results = []
    polling = threading.Thread(target=lambda: results.append(consumer.poll(1000)))
    polling.start()
    assert waits.wait(60)
    consumer.close()
    polling.join(60)
    assert results == [[]]


@pytest.mark.parametrize("step", ["_take_records", "_subscribe", "_has_news"])
def test_close_within_any_step_of_a_poll_ends_it(consumer, monkeypatch, step):
    whole = getattr(consumer, step)

    def closing(*arguments):
        consumer.close()
        return whole(*arguments)

    monkeypatch.setattr(consumer, step, closing)
    assert consumer.poll(1000) == []
    assert consumer._partitions == {}


def test_close_by_another_thread_before_the_first_step_is_an_error(consumer, monkeypatch):
    check = consumer._check_open
    monkeypatch.setattr(consumer, "_check_open", lambda: (consumer.close(), check()))
    with pytest.raises(ConsumerClosedError):
        consumer.poll(1000)


def test_wakeup_ends_the_poll_that_waits(consumer, monkeypatch):
    waits_in(consumer, monkeypatch, consumer.wakeup)
    for _ in range(2):
        with pytest.raises(WakeupError):
            consumer.poll(1000)
    assert consumer.poll() == []


def test_wakeup_ends_the_next_poll_and_takes_no_record(store):
    fill(store)
    consumer = Consumer(store, topics=["t"], auto_offset_reset="earliest")
    for _ in range(2):
        consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll()
    assert values(consumer.poll()) == numbers((10,))
    consumer.close()
    consumer.wakeup()


# Positions that change by themselves


def test_a_reset_that_skips_records_says_from_where_to_where(store, caplog):
    fill(store)
    with Consumer(store, group="g", topics=["t"]) as consumer:
        consumer.commit({T0: 2})
        store.log("t", 0).delete_records(6)
        assert consumer.poll() == []
        assert consumer.position(T0) == 10
    (message,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert message.startswith("offset 2 is out of range of t-0 in ")
    assert message.endswith(": expected 6 to 10; reading goes on at offset 10 (auto_offset_reset 'latest')")


def test_a_reset_that_goes_back_says_so(store, caplog):
    fill(store)
    with Consumer(store, topics=["t"], auto_offset_reset="earliest") as consumer:
        assert len(consumer.poll()) == 10
        store.log("t", 0).truncate_to(5)
        assert len(consumer.poll()) == 5
    assert [one.getMessage().partition("; ")[2] for one in caplog.records if one.levelname == "WARNING"] == [
        "reading goes on at offset 0 (auto_offset_reset 'earliest')"
    ]


def test_a_start_without_a_committed_offset_is_noted(store, caplog):
    fill(store)
    with caplog.at_level("INFO", "kstore.consumer"), Consumer(store, group="g", partitions=[T0]) as consumer:
        consumer.poll()
    assert "group 'g' has no offset of t-0: reading begins at offset 10 (auto_offset_reset 'latest')" in caplog.messages


def test_a_topic_that_is_created_again_is_said(store, caplog):
    fill(store)
    consumer = Consumer(store, topics=["t"], auto_offset_reset="earliest")
    consumer.poll()
    store.delete_topic("t")
    store.create_topic("t")
    consumer.poll()
    assert caplog.messages[0] == (
        "t-0 was deleted and created again: its position, 10, is dropped (auto_offset_reset 'earliest')"
    )


def test_the_poll_of_the_last_record_passes_the_marker_after_it_in_the_same_read(store, monkeypatch):
    reads = []
    log = store.log("t", 0)
    read = type(log).read

    def noted(self, *arguments, **more):
        reads.extend(arguments if self is log else ())
        return read(self, *arguments, **more)

    monkeypatch.setattr(type(log), "read", noted)
    with (
        Producer(store, transactional_id="x") as producer,
        Consumer(store, group="g", partitions=[T0], auto_offset_reset="earliest") as consumer,
    ):
        producer.init_transactions()
        for start in (0, 3, 6):
            producer.begin_transaction()
            for value in (b"first", b"last"):
                producer.send("t", value, partition=0)
            producer.commit_transaction()
            assert values(consumer.poll()) == [b"first", b"last"]
            assert consumer.position(T0) == start + 3 == log.log_end_offset
            consumer.commit()
            assert consumer.committed()[T0].offset == start + 3
            assert consumer.poll() == []
    assert reads == [0, 3, 6]


def test_seek_to_the_end_beside_a_writer_goes_to_the_present_end(root, store):
    fill(store)
    with open_store(root) as reader, Consumer(reader, topics=["t"]) as consumer:
        consumer.seek_to_end()
        assert consumer.position(T0) == 10
        fill(store, count=5, first=10)
        consumer.seek_to_end()
        assert consumer.position(T0) == 15
        fill(store, count=2, first=15)
        consumer.seek_to_end(T0)
        assert (consumer.position(T0), consumer.position(T1)) == (17, 0)
        consumer.seek(T0, LATEST)
        store.log("t", 0).delete_records(12)
        consumer.seek_to_beginning(T0)
        assert consumer.position(T0) == 12


# Bytes


def test_a_poll_ends_with_the_record_that_reaches_the_bytes(store):
    for partition in (T0, T1):
        for _ in range(8):
            headers = (("h", b"x" * 19),)
            store.log(*partition).append(Record(timestamp_ms=1, key=b"k" * 30, value=b"v" * 50, headers=headers))
    with Consumer(store, topics=["t"], auto_offset_reset="earliest", fetch_max_bytes=500) as consumer:
        assert [len(consumer.poll()) for _ in range(4)] == [5, 5, 5, 1]
    with Consumer(store, topics=["t"], auto_offset_reset="earliest", fetch_max_bytes=501) as consumer:
        assert len(consumer.poll()) == 6
    with Consumer(store, topics=["t"], auto_offset_reset="earliest", max_partition_fetch_bytes=300) as consumer:
        polled = consumer.poll()
        assert [sum(one.topic_partition == place for one in polled) for place in (T0, T1)] == [3, 3]


def test_a_poll_without_room_returns_a_record(store):
    fill(store)
    for setting in ("fetch_max_bytes", "max_partition_fetch_bytes"):
        with Consumer(store, partitions=[T0], auto_offset_reset="earliest", **{setting: 0}) as consumer:
            assert [len(consumer.poll()) for _ in range(11)] == [1] * 10 + [0]


def test_a_tombstone_counts_its_key_only(store):
    for value in (b"v" * 10, None):
        store.log("t", 0).append(Record(timestamp_ms=1, key=None if value else b"k" * 10, value=value))
    with Consumer(store, topics=["t"], auto_offset_reset="earliest", fetch_max_bytes=20) as consumer:
        assert len(consumer.poll()) == 2


def test_partitions_beyond_the_bytes_of_a_poll_come_first_in_the_next(store):
    store.create_topic("many", 5)
    for number in range(5):
        fill(store, to=TopicPartition("many", number), count=4)
    sizes = {"fetch_max_bytes": 4, "max_partition_fetch_bytes": 2}
    with Consumer(store, topics=["many"], auto_offset_reset="earliest", **sizes) as consumer:
        polls = [[one.topic_partition.partition for one in consumer.poll()] for _ in range(5)]
    assert polls == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]


def test_reads_of_few_partitions_stay_open_and_all_records_come(store):
    store.create_topic("many", 40)
    for number in range(40):
        store.log("many", number).append([Record(timestamp_ms=1, value=b"%d" % one) for one in range(10)])
    with Consumer(store, topics=["many"], auto_offset_reset="earliest", max_poll_records=3) as consumer:
        found = []
        while records := consumer.poll():
            found += records
            assert sum(one.has_open_read for one in consumer._partitions.values()) <= 16
    assert sorted((*one.topic_partition, one.offset) for one in found) == [
        ("many", number, offset) for number in range(40) for offset in range(10)
    ]


# Partitions that go, or that can't be opened


@pytest.mark.parametrize("step", ["look_again", "log"])
def test_a_partition_that_another_process_deletes_under_a_poll_keeps_no_other_from_being_read(
    root, store, monkeypatch, caplog, step
):
    store.create_topic("u")
    fill(store)
    fill(store, to=TopicPartition("u", 0))
    with open_store(root) as reader:
        consumer = Consumer(reader, topics=["t", "u"], auto_offset_reset="earliest")
        whole = getattr(reader, step)

        def delete(*arguments):
            done = whole(*arguments)
            if "t" in store.topics:
                store.delete_topic("t")
            return done

        monkeypatch.setattr(reader, step, delete)
        polled = [record for _ in range(2) for record in consumer.poll()]
        assert [record.value for record in polled if record.topic_partition.topic == "u"] == numbers((10,))
        assert consumer.poll() == []
        assert consumer.assignment() == (TopicPartition("u", 0),)
    assert any(message.startswith("t-0 was deleted, and is not read any more") for message in caplog.messages)


def test_a_partition_that_cannot_be_opened_is_told_and_keeps_no_other_from_being_read(root, store, monkeypatch):
    fill(store, to=T1)
    whole = store.log

    def refusing(topic, partition=0):
        if (topic, partition) == T0:
            raise StorageError("cannot open it", path="t-0", errno=5)
        return whole(topic, partition)

    monkeypatch.setattr(store, "log", refusing)
    consumer = Consumer(store, topics=["t"], auto_offset_reset="earliest")
    with pytest.raises(StorageError, match="cannot open it"):
        consumer.position(T0)
    found, errors = [], 0
    for _ in range(4):
        try:
            found += consumer.poll()
        except StorageError:
            errors += 1
    assert values(found) == numbers((10,))
    assert errors >= 2
