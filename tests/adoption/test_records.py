"""Goal: the snapshot has the bytes that Kafka's own tools write, and the records that a broker needs.
Method: the snapshots that `kafka-storage format` of 3.9.2 and 4.4.0 left in the golden sets are written again, byte for
byte, and every record of their logs; what adoption writes is read by a decoder of its own."""

from __future__ import annotations

import uuid

import pytest

from kstore.adoption.features import features_of
from kstore.adoption.records import (
    PartitionOfTopic,
    TopicToWrite,
    broker_value,
    config_values,
    feature_value,
    producer_ids_value,
    snapshot_of,
    topic_values,
)
from kstore.log.segment.file_records import FileRecords
from kstore.record.schemas.topics import DecodedMessage, decode_metadata_record, encode_metadata_record
from tests.golden.sets import unpack
from tests.reference.metadata import read_snapshot

TOPIC, DIRECTORY, INCARNATION = (uuid.UUID(int=number << 64 | 7) for number in (1, 2, 3))
FORMATTED = {
    "4.4": ("main-4.4.0", "data/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"),
    "3.9": ("main-3.9.2", "data/bootstrap.checkpoint"),
}
CRC, BATCH_TIMES = slice(17, 21), slice(27, 43)
# The time of the last record that the snapshot contains, before the tags and the headers of its record.
TIME_IN_HEADER = slice(-10, -2)


@pytest.mark.parametrize("release", FORMATTED)
def test_a_snapshot_of_the_features_is_the_one_that_format_writes(release):
    name, path = FORMATTED[release]
    file = unpack(name, "trees") / path
    with FileRecords.open(file, is_read_only=True) as records:
        batches = list(records.batches())
    values = [feature_value(feature, level) for feature, level in features_of(release, {}).items()]
    ours = snapshot_of(values, timestamp_ms=batches[0].header.max_timestamp_ms)
    assert ours.record_count == batches[-1].header.last_offset + 1
    assert without_times(ours.data) == without_times(file.read_bytes())


def without_times(data: bytes) -> list[bytes]:
    """The batches without CRCs and times: each has the time at which it was made."""
    parts = []
    while data:
        size = int.from_bytes(data[8:12], "big") + 12
        batch, data = bytearray(data[:size]), data[size:]
        if not parts:
            batch[TIME_IN_HEADER] = b""
        batch[BATCH_TIMES] = batch[CRC] = b""
        parts.append(bytes(batch))
    return parts


@pytest.mark.parametrize("name", ["main-4.4.0", "main-3.9.2"])
def test_every_record_of_a_brokers_metadata_is_encoded_as_the_broker_did(name):
    path = unpack(name, "trees") / "data/__cluster_metadata-0/00000000000000000000.log"
    seen = set()
    with FileRecords.open(path, is_read_only=True) as file:
        for record in (record for batch in file.batches() if not batch.is_control for record in batch):
            message = decode_metadata_record(record.value)
            assert isinstance(message, DecodedMessage)
            kafkas = "".join(word.capitalize() for word in message.name.split("_"))
            assert encode_metadata_record(kafkas, message.fields, version=message.version) == record.value
            seen.add(kafkas)
    assert {"TopicRecord", "PartitionRecord", "ConfigRecord", "RegisterBrokerRecord", "ProducerIdsRecord"} <= seen


def test_unknown_records_are_refused():
    with pytest.raises(ValueError, match="expected that of a metadata record, such as TopicRecord, got 'Topic'"):
        encode_metadata_record("Topic", {}, version=0)


def test_another_decoder_reads_the_records_of_a_snapshot():
    topic = TopicToWrite(
        name="orders",
        topic_id=TOPIC,
        settings={"retention.ms": "-1", "cleanup.policy": "delete"},
        partitions=[PartitionOfTopic(number=4, leader_epoch=8, directory_id=DIRECTORY)],
    )
    values = [
        feature_value("metadata.version", 21),
        broker_value(3, INCARNATION, [DIRECTORY]),
        *config_values(4, "", {"min.insync.replicas": "1"}),
        *topic_values(topic, 3),
        producer_ids_value(5000),
    ]
    assert read_snapshot(snapshot_of(values, timestamp_ms=77).data) == [
        ("feature", {"name": "metadata.version", "level": 21}),
        (
            "broker",
            {
                "id": 3,
                "is_migrating": 0,
                "incarnation": INCARNATION,
                "epoch": 1,
                "endpoints": 0,
                "features": 0,
                "rack": None,
                "fenced": 1,
                "in_shutdown": 0,
                "directories": [DIRECTORY],
            },
        ),
        ("config", {"resource": 4, "of": "", "name": "min.insync.replicas", "value": "1"}),
        ("topic", {"name": "orders", "id": TOPIC}),
        ("config", {"resource": 2, "of": "orders", "name": "cleanup.policy", "value": "delete"}),
        ("config", {"resource": 2, "of": "orders", "name": "retention.ms", "value": "-1"}),
        (
            "partition",
            {
                "number": 4,
                "id": TOPIC,
                "replicas": [3],
                "isr": [3],
                "removing": [],
                "adding": [],
                "leader": 3,
                "leader_epoch": 8,
                "partition_epoch": 0,
                "directories": [DIRECTORY],
            },
        ),
        ("producer ids", {"broker": -1, "epoch": -1, "next": 5000}),
    ]


def test_batches_of_a_snapshot_have_at_most_a_thousand_records_and_a_mebibyte():
    values = [feature_value(f"feature-{number}", 1) for number in range(2500)]
    values += config_values(2, "t", {f"name-{number}": "x" * 30_000 for number in range(60)})
    sizes = []
    data = snapshot_of(values, timestamp_ms=1).data
    assert len(read_snapshot(data)) == 2560
    while data:
        size = int.from_bytes(data[8:12], "big") + 12
        sizes.append((int.from_bytes(data[57:61], "big"), size))
        data = data[size:]
    assert [count for count, _ in sizes] == [1, 1000, 1000, 534, 26, 1]
    assert max(size for _, size in sizes) < 1 << 20
