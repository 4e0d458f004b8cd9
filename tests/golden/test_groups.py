"""Goal: the groups of brokers' roots are those that Kafka's own decoder shows, transactions and tombstones included.
Method: the output of DumpLogSegments, replayed by the rule of Kafka's coordinator; every commit written anew."""

from __future__ import annotations

import json
import re

from kstore import OffsetAndMetadata, TopicPartition, read_groups
from kstore.coordinator.group.membership import restored_membership
from kstore.record.schemas.topics import coordinator_partition, decode_group_record, encode_offset_commit
from tests.golden.manifests import manifest
from tests.golden.places import place_of
from tests.golden.sets import MAIN_SETS, golden_partitions, unpack
from tests.making.collecting import over

PARTITIONS = [one for one in golden_partitions(*MAIN_SETS) if one.topic == "__consumer_offsets"]
RECORD = re.compile(r"\| offset: (\d+) .*?(?: key: (.*) payload: (.*)| endTxnMarker: (\w+) .*)")
BATCH = re.compile(r"baseOffset: .* producerId: (-?\d+) .* isTransactional: (\w+) ")
COUNTS = {"main-1.1.1": 6, "main-2.8.2": 5, "main-3.9.2": 5, "main-4.4.0": 5}


def printed(partition):
    """(producer id, is transactional, offset, key, value, marker) of each record that DumpLogSegments printed."""
    directory = unpack(partition.set_name, "decoded") / "decoded"
    for path in sorted(directory.glob(f"{partition.name}.*.log.txt")):
        producer_id, is_transactional = -1, False
        for line in path.read_text(encoding="utf-8").split("\n"):
            if batch := BATCH.match(line):
                producer_id, is_transactional = int(batch[1]), batch[2] == "true"
            elif record := RECORD.fullmatch(line):
                key = json.loads(record[2]) if record[2] else None
                value = None if record[3] in (None, "<DELETE>") else json.loads(record[3])
                yield producer_id, is_transactional, int(record[1]), key, value, record[4]


def replayed(partition):
    """What Kafka's coordinator has of a partition: group -> partition -> fields; the generations of classic groups."""
    offsets, pending, generations = {}, {}, {}
    for producer_id, is_transactional, offset, key, value, marker in printed(partition):
        if marker is not None:
            for place, found in pending.pop(producer_id, {}).items():
                if marker == "COMMIT" and offsets.get(place, (-1,))[0] < found[0]:
                    offsets[place] = found
        elif key["type"] == "2":
            generations.pop(key["data"]["group"], None)
            if value is not None:
                generations[key["data"]["group"]] = value["data"]["generation"]
        else:
            data = key["data"]
            place = data["group"], TopicPartition(data["topic"], data["partition"])
            if value is None:
                offsets.pop(place, None)
                for of_producer in pending.values():
                    of_producer.pop(place, None)
            elif is_transactional:
                pending.setdefault(producer_id, {})[place] = offset, value["data"]
            else:
                offsets[place] = offset, value["data"]
    groups = {}
    for (group, place), (_, fields) in offsets.items():
        groups.setdefault(group, {})[place] = fields["offset"], fields["metadata"], fields["commitTimestamp"]
    return groups, generations


@over("set_name", MAIN_SETS)
def test_groups_are_those_that_kafkas_decoder_shows(set_name):
    partitions = [one for one in PARTITIONS if one.set_name == set_name]
    expected, generations = {}, {}
    for partition in partitions:
        groups, stored = replayed(partition)
        expected |= groups
        generations |= stored
        for group in groups:
            assert coordinator_partition(group, partition_count=3) == partition.partition
    found = {group.group_id: group for group in read_groups(partitions[0].root)}
    assert found.keys() == expected.keys() | generations.keys()
    assert len(found) == COUNTS[set_name]
    for name, group in found.items():
        shown = {
            place: (one.committed.offset, one.committed.metadata, one.committed.commit_timestamp_ms)
            for place, one in group.offsets.items()
        }
        assert shown == expected.get(name, {}), name
        assert (group.type, group.state, group.epoch) == ("Classic", "Empty", generations.get(name)), name
        assert group.pending == {}


@over("partition", PARTITIONS)
def test_a_commit_is_written_as_the_broker_wrote_it(partition):
    count = 0
    for record in manifest(partition).records():
        if record.control_type is not None:
            continue
        key, value = decode_group_record(record.key, record.value)
        if key.type_id != 1 or value is None:
            continue
        fields = value.fields
        offset = OffsetAndMetadata(
            fields["offset"],
            fields["metadata"],
            leader_epoch=fields.get("leaderEpoch"),
            commit_timestamp_ms=fields["commitTimestamp"],
            expire_timestamp_ms=fields.get("expireTimestamp"),
            topic_id=fields.get("topicId"),
        )
        place = TopicPartition(key.fields["topic"], key.fields["partition"])
        written = encode_offset_commit(key.fields["group"], place, offset, version=value.version)
        assert written == (record.key, record.value), place_of(partition, record.offset)
        count += 1
    assert count > 3


@over("set_name", MAIN_SETS)
def test_a_group_is_restored_and_written_as_the_broker_wrote_it(set_name):
    sizes = []
    for partition in (one for one in PARTITIONS if one.set_name == set_name):
        for record in manifest(partition).records():
            if record.control_type is not None:
                continue
            key, value = decode_group_record(record.key, record.value, decode_members=False)
            if key.type_id != 2 or value is None or value.version != 3:
                continue
            fields = value.fields
            assignments = {member["memberId"]: member["assignment"] for member in fields["members"]}
            restored = restored_membership(key.fields["group"], fields)
            written = restored.to_record(fields["currentStateTimestamp"], assignments)
            assert written == (record.key, record.value), place_of(partition, record.offset)
            sizes.append(len(assignments))
    # The broker of 1.1.1 wrote an earlier version.
    assert set(sizes) == (set() if set_name == "main-1.1.1" else {0, 1})
