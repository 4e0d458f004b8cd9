"""Reads of logs whose files can be deleted, shortened or replaced during the read, by retention, compaction,
delete_records, a deleted topic, or a broker that truncates its log when it becomes a follower.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kstore.env import Closing, is_same_file, split_path
from kstore.errors import LogNotFoundError, LogReplacedError, OffsetOutOfRangeError, StorageError
from kstore.log.damaged.sound import FileRange
from kstore.log.files.names import PartitionDirectory
from kstore.log.log import Log
from kstore.log.plan import ScanRange
from kstore.log.segment.replaced import is_change
from kstore.spark.offsets import OffsetRange, data_loss, latest_offset
from kstore.spark.options import ReadOptions
from kstore.store.opening import open_found

if TYPE_CHECKING:
    import pyarrow as pa

# Attempts to open and use a log; each repeats because files changed during the previous attempt.
_MOST_ATTEMPTS = 10
# How many logs are kept open for later calls. A log that is only read keeps no file open.
MOST_KEPT = 1000

_Result = TypeVar("_Result")
_logger = logging.getLogger("kstore.spark")


class LogPool(Closing):
    """Opens logs for the calls of use_log, and may keep them open for later ones.

    Args: keeps_logs: whether logs are kept open until close(); most_kept: how many, by default MOST_KEPT.
    Threads: thread-safe, if no two threads use the same log.
    """

    def __init__(self, *, keeps_logs: bool = False, most_kept: int | None = None) -> None:
        self._keeps_logs = keeps_logs
        self._most_kept = MOST_KEPT if most_kept is None else most_kept
        self._kept: dict[str, Log] = {}

    def __reduce__(self) -> tuple[object, ...]:
        # A copy in a task keeps logs of its own.
        return partial(LogPool, keeps_logs=self._keeps_logs, most_kept=self._most_kept), ()

    def close(self) -> None:
        """Close the kept logs."""
        self.keep_only(())

    def keep_only(self, paths: Collection[str]) -> None:
        """Close the kept logs of other paths."""
        for path in [path for path in self._kept if path not in paths]:
            self._kept.pop(path).close()

    def size_in_bytes(self, directory: PartitionDirectory) -> int:
        """Return the size of a log in bytes, and keep it open for use_log if there is room.

        Raises: LogNotFoundError, StorageError.
        """
        log = self._kept.get(directory.path)
        if log is not None:
            return log.size_in_bytes
        log = open_found(directory)
        if len(self._kept) < self._most_kept:
            self._kept[directory.path] = log
        else:
            log.close()
        return log.size_in_bytes

    def use_log(self, directory: PartitionDirectory, use: Callable[[Log], _Result]) -> _Result:
        """Open a log, call use(log) and return its result; retry if its files changed during the call.

        Raises: as `use`; StorageError or LogReplacedError after 10 attempts; LogNotFoundError if the directory is gone
            or holds no partition.
        """
        attempts_left = _MOST_ATTEMPTS
        while True:
            attempts_left -= 1
            log = self._kept.pop(directory.path, None) or open_found(directory)
            is_kept = False
            try:
                result = use(log)
                is_kept = self._keeps_logs and len(self._kept) < self._most_kept
                if is_kept:
                    self._kept[directory.path] = log
                return result
            except (StorageError, LogReplacedError) as error:
                if not attempts_left or not is_change(error):
                    raise
            finally:
                if not is_kept:
                    log.close()


def read_despite_changes(
    scan: ScanRange, read: Callable[[Sequence[ScanRange]], Iterator[pa.RecordBatch]], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Read a range whose files may have been deleted, shortened or replaced after planning.

    With failOnDataLoss this is an error. Without it, the read continues with the rows of the range that the log still
    has, and a warning says what happened to the file and which offsets the log has.
    Args: read: decodes ranges; without failOnDataLoss its batches have the column offset.
    Raises: OffsetOutOfRangeError if the files changed; StorageError or LogReplacedError without failOnDataLoss if they
        keep changing; as read().
    """
    if options.fail_on_data_loss:
        yield from _read_all(scan, read)
        return
    waiting = _file_by_file(scan)
    attempts_left = _MOST_ATTEMPTS
    while waiting:
        piece = waiting.pop(0)
        next_offset = max(piece.start_offset, piece.files[0].base_offset)
        try:
            for batch in read([piece]):
                if batch.num_rows:
                    next_offset = batch.column("offset")[-1].as_py() + 1
                yield batch
        except (StorageError, LogReplacedError) as error:
            attempts_left -= 1
            if not attempts_left or not is_change(error):
                raise
            waiting = _planned_again(scan, next_offset, options, fate=_change_of(scan, error))


def _read_all(
    scan: ScanRange, read: Callable[[Sequence[ScanRange]], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    try:
        yield from read([scan])
    except (StorageError, LogReplacedError) as error:
        if not is_change(error):
            raise
        asked = OffsetRange(scan.topic_partition, start_offset=scan.start_offset, end_offset=scan.end_offset)
        fate = _change_of(scan, error)
        raise data_loss(asked, found=f"{fate} since the read was planned", offset=scan.start_offset) from error


def _change_of(scan: ScanRange, error: StorageError | LogReplacedError) -> str:
    """Return what happened to the file on which a read failed: whether it was deleted, shortened or replaced."""
    env = scan.env
    if env.stat(scan.path) is None:
        return f"the directory {scan.path} was deleted or renamed"
    path = error.path or scan.path
    status = env.stat(path, follow_symlinks=False)
    if status is None:
        return f"{path} was deleted"
    last = scan.last_batch
    identities = dict(scan.identities) | ({} if last is None else {last.path: last.identity})
    identity = identities.get(path)
    if identity is not None and not is_same_file(identity, status.file):
        return f"{path} was replaced"
    ends = [file.end_position for file in scan.files if file.path == path]
    if last is not None and last.path == path:
        ends.append(last.position + len(last.header))
    if any(status.size_in_bytes < end for end in ends):
        return f"{path} was truncated to {status.size_in_bytes} bytes"
    return f"{path} was changed (found {getattr(error, 'found', 'no file')})"


def _file_by_file(scan: ScanRange) -> list[ScanRange]:
    first, *others = scan.files or (None,)
    if first is None:
        return [scan]
    # Skipped ranges that are in none of the files are reported once.
    return [replace(scan, files=(first,)), *(replace(scan, files=(file,), skipped=()) for file in others)]


def _planned_again(scan: ScanRange, start_offset: int, options: ReadOptions, *, fate: str) -> list[ScanRange]:
    """Plan what the log still has of a range from start_offset on, one ScanRange per file, and log a warning."""
    directory = PartitionDirectory(scan.topic_partition, scan.path, split_path(scan.path)[0], scan.env)
    asked = OffsetRange(scan.topic_partition, start_offset=start_offset, end_offset=scan.end_offset)

    def plan(log: Log) -> tuple[str, list[ScanRange]]:
        latest = latest_offset(log, options)
        start_held, end_held = max(start_offset, log.log_start_offset), min(scan.end_offset, latest)
        if start_held >= end_held:
            return f"none of these offsets, but [{log.log_start_offset}, {latest})", []
        ranges = log.plan(
            start_offset=start_held,
            end_offset=end_held,
            isolation=options.isolation_level,
            on_error=options.on_error,
        )
        held = f"[{start_held}, {end_held}) of these"
        ranges, lost = _without_torn_ends(ranges, log, planned=scan, start_offset=start_held)
        return ", without ".join([held, *lost]), ranges

    try:
        with LogPool() as pool:
            held, ranges = pool.use_log(directory, plan)
    except LogNotFoundError:
        held, ranges = "no offset any more", []
    except OffsetOutOfRangeError as error:
        held, ranges = f"none of these offsets, but [{error.log_start_offset}, {error.log_end_offset})", []
    _logger.warning(
        "%s: %s since the read was planned; offsets [%s, %s) were still to be read, the log holds %s",
        scan.topic_partition,
        fate,
        asked.start_offset,
        asked.end_offset,
        held,
    )
    return [part for scan_range in ranges for part in _file_by_file(scan_range)]


def _without_torn_ends(
    ranges: list[ScanRange], log: Log, *, planned: ScanRange, start_offset: int
) -> tuple[list[ScanRange], list[str]]:
    """End files that are shorter than planned after their last whole batch, so that a torn batch is no damage.

    Returns: the ranges, and the texts of the offset ranges from start_offset on that were lost between files.
    """
    sizes = {file.path: file.end_position for file in planned.files}
    short = {
        segment.path: segment
        for segment in log.segments
        if not segment.is_last and segment.size_in_bytes < sizes.get(segment.path, 0)
    }
    # The first lost offset of each of these files.
    lost_from = {path: max(start_offset, segment.base_offset) for path, segment in short.items()}

    def cut(file: FileRange) -> FileRange:
        segment = short.get(file.path)
        if segment is None or file.end_position < segment.size_in_bytes:
            return file
        walk = segment.records.walk(position=file.start_position, end_position=file.end_position)
        if walk.status not in ("torn", "end"):
            del lost_from[file.path]
            return file
        lost_from[file.path] = max(walk.last_offset + 1, lost_from[file.path])
        return file._replace(end_position=walk.position)

    cut_ranges = [replace(scan_range, files=tuple(map(cut, scan_range.files))) for scan_range in ranges]
    ends = {path: min(short[path].next_base_offset or 0, planned.end_offset) for path in lost_from}
    return cut_ranges, [f"[{start}, {ends[path]})" for path, start in lost_from.items() if start < ends[path]]
