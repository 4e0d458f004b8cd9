"""Goal: replicas are read alike where they are alike, and a diverged copy differs exactly where it diverged.
Method: Log.read and Log.batches over the trees of two brokers around an unclean election, against the manifests."""

from __future__ import annotations

from itertools import takewhile

import pytest

from kstore import open_log
from tests.golden.manifests import ExpectedRecord
from tests.golden.records import as_listed
from tests.golden.sets import EPOCHS_SET, GoldenPartition

# Partition, two trees, offset at which they part: (end of the shorter log if it is a prefix of the other).
DIVERGENCES = [
    pytest.param("ep-a-0", "broker1", "broker2", 165, id="ep-a-equal-at-the-end"),
    pytest.param("ep-b-0", "broker1", "broker2", 195, id="ep-b-equal-at-the-end"),
    pytest.param("ep-div-0", "broker1", "broker2", 69, id="ep-div-equal-after-truncation"),
    pytest.param("ep-a-0", "broker1-diverged", "broker2-diverged", 156, id="ep-a-equal-at-divergence"),
    pytest.param("ep-div-0", "broker1-diverged", "broker2-diverged", 43, id="ep-div-follower-behind"),
    pytest.param("ep-div-0", "broker1-diverged", "broker2-leading", 43, id="ep-div-unclean-leader"),
    pytest.param("ep-div-0", "broker1-diverged", "broker1", 43, id="ep-div-truncated-tail"),
    pytest.param("ep-div-0", "broker2-leading", "broker2", 59, id="ep-div-leader-went-on"),
]


def read_records(tree: str, name: str) -> list[ExpectedRecord]:
    with open_log(GoldenPartition(EPOCHS_SET, tree, name).directory) as log:
        return [as_listed(record) for record in log.read()]


@pytest.mark.parametrize(("name", "tree", "other_tree", "parting_offset"), DIVERGENCES)
def test_copies_are_equal_up_to_the_parting_offset(name: str, tree: str, other_tree: str, parting_offset: int) -> None:
    records, other_records = read_records(tree, name), read_records(other_tree, name)
    pairs = zip(records, other_records, strict=False)
    common = [first for first, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    assert [record.offset for record in common] == list(range(parting_offset))


def test_records_that_the_unclean_leader_never_had_are_only_in_the_diverged_copy() -> None:
    cut_off = read_records("broker1-diverged", "ep-div-0")[43:]
    survivors = read_records("broker1", "ep-div-0")[43:]
    assert [record.offset for record in cut_off] == list(range(43, 85))
    assert [record.offset for record in survivors] == list(range(43, 69))
    assert not {record.value for record in cut_off} & {record.value for record in survivors}


EPOCH_STARTS = [
    pytest.param("broker1", "ep-a-0", {0: 0, 1: 119, 2: 139, 4: 156}, id="ep-a"),
    pytest.param("broker2", "ep-b-0", {0: 0, 1: 47, 2: 139, 5: 179}, id="ep-b"),
    pytest.param("broker1-diverged", "ep-div-0", {0: 0, 2: 43}, id="ep-div-diverged"),
    pytest.param("broker1", "ep-div-0", {0: 0, 4: 43}, id="ep-div-truncated"),
]


@pytest.mark.parametrize(("tree", "name", "epoch_starts"), EPOCH_STARTS)
def test_leader_epochs_of_the_batches_start_where_the_broker_noted(
    tree: str, name: str, epoch_starts: dict[int, int]
) -> None:
    found: dict[int, int] = {}
    with open_log(GoldenPartition(EPOCHS_SET, tree, name).directory) as log:
        for batch in log.batches():
            found.setdefault(batch.partition_leader_epoch, batch.base_offset)
    assert found == epoch_starts
