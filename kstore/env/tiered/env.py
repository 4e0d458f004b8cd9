"""TieredEnv: an Env over two others, which shows files of the one as if they were in directories of the other."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from kstore.env.base import DiskSpace, FileKind, FileStatus, ReadFile, StrPath, join_path, split_path
from kstore.env.cache import SharedCache
from kstore.env.choosing import is_local, locate, shown_path
from kstore.env.env import Env, EnvMaker
from kstore.env.local import DEFAULT_ENV
from kstore.env.process import LockHolder
from kstore.env.tiered.views import Kept, View
from kstore.env.watching import DirectoryWatch
from kstore.errors import StorageError

# What views keep between two openings, in units of `Kept.weight`.
_MOST_KEPT = 1 << 22


class ShownDirectory(NamedTuple):
    """What a directory shows besides its own files: views by name; first_offset: nothing below it is of the log."""

    views: Mapping[str, View]
    first_offset: int = 0


class ShownFiles(Protocol):
    """Which files a TieredEnv shows.  Threads: thread-safe."""

    def directories(self, path: str) -> Collection[str]:
        """Return the names of directories that are shown in a directory and are not in it."""
        ...

    def is_partition(self, path: str) -> bool:
        """Whether a directory is known to be a partition's without a look at all that it shows."""
        ...

    def directory(self, path: str) -> ShownDirectory | None:
        """Return what a directory shows, None for only its own files."""
        ...

    def forget(self, path: str) -> None:
        """Drop what is known of a directory, of everything below it and of what it was found by."""
        ...

    def carried(self, paths: Iterable[str]) -> EnvMaker:
        """Return what makes a TieredEnv that shows what these directories show, in another process."""
        ...


class TieredEnv(Env):
    """The directories of `base`, which show views of files of `remote` among their own files. A file of its own hides
    a view of the same name.

    Args: base: None where all directories are shown; shown: the views.
    Attributes: remote, shown; kept: what views keep of it, for as long as this object lives.
    Threads: thread-safe.
    """

    has_views = True
    # A read may take a chunk, whatever the latency of a request.
    is_high_latency = True

    def __init__(self, base: Env | None, remote: Env, shown: ShownFiles) -> None:
        self._base = base
        self.remote = remote
        self.shown = shown
        self.kept: SharedCache[Kept] = SharedCache(
            limit=_MOST_KEPT, weigh=lambda kept: kept.weight, drop=lambda _: None
        )
        envs = (remote,) if base is None else (base, remote)
        self.parallel_requests = max(env.parallel_requests for env in envs)
        self.is_mutable = base is not None and base.is_mutable
        self.poll_interval = (base or remote).poll_interval

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._base!r}, {self.remote!r})"

    def showing(self, path: str, views: Mapping[str, View]) -> TieredEnv:
        """Return an Env that shows these views in one directory and nothing else; what views keep is common."""
        env = TieredEnv(None, self.remote, _Views((join_path(path, name), view) for name, view in views.items()))
        env.kept = self.kept
        return env

    @property
    def _paths(self) -> Env:
        return self.remote if self._base is None else self._base

    def absolute_path(self, path: StrPath) -> str:
        # The URL that the Env was made from may have a user and options, which no path of it has.
        is_url = isinstance(path, str) and not is_local(path)
        return self._paths.absolute_path(shown_path(str(path)) if is_url else path)

    def url_of(self, path: str) -> str:
        return self._paths.url_of(path)

    def carried(self, paths: Iterable[str]) -> EnvMaker:
        # Whether a file hides a view is asked again where it is opened.
        views = {path: view for path in paths for view in (self._shown_view(path),) if view is not None}
        base = None if self._base is None else self._base.url
        return CarriedFiles(base, self.remote.url, tuple(views.items()), is_alone=self._base is None)

    def carried_directories(self, paths: Iterable[str]) -> EnvMaker:
        return self.shown.carried(paths)

    def without_recursive_listing(self) -> Env:
        if self._base is None:
            return self
        env = TieredEnv(self._base.without_recursive_listing(), self.remote, self.shown)
        env.kept = self.kept
        return env

    def process_id(self) -> int:
        return DEFAULT_ENV.process_id()

    def open_read(self, path: str) -> ReadFile:
        view = self._view(path)
        if view is not None:
            return view.open(self, path)
        if self._base is None:
            raise _missing("open", path)
        return self._base.open_read(path)

    def read_untrusted(self, path: str, *, max_bytes: int) -> bytes | bytearray:
        if self._base is None or self._view(path) is not None:
            return self.read_file(path, max_bytes=max_bytes)
        return self._base.read_untrusted(path, max_bytes=max_bytes)

    def listdir(self, path: str) -> list[str]:
        shown = self.shown.directory(path)
        names = self.shown.directories(path)
        if self._base is not None:
            own = self._base.listdir(path)
        elif shown is None and not names and not self._is_above(path):
            raise _missing("list", path)
        else:
            own = []
        return sorted({*own, *names, *(shown.views if shown is not None else ())})

    def is_directory(self, path: str) -> bool:
        if self._base is not None and self._base.is_directory(path):
            return True
        return split_path(path)[1] in self.shown.directories(split_path(path)[0]) or self._is_above(path)

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        view = self._view(path)
        if view is not None:
            return _status(view, self)
        own = None if self._base is None else self._base.stat(path, follow_symlinks=follow_symlinks)
        if own is not None:
            return own
        return FileStatus(FileKind.DIRECTORY, 0, (0, 0, 0)) if self.is_directory(path) else None

    def disk_space(self, path: str) -> DiskSpace | None:
        return None if self._base is None else self._base.disk_space(path)

    def invalidate_listing(self, path: str) -> None:
        if self._base is not None:
            self._base.invalidate_listing(path)
        self.shown.forget(path)

    def is_known_partition(self, path: str) -> bool:
        return self.shown.is_partition(path)

    def first_offset(self, directory: str) -> int:
        shown = self.shown.directory(directory)
        return 0 if shown is None else shown.first_offset

    def watch(self) -> DirectoryWatch:
        return super().watch() if self._base is None else self._base.watch()

    def is_locked(self, path: str) -> bool:
        return self._base is not None and self._base.is_locked(path)

    def lock_holder(self, *paths: str) -> LockHolder | None:
        return None if self._base is None else self._base.lock_holder(*paths)

    def _view(self, path: str) -> View | None:
        """Return the view that is shown under a path, None if there is none or a file hides it."""
        view = self._shown_view(path)
        if view is None or (self._base is not None and self._base.stat(path, follow_symlinks=False) is not None):
            return None
        return view

    def _shown_view(self, path: str) -> View | None:
        directory, name = split_path(path)
        shown = self.shown.directory(directory)
        return None if shown is None else shown.views.get(name)

    def _is_above(self, path: str) -> bool:
        """Whether directories are shown in one."""
        return bool(self.shown.directories(path))


class _Views:
    """Views by path that stay as they are."""

    def __init__(self, views: Iterable[tuple[str, View]]) -> None:
        by_directory: dict[str, dict[str, View]] = {}
        for path, view in views:
            directory, name = split_path(path)
            by_directory.setdefault(directory, {})[name] = view
        self._directories = {path: ShownDirectory(shown) for path, shown in by_directory.items()}

    def is_partition(self, path: str) -> bool:
        return path in self._directories

    def directories(self, path: str) -> Collection[str]:
        return [name for parent, name in map(split_path, self._directories) if parent == path]

    def directory(self, path: str) -> ShownDirectory | None:
        return self._directories.get(path)

    def forget(self, path: str) -> None:
        """Does nothing."""

    def carried(self, paths: Iterable[str]) -> EnvMaker:
        raise StorageError(f"files that another process was given are not given on: {', '.join(paths)}")


class CarriedFiles(NamedTuple):
    """Files of a TieredEnv for another process: the URLs of its Envs, None for local files, and the views by path.

    is_alone: whether there is no Env of other files. The URLs have their options, which may be secret.
    """

    base: str | None
    remote: str | None
    views: tuple[tuple[str, View], ...]
    is_alone: bool

    def env(self) -> Env:
        """Return an Env that shows these files."""
        base = None if self.is_alone else env_of(self.base)
        return TieredEnv(base, env_of(self.remote), _Views(self.views))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.views)} files)"


def _status(view: View, env: TieredEnv) -> FileStatus | None:
    try:
        return view.status(env)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        return None


def _weight(kept: Kept) -> int:
    return kept.weight


def _drop(_: Kept) -> None:
    """Does nothing: what views keep is memory."""


def env_of(url: str | None) -> Env:
    """Return the Env of a URL that an Env has, that of local files for None."""
    return DEFAULT_ENV if url is None else locate(url).env


def _missing(what: str, path: str) -> StorageError:
    return StorageError(f"cannot {what} {path}: nothing is there", path=path, errno=errno.ENOENT)
