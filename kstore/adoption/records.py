"""The records of `__cluster_metadata` by which a broker knows its topics, and the snapshot that holds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kstore.config import MIB
from kstore.record.builder import MemoryRecordsBuilder, with_kraft_control_record
from kstore.record.kraft import SnapshotFooterRecord, SnapshotHeaderRecord
from kstore.record.schemas.topics import encode_metadata_record
from kstore.store.metadata.image import TOPIC_RESOURCE

BROKER_RESOURCE = 4
# The epoch that a clean shutdown of the broker before the first one left, as it were.
BROKER_EPOCH = 1
_SNAPSHOT_EPOCH = 0
# Raft takes no batch of more than 8 MiB.
_MOST_BATCH_RECORDS, _MOST_BATCH_BYTES = 1000, MIB
_NO_BROKER = -1


@dataclass(frozen=True, kw_only=True)
class PartitionOfTopic:
    """A partition as its record has it: its number, the epoch of its leader, the id of the directory it lies in, and
    how often the record was changed.
    """

    number: int
    leader_epoch: int
    directory_id: UUID
    partition_epoch: int = 0


@dataclass(frozen=True, kw_only=True)
class TopicToWrite:
    """A topic, its settings by Kafka's names, and partitions, of which a record each is written."""

    name: str
    topic_id: UUID
    settings: Mapping[str, str] = field(default_factory=dict)
    partitions: Sequence[PartitionOfTopic] = ()


def feature_value(name: str, level: int) -> bytes:
    """Return the record of a feature's level."""
    return encode_metadata_record("FeatureLevelRecord", {"name": name, "featureLevel": level}, version=0)


def broker_value(node_id: int, incarnation_id: UUID, directory_ids: Iterable[UUID]) -> bytes:
    """Return the registration of the broker before its first start: fenced, as after a shutdown.

    A broker that says that it was shut down cleanly in this registration's epoch keeps its place among the in-sync
    replicas; of one that the controller does not know it takes it away (KIP-966).
    """
    fields: dict[str, Any] = {
        "brokerId": node_id,
        "isMigratingZkBroker": False,
        "incarnationId": incarnation_id,
        "brokerEpoch": BROKER_EPOCH,
        "endPoints": [],
        "features": [],
        "rack": None,
        "fenced": True,
        "inControlledShutdown": False,
        "logDirs": sorted(directory_ids),
    }
    return encode_metadata_record("RegisterBrokerRecord", fields, version=3)


def config_values(resource_type: int, name: str, settings: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the record of each setting of a topic or of brokers (name "" for the default of all)."""
    for setting, value in sorted(settings.items()):
        yield config_value(resource_type, name, setting, value)


def config_value(resource_type: int, name: str, setting: str, value: str | None) -> bytes:
    """Return the record of one setting, which a value of None takes back."""
    fields = {"resourceType": resource_type, "resourceName": name, "name": setting, "value": value}
    return encode_metadata_record("ConfigRecord", fields, version=0)


def topic_values(topic: TopicToWrite, node_id: int) -> Iterator[bytes]:
    """Yield the records of a new topic."""
    yield encode_metadata_record("TopicRecord", {"name": topic.name, "topicId": topic.topic_id}, version=0)
    yield from config_values(TOPIC_RESOURCE, topic.name, topic.settings)
    yield from partition_values(topic, node_id)


def partition_values(topic: TopicToWrite, node_id: int) -> Iterator[bytes]:
    """Yield the record of each partition, whose one replica, the leader, is the node."""
    for partition in topic.partitions:
        fields: dict[str, Any] = {
            "partitionId": partition.number,
            "topicId": topic.topic_id,
            "replicas": [node_id],
            "isr": [node_id],
            "removingReplicas": [],
            "addingReplicas": [],
            "leader": node_id,
            "leaderEpoch": partition.leader_epoch,
            "partitionEpoch": partition.partition_epoch,
            "directories": [partition.directory_id],
        }
        yield encode_metadata_record("PartitionRecord", fields, version=1)


def removal_value(topic_id: UUID) -> bytes:
    """Return the record that removes a topic with its partitions and settings."""
    return encode_metadata_record("RemoveTopicRecord", {"topicId": topic_id}, version=0)


def producer_ids_value(next_producer_id: int) -> bytes:
    """Return the record of the first producer id that no broker has handed out."""
    fields = {"brokerId": _NO_BROKER, "brokerEpoch": -1, "nextProducerId": next_producer_id}
    return encode_metadata_record("ProducerIdsRecord", fields, version=0)


@dataclass(frozen=True)
class Snapshot:
    """The bytes of a snapshot, and how many records it has, those of its header and footer included."""

    data: bytes
    record_count: int


def snapshot_of(values: Iterable[bytes], *, timestamp_ms: int) -> Snapshot:
    """Return a snapshot of the metadata with these records.

    Source: Kafka RecordsSnapshotWriter.
    """
    header = SnapshotHeaderRecord(last_contained_log_timestamp_ms=timestamp_ms)
    parts = [bytes(_control_batch(header, offset=0, timestamp_ms=timestamp_ms))]
    offset = 1
    for group in _in_batches(values):
        parts.append(batch_of(group, offset=offset, leader_epoch=_SNAPSHOT_EPOCH, timestamp_ms=timestamp_ms))
        offset += len(group)
    parts.append(bytes(_control_batch(SnapshotFooterRecord(), offset=offset, timestamp_ms=timestamp_ms)))
    return Snapshot(b"".join(parts), offset + 1)


def batch_of(values: Sequence[bytes], *, offset: int, leader_epoch: int, timestamp_ms: int) -> bytes:
    """Return one batch of records of the metadata."""
    builder = MemoryRecordsBuilder(base_offset=offset, partition_leader_epoch=leader_epoch)
    for value in values:
        builder.append(timestamp_ms=timestamp_ms, value=value)
    return bytes(builder.build())


def _control_batch(value: SnapshotHeaderRecord | SnapshotFooterRecord, *, offset: int, timestamp_ms: int) -> Any:
    return with_kraft_control_record(
        value, timestamp_ms=timestamp_ms, partition_leader_epoch=_SNAPSHOT_EPOCH, offset=offset
    )


def _in_batches(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    size = 0
    for value in values:
        if group and (len(group) == _MOST_BATCH_RECORDS or size + len(value) > _MOST_BATCH_BYTES):
            yield group
            group, size = [], 0
        group.append(value)
        size += len(value)
    if group:
        yield group
