"""Goal: what is in tiered storage is read as a consumer read it from the brokers that put it there.
Method: roots of brokers joined with their tiers, tiers alone and objects of the plugin's own code, against the
consumers' dumps, the plugin's answers and the brokers'."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kstore import Log, Record, Store, TimestampType, open_store, scan
from kstore.log.files.names import LEADER_EPOCH_CHECKPOINT
from kstore.log.reads import Isolation
from kstore.tier.chunks import decode_sizes, encode_sizes
from kstore.tier.keys import KeyRing
from kstore.tier.objects import LogView, manifest_of
from kstore.tier.opening import open_tier
from kstore.tier.stored import side_file_view
from tests.golden.sets import unpack
from tests.making.collecting import over

LOCAL, EPOCHS, AIVEN, VARIANTS = "tier-local-4.1.2", "tier-epochs-4.1.2", "tier-aiven-4.1.2", "tier-aiven-variants"
ISOLATIONS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
# Its broker was killed before it noted a new log start: its own consumer could not read it.
TRIMMED_BY_A_KILL = "ta-trimmed-0"
KEYS = ("key1", "key2")


class Tier(NamedTuple):
    """A set, the broker whose root is joined with the tier, None for the tier alone, and how the test calls it."""

    set_name: str
    broker: str | None

    def __str__(self) -> str:
        return f"{self.set_name}/{self.broker or 'alone'}"

    @property
    def path(self) -> Path:
        return tier_set(self.set_name)

    @property
    def root(self) -> Path:
        return self.path / (self.broker or "tier")

    def open(self) -> Store:
        return open_store(self.root, tier=self.path / "tier", tier_keys=keys_of(self.set_name))


TIERS = [
    Tier(LOCAL, "broker"),
    Tier(LOCAL, None),
    Tier(EPOCHS, "broker1"),
    Tier(EPOCHS, "broker2"),
    Tier(EPOCHS, None),
    Tier(AIVEN, "broker"),
    Tier(AIVEN, None),
]


def tier_set(name: str) -> Path:
    return unpack("tier", name) / name


def keys_of(name: str) -> dict[str, Path] | None:
    paths = {key: tier_set(name) / "keys" / f"{key}.private.pem" for key in KEYS}
    return {key: path for key, path in paths.items() if path.exists()} or None


@cache
def consumed(set_name: str, isolation: Isolation) -> dict[str, list[dict[str, Any]]]:
    dumps = (tier_set(set_name) / "consumed").glob(f"*.{isolation}.json.gz")
    return {
        path.name.removesuffix(f".{isolation}.json.gz"): json.loads(gzip.decompress(path.read_bytes()))["records"]
        for path in dumps
    }


def as_consumed(record: Record) -> dict[str, Any]:
    """A record as the dumps have it."""
    key, value = record.key, record.value
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}[
            record.timestamp_type
        ],
        "key": None if key is None else key.hex(),
        "value_len": None if value is None else len(value),
        "value_sha256": digest_of(value),
        "headers": [[name, None if content is None else content.hex()] for name, content in record.headers],
    }


def digest_of(value: bytes | None) -> str | None:
    return None if value is None else hashlib.sha256(value).hexdigest()


def expected_of(tier: Tier, log: Log, name: str, isolation: Isolation) -> list[dict[str, Any]]:
    """What a consumer read, as far as the log goes that the tier has."""
    end = log.log_end_offset
    if isolation == "read_committed":
        end = log.transactions().last_stable_offset
    records = consumed(tier.set_name, isolation)[name]
    return [record for record in records if tier.broker is not None or record["offset"] < end]


def logs_of(tier: Tier, isolation: Isolation) -> Iterator[tuple[str, Log]]:
    with tier.open() as store:
        for name in consumed(tier.set_name, isolation):
            topic, _, number = name.rpartition("-")
            if name != TRIMMED_BY_A_KILL and (topic, int(number)) in store:
                yield name, store.log(topic, int(number))


@over(
    "tier, isolation", [(tier, isolation) for tier in TIERS for isolation in ISOLATIONS], by=lambda case: str(case[0])
)
def test_records_are_those_that_a_consumer_read(tier: Tier, isolation: Isolation) -> None:
    for name, log in logs_of(tier, isolation):
        found = [as_consumed(record) for record in log.read(isolation=isolation)]
        assert found == expected_of(tier, log, name, isolation), name


@over("tier", TIERS, by=str)
def test_a_tier_has_every_partition_that_was_tiered(tier: Tier) -> None:
    events = (tier.path / "remote-log-metadata.jsonl").read_text().splitlines()
    names = {f"{event['topic']}-{event['partition']}" for event in map(json.loads, events)}
    with tier.open() as store:
        assert names <= {str(partition) for partition in store.partitions}


@over("tier", [tier for tier in TIERS if tier.broker is not None], by=str)
def test_without_its_tier_a_root_has_only_the_end_of_its_logs(tier: Tier) -> None:
    with open_store(tier.root) as local, tier.open() as joined:
        starts = {partition: local.log(*partition).log_start_offset for partition in local.partitions}
        moved = {partition for partition, start in starts.items() if joined.log(*partition).log_start_offset < start}
    assert moved
    assert all(partition.topic.startswith(("tl-", "te-", "ta-")) for partition in moved)


def test_records_that_a_killed_broker_could_not_read_are_read_from_its_epochs_on() -> None:
    with Tier(AIVEN, "broker").open() as store:
        log = store.log("ta-trimmed")
        assert (log.log_start_offset, log.log_end_offset) == (100, 229)
        assert [record.offset for record in log] == list(range(100, 229))


@over("number", [1, 3], by=lambda number: f"{number} threads")
def test_a_scan_has_the_same_rows_as_the_logs(number: int) -> None:
    tier = Tier(AIVEN, "broker")
    expected = {
        (name, record["offset"], record["value_sha256"])
        for name, records in consumed(AIVEN, "read_committed").items()
        if name != TRIMMED_BY_A_KILL
        for record in records
    }
    topics = ["ta-mixed", "ta-txn", "ta-killed"]
    found = scan(
        tier.root,
        topics=topics,
        isolation="read_committed",
        threads=number,
        tier=tier.path / "tier",
        tier_keys=keys_of(AIVEN),
    ).to_table()
    rows = {
        (f"{row['topic']}-{row['partition']}", row["offset"], digest_of(row["value"]))
        for row in found.select(["topic", "partition", "offset", "value"]).to_pylist()
    }
    assert rows == expected


def test_two_finished_segments_of_one_start_offset_are_told_apart_by_the_lineage() -> None:
    for broker in ("broker1", "broker2", None):
        with Tier(EPOCHS, broker).open() as store:
            log = store.log("te-div")
            found = {record.offset: as_consumed(record) for record in log}
            expected = consumed(EPOCHS, "read_uncommitted")["te-div-0"]
            assert [found[record["offset"]] for record in expected if record["offset"] in found] == [
                record for record in expected if record["offset"] < log.log_end_offset
            ]


def test_a_tier_alone_serves_the_branch_that_no_uploaded_segment_contradicts() -> None:
    """While only broker 1 ran, epoch 0 was all that the tier knew; it was abandoned later."""
    at_divergence = tier_set(EPOCHS) / "tier-at-divergence"
    with open_store(at_divergence, tier=at_divergence) as store:
        log = store.log("te-div")
        assert [record.offset for record in log] == list(range(log.log_end_offset))
        now = {record["offset"]: record for record in consumed(EPOCHS, "read_uncommitted")["te-div-0"]}
        assert min(now) == 58
        differs = [
            record.offset for record in log if now.get(record.offset, as_consumed(record)) != as_consumed(record)
        ]
        assert differs == list(range(58, log.log_end_offset))
        clean = consumed(EPOCHS, "read_uncommitted")["te-clean-0"]
        assert [as_consumed(record) for record in store.log("te-clean")] == clean[
            : store.log("te-clean").log_end_offset
        ]


@over("topic, first, end", [("te-div", 33, 63), ("te-div0", 30, 62)], by=lambda case: case[0])
def test_a_branch_that_was_abandoned_is_read_by_its_leader_epoch(topic: str, first: int, end: int) -> None:
    """The one segment of epoch 0 that is left has what it had while broker 1 was alone."""
    path = tier_set(EPOCHS)
    before = path / "tier-at-divergence"
    with open_store(before, tier=before) as store:
        expected = [as_consumed(record) for record in store.log(topic).read(first, end)]
    with open_store(path / "tier", tier=path / "tier", tier_epoch=0) as store:
        log = store.log(topic)
        assert (log.log_start_offset, log.log_end_offset) == (first, end)
        assert [as_consumed(record) for record in log] == expected
    rows = scan(path / "tier", topics=topic, tier=path / "tier", tier_epoch=0).to_table()
    assert [digest_of(value) for value in rows.column("value").to_pylist()] == [
        record["value_sha256"] for record in expected
    ]


def test_a_tier_alone_with_several_lineages_says_by_which_it_is_read(caplog: pytest.LogCaptureFixture) -> None:
    said = "the tier has several lineages; that of leader epoch 3 is read, and with tier_epoch that of 0"
    path = tier_set(EPOCHS)
    for topic, is_said in (("te-div", True), ("te-div0", True), ("te-clean", False)):
        caplog.clear()
        with Tier(EPOCHS, None).open() as store:
            assert store.log(topic).log_end_offset
        assert (said in caplog.text) == is_said
    caplog.clear()
    for root, options in (("broker1", {}), ("tier-at-divergence", {}), ("tier", {"tier_epoch": 0})):
        tier = path / "tier" if root == "broker1" else path / root
        with open_store(path / root, tier=tier, **options) as store:
            assert store.log("te-div").log_end_offset
    assert "lineage" not in caplog.text


def test_a_segment_whose_upload_was_killed_is_left_out() -> None:
    for broker, tier in (("killed-broker", "killed-tier"), (None, "killed-tier")):
        path = tier_set(AIVEN)
        root = path / (broker or tier)
        with open_store(root, tier=path / tier, tier_keys=keys_of(AIVEN)) as store:
            if ("ta-killed", 0) in store:
                offsets = [record.offset for record in store.log("ta-killed")]
                assert offsets == list(range(len(offsets)))
                assert broker is None or len(offsets) == 50


def variants() -> list[str]:
    return sorted(path.parent.name for path in tier_set(VARIANTS).glob("*/expected.json"))


@pytest.mark.parametrize("number", range(14))
def test_objects_of_each_variant_have_the_bytes_that_the_plugin_read(number: int) -> None:
    name = variants()[number]
    path = tier_set(VARIANTS) / name
    expected = {segment["segment_id"]: segment for segment in json.loads((path / "expected.json").read_text())}
    keys = keys_of(VARIANTS)
    files = open_tier([path / "objects"], path / "objects", keys=keys)
    ring = KeyRing.of(keys)
    seen = set()
    for partition in files.listing().partitions:
        for stored in files.listing().of(partition):
            answer = expected[stored.segment_id]
            seen.add(stored.segment_id)
            size = manifest_of(stored.place(ring), files.env).chunks.file_bytes
            log = LogView(stored.place(ring), size, first_offset=0, last_offset=0)
            with log.open(files.env, "segment.log") as file:
                content = file.pread(file.size(), position=0)
                assert (len(content), hashlib.sha256(content).hexdigest()) == (answer["log_size"], answer["log_sha256"])
                for first, last, length, digest in answer["ranges"]:
                    part = file.pread(last - first + 1, position=first)
                    assert (len(part), hashlib.sha256(part).hexdigest()) == (length, digest), (stored, first, last)
            for kind, suffix in SIDE_FILES.items():
                index = answer["indexes"][kind]
                if index is not None:
                    side = side_file_view(stored, suffix, ring)
                    content = side.read(files.env, suffix)
                    assert (len(content), hashlib.sha256(content).hexdigest()) == (index["size"], index["sha256"])
                    assert side.status(files.env).size_in_bytes == index["size"]
    assert seen == set(expected)


SIDE_FILES = {
    "OFFSET": ".index",
    "TIMESTAMP": ".timeindex",
    "PRODUCER_SNAPSHOT": ".snapshot",
    "TRANSACTION": ".txnindex",
    "LEADER_EPOCH": LEADER_EPOCH_CHECKPOINT,
}


def test_variants_are_all_of_the_set() -> None:
    assert len(variants()) == 14


@pytest.mark.parametrize("number", range(14))
def test_a_bucket_of_each_variant_opens_as_a_root(number: int) -> None:
    objects = tier_set(VARIANTS) / variants()[number] / "objects"
    with open_store(objects, tier=objects, tier_keys=keys_of(VARIANTS)) as store:
        for partition in store.partitions:
            expected = consumed(LOCAL, "read_uncommitted")[str(partition)]
            log = store.log(*partition)
            found = [as_consumed(record) for record in log]
            assert found == [record for record in expected if record["offset"] < log.log_end_offset]
            assert found


def test_chunk_sizes_are_encoded_as_by_the_plugin() -> None:
    vectors = json.loads((tier_set(VARIANTS) / "codec-vectors.json").read_text())
    assert len(vectors) == 16
    for vector in vectors:
        encoded = bytes.fromhex(vector["encoded_hex"])
        assert list(decode_sizes(encoded, most=len(vector["sizes"]))) == vector["sizes"]
        assert encode_sizes(vector["sizes"]) == encoded


def test_the_brokers_answers_about_bounds_are_those_of_the_joined_log() -> None:
    for tier in (Tier(LOCAL, "broker"), Tier(AIVEN, "broker")):
        answers = json.loads((tier.path / "offsets.json").read_text())
        with tier.open() as store:
            for name, offsets in answers.items():
                if name == TRIMMED_BY_A_KILL:
                    continue
                topic, _, number = name.rpartition("-")
                log = store.log(topic, int(number))
                assert (log.log_start_offset, log.log_end_offset) == (
                    offsets["earliest"]["offset"],
                    offsets["latest"]["offset"],
                ), name
