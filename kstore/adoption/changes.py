"""Changes of topics in a root that a cluster has, written into its metadata too, so that a broker takes them."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from uuid import UUID

from kstore._core import HeaderScan
from kstore.adoption.cluster import ClusterState, read_cluster
from kstore.adoption.features import LEAST_LEVEL
from kstore.adoption.records import (
    PartitionOfTopic,
    TopicToWrite,
    batch_of,
    config_value,
    partition_values,
    removal_value,
    snapshot_of,
    topic_values,
)
from kstore.adoption.settings import accepted, internal_texts, texts_of
from kstore.config import LogConfig
from kstore.env import Env, join_path
from kstore.errors import AdoptionError, ClusterOwnedError
from kstore.log.files.checkpoints import replace_file
from kstore.log.files.names import (
    LOG_SUFFIX,
    PartitionDirectory,
    metadata_snapshot_name,
    metadata_snapshot_offset,
    parse_segment_name,
)
from kstore.log.files.records import scan_headers
from kstore.log.files.root_files import MetaProperties
from kstore.log.segment.file_records import FileRecords
from kstore.record.schemas.topics import DecodedMessage, decode_metadata_record
from kstore.store.metadata.image import METADATA_VERSION, TOPIC_RESOURCE, TopicState
from kstore.store.settings.file import read_settings
from kstore.store.settings.owner import owning_cluster
from kstore.store.store import WritableStore

# What a record is of, where a later one takes the place of an earlier one.
_SUBJECTS = {"PARTITION_RECORD": ("topicId", "partitionId"), "CONFIG_RECORD": ("resourceType", "resourceName", "name")}
_OF_TOPIC = ("TOPIC_RECORD", "PARTITION_RECORD")
# Those are said of each topic: what a broker's defaults would be in their place is not known.
_ALWAYS_SAID = ("cleanup_policy", "retention_bytes", "retention_ms")
_DEFAULTS = LogConfig()
_SET_ASIDE = "a broker sets topics aside (-stray) that are created in %s now: %s"
_logger = logging.getLogger("kstore.log")


def keep_topics_in_metadata(store: WritableStore, tell_refusal: Callable[[str], object] | None = None) -> None:
    """Have all changes of topics of a store written into the metadata of its root from now on, as long as it is open.

    Nothing is done in a root that no cluster has. A change whose records cannot be written raises: it is done in the
    root then, and not in the metadata.
    Args: tell_refusal: called at the first change with the reason, in words, if the metadata cannot be written: it is
        not in the root, it is damaged, or its cluster has other nodes; None to log a warning.
    Cost: nothing until the first change; then the metadata is read for each.
    """
    held = weakref.ref(store)
    is_checked = False
    tell = tell_refusal or partial(_logger.warning, _SET_ASIDE, store.root)

    def note(topic: str, settings: Mapping[str, object]) -> None:
        nonlocal is_checked
        kept = held()
        if kept is None:
            return
        if not is_checked:
            is_checked = True
            is_owned = owning_cluster(kept.root, kept._env) is not None
            reason = _refusal(kept) if is_owned else None
            if reason is not None:
                tell(reason)
            if reason is not None or not is_owned:
                kept.on_topic_change = None
                return
        _note(kept, topic, settings)

    store.on_topic_change = note


def _refusal(store: WritableStore) -> str | None:
    """Return why the metadata of a root that a cluster has cannot be written, None if it can be."""
    try:
        cluster = read_cluster([store.root], store._env)
        if cluster.directory is None:
            return f"the metadata of its cluster is not in {store.root}"
        _check_single(cluster, store.meta_properties)
    except AdoptionError as error:
        return str(error)
    return None


def _check_single(cluster: ClusterState, properties: MetaProperties) -> tuple[int, UUID]:
    """Return the node and the directory id of the one broker of a cluster.  Raises: ClusterOwnedError."""
    node_id, directory_id = properties.node_id, properties.directory_id
    voters = cluster.voter_ids or ((node_id,) if node_id is not None else ())
    others = {*cluster.image.brokers, *voters} - {node_id}
    if others:
        raise ClusterOwnedError(f"its cluster has other nodes: {', '.join(map(str, sorted(map(int, others))))}")
    level = cluster.image.features.get(METADATA_VERSION, 0)
    if node_id is None or directory_id is None or level < LEAST_LEVEL:
        raise ClusterOwnedError(
            f"its metadata is of a version without ids of directories (metadata.version {level}, needed {LEAST_LEVEL})"
        )
    return node_id, directory_id


def _note(store: WritableStore, topic: str, changed: Mapping[str, object]) -> None:
    """Write into the metadata what is different of a topic. Requires the mutex of the store."""
    env = store._env
    cluster = read_cluster([store.root], env)
    if cluster.directory is None:
        raise AdoptionError(f"the metadata of the cluster is no longer in {store.root}", path=store.root)
    node_id, directory_id = _check_single(cluster, store.meta_properties)
    known = cluster.image.topics_by_name().get(topic)
    numbers = [partition for name, partition in store.partitions if name == topic]
    topic_id = store.topic_id(topic) if numbers else None
    is_removed = known is not None and known.topic_id != topic_id
    values: list[bytes] = []
    if topic_id is not None:
        wanted = TopicToWrite(
            name=topic,
            topic_id=topic_id,
            settings=_settings(store, topic, changed, is_new=known is None or is_removed),
            partitions=[_partition(store, topic, number, directory_id) for number in numbers],
        )
        unset = _taken_back(store, topic, changed)
        values = [*_differences(wanted, None if is_removed else known, cluster, node_id, unset=unset)]
    removed = known.topic_id if is_removed and known is not None else None
    if values or removed is not None:
        _write(cluster.directory, cluster, values, removed, env)


def _partition(store: WritableStore, topic: str, number: int, directory_id: UUID) -> PartitionOfTopic:
    epoch = store.log(topic, number).leader_epochs.latest_epoch
    return PartitionOfTopic(number=number, leader_epoch=epoch + 1, directory_id=directory_id)


def _settings(store: WritableStore, topic: str, changed: Mapping[str, object], *, is_new: bool) -> dict[str, str]:
    """Return the settings of a topic: of a new one all, else those that the root keeps and that were changed."""
    if is_new:
        given = store.overridden_topic_config(topic)
        return accepted(_said(store.topic_config(topic), topic, given), topic).texts
    kept = read_settings(store.root, store._env).changed.get(topic, {})
    said = {name: value for name, value in changed.items() if value is not None}
    return accepted(texts_of({**kept, **said}), topic).texts


def _taken_back(store: WritableStore, topic: str, changed: Mapping[str, object]) -> dict[str, str | None]:
    """Return what the metadata has to say in place of settings that were taken back, None for nothing."""
    default = accepted(_said(store.config, topic), topic).texts
    names = texts_of({name: getattr(store.config, name) for name, value in changed.items() if value is None})
    return {name: default.get(name) for name in names}


def _said(config: LogConfig, topic: str, given: Iterable[str] = ()) -> dict[str, str]:
    """Return what the metadata has to say of a topic with a configuration, of which some settings were given."""
    names = {*_ALWAYS_SAID, *given}
    said = {
        item.name: getattr(config, item.name)
        for item in fields(LogConfig)
        if item.name in names or getattr(config, item.name) != getattr(_DEFAULTS, item.name)
    }
    return {**texts_of(said), **internal_texts(topic)}


def _differences(
    wanted: TopicToWrite,
    known: TopicState | None,
    cluster: ClusterState,
    node_id: int,
    *,
    unset: Mapping[str, str | None],
) -> Iterator[bytes]:
    """Yield the records that make of the topic in the metadata the one in the root.

    A partition whose log was filled with batches of a higher leader epoch than the metadata has gets another record: by
    the lower one a broker would cut entries off the checkpoint of the log.
    """
    if known is None:
        yield from topic_values(wanted, node_id)
        return
    texts = cluster.image.configs.get((TOPIC_RESOURCE, wanted.name), {})
    for name, text in sorted({**unset, **wanted.settings}.items()):
        if texts.get(name) != text:
            yield config_value(TOPIC_RESOURCE, wanted.name, name, text)
    changed = []
    for partition in wanted.partitions:
        before = known.partitions.get(partition.number)
        if before is None:
            changed.append(partition)
        elif before.leader_epoch < partition.leader_epoch - 1:
            changed.append(replace(partition, partition_epoch=before.partition_epoch + cluster.is_in_use))
    new = TopicToWrite(name=wanted.name, topic_id=wanted.topic_id, partitions=changed)
    yield from partition_values(new, node_id)


def _write(
    directory: PartitionDirectory, cluster: ClusterState, values: Sequence[bytes], removed: UUID | None, env: Env
) -> None:
    if cluster.is_in_use:
        removal = [] if removed is None else [removal_value(removed)]
        _append(directory, cluster, [*removal, *values], env)
    else:
        _replace_snapshot(directory, cluster, values, removed, env)


def _append(directory: PartitionDirectory, cluster: ClusterState, values: Sequence[bytes], env: Env) -> None:
    """Append a batch to the log of the metadata, after its last whole batch; the one voter that there is finds it
    committed.
    """
    names = [parse_segment_name(name) for name in env.listdir(directory.path)]
    bases = sorted(name.base_offset for name in names if name is not None and name.suffix == LOG_SUFFIX)
    if not bases or cluster.offset != cluster.log_end_offset:
        raise AdoptionError(f"the log of the metadata in {directory.path} ends below its snapshot", path=directory.path)
    path = join_path(directory.path, f"{bases[-1]:020d}{LOG_SUFFIX}")
    with env.open_read(path) as read:
        end_position = read.size()
        scan = HeaderScan(position=0, end_position=end_position, base_offset=bases[-1], path=path)
        position = scan_headers(read, scan, position=0, end_position=end_position).position
    batch = batch_of(values, offset=cluster.offset, leader_epoch=cluster.epoch, timestamp_ms=env.wall_clock_ms())
    with env.open_write(path) as file:
        file.pwrite(batch, position=position)
        file.truncate(position + len(batch))
        file.sync()


def _replace_snapshot(
    directory: PartitionDirectory, cluster: ClusterState, values: Sequence[bytes], removed: UUID | None, env: Env
) -> None:
    """Write another snapshot in place of one that no broker has loaded."""
    last = max(cluster.snapshots, key=lambda name: metadata_snapshot_offset(name) or 0)
    with FileRecords.open(join_path(directory.path, last), is_read_only=True, env=env) as file:
        kept = [record.value for batch in file.batches() if not batch.is_control for record in batch]
    name = None
    if removed is not None:
        name = cluster.image.topics[removed].name
    left = [value for value in kept if value is not None and not _is_of(value, removed, name)]
    snapshot = snapshot_of(_latest([*left, *values]), timestamp_ms=env.wall_clock_ms())
    offset = max(snapshot.record_count, cluster.offset + 1)
    path = join_path(directory.path, metadata_snapshot_name(offset, epoch=cluster.epoch))
    replace_file(path, snapshot.data, env)
    for old in cluster.snapshots:
        env.unlink(join_path(directory.path, old))
    env.sync_directory(directory.path)


def _latest(values: Iterable[bytes]) -> list[bytes]:
    """Return records without the earlier ones of the same partition or setting, and without settings taken back."""
    latest: dict[object, bytes] = {}
    for number, value in enumerate(values):
        message = decode_metadata_record(value)
        subject: object = number
        if isinstance(message, DecodedMessage):
            names = _SUBJECTS.get(message.name)
            subject = number if names is None else tuple(message.fields[name] for name in names)
            if message.name == "CONFIG_RECORD" and message.fields["value"] is None:
                latest.pop(subject, None)
                continue
        latest[subject] = value
    return list(latest.values())


def _is_of(value: bytes, topic_id: UUID | None, name: str | None) -> bool:
    """Whether a record is one of a topic."""
    if topic_id is None:
        return False
    message = decode_metadata_record(value)
    if not isinstance(message, DecodedMessage):
        return False
    if message.name == "CONFIG_RECORD":
        return bool((message.fields["resourceType"], message.fields["resourceName"]) == (TOPIC_RESOURCE, name))
    return message.name in _OF_TOPIC and bool(message.fields["topicId"] == topic_id)
