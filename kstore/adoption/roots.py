"""The log.dirs roots of one broker: their partitions, whose they are, and what in them keeps a broker from starting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kstore.env import Env, join_path, shown_path
from kstore.errors import AdoptionError, ClusterOwnedError
from kstore.log.files.names import (
    CLUSTER_METADATA_TOPIC,
    PartitionDirectory,
    has_future_logs,
    partitions_of_root,
    retired_state,
)
from kstore.log.files.root_files import MetaProperties, id_text, random_id, read_meta_properties
from kstore.store.settings.owner import owning_cluster
from kstore.types import parse_partition_directory_name

Value = TypeVar("Value")
_DEFAULT_NODE_ID = 1
# Kafka: RemoteIndexCache.DIR_NAME. The only directory in a root that is no partition's.
_REMOTE_INDEXES = "remote-log-index-cache"


@dataclass(kw_only=True)
class Roots:
    """The roots of one broker.

    topics: their partitions by topic and number, without the metadata's; properties: of each root, as they are (None
    if there are none); left_alone: directories that a broker set aside, or was moving.
    """

    paths: tuple[str, ...]
    env: Env
    topics: dict[str, dict[int, PartitionDirectory]] = field(default_factory=dict)
    properties: dict[str, MetaProperties | None] = field(default_factory=dict)
    left_alone: list[str] = field(default_factory=list)


def look_into(paths: Sequence[str], env: Env) -> Roots:
    """List the partitions of some roots.

    Raises: AdoptionError for a partition that is in two roots, and for a directory that keeps a broker from starting;
        CorruptCheckpointError for a malformed meta.properties; LogNotFoundError, StorageError.
    """
    roots = Roots(paths=tuple(paths), env=env)
    for path in paths:
        roots.properties[path] = read_meta_properties(path, env)
        for directory in partitions_of_root(path, env):
            topic, number = directory.topic_partition
            if topic == CLUSTER_METADATA_TOPIC:
                continue
            other = roots.topics.setdefault(topic, {}).setdefault(number, directory)
            if other is not directory:
                raise AdoptionError(
                    f"partition {directory.topic_partition} is in two roots, with which a broker does not start: "
                    f"{other.path} and {directory.path}; move the one that is not wanted out of its root",
                    path=directory.path,
                )
        _look_at_others(roots, path)
    return roots


def _look_at_others(roots: Roots, path: str) -> None:
    for name in sorted(roots.env.listdir(path)):
        if retired_state(name) is not None:
            roots.left_alone.append(join_path(path, name))
            continue
        is_partition = parse_partition_directory_name(name) is not None
        if not is_partition and name != _REMOTE_INDEXES and roots.env.is_directory(join_path(path, name)):
            raise AdoptionError(
                f"{join_path(path, name)} is no directory of a partition: a broker does not start with it; move it out "
                f"of the root",
                path=join_path(path, name),
            )


def owners(roots: Roots, *, node_id: int | None, cluster_id: str | None, replaces: bool) -> dict[str, MetaProperties]:
    """Return the meta.properties that each root is to have.

    What is in the roots is kept; ids of directories are drawn where there are none.
    Raises: ClusterOwnedError for a root of another node or cluster, unless `replaces`; AdoptionError for two roots with
        the same directory id.
    """
    there = [properties for properties in roots.properties.values() if properties is not None]
    node = _first(node_id, (properties.node_id for properties in there))
    node = _DEFAULT_NODE_ID if node is None else node
    cluster = _first(cluster_id, (properties.cluster_id for properties in there)) or id_text(random_id())
    made: dict[str, MetaProperties] = {}
    for path, properties in roots.properties.items():
        # The ids of a root that kstore made, and that no cluster has, say nothing yet.
        if properties is not None and not replaces and owning_cluster(path, roots.env) is not None:
            _check_owner(path, properties, node_id=node, cluster_id=cluster)
        directory_id = None if properties is None else properties.directory_id
        made[path] = MetaProperties(1, cluster, node, directory_id or random_id())
    ids: dict[object, str] = {}
    for path, wanted in made.items():
        other = ids.setdefault(wanted.directory_id, path)
        if other != path:
            raise AdoptionError(
                f"{path} and {other} have the same directory.id, with which a broker does not start: remove it from "
                f"the meta.properties of the one that is a copy",
                path=path,
            )
    return made


def _first(given: Value | None, there: Iterable[Value | None]) -> Value | None:
    return given if given is not None else next((one for one in there if one is not None), None)


def _check_owner(path: str, properties: MetaProperties, *, node_id: int, cluster_id: str) -> None:
    for name, wanted, found in (
        ("node id", node_id, properties.node_id),
        ("cluster id", cluster_id, properties.cluster_id),
    ):
        if found is not None and found != wanted:
            raise ClusterOwnedError(
                f"{shown_path(path)} has the {name} {found}, expected {wanted}: leave it away to keep it, or take the "
                f"root over with --replace",
                path=path,
            )


def notices_of(roots: Roots) -> Iterator[str]:
    """Yield what of the roots a user has to know."""
    for path in roots.paths:
        if has_future_logs(path, roots.env):
            yield f"{path} has unfinished moves of partitions (-future): a broker does not go on with them"
