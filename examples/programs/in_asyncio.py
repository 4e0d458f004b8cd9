"""Measurements in an event loop: tasks that send, one that consumes; a full buffer makes tasks wait, and not the loop.

python examples/programs/in_asyncio.py DIRECTORY
"""

from __future__ import annotations

import asyncio
import sys

import kstore
from kstore import aio
from kstore.serializers import StringDeserializer

TOPIC = "measurements"


async def measure(producer: aio.Producer[str, str], name: str, count: int) -> int:
    """Send so many measurements; return the offset of the last one."""
    offset = -1
    for number in range(count):
        offset = (await producer.send(TOPIC, f"{name} {number}", key=name)).offset
    return offset


async def consume(consumer: aio.Consumer[str, str], count: int) -> dict[str, int]:
    """Count the next records by key, and commit after the last one."""
    counts: dict[str, int] = {}
    seen = 0
    async for record in consumer:
        counts[record.key] = counts.get(record.key, 0) + 1
        seen += 1
        if seen == count:
            await consumer.commit()
            break
    return counts


async def run(
    store: kstore.WritableStore, *, tasks: int = 50, each: int = 20, buffer_memory: int = 1 << 20
) -> dict[str, int]:
    """Let tasks measure while another one consumes; return how many records each sent."""
    to_text = StringDeserializer()
    async with (
        aio.Producer(
            store,
            key_serializer=str.encode,
            value_serializer=str.encode,
            buffer_memory=buffer_memory,
            batch_size=min(16 * 1024, buffer_memory // 2),
        ) as producer,
        aio.Consumer(
            store,
            group="counting",
            topics=[TOPIC],
            auto_offset_reset="earliest",
            key_deserializer=to_text,
            value_deserializer=to_text,
        ) as consumer,
    ):
        consuming = asyncio.create_task(consume(consumer, tasks * each))
        await asyncio.gather(*(measure(producer, f"task-{number}", each) for number in range(tasks)))
        return await consuming


async def main(directory: str) -> None:
    """Run once; what takes the lock and what closes the store are in worker threads."""
    async with await asyncio.to_thread(kstore.open_store, directory, "a", timeout=5) as store:
        await asyncio.to_thread(store.create_topic, TOPIC, exist_ok=True)
        print(sum((await run(store)).values()))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
