"""Commands to kafka-python: `python -m tests.interop.clients.programs.kafka_python ADDRESS`."""

from __future__ import annotations

import sys
import time
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, OffsetSpec
from kafka.errors import KafkaError
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata

from tests.interop.clients.programs.asking import Row, answer, encoded, text

SECONDS = 60


class Client:
    def __init__(self, address: str) -> None:
        self._common = {"bootstrap_servers": address, "client_id": "kafka-python"}
        self._admin = KafkaAdminClient(**self._common)
        self._transactional: dict[str, KafkaProducer] = {}
        self._member: Any = None

    def create(self, topic: str, partitions: int, replicas: int, settings: dict[str, str]) -> None:
        new = {"num_partitions": partitions, "replication_factor": replicas, "configs": settings}
        self._admin.create_topics({topic: new})

    def describe(self, topic: str, settings: list[str]) -> dict[str, Any]:
        (found,) = self._admin.describe_topics([topic])
        resource = ConfigResource("TOPIC", topic)
        ((_, shown),) = self._admin.describe_configs([resource], config_filter="all").items()
        return {
            "partitions": sorted(
                [one["partition_index"], one["leader_id"], one["replica_nodes"], one["isr_nodes"]]
                for one in found["partitions"]
            ),
            "settings": {name: [shown[topic][name]["value"], shown[topic][name]["config_source"]] for name in settings},
        }

    def produce(self, topic: str, partition: int, codec: str, idempotent: bool, records: list[Row]) -> list[int]:
        producer = KafkaProducer(
            **self._common,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=50,
            acks="all",
            max_request_size=10_000_000,
        )
        try:
            return sent(producer, topic, partition, records)
        finally:
            producer.close()

    def transact(
        self, by: str, topic: str, partition: int, records: list[Row], commits: bool, offsets: list[Any] | None
    ) -> None:
        producer = self._transactional.get(by)
        if producer is None:
            producer = self._transactional[by] = KafkaProducer(**self._common, transactional_id=by, linger_ms=50)
            producer.init_transactions()
        producer.begin_transaction()
        sent(producer, topic, partition, records)
        if offsets is not None:
            group, source, number, offset = offsets
            position = {TopicPartition(source, number): OffsetAndMetadata(offset, "", -1)}
            producer.send_offsets_to_transaction(position, ConsumerGroupMetadata(group, -1, "", None))
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()

    def read(self, topic: str, partition: int, offset: int, count: int, committed: bool) -> list[list[Any]]:
        isolation = "read_committed" if committed else "read_uncommitted"
        consumer = KafkaConsumer(**self._common, isolation_level=isolation)
        try:
            where = TopicPartition(topic, partition)
            consumer.assign([where])
            consumer.seek(where, offset)
            found: list[list[Any]] = []
            until = time.monotonic() + SECONDS
            while len(found) < count and time.monotonic() < until:
                for messages in consumer.poll(1000, max_records=count - len(found)).values():
                    for one in messages:
                        headers = [[name, text(value)] for name, value in one.headers]
                        found.append([one.offset, text(one.key), text(one.value), headers, one.timestamp])
            return found
        finally:
            consumer.close()

    def offset(self, topic: str, partition: int, at: int | str) -> int:
        where = TopicPartition(topic, partition)
        specs = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}
        asked = specs[str(at)] if at in specs else int(at)
        return int(self._admin.list_partition_offsets({where: asked})[where].offset)

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        where = TopicPartition(topic, partition)
        return int(self._admin.delete_records({where: offset})[where]["low_watermark"])

    def committed(self, group: str, topic: str, partitions: int) -> list[list[int]]:
        asked = [TopicPartition(topic, one) for one in range(partitions)]
        found = self._admin.list_group_offsets({group: asked})[group]
        return sorted([where.partition, one.offset] for where, one in found.items())

    def group(self, group: str) -> dict[str, Any]:
        found = self._admin.describe_groups([group])[group]
        return {"state": found["group_state"], "members": len(found["members"]), "assignor": found["protocol_data"]}

    def groups(self) -> list[str]:
        return sorted(one["group_id"] for one in self._admin.list_groups())

    def delete_group(self, group: str) -> str:
        return str(self._admin.delete_groups([group])[group])

    def join(self, group: str, topic: str) -> None:
        self._member = KafkaConsumer(
            **self._common,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
        )
        self._member.subscribe([topic])

    def poll(self, count: int, ms: int) -> list[list[Any]]:
        found: list[list[Any]] = []
        until = time.monotonic() + ms / 1000
        while len(found) < max(count, 1) and time.monotonic() < until:
            parts = self._member.poll(100, max_records=max(count - len(found), 1))
            for messages in parts.values():
                found += [[one.partition, one.offset, text(one.value)] for one in messages]
        return found

    def assigned(self) -> int:
        return len(self._member.assignment())

    def commit(self) -> None:
        self._member.commit()

    def leave(self) -> None:
        self._member.close()


def sent(producer: KafkaProducer, topic: str, partition: int, records: list[Row]) -> list[int]:
    waiting = [
        producer.send(
            topic,
            key=encoded(key),
            value=encoded(value),
            headers=[(name, encoded(content)) for name, content in headers],
            partition=partition,
            timestamp_ms=timestamp,
        )
        for key, value, headers, timestamp in records
    ]
    return [one.get(SECONDS).offset for one in waiting]


def refusal(error: KafkaError) -> list[Any]:
    return [getattr(error, "errno", None), type(error).__name__]


if __name__ == "__main__":
    answer(Client(*sys.argv[1:]), (KafkaError,), refusal)
