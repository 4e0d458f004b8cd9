"""Quarantine: copies of what recovery takes out of a partition, in a directory of their own beside the segments.

Layer 5. A copy is durable before the bytes it is of are cut. Names tell where a range came from: FILE.POSITION.
"""

from __future__ import annotations

from collections.abc import Iterable

from kstore.log.atomic_file import replace_file
from kstore.log.env import Env, FileKind, join_path, split_path
from kstore.log.filenames import QUARANTINE_DIRECTORY
from kstore.log.preallocated import holds_only_zeros

_MAX_NAMES_TRIED = 10_000


class Quarantine:
    """Keeps copies below a partition directory; with is_on false it keeps nothing, and moved files are removed.

    Attributes: kept (paths of the copies).
    """

    def __init__(self, partition_path: str, *, env: Env, is_on: bool) -> None:
        self.kept: list[str] = []
        self._partition_path = partition_path
        self._path = join_path(partition_path, QUARANTINE_DIRECTORY)
        self._env = env
        self._is_on = is_on

    def keep_range(self, path: str, *, position: int, size_in_bytes: int) -> None:
        """Copy a range of a file; zeros alone are not worth a copy.

        Raises: StorageError.
        """
        if not self._is_on or size_in_bytes <= 0:
            return
        with self._env.open_read(path) as source:
            if holds_only_zeros(source, position=position, end_position=position + size_in_bytes):
                return
            target = self._free_path(f"{split_path(path)[1]}.{position}")
            replace_file(target, source.chunks(size_in_bytes, position=position), self._env)
        self.kept.append(target)

    def take(self, names: Iterable[str]) -> None:
        """Move files of the partition here, or remove them, in that order; durable when it returns.

        A directory is moved in any case: nothing here removes what it holds.
        Raises: StorageError.
        """
        taken = list(names)
        if not taken:
            return
        for name in taken:
            path = join_path(self._partition_path, name)
            if self._is_on or self._is_directory(path):
                target = self._free_path(name)
                self._env.rename(path, target)
                self.kept.append(target)
            else:
                self._env.unlink(path)
        if self.kept:
            self._env.sync_directory(self._path)
        self._env.sync_directory(self._partition_path)

    def _is_directory(self, path: str) -> bool:
        status = self._env.stat(path, follow_symlinks=False)
        return status is not None and status.kind is FileKind.DIRECTORY

    def _free_path(self, name: str) -> str:
        if self._env.make_directory(self._path):
            self._env.sync_directory(self._partition_path)
        path = join_path(self._path, name)
        for number in range(1, _MAX_NAMES_TRIED):
            if self._env.stat(path, follow_symlinks=False) is None:
                break
            path = join_path(self._path, f"{name}.{number}")
        return path
