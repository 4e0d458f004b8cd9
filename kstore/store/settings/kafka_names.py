"""Kafka's names and texts of topic settings, and which of them are settings of a LogConfig."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

from kstore.config import CodecName, LogConfig

# Kafka 4.3, TopicConfig. What kstore has no use for: its topics have one replica, and their records are in one place.
_OTHERS = {
    **{
        f"compression.{codec}.level": "kstore compresses by the levels of its producer" for codec in get_args(CodecName)
    },
    "follower.replication.throttled.replicas": "it is about replication",
    "leader.replication.throttled.replicas": "it is about replication",
    "min.insync.replicas": "it is about replication",
    "unclean.leader.election.enable": "it is about replication",
    "local.retention.bytes": "it is about tiered storage",
    "local.retention.ms": "it is about tiered storage",
    "remote.log.copy.disable": "it is about tiered storage",
    "remote.log.delete.on.disable": "it is about tiered storage",
    "remote.storage.enable": "it is about tiered storage",
}
_OF_TOPICS = (
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "index.interval.bytes",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "preallocate",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
)
# By Kafka's name, the name of LogConfig.
TOPIC_SETTINGS_BY_NAME: Mapping[str, str] = {name: name.replace(".", "_") for name in _OF_TOPICS}
_BOOLS = {"true": True, "false": False}
_DEFAULTS = {field.name: field.default for field in fields(LogConfig)}


def check_name(name: str) -> None:
    """Check that Kafka has a topic setting of this name.  Raises: ValueError, with the one that is meant."""
    if name not in _OTHERS:
        parse_name(name)


def parse_name(name: str) -> str:
    """Return the name of LogConfig for Kafka's name of a topic setting.

    Raises: ValueError for a name that is none, with the one that is meant, or that kstore has no use for.
    """
    field = TOPIC_SETTINGS_BY_NAME.get(name)
    if field is not None:
        return field
    if name in _OTHERS:
        raise ValueError(f"{name} is not a setting of a root: {_OTHERS[name]}")
    from difflib import get_close_matches

    similar = get_close_matches(name.replace("_", "."), [*TOPIC_SETTINGS_BY_NAME, *_OTHERS], n=1)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    raise ValueError(f"{name!r} is not a setting of a topic{hint}")


def parse_setting(name: str, text: str) -> tuple[str, Any]:
    """Return the name of LogConfig and the value that Kafka's name and text of a setting stand for.

    Limits are LogConfig's to check.
    Raises: ValueError as parse_name, and for a text that is no value of the setting's type.
    Source: Kafka ConfigDef.parseType.
    """
    field, stripped = parse_name(name), text.strip()
    default = _DEFAULTS[field]
    try:
        if isinstance(default, bool):
            return field, _BOOLS[stripped.lower()]
        if isinstance(default, int):
            return field, int(stripped)
        if isinstance(default, float):
            return field, float(stripped)
    except (KeyError, ValueError):
        kinds = {bool: "true or false", int: "a whole number", float: "a number"}
        raise ValueError(f"{name} must be {kinds[type(default)]}, got {text!r}") from None
    if field == "cleanup_policy":
        return field, ",".join(dict.fromkeys(policy.strip() for policy in stripped.split(",") if policy.strip()))
    return field, stripped


def setting_text(value: object) -> str:
    """Return a value as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
