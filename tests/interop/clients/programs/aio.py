"""Commands to aiokafka: `python -m tests.interop.clients.programs.aio ADDRESS`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from tests.interop.clients.programs.asking import Row, answer_in_loop, encoded, text

SECONDS = 60


class Client:
    def __init__(self, address: str) -> None:
        self._common = {"bootstrap_servers": address, "client_id": "aiokafka"}
        self._transactional: dict[str, AIOKafkaProducer] = {}
        self._member: Any = None
        self._admin: Any = None

    async def _administrator(self) -> AIOKafkaAdminClient:
        if self._admin is None:
            self._admin = AIOKafkaAdminClient(**self._common)
            await self._admin.start()
        return self._admin

    async def create(self, topic: str, partitions: int, replicas: int, settings: dict[str, str]) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, topic_configs=settings)
        answer = await (await self._administrator()).create_topics([new])
        raise_for(*(each[1] for each in answer.topic_errors))

    async def describe(self, topic: str, settings: list[str]) -> dict[str, Any]:
        admin = await self._administrator()
        (found,) = await admin.describe_topics([topic])
        raise_for(found["error_code"])
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        ((code, _, _, _, entries),) = answer.resources
        raise_for(code)
        shown = {entry[0]: [entry[1], entry[3]] for entry in entries}
        return {
            "partitions": sorted(
                [one["partition"], one["leader"], one["replicas"], one["isr"]] for one in found["partitions"]
            ),
            "settings": {name: shown[name] for name in settings},
        }

    async def produce(self, topic: str, partition: int, codec: str, idempotent: bool, records: list[Row]) -> list[int]:
        producer = AIOKafkaProducer(
            **self._common,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=50,
            acks="all",
            max_request_size=10_000_000,
        )
        async with producer:
            return await sent(producer, topic, partition, records)

    async def transact(
        self, by: str, topic: str, partition: int, records: list[Row], commits: bool, offsets: list[Any] | None
    ) -> None:
        producer = self._transactional.get(by)
        if producer is None:
            producer = self._transactional[by] = AIOKafkaProducer(**self._common, transactional_id=by, linger_ms=50)
            await producer.start()
        await producer.begin_transaction()
        await sent(producer, topic, partition, records)
        if offsets is not None:
            group, source, number, offset = offsets
            await producer.send_offsets_to_transaction({TopicPartition(source, number): offset}, group)
        await (producer.commit_transaction() if commits else producer.abort_transaction())

    async def read(self, topic: str, partition: int, offset: int, count: int, committed: bool) -> list[list[Any]]:
        isolation = "read_committed" if committed else "read_uncommitted"
        async with AIOKafkaConsumer(**self._common, isolation_level=isolation) as consumer:
            where = TopicPartition(topic, partition)
            consumer.assign([where])
            consumer.seek(where, offset)
            found: list[list[Any]] = []
            while len(found) < count:
                message = await asyncio.wait_for(consumer.getone(), SECONDS)
                headers = [[name, text(value)] for name, value in message.headers]
                found.append([message.offset, text(message.key), text(message.value), headers, message.timestamp])
            return found

    async def offset(self, topic: str, partition: int, at: int | str) -> int | None:
        where = TopicPartition(topic, partition)
        async with AIOKafkaConsumer(**self._common) as consumer:
            if at == "earliest":
                return int((await consumer.beginning_offsets([where]))[where])
            if at == "latest":
                return int((await consumer.end_offsets([where]))[where])
            found = (await consumer.offsets_for_times({where: int(at)}))[where]
            return None if found is None else int(found.offset)

    async def delete_records(self, topic: str, partition: int, offset: int) -> int:
        where = TopicPartition(topic, partition)
        answer = await (await self._administrator()).delete_records({where: RecordsToDelete(before_offset=offset)})
        return int(answer[where])

    async def committed(self, group: str, topic: str, partitions: int) -> list[list[int]]:
        asked = [TopicPartition(topic, one) for one in range(partitions)]
        answer = await (await self._administrator()).list_consumer_group_offsets(group, partitions=asked)
        return sorted([where.partition, one.offset] for where, one in answer.items())

    async def group(self, group: str) -> dict[str, Any]:
        (answer,) = await (await self._administrator()).describe_consumer_groups([group])
        ((code, _, state, _, protocol, members, *_),) = answer.groups
        raise_for(code)
        return {"state": state, "members": len(members), "assignor": protocol}

    async def groups(self) -> list[str]:
        return sorted(name for name, *_ in await (await self._administrator()).list_consumer_groups())

    async def join(self, group: str, topic: str) -> None:
        self._member = AIOKafkaConsumer(
            **self._common,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
        )
        self._member.subscribe([topic])
        await self._member.start()

    async def poll(self, count: int, ms: int) -> list[list[Any]]:
        loop = asyncio.get_running_loop()
        found: list[list[Any]] = []
        until = loop.time() + ms / 1000
        while len(found) < max(count, 1) and loop.time() < until:
            parts = await self._member.getmany(timeout_ms=100, max_records=max(count - len(found), 1))
            for messages in parts.values():
                found += [[message.partition, message.offset, text(message.value)] for message in messages]
        return found

    async def assigned(self) -> int:
        return len(self._member.assignment())

    async def commit(self) -> None:
        await self._member.commit()

    async def leave(self) -> None:
        await self._member.stop()


async def sent(producer: AIOKafkaProducer, topic: str, partition: int, records: list[Row]) -> list[int]:
    waiting = [
        await producer.send(
            topic,
            key=encoded(key),
            value=encoded(value),
            headers=[(name, encoded(content)) for name, content in headers],
            partition=partition,
            timestamp_ms=timestamp,
        )
        for key, value, headers, timestamp in records
    ]
    return [(await one).offset for one in waiting]


def raise_for(*codes: int) -> None:
    for code in codes:
        if code:
            raise for_code(code)


def refusal(error: KafkaError) -> list[Any]:
    return [getattr(error, "errno", None), type(error).__name__]


async def main() -> None:
    await answer_in_loop(Client(*sys.argv[1:]), (KafkaError,), refusal)


if __name__ == "__main__":
    asyncio.run(main())
