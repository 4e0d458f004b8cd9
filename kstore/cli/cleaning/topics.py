"""The topics to clean: those whose settings the root has, and those that are named on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstore.cli.render import JSON_TEXT
from kstore.config import LogConfig
from kstore.errors import TopicSettingsError
from kstore.store.settings.known import KnownSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.log.files.names import PartitionDirectory
    from kstore.store.settings.known import TopicKnowledge
    from kstore.types import TopicPartition


class SelectedTopics:
    """The settings of the selected topics, from their roots and the command line.

    Args: options: the settings that were given, by names of LogConfig. They override the root's for a topic that is
        named, and are defaults for others.
    Raises: CorruptCheckpointError if the settings of a root are damaged and a topic is not named; StorageError.
    """

    def __init__(
        self, selection: PartitionSelection, directories: Sequence[PartitionDirectory], *, options: Mapping[str, Any]
    ) -> None:
        self._selection = selection
        self._options = dict(options)
        self._roots: dict[str, KnownSettings] = {}
        for directory in directories:
            known = self._root_of(directory)
            if known.file_damage is not None and not selection.names(directory):
                raise known.file_damage

    def is_named(self, directory: PartitionDirectory) -> bool:
        """Whether a partition was selected by the name of its topic, or as DIR."""
        return self._selection.names(directory)

    def known(self, directory: PartitionDirectory) -> TopicKnowledge:
        """Return what is known of the topic of a partition."""
        return self._root_of(directory).of(directory.topic_partition.topic)

    def config(self, directory: PartitionDirectory, *, forced: Mapping[str, Any]) -> LogConfig:
        """Return the configuration of a partition; if its topic is named, `forced` overrides everything.

        Raises: TopicSettingsError for settings of the root that do not fit the options.
        """
        known = self.known(directory).settings
        is_named = self.is_named(directory)
        merged = {**known, **self._options, **forced} if is_named else {**self._options, **known}
        try:
            return LogConfig(**merged)
        except (TypeError, ValueError) as error:
            topic = directory.topic_partition.topic
            raise TopicSettingsError(f"settings of topic {topic!r} in {directory.root}: {error}") from error

    def _root_of(self, directory: PartitionDirectory) -> KnownSettings:
        known = self._roots.get(directory.root)
        if known is None:
            known = self._roots[directory.root] = KnownSettings(directory.root, directory.env)
        return known


class PassedOver:
    """The partitions that were skipped, and why: written as a JSON object each, or a line per topic at the end."""

    def __init__(self, out: Output, *, is_json: bool) -> None:
        self._out = out
        self._is_json = is_json
        self._reasons: dict[str, str] = {}

    def add(self, topic_partition: TopicPartition, reason: str) -> None:
        """Add a partition."""
        topic, partition = topic_partition
        self._reasons[topic] = reason
        if self._is_json:
            self._out.line(JSON_TEXT({"topic": topic, "partition": partition, "passed_over": reason}))

    def show(self) -> None:
        """Write a line for each topic to standard error."""
        for topic, reason in sorted(self._reasons.items()):
            self._out.notice(f"passed over {topic}: {reason}")
