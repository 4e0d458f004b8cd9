"""Kafka's checkpoint text files, read and written: offsets per partition, and start offsets per leader epoch.

Layer 5. Line 1 is the version, line 2 the number of entries, then one entry a line. A file that breaks a rule
raises CorruptCheckpointError; whether to go on without it is the caller's decision. Written files are replaced as a
whole (replace_file).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kstore.config import MAX_INT32
from kstore.log.atomic_file import malformed, read_text, replace_file
from kstore.log.env import DEFAULT_ENV, Env, FileStatus
from kstore.log.filenames import MAX_PARTITION, is_topic_name
from kstore.types import MAX_OFFSET, TopicPartition

CHECKPOINT_VERSION = 0
# Some 50,000 partitions with the longest names.
MAX_CHECKPOINT_BYTES = 16 * 1024 * 1024
MAX_CHECKPOINTS_KEPT = 8

_NUMBER = re.compile(r"[0-9]{1,19}")


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset written under it (Kafka: EpochEntry)."""

    epoch: int
    start_offset: int


def read_offset_checkpoint(path: str, env: Env = DEFAULT_ENV) -> dict[TopicPartition, int] | None:
    """Read a root's checkpoint ("topic partition offset"); None if there is no such file.

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
    """Write a root's checkpoint anew, in the order of `offsets`.

    Raises: ValueError for an entry that could not be read back; StorageError.
    Source: Kafka OffsetCheckpointFile.
    """
    lines = []
    for (topic, partition), offset in offsets.items():
        if not is_topic_name(topic):
            raise ValueError(f"expected a topic name, got {topic!r}")
        lines.append(f"{topic} {_in_range(partition, limit=MAX_PARTITION)} {_in_range(offset, limit=MAX_OFFSET)}")
    _write_lines(path, lines, env)


class OffsetCheckpoints:
    """Offset checkpoints of the roots read last, so that opening all logs of a root parses each file once.

    A file that was replaced or written since is read again.
    Threads: safe.
    """

    def __init__(self, env: Env) -> None:
        self._env = env
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[FileStatus, dict[TopicPartition, int]]] = {}

    def offsets(self, path: str) -> Mapping[TopicPartition, int] | None:
        """Return read_offset_checkpoint(path), perhaps from an earlier call."""
        status = self._env.stat(path)
        if status is None:
            return None
        with self._lock:
            kept = self._kept.get(path)
        if kept is not None and kept[0] == status:
            return kept[1]
        offsets = read_offset_checkpoint(path, self._env)
        if offsets is not None:
            with self._lock:
                if len(self._kept) >= MAX_CHECKPOINTS_KEPT:
                    self._kept.clear()
                self._kept[path] = status, offsets
        return offsets


def read_leader_epoch_checkpoint(path: str, env: Env = DEFAULT_ENV) -> list[EpochEntry] | None:
    """Read a partition's leader-epoch-checkpoint ("epoch startOffset"); None if there is no such file.

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
    """Write a partition's leader-epoch-checkpoint anew.

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
