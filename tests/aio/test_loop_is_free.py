"""Goal: under load, with a full buffer and a slow disk, the thread of an event loop waits for nothing but its events.
Method: each sync of a file ends only once the loop has gone round again and again; calls of the system are noted."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

import kstore
from kstore import aio

PATIENCE_S = 60
ROUNDS_PER_SYNC = 20
FULL_BUFFER = {"buffer_memory": 32 * 1024, "batch_size": 16 * 1024}
# Calls that wait for a disk, or for time.
BLOCKING = [
    *(
        (os, name)
        for name in ("fdatasync", "fsync", "preadv", "pwritev", "pwrite", "open", "replace", "scandir", "stat")
    ),
    (time, "sleep"),
]


class Disk:
    """A disk on which each sync waits until the loop has gone round ROUNDS_PER_SYNC times; notes who calls what.

    Where the loop waited for a sync, or for a lock that is held during one, neither would end.
    """

    def __init__(self) -> None:
        self.loop_thread: int | None = None
        self.in_the_loop: list[str] = []
        self.sync_count = 0
        self._rounds = 0
        self._changed = threading.Condition()

    def noted(self, name, function):
        def call(*arguments, **options):
            if threading.get_ident() == self.loop_thread:
                self.in_the_loop.append(name)
            elif name in ("fdatasync", "fsync") and self.loop_thread is not None:
                self._wait_for_rounds()
            return function(*arguments, **options)

        return call

    def _wait_for_rounds(self) -> None:
        with self._changed:
            self.sync_count += 1
            until = self._rounds + ROUNDS_PER_SYNC
            assert self._changed.wait_for(lambda: self._rounds >= until, PATIENCE_S), "the loop stands still"

    async def count_rounds(self) -> None:
        while True:
            await asyncio.sleep(0)
            with self._changed:
                self._rounds += 1
                self._changed.notify_all()

    async def watching(self, main):
        """Run a coroutine beside the counting of rounds; note what the loop's thread does meanwhile."""
        counting = asyncio.create_task(self.count_rounds())
        self.loop_thread = threading.get_ident()
        try:
            return await asyncio.wait_for(main, PATIENCE_S)
        finally:
            self.loop_thread = None
            counting.cancel()


@pytest.fixture
def disk(monkeypatch):
    made = Disk()
    for module, name in BLOCKING:
        monkeypatch.setattr(module, name, made.noted(name, getattr(module, name)))
    return made


@pytest.fixture
def store(tmp_path):
    with kstore.open_store(tmp_path, "a") as opened:
        opened.create_topic("t", partitions=2)
        yield opened


def test_the_loop_goes_on_while_tasks_send_into_a_full_buffer_and_each_flush_takes_its_time(store, disk):
    async def main():
        async with aio.Producer(store, acks="flushed", **FULL_BUFFER) as producer:
            sends = [producer.send("t", bytes(1000), key=b"%d" % number) for number in range(300)]
            return await asyncio.gather(*sends)

    sent = asyncio.run(disk.watching(main()))
    assert len(sent) == len({(metadata.partition, metadata.offset) for metadata in sent}) == 300
    assert disk.sync_count > 5
    assert disk.in_the_loop == []


def test_the_loop_goes_on_while_others_consume_commit_and_follow(store, disk):
    async def consume(count):
        async with aio.Consumer(store, group="g", topics=["t"], auto_offset_reset="earliest") as consumer:
            seen = 0
            async for _ in consumer:
                seen += 1
                if seen % 50 == 0:
                    await consumer.commit(ack="flushed")
                if seen == count:
                    break
            return await consumer.committed()

    async def follow(count):
        # It opens the logs, unless another task has.
        opened = await asyncio.to_thread(store.follow, ["t"], from_offset=kstore.EARLIEST)
        async with opened as follower:
            async for _ in follower:
                count -= 1
                if not count:
                    return

    async def main():
        reading = [asyncio.create_task(consume(200)), asyncio.create_task(follow(200))]
        async with aio.Producer(store, acks="flushed", **FULL_BUFFER) as producer:
            await asyncio.gather(*(producer.send("t", bytes(1000)) for _ in range(200)))
        return (await asyncio.gather(*reading))[0]

    committed = asyncio.run(disk.watching(main()))
    assert sum(offset.offset for offset in committed.values() if offset) == 200
    assert disk.in_the_loop == []


def test_the_loop_goes_on_while_transactions_are_committed(store, disk):
    async def main():
        async with aio.Producer(store, transactional_id="x", acks="flushed", **FULL_BUFFER) as producer:
            await producer.init_transactions()
            for _ in range(3):
                async with producer.begin_transaction():
                    await asyncio.gather(*(producer.send("t", bytes(1000)) for _ in range(50)))

    asyncio.run(disk.watching(main()))
    records = [record for partition in (0, 1) for record in store.log("t", partition).read(isolation="read_committed")]
    assert len(records) == 150
    assert disk.sync_count > 3
    assert disk.in_the_loop == []


def test_what_blocks_the_loop_is_noted(store, disk):
    async def main():
        store.log("t").append(kstore.Record(value=b"v"))
        time.sleep(0)

    asyncio.run(disk.watching(main()))
    assert "sleep" in disk.in_the_loop
    assert len(disk.in_the_loop) > 1
