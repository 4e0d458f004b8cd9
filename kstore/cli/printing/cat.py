"""`kstore cat`: the records of the selected partitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from kstore.cli import EXIT_DAMAGE, EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.handed import note_tiered, partitions_of
from kstore.cli.output import Progress
from kstore.cli.printing.formats import Group
from kstore.cli.printing.values import DecodedRecords
from kstore.cli.render import parts_of, text_of_batch
from kstore.env.process import usable_cpus
from kstore.errors import KStoreError
from kstore.store.opening import log_size_in_bytes, open_found
from kstore.types import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kstore._core import BatchHeader, Record, RecordLines
    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.cli.printing.formats import RecordFormat
    from kstore.cli.printing.values import ValueDecoding
    from kstore.log.damage import OnError, OnSkip, SkippedRange
    from kstore.log.files.names import PartitionDirectory
    from kstore.log.log import Log
    from kstore.log.reads import Isolation
    from kstore.record.batches import RecordBatch
    from kstore.record.search import RecordSearch
    from kstore.types import TopicPartition

# Threads of a search; what more of them gain was not measured.
_MOST_THREADS = 4


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


class Printer:
    """Prints the selected records of batches in a format, up to the limit.

    Attributes: left: how many more may be printed, None for any number.  Threads: not thread-safe.
    """

    def __init__(self, wanted: CatOptions, record_format: RecordFormat, out: Output) -> None:
        self.left = wanted.limit
        self._wanted = wanted
        self._format = record_format
        self._out = out
        is_plain = wanted.decoding is None and wanted.search is None
        self._is_bulk = is_plain and not (record_format.is_styled and out.is_terminal)
        self._current: TopicPartition | None = None
        self._lines: RecordLines | None = None
        if record_format.begins:
            out.data(record_format.begins)

    def show(
        self,
        batch: RecordBatch,
        topic_partition: TopicPartition,
        *,
        start_offset: int,
        end_offset: int = MAX_OFFSET,
    ) -> bool:
        """Print the selected records of a batch with offsets of [start_offset, end_offset), and return whether there
        were any.

        Raises: what ValueDecoding.decoded raises, after the records before it are printed.
        """
        wanted = self._wanted
        if wanted.since_ms is not None and batch.max_timestamp_ms < wanted.since_ms:
            return False
        if self._is_bulk and self._current != topic_partition:
            self._lines, self._current = self._format.lines_of(topic_partition), topic_partition
        if self._lines is not None:
            whole = text_of_batch(
                batch,
                self._lines,
                start_offset=start_offset,
                end_offset=end_offset,
                since_ms=wanted.since_ms,
                until_ms=wanted.until_ms,
                limit=self.left,
            )
            if whole is not None:
                self._out.data(whole.data)
                self._count(whole.record_count)
                return whole.record_count > 0
        has_any = False
        for group in groups_of(batch, wanted, start_offset=start_offset, end_offset=end_offset):
            has_any = True
            self._show_group(group, topic_partition)
            if self.left == 0:
                break
        return has_any

    def _show_group(self, group: Group, topic_partition: TopicPartition) -> None:
        """Print records of one batch; control records are not decoded."""
        decoding = self._wanted.decoding
        parts: Iterable[DecodedRecords] = [DecodedRecords(group.records[: self.left], {})]
        if decoding is not None and not group.header.is_control:
            parts = decoding.decoded(group.records, topic_partition, self._out, limit=self.left)
        for part in parts:
            self._format.write(part, group, topic_partition, self._out)
            self._count(len(part.records))

    def _count(self, printed: int) -> None:
        if self.left is not None:
            self.left -= printed


def run(selection: PartitionSelection, wanted: CatOptions, record_format: RecordFormat, out: Output) -> int:
    """Print the selected records and return the exit status. A damaged batch ends its own partition only, or, with
    skips_damaged, is reported.
    """
    partitions, progress = partitions_of(selection, out), Progress()
    total_bytes = partial(log_size_in_bytes, partitions, start_offset=wanted.start_offset, end_offset=wanted.end_offset)
    if wanted.decoding is not None:
        wanted.decoding.begin(lambda: partitions, on_error="skip" if wanted.skips_damaged else "raise")
    with out.progress(progress, total_bytes=total_bytes, only_to_file=True):
        status = print_records(partitions, wanted, record_format, out, progress)
    return status if wanted.decoding is None else max(status, wanted.decoding.finish(out))


def print_records(
    partitions: list[PartitionDirectory],
    wanted: CatOptions,
    record_format: RecordFormat,
    out: Output,
    progress: Progress,
) -> int:
    """Print the selected records of the partitions and return the exit status."""
    status = EXIT_FINE

    def report(skipped: SkippedRange) -> None:
        nonlocal status
        status = max(status, EXIT_DAMAGE)
        out.notice(skipped)

    tiered_roots: dict[str, bool] = {}
    printer = Printer(wanted, record_format, out)
    for partition in partitions:
        if printer.left == 0:
            break
        progress.label = str(partition.topic_partition)
        has_begun = False
        try:
            note_tiered(partition, out, tiered_roots, start_offset=wanted.start_offset)
            with open_found(partition) as log:
                on_skip = report if wanted.skips_damaged else None
                for batch, start_offset, end_offset in batches_of(log, wanted, progress=progress, on_skip=on_skip):
                    is_shown = printer.show(
                        batch, log.topic_partition, start_offset=start_offset, end_offset=end_offset
                    )
                    has_begun = has_begun or is_shown
                    if printer.left == 0:
                        break
        except KStoreError as error:
            status = max(status, out.failure(error) if has_begun else out.partition_failure(error, partition))
    return status


class SelectedBatch(NamedTuple):
    """A batch that may have records of a range of offsets: start_offset <= offset < end_offset."""

    batch: RecordBatch
    start_offset: int
    end_offset: int


def batches_of(
    log: Log, wanted: CatOptions, *, progress: Progress | None = None, on_skip: OnSkip | None = None
) -> Iterator[SelectedBatch]:
    """Yield the batches of one log that may have selected records. Those without any are verified too.

    Args: on_skip: called with each damaged range that is left out; None to raise its error.
    """
    isolation: Isolation = "read_committed" if wanted.only_committed else "read_uncommitted"
    on_error: OnError = "raise" if on_skip is None else "skip"
    wanted = wanted.resolved(log, on_error=on_error)
    start_offset, end_offset = log._held_offsets(
        wanted.start_offset, wanted.end_offset, since_ms=wanted.since_ms, isolation=isolation, on_error=on_error
    )
    if start_offset >= end_offset:
        return

    def on_read(size_in_bytes: int) -> None:
        if progress is not None:
            progress.done_bytes += size_in_bytes

    read = log.batches
    if wanted.search is not None:
        threads = min(usable_cpus(), _MOST_THREADS)
        read = partial(log._batches_for, wanted.search, on_pass=on_read, threads=threads)
    for batch in read(start_offset, end_offset, isolation=isolation, on_error=on_error, on_skip=on_skip):
        on_read(batch.size_in_bytes)
        if not batch.is_control or wanted.with_control:
            yield SelectedBatch(batch, start_offset, end_offset)


def groups_of(
    batch: RecordBatch, wanted: CatOptions, *, start_offset: int, end_offset: int = MAX_OFFSET
) -> Iterator[Group]:
    """Yield the selected records of a batch with offsets of [start_offset, end_offset), in parts."""
    if batch.is_control and not wanted.with_control:
        return
    has_base_offset = batch.header.has_base_offset
    is_partial = not has_base_offset or batch.base_offset < start_offset or batch.last_offset >= end_offset
    for part in parts_of(iter(batch)) if wanted.search is None else wanted.search.records(batch):
        records = part
        if is_partial:
            records = [record for record in records if start_offset <= record.offset < end_offset]
        if wanted.since_ms is not None:
            records = [record for record in records if record.timestamp_ms >= wanted.since_ms]
        if wanted.until_ms is not None:
            records = [record for record in records if record.timestamp_ms < wanted.until_ms]
        for timestamp_type, same in by_timestamp_type(records, batch.header):
            yield Group(same, timestamp_type, batch.header)


def by_timestamp_type(records: list[Record], header: BatchHeader) -> Iterator[tuple[int, list[Record]]]:
    """Yield the records of a batch grouped by timestamp type, which can vary inside a V0 or V1 wrapper."""
    if header.has_base_offset:
        if records:
            yield header.timestamp_type, records
        return
    for timestamp_type, same in groupby(records, key=attrgetter("timestamp_type")):
        yield int(timestamp_type), list(same)
