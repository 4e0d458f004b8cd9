"""Deletion of partitions as Kafka does it: a directory is renamed to <topic>-<partition>.<id>-delete and removed later.

The rename, once it is durable, is the deletion; what a crash leaves of the removal is removed after the next opening.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from typing import NamedTuple

from kstore.env import Env, FileKind, join_path
from kstore.errors import StorageError
from kstore.log.files.names import (
    PartitionDirectory,
    deleted_directory_name,
    retired_state,
)
from kstore.types import parse_partition_directory_name

_logger = logging.getLogger("kstore.log")


class DeletedDirectory(NamedTuple):
    """A directory that was renamed, and when it may go, by the monotonic clock."""

    path: str
    due_ms: int


def directories_of_topic(root: str, topic: str, env: Env) -> list[PartitionDirectory]:
    """Return what is named like a partition of a topic in a root, sorted.  Raises: StorageError."""
    partitions = ((name, parse_partition_directory_name(name)) for name in env.listdir(root))
    return sorted(
        PartitionDirectory(partition, join_path(root, name), root, env)
        for name, partition in partitions
        if partition is not None and partition.topic == topic
    )


class DeletedDirectories:
    """The directories of a root that were renamed for deletion, those of earlier openings included.

    Threads: requires the mutex of the store.  Source: Kafka LogManager.asyncDelete, deleteLogs.
    """

    def __init__(self, root: str, *, delay_ms: int, env: Env) -> None:
        self._root = root
        self._env = env
        self._delay_ms = delay_ms
        due_ms = env.monotonic_ms() + delay_ms
        names = [name for name in env.listdir(root) if retired_state(name) == "delete"]
        self._waiting = [DeletedDirectory(join_path(root, name), due_ms) for name in names]

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, directories: Iterable[PartitionDirectory]) -> None:
        """Durably rename directories for deletion.  Raises: StorageError, with some possibly renamed."""
        for directory in directories:
            target = join_path(self._root, deleted_directory_name(directory.topic_partition, uuid.uuid4()))
            self._env.rename(directory.path, target)
            _logger.info("deleted %s: it is %s until its removal", directory.topic_partition, target)
            self._waiting.append(DeletedDirectory(target, self._env.monotonic_ms() + self._delay_ms))
        self._env.sync_directory(self._root)

    def taken(self, *, is_due: bool = True) -> list[DeletedDirectory]:
        """Return the directories that are due, or all of them, for removed(); they no longer wait."""
        now_ms = self._env.monotonic_ms()
        taken = [deleted for deleted in self._waiting if not is_due or deleted.due_ms <= now_ms]
        self._waiting = [deleted for deleted in self._waiting if deleted not in taken]
        return taken

    def keep(self, left: Iterable[DeletedDirectory]) -> None:
        """Let directories wait again that could not be removed."""
        self._waiting += left


def removed(directories: Iterable[DeletedDirectory], env: Env) -> tuple[list[str], list[DeletedDirectory]]:
    """Remove directories; return the paths of those that are gone, and the others, of which it is logged why not."""
    gone, left = [], []
    for directory in directories:
        try:
            remove_tree(directory.path, env)
        except StorageError as error:
            _logger.warning("%s is left for the next removal: %s", directory.path, error)
            left.append(directory)
            continue
        _logger.info("removed %s", directory.path)
        gone.append(directory.path)
    return gone, left


def remove_tree(path: str, env: Env) -> None:
    """Remove a file or directory with all in it; links are removed, not followed.  Raises: StorageError."""
    status = env.stat(path, follow_symlinks=False)
    if status is None:
        return
    if status.kind is not FileKind.DIRECTORY:
        env.unlink(path)
        return
    for name in env.listdir(path):
        remove_tree(join_path(path, name), env)
    env.remove_directory(path)
