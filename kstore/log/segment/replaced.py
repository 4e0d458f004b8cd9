"""Distinguishes damage from change: whether a file is damaged where a reader says so, or has changed since it was
listed.

A file that is written while it is read can look damaged: another file has its name, it was truncated and other batches
were written in place of the listed ones, or an append was half finished.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from kstore._core import BatchHeader
from kstore.config import LogConfig
from kstore.env import ENOENT, NO_FILE, Env, FileStatus, Identity, OpenFiles, is_same_file, split_path
from kstore.errors import (
    CorruptionError,
    CorruptRecordError,
    KStoreError,
    LogNotFoundError,
    LogReplacedError,
    StorageError,
    UnsupportedError,
    UnsupportedMagicError,
)
from kstore.log.damaged.sound import read_offset_index
from kstore.log.files.names import LOG_SUFFIX, segment_path
from kstore.log.files.records import SegmentRecords
from kstore.types import TopicPartition

# Errors a reader may hit if the files of a log changed since they were listed.
ERRORS_OF_A_CHANGE = (CorruptionError, UnsupportedError, StorageError, LogReplacedError)
# How many times a log is listed for one answer, each time because its files changed since the time before.
MOST_LOOKS = 100
_MOST_WALKS = 3

_NO_PARTITION = TopicPartition("", 0)


class ListedFile(NamedTuple):
    """A .log as it was listed: what is known of the file, and of the segment in it.

    status: None if only identity and size are known; is_settled: the file had not been written for a while.
    """

    path: str
    base_offset: int
    next_base_offset: int | None
    size_in_bytes: int
    identity: Identity
    status: FileStatus | None = None
    is_settled: bool = False


def is_change(error: KStoreError) -> bool:
    """Whether an error of a read says that a listed file was removed, truncated or replaced."""
    if isinstance(error, LogReplacedError):
        return True
    return isinstance(error, StorageError) and error.errno == ENOENT and not isinstance(error, LogNotFoundError)


def change_that_caused(
    error: KStoreError, listed: ListedFile | None, *, config: LogConfig, env: Env
) -> LogReplacedError | None:
    """Return the change since the listing that caused an error of a read, None if the error means what it says.

    Cost: two stats; for damage in a file that was written since, a deep walk from its start to the damage, repeated if
    the file is written during that walk.
    """
    if isinstance(error, LogReplacedError):
        return error
    if listed is None:
        return None
    if isinstance(error, StorageError):
        return _replaced(listed, NO_FILE) if error.errno == ENOENT else None
    # Every other corruption error is raised after a CRC matched, or after the last batch of the log was found in its
    # file: the bytes are as they were written.
    if not isinstance(error, CorruptRecordError | UnsupportedMagicError):
        return None
    try:
        for _ in range(_MOST_WALKS):
            status = env.stat(listed.path, follow_symlinks=False)
            identity_now = _found_instead(listed, status, env)
            if identity_now is not None:
                return _replaced(listed, identity_now)
            if status is None or error.position is None or (listed.is_settled and status == listed.status):
                return None
            if _is_sound_at(error.position, listed, size_in_bytes=status.size_in_bytes, config=config, env=env):
                return _replaced(listed, "other batches")
            if env.stat(listed.path, follow_symlinks=False) == status:
                return None
    except LogReplacedError as change:
        return change
    except StorageError:
        pass
    return None


def _found_instead(listed: ListedFile, status: FileStatus | None, env: Env) -> str | None:
    """Return what shows, without a read, that a listed file has changed; None if nothing does."""
    if status is None:
        return NO_FILE
    if not is_same_file(listed.identity, status.file):
        return f"another file, {status.file}"
    if status.size_in_bytes < listed.size_in_bytes:
        return f"{status.size_in_bytes} bytes"
    if listed.next_base_offset is None:
        return None
    # A truncation removes the segments after the one that it leaves, which then goes on past their offsets.
    following = segment_path(split_path(listed.path)[0], listed.next_base_offset, suffix=LOG_SUFFIX)
    return None if env.stat(following) is not None else f"no segment at offset {listed.next_base_offset} after it"


def _replaced(listed: ListedFile, found: str) -> LogReplacedError:
    expected = f"{listed.size_in_bytes} bytes or more of {listed.identity}"
    message = f"{listed.path} changed since it was listed: expected {expected}, found {found}; open the log again"
    return LogReplacedError(message, path=listed.path, expected=expected, found=found)


def _is_sound_at(position: int, listed: ListedFile, *, size_in_bytes: int, config: LogConfig, env: Env) -> bool:
    """Whether the file, as it is now, has no damage at a position."""
    with OpenFiles(env) as files:
        records = SegmentRecords(
            files,
            path=listed.path,
            base_offset=listed.base_offset,
            next_base_offset=listed.next_base_offset,
            size_in_bytes=size_in_bytes,
            config=config,
            identity=listed.identity,
        )
        from kstore.log.damaged.check import SegmentCheck

        check = SegmentCheck(
            records,
            find_index=partial(read_offset_index, listed.path, base_offset=listed.base_offset, env=env),
            topic_partition=_NO_PARTITION,
            config=config,
            is_deep=True,
        )
        least_offset = listed.base_offset
        for step in check.steps():
            if step.damage is not None and step.damage.position <= position < step.end_position:
                return False
            if position < step.end_position:
                return step.header is None or _is_above(step.header, least_offset)
            if step.header is not None:
                least_offset = step.header.last_offset + 1
    return True


def _is_above(header: BatchHeader, least_offset: int) -> bool:
    """Whether a batch's offsets are above those of the batch before it.

    A reader may not notice that a batch is damaged, and then refuses the next one because of its offsets.
    """
    try:
        header.check_place(least_offset=least_offset)
    except CorruptRecordError:
        return False
    return True
