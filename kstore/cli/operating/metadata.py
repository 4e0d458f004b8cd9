"""`kstore metadata`: the state of a KRaft cluster, as a tree of paths like those of kafka-metadata-shell."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, TypeAlias

from kstore.cli import EXIT_DAMAGE, EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.output import printable
from kstore.cli.render import JSON_TEXT, plain_value, time_text
from kstore.env import FileKind, join_path, locate, shown_path, split_path
from kstore.log.files.names import CLUSTER_METADATA_TOPIC, find_partition
from kstore.log.files.root_files import id_text
from kstore.serializers import plain_number
from kstore.store.metadata.replay import read_metadata, read_snapshot
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kstore.cli.output import Output
    from kstore.env import StrPath
    from kstore.store.metadata.image import MetadataImage, PartitionState, QuotaEntity
    from kstore.store.metadata.replay import ClusterMetadata

Node: TypeAlias = "dict[str, Any]"
REDACTED = "[redacted]"
_INDENT = "  "
_MOST_NAMES, _MOST_PROBLEMS = 12, 10
# Kafka: ConfigResource.Type, ScramMechanism.
_RESOURCES = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
_BROKER = 4
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_MIGRATION_STATES = ("NONE", "PRE_MIGRATION", "MIGRATION", "POST_MIGRATION", "UNKNOWN")
_RECOVERY_STATES = ("RECOVERED", "RECOVERING")
_QUOTA_NAMES = {"client-id": "clientId"}
# Settings of brokers whose values are keys or passwords, and those of plug-ins that sound like it.
_SENSITIVE = re.compile(r"password|secret|jaas|credential|token|\bkeystore\.(key|certificate)|truststore\.certificates")


def run(directory: str, path: str | None, out: Output, *, at: int | None, is_tree: bool, is_json: bool) -> int:
    """Show a node of the tree, the root without a path, and return the exit status: 1 if records did not fit."""
    metadata = read(directory, at=at)
    names = [name for name in (path or "").split("/") if name]
    node = find(tree_of(metadata), names, shown_path(directory))
    if is_json:
        out.line(JSON_TEXT(node))
    elif not isinstance(node, dict):
        out.line(_text(node))
    elif is_tree:
        for line in _tree_lines(node, ""):
            out.line(line)
    else:
        for name, child in node.items():
            out.line(printable(name) + ("/" if isinstance(child, dict) else f"\t{_text(child)}"))
    for notice in notices_of(metadata):
        out.notice(notice)
    return EXIT_DAMAGE if metadata.image.problems else EXIT_FINE


def read(directory: StrPath, *, at: int | None = None) -> ClusterMetadata:
    """Read the metadata in a root, in its partition directory, or in one snapshot file.

    Raises: WrongUseError if there is none; as read_metadata.
    """
    env, path = locate(directory, None)
    name = split_path(path)[1]
    status = env.stat(path)
    if status is not None and status.kind is FileKind.FILE:
        if at is not None:
            raise WrongUseError("--at is for a directory: one snapshot has one state")
        return read_snapshot(path, env)
    inner = join_path(path, str(TopicPartition(CLUSTER_METADATA_TOPIC, 0)))
    if env.stat(inner) is not None:
        return read_metadata(find_partition(inner, env), at=at)
    partition = find_partition(path, env) if name == split_path(inner)[1] else None
    if partition is None:
        raise WrongUseError(
            f"{shown_path(path)} has no {split_path(inner)[1]}: pass the root or metadata.log.dir of a KRaft broker or "
            "controller, that directory, or a file *.checkpoint"
        )
    return read_metadata(partition, at=at)


def find(node: Any, names: list[str], place: str) -> Any:
    """Return the node at a path.

    The path may be the shell's: with image/ before it, and byName/ or byId/ below topics, byId/ below acls.
    Raises: WrongUseError that lists what is there.
    """
    if names[:1] == ["image"]:
        names = names[1:]
    if names[:2] == ["topics", "byId"] and len(names) > 2:
        by_id = {topic["id"]: name for name, topic in node["topics"].items()}
        names = ["topics", by_id.get(names[2], names[2]), *names[3:]]
    elif names[:2] in (["topics", "byName"], ["acls", "byId"]):
        names = [names[0], *names[2:]]
    for depth, name in enumerate(names):
        if not isinstance(node, dict) or name not in node:
            above = "/".join(names[:depth]) or "/"
            there = sorted(node) if isinstance(node, dict) else []
            similar = difflib.get_close_matches(name, there, n=1)
            hint = f"; did you mean {'/'.join([*names[:depth], similar[0]])}?" if similar else ""
            some = ", ".join(there[:_MOST_NAMES]) + (", ..." if len(there) > _MOST_NAMES else "")
            shown = f": it has {some}" if there and not hint else ""
            raise WrongUseError(f"the metadata in {place} has no {name!r} in {above}{shown}{hint}")
        node = node[name]
    return node


def notices_of(metadata: ClusterMetadata) -> Iterator[str]:
    """Yield what the reader should know of the state besides it."""
    image, end = metadata.image, metadata.end_offset
    if metadata.committed_offset < end:
        yield (
            f"records from offset {metadata.committed_offset} to {end - 1} may not be committed: the quorum's high "
            "watermark is in no file, and only what a snapshot has is known to be"
        )
    if metadata.open_transaction is not None:
        name = metadata.open_transaction or "unnamed"
        yield f"a metadata transaction ({name}) has not ended: its records do not count"
    if image.unknown_count:
        first = image.unknown[0]
        count = image.unknown_count
        yield f"records of unknown types or versions: {count}, the first at offset {first.offset}: {first.reason}"
    yield from image.problems[:_MOST_PROBLEMS]
    if len(image.problems) > _MOST_PROBLEMS:
        yield f"problems that are not shown: {len(image.problems) - _MOST_PROBLEMS}"


def tree_of(metadata: ClusterMetadata) -> Node:
    """Return the state as a tree: names of kafka-metadata-shell, with fields in place of its texts."""
    image = metadata.image
    return {
        "provenance": {
            "offset": metadata.end_offset - 1,
            "epoch": metadata.epoch,
            "time": time_text(metadata.timestamp_ms),
            "snapshotOffset": metadata.snapshot_offset,
            "committedOffset": metadata.committed_offset,
            "logStartOffset": metadata.log_start_offset,
            "logEndOffset": metadata.log_end_offset,
        },
        "quorum": _quorum(metadata),
        "features": {
            **dict(sorted(image.features.items())),
            "zkMigrationState": _named(_MIGRATION_STATES, image.zk_migration_state),
        },
        "cluster": {
            "brokers": {str(number): _registration(fields) for number, fields in sorted(image.brokers.items())},
            "controllers": {str(number): _registration(fields) for number, fields in sorted(image.controllers.items())},
        },
        "topics": {
            name: {
                "id": id_text(topic.topic_id),
                **{str(number): partition_node(state) for number, state in sorted(topic.partitions.items())},
            }
            for name, topic in image.topics_by_name().items()
        },
        "configs": _configs(image),
        "clientQuotas": {_entity_name(entity): _quotas(keys) for entity, keys in image.quotas.items()},
        "producerIds": {"nextProducerId": image.next_producer_id},
        "acls": {id_text(number): _without(fields, "id") for number, fields in image.acls.items()},
        "scram": _scram(image),
        "delegationToken": {name: _without(fields, "tokenId") for name, fields in sorted(image.tokens.items())},
        "unknown": [plain_value(record._asdict()) for record in image.unknown],
    }


def partition_node(state: PartitionState) -> Node:
    """Return the fields of a partition, named as PartitionRegistration names them."""
    return {
        "replicas": state.replicas,
        "directories": [id_text(directory) for directory in state.directories],
        "isr": state.isr,
        "removingReplicas": state.removing_replicas,
        "addingReplicas": state.adding_replicas,
        "elr": state.elr,
        "lastKnownElr": state.last_known_elr,
        "leader": state.leader,
        "leaderRecoveryState": _named(_RECOVERY_STATES, state.leader_recovery_state),
        "leaderEpoch": state.leader_epoch,
        "partitionEpoch": state.partition_epoch,
    }


def _quorum(metadata: ClusterMetadata) -> Node:
    quorum, voters = metadata.quorum, metadata.image.voters
    ids = metadata.voter_ids
    by_record = {} if voters is None else {voter.voter_id: plain_value(voter) for voter in voters.voters}
    return {
        "leaderId": None if quorum is None else quorum.leader_id,
        "leaderEpoch": None if quorum is None else quorum.leader_epoch,
        "kraftVersion": metadata.image.kraft_version,
        "voters": None if ids is None else {str(number): by_record.get(number) for number in ids},
    }


def _registration(fields: Mapping[str, Any]) -> Node:
    shown = _without(fields, "brokerId", "controllerId")
    shown["endPoints"] = {endpoint["name"]: _without(endpoint, "name") for endpoint in fields["endPoints"]}
    shown["features"] = {
        feature["name"]: f"{feature['minSupportedVersion']}-{feature['maxSupportedVersion']}"
        for feature in fields["features"]
    }
    return shown


def _configs(image: MetadataImage) -> Node:
    configs = {}
    for (kind, name), values in image.configs.items():
        resource = _RESOURCES.get(kind, str(kind))
        configs[f"{resource}:{name}" if name else resource] = {
            key: REDACTED if kind == _BROKER and _SENSITIVE.search(key) else value
            for key, value in sorted(values.items())
        }
    return dict(sorted(configs.items()))


def _entity_name(entity: QuotaEntity) -> str:
    parts = []
    for kind, name in entity:
        escaped = "" if name is None else re.sub(r"([\\()])", r"\\\1", name)
        parts.append(f"{_QUOTA_NAMES.get(kind, kind)}({'<default>' if name is None else escaped})")
    return "_".join(parts)


def _quotas(keys: Mapping[str, float]) -> Node:
    return {name: plain_number(value) for name, value in sorted(keys.items())}


def _scram(image: MetadataImage) -> Node:
    shown: Node = {name: {} for name in _MECHANISMS.values()}
    for (mechanism, user), iterations in sorted(image.scram.items()):
        shown.setdefault(_MECHANISMS.get(mechanism, str(mechanism)), {})[user] = {"iterations": iterations}
    return shown


def _named(names: tuple[str, ...], number: int) -> str | int:
    return names[number] if 0 <= number < len(names) else number


def _without(fields: Mapping[str, Any], *names: str) -> Node:
    shown = plain_value({name: value for name, value in fields.items() if name not in names})
    return shown if isinstance(shown, dict) else {}


def _tree_lines(node: Node, indent: str) -> Iterator[str]:
    for name, child in node.items():
        if isinstance(child, dict):
            yield f"{indent}{printable(name)}:"
            yield from _tree_lines(child, indent + _INDENT)
        else:
            yield f"{indent}{printable(name)}: {_text(child)}"


def _text(value: object) -> str:
    return printable(value) if isinstance(value, str) else JSON_TEXT(value)
