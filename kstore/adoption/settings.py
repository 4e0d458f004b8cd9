"""The settings that a topic gets in the metadata: those that the root says, as a broker takes them.

A broker's own defaults delete records after seven days, and with wrong settings at its first look; so a topic of which
nothing is known gets none by guess.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kstore.config import MIB, LogConfig
from kstore.coordinator.group.offsets import GROUP_OFFSETS_CONFIG
from kstore.coordinator.transaction.log import TRANSACTION_STATE_CONFIG
from kstore.env import Env, locate
from kstore.errors import TopicSettingsError, json_fault
from kstore.log.files.checkpoints import read_text
from kstore.store.settings.kafka_names import TOPIC_SETTINGS_BY_NAME, check_name, parse_setting, setting_text
from kstore.types import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

ALL_TOPICS = "*"
KEEP_FOREVER: Mapping[str, str] = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
_POLICY, _RETENTION, _SEGMENT_BYTES = "cleanup.policy", "retention.ms", "segment.bytes"
_REPLICAS = "min.insync.replicas"
# Those that brokers have and do not document.
_INTERNAL = "internal."
_MAX_FILE_BYTES = 16 * MIB
# From 4.0 on a broker whose topic has less does not start.
_LEAST_SEGMENT_BYTES = MIB
_KAFKAS_NAMES: Mapping[str, str] = {name: kafkas for kafkas, name in TOPIC_SETTINGS_BY_NAME.items()}
# What brokers set when they create their own topics; they do not look at those that are there.
_OF_INTERNAL_TOPICS: Mapping[str, LogConfig] = {
    GROUP_OFFSETS_TOPIC: GROUP_OFFSETS_CONFIG,
    TRANSACTION_STATE_TOPIC: TRANSACTION_STATE_CONFIG,
}
_INTERNAL_NAMES = ("cleanup_policy", "compression_type", "segment_bytes")
# Settings that name other replicas or a remote storage, or that brokers of 4.0 and later do not have.
_LEFT_OUT: Mapping[str, str] = {
    "follower.replication.throttled.replicas": "there is one replica",
    "leader.replication.throttled.replicas": "there is one replica",
    "local.retention.bytes": "the records in remote storage are not served",
    "local.retention.ms": "the records in remote storage are not served",
    "remote.log.copy.disable": "the records in remote storage are not served",
    "remote.log.delete.on.disable": "the records in remote storage are not served",
    "remote.storage.enable": "the records in remote storage are not served",
    "message.downconversion.enable": "brokers of 4.0 and later do not have it",
    "message.format.version": "brokers of 4.0 and later do not have it",
    "message.timestamp.difference.max.ms": "brokers of 4.0 and later do not have it",
}


@dataclass
class SettingsToWrite:
    """The settings of a topic by Kafka's names, and what was changed in them, in words."""

    texts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def says_what_is_deleted(self) -> bool:
        """Whether a broker's defaults have no part in which records are deleted because of their age."""
        return _RETENTION in self.texts or "delete" not in self.texts.get(_POLICY, "delete")


def texts_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return settings of LogConfig by Kafka's names; those that are no settings of a topic are left out."""
    texts = {_KAFKAS_NAMES[name]: setting_text(value) for name, value in settings.items() if name in _KAFKAS_NAMES}
    if texts.get("compression.type") == "none":
        texts["compression.type"] = "uncompressed"
    return texts


def internal_texts(topic: str) -> dict[str, str]:
    """Return what brokers set of one of their own topics when they create it; empty for other topics."""
    config = _OF_INTERNAL_TOPICS.get(topic)
    return {} if config is None else texts_of({name: getattr(config, name) for name in _INTERNAL_NAMES})


def accepted(texts: Mapping[str, str], topic: str) -> SettingsToWrite:
    """Return settings that lay in a root, without those that keep a broker from starting, or that one replica alone
    cannot have.

    Raises: TopicSettingsError for a value that no broker takes.
    """
    written = SettingsToWrite()
    for name, text in sorted(texts.items()):
        reason = _LEFT_OUT.get(name)
        if name == _SEGMENT_BYTES and _is_below(text, _LEAST_SEGMENT_BYTES):
            reason = f"brokers of 4.0 and later do not start with less than {_LEAST_SEGMENT_BYTES}"
        if reason is not None:
            written.notes.append(f"{name}={text} is left out: {reason}")
        elif name == _REPLICAS and not _is_below(text, 2):
            written.texts[name] = "1"
            written.notes.append(f"{name} is 1 in place of {text}: there is one replica")
        else:
            check_setting(name, text, topic)
            written.texts[name] = text
    return written


def check_setting(name: str, text: str, topic: str) -> None:
    """Check one setting as a broker does.

    A name that kstore does not know is left to the broker, which passes over those that it does not know.
    Raises: TopicSettingsError.
    """
    if name not in TOPIC_SETTINGS_BY_NAME or (name == _POLICY and not text.strip()):
        return
    try:
        field_name, value = parse_setting(name, text)
        if value == "none":
            raise ValueError("it is uncompressed that brokers call it")
        LogConfig(**{field_name: value})
    except (TypeError, ValueError) as error:
        raise TopicSettingsError(
            f"topic {topic!r}: a broker does not start with {name}={text}: {error}; give it another value by a file of "
            f"settings (--config)"
        ) from error


def read_given(path: str, env: Env | None = None) -> dict[str, dict[str, str]]:
    """Read a file of settings: JSON, by topic ("*" for all topics of which nothing else is known) and Kafka's name.

    Raises: TopicSettingsError for a file that is none, or settings with which no broker starts; StorageError.
    """
    found_in, place = locate(path, env)
    text = read_text(place, found_in, max_bytes=_MAX_FILE_BYTES)
    if text is None:
        raise TopicSettingsError(f"no such file: {place}", path=place)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TopicSettingsError(f"{place}: expected JSON: {json_fault(error)}", path=place) from error
    return checked_given(content, place)


def checked_given(content: object, what: str) -> dict[str, dict[str, str]]:
    """Return settings by topic and Kafka's name, as texts.  Raises: TopicSettingsError."""
    example = '{"orders": {"retention.ms": "-1"}}'
    if not isinstance(content, Mapping):
        raise TopicSettingsError(f"{what}: expected settings by topic, as {example}, found {str(content)[:60]!r}")
    given: dict[str, dict[str, str]] = {}
    for topic, settings in content.items():
        if not isinstance(settings, Mapping):
            raise TopicSettingsError(f"{what}: expected settings of topic {topic!r} by name, as {example}")
        given[str(topic)] = {str(name): _text(value) for name, value in settings.items()}
        for name, text in given[str(topic)].items():
            _check_name(name, str(topic), what)
            check_setting(name, text, str(topic))
            if name == _SEGMENT_BYTES and _is_below(text, _LEAST_SEGMENT_BYTES):
                raise TopicSettingsError(
                    f"{what}: topic {topic!r}: a broker of 4.0 or later does not start with {name}={text}, which is "
                    f"less than {_LEAST_SEGMENT_BYTES}: leave it out"
                )
    return given


def _check_name(name: str, topic: str, what: str) -> None:
    """Raise TopicSettingsError for a name that is none: a broker would pass over it, and go by its defaults."""
    if name.startswith(_INTERNAL):
        return
    try:
        check_name(name)
    except ValueError as error:
        raise TopicSettingsError(f"{what}: topic {topic!r}: {error}") from error


def _text(value: object) -> str:
    return value if isinstance(value, str) else setting_text(value)


def _is_below(text: str, limit: int) -> bool:
    try:
        return int(text) < limit
    except ValueError:
        return False
