"""`kstore cat`: the records of the selected partitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from kstore.cli import EXIT_DAMAGE, EXIT_FINE
from kstore.cli.arguments import WrongUseError, log_size_in_bytes
from kstore.cli.output import Progress
from kstore.cli.printing.values import DecodedRecords
from kstore.cli.render import (
    MOST_RECORDS,
    json_of_plain,
    json_records,
    parts_of,
    record_parts,
)
from kstore.errors import KStoreError
from kstore.store.opening import open_found
from kstore.types import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kstore._core import BatchHeader, Record
    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.cli.printing.values import ValueDecoding
    from kstore.log.damage import OnError, OnSkip, SkippedRange
    from kstore.log.files.names import PartitionDirectory
    from kstore.log.log import Log
    from kstore.log.reads import Isolation
    from kstore.record import RecordBatch, RecordSearch
    from kstore.types import TopicPartition


@dataclass(frozen=True, kw_only=True)
class CatOptions:
    """Which records to print: start_offset <= offset < end_offset, since_ms <= timestamp < until_ms, at most limit.

    A negative start_offset counts from the end of what is read of each log, as Kafka's and tail's.
    """

    start_offset: int
    end_offset: int
    since_ms: int | None = None
    until_ms: int | None = None
    limit: int | None = None
    with_control: bool = False
    only_committed: bool = False
    decoding: ValueDecoding | None = None
    skips_damaged: bool = False
    search: RecordSearch | None = None

    @property
    def prints_whole_batches(self) -> bool:
        """True if records are selected by offset only and not decoded, so that whole batches can be printed at once."""
        return all(each is None for each in (self.since_ms, self.until_ms, self.limit, self.decoding, self.search))

    def __post_init__(self) -> None:
        if self.start_offset > self.end_offset:
            raise WrongUseError(f"--from {self.start_offset} is greater than --to {self.end_offset}")
        if self.since_ms is not None and self.until_ms is not None and self.since_ms > self.until_ms:
            raise WrongUseError(f"--since {self.since_ms} is greater than --until {self.until_ms}")

    def resolved(self, log: Log, *, on_error: OnError = "raise") -> CatOptions:
        """Return the options for one log, with a start_offset that is not negative."""
        if self.start_offset >= 0:
            return self
        isolation: Isolation = "read_committed" if self.only_committed else "read_uncommitted"
        end = min(log._readable_end(isolation=isolation, on_error=on_error).offset, self.end_offset)
        return replace(self, start_offset=min(max(end + self.start_offset, log.log_start_offset, 0), self.end_offset))


class Group(NamedTuple):
    """Records of one batch, or `shown`, the text to print for all records of the batch, with no records."""

    records: list[Record]
    timestamp_type: int
    is_control: bool
    shown: str | None = None


def run(selection: PartitionSelection, wanted: CatOptions, out: Output, *, is_json: bool) -> int:
    """Print the selected records and return the exit status. A damaged batch ends its own partition only, or, with
    skips_damaged, is reported.
    """
    partitions, progress = selection.find(), Progress()
    total_bytes = partial(log_size_in_bytes, partitions, start_offset=wanted.start_offset, end_offset=wanted.end_offset)
    if wanted.decoding is not None:
        wanted.decoding.begin(lambda: partitions, on_error="skip" if wanted.skips_damaged else "raise")
    with out.progress(progress, total_bytes=total_bytes, only_to_file=True):
        status = print_records(partitions, wanted, out, progress, is_json=is_json)
    return status if wanted.decoding is None else max(status, wanted.decoding.finish(out))


def print_records(
    partitions: list[PartitionDirectory], wanted: CatOptions, out: Output, progress: Progress, *, is_json: bool
) -> int:
    """Print the selected records of the partitions and return the exit status."""
    status = EXIT_FINE

    def report(skipped: SkippedRange) -> None:
        nonlocal status
        status = max(status, EXIT_DAMAGE)
        out.notice(skipped)

    left = wanted.limit
    for partition in partitions:
        if left == 0:
            break
        progress.label = str(partition.topic_partition)
        has_begun = False
        is_bulk = is_json and wanted.prints_whole_batches
        prefix = prefix_of(partition.topic_partition, is_json=is_json)
        show_batch = partial(json_of_plain, prefix=prefix, separator="\n") if is_bulk else None
        try:
            with open_found(partition) as log:
                on_skip = report if wanted.skips_damaged else None
                for group in groups(log, wanted, show_batch=show_batch, progress=progress, on_skip=on_skip):
                    has_begun = True
                    for count in show(
                        group, log.topic_partition, out, is_json=is_json, decoding=wanted.decoding, limit=left
                    ):
                        left = None if left is None else left - count
                    if left == 0:
                        break
        except KStoreError as error:
            status = max(status, out.failure(error) if has_begun else out.partition_failure(error, partition))
    return status


def prefix_of(topic_partition: TopicPartition, *, is_json: bool) -> str:
    """Return what a line of a record of a partition begins with, after the brace of JSON."""
    topic, number = topic_partition
    return f'"topic":"{topic}","partition":{number},' if is_json else f"{topic}-{number}\t"


def show(
    group: Group,
    topic_partition: TopicPartition,
    out: Output,
    *,
    is_json: bool,
    decoding: ValueDecoding | None,
    limit: int | None,
) -> Iterator[int]:
    """Write records of one batch, at most `limit` of them if it is given; after each part yield how many it has.

    Args: decoding: of keys and values, None without formats; control records are not decoded.
    Raises: what ValueDecoding.decoded raises, after writing the records before.
    """
    if group.shown is not None:
        out.line(group.shown)
        return
    prefix = prefix_of(topic_partition, is_json=is_json)
    parts: Iterable[DecodedRecords] = [DecodedRecords(group.records[:limit], {})]
    if decoding is not None and not group.is_control:
        parts = decoding.decoded(group.records, topic_partition, out, limit=limit)
    for part in parts:
        if is_json:
            _write_json(part, group, out, prefix=prefix)
        else:
            for row, record in enumerate(part.records):
                texts = part.text(row, "key"), part.text(row, "value")
                out.styled(record_parts(record, prefix=prefix, is_control=group.is_control, texts=texts))
        yield len(part.records)


def _write_json(part: DecodedRecords, group: Group, out: Output, *, prefix: str) -> None:
    lines = json_records(part.records, timestamp_type=group.timestamp_type, prefix=prefix, is_control=group.is_control)
    if part.columns:
        lines = [f"{line[:-1]},{part.json_fields(row)}}}" for row, line in enumerate(lines)]
    if lines:
        out.line("\n".join(lines))


def groups(
    log: Log,
    wanted: CatOptions,
    *,
    show_batch: Callable[[RecordBatch], str | None] | None = None,
    progress: Progress | None = None,
    on_skip: OnSkip | None = None,
) -> Iterator[Group]:
    """Yield the selected records of one log in parts of batches. Batches that are not shown are verified too.

    Args: show_batch: returns the text for all records of a batch, or None if they must be shown one by one; on_skip:
        called with each damaged range that is left out; None to raise its error.
    """
    isolation: Isolation = "read_committed" if wanted.only_committed else "read_uncommitted"
    on_error: OnError = "raise" if on_skip is None else "skip"
    wanted = wanted.resolved(log, on_error=on_error)
    start_offset, end_offset = log._held_offsets(
        wanted.start_offset, wanted.end_offset, since_ms=wanted.since_ms, isolation=isolation, on_error=on_error
    )
    if start_offset >= end_offset:
        return
    for batch in log.batches(start_offset, end_offset, isolation=isolation, on_error=on_error, on_skip=on_skip):
        if progress is not None:
            progress.done_bytes += batch.size_in_bytes
        yield from groups_of(batch, wanted, start_offset=start_offset, end_offset=end_offset, show_batch=show_batch)


def groups_of(
    batch: RecordBatch,
    wanted: CatOptions,
    *,
    start_offset: int,
    end_offset: int = MAX_OFFSET,
    show_batch: Callable[[RecordBatch], str | None] | None = None,
) -> Iterator[Group]:
    """Yield the selected records of a batch with offsets of [start_offset, end_offset), in parts."""
    if batch.is_control and not wanted.with_control:
        return
    if wanted.since_ms is not None and batch.max_timestamp_ms < wanted.since_ms:
        return
    has_base_offset = batch.header.has_base_offset
    is_partial = not has_base_offset or batch.base_offset < start_offset or batch.last_offset >= end_offset
    if show_batch is not None and not is_partial and 0 < len(batch) <= MOST_RECORDS:
        shown = show_batch(batch)
        if shown is not None:
            yield Group([], batch.header.timestamp_type, batch.is_control, shown)
            return
    for part in parts_of(iter(batch)) if wanted.search is None else wanted.search.records(batch):
        records = part
        if is_partial:
            records = [record for record in records if start_offset <= record.offset < end_offset]
        if wanted.since_ms is not None:
            records = [record for record in records if record.timestamp_ms >= wanted.since_ms]
        if wanted.until_ms is not None:
            records = [record for record in records if record.timestamp_ms < wanted.until_ms]
        for timestamp_type, same in by_timestamp_type(records, batch.header):
            yield Group(same, timestamp_type, batch.is_control)


def by_timestamp_type(records: list[Record], header: BatchHeader) -> Iterator[tuple[int, list[Record]]]:
    """Yield the records of a batch grouped by timestamp type, which can vary inside a V0 or V1 wrapper."""
    if header.has_base_offset:
        if records:
            yield header.timestamp_type, records
        return
    for timestamp_type, same in groupby(records, key=attrgetter("timestamp_type")):
        yield int(timestamp_type), list(same)
