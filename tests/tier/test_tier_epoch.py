"""Goal: of a tier alone that has several lineages, the one that is wanted is read, by its leader epoch.
Method: small tiers after an unclean election, of which each lineage is known, through each of the calls that read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import TierEpochError, open_log, open_store, scan
from tests.making.batches import batch, batches, flip_bit, write_root
from tests.making.tiers import Tier, Uploaded, write_epochs

FIRST = batches(0, 5, records_per_batch=2, value_bytes=60)
COMMON = batches(10, 3, records_per_batch=2, value_bytes=60)


def of_epoch(offsets: tuple[int, ...], epoch: int) -> list[bytes]:
    return [batch(offset, 2, partition_leader_epoch=epoch) for offset in offsets]


class Diverged:
    """A tier whose log has epoch 0 up to 16, and from there on one lineage of epoch 1 and one of epochs 2 and 3."""

    def __init__(self, path: Path, *, layout: str = "aiven") -> None:
        self.tier = Tier(path=path / "tier", layout=layout)
        self.path = self.tier.path
        self.tier.upload(FIRST)
        self.upload([*COMMON, *of_epoch((16, 18, 20, 22), 1)], (0, 0), (1, 16))
        self.upload([*COMMON, *of_epoch((16, 18), 2)], (0, 0), (2, 16))
        self.upload(of_epoch((20,), 3), (0, 0), (2, 16), (3, 20))

    def upload(self, segment: list[bytes], *lineage: tuple[int, int]) -> Uploaded:
        return self.tier.upload(segment, lineage)

    def open(self, epoch: int | None) -> kstore.Store:
        return open_store(self.path, tier=self.path, tier_epoch=epoch)

    def epochs(self, epoch: int | None) -> list[int]:
        """The epoch of each batch as it is read."""
        with self.open(epoch) as store:
            log = store.log("t")
            assert [record.offset for record in log] == list(range(log.log_end_offset))
            return [found.partition_leader_epoch for found in log.batches()]


@pytest.fixture(params=["aiven", "local"])
def diverged(request: pytest.FixtureRequest, tmp_path: Path) -> Diverged:
    return Diverged(tmp_path, layout=request.param)


def test_without_an_epoch_the_lineage_of_the_newest_segment_is_read(diverged: Diverged) -> None:
    assert diverged.epochs(None) == [0] * 8 + [2] * 2 + [3]


def test_the_log_is_that_of_the_leader_of_the_epoch(diverged: Diverged) -> None:
    assert diverged.epochs(1) == [0] * 8 + [1] * 4
    assert diverged.epochs(2) == [0] * 8 + [2] * 2
    assert diverged.epochs(3) == diverged.epochs(None)


def test_an_epoch_from_before_the_lineages_part_ends_with_what_they_have_in_common(diverged: Diverged) -> None:
    assert diverged.epochs(0) == [0] * 8


def test_an_epoch_that_no_segment_has_is_a_mistake_that_names_those_there_are(diverged: Diverged) -> None:
    with (
        diverged.open(7) as store,
        pytest.raises(ValueError, match=r"tier_epoch 7: .*t-0.* expected one of 0, 1, 2, 3"),
    ):
        store.log("t")


def test_every_call_that_reads_a_tier_takes_an_epoch(diverged: Diverged, tmp_path: Path) -> None:
    options: dict[str, Any] = {"tier": diverged.path, "tier_epoch": 1}
    with open_log(diverged.path / "t-0", **options) as log:
        assert log.log_end_offset == 24
    assert scan(diverged.path, **options).to_table().num_rows == 24
    (verified,) = kstore.verify(diverged.path, **options).partitions
    assert verified.record_count == 24
    kstore.export(diverged.path, tmp_path / "out", format="kstore", **options)
    with open_log(tmp_path / "out" / "t-0") as log:
        assert [found.partition_leader_epoch for found in log.batches()] == [0] * 8 + [1] * 4
    assert (tmp_path / "out" / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n1 16\n"


def test_a_lineage_is_read_by_another_segment_where_that_of_its_head_is_damaged(tmp_path: Path) -> None:
    diverged = Diverged(tmp_path)
    head = diverged.upload(of_epoch((24,), 1), (0, 0), (1, 16))
    manifest = json.loads(head.path(".rsm-manifest").read_text())
    flip_bit(head.path(".indexes"), manifest["segmentIndexes"]["leaderEpoch"]["position"], bit=6)
    assert diverged.epochs(1) == [0] * 8 + [1] * 5


def test_a_root_that_says_its_leader_epochs_takes_none(diverged: Diverged, tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_root(root, {"t-0": [of_epoch((22,), 3)]}, log_start_offsets={"t-0": 0})
    write_epochs(root / "t-0", ((0, 0), (2, 16), (3, 20)))
    said = r"tier_epoch is for partitions whose leader epochs nothing says"
    with open_store(root, tier=diverged.path, tier_epoch=1) as store, pytest.raises(TierEpochError, match=said):
        store.log("t")
    with open_store(root, tier=diverged.path) as store:
        assert [found.partition_leader_epoch for found in store.log("t").batches()] == [0] * 8 + [2] * 2 + [3] * 2


@pytest.mark.parametrize("wrong", [-1, 2**31, True, 1.0, "1"])
def test_an_epoch_is_a_number_that_an_epoch_can_be(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises((ValueError, TypeError), match="tier_epoch"):
        open_store(tmp_path, tier=tmp_path, tier_epoch=wrong)


def test_an_epoch_without_a_tier_is_a_mistake(tmp_path: Path) -> None:
    calls: tuple[Any, ...] = (open_store, open_log, scan, kstore.verify)
    for call in calls:
        with pytest.raises(ValueError, match="tier_epoch is of no use without tier"):
            call(tmp_path, tier_epoch=1)
