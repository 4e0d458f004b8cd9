"""Planning of a run: the parts of the source that the target lacks, and the small files to join.

make_plan resolves offsets and times against the logs as they are now; work_of yields the files that each task reads.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from kstore._core import BatchHeader
from kstore.archive.manifest import BATCH_IDENTITY, ExportedFile, ExportedPartition, Manifest, OpenTransaction
from kstore.archive.options import ExportOptions
from kstore.archive.parts import Part, Plan, Waiting, Work, described
from kstore.config import MAX_INT32, MAX_INT64, MIB, LogConfig
from kstore.env import Env, Location, StrPath, join_path, locate, split_path
from kstore.errors import (
    CorruptionError,
    CorruptRecordError,
    ExportSourceError,
    ExportTransactionError,
    LogNotFoundError,
    OffsetOutOfRangeError,
)
from kstore.log.damage import SkippedRange
from kstore.log.damaged.sound import FileRange
from kstore.log.files.names import PartitionDirectory
from kstore.log.files.root_files import id_text, read_partition_metadata
from kstore.log.log import Log
from kstore.log.plan import ScanRange
from kstore.log.segment.replaced import ERRORS_OF_A_CHANGE
from kstore.log.state.transactions import producers_in, transactions_ending_from
from kstore.store.opening import look_into, open_found
from kstore.types import MAX_OFFSET, TopicPartition

# A part below this size is not split to give every thread one.
_LEAST_PART_BYTES = 16 * MIB
# Of the ranges of a part, so that several threads can decode it.
_RANGE_BYTES = 8 * MIB
# Attempts to look at a log whose files change.
MOST_ATTEMPTS = 10
# That look at the logs of a source for one plan.
_MOST_THREADS = 8


_Result = TypeVar("_Result")


class Source(NamedTuple):
    """Where an export reads. env: None to choose it by the path; fails_on_data_loss: whether offsets that were lost
    before they were exported are an error; found: the partitions to export if they were selected before, else None.
    """

    path: StrPath
    config: LogConfig
    env: Env | None
    fails_on_data_loss: bool = True
    found: tuple[PartitionDirectory, ...] | None = None

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
        return options.selection.find(self.path, self.env) if self.found is None else list(self.found)

    def open(self, directory: PartitionDirectory) -> Log:
        """Open a log for reading."""
        return open_found(directory, self.config)


class _ImpossibleOffsetError(CorruptRecordError):
    """A batch that was read whole, with an offset that its segment cannot hold: no change of the files explains it."""


class _Span(NamedTuple):
    """The offsets [start, end) of a log that a run exports. is_new: nothing of the partition was exported before;
    missing: ranges that the source has lost; damage: a last batch with an impossible offset, which is left out.
    """

    start: int
    end: int
    is_new: bool
    missing: tuple[tuple[int, int], ...] = ()
    damage: tuple[dict[str, Any], ...] = ()


def make_plan(source: Source, options: ExportOptions, manifest: Manifest | None, *, tasks: int) -> Plan:
    """Return the plan of the next run.

    Args: tasks: how many run at a time; parts are made smaller, not below 16 MiB, if there would be fewer.
    Raises: ExportSourceError; ValueError for a selection that the source does not have; as open_log and Log.plan.
    Threads: as many logs are looked at at a time as there are tasks, at most 8.
    Cost: opens each log; with read_committed walks the headers of each, and of a verbatim export twice from the first
        transaction on.
    """
    partitions: list[ExportedPartition] = []
    parts: list[Part] = []
    before = {partition.topic_partition: partition for partition in (() if manifest is None else manifest.partitions)}
    # The manifest that is made for a table has no run id.
    is_first_run = manifest is None or not (manifest.run_id or before)
    waiting: list[Waiting] = []
    directories = source.selected(options)
    share = min(len(directories) / tasks, 1)

    def planned_of(directory: PartitionDirectory) -> _PartitionPlan | None:
        known = before.get(directory.topic_partition)

        def plan(log: Log) -> _PartitionPlan:
            topic_id = topic_id_of(directory, source.located.env)
            return _plan_partition(log, known, options, source, topic_id, is_first_run=is_first_run, share=share)

        # It may have been deleted since it was listed.
        with suppress(LogNotFoundError):
            return with_log(source, directory, plan)
        return None

    for planned in look_into(directories, planned_of, threads=min(tasks, _MOST_THREADS)):
        if planned is not None:
            before.pop(planned.exported.topic_partition, None)
            partitions.append(planned.exported)
            parts += planned.parts
            waiting += planned.waiting
    partitions += before.values()
    parts += _joins(manifest, options)
    return Plan(
        run_id=uuid.uuid4().hex,
        earlier_run_id="" if manifest is None else manifest.run_id,
        source=source.name,
        options=options.described(),
        partitions=tuple(sorted(partitions)),
        parts=tuple(part._replace(number=number) for number, part in enumerate(parts)),
        waiting=tuple(waiting),
    )


class _PartitionPlan(NamedTuple):
    """The plan of one partition."""

    exported: ExportedPartition
    parts: Sequence[Part]
    waiting: Sequence[Waiting]


def _plan_partition(
    log: Log,
    known: ExportedPartition | None,
    options: ExportOptions,
    source: Source,
    topic_id: str | None,
    *,
    is_first_run: bool,
    share: float,
) -> _PartitionPlan:
    if known is not None:
        _check_unchanged(log, known, topic_id)
    span = _span_of(log, known, options, source, is_first_run=is_first_run)
    exported = _exported(log, span, known, topic_id)
    waiting = list(_waiting(log, span, options))
    if not options.is_verbatim:
        size = options.file_bytes
        if share < 1:
            size = min(size, max(int(log.size_in_bytes * share), _LEAST_PART_BYTES))
        return _PartitionPlan(exported, _parts(log, span, options, size), waiting)
    parts = _segment_parts(log, span, options)
    if span.start < span.end:
        if known is not None:
            _check_decided(log, known, options)
        parts, left_open = _with_markers(log, span, known, parts, options)
        exported = exported._replace(open_transactions=left_open)
    return _PartitionPlan(exported, parts, waiting)


def with_log(source: Source, directory: PartitionDirectory, use: Callable[[Log], _Result]) -> _Result:
    """Open a log and return use(log); retry if its files change during the call, up to MOST_ATTEMPTS times in all.

    Raises: as use; LogNotFoundError; LogReplacedError or StorageError if the files keep changing.
    """
    attempts_left = MOST_ATTEMPTS
    while True:
        attempts_left -= 1
        with source.open(directory) as log:
            try:
                return use(log)
            except _ImpossibleOffsetError:
                raise
            except ERRORS_OF_A_CHANGE as error:
                log._relist_or_raise(error, attempts_left=attempts_left)
            except OffsetOutOfRangeError:
                # The log had every offset that is asked for a moment ago.
                if not attempts_left:
                    raise


def work_of(
    parts: Iterable[Part],
    source: Source,
    options: ExportOptions,
    manifest: Manifest | None,
    *,
    planned: Iterable[ExportedPartition],
) -> Iterator[Work]:
    """Yield the work of each part: the files that its task reads, looked up in the logs as they are now.

    Args: planned: the partitions of the plan; their logs must be those that were planned.
    Raises: ExportSourceError if the source has lost offsets of a part; as make_plan.
    """
    expected = {partition.topic_partition: partition for partition in planned}
    files = {file.path: file for file in (() if manifest is None else manifest.files)}
    todo = sorted(parts, key=lambda part: (bool(part.inputs), part.topic_partition, part.number))
    directories = None
    for (is_join, topic_partition), group in groupby(todo, key=lambda part: (bool(part.inputs), part.topic_partition)):
        if is_join:
            yield from (Work(part, files=tuple(files[path] for path in part.inputs)) for part in group)
            continue
        if directories is None:
            directories = {listed.topic_partition: listed for listed in source.selected(options)}
        directory = directories.get(topic_partition)
        if directory is None:
            yield from _work_of_deleted(list(group), source)
            continue
        todo_here = list(group)

        def look_up(log: Log, parts: list[Part] = todo_here, directory: PartitionDirectory = directory) -> list[Work]:
            exported = expected[directory.topic_partition]
            _check_unchanged(log, exported, topic_id_of(directory, source.located.env))
            return [_work(log, part, exported, options, source) for part in parts]

        try:
            looked_up = with_log(source, directory, look_up)
        except LogNotFoundError:
            looked_up = list(_work_of_deleted(todo_here, source))
        yield from looked_up


def renewed_work(work: Work, source: Source, options: ExportOptions) -> Work:
    """Return a task's work looked up again, after files that it reads changed.  Raises: as work_of."""
    planned = () if work.exported is None else (work.exported,)
    again = next(work_of((work.part,), source, options, None, planned=planned))
    return again._replace(missing=(*work.missing, *again.missing))


def topic_id_of(directory: PartitionDirectory, env: Env) -> str | None:
    """Return the topic id in a partition's directory, None if it is missing or damaged."""
    with suppress(CorruptionError):
        topic_id = read_partition_metadata(directory.path, env)
        return None if topic_id is None else id_text(topic_id)
    return None


def _exported(log: Log, span: _Span, known: ExportedPartition | None, topic_id: str | None) -> ExportedPartition:
    if known is None:
        exported = ExportedPartition(*log.topic_partition, span.start, span.end, 0, span.missing)
    else:
        is_empty = known.start_offset == known.end_offset and not span.missing
        start = span.start if is_empty else known.start_offset
        missing = (*known.missing, *span.missing)
        exported = known._replace(start_offset=start, end_offset=span.end, record_count=0, missing=missing)
    if known is None or known.last_batch is None or span.end > known.end_offset:
        exported = exported._replace(last_batch=_last_batch(log, span.end))
    damage = (*exported.damage, *(skipped for skipped in span.damage if skipped not in exported.damage))
    return exported._replace(topic_id=topic_id or exported.topic_id, damage=damage)


def _header_at(log: Log, offset: int) -> BatchHeader | None:
    """Return the header of the batch that holds an offset; None if there is none, or it is damaged."""
    if not log.log_start_offset <= offset < log.log_end_offset:
        return None
    with suppress(CorruptionError):
        batch = next(log.batches(offset, offset + 1), None)
        return None if batch is None else batch.header
    return None


def _last_batch(log: Log, end: int) -> dict[str, int] | None:
    header = _header_at(log, end - 1)
    if header is None or not header.has_base_offset:
        return None
    return {name: int(getattr(header, name) or 0) for name in (*BATCH_IDENTITY, "record_count", "crc")}


def _check_unchanged(log: Log, known: ExportedPartition, topic_id: str | None) -> None:
    """Raise ExportSourceError if the log is not the one that was exported: its topic id differs, or the batch with the
    last exported offset differs in a way that no cleaner explains.
    """
    if known.topic_id is not None and topic_id is not None and topic_id != known.topic_id:
        why = f"the topic was deleted and created again, its id was {known.topic_id} and is {topic_id}"
        raise _diverged(log, known.end_offset, why)
    last = known.last_batch
    header = None if last is None else _header_at(log, last["last_offset"])
    if last is None or header is None or not header.has_base_offset:
        return
    actual = {name: int(getattr(header, name) or 0) for name in last}
    is_cleaned = actual["record_count"] < last["record_count"] or header.has_delete_horizon
    if any(actual[name] != last[name] for name in BATCH_IDENTITY) or (actual["crc"] != last["crc"] and not is_cleaned):
        expected = f"offsets {last['base_offset']} to {last['last_offset']} and CRC {last['crc']:#010x}"
        there = f"offsets {header.base_offset} to {header.last_offset} and CRC {header.crc:#010x}"
        why = f"it was truncated, or another log took its place: the last exported batch had {expected}, found {there}"
        raise _diverged(log, known.end_offset, why)


def _span_of(
    log: Log, known: ExportedPartition | None, options: ExportOptions, source: Source, *, is_first_run: bool
) -> _Span:
    first, last = options.selection.bounds_of(log.topic_partition)
    missing: tuple[tuple[int, int], ...] = ()
    # A partition that is new since the first run is new as a whole.
    if first == MAX_OFFSET and not is_first_run:
        first = None
    if known is not None:
        _check_not_shorter(log, known.end_offset, options)
        first = max(known.end_offset, first or 0)
        if log.log_start_offset > first:
            missing = _lost_range(log, first, source, end=log.log_start_offset)
    if first is not None and (known is None or first > known.end_offset):
        end = log._readable_end(isolation=options.end_isolation, on_error=options.on_error).offset
        if known is not None and end < first:
            return _Span(known.end_offset, known.end_offset, is_new=False)
        first = min(first, end)
    if first is not None and last is not None and last < first:
        at = first if known is None else known.end_offset
        return _Span(at, at, known is None, missing)
    since_ms = options.since_ms if known is None else None
    start, end = log._held_offsets(
        first, last, since_ms=since_ms, isolation=options.end_isolation, on_error=options.on_error
    )
    if end == MAX_OFFSET:
        end = max(start, log._readable_end(isolation=options.end_isolation, on_error=options.on_error).offset)
    true_end, damage = _possible_end(log, options, end=end)
    # The start may be that of a log which seems to end too far above.
    start, end = min(start, true_end), min(end, true_end)
    if options.is_verbatim:
        end = _verbatim_end(log, start, options, end=end)
    return _Span(start, max(start, end), known is None, missing, damage)


def _waiting(log: Log, span: _Span, options: ExportOptions) -> Iterator[Waiting]:
    """Yield the selected offsets that this run does not export because a transaction is open."""
    if options.end_isolation != "read_committed" or options.until_ms is not None:
        return
    stable = log._readable_end(isolation="read_committed", on_error=options.on_error).offset
    last = options.selection.bounds_of(log.topic_partition)[1]
    end = log._readable_end(on_error=options.on_error).offset
    end = end if last is None else min(end, last)
    if stable <= span.end < end:
        yield Waiting(*log.topic_partition, span.end, end)


def _check_decided(log: Log, known: ExportedPartition, options: ExportOptions) -> None:
    """Raise ExportTransactionError if the source has lost the marker of a transaction that is open in the target: in
    the copy, the marker of a later transaction would end it, or none.
    """
    unknown = {
        transaction.producer_id: transaction for transaction in known.open_transactions if transaction.marker_offset < 0
    }
    for transaction in known.open_transactions:
        header = _header_at(log, transaction.marker_offset) if transaction.marker_offset >= 0 else None
        if transaction.marker_offset >= 0 and (
            header is None or not header.is_control or header.producer_id != transaction.producer_id
        ):
            raise marker_lost(log.path, known, transaction)
    if not unknown:
        return
    # A cleaner leaves a marker as long as there is data of its transaction.
    start = min(transaction.first_offset for transaction in unknown.values())
    has_data = producers_in(log.segments, max(start, log.log_start_offset), end_offset=known.end_offset)
    undecided = {
        producer_id: transaction for producer_id, transaction in unknown.items() if producer_id not in has_data
    }
    # A marker that follows without a gap is the next one of its producer.
    expected = known.end_offset
    for batch in log.batches(max(expected, log.log_start_offset), on_error=options.on_error):
        if not undecided or batch.base_offset != expected:
            break
        expected = batch.last_offset + 1
        if batch.is_control:
            undecided.pop(batch.producer_id, None)
    if undecided and expected < log.log_end_offset:
        raise marker_lost(log.path, known, min(undecided.values(), key=lambda transaction: transaction.first_offset))


def marker_lost(path: str, known: ExportedPartition, lost: OpenTransaction) -> ExportTransactionError:
    """Return the error for a transaction of the target that cannot be ended as in the source, a log in `path`."""
    offset = known.end_offset
    where = f"at offset {lost.marker_offset}" if lost.marker_offset >= 0 else f"from offset {offset} on"
    return ExportTransactionError(
        f"{known.topic_partition} in {path}: the transaction of producer {lost.producer_id} from offset "
        f"{lost.first_offset} on is open in the "
        f"export, which ends at offset {offset}, and the source has lost its marker {where}: export into another "
        "directory",
        topic=known.topic,
        partition=known.partition,
        offset=offset,
        producer_id=lost.producer_id,
        first_offset=lost.first_offset,
        marker_offset=lost.marker_offset,
        path=path,
    )


def _with_markers(
    log: Log, span: _Span, known: ExportedPartition | None, parts: Sequence[Part], options: ExportOptions
) -> tuple[list[Part], tuple[OpenTransaction, ...]]:
    """Return the parts, each with the markers that it must copy for transactions of earlier parts, and the transactions
    that are open at the end of the span.
    """
    started = {
        transaction.producer_id: transaction.first_offset for transaction in (known.open_transactions if known else ())
    }
    holding = sorted((part for part in parts if not part.is_empty_segment), key=lambda part: part.start_offset)
    starts = [part.start_offset for part in holding]
    markers: dict[int, list[OpenTransaction]] = {}
    left_open = []
    first = span.start
    if options.end_isolation == "read_committed" and options.on_error == "raise":
        # The walk that found the end of the span has seen where the first transaction starts.
        first = max(first, log._transactional_from())
    ended = transactions_ending_from(log.segments, first, end_offset=span.end, started=started, config=log.config)
    # Markers inside damage are unknown; the copy leaves damage out.
    with suppress(*((CorruptionError,) if options.on_error == "skip" else ())):
        for transaction in ended:
            if transaction.first_offset >= span.end:
                continue
            if transaction.marker_offset >= span.end:
                left_open.append(OpenTransaction(*transaction))
                continue
            slot = bisect_right(starts, transaction.marker_offset) - 1
            if slot >= 0 and transaction.first_offset < starts[slot]:
                markers.setdefault(starts[slot], []).append(OpenTransaction(*transaction))
    left_open += [OpenTransaction(*item) for item in started.items() if item[1] < span.end]
    marked = [
        part if part.is_empty_segment else part._replace(markers=tuple(markers.get(part.start_offset, ())))
        for part in parts
    ]
    return marked, tuple(sorted(left_open))


def _possible_end(log: Log, options: ExportOptions, *, end: int) -> tuple[int, tuple[dict[str, Any], ...]]:
    """Return the end offset of a log, before the first batch whose offset is impossible in its segment, and the damage
    that this leaves out. No CRC covers a batch's base offset.

    Raises: CorruptRecordError, unless options.on_error is "skip".
    """
    segments = log.segments
    if not segments or end <= segments[-1].base_offset + MAX_INT32 + 1:
        return end, ()
    last = segments[-1]
    most = last.base_offset + MAX_INT32
    end_offset = max(last.base_offset, log.log_start_offset)
    for batch in log.batches(end_offset, on_error=options.on_error, on_skip=lambda _: None):
        if batch.last_offset > most:
            break
        end_offset = batch.last_offset + 1
    else:
        return end, ()
    path = str(batch.path)
    reason = f"offset too far above the segment's base offset: expected at most {most}, found {batch.last_offset}"
    if options.on_error == "raise":
        message = f"{reason} in batch at position {batch.position} of {path}"
        raise _ImpossibleOffsetError(
            message, path=path, position=batch.position, reason=reason, expected=most, found=batch.last_offset
        )
    skipped = SkippedRange(log.topic_partition, path, batch.position, batch.size_in_bytes, end_offset, None, reason)
    return end_offset, (described(skipped),)


def damage_of(plan: Plan, manifest: Manifest | None) -> list[dict[str, Any]]:
    """Return the damage of a plan that the manifest does not list yet."""
    known = () if manifest is None else manifest.partitions
    before = {partition.topic_partition: partition.damage for partition in known}
    return [
        {**partition.topic_partition._asdict(), **left_out}
        for partition in plan.partitions
        for left_out in partition.damage
        if left_out not in before.get(partition.topic_partition, ())
    ]


def _work_of_deleted(parts: Sequence[Part], source: Source) -> Iterator[Work]:
    """Yield the work of a deleted partition's parts: all of their offsets are missing.

    Raises: ExportSourceError if data loss is an error.
    """
    place = parts[0].topic_partition
    directory = join_path(source.name, str(place))
    if source.fails_on_data_loss:
        offset = min(part.start_offset for part in parts)
        why = "the partition was deleted before all of it was exported"
        raise ExportSourceError(
            f"{place} in {directory}: the export has to go on at offset {offset}: {why}",
            topic=place.topic,
            partition=place.partition,
            offset=offset,
            log_start_offset=-1,
            log_end_offset=-1,
            path=directory,
        )
    last = max(parts, key=lambda part: (part.end_offset, part.base_offset))
    for part in parts:
        missing = () if part.is_empty_segment else ((part.start_offset, part.end_offset),)
        # So that a segment ends the log where the partition ended.
        base_offset = part.end_offset if part is last else part.base_offset
        gone = part._replace(start_offset=part.end_offset, base_offset=base_offset, markers=())
        yield Work(gone, directory, missing=missing)


def _check_not_shorter(log: Log, end: int, options: ExportOptions) -> None:
    """Raise ExportSourceError if a log ends below `end`. With on_error="skip", records after damage count too."""
    if log.log_end_offset < end and log._readable_end(on_error=options.on_error).offset < end:
        raise _diverged(log, end, "it was truncated, or another log took its place")


def _lost_range(log: Log, first: int, source: Source, *, end: int) -> tuple[tuple[int, int], ...]:
    """Return [first, end) as missing offsets.  Raises: ExportSourceError if data loss is an error."""
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
    """Return the end of a copy of whole batches: at most the first record from until_ms on, and with last_batch="drop"
    the start of the batch that spans the end.
    """
    if options.until_ms is not None:
        at_time = log.offset_for_timestamp(max(options.until_ms, 0), on_error=options.on_error)
        end = end if at_time is None else min(end, at_time.offset)
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
    last = None if end >= log._readable_end(isolation=isolation, on_error=on_error).offset else end
    return log.plan(start_offset=start, end_offset=last, max_bytes=max_bytes, isolation=isolation, on_error=on_error)


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


def _work(log: Log, part: Part, exported: ExportedPartition, options: ExportOptions, source: Source) -> Work:
    if part.is_empty_segment:
        return Work(part, log.path, exported=exported)
    missing: tuple[tuple[int, int], ...] = ()
    start = part.start_offset
    if log.log_start_offset > start:
        start = min(log.log_start_offset, part.end_offset)
        missing = _lost_range(log, part.start_offset, source, end=start)
    _check_not_shorter(log, part.end_offset, options)
    size = MAX_INT64 if options.is_verbatim else _RANGE_BYTES
    ranges = _planned(log, start, options, end=part.end_offset, max_bytes=size)
    return Work(part._replace(start_offset=start), log.path, tuple(ranges), (), missing, exported)


def _joins(manifest: Manifest | None, options: ExportOptions) -> list[Part]:
    """Return parts that join small files of earlier runs: those that follow each other in a partition and a directory,
    and of segments only pieces of the same one.

    A file is joined with the run after it if it is not larger than that run. So at most about log2(target size /
    smallest file) small files are left, and a record is rewritten at most about as many times.
    """
    # The cleaner of the source merges segments, so the pieces of one may lie on both sides of those of another one.
    files = sorted(manifest.files if manifest else (), key=lambda file: (*_directory_of(file), file.first_offset))
    parts = []
    for _, group in groupby(files, key=lambda file: (_directory_of(file), file.source_base_offset)):
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


def _fit(left: Sequence[ExportedFile], right: Sequence[ExportedFile], options: ExportOptions) -> bool:
    first, second = (sum(file.size_in_bytes for file in run) for run in (left, right))
    if options.is_verbatim:
        return first <= second and first + second <= MAX_INT32 and left[0].source_base_offset is not None
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
    """Return the file ranges that a segment is copied from, each with its scan range."""
    return [(scan, file) for scan in work.ranges for file in scan.files]
