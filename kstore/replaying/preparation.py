"""Preparation: source, cluster and state file of a replay are checked against each other before a record is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kstore.coordinator.group.metadata import Group
from kstore.errors import ReplayError
from kstore.log.files.names import PartitionDirectory
from kstore.log.files.root_files import id_text, read_meta_properties, read_partition_metadata
from kstore.log.files.selection import Selection
from kstore.replaying.cluster import Cluster, TargetTopic
from kstore.replaying.flow import Flow
from kstore.replaying.offsets import groups_of, points_of
from kstore.replaying.state import PartitionState, StateFile
from kstore.replaying.wanted import Filter, ReplayWanted
from kstore.store.opening import open_found
from kstore.store.settings.kafka_names import TOPIC_SETTINGS_BY_NAME, setting_text
from kstore.store.settings.known import KnownSettings
from kstore.types import TopicPartition


class Preparation:
    """What is found out, and created, before a replay.

    Attributes: groups: of the source, whose offsets are translated; created: topics that were created or grown;
    cluster_ids: of source and cluster, as the state file has them.
    Threads: not thread-safe.
    """

    def __init__(
        self,
        wanted: ReplayWanted,
        directories: Sequence[PartitionDirectory],
        cluster: Cluster,
        state: StateFile,
        *,
        is_dry_run: bool,
    ) -> None:
        self._wanted = wanted
        self._directories = directories
        self._cluster = cluster
        self._state = state
        self._is_dry_run = is_dry_run
        self.groups: list[Group] = []
        self.created: list[str] = []
        self.cluster_ids: dict[str, str | None] = {}

    def flows(self, failures: list[Flow]) -> list[Flow]:
        """Check source, cluster and state against each other, create what is missing, and return the partitions.

        Args: failures: of all Flows.
        Raises: ReplayError, ReplayStateError; before anything is created, if it can be known before.
        """
        wanted = self._wanted
        env, root = self._directories[0].env, self._directories[0].root
        meta = read_meta_properties(root, env)
        self.cluster_ids = {
            "source_cluster_id": None if meta is None else meta.cluster_id,
            "target_cluster_id": self._cluster.cluster_id(),
        }
        self._state.check_clusters(**self.cluster_ids)
        if wanted.groups is not None:
            self.groups = groups_of(wanted.source, wanted.groups, wanted.env)
        known = {directory.topic_partition: self._known(directory) for directory in self._directories}
        topics = self._topics(known)
        places = [wanted.target_of(directory.topic_partition) for directory in self._directories]
        there = [place for place in places if place.partition < topics[place.topic].partition_count]
        ends = self._cluster.end_offsets(there)
        flows: list[Flow] = []
        for directory, target in zip(self._directories, places, strict=True):
            source = directory.topic_partition
            state = known[source]
            start, _ = wanted.bounds_of(source)
            if state is None:
                with open_found(directory, wanted.config) as log:
                    start = min(max(start, log.log_start_offset), log.log_end_offset)
            flows.append(
                Flow(
                    directory,
                    topic_id=_topic_id(directory),
                    target=target,
                    topic=topics[target.topic],
                    known=state,
                    start_offset=start if state is None else state.next_offset,
                    target_end_offset=ends.get(target, 0),
                    points=points_of(self.groups, source),
                    failures=failures,
                )
            )
        return flows

    def _known(self, directory: PartitionDirectory) -> PartitionState | None:
        """Return what the state file has of a partition.  Raises: ReplayStateError if it is of another one."""
        source = directory.topic_partition
        known = self._state.partition(source)
        if known is None:
            return None
        topic_id, path = _topic_id(directory), directory.path
        ids = known.topic_id, topic_id
        if None not in ids and ids[0] != ids[1]:
            raise self._state.refused(f"of another topic {source.topic}: it has the id {ids[0]}, the source's {ids[1]}")
        if None in ids and known.source_path != path:
            raise self._state.refused(f"of {known.source_path}, and {path} has no id that shows it is the same")
        target = self._wanted.name_of(source.topic)
        if known.target_topic != target:
            raise self._state.refused(
                f"of a replay of {source} to topic {known.target_topic}, and this one is to {target}"
            )
        if known.filter != self._wanted.filter:
            raise self._state.refused(
                f"of a replay of {source} with {_described(known.filter)}, and this one has "
                f"{_described(self._wanted.filter)}"
            )
        return known

    def _topics(self, known: Mapping[TopicPartition, PartitionState | None]) -> dict[str, TargetTopic]:
        """Return the topics of the cluster that records go to, and create what is missing.

        Raises: ReplayError for what is missing, unless it may be created; ReplayStateError for a topic that is not the
            one of the earlier run.
        """
        needed: dict[str, int] = {}
        for source in known:
            name = self._wanted.name_of(source.topic)
            needed[name] = max(needed.get(name, 0), source.partition + 1)
        topics = self._cluster.topics(needed)
        for source, state in known.items():
            name = self._wanted.name_of(source.topic)
            if state is not None and state.target_topic_id != (topics[name].topic_id if name in topics else None):
                raise self._state.refused(f"of an earlier topic {name} of the cluster, which was deleted since")
        missing = [name for name in sorted(needed) if name not in topics or topics[name].partition_count < needed[name]]
        if missing and not self._wanted.creates_topics:
            lacks = (
                f"partition {needed[name] - 1} of topic {name}" if name in topics else f"topic {name}"
                for name in missing
            )
            raise ReplayError(
                f"{self._cluster.bootstrap_servers} has no {', no '.join(lacks)}; nothing was sent. Records keep their "
                "partitions: create what is missing, or let --create-topics (create_topics) do it"
            )
        self._cluster.check_keeps_timestamps(topics)
        return {**topics, **self._made(missing, topics)}

    def _made(self, names: Sequence[str], there: Mapping[str, TargetTopic]) -> dict[str, TargetTopic]:
        """Create topics, or the partitions that they lack, as they are in the source; a dry run only says so."""
        self.created = list(names)
        if not names:
            return {}
        counts, settings = self._of_source(names)
        if self._is_dry_run:
            return {name: there.get(name, TargetTopic(None, 0)) for name in names}
        for name in names:
            if name in there:
                self._cluster.add_partitions(name, counts[name])
            else:
                self._cluster.create_topic(name, counts[name], settings[name])
        return self._cluster.topics_with(counts)

    def _of_source(self, names: Sequence[str]) -> tuple[dict[str, int], dict[str, dict[str, str]]]:
        """Return the number of partitions and the settings that topics of the source have, by their new names."""
        topics = {directory.topic_partition.topic for directory in self._directories}
        of_name = {self._wanted.name_of(topic): topic for topic in topics}
        all_partitions = Selection(topics=frozenset(topics)).find(self._wanted.source, self._wanted.env)
        counts: dict[str, int] = {}
        for topic, partition in (directory.topic_partition for directory in all_partitions):
            counts[topic] = max(counts.get(topic, 0), partition + 1)
        known = KnownSettings(self._directories[0].root, self._directories[0].env)
        settings = {}
        for name in names:
            own = known.of(of_name[name]).settings
            settings[name] = {
                **known.texts_of_cluster(of_name[name]),
                **{text: setting_text(own[key]) for text, key in TOPIC_SETTINGS_BY_NAME.items() if key in own},
            }
        return {name: counts[of_name[name]] for name in names}, settings


def _topic_id(directory: PartitionDirectory) -> str | None:
    topic_id = read_partition_metadata(directory.path, directory.env)
    return None if topic_id is None else id_text(topic_id)


def _described(filter_: Filter) -> str:
    bounds = (
        f"{name} {ms} ms" for name, ms in (("since", filter_.since_ms), ("until", filter_.until_ms)) if ms is not None
    )
    return ", ".join((f"isolation {filter_.isolation}", *bounds))
