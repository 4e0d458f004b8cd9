"""SimulatedDisk: an Env in memory that knows what is durable, and what a power cut may leave of the rest.

The file system is a weak one (docs/durability.md): pages that were not synced persist one by one or not at all, the
size of a file independently of them, and names of a directory in any selection; a rename happens as a whole.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any

from kstore.env import FileIdentity, FileKind, FileStatus, LocalEnv, LocalFile, LockFile, WriteFile
from kstore.errors import StorageError
from tests.fakes.short_writes import ShortWrites

PAGE_BYTES = 512
# The modification time of every file: one millisecond after 1970.
_WRITTEN_NS = 10**6


_INODES = count(1)


class PowerCut(BaseException):
    """The machine stops here; no handler of errors may go on."""


class Inode:
    """The content of a file now, and as it was at its last sync; syncs: how many there were."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.durable = bytes(content)
        self.syncs = 0
        self.identity = FileIdentity(0, next(_INODES), 1)

    def after_cut(self, rng: random.Random, keeps: float) -> Inode:
        """Return what may be left: of each page the new or the old one, of the size the new, the old or one between."""
        old, new = self.durable, bytes(self.content)
        if old == new:
            return Inode(new)
        size = rng.choice([len(old), len(new), rng.randint(min(len(old), len(new)), max(len(old), len(new)))])
        left = bytearray(size)
        for start in range(0, size, PAGE_BYTES):
            page = (new if rng.random() < keeps else old)[start : min(start + PAGE_BYTES, size)]
            left[start : start + len(page)] = page
        return Inode(bytes(left))

    def after_cut_with(self, kept: Collection[int | None]) -> Inode:
        """Return what is left if of all that was not synced these pages persist, and None: the size."""
        old, new = self.durable, bytes(self.content)
        if not kept or old == new:
            return Inode(old)
        left = bytearray(len(new) if None in kept else len(old))
        for page, start in enumerate(range(0, len(left), PAGE_BYTES)):
            part = (new if page in kept else old)[start : min(start + PAGE_BYTES, len(left))]
            left[start : start + len(part)] = part
        return Inode(bytes(left))

    def unsynced(self) -> list[int | None]:
        """Return the pages that differ from those at the last sync, and None if the size does."""
        old, new = self.durable, bytes(self.content)
        starts = range(0, max(len(old), len(new)), PAGE_BYTES)
        pages = [at for at, start in enumerate(starts) if old[start:][:PAGE_BYTES] != new[start:][:PAGE_BYTES]]
        return [*pages, *([None] if len(old) != len(new) else [])]


_DISKS = count()
# What a power cut may leave or not, each by itself: a change of a name, or a page or the size of a file.
Unit = tuple[int, "int | None"]
NameChange = tuple[str, str, str, "Inode | None"]


class SimulatedDisk(LocalEnv):
    """Files by path, and the changes of names that no sync of their directory has made durable yet.

    Attributes: calls (those that change something), cut_at (the call that the power fails at, None for never).
    """

    # Of a disk with a planted fault it is False.
    syncs_files = True

    def __init__(self, files: dict[str, Inode] | None = None, *, now_ms: int = 0, cut_at: int | None = None) -> None:
        self.names: dict[str, Inode] = dict(files or {})
        self.directories = _parents(self.names)
        self.calls = 0
        self.cut_at = cut_at
        self._durable_names = dict(self.names)
        self._pending: list[NameChange] = []
        self._number = next(_DISKS)
        self._now_ms = now_ms

    def step(self) -> None:
        """Count a call that changes something, and stop before it if the power fails here."""
        self.calls += 1
        if self.cut_at is not None and self.calls >= self.cut_at:
            raise PowerCut

    def while_syncing(self, path: str) -> None:
        """Called between the begin and the end of the sync of a file."""

    def after_cut(self, rng: random.Random, *, cut_at: int | None = None) -> SimulatedDisk:
        """Return a disk with what may be left after the power failed now."""
        keeps = rng.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        names = _names_with(self._durable_names, self._pending, [rng.random() < keeps for _ in self._pending])
        left: dict[int, Inode] = {}
        for inode in names.values():
            if id(inode) not in left:
                left[id(inode)] = inode.after_cut(rng, keeps)
        disk = SimulatedDisk(
            {path: left[id(inode)] for path, inode in names.items()}, now_ms=self._now_ms, cut_at=cut_at
        )
        disk.directories |= self.directories
        return disk

    def states_after_cut(self, rng: random.Random, *, most_units: int) -> Iterator[SimulatedDisk]:
        """Yield what may be left after the power failed now: every selection of what was not synced.

        If there are more than most_units of it: none, all, each alone, all but one, all up to one, all from one on, and
        random selections, 2**most_units altogether. Selections with the same result are yielded once.
        """
        inodes = {id(one): one for one in (*self._durable_names.values(), *(c[3] for c in self._pending)) if one}
        units: list[Unit] = [(-1, at) for at in range(len(self._pending))]
        units += [(number, page) for number, inode in inodes.items() for page in inode.unsynced()]
        seen = set()
        for kept in _selections(units, rng, most_units):
            kept_changes = [(-1, at) in kept for at in range(len(self._pending))]
            names = _names_with(self._durable_names, self._pending, kept_changes)
            pages = {number: {page for of, page in kept if of == number} for number in inodes}
            left = {number: inode.after_cut_with(pages[number]) for number, inode in inodes.items()}
            files = {path: left[id(inode)] for path, inode in names.items()}
            state = hash(frozenset((path, inode.durable) for path, inode in files.items()))
            if state not in seen:
                seen.add(state)
                disk = SimulatedDisk(files, now_ms=self._now_ms)
                disk.directories |= self.directories
                yield disk

    def files(self) -> dict[str, bytes]:
        """Return the content of every file by its path."""
        return {path: bytes(inode.content) for path, inode in sorted(self.names.items())}

    def state(self, directory: str) -> dict[str, bytes]:
        """Return the files of a directory by name."""
        found = {path: inode for path, inode in self.names.items() if path.rpartition("/")[0] == directory}
        return {path.rpartition("/")[2]: bytes(inode.content) for path, inode in sorted(found.items())}

    def open_read(self, path: str) -> LocalFile:
        return _DiskFile(self, self._inode(path), path=path, is_new=False)

    def open_write(self, path: str) -> WriteFile:
        is_new = path not in self.names
        if is_new:
            self.step()
            self._rename_now("create", path, path, Inode())
        return _DiskFile(self, self._inode(path), path=path, is_new=is_new)

    def lock_file(self, path: str) -> LockFile | None:
        return _DiskLock(path=path, number=self._number)

    def lock_directory(self, path: str) -> LockFile | None:
        return _DiskLock(path=path, number=self._number)

    def rename(self, source: str, target: str) -> None:
        if source in self.directories:
            self.step()
            self.directories = {_moved(one, source, target) for one in self.directories}
            self._rename_now("move", source, target, None)
            return
        inode = self._inode(source)
        self.step()
        self._rename_now("rename", source, target, inode)

    def copy_modification_time(self, source: str, target: str) -> None:
        """Files here have no times."""

    def unlink(self, path: str) -> bool:
        if path not in self.names:
            return False
        self.step()
        self._rename_now("unlink", path, path, None)
        return True

    def make_directory(self, path: str) -> bool:
        is_new = path not in self.directories
        self.directories.add(path)
        return is_new

    def remove_directory(self, path: str) -> bool:
        if path not in self.directories or self.listdir(path):
            return False
        self.directories.discard(path)
        return True

    def sync_directory(self, path: str) -> None:
        self.step()
        left: list[NameChange] = []
        for change in self._pending:
            kind, source, target, _ = change
            if path not in (source.rpartition("/")[0], target.rpartition("/")[0]):
                left.append(change)
                continue
            _change(self._durable_names, *_unmoved(change, left))
            if kind == "move":
                # What was not synced in that directory is in the moved one.
                left = [(*one[:1], *(_moved(name, source, target) for name in one[1:3]), one[3]) for one in left]
        self._pending = left

    def listdir(self, path: str) -> list[str]:
        names = {one[len(path) + 1 :].partition("/")[0] for one in self.names if one.startswith(path + "/")}
        return sorted(names)

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        del follow_symlinks
        inode = self.names.get(path)
        if inode is not None:
            return FileStatus(FileKind.FILE, len(inode.content), (0, inode.identity.inode, _WRITTEN_NS), inode.identity)
        return FileStatus(FileKind.DIRECTORY, 0, (0, 0, 0)) if path in self.directories else None

    def wall_clock_ms(self) -> int:
        return self._now_ms

    def _inode(self, path: str) -> Inode:
        if path not in self.names:
            raise StorageError(f"cannot open {path}: no such file", path=path, errno=errno.ENOENT)
        return self.names[path]

    def _rename_now(self, kind: str, source: str, target: str, inode: Inode | None) -> None:
        _change(self.names, kind, source, target, inode)
        self._pending.append((kind, source, target, inode))


class WatchedDisk(SimulatedDisk):
    """Calls before_call before each call that changes something."""

    before_call: Callable[[], None] | None = None

    def step(self) -> None:
        if self.before_call is not None:
            self.before_call()
        super().step()


class DiskThatForgetsFiles(SimulatedDisk):
    """A planted fault: as if no file were ever synced."""

    syncs_files = False


class DiskThatForgetsNames(SimulatedDisk):
    """A planted fault: as if no directory were ever synced."""

    def sync_directory(self, path: str) -> None:
        assert path


def _parents(paths: Iterable[str]) -> set[str]:
    """Return the directories above files, up to the root."""
    found: set[str] = set()
    for path in paths:
        while (parent := path.rpartition("/")[0] or "/") not in found:
            found.add(parent)
            path = parent
    return found


def _selections(units: list[Unit], rng: random.Random, most_units: int) -> Iterator[set[Unit]]:
    count_of_all = 1 << most_units
    if len(units) <= most_units:
        for number in range(1 << len(units)):
            yield {unit for at, unit in enumerate(units) if number >> at & 1}
        return
    whole = set(units)
    ends = range(1, len(units))
    yield from (set(), whole)
    yield from chain.from_iterable(({unit}, whole - {unit}) for unit in units)
    yield from chain.from_iterable((set(units[:at]), set(units[at:])) for at in ends)
    for _ in range(count_of_all - 4 * len(units)):
        keeps = rng.random()
        yield {unit for unit in units if rng.random() < keeps}


def _moved(path: str, source: str, target: str) -> str:
    return target + path[len(source) :] if path == source or path.startswith(source + "/") else path


def _unmoved(change: NameChange, moves: list[NameChange]) -> NameChange:
    """Return a change by the names that it has as long as directories were not moved."""
    kind, source, target, inode = change
    for one, moved_from, moved_to, _ in reversed(moves):
        if one == "move":
            source, target = _moved(source, moved_to, moved_from), _moved(target, moved_to, moved_from)
    return kind, source, target, inode


def _names_with(durable: dict[str, Inode], pending: list[NameChange], kept: list[bool]) -> dict[str, Inode]:
    """Return what is left if of the pending changes those persist that are kept."""
    names, lost = dict(durable), list[NameChange]()
    for change, is_kept in zip(pending, kept, strict=True):
        if is_kept:
            _change(names, *_unmoved(change, lost))
        else:
            lost.append(change)
    return names


def _change(names: dict[str, Inode], kind: str, source: str, target: str, inode: Inode | None) -> None:
    if kind == "move":
        # A directory, with all that is in it.
        for path in [one for one in names if one.startswith(source + "/")]:
            names[_moved(path, source, target)] = names.pop(path)
        return
    names.pop(source, None)
    if kind != "unlink" and inode is not None:
        names[target] = inode


class _DiskLock(LockFile):
    """A lock that nobody else asks for."""

    def __init__(self, *, path: str, number: int) -> None:
        super().__init__(-1, path=path, unlock=lambda _: None)
        self._number = number

    def identity(self) -> tuple[int, int]:
        return 0, self._number

    def is_in_place(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is to be given back."""


class _DiskFile(ShortWrites):
    """A file of a SimulatedDisk; no descriptor is behind it."""

    def __init__(self, disk: SimulatedDisk, inode: Inode, *, path: str, is_new: bool) -> None:
        super().__init__(-1, path=path, is_new=is_new)
        self._disk = disk
        self._inode = inode

    def size(self) -> int:
        return len(self._inode.content)

    def pread(self, size: int, *, position: int) -> bytes:
        return bytes(self._inode.content[position : position + size])

    def pread_into(self, buffer: bytearray | memoryview, *, position: int) -> int:
        data = self.pread(len(buffer), position=position)
        buffer[: len(data)] = data
        return len(data)

    def map(self, size: int) -> Any:
        return self.pread(size, position=0)

    def identity(self) -> FileIdentity:
        return self._inode.identity

    def is_in_place(self) -> bool:
        return self._disk.names.get(self.path) is self._inode

    def skip_hole(self, position: int) -> int:
        return position

    def pwrite(self, data: bytes | bytearray | memoryview, *, position: int) -> None:
        self._disk.step()
        content, data = self._inode.content, bytes(data)
        if len(content) < position:
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        self._disk.step()
        content = self._inode.content
        del content[size:]
        content.extend(bytes(size - len(content)))

    def allocate(self, size: int, *, position: int = 0) -> None:
        del position
        if len(self._inode.content) < size:
            self.truncate(size)

    def start_write_back(self, size: int, *, position: int) -> None:
        """Nothing is the surer for it."""

    def sync(self) -> None:
        self._disk.step()
        # A sync answers for what was written before it was called.
        content, syncs = bytes(self._inode.content), self._inode.syncs
        self._disk.while_syncing(self.path)
        if self._disk.syncs_files and self._inode.syncs == syncs:
            self._inode.durable = content
            self._inode.syncs += 1

    def close(self) -> None:
        """Nothing is to be given back."""


def disk_of(directory: Path, root: str, *, now_ms: int) -> SimulatedDisk:
    """Return a disk with a copy of a directory's files below `root`, all durable."""
    files = {f"{root}/{path.name}": Inode(path.read_bytes()) for path in sorted(directory.iterdir()) if path.is_file()}
    return SimulatedDisk(files, now_ms=now_ms)
