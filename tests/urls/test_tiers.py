"""Goal: a tier in an object store is read as one on a disk, with few requests.
Method: a topic of a golden tier uploaded to the S3 server on loopback, read with a root and alone; requests counted."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest

from kstore import open_log, open_store, scan
from kstore.tier.opening import open_tier
from tests.fakes.s3 import S3Server
from tests.golden.test_tiers import AIVEN, EPOCHS, as_consumed, consumed, keys_of, tier_set

NAME = "ta-mixed-1"


@pytest.fixture
def tier(server: S3Server) -> str:
    """The URL of a tier with one partition of two segments, encrypted and partly compressed."""
    (directory,) = (tier_set(AIVEN) / "tier" / "cluster-a").glob("ta-mixed-*/1")
    server.upload(directory, f"tiered/cluster-a/{directory.parent.name}/1")
    server.requests.clear()
    return server.url("tiered")


def test_a_root_with_its_tier_in_a_store_has_the_records_of_the_consumer(tier: str) -> None:
    with open_log(tier_set(AIVEN) / "broker" / NAME, tier=tier, tier_keys=keys_of(AIVEN)) as log:
        assert [as_consumed(record) for record in log] == consumed(AIVEN, "read_uncommitted")[NAME]


def test_a_bucket_alone_is_a_root(tier: str) -> None:
    with open_store(tier, tier=tier, tier_keys=keys_of(AIVEN)) as store:
        log = store.log("ta-mixed", 1)
        end = log.log_end_offset
        expected = consumed(AIVEN, "read_uncommitted")[NAME]
        assert [as_consumed(record) for record in log] == [one for one in expected if one["offset"] < end]


def test_planning_by_the_metadata_topic_is_one_listing(tier: str, server: S3Server) -> None:
    planned = scan(tier_set(AIVEN) / "broker", topics="ta-mixed", partitions=1, tier=tier, tier_keys=keys_of(AIVEN))
    assert planned.ranges
    assert Counter(request.kind for request in server.requests) == {"LIST": 1}


def test_a_segment_takes_one_manifest_and_the_chunks_that_are_read(tier: str, server: S3Server) -> None:
    keys = keys_of(AIVEN)
    with open_log(tier_set(AIVEN) / "broker" / NAME, tier=tier, tier_keys=keys) as log:
        first = log.segments[1].base_offset
        assert [record.offset for record in log.read(0, first)] == list(range(first))
    read = [request for request in server.requests if request.kind == "GET"]
    assert sum(request.key.endswith(".rsm-manifest") for request in read) == 1
    assert {request.key.rpartition(".")[2] for request in read} <= {"rsm-manifest", "log", "indexes"}


def test_a_bucket_alone_is_read_by_the_leader_epoch_that_is_given(server: S3Server) -> None:
    (directory,) = (tier_set(EPOCHS) / "tier").rglob("te-div-0-*")
    server.upload(directory, f"tiered/{directory.name}")
    url = server.url("tiered")
    for epoch, expected in ((None, 58), (0, 33)):
        with open_store(url, tier=url, tier_epoch=epoch) as store:
            log = store.log("te-div")
            assert log.log_start_offset == expected
            assert [record.offset for record in log] == list(range(expected, log.log_end_offset))


def test_another_process_lists_the_objects_of_its_partitions_once(tier: str, server: S3Server) -> None:
    env = open_tier([tier_set(AIVEN) / "broker"], tier, keys=keys_of(AIVEN)).env
    path = str(tier_set(AIVEN) / "broker" / NAME)
    maker = env.carried_directories([path])
    assert Counter(request.kind for request in server.requests) == {"LIST": 1}
    server.requests.clear()
    assert maker is not None
    other = pickle.loads(pickle.dumps(maker)).env()
    with open_log(path, env=other) as log:
        assert len(log.segments) == 3
    assert Counter(request.kind for request in server.requests) == {"LIST": 1}
