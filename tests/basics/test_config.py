"""Goal: a LogConfig holds Kafka's defaults and refuses what Kafka refuses.
Method: the defaults against a table of Kafka's; each limit and each choice from both sides."""

from __future__ import annotations

from typing import Any

import pytest

from kstore import LogConfig

KAFKA_DEFAULTS = {
    "segment_bytes": 1073741824,
    "segment_ms": 604800000,
    "segment_jitter_ms": 0,
    "segment_index_bytes": 10485760,
    "index_interval_bytes": 4096,
    "max_message_bytes": 1048588,
    "preallocate": False,
    "compression_type": "producer",
    "message_timestamp_type": "CreateTime",
    "message_timestamp_before_max_ms": 9223372036854775807,
    "message_timestamp_after_max_ms": 9223372036854775807,
    "flush_messages": 9223372036854775807,
    "flush_ms": 9223372036854775807,
    "cleanup_policy": "delete",
    "producer_id_expiration_ms": 86400000,
}
BOUNDS = [
    ("read_chunk_bytes", 4096, 2**30 - 1),
    ("max_batch_bytes", 61, 2**30 - 1),
    ("max_decompressed_bytes", 1, 2**30 - 1),
    ("max_decrypted_bytes", 1, 2**31 - 1),
    ("time_index_proof_bytes", 0, 2**30 - 1),
    ("segment_bytes", 14, 2**31 - 1),
    ("segment_ms", 1, 2**63 - 1),
    ("segment_jitter_ms", 0, 2**63 - 1),
    ("segment_index_bytes", 12, 2**31 - 1),
    ("index_interval_bytes", 0, 2**31 - 1),
    ("max_message_bytes", 0, 2**31 - 1),
    ("message_format_magic", 0, 2),
    ("message_timestamp_before_max_ms", 0, 2**63 - 1),
    ("message_timestamp_after_max_ms", 0, 2**63 - 1),
    ("flush_messages", 1, 2**63 - 1),
    ("flush_ms", 0, 2**63 - 1),
    ("producer_id_expiration_ms", 1, 2**63 - 1),
]
UNKNOWN_CHOICES = [
    ("compression_type", "brotli"),
    ("message_timestamp_type", "NoTimestampType"),
    ("cleanup_policy", ""),
]


def config(name: str, value: Any) -> LogConfig:
    return LogConfig(**{name: value})


@pytest.mark.parametrize("name", KAFKA_DEFAULTS)
def test_default_of_a_topic_setting_is_kafkas(name: str) -> None:
    assert getattr(LogConfig(), name) == KAFKA_DEFAULTS[name]


@pytest.mark.parametrize(("name", "least", "greatest"), BOUNDS, ids=[name for name, _, _ in BOUNDS])
def test_number_is_taken_up_to_its_limits_and_refused_beyond(name: str, least: int, greatest: int) -> None:
    assert getattr(config(name, least), name) == least
    assert getattr(config(name, greatest), name) == greatest
    for value in (least - 1, greatest + 1):
        with pytest.raises(ValueError, match=f"{name} must be from {least} to {greatest}, got {value}"):
            config(name, value)


@pytest.mark.parametrize(("name", "value"), UNKNOWN_CHOICES, ids=[name for name, _ in UNKNOWN_CHOICES])
def test_unknown_choice_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be one of"):
        config(name, value)


@pytest.mark.parametrize(
    ("policy", "expected"), [("delete", False), ("compact", True), ("compact,delete", True), ("delete,compact", True)]
)
def test_log_is_compacted_if_its_policy_says_so(policy: Any, expected: bool) -> None:
    assert config("cleanup_policy", policy).is_compacted is expected


@pytest.mark.parametrize("value", [1e6, "4096", True, None], ids=["float", "text", "bool", "none"])
def test_number_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="segment_bytes must be an int"):
        LogConfig(segment_bytes=value)
