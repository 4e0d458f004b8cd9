"""DeletedFiles: segment files that were renamed to .deleted and are unlinked later, for readers that still need them.

A process that dies leaves them; the next opening removes them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kstore.env import Env
from kstore.log.files.names import deleted_paths
from kstore.log.segment.segment import FileUse, LogContext


class _Deleted(NamedTuple):
    """Files renamed together: their present paths, when they may go, and what tells whether readers still hold them."""

    paths: tuple[str, ...]
    due_ms: int
    uses: tuple[weakref.ref[FileUse], ...]


class DeletedFiles:
    """The .deleted files of one log.

    Threads: every method requires the append lock.  Source: Kafka LocalLog.deleteSegmentFiles.
    """

    def __init__(self, context: LogContext, env: Env) -> None:
        self._context = context
        self._env = env
        self._waiting: list[_Deleted] = []

    def change_context(self, context: LogContext) -> None:
        """Take over file_delete_delay_ms for what is renamed from now on."""
        self._context = context

    def rename(self, paths: Iterable[str]) -> list[str]:
        """Rename those of the files that exist, and return their new paths; not durable yet."""
        renamed = []
        for path in paths:
            if self._exists(path):
                names = deleted_paths(path)
                # Readers may still hold what was deleted earlier under the same name.
                free = next((name for name in names if not self._exists(name)), names[-1])
                self._env.rename(path, free)
                renamed.append(free)
        return renamed

    def _exists(self, path: str) -> bool:
        return self._env.stat(path, follow_symlinks=False) is not None

    def keep(self, paths: Sequence[str], uses: Iterable[FileUse]) -> None:
        """Unlink renamed files once file_delete_delay_ms have passed and no reader holds one of the files."""
        due_ms = self._env.monotonic_ms() + self._context.config.file_delete_delay_ms
        self._waiting.append(_Deleted(tuple(paths), due_ms, tuple(map(weakref.ref, uses))))

    def remove_due(self) -> int:
        """Unlink what is due, and return the number of files."""
        now_ms = self._env.monotonic_ms()
        waiting, self._waiting = self._waiting, []
        removed = 0
        for deleted in waiting:
            if deleted.due_ms > now_ms or any(use() is not None for use in deleted.uses):
                self._waiting.append(deleted)
            else:
                removed += self._unlink(deleted)
        return removed

    def remove_all(self) -> None:
        """Unlink everything, before the log is closed."""
        waiting, self._waiting = self._waiting, []
        for deleted in waiting:
            self._unlink(deleted)

    def _unlink(self, deleted: _Deleted) -> int:
        # A later deletion may have given a file of the same name to the others.
        others = {path for other in self._waiting for path in other.paths}
        paths = [path for path in deleted.paths if path not in others]
        for path in paths:
            self._context.files.forget(path)
            self._env.unlink(path)
        return len(paths)
