"""Goal: only names that Kafka gives to live segments and partitions are taken for such.
Method: tables of names next to the boundary on both sides."""

from __future__ import annotations

import pytest

from kstore.log.files.names import (
    base_offset_file_name,
    parse_segment_name,
    retired_state,
)
from kstore.types import is_topic_name, parse_partition_directory_name

UUID = "0123456789abcdef0123456789abcdef"
SEGMENT_NAMES = [
    ("00000000000000000000.log", (0, ".log")),
    ("00000000000000000042.index", (42, ".index")),
    ("00000000000000000042.timeindex", (42, ".timeindex")),
    ("00000000000000000042.txnindex", (42, ".txnindex")),
    ("00000000000000000042.snapshot", (42, ".snapshot")),
    ("09223372036854775807.log", (2**63 - 1, ".log")),
    ("09223372036854775808.log", None),
    ("99999999999999999999.log", None),
    ("0000000000000000000.log", None),
    ("000000000000000000000.log", None),
    ("-0000000000000000001.log", None),
    ("00000000000000000000.LOG", None),
    ("00000000000000000000.log ", None),
    ("00000000000000000000.log\n", None),
    ("00000000000000000000.log.deleted", None),
    ("00000000000000000000.log.cleaned", None),
    ("00000000000000000000.log.swap", None),
    ("00000000000000000000.index.swap", None),
    ("00000000000000000000.checkpoint", None),
    ("00000000000000000000-0000000000.checkpoint", None),
    ("00000000000000000000", None),
    (".log", None),
    ("\N{ARABIC-INDIC DIGIT ZERO}" * 20 + ".log", None),
    ("leader-epoch-checkpoint", None),
    ("leader-epoch-checkpoint.tmp", None),
    ("partition.metadata", None),
    ("", None),
]


@pytest.mark.parametrize(("name", "expected"), SEGMENT_NAMES, ids=[repr(name) for name, _ in SEGMENT_NAMES])
def test_segment_name_is_twenty_digits_and_a_known_suffix(name: str, expected: tuple[int, str] | None) -> None:
    assert parse_segment_name(name) == expected


@pytest.mark.parametrize("base_offset", [0, 1, 2**31, 2**63 - 1])
def test_file_name_of_a_base_offset_parses_back(base_offset: int) -> None:
    name = base_offset_file_name(base_offset, suffix=".log")
    assert parse_segment_name(name) == (base_offset, ".log")


@pytest.mark.parametrize("base_offset", [-1, 2**63])
def test_base_offset_outside_int64_has_no_file_name(base_offset: int) -> None:
    with pytest.raises(ValueError, match="base_offset must be from 0"):
        base_offset_file_name(base_offset, suffix=".log")


PARTITION_NAMES = [
    ("flights-0", ("flights", 0)),
    ("flights-lz4-12", ("flights-lz4", 12)),
    ("a.b_c-D-3", ("a.b_c-D", 3)),
    ("x-delete-0", ("x-delete", 0)),
    ("--1", ("-", 1)),
    ("__consumer_offsets-49", ("__consumer_offsets", 49)),
    ("t-2147483647", ("t", 2**31 - 1)),
    ("t-2147483648", None),
    ("t-99999999999", None),
    ("t" * 249 + "-0", ("t" * 249, 0)),
    ("t" * 250 + "-0", None),
    ("t-00", None),
    ("t-01", None),
    ("t-+1", None),
    ("t- 1", None),
    ("t-1 ", None),
    ("t-1\n", None),
    ("t-\N{FULLWIDTH DIGIT ONE}", None),
    ("t-", None),
    ("-0", None),
    (".-0", None),
    ("..-0", None),
    ("...-0", ("...", 0)),
    ("t", None),
    ("t0", None),
    ("tópico-0", None),
    ("a/b-0", None),
    (f"t-0.{UUID}-delete", None),
    (f"t-0.{UUID}-stray", None),
    (f"t-0.{UUID}-future", None),
    ("", None),
]


@pytest.mark.parametrize(
    ("name", "expected"),
    PARTITION_NAMES,
    ids=[f"{repr(name)[:24]}-{len(name)}-{name[-3:]!r}" for name, _ in PARTITION_NAMES],
)
def test_partition_directory_is_a_topic_name_and_a_number(name: str, expected: tuple[str, int] | None) -> None:
    assert parse_partition_directory_name(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"t-0.{UUID}-delete", "delete"),
        (f"t-0.{UUID}-stray", "stray"),
        (f"t-0.{UUID}-future", "future"),
        (f"t-0.{UUID[:-1]}-delete", None),
        (f"t-0.{UUID.upper()}-delete", None),
        ("t-delete", None),
        ("t-0", None),
    ],
)
def test_directories_that_a_broker_renamed_are_known(name: str, expected: str | None) -> None:
    assert retired_state(name) == expected


@pytest.mark.parametrize(("name", "is_valid"), [("a", True), (".", False), ("..", False), ("", False), ("a b", False)])
def test_topic_names_follow_kafka_s_rule(name: str, is_valid: bool) -> None:
    assert is_topic_name(name) is is_valid
