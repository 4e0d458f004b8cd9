"""KeptConfigs: the configuration of each selected topic, from the settings that its root keeps and the options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstore.config import LogConfig
from kstore.errors import TopicSettingsError
from kstore.log.upkeep.settings import TopicSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kstore.cli.arguments import PartitionSelection
    from kstore.log.files.names import PartitionDirectory


class KeptConfigs:
    """The configurations of topics: of one that is named by the options first, of the others by what the root keeps.

    Args: defaults: where neither says anything, by names of LogConfig; options: those that were given; forced: what
        holds in any case for a topic that is named.
    Raises: CorruptCheckpointError if the settings of a root are damaged and a topic is not named; StorageError.
    """

    def __init__(
        self,
        selection: PartitionSelection,
        directories: Sequence[PartitionDirectory],
        *,
        defaults: Mapping[str, Any],
        options: Mapping[str, Any],
        forced: Mapping[str, Any],
    ) -> None:
        self._selection = selection
        self._defaults = dict(defaults)
        self._options = dict(options)
        self._forced = dict(forced)
        self._settings: dict[str, TopicSettings] = {}
        for directory in directories:
            settings = self._of_root(directory)
            if settings.damage is not None and not selection.names(directory):
                raise settings.damage

    def keeps_any(self, directory: PartitionDirectory) -> bool:
        """Whether the root of a partition keeps settings of any topic."""
        return self._of_root(directory).keeps_any

    def of(self, directory: PartitionDirectory) -> LogConfig:
        """Return the configuration of a partition.

        Raises: TopicSettingsError for settings of the root that do not fit the options.
        """
        topic = directory.topic_partition.topic
        settings = self._of_root(directory)
        if not self._selection.names(directory):
            return settings.of(topic)
        kept = settings.changed_of(topic)
        try:
            return LogConfig(**{**self._defaults, **kept, **self._options, **self._forced})
        except (TypeError, ValueError) as error:
            raise TopicSettingsError(f"settings of topic {topic!r} in {directory.root}: {error}") from error

    def _of_root(self, directory: PartitionDirectory) -> TopicSettings:
        settings = self._settings.get(directory.root)
        if settings is None:
            default = LogConfig(**{**self._defaults, **self._options})
            settings = TopicSettings(default, {}, root=directory.root, env=directory.env)
            self._settings[directory.root] = settings
        return settings
