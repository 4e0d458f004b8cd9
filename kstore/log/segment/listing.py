"""open_segments: the segments of a directory at one moment, also while another process changes the directory."""

from __future__ import annotations

from itertools import zip_longest
from operator import itemgetter

from kstore.env import Env, FileStatus, is_settled, join_path
from kstore.errors import LogReplacedError
from kstore.log.files.names import LOG_SUFFIX, SWAP_STATE, parse_segment_name
from kstore.log.files.records import status_of_segment
from kstore.log.segment.replaced import MOST_LOOKS, ListedFile
from kstore.log.segment.segment import LogContext, LogSegment

# The longest pause between two looks at a directory that changes.
_MOST_PAUSE_MS = 20


def open_segments(context: LogContext, env: Env, *, lock_path: str) -> tuple[FileStatus | None, tuple[LogSegment, ...]]:
    """Return the segments of a directory at one moment, and the status of the directory.

    A listing that overlaps a change of the directory may miss segments that existed before and after it: Kafka's
    cleaner renames the files that it replaces before the replacements (LocalLog.replaceSegments). So it is repeated,
    with pauses, since the cleaner may have to wait for a processor.
    Raises: LogReplacedError if the directory changes during each of the looks; StorageError.
    """
    for look in range(MOST_LOOKS):
        if look:
            env.sleep_ms(min(look, _MOST_PAUSE_MS))
        before = env.stat(context.directory)
        found, is_whole = _log_files(context.directory, env, lock_path=lock_path)
        if is_whole and env.stat(context.directory) == before:
            break
    else:
        raise changes_too_often(context.directory)
    bases = [base_offset for base_offset, _, _ in found]
    files = [
        ListedFile(
            path, base_offset, following, status.size_in_bytes, status.file, status, is_settled=is_settled(status, env)
        )
        for (base_offset, path, status), following in zip_longest(found, bases[1:])
    ]
    return before, tuple(
        LogSegment(
            context,
            base_offset=file.base_offset,
            next_base_offset=file.next_base_offset,
            size_in_bytes=file.size_in_bytes,
            listed=file,
        )
        for file in files
    )


def _log_files(directory: str, env: Env, *, lock_path: str) -> tuple[list[tuple[int, str, FileStatus]], bool]:
    """Return base offset, path and status of each .log file, in order, and whether the directory did not change."""
    files: list[tuple[int, str, FileStatus]] = []
    names = env.listdir(directory)
    is_whole = True
    for name in names:
        log_name = name.removesuffix(SWAP_STATE)
        segment_name = parse_segment_name(log_name) if log_name.endswith(LOG_SUFFIX) else None
        if segment_name is None:
            continue
        if name.endswith(SWAP_STATE):
            # A swap file of a crash remains; that of a running cleaner is about to be renamed.
            is_whole = is_whole and not env.is_locked(lock_path)
            continue
        path = join_path(directory, name)
        status = status_of_segment(path, env)
        if status is None:
            is_whole = False
            continue
        files.append((segment_name.base_offset, path, status))
    return sorted(files, key=itemgetter(0)), is_whole


def changes_too_often(directory: str) -> LogReplacedError:
    """Return the error for a directory that changed during each look at it."""
    return LogReplacedError(f"{directory} changes too often: open the log again", path=directory)
