"""Goal: read_committed gives what real consumers got from the brokers, up to the brokers' last stable offset.
Method: the transactional topics of the main sets, read in every way, against the consumers' own dumps."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from kstore import Log, Record, open_log
from tests.golden.places import place_of
from tests.golden.probes import answers, probed
from tests.golden.sets import CLEANED_TOPICS, MAIN_SETS, GoldenPartition, golden_partitions, unpack
from tests.making.collecting import over

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
END_LINE = "# end position "


class Consumed(NamedTuple):
    """What a read_committed consumer got: offset, timestamp, key and value of each record, and where it ended."""

    records: list[tuple[int, int, bytes | None, bytes | None]]
    end_offset: int


def data_of(text: str) -> bytes | None:
    return None if text == "~" else base64.b64decode(text)


def consumed_of(text: str) -> Consumed:
    records, end_offset = [], -1
    for line in text.splitlines():
        if line.startswith(END_LINE):
            end_offset = int(line.removeprefix(END_LINE).split()[0])
        elif line:
            offset, timestamp_ms, _, key, value = line.split("\t")[:5]
            records.append((int(offset), int(timestamp_ms), data_of(key), data_of(value)))
    return Consumed(records, end_offset)


@cache
def consumed(set_name: str) -> dict[str, Consumed]:
    dumps = (unpack(set_name, "consumed") / "consumed").glob("*.read_committed.tsv")
    return {path.name.removesuffix(".read_committed.tsv"): consumed_of(path.read_text()) for path in dumps}


def partition_path(set_name: str, name: str) -> Path:
    return unpack(set_name, "trees") / "data" / name


@pytest.fixture(params=MAIN_SETS)
def set_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def fields(record: Record) -> tuple[int, int, bytes | None, bytes | None]:
    return record.offset, record.timestamp_ms, record.key, record.value


def columns(log: Log, start_offset: int) -> list[tuple[int, int, bytes | None, bytes | None]]:
    rows = []
    names = ["offset", "timestamp", "key", "value"]
    for batch in log.to_arrow_batches(start_offset, columns=names, isolation="read_committed"):
        offsets, timestamps, keys, values = batch.columns
        milliseconds = [value // 1000 for value in timestamps.cast("int64").to_pylist()]
        rows += zip(offsets.to_pylist(), milliseconds, keys.to_pylist(), values.to_pylist(), strict=True)
    return rows


def test_committed_records_are_those_that_consumers_got(set_name: str) -> None:
    assert consumed(set_name)
    for partition, wanted in consumed(set_name).items():
        with open_log(partition_path(set_name, partition)) as log:
            assert [fields(record) for record in log.read(isolation="read_committed")] == wanted.records
            assert columns(log, log.log_start_offset) == wanted.records
            assert log.transactions().last_stable_offset == wanted.end_offset


def test_aborted_data_is_left_out_wherever_a_read_starts(set_name: str) -> None:
    with open_log(partition_path(set_name, "txn-0")) as log:
        wanted = consumed(set_name)["txn-0"].records
        assert log.transactions().aborted
        for start_offset in range(log.log_start_offset, log.log_end_offset, 7):
            later = [record for record in wanted if record[0] >= start_offset]
            assert [fields(record) for record in log.read(start_offset, isolation="read_committed")] == later
            assert columns(log, start_offset) == later


def test_another_isolation_is_refused(set_name: str) -> None:
    with open_log(partition_path(set_name, "txn-0")) as log, pytest.raises(ValueError, match="isolation must be"):
        log.read(isolation=cast("Any", "serializable"))


ASKED = [one for one in probed(golden_partitions(*MAIN_SETS)) if one.topic.startswith(("txn", "compact-txn"))]


@over("partition", ASKED)
def test_committed_fetch_has_the_bytes_and_aborted_transactions_of_the_broker(partition: GoldenPartition) -> None:
    with open_log(partition.directory) as log:
        for answer in answers(partition)["fetches"]:
            if answer.get("isolation") != "read_committed" or answer["error"] != "NONE":
                continue
            data = log.fetch(answer["fetch_offset"], answer["max_bytes"], isolation="read_committed")
            place = place_of(partition, answer["fetch_offset"])
            assert data.last_stable_offset == answer["last_stable_offset"], place
            assert len(data.records) == answer["bytes"], place
            assert hashlib.sha256(data.records).hexdigest() == answer.get("sha256", EMPTY_SHA256), place
            # A broker lists up to the next index entry what kstore lists up to the last whole batch.
            end_offset = answer.get("last_complete_offset", -1) + 1
            listed = [tuple(one) for one in answer["aborted_transactions"] if one[1] < end_offset]
            found = [(one.producer_id, one.first_offset) for one in data.aborted]
            if partition.topic in CLEANED_TOPICS:
                # Of some the cleaner has removed all data, and the index still tells of them.
                listed = [one for one in listed if one in found]
            assert found == listed, place
