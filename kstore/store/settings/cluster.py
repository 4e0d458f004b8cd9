"""read_cluster_topics: the topics of a KRaft cluster and the settings they were given, by `__cluster_metadata`.

The log is replayed over its latest snapshot, as a broker replays it. The defaults of a broker are in its
server.properties, not in the root: what a topic does not set itself is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kstore.config import LogConfig
from kstore.env import Env, join_path
from kstore.errors import CorruptCheckpointError, CorruptionError, InvalidRecordError, UnsupportedError
from kstore.log.directory_source import DirectorySource
from kstore.log.files.checkpoints import malformed
from kstore.log.files.names import CLUSTER_METADATA_TOPIC, PartitionDirectory, metadata_snapshot_offset
from kstore.log.log import Log
from kstore.log.segment.file_records import FileRecords
from kstore.record import Record, RecordBatch
from kstore.record.control import ControlRecordType, control_record_type
from kstore.record.schemas.topics import DecodedMessage, decode_metadata_record
from kstore.types import TopicPartition

_TOPIC_RESOURCE = 2
_METADATA = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
# Settings that say what may be removed from a topic, and how Kafka writes their values.
_NUMBERS = (
    "retention.ms",
    "retention.bytes",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "file.delete.delay.ms",
)
# TopicRecord, ConfigRecord, RemoveTopicRecord, and the begin, end and abort of a transaction.
_TYPES = frozenset({2, 4, 9, 23, 24, 25})
_RATIO = "min.cleanable.dirty.ratio"
_POLICY = "cleanup.policy"


@dataclass(frozen=True)
class ClusterTopic:
    """A topic of a cluster: its id, and the settings it was given, by the names of LogConfig.

    problem: why they cannot be used, None if they can.
    """

    topic_id: UUID
    settings: Mapping[str, Any]
    problem: str | None = None


def read_cluster_topics(root: str, env: Env) -> dict[str, ClusterTopic] | None:
    """Return the topics of the cluster by name, None if the root does not hold its metadata.

    Raises: CorruptCheckpointError if the metadata is damaged, or not all of it is there; StorageError.
    Cost: reads the latest snapshot, and the log from there on.
    """
    directory = PartitionDirectory(_METADATA, join_path(root, str(_METADATA)), root, env)
    if env.stat(directory.path) is None:
        return None
    state = _State()
    try:
        state.replay(_records_of(directory))
        return state.topics()
    except CorruptCheckpointError:
        raise
    except (CorruptionError, UnsupportedError) as error:
        raise malformed(error.path or directory.path, f"the cluster's metadata cannot be read: {error}") from error


def _records_of(directory: PartitionDirectory) -> Iterator[Record]:
    """Yield the records that make up the metadata: those of the latest snapshot, and those of the log after it."""
    snapshots = {
        offset: name
        for name in directory.env.listdir(directory.path)
        if (offset := metadata_snapshot_offset(name)) is not None
    }
    start = 0
    if snapshots:
        start = max(snapshots)
        yield from _records_of_snapshot(join_path(directory.path, snapshots[start]), directory.env)
    with Log(DirectorySource(directory, config=LogConfig())) as log:
        if log.log_start_offset > start:
            raise malformed(
                directory.path,
                f"the log starts at offset {log.log_start_offset}, and no snapshot reaches it: the last one ends at "
                f"{start}",
            )
        if start < log.log_end_offset:
            for batch in log.batches(start):
                if not batch.header.is_control:
                    yield from (record for record in batch if record.offset >= start)


def _records_of_snapshot(path: str, env: Env) -> Iterator[Record]:
    is_whole = False
    with FileRecords.open(path, is_read_only=True, env=env) as file:
        for batch in file.batches():
            if batch.header.is_control:
                is_whole = is_whole or _has_footer(batch)
            else:
                yield from batch
    if not is_whole:
        raise malformed(path, "expected a snapshot with a footer, found none")


def _has_footer(batch: RecordBatch) -> bool:
    return any(control_record_type(record, batch) is ControlRecordType.SNAPSHOT_FOOTER for record in batch)


@dataclass
class _State:
    """The topics while records are replayed. What a transaction changes does not count before its end."""

    names: dict[UUID, str] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    before_transaction: tuple[dict[UUID, str], dict[str, dict[str, str]]] | None = None

    def replay(self, records: Iterable[Record]) -> None:
        for record in records:
            message = decode_metadata_record(record.value)
            if isinstance(message, DecodedMessage):
                self._take(message.name, message.fields)
            elif message.type_id is None or message.type_id in _TYPES:
                raise InvalidRecordError(f"the record at offset {record.offset}: {message.reason}")
        self._end(is_aborted=True)

    def topics(self) -> dict[str, ClusterTopic]:
        return {name: _topic_of(topic_id, self.settings.get(name, {})) for topic_id, name in self.names.items()}

    def _take(self, name: str, fields: Mapping[str, Any]) -> None:
        if name == "TOPIC_RECORD":
            self.names[fields["topicId"]] = fields["name"]
        elif name == "REMOVE_TOPIC_RECORD":
            removed = self.names.pop(fields["topicId"], None)
            if removed is not None:
                self.settings.pop(removed, None)
        elif name == "CONFIG_RECORD" and fields["resourceType"] == _TOPIC_RESOURCE:
            settings = self.settings.setdefault(fields["resourceName"], {})
            if fields["value"] is None:
                settings.pop(fields["name"], None)
            else:
                settings[fields["name"]] = fields["value"]
        elif name == "BEGIN_TRANSACTION_RECORD":
            copied = {topic: dict(settings) for topic, settings in self.settings.items()}
            self.before_transaction = dict(self.names), copied
        elif name in ("END_TRANSACTION_RECORD", "ABORT_TRANSACTION_RECORD"):
            self._end(is_aborted=name == "ABORT_TRANSACTION_RECORD")

    def _end(self, *, is_aborted: bool) -> None:
        if is_aborted and self.before_transaction is not None:
            self.names, self.settings = self.before_transaction
        self.before_transaction = None


def _topic_of(topic_id: UUID, texts: Mapping[str, str]) -> ClusterTopic:
    try:
        settings = _settings_of(texts)
        LogConfig(**settings)
    except (TypeError, ValueError) as error:
        return ClusterTopic(topic_id, {}, f"its settings in {CLUSTER_METADATA_TOPIC} are not understood: {error}")
    return ClusterTopic(topic_id, settings)


def _settings_of(texts: Mapping[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {_named(name): int(texts[name]) for name in _NUMBERS if name in texts}
    if _RATIO in texts:
        settings[_named(_RATIO)] = float(texts[_RATIO])
    if _POLICY in texts:
        policies = sorted({policy.strip() for policy in texts[_POLICY].split(",")} - {""})
        # Kafka 4.1 and newer allow none: nothing is compacted, or deleted because of its age or size.
        if not policies:
            settings |= {"retention_ms": -1, "retention_bytes": -1}
        settings[_named(_POLICY)] = ",".join(policies) or "delete"
    return settings


def _named(name: str) -> str:
    return name.replace(".", "_")
