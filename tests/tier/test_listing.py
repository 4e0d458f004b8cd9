"""Goal: one look at the names of a tier tells its segments, of each layout and below any prefix, and unfinished ones.
Method: directories of empty files with names as plugins write them, and some that nearly are."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore import LogNotFoundError
from kstore.env import DEFAULT_ENV
from kstore.log.files.root_files import parse_id
from kstore.tier.listing import Layout, TieredPartition, TierListing, list_tier
from kstore.types import TopicPartition
from tests.making.tiers import OTHER_TOPIC_ID, TOPIC_ID, text_of

SEGMENT = text_of(77)
STEM = f"{5:020d}-{SEGMENT}"


def listed(path: Path, *names: str) -> TierListing:
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).touch()
    return list_tier(DEFAULT_ENV, str(path))


def test_objects_of_a_segment_are_found_together(tmp_path: Path) -> None:
    directory = f"t-{TOPIC_ID}/3"
    listing = listed(tmp_path, *(f"{directory}/{STEM}{suffix}" for suffix in (".log", ".indexes", ".rsm-manifest")))
    (partition,) = listing.partitions
    assert partition == TieredPartition(parse_id(TOPIC_ID), 3)
    (segment,) = listing.of(partition)
    assert (segment.layout, segment.start_offset, segment.segment_id) == (Layout.AIVEN, 5, SEGMENT)
    assert segment.stem == str(tmp_path / directory / STEM)
    assert segment.is_finished
    assert listing.by_name == {TopicPartition("t", 3): [partition]}


@pytest.mark.parametrize(
    ("directory", "topic", "number", "layout"),
    [
        (f"t-{TOPIC_ID}/0", "t", 0, Layout.AIVEN),
        (f"a/deep/prefix/t-{TOPIC_ID}/0", "t", 0, Layout.AIVEN),
        (f"a-topic-with-1-{TOPIC_ID}/12", "a-topic-with-1", 12, Layout.AIVEN),
        ("t--abcdefghijklmnopqrstu/0", "t", 0, Layout.AIVEN),
        (f"t-4-{TOPIC_ID}", "t", 4, Layout.LOCAL),
        (f"kafka-tiered-storage/a.b_c-0-{TOPIC_ID}", "a.b_c", 0, Layout.LOCAL),
        ("t-4--abcdefghijklmnopqrstu", "t", 4, Layout.LOCAL),
    ],
)
def test_topic_id_and_partition_are_read_from_the_right_end_of_names(
    directory: str, topic: str, number: int, layout: Layout, tmp_path: Path
) -> None:
    listing = listed(tmp_path, f"{directory}/{STEM}.log")
    assert list(listing.by_name) == [TopicPartition(topic, number)]
    assert listing.of(listing.partitions[0])[0].layout is layout


def test_digits_of_another_locale_are_digits(tmp_path: Path) -> None:
    arabic = "".join(chr(0x660 + int(digit)) for digit in f"{5:020d}")
    listing = listed(tmp_path, f"t-{TOPIC_ID}/0/{arabic}-{SEGMENT}.log")
    assert listing.of(listing.partitions[0])[0].start_offset == 5


@pytest.mark.parametrize(
    ("directory", "suffixes", "is_finished"),
    [
        (f"t-{TOPIC_ID}/0", [".log"], False),
        (f"t-{TOPIC_ID}/0", [".log", ".indexes"], False),
        (f"t-{TOPIC_ID}/0", [".indexes", ".rsm-manifest"], False),
        (f"t-{TOPIC_ID}/0", [".log", ".index", ".timeindex", ".snapshot"], False),
        (f"t-{TOPIC_ID}/0", [".log", ".index", ".rsm-manifest"], True),
        (f"t-0-{TOPIC_ID}", [".log", ".index", ".timeindex", ".leader_epoch_checkpoint"], False),
        (f"t-0-{TOPIC_ID}", [".log", ".snapshot"], True),
    ],
)
def test_an_upload_has_finished_when_its_last_object_is_there(
    directory: str, suffixes: list[str], is_finished: bool, tmp_path: Path
) -> None:
    listing = listed(tmp_path, *(f"{directory}/{STEM}{suffix}" for suffix in suffixes))
    (segment,) = listing.of(listing.partitions[0])
    assert segment.is_finished is is_finished


def test_a_topic_that_was_created_again_is_another_partition(tmp_path: Path) -> None:
    listing = listed(tmp_path, f"t-{TOPIC_ID}/0/{STEM}.log", f"t-{OTHER_TOPIC_ID}/0/{STEM}.log")
    assert len(listing.partitions) == 2
    assert len(listing.by_name[TopicPartition("t", 0)]) == 2


def test_what_is_no_segment_is_kept_as_other_names(tmp_path: Path) -> None:
    names = [
        "README",
        f"t-{TOPIC_ID}/x/{STEM}.log",
        f"t-0/{5:020d}.log",
        f"t-{TOPIC_ID}/0/{2**63 - 1:020d}-{SEGMENT}.log",
        f"t-{TOPIC_ID}/0/{5:019d}-{SEGMENT}.log",
    ]
    listing = listed(tmp_path, *names)
    assert not listing
    assert sorted(listing.other_names) == sorted(str(tmp_path / name) for name in names)


def test_manifests_of_iceberg_tables_name_their_segments(tmp_path: Path) -> None:
    listing = listed(tmp_path, f"warehouse/ns/t/metadata/{SEGMENT}.puffin", f"t-{TOPIC_ID}/0/{STEM}.log")
    assert listing.iceberg_ids == {SEGMENT}


def test_objects_that_came_or_went_are_seen_in_a_new_look_at_their_partition(tmp_path: Path) -> None:
    other = f"p/t-{TOPIC_ID}/1/{STEM}.log"
    listing = listed(tmp_path, f"p/t-{TOPIC_ID}/0/{STEM}.log", other)
    partition = TieredPartition(parse_id(TOPIC_ID), 0)
    listed(tmp_path, f"p/t-{TOPIC_ID}/0/{9:020d}-{SEGMENT}.log", f"p/t-{TOPIC_ID}/2/{STEM}.log")
    again = listing.relisted(partition, "t", DEFAULT_ENV)
    assert [segment.start_offset for segment in again.of(partition)] == [5, 9]
    assert [segment.start_offset for segment in listing.of(partition)] == [5]
    new = TieredPartition(parse_id(TOPIC_ID), 2)
    assert again.of(new) == []
    assert len(again.relisted(new, "t", DEFAULT_ENV).of(new)) == 1
    (tmp_path / other).unlink()
    gone = TieredPartition(parse_id(TOPIC_ID), 1)
    assert again.relisted(gone, "t", DEFAULT_ENV).of(gone) == []


def test_a_tier_that_does_not_exist_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(LogNotFoundError, match="there is no tier"):
        list_tier(DEFAULT_ENV, str(tmp_path / "none"))
