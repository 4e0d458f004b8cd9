"""AdoptionPlan: all that is to be written to make roots ready for a broker, found without writing anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from kstore.adoption.cluster import METADATA, ClusterState, read_cluster, what_is_lost
from kstore.adoption.features import Release, features_of, has_eligible_leaders
from kstore.adoption.records import (
    BROKER_EPOCH,
    BROKER_RESOURCE,
    broker_value,
    config_values,
    feature_value,
    producer_ids_value,
    snapshot_of,
    topic_values,
)
from kstore.adoption.report import AdoptionReport
from kstore.adoption.roots import Roots, notices_of, owners
from kstore.adoption.topics import GivenSettings, PlannedTopics, known_settings, plan_topics
from kstore.env import join_path
from kstore.errors import AdoptionError, ClusterOwnedError
from kstore.log.files.checkpoints import TEMPORARY_SUFFIX
from kstore.log.files.names import BOOTSTRAP_CHECKPOINT, PartitionDirectory, metadata_snapshot_name
from kstore.log.files.root_files import MetaProperties, random_id

_MAX_SNAPSHOT_BYTES = 1024 * 1024 * 1024
_REPLICAS = "min.insync.replicas"


@dataclass(frozen=True, kw_only=True)
class AdoptionRequest:
    """What the caller asks for; see kstore.adopt."""

    node_id: int | None
    cluster_id: str | None
    release: Release | None
    settings: GivenSettings
    replaces: bool
    set_aside: str | None


@dataclass(frozen=True, kw_only=True)
class AdoptionPlan:
    """What is to be written.

    properties: the meta.properties of each root; without_id: partitions that get an id; directory: that of the
    metadata; snapshot_name, snapshot: the file in it, None if it is there already. moved: files of an earlier cluster,
    by their path, that go to set_aside, which is None if there are none; removed: snapshots of an earlier adoption.
    """

    roots: Roots
    properties: Mapping[str, MetaProperties]
    without_id: tuple[tuple[PartitionDirectory, UUID], ...]
    directory: str
    snapshot_name: str
    snapshot: bytes | None
    moved: tuple[str, ...]
    removed: tuple[str, ...]
    set_aside: str | None
    report: AdoptionReport


def plan_adoption(roots: Roots, request: AdoptionRequest, *, is_dry: bool) -> AdoptionPlan:
    """Find out what is to be written.  Raises: as kstore.adopt."""
    if not roots.topics:
        raise AdoptionError(f"there is no partition in {', '.join(roots.paths)}: a broker makes a root of its own")
    cluster = read_cluster(roots.paths, roots.env)
    if cluster.is_in_use and not request.replaces and cluster.directory is not None:
        raise ClusterOwnedError(
            f"{cluster.directory.path} is the metadata of a cluster, and a broker starts on it as it is; to give the "
            f"root a metadata of its own, with its topics, ids and settings, and set this one aside: --replace",
            path=cluster.directory.path,
        )
    known = known_settings(roots)
    properties = owners(roots, node_id=request.node_id, cluster_id=request.cluster_id, replaces=request.replaces)
    owner = properties[roots.paths[0]]
    if owner.node_id is None or owner.cluster_id is None:
        raise AdoptionError(f"expected a node id and a cluster id for {roots.paths[0]}, found {owner}")
    topics = plan_topics(roots, cluster, properties, known, request.settings)
    features = features_of(request.release, cluster.image.features)
    home = roots.paths[0] if cluster.directory is None else cluster.directory.root
    directory = join_path(home, str(METADATA))
    own_ids = [owner.node_id, *(one.node_id for one in roots.properties.values() if one and one.node_id is not None)]
    values = [*_values(own_ids, properties, features, cluster, topics)]
    timestamp_ms = roots.env.wall_clock_ms()
    name, data = _snapshot(values, cluster, timestamp_ms)
    moved, removed = _superseded(roots, cluster, name)
    set_aside = _set_aside(roots, request, home) if moved else None
    report = AdoptionReport(
        roots=roots.paths,
        node_id=owner.node_id,
        cluster_id=owner.cluster_id,
        features=features,
        topics=tuple(topics.adopted),
        next_producer_id=topics.next_producer_id,
        snapshot=join_path(directory, name),
        is_changed=data is not None or bool(moved or topics.without_id or _differing(roots, properties)),
        is_dry_run=is_dry,
        set_aside=set_aside,
        lost=tuple(what_is_lost(cluster.image, own_ids=own_ids, here=roots.topics)),
        left_alone=tuple(roots.left_alone),
        notices=tuple(_notices(roots, topics)),
        server_properties=tuple(_server_properties(roots, owner.node_id, home, features, topics)),
    )
    return AdoptionPlan(
        roots=roots,
        properties={path: properties[path] for path in _differing(roots, properties)},
        without_id=tuple(topics.without_id),
        directory=directory,
        snapshot_name=name,
        snapshot=data,
        moved=moved,
        removed=removed,
        set_aside=set_aside,
        report=report,
    )


def _differing(roots: Roots, properties: Mapping[str, MetaProperties]) -> list[str]:
    return [path for path in roots.paths if roots.properties[path] != properties[path]]


def _values(
    own_ids: Sequence[int],
    properties: Mapping[str, MetaProperties],
    features: Mapping[str, int],
    cluster: ClusterState,
    topics: PlannedTopics,
) -> Iterator[bytes]:
    """Yield the records of the metadata, in the order of a broker's snapshots.

    Args: own_ids: the node id of the broker, and those that it had, under which it may have settings.
    """
    node_id = own_ids[0]
    for name, level in features.items():
        yield feature_value(name, level)
    registered = cluster.image.brokers.get(node_id)
    is_ours = registered is not None and not cluster.is_in_use and registered["brokerEpoch"] == BROKER_EPOCH
    incarnation_id = registered["incarnationId"] if registered is not None and is_ours else random_id()
    yield broker_value(node_id, incarnation_id, [one.directory_id for one in properties.values() if one.directory_id])
    of_all = dict(cluster.image.configs.get((BROKER_RESOURCE, ""), {}))
    if has_eligible_leaders(features) or _REPLICAS in of_all:
        of_all[_REPLICAS] = "1"
    yield from config_values(BROKER_RESOURCE, "", of_all)
    of_node = (cluster.image.configs.get((BROKER_RESOURCE, str(one))) for one in own_ids)
    yield from config_values(BROKER_RESOURCE, str(node_id), next(filter(None, of_node), {}))
    for topic in topics.to_write:
        yield from topic_values(topic, node_id)
    yield producer_ids_value(topics.next_producer_id)


def _snapshot(values: list[bytes], cluster: ClusterState, timestamp_ms: int) -> tuple[str, bytes | None]:
    """Return the name of the snapshot and its bytes, None if a snapshot that nobody has used has the same records.

    The epoch in its name is above that of any log that is there, so that a broker cuts that log and begins after it.
    """
    if not cluster.is_in_use and cluster.directory is not None and len(cluster.snapshots) == 1:
        (there,) = cluster.snapshots
        path = join_path(cluster.directory.path, there)
        same = snapshot_of(values, timestamp_ms=cluster.timestamp_ms).data
        if cluster.directory.env.read_file(path, max_bytes=_MAX_SNAPSHOT_BYTES) == same:
            return there, None
    snapshot = snapshot_of(values, timestamp_ms=timestamp_ms)
    offset = max(snapshot.record_count, cluster.offset + 1)
    return metadata_snapshot_name(offset, epoch=cluster.epoch + 1), snapshot.data


def _superseded(roots: Roots, cluster: ClusterState, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the files that are set aside, and those that are removed: snapshots that an earlier adoption wrote."""
    moved = [join_path(root, BOOTSTRAP_CHECKPOINT) for root in roots.paths]
    moved = [path for path in moved if roots.env.stat(path) is not None]
    if cluster.directory is None:
        return tuple(moved), ()
    old = [other for other in cluster.files if other != name]
    # What a write that failed left: the next one may take its place.
    unfinished = [other for other in old if other.endswith(TEMPORARY_SUFFIX)]
    whole = [other for other in old if other not in unfinished]
    is_kept = cluster.is_in_use or not cluster.epoch
    moved += [join_path(cluster.directory.path, other) for other in whole if is_kept]
    gone = unfinished if is_kept else old
    return tuple(moved), tuple(join_path(cluster.directory.path, other) for other in gone)


def _set_aside(roots: Roots, request: AdoptionRequest, home: str) -> str:
    """Return the path of the new directory for the files of an earlier cluster: beside the root, outside of it."""
    if request.set_aside is not None:
        return request.set_aside
    number = 1
    while roots.env.stat(f"{home}.set-aside-{number}") is not None:
        number += 1
    return f"{home}.set-aside-{number}"


def _notices(roots: Roots, topics: PlannedTopics) -> Iterator[str]:
    yield from notices_of(roots)
    yield from (f"damaged: {text}; `kstore verify` shows all of it, `kstore recover` repairs" for text in topics.damage)
    if topics.on_defaults:
        yield (
            f"{len(topics.on_defaults)} topics leave to the broker's defaults what is deleted "
            f"({', '.join(topics.on_defaults[:5])}): put the log.* settings of the old server.properties into the "
            f"new one"
        )


def _server_properties(
    roots: Roots, node_id: int, home: str, features: Mapping[str, int], topics: PlannedTopics
) -> Iterator[str]:
    """Yield the lines that one broker, which is the controller too, needs to start on the roots."""
    yield "process.roles=broker,controller"
    yield f"node.id={node_id}"
    yield f"controller.quorum.voters={node_id}@localhost:9093"
    yield "controller.listener.names=CONTROLLER"
    yield "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"
    yield f"log.dirs={','.join(roots.paths)}"
    yield f"metadata.log.dir={home}"
    yield "offsets.topic.replication.factor=1"
    yield "transaction.state.log.replication.factor=1"
    yield "transaction.state.log.min.isr=1"
    if features.get("share.version", 0):
        yield "share.coordinator.state.topic.replication.factor=1"
        yield "share.coordinator.state.topic.min.isr=1"
    if topics.on_defaults:
        yield "log.retention.ms=-1"
