"""Goal: a tier in an object store is read as one on a disk, with few requests.
Method: the golden tiers uploaded to the S3 server on loopback, read with a root and alone; requests counted."""

from __future__ import annotations

from collections import Counter

import pytest

from kstore import open_log, open_store, scan
from tests.fakes.s3 import S3Server
from tests.golden.test_tiers import AIVEN, LOCAL, TRIMMED_BY_A_KILL, as_consumed, consumed, keys_of, tier_set


@pytest.fixture
def tiers(server: S3Server) -> S3Server:
    for name in (AIVEN, LOCAL):
        server.upload(tier_set(name) / "tier", name)
    server.requests.clear()
    return server


@pytest.mark.parametrize("name", [AIVEN, LOCAL])
def test_a_root_with_its_tier_in_a_store_has_the_records_of_the_consumer(tiers: S3Server, name: str) -> None:
    with open_store(tier_set(name) / "broker", tier=tiers.url(name), tier_keys=keys_of(name)) as store:
        for partition, records in consumed(name, "read_committed").items():
            topic, _, number = partition.rpartition("-")
            if partition != TRIMMED_BY_A_KILL:
                log = store.log(topic, int(number))
                assert [as_consumed(record) for record in log.read(isolation="read_committed")] == records, partition


def test_a_bucket_alone_is_a_root(tiers: S3Server) -> None:
    url = tiers.url(AIVEN)
    with open_store(url, tier=url, tier_keys=keys_of(AIVEN)) as store:
        log = store.log("ta-mixed", 1)
        end = log.log_end_offset
        expected = consumed(AIVEN, "read_uncommitted")["ta-mixed-1"]
        assert [as_consumed(record) for record in log] == [
            one for one in expected if one["offset"] < log.log_end_offset
        ]
    table = scan(url, topics="ta-mixed", partitions=1, tier=url, tier_keys=keys_of(AIVEN)).to_table()
    assert table.num_rows == end


def test_planning_by_the_metadata_topic_is_one_listing(tiers: S3Server) -> None:
    planned = scan(tier_set(AIVEN) / "broker", topics="ta-mixed", tier=tiers.url(AIVEN), tier_keys=keys_of(AIVEN))
    assert planned.ranges
    assert Counter(request.kind for request in tiers.requests) == {"LIST": 1}


def test_a_segment_takes_one_manifest_and_the_chunks_that_are_read(tiers: S3Server) -> None:
    keys = keys_of(AIVEN)
    with open_log(tier_set(AIVEN) / "broker" / "ta-mixed-1", tier=tiers.url(AIVEN), tier_keys=keys) as log:
        first = log.segments[1].base_offset
        assert [record.offset for record in log.read(0, first)] == list(range(first))
    read = [request for request in tiers.requests if request.kind == "GET"]
    assert sum(request.key.endswith(".rsm-manifest") for request in read) == 1
    assert {request.key.rpartition(".")[2] for request in read} <= {"rsm-manifest", "log", "indexes"}
