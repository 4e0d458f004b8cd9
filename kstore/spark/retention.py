"""Reads of logs whose segments can be deleted during the read, by retention or delete_records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from kstore.errors import LogNotFoundError, LogReplacedError, StorageError
from kstore.log import Log, ScanRange, open_log
from kstore.log.env import ENOENT, NO_FILE
from kstore.spark.offsets import OffsetRange, data_loss
from kstore.spark.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

# Attempts to open and use a log; each repeats because segments were deleted during the previous attempt.
_MOST_LOOKS = 10

_Result = TypeVar("_Result")
_logger = logging.getLogger("kstore.spark")


def look_at(path: str, use: Callable[[Log], _Result]) -> _Result:
    """Open a log, call use(log) and return its result; retry if a segment was deleted or replaced during the call.

    Raises: what `use` raises; StorageError or LogReplacedError after _MOST_LOOKS attempts; LogNotFoundError if the
        partition was deleted.
    """
    looks_left = _MOST_LOOKS
    while True:
        looks_left -= 1
        try:
            with open_log(path) as log:
                return use(log)
        except (StorageError, LogReplacedError) as error:
            if not looks_left or not _is_changed(error):
                raise


def read_what_is_left(
    scan: ScanRange, read: Callable[[Sequence[ScanRange]], Iterator[pa.RecordBatch]], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Read a range whose segments may have been deleted or replaced after planning.

    With failOnDataLoss this is an error. Without it, the part of the range that the log still holds is read and a
    warning is logged.
    Raises: OffsetOutOfRangeError for deleted or replaced segments; what look_at() and read() raise.
    """
    waiting = [scan] if options.fail_on_data_loss else _file_by_file(scan)
    looks_left = _MOST_LOOKS
    while waiting:
        piece = waiting.pop(0)
        has_given = False
        try:
            for batch in read([piece]):
                has_given = True
                yield batch
        except (StorageError, LogReplacedError) as error:
            looks_left -= 1
            # An open file can be read to its end even after deletion. After its first batches only a truncation fails
            # the read, and then the records already returned can't be taken back.
            is_lost = has_given and not options.fail_on_data_loss
            if not looks_left or is_lost or not _is_changed(error):
                raise
            start_offset = max(piece.start_offset, piece.files[0].base_offset)
            if options.fail_on_data_loss:
                asked = OffsetRange(scan.topic_partition, start_offset=start_offset, end_offset=scan.end_offset)
                fate = "replaced" if isinstance(error, LogReplacedError) and error.found != NO_FILE else "deleted"
                found = f"{error.path} was {fate} since the read was planned"
                raise data_loss(asked, found=found, offset=start_offset) from error
            _logger.warning(
                "%s: %s was deleted or replaced; reading the records that are left", scan.topic_partition, error.path
            )
            waiting = _planned_anew(scan, start_offset, options)


def _is_changed(error: StorageError | LogReplacedError) -> bool:
    if isinstance(error, LogReplacedError):
        return True
    return error.errno == ENOENT and not isinstance(error, LogNotFoundError)


def _file_by_file(scan: ScanRange) -> list[ScanRange]:
    return [replace(scan, files=(file,)) for file in scan.files]


def _planned_anew(scan: ScanRange, start_offset: int, options: ReadOptions) -> list[ScanRange]:
    """Plan the part of a range from start_offset on that the log still holds, one ScanRange per file."""

    def plan(log: Log) -> list[ScanRange]:
        start_held, end_held = max(start_offset, log.log_start_offset), min(scan.end_offset, log.log_end_offset)
        if start_held >= end_held:
            return []
        return log.plan(start_offset=start_held, end_offset=end_held, isolation=options.isolation_level)

    return [part for found in look_at(scan.path, plan) for part in _file_by_file(found)]
