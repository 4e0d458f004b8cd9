"""Planning of a run: what the source has that the target lacks, in parts, and which small files to join.

make_plan resolves offsets and times against the logs as they are now; works looks up what the task of each part reads.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from kstore.archive.manifest import ExportedFile, ExportedPartition, Manifest
from kstore.archive.options import ExportOptions
from kstore.archive.parts import Part, Plan, Work
from kstore.config import MAX_INT32, MAX_INT64, MIB, LogConfig
from kstore.errors import ExportSourceError
from kstore.log.env import Env, Location, StrPath, locate, split_path
from kstore.log.files.names import PartitionDirectory, find_partitions
from kstore.log.log import Log
from kstore.log.opening import open_found
from kstore.log.plan import ScanRange
from kstore.log.segment.sound import FileRange
from kstore.types import MAX_OFFSET, TopicPartition

# A part below this size is not split to give every thread one.
_LEAST_PART_BYTES = 16 * MIB
# Of the ranges of a part, so that several threads can decode it.
_RANGE_BYTES = 8 * MIB


class Source(NamedTuple):
    """Where an export reads. env: None to choose it by the path; fails_on_data_loss: whether offsets that were lost
    before they were exported are an error.
    """

    path: StrPath
    config: LogConfig
    env: Env | None
    fails_on_data_loss: bool = True

    @property
    def name(self) -> str:
        """The path as the manifest names it."""
        return self.located.path

    @property
    def located(self) -> Location:
        """The Env that reads the path, and the path in it."""
        return locate(self.path, self.env)

    def selected(self, options: ExportOptions) -> list[PartitionDirectory]:
        """Return the partitions to export.  Raises: as find_partitions; ValueError for one that is not there."""
        return options.selection.select(find_partitions(self.path, self.env))

    def open(self, directory: PartitionDirectory) -> Log:
        """Open a log for reading."""
        return open_found(directory, self.config)


class _Span(NamedTuple):
    """What a run takes of a log: [start, end) offsets; is_new: nothing of the partition was exported before."""

    start: int
    end: int
    is_new: bool
    missing: tuple[tuple[int, int], ...] = ()


def make_plan(source: Source, options: ExportOptions, manifest: Manifest | None, *, tasks: int) -> Plan:
    """Return what is to be done now.

    Args: tasks: how many run at a time; parts are made smaller, not below 16 MiB, if there would be fewer.
    Raises: ExportSourceError; ValueError for a selection that the source does not have; as open_log and Log.plan.
    Cost: opens each log; with read_committed walks each.
    """
    partitions: list[ExportedPartition] = []
    parts: list[Part] = []
    before = {one.topic_partition: one for one in (() if manifest is None else manifest.partitions)}
    directories = source.selected(options)
    is_few = len(directories) < tasks
    for directory in directories:
        with source.open(directory) as log:
            known = before.pop(log.topic_partition, None)
            span = _span_of(log, known, options, source)
            size = options.file_bytes
            if is_few and not options.is_verbatim:
                size = min(size, max(log.size_in_bytes * len(directories) // tasks, _LEAST_PART_BYTES))
            found = _segment_parts(log, span, options) if options.is_verbatim else _parts(log, span, options, size)
            parts += found
            start = span.start if known is None else known.start_offset
            missing = span.missing if known is None else (*known.missing, *span.missing)
            damage = () if known is None else known.damage
            partitions.append(ExportedPartition(*log.topic_partition, start, span.end, 0, missing, damage))
    partitions += before.values()
    parts += _joins(manifest, options)
    return Plan(
        run_id=uuid.uuid4().hex,
        source=source.name,
        options=options.described(),
        partitions=tuple(sorted(partitions)),
        parts=tuple(part._replace(number=number) for number, part in enumerate(parts)),
    )


def works(parts: Iterable[Part], source: Source, options: ExportOptions, manifest: Manifest | None) -> Iterator[Work]:
    """Yield what the task of each part reads, looked up in the logs as they are now.

    Raises: ExportSourceError if the source has lost offsets of a part; as make_plan.
    """
    files = {file.path: file for file in (() if manifest is None else manifest.files)}
    todo = sorted(parts, key=lambda part: (bool(part.inputs), part.topic_partition, part.number))
    directories = None
    for (is_join, topic_partition), group in groupby(todo, key=lambda part: (bool(part.inputs), part.topic_partition)):
        if is_join:
            yield from (Work(part, files=tuple(files[path] for path in part.inputs)) for part in group)
            continue
        if directories is None:
            directories = {one.topic_partition: one for one in source.selected(options)}
        directory = directories[topic_partition]
        with source.open(directory) as log:
            yield from (_work(log, part, options, source) for part in group)


def _span_of(log: Log, known: ExportedPartition | None, options: ExportOptions, source: Source) -> _Span:
    first, last = options.selection.bounds_of(log.topic_partition)
    missing: tuple[tuple[int, int], ...] = ()
    if known is not None:
        first = known.end_offset
        if log.log_start_offset > first:
            missing = _lost(log, first, source, end=log.log_start_offset)
        elif log.log_end_offset < first:
            raise _diverged(log, first, "it was truncated, or another log took its place")
    if first is not None and last is not None and last < first:
        return _Span(first, first, known is None, missing)
    since_ms = options.since_ms if known is None else None
    start, end = log.held_offsets(
        first, last, since_ms=since_ms, isolation=options.isolation, on_error=options.on_error
    )
    if end == MAX_OFFSET:
        end = max(start, log.readable_end(isolation=options.isolation, on_error=options.on_error).offset)
    if options.is_verbatim:
        end = _verbatim_end(log, start, options, end=end)
    return _Span(start, max(start, end), known is None, missing)


def _lost(log: Log, first: int, source: Source, *, end: int) -> tuple[tuple[int, int], ...]:
    """Return the offsets that the source has lost.  Raises: ExportSourceError, unless that is to be tolerated."""
    if source.fails_on_data_loss:
        raise _diverged(log, first, "what is between was deleted before it was exported")
    return ((first, end),)


def _diverged(log: Log, offset: int, why: str) -> ExportSourceError:
    bounds = f"{log.log_start_offset} to {log.log_end_offset}"
    place = f"{log.topic_partition} in {log.path}"
    return ExportSourceError(
        f"{place}: the export has to go on at offset {offset}, the log holds {bounds}: {why}",
        topic=log.topic_partition.topic,
        partition=log.topic_partition.partition,
        offset=offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        path=log.path,
    )


def _verbatim_end(log: Log, start: int, options: ExportOptions, *, end: int) -> int:
    """Return where whole batches end: at the first record from until_ms on, and with last_batch="drop" before the batch
    that spans the end.
    """
    if options.until_ms is not None:
        found = log.offset_for_timestamp(max(options.until_ms, 0), on_error=options.on_error)
        end = end if found is None else min(end, found.offset)
    if options.last_batch == "drop" and start < end < log.log_end_offset:
        batch = next(log.batches(end, min(end + 1, log.log_end_offset), on_error=options.on_error), None)
        if batch is not None:
            end = min(
                end, max(start, next(iter(batch)).offset if not batch.header.has_base_offset else batch.base_offset)
            )
    return end


def _parts(log: Log, span: _Span, options: ExportOptions, size: int) -> list[Part]:
    """Return parts of about `size` bytes, all of about the same size."""
    if span.start >= span.end:
        return []
    whole = _planned(log, span.start, options, end=span.end, max_bytes=MAX_INT64)
    total = sum(scan.size_in_bytes for scan in whole)
    if total > size:
        count = -(-(total + total // 64) // size)
        whole = _planned(log, span.start, options, end=span.end, max_bytes=max(total // count, 1))
    return [
        Part(0, *log.topic_partition, scan.start_offset, min(scan.end_offset, span.end), scan.size_in_bytes)
        for scan in whole
    ]


def _planned(log: Log, start: int, options: ExportOptions, *, end: int, max_bytes: int) -> list[ScanRange]:
    if start >= end:
        return []
    isolation, on_error = options.isolation, options.on_error
    # Damage after the last sound batch belongs to the part that reaches it.
    last = None if end >= log.readable_end(isolation=isolation, on_error=on_error).offset else end
    return log.plan(max_bytes, start, last, isolation=isolation, on_error=on_error)


def _segment_parts(log: Log, span: _Span, options: ExportOptions) -> list[Part]:
    """Return a part for each segment that has batches with offsets of the span."""
    place, parts = log.topic_partition, []
    for scan in _planned(log, span.start, options, end=span.end, max_bytes=MAX_INT64):
        for file in scan.files:
            limit = span.end if file.next_base_offset is None else min(file.next_base_offset, span.end)
            parts.append(
                Part(
                    0,
                    *place,
                    max(span.start, file.base_offset),
                    limit,
                    file.end_position - file.start_position,
                    source_base_offset=file.base_offset,
                    base_offset=file.base_offset if span.start <= file.base_offset else -1,
                )
            )
    parts += _empty_segments(log, span, {part.source_base_offset for part in parts})
    if not parts and span.is_new:
        parts.append(Part(0, *place, span.start, span.start, 0, -1, span.start))
    return parts


def _empty_segments(log: Log, span: _Span, copied: set[int]) -> list[Part]:
    """Return parts for the segments without batches, which a cleaner or a roll leaves."""
    parts = []
    for segment in log.segments:
        base = segment.base_offset
        is_inside = span.start <= base < span.end or (base == span.end == log.log_end_offset)
        # The end of an earlier run has a segment already.
        if base in copied or not is_inside or (base == span.start and not span.is_new) or segment.scan_end_position:
            continue
        parts.append(Part(0, *log.topic_partition, base, base, 0, base, base))
    return parts


def _work(log: Log, part: Part, options: ExportOptions, source: Source) -> Work:
    if part.is_empty_segment:
        return Work(part, log.path)
    missing: tuple[tuple[int, int], ...] = ()
    start = part.start_offset
    if log.log_start_offset > start:
        start = min(log.log_start_offset, part.end_offset)
        missing = _lost(log, part.start_offset, source, end=start)
    if log.readable_end(on_error=options.on_error).offset < part.end_offset:
        raise _diverged(log, part.end_offset, "it was truncated, or another log took its place")
    size = MAX_INT64 if options.is_verbatim else _RANGE_BYTES
    ranges = _planned(log, start, options, end=part.end_offset, max_bytes=size)
    return Work(part._replace(start_offset=start), log.path, tuple(ranges), (), missing)


def _joins(manifest: Manifest | None, options: ExportOptions) -> list[Part]:
    """Return parts that join small files of earlier runs: those that follow each other in a partition and a directory,
    and of segments only pieces of the same one.

    A file is joined to the next one if it is not larger than that, or than what that is joined to: so there are at most
    about log2(target size / smallest) small files, and a record is written again as rarely.
    """
    # A cleaner of the source merges segments: pieces of one of them may lie on both sides of what another one held.
    files = sorted(manifest.files if manifest else (), key=lambda one: (*_directory_of(one), one.first_offset))
    parts = []
    for _, group in groupby(files, key=lambda one: (_directory_of(one), one.source_base_offset)):
        stack: list[list[ExportedFile]] = []
        for file in group:
            if file.size_in_bytes == 0:
                continue
            stack.append([file])
            while len(stack) > 1 and _fit(stack[-2], stack[-1], options):
                last = stack.pop()
                stack[-1] += last
        parts += [_join(run) for run in stack if len(run) > 1]
    return parts


def _directory_of(file: ExportedFile) -> tuple[TopicPartition, str]:
    return file.topic_partition, split_path(file.path)[0]


def _fit(one: Sequence[ExportedFile], two: Sequence[ExportedFile], options: ExportOptions) -> bool:
    first, second = (sum(file.size_in_bytes for file in run) for run in (one, two))
    if options.is_verbatim:
        return first <= second and first + second <= MAX_INT32 and one[0].source_base_offset is not None
    return first <= second and first + second <= options.file_bytes


def _join(run: Sequence[ExportedFile]) -> Part:
    first, last = run[0], run[-1]
    return Part(
        0,
        *first.topic_partition,
        first.first_offset,
        last.last_offset + 1,
        sum(file.size_in_bytes for file in run),
        -1 if first.source_base_offset is None else first.source_base_offset,
        first.first_offset,
        tuple(file.path for file in run),
    )


def pieces_of(work: Work) -> list[tuple[ScanRange, FileRange]]:
    """Return the parts of files that a segment is copied from."""
    return [(scan, file) for scan in work.ranges for file in scan.files]
