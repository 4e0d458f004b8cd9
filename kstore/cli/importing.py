"""`kstore import`: append the records of a file to the logs of a root, or to one log."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from kstore.cli import EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.import_sources import ARROW_SUFFIXES, Row, arrow_batches, json_rows
from kstore.cli.output import Column
from kstore.cli.render import JSON_TEXT
from kstore.config import MAX_INT32
from kstore.errors import LogNotFoundError
from kstore.log import open_log, open_store
from kstore.log.files.names import find_partition
from kstore.record import MemoryRecordsBuilder
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow

    from kstore.cli.output import Output
    from kstore.log import WritableLog, WritableStore
    from kstore.record import MemoryRecords

Item = TypeVar("Item")
Target: TypeAlias = "Callable[[str | None, int | None], WritableLog]"

MOST_NEW_PARTITIONS = 10_000  # the most that Kafka's controller creates per request

COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("records", is_number=True),
    Column("log end", is_number=True),
)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to import and where. topic and partition, if not None, override those of the records."""

    path: str
    directory: str
    topic: str | None
    partition: int | None
    compression: str
    batch_bytes: int
    keeps_offsets: bool


def run(wanted: Wanted, out: Output, *, is_json: bool) -> int:
    """Append all records, print the record count and log end of each partition, and return the exit status."""
    with ExitStack() as stack:
        if wanted.path.endswith(ARROW_SUFFIXES):
            batches = _begun(arrow_batches(wanted.path))
            importer = _Importer(wanted, _open_target(wanted, stack))
            for batch in batches:
                importer.add_batch(batch)
        else:
            rows = _begun(json_rows(wanted.path))
            importer = _Importer(wanted, _open_target(wanted, stack))
            for row in rows:
                importer.add_row(row)
        importer.finish()
    counts = sorted(importer.counts.items())
    for topic_partition, (records, log_end_offset) in counts if is_json else ():
        topic, partition = topic_partition
        fields = {"topic": topic, "partition": partition, "records": records, "log_end_offset": log_end_offset}
        out.line(JSON_TEXT(fields))
    if counts and not is_json:
        out.table(COLUMNS, [[topic, *map(str, (number, *count))] for (topic, number), count in counts])
    return EXIT_FINE


def _begun(items: Iterator[Item]) -> Iterator[Item]:
    """Read the first item now, before the target is opened, so that an unreadable file does not create a root."""
    return chain(list(islice(items, 1)), items)


def _open_target(wanted: Wanted, stack: ExitStack) -> Target:
    """Open the root, or the single partition, which then takes all records."""
    try:
        find_partition(wanted.directory)
    except LogNotFoundError:
        store = stack.enter_context(open_store(wanted.directory, "a"))
        return lambda topic, partition: _made_log(store, topic, partition)
    log = stack.enter_context(open_log(wanted.directory, "a"))
    return lambda _topic, _partition: log


def _made_log(store: WritableStore, topic: str | None, partition: int | None) -> WritableLog:
    """Return a log of the root, after creating its topic and partitions if they do not exist.

    Raises: WrongUseError if the records have no topic, or the topic or partition can't be created.
    """
    if topic is None:
        raise WrongUseError("the records have no topic: set one with --topic")
    wanted = TopicPartition(topic, partition or 0)
    if wanted not in store.partitions:
        try:
            has = sum(1 for name, _ in store.partitions if name == topic)
            if wanted.partition - has >= MOST_NEW_PARTITIONS:
                raise WrongUseError(
                    f"partition {wanted.partition} of topic {topic!r}, which has {has}: "
                    f"one record creates at most {MOST_NEW_PARTITIONS} partitions"
                )
            if has:
                store.create_partitions(topic, wanted.partition + 1)
            else:
                store.create_topic(topic, wanted.partition + 1)
        except ValueError as error:
            raise WrongUseError(str(error)) from error
    return store.log(*wanted)


class _Importer:
    """Packs records into batches, one pending batch per log, assigns their offsets and appends them.

    Attributes: counts: (records appended, log end offset) of each partition.
    """

    def __init__(self, wanted: Wanted, target: Target) -> None:
        self.counts: dict[TopicPartition, tuple[int, int]] = {}
        self._wanted = wanted
        self._target = target
        self._pending: dict[WritableLog, tuple[MemoryRecordsBuilder, int]] = {}

    def add_row(self, row: Row) -> None:
        """Add one record of a JSON line.

        Raises: WrongUseError for values that a batch can't hold, and the errors of append_as_follower.
        """
        log = self._log_of(row.topic, row.partition)
        pending = self._pending.get(log)
        if pending is not None and self._wanted.keeps_offsets and row.offset - pending[0].base_offset > MAX_INT32:
            self._flush(log)
        try:
            builder, size_in_bytes = self._pending.get(log) or (self._builder(log, row.offset), 0)
            builder.append(
                offset=row.offset if self._wanted.keeps_offsets else builder.next_offset,
                timestamp_ms=row.timestamp_ms,
                key=row.key,
                value=row.value,
                headers=row.headers,
            )
        except ValueError as error:
            raise WrongUseError(f"{row.place}: {error}") from error
        size_in_bytes += len(row.key or b"") + len(row.value or b"")
        self._pending[log] = builder, size_in_bytes
        if size_in_bytes >= self._wanted.batch_bytes:
            self._flush(log)

    def add_batch(self, batch: pyarrow.RecordBatch) -> None:
        """Append the records of an Arrow record batch.

        Raises: WrongUseError for columns or values that a batch can't hold, and the errors of append_as_follower.
        """
        from kstore.cli.import_sources import packed_columns, split_by_partition

        for topic, partition, part in split_by_partition(
            batch, topic=self._wanted.topic, partition=self._wanted.partition, place=self._wanted.path
        ):
            log = self._log_of(topic, partition)
            try:
                for rows in packed_columns(part, with_offset=self._wanted.keeps_offsets):
                    self._pack(log, rows)
            except ValueError as error:
                raise WrongUseError(f"{self._wanted.path}: {error}") from error
            self._count(log, part.num_rows)

    def _pack(self, log: WritableLog, rows: pyarrow.RecordBatch) -> None:
        from kstore.arrow import pack_record_batch

        for run in pack_record_batch(
            rows,
            base_offset=log.log_end_offset,
            batch_bytes=self._wanted.batch_bytes,
            compression=self._wanted.compression,
            partition_leader_epoch=_epoch(log),
        ):
            self._append(log, run, count=0)

    def finish(self) -> None:
        """Append all pending batches."""
        for log in list(self._pending):
            self._flush(log)

    def _log_of(self, topic: str | None, partition: int | None) -> WritableLog:
        name = self._wanted.topic if self._wanted.topic is not None else topic
        number = self._wanted.partition if self._wanted.partition is not None else partition
        return self._target(name, number)

    def _builder(self, log: WritableLog, offset: int) -> MemoryRecordsBuilder:
        return MemoryRecordsBuilder(
            base_offset=offset if self._wanted.keeps_offsets else log.log_end_offset,
            compression=self._wanted.compression,
            partition_leader_epoch=_epoch(log),
        )

    def _flush(self, log: WritableLog) -> None:
        builder, _ = self._pending.pop(log)
        self._append(log, builder.build(), count=builder.record_count)

    def _append(self, log: WritableLog, records: MemoryRecords, *, count: int) -> None:
        log.append_as_follower(records)
        self._count(log, count)

    def _count(self, log: WritableLog, count: int) -> None:
        records, _ = self.counts.get(log.topic_partition, (0, 0))
        self.counts[log.topic_partition] = records + count, log.log_end_offset


def _epoch(log: WritableLog) -> int:
    return max(log.leader_epochs.latest_epoch, 0)
