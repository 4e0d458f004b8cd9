"""TopicSettings: the LogConfig of each topic of a root that is written, and changes of them.

Kafka keeps topic configurations in the metadata of the cluster, not with the logs. kstore has no cluster, so a root
that it writes has a file of its own for them (settings/file.py). Retention by wrong settings would delete records: as
long as that file, or the metadata of a cluster in the root, cannot be read, maintenance deletes nothing of topics that
it may be about.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from kstore.config import LogConfig
from kstore.env import Env, join_path
from kstore.errors import CorruptCheckpointError, StorageError, TopicSettingsError
from kstore.log.files.names import TOPIC_SETTINGS
from kstore.store.settings.file import SettingsFile, read_settings, write_settings
from kstore.store.settings.known import KnownSettings

_NAMES = frozenset(field.name for field in fields(LogConfig))
_logger = logging.getLogger("kstore.log")


class TopicSettings:
    """The LogConfig of each topic of a root that is written: what was given when it was opened, else the default with
    what the root says.

    Args: default: of topics for which the root says nothing, None for that of the root (KnownSettings.defaults).
    Attributes: default.
    Threads: requires the mutex of the store.
    """

    def __init__(self, default: LogConfig | None, given: Mapping[str, LogConfig], *, root: str, env: Env) -> None:
        self._given = dict(given)
        self._root = root
        self._env = env
        self._known = KnownSettings(root, env)
        self._kept = self._known.file
        self.default = LogConfig(**self._known.defaults) if default is None else default
        if self._known.file_damage is not None:
            _logger.error("no retention or compaction without the settings of topics: %s", self._known.file_damage)

    @property
    def damage(self) -> CorruptCheckpointError | None:
        """The error of settings that cannot be read, the root's own or those of a cluster in it."""
        return self._known.damage

    @property
    def deleting(self) -> tuple[str, ...]:
        """The topics whose deletion has begun."""
        return self._kept.deleting

    def of(self, topic: str) -> LogConfig:
        """Return the configuration of a topic.

        Raises: TopicSettingsError for settings in the root that do not fit the default.
        """
        given = self._given.get(topic)
        if given is not None:
            return given
        try:
            return self._made(topic, self._kept.changed.get(topic, {}))
        except (TypeError, ValueError) as error:
            raise TopicSettingsError(
                f"{error}; the root keeps them in {join_path(self._root, TOPIC_SETTINGS)}"
            ) from error

    def changed_of(self, topic: str) -> dict[str, Any]:
        """Return the settings that a topic was given itself, also where they are the default, by name."""
        given = self._given.get(topic)
        return self._kept.given_to(topic) if given is None else _difference(given, self._default_of(topic))

    def is_known(self, topic: str) -> bool:
        """Whether the settings of a topic could be read, or were given."""
        return topic in self._given or self.damage is None

    def begin_creation(self, topic: str, config: LogConfig | Mapping[str, Any] | None) -> None:
        """Durably keep the settings of a topic that is about to be made, in place of any that an earlier one left.

        Args: config: the configuration, of which what differs from the default is kept, or settings by the names of
            LogConfig, which are all kept.
        Raises: ValueError, TypeError for an unknown name or impossible value, CorruptCheckpointError, StorageError,
            with nothing changed.
        """
        if config is None:
            if topic in self._kept.changed:
                self._write_or_take_back(self._kept.without(topic))
            return
        made = self.of_new(topic, config)
        self._save(topic, _difference(made, self._default_of(topic)) if isinstance(config, LogConfig) else config, made)

    def of_new(self, topic: str, config: LogConfig | Mapping[str, Any] | None) -> LogConfig:
        """Return the configuration that a topic is made with.  Args, Raises: as begin_creation, but for the files."""
        if isinstance(config, LogConfig):
            return config
        return self._made(topic, {} if config is None else _checked(config))

    def withdraw_creation(self, topic: str) -> None:
        """Forget the settings of a topic of which nothing was made.

        A file that cannot be written keeps them until a topic of this name is made.
        """
        if topic not in self._kept.changed:
            return
        left = self._kept.without(topic)
        try:
            self._write(left)
        except StorageError as error:
            _logger.warning("the settings of topic %s, which was not made, stay until it is: %s", topic, error)
            self._kept = left

    def change(
        self, topic: str, changes: Mapping[str, Any], reset: Iterable[str], *, validate_only: bool = False
    ) -> LogConfig:
        """Durably change settings of a topic, take others back to the default, and return its configuration.

        Args: validate_only: change nothing.
        Raises: ValueError, TypeError for an unknown name or impossible value, CorruptCheckpointError, StorageError,
            with nothing changed.
        """
        dropped = set(reset)
        merged = {**self.changed_of(topic), **_checked(changes)}
        _check_names(dropped)
        left = {name: value for name, value in merged.items() if name not in dropped}
        takes_policy = topic in self._given or "cleanup_policy" in dropped
        kept = left if takes_policy else self._kept.kept_with(topic, left)
        config = self._made(topic, kept)
        if not validate_only:
            self._save(topic, left, config)
        return config

    def forget_cluster(self) -> None:
        """Read the metadata of a cluster again when it is needed next."""
        self._known.forget_cluster()

    def begin_deletion(self, topic: str) -> None:
        """Durably note that a topic is being deleted.

        Raises: CorruptCheckpointError. StorageError: it has begun if `deleting` names it, since the next opening may
            find the note.
        """
        if topic in self._kept.deleting:
            return
        noted = self._kept._replace(deleting=(*self._kept.deleting, topic))
        try:
            self._write(noted)
        except StorageError:
            if self._may_hold(noted):
                self._kept = noted
            raise

    def end_deletion(self, topic: str) -> None:
        """Durably forget a topic.  Raises: CorruptCheckpointError, StorageError."""
        left = self._kept.without(topic)
        self._write(left._replace(deleting=tuple(name for name in left.deleting if name != topic)))
        self._given.pop(topic, None)

    def _may_hold(self, settings: SettingsFile) -> bool:
        """Whether a failed write may have replaced the file."""
        try:
            return set(read_settings(self._root, self._env).deleting) == set(settings.deleting)
        except (CorruptCheckpointError, StorageError):
            return True

    def _default_of(self, topic: str) -> LogConfig:
        below = self._known.below_file(topic).settings
        return replace(self.default, **below) if below else self.default

    def _made(self, topic: str, changed: Mapping[str, Any]) -> LogConfig:
        try:
            default = self._default_of(topic)
            return replace(default, **changed) if changed else default
        except (TypeError, ValueError) as error:
            raise type(error)(f"settings of topic {topic!r}: {error}") from error

    def _save(self, topic: str, names: Iterable[str], config: LogConfig) -> None:
        """Durably keep the named settings of a configuration as those that a topic was given."""
        given = {name: getattr(config, name) for name in sorted(names)}
        if given or topic in self._kept.changed:
            self._write_or_take_back(self._kept.with_topic(topic, given, config.cleanup_policy))
        self._given.pop(topic, None)

    def _write_or_take_back(self, settings: SettingsFile) -> None:
        """Write settings. If that fails, restore what was there before: the caller learns that nothing has changed."""
        try:
            self._write(settings)
        except StorageError:
            try:
                if read_settings(self._root, self._env) != self._kept:
                    write_settings(self._root, self._kept, self._env)
            except (CorruptCheckpointError, StorageError) as error:
                _logger.warning("the next opening may find settings of topics that were refused: %s", error)
            raise

    def _write(self, settings: SettingsFile) -> None:
        if self._known.file_damage is not None:
            raise self._known.file_damage
        write_settings(self._root, settings, self._env)
        self._kept = settings


def forget_settings(root: str, topic: str, env: Env) -> None:
    """Durably forget the settings of a topic that does not exist: they are left of a creation that failed.

    Raises: StorageError. A damaged file is left as it is.
    """
    try:
        kept = read_settings(root, env)
    except CorruptCheckpointError:
        return
    if topic in kept.changed:
        write_settings(root, kept.without(topic), env)


def _checked(settings: object) -> Mapping[str, Any]:
    """Return settings by the names of LogConfig.  Raises: TypeError, ValueError."""
    if not isinstance(settings, Mapping):
        raise TypeError(f"settings must be a LogConfig or a mapping by its names, got {settings!r}")
    _check_names(settings)
    return settings


def _check_names(names: Iterable[object]) -> None:
    for name in names:
        if name not in _NAMES:
            from difflib import get_close_matches

            similar = get_close_matches(str(name).replace(".", "_"), _NAMES, n=1)
            hint = f"; did you mean {similar[0]}?" if similar else ""
            raise ValueError(f"{name!r} is not a setting of LogConfig{hint}")


def _difference(config: LogConfig, default: LogConfig) -> dict[str, Any]:
    """Return the settings of a configuration that differ from the default, by name."""
    return {name: getattr(config, name) for name in _NAMES if getattr(config, name) != getattr(default, name)}
