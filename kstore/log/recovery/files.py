"""The files of a partition directory as recovery finds them: segments, leftovers of interrupted deletions and swaps,
and the quarantine.

list_partition only reads; settle_side_files carries out what the listing says. Quarantine keeps copies of what is
removed.
Source: Kafka LogLoader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kstore.config import MAX_INT32
from kstore.env import ENOENT, Env, FileKind, join_path, split_path
from kstore.errors import StorageError
from kstore.log.files.checkpoints import TEMPORARY_SUFFIX, replace_file
from kstore.log.files.indexes import MAX_INDEX_BYTES
from kstore.log.files.names import (
    CLEANED_STATE,
    DELETED_STATE,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    QUARANTINE_DIRECTORY,
    SEGMENT_INDEX_SUFFIXES,
    SEGMENT_SUFFIXES,
    SWAP_STATE,
    TRANSACTION_INDEX_SUFFIX,
    SegmentName,
    base_offset_file_name,
    parse_segment_name,
    producer_snapshot_offsets,
)
from kstore.log.files.records import holds_only_zeros, size_of_segment

# What is appended to the name of a segment's file that is being removed or replaced.
FILE_STATES = (DELETED_STATE, CLEANED_STATE, SWAP_STATE, TEMPORARY_SUFFIX)
_REPLACED_FILES = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)


class SegmentFiles(NamedTuple):
    """The files of one segment. log_name: the current name of the .log; size_in_bytes: its size; index_sizes: size in
    bytes of each index, by suffix; index_names: current names of the indexes, by suffix.
    """

    base_offset: int
    log_name: str
    size_in_bytes: int
    index_sizes: dict[str, int]
    index_names: dict[str, str]


class PartitionFiles(NamedTuple):
    """A partition directory as it will be once its side files are settled.

    misplaced: entries with the name of a side file that can be rebuilt, but which are directories, links, FIFOs,
    devices or files too large for an index. They count as missing.
    removed: names to be removed: .deleted and .cleaned files, temporary files, incomplete swaps, files that a complete
    swap replaces, and orphans.
    orphans: indexes without a .log.
    renamed: (name, final name) of complete swaps, .log files last.
    segments: by base offset.
    snapshot_offsets: of the producer snapshots that remain.
    """

    misplaced: tuple[str, ...]
    removed: tuple[str, ...]
    orphans: tuple[SegmentName, ...]
    renamed: tuple[tuple[str, str], ...]
    segments: tuple[SegmentFiles, ...]
    snapshot_offsets: tuple[int, ...]


class _Names:
    """The names in a directory, grouped by their state suffix; sizes: in bytes of the .log files, and of the side files
    that can be rebuilt, None for one that is not a regular file or is too large to be an index, which then counts as
    missing.
    """

    def __init__(self, path: str, env: Env) -> None:
        self.sizes: dict[str, int | None] = {}
        self.plain: dict[str, SegmentName] = {}
        self.in_state: dict[str, dict[str, SegmentName]] = {state: {} for state in FILE_STATES}
        self.leftovers: list[str] = []
        parsed = {name: parse_segment_name(name) for name in env.listdir(path)}
        looked_at = [
            name for name, segment_name in parsed.items() if name == LEADER_EPOCH_CHECKPOINT or segment_name is not None
        ]
        sizes = dict(zip(looked_at, env.sizes_of(path, looked_at), strict=True))
        for name, segment_name in parsed.items():
            size = sizes.get(name)
            if segment_name is not None and segment_name.suffix == LOG_SUFFIX:
                if size is not None and size <= MAX_INT32:
                    self.sizes[name] = size
            elif name in sizes:
                if size is None or size > MAX_INDEX_BYTES:
                    size = _side_file_size(path, name, env)
                self.sizes[name] = size
                if size is None:
                    continue
            if segment_name is not None:
                self.plain[name] = segment_name
            elif name.endswith(FILE_STATES):
                self._add_in_state(name)

    def _add_in_state(self, name: str) -> None:
        for state in FILE_STATES:
            stem = name.removesuffix(state)
            if state == DELETED_STATE:
                # A file of the same name was still waiting for its removal.
                while stem.endswith(DELETED_STATE):
                    stem = stem.removesuffix(DELETED_STATE)
            segment_name = parse_segment_name(stem) if stem != name else None
            if segment_name is not None:
                self.in_state[state][name] = segment_name
            elif stem != name and state == TEMPORARY_SUFFIX and stem in _REPLACED_FILES:
                self.leftovers.append(name)


def list_partition(path: str, *, env: Env, end_offset_of: Callable[[str, int], int | None]) -> PartitionFiles:
    """List a partition directory and decide what to do with leftovers, without changing anything.

    Args: end_offset_of: called with the name and the base offset of a .log.swap; returns the offset after its last
        batch, or None if the file is damaged, in which case it replaces nothing.
    Raises: StorageError; SegmentTooLargeError.
    """
    names = _Names(path, env)
    swaps, cleaned = names.in_state[SWAP_STATE], names.in_state[CLEANED_STATE]
    # A swap at or above a .cleaned file belongs to the same unfinished cleaning round, which the cleaner will repeat.
    least_cleaned = min((segment.base_offset for segment in cleaned.values()), default=None)
    unfinished = {
        name for name, item in swaps.items() if least_cleaned is not None and item.base_offset >= least_cleaned
    }
    replaced: set[str] = set()
    swapped_logs = {name: item for name, item in swaps.items() if item.suffix == LOG_SUFFIX and name not in unfinished}
    bounds = {name: end_offset_of(name, item.base_offset) for name, item in swapped_logs.items()}
    unfinished |= {
        name for name in swapped_logs if bounds[name] is None and name.removesuffix(SWAP_STATE) in names.plain
    }
    ends = [end for name, end in bounds.items() if end is not None and name not in unfinished]
    if ends:
        bases = {item.base_offset for name, item in swapped_logs.items() if name not in unfinished}
        replaced = {name for name, item in names.plain.items() if min(bases) <= item.base_offset < max(ends)}
        # Without a swap of its own, a transaction index may have its final name already. An old one has only more
        # entries than it needs.
        final = {base_offset_file_name(base, suffix=TRANSACTION_INDEX_SUFFIX) for base in bases}
        replaced -= {name for name in final if name + SWAP_STATE not in swaps}
    renamed = sorted((name, name.removesuffix(SWAP_STATE)) for name in swaps if name not in unfinished)
    renamed.sort(key=lambda pair: pair[1].endswith(LOG_SUFFIX))
    current = {name: name for name in names.plain if name not in replaced}
    current.update({final: name for name, final in renamed})
    orphans = _orphans(current)
    gone = {*names.in_state[DELETED_STATE], *cleaned, *names.in_state[TEMPORARY_SUFFIX], *unfinished, *replaced}
    gone |= {
        *names.leftovers,
        *(current.pop(base_offset_file_name(orphan.base_offset, suffix=orphan.suffix)) for orphan in orphans),
    }
    return PartitionFiles(
        misplaced=tuple(name for name, size in names.sizes.items() if size is None),
        removed=tuple(sorted(gone)),
        orphans=orphans,
        renamed=tuple((name, final) for name, final in renamed if name not in gone),
        segments=_segments(path, current, names.sizes, env),
        snapshot_offsets=tuple(producer_snapshot_offsets(current)),
    )


def settle_side_files(path: str, files: PartitionFiles, env: Env, quarantine: Quarantine) -> None:
    """Quarantine, remove and rename what the listing says, each step durable before the next.

    Raises: StorageError.
    """
    quarantine.take(files.misplaced)
    if files.removed:
        for name in files.removed:
            env.unlink(join_path(path, name))
        env.sync_directory(path)
    if files.renamed:
        for name, final in files.renamed:
            env.rename(join_path(path, name), join_path(path, final))
        env.sync_directory(path)


def _side_file_size(path: str, name: str, env: Env) -> int | None:
    """Return the size of a side file in bytes, or None if it is not a regular file or too large to be an index."""
    status = env.stat(join_path(path, name), follow_symlinks=False)
    if status is None:
        raise _removed(join_path(path, name))
    is_one = status.kind is FileKind.FILE and status.size_in_bytes <= MAX_INDEX_BYTES
    return status.size_in_bytes if is_one else None


def _orphans(current: dict[str, str]) -> tuple[SegmentName, ...]:
    orphans = []
    for final in sorted(current):
        name = parse_segment_name(final)
        if name is None or name.suffix not in SEGMENT_INDEX_SUFFIXES:
            continue
        if base_offset_file_name(name.base_offset, suffix=LOG_SUFFIX) not in current:
            orphans.append(name)
    return tuple(orphans)


def _segments(
    path: str, current: dict[str, str], sizes: Mapping[str, int | None], env: Env
) -> tuple[SegmentFiles, ...]:
    segments: dict[int, SegmentFiles] = {}
    # Sorted with the .log files first, since a segment's entry must exist before its indexes are added.
    for final in sorted(current, key=lambda name: (not name.endswith(LOG_SUFFIX), name)):
        name = parse_segment_name(final)
        if name is None or name.suffix not in SEGMENT_SUFFIXES:
            continue
        size = sizes.get(current[final])
        if size is None:
            size = _size_of(join_path(path, current[final]), env)
        if name.suffix == LOG_SUFFIX:
            segments[name.base_offset] = SegmentFiles(name.base_offset, current[final], size, {}, {})
        else:
            segments[name.base_offset].index_sizes[name.suffix] = size
            segments[name.base_offset].index_names[name.suffix] = current[final]
    return tuple(segments[base] for base in sorted(segments))


def _size_of(path: str, env: Env) -> int:
    size = size_of_segment(path, env)
    if size is None:
        raise _removed(path)
    return size


def _removed(path: str) -> StorageError:
    return StorageError(f"cannot read {path}: it was removed since the listing", path=path, errno=ENOENT)


_MAX_NAMES_TRIED = 10_000


class Quarantine:
    """Keeps copies of removed data in a subdirectory of the partition. With is_on false nothing is copied, and taken
    files are removed. With dry_run ranges are not copied, and files go where the Env only foretells it.

    Attributes: kept (paths of the copies).
    """

    def __init__(self, partition_path: str, *, env: Env, is_on: bool, dry_run: bool = False) -> None:
        self.kept: list[str] = []
        self._is_dry = dry_run
        self._partition_path = partition_path
        self._path = join_path(partition_path, QUARANTINE_DIRECTORY)
        self._env = env
        self._is_on = is_on

    def keep_range(self, path: str, *, position: int, size_in_bytes: int) -> None:
        """Copy a range of a file, unless it holds only zeros.

        Raises: StorageError.
        """
        if not self._is_on or size_in_bytes <= 0:
            return
        with self._env.open_read(path) as source:
            if holds_only_zeros(source, position=position, end_position=position + size_in_bytes):
                return
            target = self._free_path(f"{split_path(path)[1]}.{position}")
            if not self._is_dry:
                replace_file(target, source.chunks(size_in_bytes, position=position), self._env)
        self.kept.append(target)

    def take(self, names: Iterable[str]) -> None:
        """Move files of the partition to the quarantine, or remove them, in the given order; durable on return.

        A directory is always moved: nothing here removes its content.
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
            if self._env.stat(path, follow_symlinks=False) is None and path not in self.kept:
                break
            path = join_path(self._path, f"{name}.{number}")
        return path
