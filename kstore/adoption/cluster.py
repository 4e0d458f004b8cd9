"""What a cluster left in a root: its metadata, and what of it a root with one broker cannot carry on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kstore.adoption.records import BROKER_RESOURCE
from kstore.env import Env, join_path
from kstore.errors import AdoptionError, CorruptCheckpointError
from kstore.log.files.names import (
    CLUSTER_METADATA_TOPIC,
    LOG_SUFFIX,
    QUORUM_STATE,
    PartitionDirectory,
    is_metadata_snapshot_name,
    metadata_snapshot_epoch,
    metadata_snapshot_offset,
)
from kstore.store.metadata.image import TOPIC_RESOURCE, MetadataImage, QuotaEntity
from kstore.store.metadata.replay import read_metadata
from kstore.types import TopicPartition

METADATA = TopicPartition(CLUSTER_METADATA_TOPIC, 0)


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """The metadata of a cluster in a root.

    directory: None if no root has any. files: the names of its files. is_in_use: a broker has started on it; a snapshot
    alone is what adoption, or the format of a root, wrote. offset, epoch: of the end of the log and its snapshots.
    log_end_offset: of the log alone. voter_ids: None if nothing names the voters.
    """

    directory: PartitionDirectory | None = None
    image: MetadataImage = field(default_factory=MetadataImage)
    files: tuple[str, ...] = ()
    is_in_use: bool = False
    offset: int = 0
    epoch: int = 0
    timestamp_ms: int = -1
    log_end_offset: int = 0
    voter_ids: tuple[int, ...] | None = None

    @property
    def snapshots(self) -> list[str]:
        """The names of its snapshots, sorted."""
        return sorted(name for name in self.files if is_metadata_snapshot_name(name))


def read_cluster(roots: Sequence[str], env: Env) -> ClusterState:
    """Read the metadata of the cluster in one of the roots.

    Raises: AdoptionError if two roots have some, or it is damaged; StorageError.
    """
    found = [state for root in roots if (state := _in_root(root, env)) is not None]
    if len(found) > 1:
        paths = " and ".join(state.directory.path for state in found if state.directory is not None)
        raise AdoptionError(f"the metadata of a cluster lies in two roots: {paths}; move one of them out of its root")
    return found[0] if found else ClusterState()


def _in_root(root: str, env: Env) -> ClusterState | None:
    directory = PartitionDirectory(METADATA, join_path(root, str(METADATA)), root, env)
    if env.stat(directory.path) is None:
        return None
    names = tuple(sorted(env.listdir(directory.path)))
    is_in_use = QUORUM_STATE in names or any(
        name.endswith(LOG_SUFFIX) and _size(join_path(directory.path, name), env) for name in names
    )
    if not is_in_use and not any(map(is_metadata_snapshot_name, names)):
        return None
    try:
        metadata = read_metadata(directory)
    except CorruptCheckpointError as error:
        raise AdoptionError(
            f"{error}; to go on without it, move {directory.path} out of the root", path=directory.path
        ) from error
    quorum_epoch = 0 if metadata.quorum is None else metadata.quorum.leader_epoch
    ids = [(metadata_snapshot_offset(name) or 0, metadata_snapshot_epoch(name) or 0) for name in names]
    return ClusterState(
        directory=directory,
        image=metadata.image,
        files=names,
        is_in_use=is_in_use,
        offset=max([metadata.end_offset, metadata.log_end_offset or 0, *(offset for offset, _ in ids)]),
        epoch=max([metadata.epoch, quorum_epoch, *(epoch for _, epoch in ids)]),
        timestamp_ms=metadata.timestamp_ms,
        log_end_offset=metadata.log_end_offset or 0,
        voter_ids=metadata.voter_ids,
    )


def _size(path: str, env: Env) -> int:
    status = env.stat(path)
    return 0 if status is None else status.size_in_bytes


def what_is_lost(image: MetadataImage, *, own_ids: Collection[int], here: Iterable[str]) -> Iterator[str]:
    """Yield in words what a cluster's metadata has that is not carried over.

    Args: own_ids: the node ids that the broker of the roots had and has; here: the topics that the roots have.
    """
    brokers = {"", *map(str, own_ids)}
    for acl in image.acls.values():
        yield (
            f"ACL: {acl['principal']} from {acl['host']}, operation {acl['operation']}, permission "
            f"{acl['permissionType']}, on resource type {acl['resourceType']} {acl['resourceName']!r} "
            f"(pattern type {acl['patternType']})"
        )
    for entity, quotas in sorted(image.quotas.items(), key=str):
        yield f"quota of {_entity_text(entity)}: {', '.join(f'{name}={value:g}' for name, value in quotas.items())}"
    for mechanism, user in sorted(image.scram):
        yield f"SCRAM credential of user {user!r} (mechanism {mechanism})"
    if image.tokens:
        yield f"{len(image.tokens)} delegation tokens"
    for broker_id in sorted(set(image.brokers) - set(own_ids)):
        yield f"broker {broker_id}: what only it had of its partitions"
    missing = sorted(set(image.topics_by_name()) - set(here))
    for name in missing:
        yield f"topic {name!r}: no partition of it is in the roots"
    for resource_type, name in sorted(image.configs):
        if resource_type not in (TOPIC_RESOURCE, BROKER_RESOURCE) or (
            resource_type == BROKER_RESOURCE and name not in brokers
        ):
            settings = image.configs[resource_type, name]
            yield f"settings of resource type {resource_type} {name!r}: {', '.join(sorted(settings))}"
    if image.unknown_count:
        yield f"{image.unknown_count} records that this version of kstore does not know"


def _entity_text(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else repr(name)}" for kind, name in entity)
