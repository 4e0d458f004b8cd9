"""Kafka's checkpoint text files: offsets per partition in a root, and start offsets per leader epoch in a partition.

Line 1 is the version, line 2 the number of entries, then one entry per line. A file that breaks a rule raises
CorruptCheckpointError; the caller decides whether to continue without it. Files are always replaced as a whole
(replace_file).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple
from weakref import WeakKeyDictionary, proxy

from kstore._lazy import lazy_logger
from kstore.config import MAX_INT32
from kstore.env import DEFAULT_ENV, ENOENT, Env, FileStatus, join_path, split_path
from kstore.errors import CorruptCheckpointError, StorageError
from kstore.log.files.names import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    ROOT_CHECKPOINTS,
)
from kstore.types import MAX_OFFSET, MAX_PARTITION, TopicPartition, is_topic_name

TEMPORARY_SUFFIX = ".tmp"


def read_text(path: str, env: Env, *, max_bytes: int) -> str | None:
    """Return the content of a file, None if it does not exist.

    Raises: CorruptCheckpointError if it is larger than max_bytes or not UTF-8; StorageError.
    """
    try:
        return env.read_file(path, max_bytes=max_bytes).decode("utf-8")
    except StorageError as error:
        if error.errno == ENOENT:
            return None
        if error.errno is None:
            raise malformed(path, str(error)) from error
        raise
    except UnicodeDecodeError as error:
        raise malformed(path, f"not UTF-8: {error.reason} at position {error.start}") from error


def malformed(path: str, reason: str) -> CorruptCheckpointError:
    """Return the error for a file that breaks a rule of its format."""
    return CorruptCheckpointError(f"malformed {path}: {reason}", path=path, position=0, reason=reason)


def replace_file(
    path: str, content: bytes | Iterable[bytes], env: Env = DEFAULT_ENV, *, is_private: bool = False
) -> None:
    """Write a temporary file, then rename it to `path`; on return the content survives a power cut.

    Args: content: one piece or several, which may be read from the file that is being replaced; is_private: only the
        owner may read it.
    After an error the file has either the old or the new content, and the temporary file is removed if possible.
    Threads: one at a time per path.
    Raises: StorageError.
    Source: Kafka CheckpointFile.write.
    """
    temporary = path + TEMPORARY_SUFFIX
    try:
        with env.open_write(temporary) as file:
            if not file.is_new:
                file.truncate(0)
            if is_private:
                file.make_private()
            position = 0
            for piece in (content,) if isinstance(content, bytes) else content:
                file.pwrite(piece, position=position)
                position += len(piece)
            file.sync()
        env.rename(temporary, path)
    except StorageError:
        with suppress(StorageError):
            env.unlink(temporary)
        raise
    env.sync_directory(split_path(path)[0])


def keep_file(path: str, content: bytes, env: Env = DEFAULT_ENV) -> bool:
    """Return whether a file has this content, which is then synced. If not, the caller has to replace the file.

    Requires: its name was synced; a recovery does that before it takes snapshots.
    """
    try:
        with env.open_write(path) as file:
            if file.size() != len(content) or file.pread(len(content), position=0) != content:
                return False
            file.sync()
    except StorageError:
        return False
    return True


CHECKPOINT_VERSION = 0
# About 50,000 partitions with names of maximum length.
MAX_CHECKPOINT_BYTES = 16 * 1024 * 1024
MAX_CHECKPOINTS_KEPT = 8

_NUMBER = re.compile(r"[0-9]{1,19}")


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset written in it (Kafka: EpochEntry)."""

    epoch: int
    start_offset: int


def read_offset_checkpoint(path: str, env: Env = DEFAULT_ENV) -> dict[TopicPartition, int] | None:
    """Read a root's checkpoint ("topic partition offset"); None if the file does not exist.

    Raises: CorruptCheckpointError if malformed, too large or not UTF-8; StorageError if unreadable.
    Source: Kafka OffsetCheckpointFile.
    """
    lines = _entry_lines(path, env, field_count=3)
    if lines is None:
        return None
    offsets: dict[TopicPartition, int] = {}
    for line_number, (topic, partition, offset) in enumerate(lines, start=3):
        if not is_topic_name(topic):
            raise malformed(path, f"line {line_number}: expected a topic name, found {topic!r}")
        number = _parse_number(partition, limit=MAX_PARTITION, path=path, line_number=line_number)
        offsets[TopicPartition(topic, number)] = _parse_number(
            offset, limit=MAX_OFFSET, path=path, line_number=line_number
        )
    return offsets


def write_offset_checkpoint(path: str, offsets: Mapping[TopicPartition, int], env: Env = DEFAULT_ENV) -> None:
    """Replace a root's checkpoint; the entries are in the order of `offsets`.

    Raises: ValueError for an entry that could not be read back; StorageError.
    Source: Kafka OffsetCheckpointFile.
    """
    lines = []
    for (topic, partition), offset in offsets.items():
        if not is_topic_name(topic):
            raise ValueError(f"expected a topic name, got {topic!r}")
        lines.append(f"{topic} {_in_range(partition, limit=MAX_PARTITION)} {_in_range(offset, limit=MAX_OFFSET)}")
    _write_lines(path, lines, env)
    checkpoints_of(env).forget(path)


class OffsetCheckpoints:
    """A cache of the offset checkpoints read most recently, so that opening all logs of a root parses each file once.

    A file that has been replaced or written since is read again; in `held`, one that write_offset_checkpoint replaced.
    Requires: the Env lives while this is used.
    Threads: thread-safe.
    """

    def __init__(self, env: Env) -> None:
        # The Env is the key of this cache: with a reference back it would never be let go.
        self._env: Env = proxy(env)
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[FileStatus, dict[TopicPartition, int]]] = {}
        # By root, and there by path.
        self._held: dict[str, dict[str, Mapping[TopicPartition, int] | None]] = {}

    def offsets(self, path: str) -> Mapping[TopicPartition, int] | None:
        """Return read_offset_checkpoint(path), possibly cached."""
        held = self._held.get(split_path(path)[0])
        # Held while the file is read, so that those who look at many logs at once read it once.
        if held is None:
            status = self._env.stat(path)
            if status is None:
                return None
            with self._lock:
                return self._read(path, status)
        with self._lock:
            if path not in held:
                status = self._env.stat(path)
                held[path] = None if status is None else self._read(path, status)
            return held[path]

    def _read(self, path: str, status: FileStatus) -> Mapping[TopicPartition, int] | None:
        kept = self._kept.get(path)
        if kept is not None and kept[0] == status:
            return kept[1]
        offsets = read_offset_checkpoint(path, self._env)
        if offsets is not None:
            if len(self._kept) >= MAX_CHECKPOINTS_KEPT:
                self._kept.clear()
            self._kept[path] = status, offsets
        return offsets

    @contextmanager
    def held(self, root: str) -> Iterator[None]:
        """Context manager: look at each checkpoint of a root once, until it is written here.

        Requires: the lock of the root, so that no other process writes them.
        """
        self._held[root] = {}
        try:
            yield
        finally:
            del self._held[root]

    def forget(self, path: str) -> None:
        """Read a file again: the clock of its times may be too coarse to tell that it was replaced."""
        with self._lock:
            self._kept.pop(path, None)
            self._held.get(split_path(path)[0], {}).pop(path, None)


_OF_ENV: WeakKeyDictionary[Env, OffsetCheckpoints] = WeakKeyDictionary()


def checkpoints_of(env: Env) -> OffsetCheckpoints:
    """Return the cache of the checkpoints that an Env reads."""
    checkpoints = _OF_ENV.get(env)
    return _OF_ENV.setdefault(env, OffsetCheckpoints(env)) if checkpoints is None else checkpoints


def read_leader_epoch_checkpoint(path: str, env: Env = DEFAULT_ENV) -> list[EpochEntry] | None:
    """Read a partition's leader-epoch-checkpoint ("epoch startOffset"); None if the file does not exist.

    Raises: CorruptCheckpointError if malformed, too large or not UTF-8; StorageError if unreadable.
    Source: Kafka LeaderEpochCheckpointFile.
    """
    lines = _entry_lines(path, env, field_count=2)
    if lines is None:
        return None
    return [
        EpochEntry(
            _parse_number(epoch, limit=MAX_INT32, path=path, line_number=line_number),
            _parse_number(start_offset, limit=MAX_OFFSET, path=path, line_number=line_number),
        )
        for line_number, (epoch, start_offset) in enumerate(lines, start=3)
    ]


def write_leader_epoch_checkpoint(path: str, entries: Iterable[EpochEntry], env: Env = DEFAULT_ENV) -> None:
    """Replace a partition's leader-epoch-checkpoint.

    Raises: ValueError for an entry that could not be read back; StorageError.
    Source: Kafka LeaderEpochCheckpointFile.
    """
    lines = [
        f"{_in_range(epoch, limit=MAX_INT32)} {_in_range(start_offset, limit=MAX_OFFSET)}"
        for epoch, start_offset in entries
    ]
    _write_lines(path, lines, env)


def _write_lines(path: str, lines: list[str], env: Env) -> None:
    text = "".join(f"{line}\n" for line in (str(CHECKPOINT_VERSION), str(len(lines)), *lines))
    replace_file(path, text.encode(), env)


def _in_range(number: int, *, limit: int) -> int:
    if not 0 <= number <= limit:
        raise ValueError(f"expected a number from 0 to {limit}, got {number}")
    return number


def _entry_lines(path: str, env: Env, *, field_count: int) -> list[list[str]] | None:
    text = read_text(path, env, max_bytes=MAX_CHECKPOINT_BYTES)
    if text is None:
        return None
    lines = text.splitlines()
    if not lines:
        return []
    version = _parse_number(lines[0].strip(), limit=MAX_INT32, path=path, line_number=1)
    if version != CHECKPOINT_VERSION:
        raise malformed(path, f"expected version {CHECKPOINT_VERSION}, found {version}")
    if len(lines) == 1:
        return []
    count = _parse_number(lines[1].strip(), limit=MAX_INT32, path=path, line_number=2)
    entries = [line.split() for line in lines[2:]]
    for line_number, fields in enumerate(entries, start=3):
        if len(fields) != field_count:
            raise malformed(path, f"line {line_number}: expected {field_count} fields, found {len(fields)}")
    if len(entries) != count:
        raise malformed(path, f"expected {count} entries, found {len(entries)}")
    return entries


def _parse_number(text: str, *, limit: int, path: str, line_number: int) -> int:
    if _NUMBER.fullmatch(text) is None or int(text) > limit:
        raise malformed(path, f"line {line_number}: expected a number from 0 to {limit}, found {text[:40]!r}")
    return int(text)


_logger = lazy_logger("kstore.log")
# The checkpoint lock: two logs of a root must not read, change and write a checkpoint at the same time.
_mutex = threading.Lock()


class PartitionMarks(NamedTuple):
    """The offsets of a partition in the checkpoints of its root, and its log end offset."""

    recovery_point: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int


def read_checkpoint(root: str, name: str, env: Env) -> Mapping[TopicPartition, int]:
    """Return the offsets in a checkpoint, possibly cached; none if it is missing, or malformed (which is logged).

    Raises: StorageError.
    """
    try:
        return checkpoints_of(env).offsets(join_path(root, name)) or {}
    except CorruptCheckpointError as error:
        _logger.warning("continuing without a checkpoint: %s", error)
        return {}


def replace_malformed_checkpoints(root: str, env: Env) -> None:
    """Durably replace each offset checkpoint of a root that is malformed with one without entries.

    A broker takes the root out of use for some of them, and goes on without the others.
    Raises: StorageError.
    """
    with _mutex:
        for path in (join_path(root, name) for name in ROOT_CHECKPOINTS):
            try:
                read_offset_checkpoint(path, env)
            except CorruptCheckpointError:
                write_offset_checkpoint(path, {}, env)


def save_offset(root: str, name: str, topic_partition: TopicPartition, offset: int, env: Env) -> None:
    """Durably write one partition's offset to a checkpoint.

    Raises: StorageError.
    """
    with _mutex:
        offsets = read_checkpoint(root, name, env)
        if offsets.get(topic_partition) != offset:
            write_offset_checkpoint(join_path(root, name), {**offsets, topic_partition: offset}, env)


def lower_offset(root: str, name: str, topic_partition: TopicPartition, offset: int, env: Env) -> None:
    """Durably lower one partition's offset in a checkpoint to at most `offset`; one without an entry gets none.

    Raises: StorageError.
    """
    stored = read_checkpoint(root, name, env).get(topic_partition)
    if stored is not None and stored > offset:
        save_offset(root, name, topic_partition, offset, env)


def forget_partitions(root: str, gone: Collection[TopicPartition], env: Env) -> None:
    """Durably remove partitions from every checkpoint, so that new ones with the same names start at 0.

    Raises: StorageError.
    """
    with _mutex:
        for name in ROOT_CHECKPOINTS:
            stored = read_checkpoint(root, name, env)
            kept = {item: offset for item, offset in stored.items() if item not in gone}
            if len(kept) < len(stored):
                write_offset_checkpoint(join_path(root, name), kept, env)


def save_marks(
    root: str,
    take_marks: Callable[[], Mapping[TopicPartition, PartitionMarks]],
    env: Env,
    *,
    kept: Container[TopicPartition],
) -> None:
    """Durably write the offsets of several partitions to the three checkpoints; of the other entries those in `kept`
    remain.

    Args: take_marks: called while holding the checkpoint lock. Otherwise the offset that a log saves after lowering its
        marks could be overwritten with an older, higher one.
    Raises: StorageError.
    """
    with _mutex:
        marks = take_marks()
        recovery_points = {topic_partition: item.recovery_point for topic_partition, item in marks.items()}
        high_watermarks = {topic_partition: item.high_watermark for topic_partition, item in marks.items()}
        _merge(root, RECOVERY_POINT_CHECKPOINT, recovery_points, env, kept=kept)
        _merge(root, HIGH_WATERMARK_CHECKPOINT, high_watermarks, env, kept=kept)
        saved = read_checkpoint(root, LOG_START_OFFSET_CHECKPOINT, env)
        starts = {item: _start(marks_of_one, saved.get(item)) for item, marks_of_one in marks.items()}
        # As in a broker's checkpoint, only logs from which records were deleted have an entry.
        others = {
            saved_partition for saved_partition in saved if saved_partition in kept and saved_partition not in starts
        }
        starts = {item: start for item, start in starts.items() if start or item in saved}
        _merge(root, LOG_START_OFFSET_CHECKPOINT, starts, env, kept=others)


def _start(marks: PartitionMarks, saved: int | None) -> int:
    """Return the log start offset to save.

    A saved one is kept unless it is above the log end: below the first segment it is valid, since tiered storage has
    the records from there on.
    """
    return marks.log_start_offset if saved is None or saved > marks.log_end_offset else saved


def _merge(
    root: str, name: str, offsets: Mapping[TopicPartition, int], env: Env, *, kept: Container[TopicPartition]
) -> None:
    stored = read_checkpoint(root, name, env)
    merged = {**{item: offset for item, offset in stored.items() if item in kept}, **offsets}
    if merged != stored:
        write_offset_checkpoint(join_path(root, name), merged, env)
