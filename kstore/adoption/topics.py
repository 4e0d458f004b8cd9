"""The topics of a plan: their ids, epochs and settings, by the roots and the metadata of an earlier cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from kstore.adoption.cluster import ClusterState
from kstore.adoption.records import PartitionOfTopic, TopicToWrite
from kstore.adoption.report import AdoptedTopic
from kstore.adoption.roots import Roots
from kstore.adoption.scan import (
    CoordinatorFacts,
    PartitionFacts,
    read_group_offsets,
    read_partition,
    read_transaction_states,
)
from kstore.adoption.settings import (
    ALL_TOPICS,
    KEEP_FOREVER,
    SettingsToWrite,
    accepted,
    internal_texts,
    texts_of,
)
from kstore.coordinator.places import KAFKAS_PARTITION_COUNT
from kstore.coordinator.producer_ids import LEAST_RANDOM_ID
from kstore.errors import AdoptionError, CorruptCheckpointError, TopicSettingsError, UnknownSettingsError
from kstore.log.files.names import CLUSTER_METADATA_TOPIC, PARTITION_METADATA, TOPIC_SETTINGS, PartitionDirectory
from kstore.log.files.root_files import MetaProperties, id_text, random_id
from kstore.naming import did_you_mean
from kstore.store.metadata.image import TOPIC_RESOURCE, PartitionState, TopicState
from kstore.store.settings.known import KnownSettings
from kstore.types import (
    GROUP_OFFSETS_TOPIC,
    NO_PARTITION_LEADER_EPOCH,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from kstore.wire.protocol import ZERO_UUID

# A broker hands out so many ids at once.
_PRODUCER_ID_BLOCK = 1000
_MOST_NAMED = 5


@dataclass(kw_only=True)
class PlannedTopics:
    """What is to be written of the topics, and what is said of it.

    without_id: the partitions that get a partition.metadata, with the id of their topic. on_defaults: the topics whose
    settings leave to the broker's defaults what is deleted.
    """

    to_write: list[TopicToWrite] = field(default_factory=list)
    adopted: list[AdoptedTopic] = field(default_factory=list)
    without_id: list[tuple[PartitionDirectory, UUID]] = field(default_factory=list)
    on_defaults: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    next_producer_id: int = 0


@dataclass(frozen=True, kw_only=True)
class GivenSettings:
    """The settings that the caller gives: by topic and Kafka's name; keep_forever: for topics of which nothing is
    known.
    """

    by_topic: Mapping[str, Mapping[str, str]]
    keep_forever: bool


def known_settings(roots: Roots) -> dict[str, KnownSettings]:
    """Return what each root says of settings.  Raises: AdoptionError for a damaged file."""
    known = {path: KnownSettings(path, roots.env) for path in roots.paths}
    for one in known.values():
        if one.file_damage is not None:
            raise AdoptionError(
                f"{one.file_damage}; without the settings of its topics a broker may delete their records: put back "
                f"{TOPIC_SETTINGS} from a copy, or remove it and give the settings",
                path=one.file_damage.path,
            ) from one.file_damage
    return known


def plan_topics(
    roots: Roots,
    cluster: ClusterState,
    properties: Mapping[str, MetaProperties],
    known: Mapping[str, KnownSettings],
    given: GivenSettings,
) -> PlannedTopics:
    """Read the partitions and say what is to be written of each topic.

    Args: properties, known: of each root.
    Raises: UnknownSettingsError; TopicSettingsError; AdoptionError; the errors of a read.
    """
    unknown = sorted(set(given.by_topic) - {ALL_TOPICS, *roots.topics})
    if unknown:
        meant = did_you_mean(unknown, roots.topics)
        raise TopicSettingsError(
            f"settings are given of topics that the roots do not have: {', '.join(unknown)}{meant}"
        )
    planned = PlannedTopics()
    facts = {name: [_facts_of(one) for one in partitions.values()] for name, partitions in roots.topics.items()}
    coordinators = {
        GROUP_OFFSETS_TOPIC: read_group_offsets(roots.topics.get(GROUP_OFFSETS_TOPIC, {}).values()),
        TRANSACTION_STATE_TOPIC: read_transaction_states(roots.topics.get(TRANSACTION_STATE_TOPIC, {}).values()),
    }
    epochs = coordinators[GROUP_OFFSETS_TOPIC].epochs
    settings = _Settings(roots, known, given)
    known_topics = cluster.image.topics_by_name()
    for name in sorted(facts):
        topic_id, is_new = _id_of(name, facts[name])
        state = known_topics.get(name)
        if state is not None and is_new:
            topic_id, is_new = state.topic_id, False
        if state is not None and state.topic_id != topic_id:
            state = None
        planned.without_id += [(one.directory, topic_id) for one in facts[name] if one.topic_id is None]
        planned.damage += [text for one in facts[name] for text in one.damage]
        count = _partition_count(name, roots.topics[name], state, coordinators.get(name))
        partitions = _partitions_of(name, facts[name], state, epochs, count=count, is_in_use=cluster.is_in_use)
        written, source = settings.of(name, _texts(cluster, state))
        if not written.says_what_is_deleted:
            planned.on_defaults.append(name)
        ids = {path: one.directory_id or ZERO_UUID for path, one in properties.items()}
        here = {number: ids[one.root] for number, one in roots.topics[name].items()}
        to_write = TopicToWrite(
            name=name,
            topic_id=topic_id,
            settings=written.texts,
            partitions=[
                PartitionOfTopic(number=number, leader_epoch=epoch, directory_id=here.get(number, ids[roots.paths[0]]))
                for number, epoch in partitions.items()
            ],
        )
        planned.to_write.append(to_write)
        holes = tuple(number for number in partitions if number not in here)
        planned.adopted.append(_told(to_write, written, source, holes, is_new=is_new))
    settings.check_all_known()
    of_states = coordinators[TRANSACTION_STATE_TOPIC].max_producer_id
    planned.next_producer_id = _next_producer_id(of_states, facts, cluster)
    return planned


def _facts_of(directory: PartitionDirectory) -> PartitionFacts:
    try:
        return read_partition(directory)
    except CorruptCheckpointError as error:
        raise AdoptionError(
            f"{error}; a broker does not start with it: remove the file if the id of the topic does not matter, or let "
            f"`kstore recover` write it again",
            path=error.path,
        ) from error


def _id_of(name: str, facts: Iterable[PartitionFacts]) -> tuple[UUID, bool]:
    """Return the id of a topic, and whether it was drawn now."""
    ids = {one.topic_id: one.directory for one in facts if one.topic_id is not None}
    if len(ids) > 1:
        places = "; ".join(f"{id_text(topic_id)} in {directory.path}" for topic_id, directory in ids.items())
        raise AdoptionError(
            f"the partitions of topic {name!r} are of different topics, by their {PARTITION_METADATA}: {places}; move "
            f"those of the older one out of the root"
        )
    return (next(iter(ids)), False) if ids else (random_id(), True)


def _partition_count(
    name: str, there: Collection[int], state: TopicState | None, coordinator: CoordinatorFacts | None
) -> int:
    """Return how many partitions a topic has: those up to the last one that is there or was known.

    Coordinators look for a group in the partition that its hash gives by that number. So an internal topic has as many
    as put all its names where they are: those that are there, or as many as brokers make.
    Raises: AdoptionError for an internal topic of which some partitions are missing, and others do not tell how many.
    """
    least = 1 + max([*there, *({} if state is None else state.partitions)])
    if coordinator is None or state is not None or coordinator.fits(least):
        return least
    if least < KAFKAS_PARTITION_COUNT and coordinator.fits(KAFKAS_PARTITION_COUNT):
        return KAFKAS_PARTITION_COUNT
    raise AdoptionError(
        f"the partitions of {name} that are there ({len(there)}, up to number {least - 1}) do not show how many there "
        f"were: a broker would not find its groups or transactional ids; add those that are missing, or move all of "
        f"them out of the root"
    )


def _partitions_of(
    name: str,
    facts: Iterable[PartitionFacts],
    state: TopicState | None,
    committed: Mapping[TopicPartition, int],
    *,
    count: int,
    is_in_use: bool,
) -> dict[int, int]:
    """Return the leader epoch of each partition of a topic, above all that its log and its groups know.

    Holes included: a broker needs all numbers.
    """
    there = {one.directory.topic_partition.partition: one.max_leader_epoch for one in facts}
    known: Mapping[int, PartitionState] = {} if state is None else state.partitions
    epochs = {}
    for number in range(count):
        highest = max(
            there.get(number, NO_PARTITION_LEADER_EPOCH),
            committed.get(TopicPartition(name, number), NO_PARTITION_LEADER_EPOCH),
        )
        before = -1 if number not in known else known[number].leader_epoch + is_in_use
        epochs[number] = max(highest + 1, before)
    return epochs


def _texts(cluster: ClusterState, state: TopicState | None) -> Mapping[str, str] | None:
    """Return the settings that the cluster gave a topic, None if it did not know it."""
    return None if state is None else cluster.image.configs.get((TOPIC_RESOURCE, state.name), {})


def _told(
    topic: TopicToWrite, written: SettingsToWrite, source: str, holes: tuple[int, ...], *, is_new: bool
) -> AdoptedTopic:
    notes = list(written.notes)
    if holes:
        numbers = ", ".join(map(str, holes))
        notes.append(
            f"partitions {numbers} have no directory: the broker makes them, empty; offsets that groups committed in "
            f"them are reset"
        )
    return AdoptedTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        has_new_id=is_new,
        partitions=len(topic.partitions),
        holes=holes,
        highest_epoch=max(partition.leader_epoch for partition in topic.partitions),
        settings=dict(sorted(topic.settings.items())),
        settings_from=source,
        notes=tuple(notes),
    )


class _Settings:
    """The settings of topics, and those of which nothing is known."""

    def __init__(self, roots: Roots, known: Mapping[str, KnownSettings], given: GivenSettings) -> None:
        self._roots = roots
        self._given = given
        self._unknown: list[str] = []
        self._known = known

    def of(self, topic: str, of_cluster: Mapping[str, str] | None) -> tuple[SettingsToWrite, str]:
        """Return the settings of a topic, and who says them."""
        roots = {directory.root for directory in self._roots.topics[topic].values()}
        files = [self._known[path].file for path in self._roots.paths if path in roots]
        source = "brokers' rule for their topics" if internal_texts(topic) else ""
        texts: dict[str, str] = {}
        defaults = next((file.defaults for file in files if file.defaults is not None), None)
        if defaults is not None:
            texts, source = {"cleanup.policy": "delete", **texts_of(defaults)}, TOPIC_SETTINGS
        texts |= texts_of(self._known[min(roots, key=self._roots.paths.index)].below_file(topic).settings)
        texts |= internal_texts(topic)
        if of_cluster is not None:
            texts, source = {**texts, **of_cluster}, source or CLUSTER_METADATA_TOPIC
        changed = next((file.changed[topic] for file in files if topic in file.changed), None)
        if changed is not None:
            texts, source = {**texts, **texts_of(changed)}, TOPIC_SETTINGS
        written = accepted(texts, topic)
        by_caller = self._given.by_topic.get(topic)
        is_known = of_cluster is not None or by_caller is not None or written.says_what_is_deleted
        if not is_known:
            by_caller = self._given.by_topic.get(ALL_TOPICS)
        if by_caller is not None:
            written.texts |= by_caller
            return written, "the settings that were given"
        if not is_known and self._given.keep_forever:
            written.texts = {**KEEP_FOREVER, **written.texts}
            return written, "--keep-forever"
        if not is_known:
            self._unknown.append(topic)
        return written, source

    def check_all_known(self) -> None:
        """Raise UnknownSettingsError if nothing is known of a topic's settings."""
        if not self._unknown:
            return
        named = ", ".join(self._unknown[:_MOST_NAMED]) + (", ..." if len(self._unknown) > _MOST_NAMED else "")
        raise UnknownSettingsError(
            f"the roots do not say the settings of {len(self._unknown)} topics ({named}): by its defaults a broker "
            f"would delete records older than seven days at once, and of compacted topics too; give the settings in a "
            f"file (--config FILE: JSON by topic and Kafka's name), or keep all records (--keep-forever)",
            topics=tuple(self._unknown),
        )


def _next_producer_id(of_states: int, facts: Mapping[str, list[PartitionFacts]], cluster: ClusterState) -> int:
    """Return the first id of the next block that no producer of the roots has.

    Those that kstore drew at random are above all that a controller hands out.
    Args: of_states: the largest id of a transactional id.
    """
    used = max([of_states, *(one.max_producer_id for partitions in facts.values() for one in partitions)])
    before = cluster.image.next_producer_id
    free = (used // _PRODUCER_ID_BLOCK + 1) * _PRODUCER_ID_BLOCK
    return max(free, before) if before < LEAST_RANDOM_ID else free
