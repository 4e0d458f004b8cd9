"""Goal: kstore.aio.Consumer gives each record once, also after cancelled calls, and commits what its loop has got.
Method: iterations that stop anywhere, polls that are cancelled before, during and after their read."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import get_type_hints

import pytest

import kstore
from kstore import LATEST, TopicPartition, aio
from kstore.consumer.config import ConsumerSettings
from kstore.errors import ConsumerClosedError
from kstore.record import Record
from tests.aio.test_aio_producer import PATIENCE_S, run

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def store(tmp_path):
    with kstore.open_store(tmp_path, "a") as opened:
        opened.create_topic("t", partitions=2)
        for partition in range(2):
            opened.log("t", partition).append([Record(value=b"%d" % n) for n in range(100)])
        yield opened


def consumer_of(store, **settings):
    return aio.Consumer(store, **{"topics": ["t"], "group": "g", "auto_offset_reset": "earliest"} | settings)


def test_the_settings_are_those_of_the_other_consumer():
    parameters = inspect.signature(kstore.Consumer).parameters
    hints = get_type_hints(kstore.Consumer.__init__, vars(inspect.getmodule(kstore.Consumer)))
    expected = {name: hints[name] for name in parameters if name not in ("store", "clock", "unknown")}
    settings = get_type_hints(ConsumerSettings)
    assert settings.keys() == expected.keys()
    # The types of deserializers are those of the consumer's records.
    differing = {name for name, hint in settings.items() if hint != expected[name]}
    assert differing == {"key_deserializer", "value_deserializer"}


def test_a_poll_returns_records_and_waits_for_further_ones(store):
    async def main():
        async with consumer_of(store) as consumer:
            taken = [record for _ in range(4) for record in await consumer.poll()]
            assert len(taken) == 200
            assert await consumer.poll(0.01) == []
            polling = asyncio.create_task(consumer.poll(None))
            await asyncio.sleep(0)
            await asyncio.to_thread(store.log("t").append, Record(value=b"new"))
            return [record.value for record in await polling]

    assert run(main()) == [b"new"]


def test_an_iteration_gives_each_record_and_ends_with_the_consumer(store):
    taken = []

    async def main():
        consumer = consumer_of(store, max_poll_records=7)

        async def read():
            async for record in consumer:
                taken.append((record.topic_partition, record.offset))

        reading = asyncio.create_task(read())
        while len(taken) < 200:
            await asyncio.sleep(0.001)
        await consumer.aclose()
        await reading
        with pytest.raises(ConsumerClosedError):
            await consumer.poll()

    run(main())
    assert sorted(taken) == [(each, n) for each in (T0, T1) for n in range(100)]


def test_a_commit_in_an_iteration_is_of_the_records_that_the_loop_has_got(store):
    async def main():
        async with consumer_of(store) as consumer:
            taken = []
            async for record in consumer:
                taken.append(record)
                if len(taken) == 30:
                    break
            record = taken[-1]
            made = await consumer.commit()
            assert made[record.topic_partition].offset == record.offset + 1
            assert await consumer.position(record.topic_partition) == record.offset + 1
            assert sum(each.offset for each in made.values()) == 30

    run(main())
    with kstore.Consumer(store, group="g", topics=["t"]) as other:
        assert sum(each.offset for each in other.committed().values() if each is not None) == 30


def test_a_loop_that_stopped_goes_on_with_the_next_record(store):
    async def main():
        async with consumer_of(store, partitions=[T0], topics=[]) as consumer:
            first = []
            async for record in consumer:
                first.append(record.offset)
                if len(first) == 10:
                    break
            polled = [record.offset for record in await consumer.poll()]
            assert (await consumer.positions())[T0] == 100
            return first + polled

    assert run(main()) == list(range(100))


def test_a_seek_drops_what_was_read_ahead(store):
    async def main():
        async with consumer_of(store, partitions=[T0], topics=[]) as consumer:
            async for record in consumer:
                assert record.offset == 0
                break
            await consumer.seek(T0, 50)
            assert await consumer.position(T0) == 50
            (*_, last) = await consumer.poll()
            await consumer.seek(T0, LATEST)
            return last.offset, await consumer.poll()

    assert run(main()) == (99, [])


def test_a_seek_of_one_partition_keeps_the_place_in_the_others(store):
    async def main():
        async with consumer_of(store) as consumer:
            async for record in consumer:
                other = T1 if record.topic_partition == T0 else T0
                break
            await consumer.seek(other, 90)
            positions = await consumer.positions()
            taken = [(each.topic_partition, each.offset) for _ in range(4) for each in await consumer.poll()]
            return positions == {record.topic_partition: 1, other: 90}, len(taken)

    assert run(main()) == (True, 99 + 10)


@pytest.mark.parametrize("step", ["before", "during", "after"])
def test_a_cancelled_poll_loses_no_record(store, monkeypatch, step):
    reached, may_go = threading.Event(), threading.Event()
    poll = kstore.Consumer.poll

    def held(consumer, timeout):
        if step == "after":
            records = poll(consumer, timeout)
        reached.set()
        assert may_go.wait(PATIENCE_S)
        return records if step == "after" else poll(consumer, timeout)

    async def main():
        async with consumer_of(store, partitions=[T0], topics=[]) as consumer:
            if step != "before":
                monkeypatch.setattr(kstore.Consumer, "poll", held)
            polling = asyncio.create_task(consumer.poll(1000))
            if step == "before":
                await asyncio.sleep(0)
            else:
                await asyncio.to_thread(reached.wait, PATIENCE_S)
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
            may_go.set()
            monkeypatch.undo()
            offsets = []
            while len(offsets) < 100:
                offsets += [record.offset for record in await consumer.poll(1000)]
            assert (await consumer.commit())[T0].offset == 100
            await asyncio.to_thread(store.log("t").append, Record(value=b"new"))
            assert [record.offset for record in await consumer.poll(1000)] == [100]
            return offsets

    assert run(main()) == list(range(100))


def test_calls_that_wait_for_the_thread_end_when_the_consumer_is_closed(store, monkeypatch):
    reached, may_go = threading.Event(), threading.Event()

    def held(consumer, timeout):
        reached.set()
        assert may_go.wait(PATIENCE_S)
        return []

    async def main():
        consumer = consumer_of(store)
        monkeypatch.setattr(kstore.Consumer, "poll", held)
        polling = asyncio.create_task(consumer.poll(1000))
        await asyncio.to_thread(reached.wait, PATIENCE_S)
        waiting = [asyncio.create_task(consumer.commit()), asyncio.create_task(anext(consumer))]
        await asyncio.sleep(0)
        closing = asyncio.create_task(consumer.aclose())
        await asyncio.sleep(0)
        may_go.set()
        await closing
        assert await polling == []
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(outcome) for outcome in run(main())] == [ConsumerClosedError, StopAsyncIteration]


def test_an_error_of_a_poll_is_raised_by_it(store):
    async def main():
        async with consumer_of(store, value_deserializer="json", partitions=[T0], topics=[]) as consumer:
            assert (await consumer.poll())[0].value == 0
        async with consumer_of(store, auto_offset_reset="none") as consumer:
            with pytest.raises(kstore.NoOffsetForPartitionError):
                await consumer.poll()
            with pytest.raises(TypeError):
                await consumer.poll("soon")

    run(main())


def test_stores_logs_and_followers_are_asynchronous_context_managers(tmp_path):
    async def main():
        async with kstore.open_store(tmp_path, "a") as store:
            store.create_topic("t")
            store.log("t").append(Record(value=b"a"))
            async with store.log("t").follow(0) as follower:
                async for record in follower:
                    assert record.value == b"a"
                    break
            assert follower.is_closed
        with pytest.raises(kstore.LogClosedError):
            store.log("t")

    run(main())
