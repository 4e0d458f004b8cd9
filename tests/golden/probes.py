"""What the running brokers answered to ListOffsets and Fetch (read_uncommitted) before they were stopped."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any, NamedTuple

from tests.golden.sets import (
    EPOCHS_SET,
    MAIN_SETS,
    MIXED_SET,
    PACKED_DIRECTORY,
    REALDATA_SET,
    SIGKILL_SET,
    V0_SET,
    V1_SET,
    GoldenPartition,
)

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__cluster_metadata")


class ListOffsetsProbe(NamedTuple):
    """One ListOffsets answer; offset and timestamp_ms are -1 where no record qualifies."""

    query_timestamp: int
    offset: int
    timestamp_ms: int


class FetchProbe(NamedTuple):
    """One Fetch answer; the fields after out_of_range are None if it is true, the first_ and last_ ones if empty.

    first_record_at_or_after is -1 if the whole batches hold no such record.
    """

    fetch_offset: int
    max_bytes: int
    out_of_range: bool
    high_watermark: int | None
    log_start_offset: int | None
    size_in_bytes: int | None
    sha256: str | None
    first_entry_offset: int | None
    first_entry_size: int | None
    complete_batches: int | None
    last_complete_offset: int | None
    first_record_at_or_after: int | None


def probed(partitions: list[GoldenPartition]) -> list[GoldenPartition]:
    """Keep the partitions about which a live broker was asked."""
    return [partition for partition in partitions if _file_name(partition) and partition.topic not in INTERNAL_TOPICS]


def list_offsets_probes(partition: GoldenPartition) -> list[ListOffsetsProbe]:
    """Return the answers given by the leader; a follower gave none, nor brokers up to 0.10.0 one by record."""
    return [
        ListOffsetsProbe(answer["query_timestamp"], answer["offset"], answer["timestamp"])
        for answer in answers(partition)["list_offsets"]
        if answer.get("isolation") == "read_uncommitted" and answer["error"] == "NONE"
    ]


def fetch_probes(partition: GoldenPartition) -> list[FetchProbe]:
    return [
        _fetch_probe(answer)
        for answer in answers(partition)["fetches"]
        if answer.get("isolation", "read_uncommitted") == "read_uncommitted"
    ]


def _fetch_probe(answer: dict[str, Any]) -> FetchProbe:
    if answer["error"] not in ("NONE", "OFFSET_OUT_OF_RANGE"):
        raise ValueError(f"unexpected broker error {answer['error']}")
    if answer["error"] != "NONE":
        return FetchProbe(answer["fetch_offset"], answer["max_bytes"], True, *[None] * 9)
    return FetchProbe(
        fetch_offset=answer["fetch_offset"],
        max_bytes=answer["max_bytes"],
        out_of_range=False,
        high_watermark=answer["high_watermark"],
        log_start_offset=answer.get("log_start_offset"),
        size_in_bytes=answer["bytes"],
        sha256=answer.get("sha256"),
        first_entry_offset=answer.get("first_entry_offset_field"),
        first_entry_size=answer.get("first_entry_size"),
        complete_batches=answer.get("complete_batches"),
        last_complete_offset=answer.get("last_complete_offset"),
        first_record_at_or_after=answer.get("first_record_at_or_after"),
    )


def _file_name(partition: GoldenPartition) -> str | None:
    if partition.set_name in (*MAIN_SETS, REALDATA_SET, MIXED_SET, V1_SET):
        return "probe.json.gz"
    if partition.set_name == V0_SET:
        return "probe.json"
    if partition.set_name == SIGKILL_SET:
        return "after-probe.json" if partition.tree != "before" else None
    if partition.set_name == EPOCHS_SET and partition.tree in ("broker1", "broker2"):
        return f"probe-{partition.tree}.json"
    return None


def answers(partition: GoldenPartition) -> dict[str, Any]:
    file_name = _file_name(partition)
    if file_name is None:
        raise ValueError(f"no broker was asked about {partition}")
    return _probes(partition.set_name, file_name)[partition.name]


@cache
def _probes(set_name: str, file_name: str) -> dict[str, dict[str, Any]]:
    packed = (PACKED_DIRECTORY / set_name / file_name).read_bytes()
    content = json.loads(gzip.decompress(packed) if file_name.endswith(".gz") else packed)
    return {f"{answers['topic']}-{answers['partition']}": answers for answers in content["partitions"]}
