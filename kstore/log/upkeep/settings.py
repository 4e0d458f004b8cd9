"""TopicSettings: the LogConfig of each topic, and the file of a root that keeps what differs from the defaults.

Kafka keeps topic configurations in the metadata of the cluster, not with the logs. kstore has no cluster, so a root
that it writes has a file of its own, kstore-topic-settings, which brokers ignore: JSON with the settings of each topic
that were changed, the topics whose deletion has begun, and a checksum. Retention by wrong settings would delete
records: as long as the file cannot be read, maintenance deletes nothing of topics that it may be about.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

from kstore._core import crc32c
from kstore.config import LogConfig
from kstore.errors import CorruptCheckpointError, StorageError, TopicSettingsError
from kstore.log.env import Env, join_path
from kstore.log.files.checkpoints import malformed, read_text, replace_file
from kstore.log.files.names import TOPIC_SETTINGS, is_topic_name
from kstore.types import GROUP_OFFSETS_TOPIC, SINK_TOPIC

MAX_SETTINGS_BYTES = 16 * 1024 * 1024
_VERSION = 1
_NAMES = frozenset(one.name for one in fields(LogConfig))
_FOREVER = {"cleanup_policy": "delete", "retention_ms": -1, "retention_bytes": -1}
# What brokers set for their own topics, and kstore needs for its: by the default of a store, retention would remove
# offsets that groups resume from, and what a sink has written already.
_OF_INTERNAL_TOPICS: Mapping[str, Mapping[str, Any]] = {
    GROUP_OFFSETS_TOPIC: {"cleanup_policy": "compact"},
    "__transaction_state": {"cleanup_policy": "compact"},
    "__share_group_state": _FOREVER,
    "__remote_log_metadata": _FOREVER,
    SINK_TOPIC: _FOREVER,
}
_logger = logging.getLogger("kstore.log")


class SettingsFile(NamedTuple):
    """The content of a root's file: the changed settings of each topic, and the topics that are being deleted."""

    changed: dict[str, dict[str, Any]]
    deleting: tuple[str, ...] = ()


def read_settings(root: str, env: Env) -> SettingsFile:
    """Read a root's settings; empty if the file does not exist.

    Raises: CorruptCheckpointError if it is malformed; StorageError.
    """
    path = join_path(root, TOPIC_SETTINGS)
    text = read_text(path, env, max_bytes=MAX_SETTINGS_BYTES)
    if text is None:
        return SettingsFile({})
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise malformed(path, f"expected JSON: {error}") from error
    if not isinstance(found, dict) or found.get("version") != _VERSION:
        raise malformed(path, f"expected an object of version {_VERSION}, found {text[:40]!r}")
    changed, deleting = found.get("topics"), found.get("deleting")
    if found.get("crc32c") != _checksum(changed, deleting):
        raise malformed(path, f"expected the checksum {_checksum(changed, deleting)}, found {found.get('crc32c')!r}")
    is_valid = (
        isinstance(changed, dict)
        and isinstance(deleting, list)
        and all(isinstance(name, str) and is_topic_name(name) for name in (*changed, *deleting))
        and all(isinstance(one, dict) for one in changed.values())
    )
    if not is_valid or not isinstance(changed, dict) or not isinstance(deleting, list):
        raise malformed(path, "expected settings by topic, and a list of topics")
    return SettingsFile(changed, tuple(deleting))


def write_settings(root: str, settings: SettingsFile, env: Env) -> None:
    """Durably replace a root's settings.  Raises: StorageError."""
    changed = {name: one for name, one in sorted(settings.changed.items()) if one}
    deleting = sorted(settings.deleting)
    content = {
        "version": _VERSION,
        "topics": changed,
        "deleting": deleting,
        "crc32c": _checksum(changed, deleting),
    }
    replace_file(join_path(root, TOPIC_SETTINGS), (json.dumps(content, indent=1) + "\n").encode(), env)


def _checksum(changed: object, deleting: object) -> str:
    return f"{crc32c(json.dumps([changed, deleting], sort_keys=True).encode()):08x}"


class TopicSettings:
    """The LogConfig of each topic of a root that is written: what was given when it was opened, else the default with
    the changes that the root keeps.

    Attributes: damage (the error of a file that cannot be read, else None).
    Threads: changes require the mutex of the store.
    """

    def __init__(self, default: LogConfig, given: Mapping[str, LogConfig], *, root: str, env: Env) -> None:
        self._default = default
        self._given = dict(given)
        self._root = root
        self._env = env
        self._kept = SettingsFile({})
        self.damage: CorruptCheckpointError | None = None
        try:
            self._kept = read_settings(root, env)
        except CorruptCheckpointError as error:
            _logger.error("no retention or compaction without the settings of topics: %s", error)
            self.damage = error

    @property
    def deleting(self) -> tuple[str, ...]:
        """The topics whose deletion has begun."""
        return self._kept.deleting

    @property
    def keeps_any(self) -> bool:
        """Whether the root keeps settings of any topic."""
        return any(self._kept.changed.values())

    def of(self, topic: str) -> LogConfig:
        """Return the configuration of a topic.

        Raises: TopicSettingsError for kept settings that do not fit the default.
        """
        given = self._given.get(topic)
        if given is not None:
            return given
        try:
            return self._made(topic, self.changed_of(topic))
        except (TypeError, ValueError) as error:
            raise TopicSettingsError(
                f"{error}; the root keeps them in {join_path(self._root, TOPIC_SETTINGS)}"
            ) from error

    def changed_of(self, topic: str) -> dict[str, Any]:
        """Return the settings of a topic that differ from the default, by name."""
        given = self._given.get(topic)
        return dict(self._kept.changed.get(topic, {})) if given is None else _difference(given, self._default_of(topic))

    def is_known(self, topic: str) -> bool:
        """Whether the settings of a topic could be read, or were given."""
        return self.damage is None or topic in self._given

    def set(self, topic: str, config: LogConfig) -> None:
        """Durably keep the configuration of a topic.  Raises: CorruptCheckpointError, StorageError."""
        self._save(topic, _difference(config, self._default_of(topic)))

    def change(self, topic: str, changes: Mapping[str, Any], reset: Iterable[str]) -> LogConfig:
        """Durably change settings of a topic, take others back to the default, and return its configuration.

        Raises: ValueError, TypeError for an unknown name or impossible value, with nothing changed;
            CorruptCheckpointError, StorageError.
        """
        dropped = set(reset)
        for name in (*changes, *dropped):
            if name not in _NAMES:
                raise ValueError(f"{name!r} is not a setting of LogConfig")
        merged = {name: value for name, value in {**self.changed_of(topic), **changes}.items() if name not in dropped}
        config = self._made(topic, merged)
        self._save(topic, _difference(config, self._default_of(topic)))
        return config

    def begin_deletion(self, topic: str) -> None:
        """Durably note that a topic is being deleted.

        Raises: CorruptCheckpointError. StorageError: it has begun if `deleting` names it, since the next opening may
            find the note.
        """
        if topic in self._kept.deleting:
            return
        noted = SettingsFile(self._kept.changed, (*self._kept.deleting, topic))
        try:
            self._write(noted)
        except StorageError:
            if self._may_hold(noted):
                self._kept = noted
            raise

    def end_deletion(self, topic: str) -> None:
        """Durably forget a topic.  Raises: CorruptCheckpointError, StorageError."""
        changed = {name: one for name, one in self._kept.changed.items() if name != topic}
        self._write(SettingsFile(changed, tuple(name for name in self._kept.deleting if name != topic)))
        self._given.pop(topic, None)

    def _may_hold(self, settings: SettingsFile) -> bool:
        """Whether a failed write may have replaced the file."""
        try:
            return set(read_settings(self._root, self._env).deleting) == set(settings.deleting)
        except (CorruptCheckpointError, StorageError):
            return True

    def _default_of(self, topic: str) -> LogConfig:
        return replace(self._default, **_OF_INTERNAL_TOPICS.get(topic, {}))

    def _made(self, topic: str, changed: Mapping[str, Any]) -> LogConfig:
        default = self._default_of(topic)
        try:
            return replace(default, **changed) if changed else default
        except (TypeError, ValueError) as error:
            raise type(error)(f"settings of topic {topic!r}: {error}") from error

    def _save(self, topic: str, changed: dict[str, Any]) -> None:
        if changed or topic in self._kept.changed:
            self._write(SettingsFile({**self._kept.changed, topic: changed}, self._kept.deleting))
        self._given.pop(topic, None)

    def _write(self, settings: SettingsFile) -> None:
        if self.damage is not None:
            raise self.damage
        write_settings(self._root, settings, self._env)
        self._kept = settings


def _difference(config: LogConfig, default: LogConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in sorted(_NAMES) if getattr(config, name) != getattr(default, name)}
