"""PartitionLock: the right to write in a log.dirs root, held by one process, and within it by one log per partition.

The root's `.lock` is held as long as any of its partitions is, as a broker's LogManager holds it. The root directory
itself is locked too: if somebody removes `.lock`, a second kstore process still cannot get in, and the first one
notices that a broker may have (check_held).
"""

from __future__ import annotations

import errno
import threading
from math import inf
from typing import Protocol
from weakref import WeakSet

from kstore.env import DEFAULT_ENV, Env, LockFile, join_path
from kstore.env.process import LockHolder, after_fork_in_child
from kstore.errors import LogClosedError, LogLockedError, StorageError
from kstore.log.files.names import LOCK_FILE

_WHOLE_ROOT = None
_FIRST_WAIT_MS, _LONGEST_WAIT_MS = 1.0, 50.0


class _HeldRoot:
    """A root that this process holds, by its `.lock` and as a directory, and the names in use in it.

    owners contains None if the whole root is in use.
    """

    def __init__(self, file: LockFile, directory: LockFile) -> None:
        self.file = file
        self.directory = directory
        self.owners: set[str | None] = set()

    def close(self) -> None:
        """Release both locks, the `.lock` last, so that a process that gets it finds the directory unlocked."""
        try:
            self.directory.close()
        finally:
            self.file.close()


class PartitionLock:
    """The right to write one partition of a root, or all of it if name is None, until release().

    Another lock of that partition, or of any partition by another process or a JVM, is refused. Dropping the last
    reference releases the lock too.
    Threads: thread-safe.
    """

    _held: _HeldRoot | None = None

    def __init__(self, held: _HeldRoot, *, root: str, name: str | None, process_id: int, env: Env) -> None:
        self.root = root
        self.name = name
        self._process_id = process_id
        self._env = env
        self._held = held

    @classmethod
    def acquire(
        cls, root: str, name: str | None, env: Env = DEFAULT_ENV, *, timeout_s: float | None = 0.0
    ) -> PartitionLock:
        """Lock the partition directory called `name`, or the whole root for None.

        Args: timeout_s: how long to wait while it is locked, in seconds, None without limit. It is tried at most 50 ms
            after it became free; those that wait have no order.
        Raises: LogLockedError; StorageError if the root does not exist or `.lock` cannot be created.
        """
        deadline_ms = inf if timeout_s is None else env.monotonic_ms() + 1000 * timeout_s
        wait_ms = _FIRST_WAIT_MS
        while True:
            left_ms = deadline_ms - env.monotonic_ms()
            try:
                return cls._acquire_now(root, name, env, finds_holder=left_ms <= 0)
            except LogLockedError as error:
                if left_ms <= 0:
                    if timeout_s:
                        error.args = (f"{error}; waited {1000 * timeout_s:.0f} ms for it",)
                    raise
            env.sleep_ms(min(wait_ms, left_ms))
            wait_ms = min(2 * wait_ms, _LONGEST_WAIT_MS)

    @classmethod
    def _acquire_now(cls, root: str, name: str | None, env: Env, *, finds_holder: bool) -> PartitionLock:
        path = join_path(root, LOCK_FILE)
        with _registry.mutex:
            try:
                _registry.close_unowned()
                held = _registry.find(path, env)
                if held is not None:
                    if _WHOLE_ROOT in held.owners or name in held.owners or name is _WHOLE_ROOT:
                        raise _locked(root, name, "another log or store of this process writes there")
                else:
                    held = _hold(root, name, env, finds_holder=finds_holder)
                lock = cls(held, root=root, name=name, process_id=env.process_id(), env=env)
                held.owners.add(name)
            except BaseException:
                _registry.close_unowned()
                raise
        return lock

    def share(self, name: str) -> PartitionLock:
        """Lock one partition under this lock of the whole root, which may be released first.

        Raises: LogLockedError, LogClosedError; ValueError if this is not the lock of a whole root.
        """
        if self.name is not _WHOLE_ROOT:
            raise ValueError(f"only the lock of a whole root can be shared, this is {self.name}'s")
        self.check_owner()
        with _registry.mutex:
            held = self._held
            if held is None:
                raise self._released()
            if name in held.owners:
                raise _locked(self.root, name, "another log of this process writes there")
            # First: the name of a lock that nobody got is given back as the lock is dropped.
            lock = PartitionLock(held, root=self.root, name=name, process_id=self._process_id, env=self._env)
            held.owners.add(name)
        return lock

    def release(self) -> None:
        """Release the lock; does nothing the second time, or in a child process made by fork().

        A call that was interrupted may be made again.
        """
        if self._env.process_id() != self._process_id:
            return
        with _registry.mutex:
            held = self._held
            if held is not None:
                held.owners.discard(self.name)
                try:
                    _registry.close_unowned()
                except StorageError:
                    self._held = None
                    raise
                self._held = None

    def check_owner(self) -> None:
        """Raise unless this process may write.

        Raises: LogLockedError in a child process made by fork(), which has a copy of the lock; LogClosedError after
            release().
        """
        if self._env.process_id() != self._process_id:
            raise _locked(self.root, self.name, f"the lock is that of process {self._process_id}, which made this one")
        if self._held is None:
            raise self._released()

    @property
    def is_released(self) -> bool:
        return self._held is None

    @property
    def is_owner(self) -> bool:
        """Whether this process acquired the lock, and is not a child made by fork()."""
        return self._env.process_id() == self._process_id

    def check_held(self) -> None:
        """Raise unless this process may write and the lock still excludes others.

        Raises: as check_owner; LogLockedError if `.lock` was removed or replaced: a broker may have got in.
        Cost: one stat call.
        """
        self.check_owner()
        held = self._held
        if held is None or not held.file.is_in_place():
            reason = f"{join_path(self.root, LOCK_FILE)} was removed or replaced, and another writer may have come in"
            raise _locked(self.root, self.name, reason)

    def __del__(self) -> None:
        if self._held is not None:
            self.release()

    def _released(self) -> LogClosedError:
        return LogClosedError(f"the lock of {_place(self.root, self.name)} was released", path=self.root)


class _Registry:
    """The roots that this process holds, by the identity of `.lock`, which is stable while the file is open."""

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self._roots: dict[tuple[int, int], _HeldRoot] = {}

    def find(self, path: str, env: Env) -> _HeldRoot | None:
        status = env.stat(path, follow_symlinks=False)
        return None if status is None else self._roots.get(status.identity[:2])

    def add(self, held: _HeldRoot) -> None:
        self._roots[held.file.identity()] = held

    def close_unowned(self) -> None:
        """Release the roots in which no name is in use, also those whose release was interrupted.

        Raises: StorageError of one, which counts as released.
        """
        # A list of the items could meet the garbage collector, and with it a dropped log that releases its root here.
        for identity, held in self._roots.copy().items():
            if not held.owners:
                try:
                    held.close()
                except StorageError:
                    self._roots.pop(identity, None)
                    raise
                self._roots.pop(identity, None)

    def forget(self) -> None:
        """Reset in a child made by fork(), where another thread may have held the mutex; close the copied
        descriptors.
        """
        copies = self._roots.copy().values()
        self.mutex = threading.RLock()
        self._roots = {}
        for held in copies:
            held.close()


class Disowned(Protocol):
    """An object that a child made by fork() has a copy of, but may not write with."""

    def _disown(self) -> None:
        """Refuse to write from now on, and replace locks that a thread of the parent may have held."""


_registry = _Registry()
_disowned: WeakSet[Disowned] = WeakSet()


def disown_in_child(owner: Disowned) -> None:
    """Have owner._disown() called in every child made by fork(), as long as the owner is alive."""
    _disowned.add(owner)


def _hold(root: str, name: str | None, env: Env, *, finds_holder: bool) -> _HeldRoot:
    """Lock a root that this process does not hold. Requires the registry's mutex."""

    def refusal(held: str) -> LogLockedError:
        holder = env.lock_holder(path, root) if finds_holder else None
        return _locked(root, name, f"{holder or 'another process, perhaps a broker,'} holds {held}", holder)

    path = join_path(root, LOCK_FILE)
    file = directory = None
    try:
        file = env.lock_file(path)
        if file is None:
            raise refusal(path)
        directory = env.lock_directory(root)
        if directory is None:
            raise refusal(f"{root}, and {path} was removed since it came")
        held = _HeldRoot(file, directory)
        _registry.add(held)
    except BaseException:
        for lock in (directory, file):
            if lock is not None:
                lock.close()
        raise
    return held


def _disown_all() -> None:
    _registry.forget()
    for owner in list(_disowned):
        owner._disown()


after_fork_in_child(_disown_all)


def _place(root: str, name: str | None) -> str:
    return root if name is _WHOLE_ROOT else join_path(root, name)


def _locked(root: str, name: str | None, reason: str, holder: LockHolder | None = None) -> LogLockedError:
    place = _place(root, name)
    error = LogLockedError(f"cannot write {place}: {reason}", path=place, errno=errno.EAGAIN)
    if holder is not None:
        error.holder_pid, error.holder_name = holder.pid, holder.name
    return error
