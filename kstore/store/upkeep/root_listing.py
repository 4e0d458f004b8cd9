"""RootListing: the partitions of a root to which another process may add some, or delete them and create them again."""

from __future__ import annotations

from collections.abc import Mapping

from kstore.env import Env, FileStatus, Identity, is_same_file, is_settled
from kstore.log.files.names import PartitionDirectory, partitions_of_root
from kstore.types import TopicPartition


class RootListing:
    """Sees what has changed in a root since the last look.

    Threads: requires the mutex of the store.
    """

    def __init__(self, root: str, env: Env) -> None:
        self._root = root
        self._env = env
        self._status: FileStatus | None = None
        self._opened: dict[TopicPartition, Identity] = {}

    def note(self, directory: PartitionDirectory) -> None:
        """Remember which directory is there, before its log is opened; a second call does nothing."""
        if directory.topic_partition in self._opened:
            return
        status = self._env.stat(directory.path)
        if status is not None:
            self._opened[directory.topic_partition] = status.file

    def changed(
        self, known: Mapping[TopicPartition, PartitionDirectory]
    ) -> dict[TopicPartition, PartitionDirectory] | None:
        """Return the partitions that there are now, with another object for one that was noted and was created again
        since; None if they are those that are known.

        Raises: StorageError.
        Cost: a stat if nothing in the root has changed for a while; else a listing, and a stat for each noted one.
        """
        self._env.invalidate_listing(self._root)
        status = self._env.stat(self._root)
        if status is not None and status == self._status:
            return None
        listed = {directory.topic_partition: directory for directory in partitions_of_root(self._root, self._env)}
        kept = {name: known[name] for name in listed.keys() & known.keys() if not self._is_replaced(known[name])}
        self._opened = {name: identity for name, identity in self._opened.items() if name in kept}
        self._status = status if status is not None and is_settled(status, self._env) else None
        return None if len(kept) == len(known) == len(listed) else listed | kept

    def _is_replaced(self, directory: PartitionDirectory) -> bool:
        opened = self._opened.get(directory.topic_partition)
        if opened is None:
            return False
        status = self._env.stat(directory.path)
        return status is None or not is_same_file(opened, status.file)
