"""TopicIds: the ids of the topics of a root, for partitions whose partition.metadata does not tell them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from contextlib import suppress

from kstore.env import Env, join_path
from kstore.errors import CorruptCheckpointError, StorageError
from kstore.log.files.names import PARTITION_METADATA, PartitionDirectory, partitions_of_root
from kstore.log.files.root_files import read_partition_metadata, write_partition_metadata
from kstore.store.settings.cluster import read_cluster_topics

_logger = logging.getLogger("kstore.log")


class TopicIds:
    """Finds the id of a topic in the cluster's metadata, or beside another partition of it.

    A broker renames a partition without an id to -stray, and does not start with a malformed partition.metadata.
    Args: partitions: of the root; None to list them when they are needed.
    Threads: requires the lock of the root.
    """

    def __init__(self, root: str, env: Env, partitions: Sequence[PartitionDirectory] | None = None) -> None:
        self._root = root
        self._env = env
        self._listed = partitions
        self._of_cluster: dict[str, uuid.UUID] | None = None
        self._partitions: dict[str, list[PartitionDirectory]] | None = None
        self._of_partitions: dict[str, uuid.UUID | None] = {}

    def settle(self, directory: PartitionDirectory, *, dry_run: bool = False) -> bool:
        """Write a partition's partition.metadata if it is malformed, or is missing and the id is known; return whether
        that was done, or would be in a dry run.

        Raises: CorruptCheckpointError for a malformed file if the id is not known, with nothing changed; StorageError.
        """
        problem = None
        try:
            if read_partition_metadata(directory.path, self._env) is not None:
                return False
        except CorruptCheckpointError as error:
            problem = error
        topic_id = self._found(directory)
        if topic_id is None:
            if problem is None:
                return False
            raise CorruptCheckpointError(
                f"{problem}; a broker does not start with it, and neither the cluster's metadata in {self._root} nor "
                f"another partition of the topic has the topic's id: write it there, or remove the file if the topic "
                f"has none",
                path=problem.path,
                reason=problem.reason,
            ) from problem
        _logger.warning(
            "%s: the topic's id is written again%s",
            join_path(directory.path, PARTITION_METADATA),
            "" if problem is None else f": {problem.reason}",
        )
        if not dry_run:
            write_partition_metadata(directory.path, topic_id, self._env)
        return True

    def _found(self, directory: PartitionDirectory) -> uuid.UUID | None:
        topic = directory.topic_partition.topic
        if self._of_cluster is None:
            self._of_cluster = self._read_cluster()
        if topic not in self._of_cluster and topic not in self._of_partitions:
            self._of_partitions[topic] = self._beside(topic)
        return self._of_cluster.get(topic) or self._of_partitions.get(topic)

    def _read_cluster(self) -> dict[str, uuid.UUID]:
        try:
            topics = read_cluster_topics(self._root, self._env) or {}
        except CorruptCheckpointError as error:
            _logger.warning("continuing without the cluster's metadata: %s", error)
            return {}
        return {name: topic.topic_id for name, topic in topics.items()}

    def _beside(self, topic: str) -> uuid.UUID | None:
        """Return the id that all partitions of a topic have which have one, None if they differ."""
        partitions = self._partitions
        if partitions is None:
            partitions = {}
            for directory in partitions_of_root(self._root, self._env) if self._listed is None else self._listed:
                partitions.setdefault(directory.topic_partition.topic, []).append(directory)
            self._partitions = partitions
        ids = set()
        for directory in partitions.get(topic, ()):
            with suppress(CorruptCheckpointError, StorageError):
                ids.add(read_partition_metadata(directory.path, self._env))
        ids.discard(None)
        return ids.pop() if len(ids) == 1 else None
