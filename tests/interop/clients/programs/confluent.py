"""Commands to confluent-kafka: `python -m tests.interop.clients.programs.confluent ADDRESS classic|consumer`."""

from __future__ import annotations

import sys
import time
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from tests.interop.clients.programs.asking import Row, answer, encoded, text

SECONDS = 60
SESSION = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}


class Client:
    def __init__(self, address: str, protocol: str) -> None:
        self._common = {"bootstrap.servers": address, "broker.address.family": "v4"}
        self._membership = {"group.protocol": protocol} | (SESSION if protocol == "classic" else {})
        self._transactional: dict[str, Producer] = {}
        self._member: Consumer | None = None

    @property
    def _admin(self) -> AdminClient:
        """Another one each time: of a broker that was started again one does not find the coordinator any more."""
        self._last_admin = AdminClient(self._common)
        return self._last_admin

    def create(self, topic: str, partitions: int, replicas: int, settings: dict[str, str]) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=settings)
        for future in self._admin.create_topics([new]).values():
            future.result(SECONDS)

    def describe(self, topic: str, settings: list[str]) -> dict[str, Any]:
        partitions = self._admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        (future,) = self._admin.describe_configs([resource]).values()
        found = future.result(SECONDS)
        return {
            "partitions": sorted([one.id, one.leader, one.replicas, one.isrs] for one in partitions.values()),
            "settings": {name: [found[name].value, found[name].source] for name in settings},
        }

    def produce(self, topic: str, partition: int, codec: str, idempotent: bool, records: list[Row]) -> list[int]:
        producer = Producer(
            self._common
            | {"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 50, "acks": "all"}
            | {"message.max.bytes": 10_000_000}
        )
        return self._sent(producer, topic, partition, records)

    def _sent(self, producer: Producer, topic: str, partition: int, records: list[Row]) -> list[int]:
        reports: list[tuple[KafkaError | None, Message]] = []
        for key, value, headers, timestamp in records:
            producer.produce(
                topic,
                key=encoded(key),
                value=encoded(value),
                headers=[(name, encoded(content)) for name, content in headers],
                partition=partition,
                timestamp=timestamp,
                on_delivery=lambda error, message: reports.append((error, message)),
            )
        producer.flush(SECONDS)
        for error, _ in reports:
            if error is not None:
                raise KafkaException(error)
        return sorted(message.offset() or 0 for _, message in reports)

    def transact(
        self, by: str, topic: str, partition: int, records: list[Row], commits: bool, offsets: list[Any] | None
    ) -> None:
        producer = self._transactional.get(by)
        if producer is None:
            producer = self._transactional[by] = Producer(self._common | {"transactional.id": by, "linger.ms": 50})
            producer.init_transactions(SECONDS)
        producer.begin_transaction()
        self._sent(producer, topic, partition, records)
        if offsets is not None:
            group, source, number, offset = offsets
            with_group = Consumer(self._common | {"group.id": group})
            position = TopicPartition(source, number, offset)
            producer.send_offsets_to_transaction([position], with_group.consumer_group_metadata(), SECONDS)
            with_group.close()
        (producer.commit_transaction if commits else producer.abort_transaction)(SECONDS)

    def read(self, topic: str, partition: int, offset: int, count: int, committed: bool) -> list[list[Any]]:
        isolation = "read_committed" if committed else "read_uncommitted"
        consumer = Consumer(
            self._common | {"group.id": "reads", "enable.auto.commit": False, "isolation.level": isolation}
        )
        consumer.assign([TopicPartition(topic, partition, offset)])
        found: list[list[Any]] = []
        until = time.monotonic() + SECONDS
        while len(found) < count and time.monotonic() < until:
            for message in consumer.consume(count - len(found), 1.0):
                if message.error() is not None:
                    raise KafkaException(message.error())
                headers = [[name, text(value)] for name, value in message.headers() or []]
                found.append(
                    [message.offset(), text(message.key()), text(message.value()), headers, message.timestamp()[1]]
                )
        consumer.close()
        return found

    def offset(self, topic: str, partition: int, at: int | str) -> int:
        where = TopicPartition(topic, partition)
        spec = {"earliest": OffsetSpec.earliest(), "latest": OffsetSpec.latest()}.get(str(at))
        if spec is None:
            spec = OffsetSpec.for_timestamp(int(at))
        asked = self._admin.list_offsets({where: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return int(asked[where].result(SECONDS).offset)

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        (future,) = self._admin.delete_records([TopicPartition(topic, partition, offset)]).values()
        return int(future.result(SECONDS).low_watermark)

    def committed(self, group: str, topic: str, partitions: int) -> list[list[int]]:
        asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, one) for one in range(partitions)])]
        (future,) = self._admin.list_consumer_group_offsets(asked).values()
        return sorted([one.partition, one.offset] for one in future.result(SECONDS).topic_partitions)

    def group(self, group: str) -> dict[str, Any]:
        (future,) = self._admin.describe_consumer_groups([group]).values()
        found = future.result(SECONDS)
        return {"state": found.state.name, "members": len(found.members), "assignor": found.partition_assignor}

    def groups(self) -> list[str]:
        found = self._admin.list_consumer_groups().result(SECONDS)
        return sorted(one.group_id for one in found.valid)

    def delete_group(self, group: str) -> None:
        (future,) = self._admin.delete_consumer_groups([group]).values()
        future.result(SECONDS)

    def join(self, group: str, topic: str) -> None:
        settings = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        self._member = Consumer(self._common | self._membership | settings)
        self._member.subscribe([topic])

    def poll(self, count: int, ms: int) -> list[list[Any]]:
        found: list[list[Any]] = []
        until = time.monotonic() + ms / 1000
        while len(found) < max(count, 1) and time.monotonic() < until:
            for message in self._joined.consume(max(count - len(found), 1), 0.1):
                if message.error() is not None:
                    raise KafkaException(message.error())
                found.append([message.partition(), message.offset(), text(message.value())])
        return found

    def assigned(self) -> int:
        return len(self._joined.assignment())

    def commit(self) -> None:
        self._joined.commit(asynchronous=False)

    def leave(self) -> None:
        self._joined.close()

    @property
    def _joined(self) -> Consumer:
        if self._member is None:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))
        return self._member


def refusal(error: KafkaException) -> list[Any]:
    (cause,) = error.args[:1]
    return [cause.code(), cause.name()]


if __name__ == "__main__":
    answer(Client(*sys.argv[1:]), (KafkaException,), refusal)
