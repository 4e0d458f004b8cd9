"""Goal: a group goes on in the cluster at the first record that it has not read in the source, and never goes back.
Method: groups of a root, replayed into kstore's own server; the records of both sides from the offsets on compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import confluent_kafka
import pytest

import kstore
from kstore.replaying.state import MOST_SYNCS, Sync, thinned
from kstore.testing import KafkaServer
from tests.making.batches import batches, write_root
from tests.making.replaying import contents, read, replayed

COUNT = 200


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """t-0 with 200 records and gaps: batches of 10 at 0, 20, 40, ...; t-1 with 200 records."""
    gaps = [batch for at in range(0, 2 * COUNT, 20) for batch in batches(at, 1, records_per_batch=10)]
    return write_root(tmp_path / "source", {"t-0": [gaps], "t-1": [batches(0, COUNT // 10, records_per_batch=10)]})


@pytest.fixture
def cluster(cluster: KafkaServer) -> KafkaServer:
    """Its partitions have records of others already."""
    cluster.create_topic("t", 2)
    for _ in range(7):
        cluster.store.log("t", 0).append(kstore.Record(value=b"of another", timestamp_ms=1))
    return cluster


def commit(root: Path, group: str, offsets: Mapping[int, int | kstore.OffsetAndMetadata]) -> None:
    with kstore.open_store(root, "a") as store:
        kstore.reset_offsets(store, group, {kstore.TopicPartition("t", n): offset for n, offset in offsets.items()})


def committed(cluster: KafkaServer, group: str) -> dict[int, kstore.OffsetAndMetadata]:
    found = kstore.read_groups(cluster.store, groups=[group])
    return {place.partition: each.committed for one in found for place, each in one.offsets.items()}


def check_goes_on(source: Path, cluster: KafkaServer, partition: int, offset: int, translated: int) -> None:
    """A consumer reads from the translated offset on what one of the source reads from its offset on."""
    there = [each for each in cluster.records("t", partition) if each.offset >= translated]
    assert contents(there) == read(source / f"t-{partition}", offset)


def test_an_offset_becomes_that_of_the_first_record_at_or_after_it(source: Path, cluster: KafkaServer) -> None:
    for offset in (0, 5, 9, 10, 15, 20, 35, 389, 390):
        commit(source, f"g{offset}", {0: offset})
    summary = replayed(source, cluster, groups=["g*"])
    assert {each.group: each.note for each in summary.offsets} == {
        f"g{at}": None for at in (0, 10, 15, 20, 35, 389, 390, 5, 9)
    }
    for each in summary.offsets:
        check_goes_on(source, cluster, 0, each.source_offset, each.offset)
        assert committed(cluster, each.group)[0].offset == each.offset


def test_only_groups_that_a_pattern_names_are_translated(source: Path, cluster: KafkaServer) -> None:
    for name in ("billing", "billing-2", "other"):
        commit(source, name, {1: 50})
    assert replayed(source, cluster).offsets == ()
    summary = replayed(source, cluster, groups=["billing*"])
    assert [each.group for each in summary.offsets] == ["billing", "billing-2"]
    assert committed(cluster, "other") == {}


def test_metadata_of_offsets_is_left_out_rather_than_changed(source: Path, cluster: KafkaServer) -> None:
    commit(source, "g", {1: kstore.OffsetAndMetadata(50, "what the application says")})
    replayed(source, cluster, groups=["g"])
    assert committed(cluster, "g")[1].metadata == ""


def test_a_group_with_members_in_the_cluster_is_left_alone(source: Path, cluster: KafkaServer) -> None:
    commit(source, "g", {0: 20, 1: 50})
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
    consumer.subscribe(["t"])
    try:
        while not consumer.assignment():
            consumer.poll(0.05)
        summary = replayed(source, cluster, groups=["g"])
    finally:
        consumer.close()
    assert {each.note for each in summary.offsets} == {"the group has members in the cluster"}
    assert committed(cluster, "g") == {}


def test_an_offset_never_goes_back(source: Path, cluster: KafkaServer) -> None:
    commit(source, "g", {0: 20, 1: 50})
    kstore.reset_offsets(cluster.store, "g", {kstore.TopicPartition("t", 1): 60})
    summary = replayed(source, cluster, groups=["g"])
    assert [(each.partition, each.committed, each.note) for each in summary.offsets] == [
        (0, None, None),
        (1, 60, "the group is at 60 in the cluster"),
    ]
    assert {n: each.offset for n, each in committed(cluster, "g").items()} == {0: 17, 1: 60}


def test_an_offset_that_no_consumer_could_use_is_not_committed(source: Path, cluster: KafkaServer) -> None:
    commit(source, "g", {1: COUNT + 50})
    (offset,) = replayed(source, cluster, groups=["g"]).offsets
    assert offset.note is not None
    assert "above the log end 200" in offset.note
    assert committed(cluster, "g") == {}


def test_offsets_outside_of_what_was_sent_become_its_bounds(source: Path, cluster: KafkaServer) -> None:
    commit(source, "early", {1: 10})
    commit(source, "late", {1: 150})
    summary = replayed(source, cluster, groups=["*"], partitions=1, start_offset=50, end_offset=100)
    assert {each.group: each.offset for each in summary.offsets} == {"early": 0, "late": 50}


def test_a_later_run_translates_offsets_of_records_that_were_sent_before(
    source: Path, cluster: KafkaServer, tmp_path: Path
) -> None:
    """At most to an earlier record, as MirrorMaker 2 does, so that none is left out."""
    state = tmp_path / "state.json"
    commit(source, "g", {0: 45, 1: 30})
    replayed(source, cluster, state=state, groups=["g"])
    for offset in (60, 199, 200):
        commit(source, f"later-{offset}", {1: offset})
    commit(source, "exact", {0: 45, 1: 30})
    summary = replayed(source, cluster, state=state, groups=["later-*", "exact"])
    places = {(each.group, each.partition): each.offset for each in summary.offsets}
    assert places["exact", 0] == 7 + 25
    assert places["exact", 1] == 30
    assert places["later-200", 1] == COUNT
    assert 30 <= places["later-60", 1] <= 60
    assert 30 <= places["later-199", 1] <= 199


def test_offsets_are_found_for_records_that_a_run_which_was_killed_had_sent(
    source: Path, cluster: KafkaServer, tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    commit(source, "g", {1: 55})

    def interrupt(done: int, _: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replayed(source, cluster, partitions=1, state=state, groups=["g"], progress=interrupt)
    (offset,) = replayed(source, cluster, partitions=1, state=state, groups=["g"]).offsets
    check_goes_on(source, cluster, 1, 55, offset.offset)


def test_a_dry_run_shows_the_offsets_and_commits_none(source: Path, cluster: KafkaServer) -> None:
    commit(source, "g", {0: 45, 1: 30})
    dry = replayed(source, cluster, groups=["g"], dry_run=True)
    assert committed(cluster, "g") == {}
    assert replayed(source, cluster, groups=["g"]).offsets == dry.offsets
    assert [(each.partition, each.offset) for each in dry.offsets] == [(0, 7 + 25), (1, 30)]


def test_a_run_that_ends_early_commits_no_offsets(source: Path, cluster: KafkaServer) -> None:
    commit(source, "g", {1: 30})
    cluster.fail_next("Produce", "INVALID_RECORD")
    with pytest.raises(kstore.ReplayError):
        replayed(source, cluster, partitions=1, groups=["g"])
    assert committed(cluster, "g") == {}


def test_an_offset_that_the_cluster_refuses_has_its_answer(source: Path, cluster: KafkaServer) -> None:
    commit(source, "g", {1: 30})
    cluster.fail_next("OffsetCommit", "OFFSET_METADATA_TOO_LARGE")
    (offset,) = replayed(source, cluster, partitions=1, groups=["g"]).offsets
    assert offset.note is not None
    assert "metadata string" in offset.note
    assert committed(cluster, "g") == {}


def test_older_syncs_are_thinned_and_the_newest_stay() -> None:
    syncs = [Sync(n, n) for n in range(1000)]
    kept = thinned(syncs)
    assert len(kept) <= MOST_SYNCS
    assert list(kept) == sorted(kept)
    assert kept[-MOST_SYNCS // 2 :] == tuple(syncs[-MOST_SYNCS // 2 :])
    assert kept[0] == syncs[0]
    assert thinned(syncs[:MOST_SYNCS]) == tuple(syncs[:MOST_SYNCS])
