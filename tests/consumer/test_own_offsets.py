"""Goal: a consumer that only reads a store commits to a root of its own, and goes on from there.
Method: a store that another process has open for writing; consumers that end, share a store of offsets, and fail."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import kstore
from kstore import Consumer, Record, TopicPartition, open_store
from kstore.errors import LogClosedError, LogLockedError, UnknownTopicOrPartitionError

T0 = TopicPartition("t", 0)

WRITER = """
import sys, kstore
with kstore.open_store(sys.argv[1], "a") as store:
    store.create_topic("t")
    store["t"].append([kstore.Record(value=b"%d" % n) for n in range(10)])
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path):
    """A root that another process writes."""
    path = tmp_path / "root"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        yield path
        process.stdin.close()


def consumer_of(store, offsets, **settings):
    return Consumer(
        store, **{"group": "g", "topics": ["t"], "auto_offset_reset": "earliest"} | settings, offsets=offsets
    )


def test_a_reader_commits_beside_the_writer_and_goes_on_there(root, tmp_path):
    for expected in (0, 4, 8):
        with open_store(root) as store, consumer_of(store, tmp_path / "o", max_poll_records=4) as consumer:
            records = consumer.poll(10)
            assert records[0].offset == expected
            assert consumer.commit()[T0].offset == expected + len(records)
    with open_store(root) as store, consumer_of(store, tmp_path / "o") as consumer:
        assert consumer.poll() == []
        assert consumer.committed()[T0].offset == 10
    assert "__consumer_offsets" not in open_store(root).topics


def test_a_first_commit_makes_one_partition(root, tmp_path):
    with open_store(root) as store, consumer_of(store, tmp_path / "o") as consumer:
        consumer.poll(10)
        consumer.commit()
    assert open_store(tmp_path / "o").partitions == (("__consumer_offsets", 0),)
    with open_store(tmp_path / "o") as offsets:
        (group,) = kstore.read_groups(offsets)
        assert (group.group_id, group.offsets[T0].committed.offset) == ("g", 10)


def test_the_root_of_the_offsets_is_locked_until_the_consumer_is_closed(root, tmp_path):
    with open_store(root) as store:
        with consumer_of(store, tmp_path / "o"), pytest.raises(LogLockedError):
            consumer_of(store, tmp_path / "o")
        # The error keeps the objects of its frames alive.
        with pytest.raises(UnknownTopicOrPartitionError) as kept:
            consumer_of(store, tmp_path / "o", topics=["none"])
        with consumer_of(store, tmp_path / "o") as consumer:
            assert len(consumer.poll(10)) == 10
    assert kept.traceback


def test_consumers_of_a_process_share_a_store_of_offsets(root, tmp_path):
    with open_store(root) as store, open_store(tmp_path / "o", "a") as offsets:
        for group in ("a", "b"):
            with consumer_of(store, offsets, group=group) as consumer:
                consumer.poll(10)
                consumer.commit()
        assert [group.group_id for group in kstore.read_groups(offsets)] == ["a", "b"]
        offsets.create_topic("more")
    with pytest.raises(LogClosedError):
        offsets.log("more")


def test_only_partitions_of_the_store_that_is_read_are_committed(root, tmp_path):
    with open_store(root) as store, consumer_of(store, tmp_path / "o") as consumer:
        with pytest.raises(UnknownTopicOrPartitionError):
            consumer.commit({("none", 0): 1})
        assert consumer.commit({T0: 3})[T0].offset == 3


def test_a_consumer_waits_for_the_offsets_of_the_one_before(root, tmp_path):
    with open_store(root) as store:
        before = consumer_of(store, tmp_path / "o", max_poll_records=4)
        before.poll(10)
        with pytest.raises(LogLockedError, match="waited 1 ms for it"):
            consumer_of(store, tmp_path / "o", timeout=0.001)
        with ThreadPoolExecutor(1) as pool:
            opened = pool.submit(consumer_of, store, tmp_path / "o", timeout=30)
            before.commit()
            before.close()
            with opened.result() as consumer:
                assert consumer.poll(10)[0].offset == 4


@pytest.mark.parametrize("timeout", [5, None])
def test_a_timeout_without_a_lock_to_wait_for_is_refused(root, timeout):
    with open_store(root) as store, pytest.raises(ValueError, match=r"offsets=DIR, of which there is none; poll\(\)"):
        Consumer(store, group="g", topics=["t"], timeout=timeout)


def test_offsets_without_a_group_are_refused(root, tmp_path):
    with open_store(root) as store, pytest.raises(ValueError, match="group"):
        Consumer(store, topics=["t"], offsets=tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_records_are_found_after_the_offsets_of_the_store_itself(tmp_path):
    with open_store(tmp_path / "root", "a") as store:
        store.create_topic("t")
        store["t"].append(Record(value=b"a"))
        with Consumer(store, group="g", topics=["t"]) as consumer:
            consumer.commit({T0: 1})
        with consumer_of(store, tmp_path / "o") as consumer:
            assert len(consumer.poll()) == 1
            assert consumer.committed() == {T0: None}
