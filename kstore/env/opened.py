"""OpenFiles: the open files of a log, in a cache that all logs share; and checks that a file is the listed one."""

from __future__ import annotations

from collections.abc import Callable

from kstore.env.base import ENOENT, NO_FILE, Closing, Identity, ReadFile, is_same_file
from kstore.env.cache import Loan, SharedCache
from kstore.env.env import Env
from kstore.env.files import OPEN_FILES
from kstore.errors import LogClosedError, LogReplacedError, StorageError


class OpenFiles(Closing):
    """The files of one log, opened on first read and kept open in a cache shared by all logs of the process.

    When none is in use, at most OPEN_FILES_LIMIT files are open in the process, however many logs and segments there
    are. They are closed with the last object that reads them, if close() is not called before.
    Threads: thread-safe. A file that is in use is never closed.
    """

    def __init__(self, env: Env, cache: SharedCache[ReadFile] | None = None) -> None:
        self._env = env
        self._cache = OPEN_FILES if cache is None else cache
        self._is_closed = self._is_released = False
        # The owner in the cache, which would keep this object alive.
        self._owner = object()

    def __del__(self) -> None:
        # An interrupt in __init__ leaves no owner.
        if hasattr(self, "_owner") and not self._is_released:
            self._cache.release_soon(self._owner)

    @property
    def is_high_latency(self) -> bool:
        """Whether a read is so slow that it is worth extra work to save one."""
        return self._env.is_high_latency

    @property
    def url(self) -> str | None:
        """The URL from which another process makes an Env that reads these files, None for local ones."""
        return self._env.url

    def lend(self, path: str, listed: Identity | None = None) -> Loan[ReadFile]:
        """Return the open file, for use until it is given back.

        Args: listed: the identity that the file must have, None for any.
        Raises: LogReplacedError if it is another file, or was removed; LogClosedError after close().
        """
        if self._is_closed:
            raise _closed_before(path)
        loan = self._cache.lend(self._owner, path, lambda: self._opened(path, listed))
        if listed is None:
            return loan
        try:
            is_listed = loan.value.is_listed(listed)
        except BaseException:
            loan.give_back()
            raise
        return loan if is_listed else self._lent_again(loan, path, listed)

    def _lent_again(self, loan: Loan[ReadFile], path: str, listed: Identity) -> Loan[ReadFile]:
        """Lend the file that has the name now, after the cached one turned out to be another."""
        loan.give_back()
        self.forget(path)
        loan = self._cache.lend(self._owner, path, lambda: self._opened(path, listed))
        try:
            check_listed(loan.value, listed)
        except BaseException:
            loan.give_back()
            raise
        return loan

    def check_in_place(self, path: str, listed: Identity) -> None:
        """Raise LogReplacedError if the path does not refer to the listed file; StorageError.  Cost: a stat."""
        check_in_place(path, listed, self._env)

    def forget(self, path: str) -> None:
        """Close one file, if it is open, as soon as it is not in use: another file may get its name."""
        self._cache.release_one(self._owner, path)

    def pread_of(self, path: str, listed: Identity | None = None) -> Callable[..., bytes]:
        """Return the pread of the open file without keeping it in use: after the file is closed, it raises
        LogClosedError.

        Raises: as lend.
        """
        with self.lend(path, listed) as file:
            return file.pread

    def close(self) -> None:
        """Close every file; those in use are closed when they are returned."""
        self._is_closed = True
        self._cache.release(self._owner)
        self._is_released = True

    def _opened(self, path: str, listed: Identity | None) -> ReadFile:
        if self._is_closed:
            raise _closed_before(path)
        return self._env.open_read(path) if listed is None else open_listed(path, listed, self._env)


def open_listed(path: str, listed: Identity, env: Env) -> ReadFile:
    """Open a file for reading that was listed before.

    Raises: LogReplacedError if another file has its name, or none; StorageError.
    """
    try:
        file = env.open_read(path)
    except StorageError as error:
        if error.errno != ENOENT:
            raise
        message = f"{path} was removed since it was listed: open the log again"
        raise LogReplacedError(message, path=path, expected="the file that was listed", found=NO_FILE) from error
    try:
        check_listed(file, listed)
    except BaseException:
        file.close()
        raise
    return file


def check_in_place(path: str, listed: Identity, env: Env) -> None:
    """Raise LogReplacedError if a path does not refer to the listed file; StorageError.  Cost: a stat."""
    status = env.stat(path, follow_symlinks=False)
    if status is None or not is_same_file(listed, status.file):
        found = NO_FILE if status is None else str(status.file)
        message = f"{path} was removed or replaced since it was listed: open the log again"
        raise LogReplacedError(message, path=path, expected=str(listed), found=found)


def check_listed(file: ReadFile, listed: Identity) -> None:
    """Raise LogReplacedError if an open file is not the one that was listed."""
    if not file.is_listed(listed):
        raise LogReplacedError(
            f"{file.path} was replaced since it was listed: open the log again",
            path=file.path,
            expected=str(listed),
            found=str(file.identity()),
        )


def _closed_before(path: str) -> LogClosedError:
    return LogClosedError(f"the log was closed before the call that reads {path}", path=path)
