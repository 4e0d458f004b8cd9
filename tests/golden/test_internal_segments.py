"""Goal: records of share groups and of tiered storage say what Kafka's DumpLogSegments says of them, field by field.
Method: segments that Kafka's share coordinator classes and a broker wrote, and what its tool printed of them."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.runner import runner
from tests.golden.sets import PACKED_DIRECTORY
from tests.making.extracting import extract

COORDINATOR_LINE = re.compile(r"\| offset: (\d+) .*? headerKeys: \[[^]]*\] key: (.*) payload: (.*)")
REMOTE_LINE = re.compile(r"\| offset: (\d+) .*? headerKeys: \[[^]]*\] payload: (.*)")
STATES = ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
COMPACT = {"ensure_ascii": False, "separators": (",", ":")}


@pytest.fixture
def kstore(monkeypatch, capsysbinary):
    return runner(monkeypatch, capsysbinary)


@pytest.fixture
def segments(tmp_path):
    extract(PACKED_DIRECTORY / "internal" / "segments.tar.xz", tmp_path)
    return tmp_path / "segments"


def printed_by_kafka(segment, line):
    """What the tool printed of each record."""
    text = segment.with_suffix(".txt").read_text(encoding="utf-8")
    found = [line.fullmatch(shown) for shown in text.split("\n") if shown.startswith("| offset:")]
    return [(int(match[1]), *match.groups()[1:]) for match in found]


def records_of(run):
    assert (run.status, run.err) == (0, "")
    return [record for entry in run.objects() for record in entry["records"]]


def test_share_group_state_is_decoded_as_kafka_prints_it(kstore, segments):
    segment = segments / "__share_group_state-0.log"
    shown = [
        (
            record["offset"],
            json.dumps(record["decodedKey"], **COMPACT),
            json.dumps(record["decodedValue"], **COMPACT) if record["decodedValue"] else "<DELETE>",
        )
        for record in records_of(kstore("dump", "--json", "--share-group-state-decoder", segment))
    ]
    printed = printed_by_kafka(segment, COORDINATOR_LINE)
    assert shown == printed
    kinds = {(json.loads(key)["type"], payload == "<DELETE>") for _, key, payload in printed}
    assert kinds == {("0", False), ("0", True), ("1", False)}
    assert len(printed) > 50


def as_kafka_prints(message):
    """A remote log message as the toString of Kafka's class has it."""
    fields = message["data"]
    partition = fields["remoteLogSegmentId"]["topicIdPartition"]
    place = f"{partition['id']}:{partition['name']}-{partition['partition']}"
    identity = f"RemoteLogSegmentId{{topicIdPartition={place}, id={fields['remoteLogSegmentId']['id']}}}"
    state = STATES[fields["remoteLogSegmentState"]]
    assert fields["customMetadata"] is None
    if message["type"] == "REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD":
        return (
            f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={identity}, customMetadata=Optional.empty, "
            f"state={state}, eventTimestampMs={fields['eventTimestampMs']}, brokerId={fields['brokerId']}}}"
        )
    epochs = ", ".join(f"{epoch['leaderEpoch']}={epoch['offset']}" for epoch in fields["segmentLeaderEpochs"])
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={identity}, startOffset={fields['startOffset']}, "
        f"endOffset={fields['endOffset']}, brokerId={fields['brokerId']}, maxTimestampMs={fields['maxTimestampMs']}, "
        f"eventTimestampMs={fields['eventTimestampMs']}, segmentLeaderEpochs={{{epochs}}}, "
        f"segmentSizeInBytes={fields['segmentSizeInBytes']}, customMetadata=Optional.empty, state={state}, "
        f"txnIdxEmpty={str(fields.get('txnIndexEmpty', False)).lower()}}}"
    )


@pytest.mark.parametrize(("partition", "count"), [(0, 20), (1, 32), (2, 30)])
def test_remote_log_metadata_is_decoded_as_kafka_prints_it(kstore, segments, partition, count):
    segment = segments / f"__remote_log_metadata-{partition}.log"
    run = kstore("dump", "--json", "--remote-log-metadata-decoder", segment)
    shown = [(record["offset"], as_kafka_prints(record["decodedValue"])) for record in records_of(run)]
    assert shown == printed_by_kafka(segment, REMOTE_LINE)
    assert len(shown) == count
