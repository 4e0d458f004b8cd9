"""Goal: records of internal topics say what Kafka's DumpLogSegments says of them, to the letter.
Method: its output line by line, for every coordinator partition of four brokers; the metadata logs record by record."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from kstore.record.schemas.topics import (
    DecodedMessage,
    coordinator_partition,
    decode_metadata_record,
    decode_transaction_record,
    encode_transaction_record,
)
from tests.cli.runner import runner
from tests.golden.manifests import manifest
from tests.golden.places import difference, place_of
from tests.golden.sets import MAIN_SETS, PACKED_DIRECTORY, golden_partitions, unpack
from tests.making.collecting import over

OPTIONS = {"__consumer_offsets": "--offsets-decoder", "__transaction_state": "--transaction-log-decoder"}
COORDINATORS = [partition for partition in golden_partitions(*MAIN_SETS) if partition.topic in OPTIONS]
METADATA_LOGS = [partition for partition in golden_partitions(*MAIN_SETS) if partition.topic == "__cluster_metadata"]
LINE = re.compile(r"\| offset: (\d+) .*? headerKeys: \[[^]]*\] key: (.*) payload: (.*)")
COMPACT = {"ensure_ascii": False, "separators": (",", ":")}


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


def printed_by_kafka(partition):
    """(offset, key, payload) of each data record that DumpLogSegments printed, key and payload as text."""
    directory = unpack(partition.set_name, "decoded") / "decoded"
    lines = [
        line
        for path in sorted(directory.glob(f"{partition.name}.*.log.txt"))
        for line in path.read_text(encoding="utf-8").split("\n")
    ]
    found = [LINE.fullmatch(line) for line in lines if " key: " in line]
    return [(int(match[1]), match[2], match[3]) for match in found]


@over("partition", COORDINATORS)
def test_coordinator_record_is_decoded_as_kafka_prints_it(kstore, partition):
    run = kstore("dump", "--json", OPTIONS[partition.topic], partition.directory)
    records = [record for entry in run.objects() for record in entry.get("records", ()) if "decodedKey" in record]
    shown = [
        (
            record["offset"],
            json.dumps(record["decodedKey"], **COMPACT),
            json.dumps(record["decodedValue"], **COMPACT) if record["decodedValue"] else "<DELETE>",
        )
        for record in records
    ]
    printed = printed_by_kafka(partition)
    assert shown == printed, difference(partition, shown, printed)
    assert (run.status, run.err) == (0, "")


def test_output_of_kafka_is_there_for_partitions_of_every_broker():
    counts = Counter(partition.set_name for partition in COORDINATORS for _ in printed_by_kafka(partition))
    assert set(counts) == set(MAIN_SETS)
    assert counts.total() == 2821


TRANSACTION_LOGS = [partition for partition in COORDINATORS if partition.topic == "__transaction_state"]


@over("partition", TRANSACTION_LOGS)
def test_transaction_record_of_version_0_is_written_as_the_broker_wrote_it(partition):
    records = [record for record in manifest(partition).records() if record.control_type is None]
    for record in records:
        key, value = decode_transaction_record(record.key, record.value)
        if value is None or value.version == 0:
            place = place_of(partition, record.offset)
            assert coordinator_partition(key.fields["transactionalId"], partition_count=2) == partition.partition, place
            fields = None if value is None else value.fields
            written = encode_transaction_record(key.fields["transactionalId"], fields)
            assert written == (record.key, record.value), place


@over("partition", METADATA_LOGS)
def test_metadata_record_is_decoded_and_none_is_unknown(partition):
    decoded = [
        decode_metadata_record(record.value) for record in manifest(partition).records() if record.control_type is None
    ]
    assert all(isinstance(message, DecodedMessage) for message in decoded)
    assert not [message for message in decoded if "taggedFields" in message.fields]
    topics = {message.fields["name"] for message in decoded if message.name == "TOPIC_RECORD"}
    in_same_root = {other.topic for other in golden_partitions(partition.set_name)}
    assert {topic for topic in in_same_root if topic != "__cluster_metadata"} <= topics


@over("partition", METADATA_LOGS)
def test_configurations_of_the_metadata_log_are_those_that_the_topics_were_made_with(partition):
    wanted = json.loads((PACKED_DIRECTORY / partition.set_name / "topics.json").read_text())
    found = {}
    for record in manifest(partition).records():
        message = decode_metadata_record(record.value) if record.control_type is None else None
        if message is not None and message.name == "CONFIG_RECORD" and message.fields["resourceType"] == 2:
            fields = message.fields
            found.setdefault(fields["resourceName"], {}).setdefault(fields["name"], fields["value"])
    for topic, said in wanted["topics"].items():
        assert found.get(topic, {}).items() >= said["config"].items(), topic


def test_metadata_log_and_its_snapshot_are_shown_by_the_command(kstore):
    partition = METADATA_LOGS[-1]
    (snapshot,) = partition.directory.glob("*.checkpoint")
    run = kstore("dump", "--json", "--cluster-metadata-decoder", snapshot)
    records = [record for entry in run.objects() for record in entry["records"]]
    assert [record.get("controlType") for record in records][:: len(records) - 1] == [
        "SNAPSHOT_HEADER",
        "SNAPSHOT_FOOTER",
    ]
    features = [record["decodedValue"] for record in records[1:-1]]
    assert {feature["type"] for feature in features} == {"FEATURE_LEVEL_RECORD"}
    assert {feature["data"]["name"] for feature in features} >= {"metadata.version"}
    assert run.status == 0
