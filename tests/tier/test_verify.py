"""Goal: what is wrong with objects of a tier is found, also where no reader of the log meets it, and so are those that
nothing needs. Method: a small joined log, one object changed at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstore.env import LocalEnv
from kstore.log.files.names import find_partitions, has_tiered_storage
from kstore.tier.opening import moved_to_tier, open_tier
from kstore.tier.verify import TierReport, verify_tier
from tests.making.batches import batches, flip_bit, write_root
from tests.making.tiers import FINISHED, STARTED, Tier, Uploaded, key, write_epochs, write_events

SEGMENTS = [batches(start, 5, records_per_batch=2, value_bytes=60) for start in range(0, 40, 10)]


class Checked:
    """A log of four segments, of which the first two are in the tier alone, with events of the metadata topic."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.root = path / "root"
        self.tier = Tier(path=path / "tier", **options)
        self.keys = {"key1": key().write(path)}
        self.made = [self.tier.upload(segment) for segment in SEGMENTS[:2]]
        self.events = [self.tier.event(made, state) for made in self.made for state in (STARTED, FINISHED)]
        write_root(self.root, {"t-0": SEGMENTS[2:]}, log_start_offsets={"t-0": 0})
        write_events(self.root, self.events)

    def report(self) -> TierReport:
        files = open_tier([self.root], self.tier.path, keys=self.keys)
        (partition,) = (one for one in find_partitions(self.root, files.env) if one.topic_partition.topic == "t")
        return verify_tier(partition)


@pytest.fixture
def checked(tmp_path: Path) -> Checked:
    return Checked(tmp_path, key=key())


def test_a_tier_that_is_whole_has_nothing_to_report(checked: Checked) -> None:
    assert checked.report() == TierReport([], [])


@pytest.mark.parametrize("layout", ["local", "aiven-2023"])
def test_other_layouts_that_are_whole_have_nothing_to_report(layout: str, tmp_path: Path) -> None:
    assert Checked(tmp_path, layout=layout).report() == TierReport([], [])


def changed(made: Uploaded, change: Callable[[dict[str, Any]], None]) -> None:
    fields = json.loads(made.path(".rsm-manifest").read_text())
    change(fields)
    made.path(".rsm-manifest").write_text(json.dumps(fields))


def test_an_object_of_another_size_than_its_manifest_says_is_damage(checked: Checked) -> None:
    for suffix in (".log", ".indexes"):
        path = checked.made[0].path(suffix)
        content = path.read_bytes()
        path.write_bytes(content + b"more")
        (damage,) = checked.report().damage
        assert (damage.path, damage.position, damage.size_in_bytes) == (str(path), len(content), 4)
        path.write_bytes(content)


def test_a_side_file_with_a_wrong_tag_is_damage(checked: Checked) -> None:
    flip_bit(checked.made[1].path(".indexes"), 20, bit=0)
    reasons = [damage.reason for damage in checked.report().damage]
    assert len(reasons) == 1
    assert "tag" in reasons[0]


def test_a_manifest_that_is_malformed_or_of_another_segment_is_damage(checked: Checked) -> None:
    original = checked.made[0].path(".rsm-manifest").read_text()

    def another_end(fields: dict[str, Any]) -> None:
        fields["remoteLogSegmentMetadata"]["endOffset"] = 8

    changed(checked.made[0], another_end)
    assert ["by the metadata topic" in damage.reason for damage in checked.report().damage] == [True]
    checked.made[0].path(".rsm-manifest").write_text("{")
    assert [damage.path for damage in checked.report().damage] == [str(checked.made[0].path(".rsm-manifest"))]
    checked.made[0].path(".rsm-manifest").write_text(original)


def test_batches_that_are_not_those_of_the_metadata_are_damage(tmp_path: Path) -> None:
    checked = Checked(tmp_path)
    tier = Tier(path=checked.tier.path)
    other = tier.upload(batches(20, 5, records_per_batch=2, value_bytes=60, partition_leader_epoch=7), ((0, 0),))
    lying = other._replace(max_timestamp_ms=5)
    write_root(tmp_path / "root2", {"t-0": [SEGMENTS[3]]}, log_start_offsets={"t-0": 0})
    checked.root = tmp_path / "root2"
    write_events(checked.root, [*checked.events, tier.event(lying, STARTED), tier.event(lying, FINISHED)])
    reasons = sorted(damage.reason for damage in checked.report().damage)
    assert [reason.partition(":")[0] for reason in reasons[1:]] == ["largest timestamp", "leader epochs"]
    assert "max_timestamp_ms=5" in reasons[0]
    assert "by the metadata topic" in reasons[0]


def test_objects_that_nothing_needs_are_listed_with_their_bytes(checked: Checked) -> None:
    half = checked.tier.upload(SEGMENTS[1], is_finished=False)
    unknown = checked.tier.upload(SEGMENTS[0])
    twice = checked.tier.upload(SEGMENTS[0])
    write_events(checked.root, [*checked.events, *(checked.tier.event(twice, one) for one in (STARTED, FINISHED))])
    orphans = {orphan.stem: orphan for orphan in checked.report().orphans}
    assert "has not finished" in orphans[half.stem].reason
    assert orphans[half.stem].size_in_bytes == half.path(".log").stat().st_size
    assert "not in the metadata topic" in orphans[unknown.stem].reason
    assert len(orphans) == 3


def test_a_root_tells_which_of_its_offsets_are_in_a_tier(checked: Checked) -> None:
    (partition,) = (one for one in find_partitions(checked.root) if one.topic_partition.topic == "t")
    assert moved_to_tier(partition) == (0, 19)
    write_epochs(checked.root / "t-0", ((0, 4),))
    assert moved_to_tier(partition) == (4, 19)
    write_epochs(checked.root / "t-0", ((0, 20),))
    assert moved_to_tier(partition) is None


def test_a_root_tells_whether_it_has_tiered_storage(checked: Checked) -> None:
    root, env = str(checked.root), LocalEnv()
    assert has_tiered_storage(root, env)
    for path in (checked.root / "__remote_log_metadata-0").iterdir():
        path.unlink()
    (checked.root / "__remote_log_metadata-0").rmdir()
    assert not has_tiered_storage(root, env)
    (checked.root / "remote-log-index-cache").mkdir()
    assert has_tiered_storage(root, env)
