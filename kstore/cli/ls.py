"""`kstore ls`: one line per partition, from batch headers, without reading whole logs unless --exact is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kstore._core import read_header
from kstore.cli import EXIT_FINE
from kstore.cli.output import LOG_COLUMNS, Column
from kstore.cli.render import JSON_TEXT, likely_text, loss_objects, loss_text, time_text
from kstore.compression import codec_name
from kstore.env import join_path
from kstore.errors import KStoreError
from kstore.log.files.names import LOCK_FILE
from kstore.log.recovery.context import RecoveryContext
from kstore.log.recovery.evidence import RootMarks, SegmentEnd, losses_beside, marks_of_root
from kstore.store.opening import open_found
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstore._core import BatchHeader
    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.log.damage import SuspectedLoss
    from kstore.log.files.names import PartitionDirectory
    from kstore.log.log import Log
    from kstore.log.segment.segment import LogSegment

SAMPLE_BYTES = 1 << 20
_NUMBERS = ("log_start_offset", "log_end_offset", "last_stable_offset", "segments", "size_in_bytes")
COLUMNS = (
    *LOG_COLUMNS,
    Column("segments", is_number=True),
    Column("bytes", is_number=True),
    Column("first timestamp"),
    Column("last timestamp"),
    Column("magic"),
    Column("codecs"),
)


@dataclass
class Listing:
    """One partition as `ls` shows it. Timestamps are that of the first record and the largest of the last batch."""

    topic_partition: TopicPartition
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int | None
    segments: int
    size_in_bytes: int
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    magics: set[int] = field(default_factory=set)
    codec_ids: set[int] = field(default_factory=set)
    losses: list[SuspectedLoss] = field(default_factory=list)

    def add(self, header: BatchHeader) -> None:
        """Add a batch's magic and codec."""
        self.magics.add(header.magic)
        self.codec_ids.add(header.codec)

    def codecs(self) -> list[str]:
        """Return the codec names in the order of Kafka's ids."""
        return [codec_name(codec_id) for codec_id in sorted(self.codec_ids)]

    def json(self) -> str:
        """Return the JSON object."""
        return JSON_TEXT(
            {
                "topic": self.topic_partition.topic,
                "partition": self.topic_partition.partition,
                "log_start_offset": self.log_start_offset,
                "log_end_offset": self.log_end_offset,
                "last_stable_offset": self.last_stable_offset,
                "segments": self.segments,
                "size_in_bytes": self.size_in_bytes,
                "first_timestamp_ms": self.first_timestamp_ms,
                "last_timestamp_ms": self.last_timestamp_ms,
                "magics": sorted(self.magics),
                "codecs": self.codecs(),
                "suspected_losses": loss_objects(self.losses),
            }
        )

    def row(self) -> list[str]:
        """Return the table cells, in the order of COLUMNS."""
        return [
            self.topic_partition.topic,
            str(self.topic_partition.partition),
            str(self.log_start_offset),
            str(self.log_end_offset),
            str(self.segments),
            str(self.size_in_bytes),
            time_text(self.first_timestamp_ms),
            time_text(self.last_timestamp_ms),
            ",".join(map(str, sorted(self.magics))) or "-",
            ",".join(self.codecs()) or "-",
        ]


def run(selection: PartitionSelection, out: Output, *, is_json: bool, is_exact: bool) -> int:
    """List the selected partitions and return the exit status. One that can't be read is reported and left out."""
    status = EXIT_FINE
    rows = []
    losses: list[SuspectedLoss] = []
    of_roots: dict[str, RootMarks] = {}
    partitions = selection.find()
    for partition in partitions:
        try:
            with open_found(partition) as log:
                listing = list_log(log, is_exact=is_exact)
                if partition.root not in of_roots:
                    of_roots[partition.root] = marks_of_root(partition.root, partition.env)
                listing.losses = losses_of(log, partition, of_roots[partition.root])
                damage = log.segments[-1].tail.error if log.segments else None
        except KStoreError as error:
            status = max(status, out.partition_failure(error, partition))
            continue
        if damage is not None:
            status = max(status, out.failure(damage))
        losses += listing.losses
        if is_json:
            out.line(listing.json())
        else:
            rows.append(listing.row())
    if rows:
        out.table(COLUMNS, rows)
    without_directory = selection.losses_of_roots(partitions)
    if is_json:
        for loss in without_directory:
            out.line(json_without_directory(loss))
    for loss in (loss for loss in (*losses, *without_directory) if loss.is_proven):
        out.notice(loss_text(loss))
    likely = [loss for loss in (*losses, *without_directory) if not loss.is_proven]
    if likely:
        out.notice(likely_text(likely))
    return status


def json_without_directory(loss: SuspectedLoss) -> str:
    """Return the JSON object of a partition that has no directory."""
    topic, partition = loss.topic_partition
    unknown = dict.fromkeys((*_NUMBERS, "first_timestamp_ms", "last_timestamp_ms"))
    return JSON_TEXT(
        {
            "topic": topic,
            "partition": partition,
            **unknown,
            "magics": [],
            "codecs": [],
            "suspected_losses": loss_objects([loss]),
        }
    )


def losses_of(log: Log, partition: PartitionDirectory, of_root: RootMarks) -> list[SuspectedLoss]:
    """Return the losses that the ends of a log's segments and the files beside it show.

    Cost: a read at the end of each segment.
    """
    context = RecoveryContext(partition, log.config, partition.env, log.log_start_offset)
    ends = [end_of(segment) for segment in log.segments]
    is_live = partition.env.is_locked(join_path(partition.root, LOCK_FILE))
    return losses_beside(context, ends, of_root, is_live=is_live)


def end_of(segment: LogSegment) -> SegmentEnd:
    """Return the end of a segment, by its last batch."""
    try:
        last = segment.last_batch()
        tail = segment.tail
    except KStoreError:
        return SegmentEnd(segment.base_offset, None, 0, is_damaged=True)
    if last is None:
        return SegmentEnd(segment.base_offset, segment.base_offset, 0, is_damaged=tail.error is not None)
    header = read_header(last.header, position=last.position)
    end_position = last.position + header.size_in_bytes
    return SegmentEnd(segment.base_offset, header.last_offset + 1, end_position, is_damaged=tail.error is not None)


def list_log(log: Log, *, is_exact: bool) -> Listing:
    """Return the Listing of one log.

    Cost: reads the first SAMPLE_BYTES of each segment, or all of it if is_exact, and the end of the last one.
    """
    listing = Listing(
        topic_partition=log.topic_partition,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset,
        segments=len(log.segments),
        size_in_bytes=log.size_in_bytes,
    )
    for segment in log.segments:
        for header in first_headers(segment, limit_bytes=segment.size_in_bytes if is_exact else SAMPLE_BYTES):
            listing.add(header)
    last = last_header(log)
    if last is not None:
        listing.add(last)
        listing.first_timestamp_ms = first_timestamp_ms(log)
        listing.last_timestamp_ms = last.max_timestamp_ms
    return listing


def first_headers(segment: LogSegment, *, limit_bytes: int) -> Iterator[BatchHeader]:
    """Yield the headers of the batches in the first limit_bytes of a segment, at least that of its first batch."""
    boundary = segment.records.walk(position=0, end_position=min(limit_bytes, segment.valid_end_position)).position
    if boundary > 0:
        for header, _ in segment.records.read_batches(position=0, end_position=boundary):
            yield header
    elif segment.valid_end_position > 0:
        first = segment.translate_offset(segment.base_offset)
        if first is not None:
            yield first


def last_header(log: Log) -> BatchHeader | None:
    """Return the header of the log's last batch, or None if the log is empty from its log start offset on."""
    if log.log_start_offset == log.log_end_offset:
        return None
    for segment in reversed(log.segments):
        end_position = segment.valid_end_position
        index = segment.offset_index
        floor = None
        if index is not None and index.entry_count:
            floor = segment.verified_batch(index, index.entry_count - 1, end_position=end_position)
        last: BatchHeader | None = None
        position = 0 if floor is None else floor.position
        for header, _ in segment.records.read_batches(position=position, end_position=end_position):
            last = header
        if last is not None:
            return last
    return None


def first_timestamp_ms(log: Log) -> int | None:
    """Return the timestamp of the first record at or after the log start offset, or None if there is none."""
    start_offset = log.log_start_offset
    for batch in log.batches(start_offset):
        records = batch.records(verify=False, headers=False)
        timestamp_ms = next((record.timestamp_ms for record in records if record.offset >= start_offset), None)
        if timestamp_ms is not None:
            return timestamp_ms
    return None
