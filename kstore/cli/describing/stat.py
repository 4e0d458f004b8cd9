"""`kstore stat`: sizes, rates, codecs and largest keys of partitions, and the bytes that compaction would save."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kstore.cli import EXIT_FINE
from kstore.cli.output import Column, Progress
from kstore.cli.printing.watching import Order
from kstore.cli.render import JSON_TEXT, bytes_text, plain_value, time_text
from kstore.config import LogConfig
from kstore.errors import KStoreError
from kstore.log.cleaning.savings import compaction_savings
from kstore.reporting.statistics import LargestKeys, LogStatistics
from kstore.store.opening import log_size_in_bytes, open_found

if TYPE_CHECKING:
    from collections.abc import Callable

    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.env import Env
    from kstore.log.cleaning.savings import CompactionSavings
    from kstore.log.log import Log
    from kstore.types import TopicPartition

COUNTED_KEYS = 10_000
COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("segments", is_number=True, rank=3),
    Column("bytes", is_number=True),
    Column("batches", is_number=True, rank=4),
    Column("records", is_number=True),
    Column("records/s", is_number=True, rank=5),
    Column("bytes/s", is_number=True, rank=6),
    Column("codecs", wraps=True),
    Column("keys", is_number=True, rank=1),
    Column("compaction saves", is_number=True, rank=2),
)
KEY_COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("key", wraps=True),
    Column("records", is_number=True),
    Column("bytes", is_number=True),
)
RATE_COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("from"),
    Column("seconds", is_number=True),
    Column("records", is_number=True),
    Column("records/s", is_number=True),
    Column("bytes/s", is_number=True),
)
_PASSES = 3


@dataclass(frozen=True, kw_only=True)
class StatOptions:
    """The options of `stat`.

    decodes: whether records are read, not only headers; top: how many keys are shown; shows_rates: whether a table of
    rates is shown; map_bytes: memory of the key map; order: by SORT_KEYS.
    """

    decodes: bool
    top: int
    shows_rates: bool
    map_bytes: int
    order: Order


@dataclass(frozen=True, kw_only=True)
class PartitionStat:
    """The statistics of one partition; savings: None if only headers were read."""

    topic_partition: TopicPartition
    segments: int
    size_in_bytes: int
    statistics: LogStatistics
    savings: CompactionSavings | None

    @property
    def seconds(self) -> float:
        """The seconds from the first to the last timestamp, 0 for fewer than two different ones."""
        statistics = self.statistics
        if statistics.first_timestamp_ms is None or statistics.last_timestamp_ms is None:
            return 0
        return (statistics.last_timestamp_ms - statistics.first_timestamp_ms) / 1000

    @property
    def bytes_per_second(self) -> float | None:
        """The bytes of batches per second of their timestamps; None for fewer than two different ones."""
        return self._per_second(sum(codec.size_in_bytes for codec in self.statistics.codecs.values()))

    @property
    def saved_bytes(self) -> int | None:
        """The bytes that compaction would save; None if unknown, or the topic has records without a key."""
        if self.savings is None or self.statistics.records_without_key:
            return None
        return self.savings.bytes_before - self.savings.bytes_after

    def row(self) -> list[str]:
        """Return the table cells, in the order of COLUMNS."""
        statistics, savings = self.statistics, self.savings
        codecs = (
            name + ("" if codec.ratio is None else f" {codec.ratio:.2f}") for name, codec in statistics.codecs.items()
        )
        numbers = (self.segments, self.size_in_bytes, statistics.batches, statistics.records)
        at_least = "" if savings is None or savings.is_whole else ">="
        return [
            self.topic_partition.topic,
            str(self.topic_partition.partition),
            *map(_number, numbers),
            _number(self._per_second(statistics.records)),
            _number(self.bytes_per_second),
            ", ".join(codecs) or "-",
            "-" if savings is None else f"{at_least}{savings.unique_keys}",
            "-" if self.saved_bytes is None else f"{at_least}{self.saved_bytes}",
        ]

    def key_rows(self, top: int) -> list[list[str]]:
        """Return the table cells of the largest keys, in the order of KEY_COLUMNS."""
        topic, partition = self.topic_partition
        rows = []
        for key in self.statistics.keys.top(top):
            more = "..." if len(key.key) < key.key_size else ""
            shown = bytes_text(key.key) + more
            rows.append([topic, str(partition), shown, str(key.records), str(key.size_in_bytes)])
        return rows

    def rate_rows(self) -> list[list[str]]:
        """Return the table cells of each interval with data, in the order of RATE_COLUMNS."""
        topic, partition = self.topic_partition
        seconds = self.statistics.rates.bucket_ms / 1000
        return [
            [
                topic,
                str(partition),
                time_text(start),
                *map(_number, (seconds, records, records / seconds, size / seconds)),
            ]
            for start, (records, size) in sorted(self.statistics.rates.buckets.items())
        ]

    def json(self, top: int) -> str:
        """Return the JSON object."""
        statistics, rates = self.statistics, self.statistics.rates
        return JSON_TEXT(
            {
                "topic": self.topic_partition.topic,
                "partition": self.topic_partition.partition,
                "segments": self.segments,
                "size_in_bytes": self.size_in_bytes,
                "batches": statistics.batches,
                "control_batches": statistics.control_batches,
                "records": statistics.records,
                "first_timestamp": statistics.first_timestamp_ms,
                "last_timestamp": statistics.last_timestamp_ms,
                "records_per_second": self._per_second(statistics.records),
                "rates": {
                    "bucket_ms": rates.bucket_ms,
                    "buckets": [[start, *rates.buckets[start]] for start in sorted(rates.buckets)],
                },
                "codecs": {name: vars(codec) | {"ratio": codec.ratio} for name, codec in statistics.codecs.items()},
            }
            | ({} if self.savings is None else self._decoded(self.savings, top))
        )

    def _decoded(self, savings: CompactionSavings, top: int) -> dict[str, object]:
        statistics = self.statistics
        return {
            "tombstones": statistics.tombstones,
            "records_without_key": statistics.records_without_key,
            "largest_record_bytes": statistics.largest_record_bytes,
            "unique_keys": savings.unique_keys,
            "unique_keys_are_exact": savings.is_whole,
            "largest_keys": [
                {
                    "key": plain_value(key.key),
                    "key_size": key.key_size,
                    "records": key.records,
                    "bytes": key.size_in_bytes,
                    "bytes_at_most": key.at_most_bytes,
                }
                for key in statistics.keys.top(top)
            ],
            "compaction": None if self.saved_bytes is None else savings._asdict() | {"saved_bytes": self.saved_bytes},
        }

    def _per_second(self, count: int | None) -> float | None:
        return None if count is None or not self.seconds else float(f"{count / self.seconds:.6g}")


# What `--sort` sorts by.
SORT_KEYS: dict[str, Callable[[PartitionStat], Any]] = {
    "name": lambda stat: stat.topic_partition,
    "size": lambda stat: stat.size_in_bytes,
    "batches": lambda stat: stat.statistics.batches,
    "records": lambda stat: stat.statistics.records,
    "rate": lambda stat: stat.bytes_per_second,
    "saved": lambda stat: stat.saved_bytes,
}


def _number(value: float | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.4g}"


def run(selection: PartitionSelection, wanted: StatOptions, out: Output, *, is_json: bool) -> int:
    """Show the selected partitions and return the exit status. One that can't be read is reported and left out."""
    status = EXIT_FINE
    partitions = selection.find()
    progress = Progress()
    shown: list[PartitionStat] = []
    passes = _PASSES if wanted.decodes else 1
    with out.progress(progress, total_bytes=lambda: passes * log_size_in_bytes(partitions)):
        for partition in partitions:
            progress.label = str(partition.topic_partition)
            try:
                with open_found(partition, LogConfig(cleaner_dedupe_buffer_bytes=wanted.map_bytes)) as log:
                    stat = statistics_of(log, wanted, progress, env=partition.env)
            except KStoreError as error:
                status = max(status, out.partition_failure(error, partition))
                continue
            if is_json and not wanted.order.is_given:
                out.line(stat.json(wanted.top))
            else:
                shown.append(stat)
    shown = wanted.order.apply(shown, SORT_KEYS)
    if is_json:
        for stat in shown:
            out.line(stat.json(wanted.top))
    elif shown:
        out.table(COLUMNS, [stat.row() for stat in shown])
        keys = [row for stat in shown for row in stat.key_rows(wanted.top)]
        if keys:
            out.line("")
            out.table(KEY_COLUMNS, keys)
        rates = [row for stat in shown for row in stat.rate_rows()] if wanted.shows_rates else []
        if rates:
            out.line("")
            out.table(RATE_COLUMNS, rates)
    return status


def statistics_of(log: Log, wanted: StatOptions, progress: Progress, *, env: Env) -> PartitionStat:
    """Read a log and return its statistics.

    Raises: CorruptRecordError and the other errors of a read.
    """

    def count(size: int) -> None:
        progress.done_bytes += size

    statistics = LogStatistics(LargestKeys(COUNTED_KEYS))
    add = partial(statistics.add, config=log.config if wanted.decodes else None)
    for batch in log.batches():
        add(batch)
        count(batch.size_in_bytes)
    savings = None
    if wanted.decodes:
        transactions = log.transactions()
        savings = compaction_savings(
            log.segments,
            log_start_offset=log.log_start_offset,
            end_offset=transactions.last_stable_offset,
            aborted=transactions.aborted,
            now_ms=env.wall_clock_ms(),
            config=log.config,
            env=env,
            on_read=count,
        )
    return PartitionStat(
        topic_partition=log.topic_partition,
        segments=len(log.segments),
        size_in_bytes=log.size_in_bytes,
        statistics=statistics,
        savings=savings,
    )
