"""`kstore ls`: one line per partition, from batch headers, without reading whole logs unless --exact is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kstore._core import HeaderScan, check_crc, read_header
from kstore.cli import EXIT_FINE
from kstore.cli.handed import note_tiered
from kstore.cli.output import LOG_COLUMNS, Column
from kstore.cli.render import JSON_TEXT, likely_text, loss_objects, loss_text, time_text
from kstore.compression import codec_name
from kstore.config import config_or_default
from kstore.env import FileKind, join_path
from kstore.errors import KStoreError, StorageError
from kstore.log.files.checkpoints import checkpoints_of
from kstore.log.files.names import (
    LOCK_FILE,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    parse_segment_name,
    retired_partition,
)
from kstore.log.files.records import HEADER_CHUNK_BYTES
from kstore.log.plan import batches_of, extents
from kstore.log.recovery.context import RecoveryContext
from kstore.log.recovery.evidence import RootMarks, SegmentEnd, is_all_there, losses_beside, marks_of_root
from kstore.record.batches import RecordBatch
from kstore.reporting.units import size_text
from kstore.store.opening import open_found
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kstore._core import BatchHeader
    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.env import Env
    from kstore.log.damage import SuspectedLoss
    from kstore.log.files.names import PartitionDirectory
    from kstore.log.log import Log
    from kstore.log.segment.segment import LogSegment

SAMPLE_BYTES = 1 << 20
# With which open_found opens a log.
_CONFIG = config_or_default(None)
_NUMBERS = ("log_start_offset", "log_end_offset", "last_stable_offset", "segments", "size_in_bytes")
COLUMNS = (
    *LOG_COLUMNS,
    Column("segments", is_number=True, rank=3),
    Column("bytes", is_number=True),
    Column("first timestamp", rank=4),
    Column("last timestamp", rank=1),
    Column("magic", rank=5),
    Column("codecs", rank=2),
)
TOPIC_COLUMNS = (
    Column("topic"),
    Column("partitions", is_number=True),
    Column("offsets", is_number=True),
    Column("segments", is_number=True, rank=2),
    Column("bytes", is_number=True),
    Column("first timestamp", rank=3),
    Column("last timestamp", rank=1),
)
RETIRED_COLUMNS = (Column("directory"), Column("bytes", is_number=True), Column("state"), Column("what it is", rank=1))
# What a broker renamed a partition's directory for.
RETIRED_STATES = {
    "delete": "deleted; a broker removes it after file.delete.delay.ms",
    "stray": "not of this broker by its cluster's metadata",
    "future": "a copy that a broker was moving here",
}


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """What `ls` shows. sort: one of SORT_KEYS, None for topic and partition."""

    is_json: bool
    is_exact: bool = False
    is_human: bool = False
    by_topic: bool = False
    sort: str | None = None
    is_reversed: bool = False

    def bytes_text(self, size_in_bytes: int) -> str:
        """Return a size as the tables show it."""
        return size_text(size_in_bytes) if self.is_human else str(size_in_bytes)


@dataclass
class Listing:
    """One partition as `ls` shows it. Timestamps are that of the first record and the largest of the last batch, of
    those that are no control records.
    """

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

    def add_walk(self, walk: HeaderScan) -> None:
        """Add the magics and codecs of the batches of a walk."""
        self.magics |= walk.magics
        self.codec_ids |= walk.codec_ids

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
                "state": None,
            }
        )

    def row(self, options: ListOptions) -> list[str]:
        """Return the table cells, in the order of COLUMNS."""
        return [
            self.topic_partition.topic,
            str(self.topic_partition.partition),
            str(self.log_start_offset),
            str(self.log_end_offset),
            str(self.segments),
            options.bytes_text(self.size_in_bytes),
            time_text(self.first_timestamp_ms),
            time_text(self.last_timestamp_ms),
            ",".join(map(str, sorted(self.magics))) or "-",
            ",".join(self.codecs()) or "-",
        ]


# What `--sort` sorts by; equal ones stay in the order of topic and partition.
SORT_KEYS: dict[str, Callable[[Listing], int | tuple[str, int]]] = {
    "name": lambda listing: listing.topic_partition,
    "size": lambda listing: listing.size_in_bytes,
    "offset": lambda listing: listing.log_end_offset,
    "segments": lambda listing: listing.segments,
    "time": lambda listing: -1 if listing.last_timestamp_ms is None else listing.last_timestamp_ms,
}


class RetiredDirectory(NamedTuple):
    """A directory that a broker renamed, so that it is no partition's any more."""

    topic_partition: TopicPartition
    name: str
    state: str
    size_in_bytes: int

    def json(self) -> str:
        """Return the JSON object: that of a partition with what is known of it."""
        return json_of_unread(self.topic_partition, [], size_in_bytes=self.size_in_bytes, state=self.state)

    def row(self, options: ListOptions) -> list[str]:
        """Return the table cells, in the order of RETIRED_COLUMNS."""
        return [self.name, options.bytes_text(self.size_in_bytes), f"-{self.state}", RETIRED_STATES[self.state]]


def run(selection: PartitionSelection, options: ListOptions, out: Output) -> int:
    """List the selected partitions and return the exit status. One that can't be read is reported and left out."""
    status = EXIT_FINE
    listings: list[Listing] = []
    losses: list[SuspectedLoss] = []
    is_direct = options.is_json and options.sort is None and not options.is_reversed and not options.by_topic
    of_roots: dict[str, RootMarks] = {}
    tiered_roots: dict[str, bool] = {}
    partitions = selection.find()
    for partition in partitions:
        try:
            if partition.root not in of_roots:
                of_roots[partition.root] = marks_of_root(partition.root, partition.env)
            listing, damage = look_at(partition, of_roots[partition.root], is_exact=options.is_exact)
            note_tiered(partition, out, tiered_roots)
        except KStoreError as error:
            status = max(status, out.partition_failure(error, partition))
            continue
        if damage is not None:
            status = max(status, out.failure(damage))
        losses += listing.losses
        if is_direct:
            out.line(listing.json())
        else:
            listings.append(listing)
    listings.sort(key=SORT_KEYS[options.sort or "name"], reverse=options.is_reversed)
    without_directory = selection.losses_of_roots(partitions)
    retired = [] if options.by_topic else list(retired_directories(selection, partitions))
    if options.by_topic:
        show_topics(listings, options, out)
    elif options.is_json:
        for listing in listings:
            out.line(listing.json())
        for loss in without_directory:
            out.line(json_of_unread(loss.topic_partition, [loss]))
        for directory in retired:
            out.line(directory.json())
    else:
        if listings:
            out.table(COLUMNS, [listing.row(options) for listing in listings])
        if retired:
            out.line("")
            out.table(RETIRED_COLUMNS, [directory.row(options) for directory in retired])
    show_losses([*losses, *without_directory], out)
    return status


def look_at(partition: PartitionDirectory, of_root: RootMarks, *, is_exact: bool) -> tuple[Listing, KStoreError | None]:
    """Return the Listing of a partition, and the damage at its end."""
    listing = list_small(partition, of_root)
    if listing is not None:
        return listing, None
    with open_found(partition) as log:
        listing, lasts = list_log(log, is_exact=is_exact)
        listing.losses = losses_of(log, lasts, partition, of_root)
        return listing, log.segments[-1].tail.error if log.segments else None


def show_losses(losses: list[SuspectedLoss], out: Output) -> None:
    """Report each loss that is proven, and in one line those that are likely."""
    for loss in (loss for loss in losses if loss.is_proven):
        out.notice(loss_text(loss))
    likely = [loss for loss in losses if not loss.is_proven]
    if likely:
        out.notice(likely_text(likely))


def show_topics(listings: list[Listing], options: ListOptions, out: Output) -> None:
    """Show the totals of each topic, in the order that is asked for."""
    of_topics: dict[str, list[Listing]] = {}
    for listing in listings:
        of_topics.setdefault(listing.topic_partition.topic, []).append(listing)
    totals = [total_of(topic, of_topic) for topic, of_topic in of_topics.items()]
    totals.sort(key=SORT_KEYS[options.sort or "name"], reverse=options.is_reversed)
    rows = []
    for total in totals:
        topic, partitions = total.topic_partition
        offsets = total.log_end_offset
        first_ms, last_ms = total.first_timestamp_ms, total.last_timestamp_ms
        if options.is_json:
            shown = {"topic": topic, "partitions": partitions, "offsets": offsets, "segments": total.segments}
            shown |= {"size_in_bytes": total.size_in_bytes}
            out.line(JSON_TEXT(shown | {"first_timestamp_ms": first_ms, "last_timestamp_ms": last_ms}))
        else:
            numbers = [str(partitions), str(offsets), str(total.segments), options.bytes_text(total.size_in_bytes)]
            rows.append([topic, *numbers, time_text(first_ms), time_text(last_ms)])
    if rows:
        out.table(TOPIC_COLUMNS, rows)


def total_of(topic: str, listings: list[Listing]) -> Listing:
    """Return the total of a topic's partitions: their number in place of one, and as offsets those in their logs."""
    firsts = [listing.first_timestamp_ms for listing in listings if listing.first_timestamp_ms is not None]
    lasts = [listing.last_timestamp_ms for listing in listings if listing.last_timestamp_ms is not None]
    return Listing(
        topic_partition=TopicPartition(topic, len(listings)),
        log_start_offset=0,
        log_end_offset=sum(listing.log_end_offset - listing.log_start_offset for listing in listings),
        last_stable_offset=None,
        segments=sum(listing.segments for listing in listings),
        size_in_bytes=sum(listing.size_in_bytes for listing in listings),
        first_timestamp_ms=min(firsts, default=None),
        last_timestamp_ms=max(lasts, default=None),
    )


def retired_directories(
    selection: PartitionSelection, partitions: Iterable[PartitionDirectory]
) -> Iterator[RetiredDirectory]:
    """Yield the directories of selected partitions that a broker renamed, if DIR is a root, by name.

    Cost: a listing of the root, and of each such directory with a stat of its files.
    """
    roots = {found.root: found.env for found in partitions if not selection.is_directory_of(found)}
    for root in sorted(roots):
        for name in sorted(roots[root].listdir(root)):
            retired = retired_partition(name)
            if retired is not None and selection.selects(retired.topic_partition):
                size_in_bytes = size_of_files(join_path(root, name), roots[root])
                if size_in_bytes is not None:
                    yield RetiredDirectory(retired.topic_partition, name, retired.state, size_in_bytes)


def size_of_files(directory: str, env: Env) -> int | None:
    """Return the size of the files in a directory, None if it can't be listed, as one that was just removed."""
    try:
        found = [env.stat(join_path(directory, name)) for name in env.listdir(directory)]
    except StorageError:
        return None
    return sum(status.size_in_bytes for status in found if status is not None and status.kind is FileKind.FILE)


def json_of_unread(
    topic_partition: TopicPartition,
    losses: list[SuspectedLoss],
    *,
    size_in_bytes: int | None = None,
    state: str | None = None,
) -> str:
    """Return the JSON object of a partition without a log to read: one without a directory, or a renamed one."""
    topic, partition = topic_partition
    unknown = dict.fromkeys((*_NUMBERS, "first_timestamp_ms", "last_timestamp_ms"))
    return JSON_TEXT(
        {
            "topic": topic,
            "partition": partition,
            **unknown,
            "size_in_bytes": size_in_bytes,
            "magics": [],
            "codecs": [],
            "suspected_losses": loss_objects(losses),
            "state": state,
        }
    )


class SegmentLast(NamedTuple):
    """The last batch of a segment, None if it has none; error: why that could not be found."""

    segment: LogSegment
    header: BatchHeader | None = None
    error: KStoreError | None = None

    def end(self) -> SegmentEnd:
        """Return the end of the segment, by its last batch."""
        base_offset, last = self.segment.base_offset, self.header
        if self.error is not None:
            return SegmentEnd(base_offset, None, 0, is_damaged=True)
        is_damaged = self.segment.tail.error is not None
        if last is None:
            return SegmentEnd(base_offset, base_offset, 0, is_damaged=is_damaged)
        return SegmentEnd(base_offset, last.last_offset + 1, last.position + last.size_in_bytes, is_damaged=is_damaged)


def last_of(segment: LogSegment) -> SegmentLast:
    """Return the last batch of a segment.  Cost: a read at the end of the segment."""
    try:
        place = segment.last_batch()
    except KStoreError as error:
        return SegmentLast(segment, error=error)
    return SegmentLast(segment, None if place is None else read_header(place.header, position=place.position))


def losses_of(
    log: Log, lasts: Sequence[SegmentLast], partition: PartitionDirectory, of_root: RootMarks
) -> list[SuspectedLoss]:
    """Return the losses that the ends of a log's segments and the files beside it show.

    Cost: that of losses_beside.
    """
    context = RecoveryContext(partition, log.config, partition.env, log.log_start_offset)
    lock_path = join_path(partition.root, LOCK_FILE)
    ends = [last.end() for last in lasts]
    return losses_beside(context, ends, of_root, is_live=lambda: partition.env.is_locked(lock_path))


def list_small(partition: PartitionDirectory, of_root: RootMarks) -> Listing | None:
    """Return the Listing of a partition of one small segment, None of any other, and of one where something is amiss.

    That is what list_log and losses_of find, without the objects of a Log.  Cost: one listing, one read of the .log.
    """
    env, path = partition.env, partition.path
    if env.is_high_latency:
        return None
    try:
        before = env.stat(path)
        names = env.listdir(path)
        logs = [name for name in names if name.endswith(LOG_SUFFIX)]
        name = parse_segment_name(logs[0]) if len(logs) == 1 else None
        if name is None:
            return None
        log_path = join_path(path, logs[0])
        data = read_small(log_path, env)
        if data is None or env.stat(path) != before:
            return None
        starts = checkpoints_of(env).offsets(join_path(partition.root, LOG_START_OFFSET_CHECKPOINT)) or {}
        log_start_offset = max(starts.get(partition.topic_partition, 0), name.base_offset)
        listing = list_data(data, partition, base_offset=name.base_offset, path=log_path)
        if listing is None or log_start_offset not in (listing.log_start_offset, listing.log_end_offset):
            return None
        if log_start_offset == listing.log_end_offset:
            listing.log_start_offset = log_start_offset
            listing.first_timestamp_ms = listing.last_timestamp_ms = None
        end = SegmentEnd(name.base_offset, listing.log_end_offset, len(data), is_damaged=False)
        context = RecoveryContext(partition, _CONFIG, env, log_start_offset)
        return listing if is_all_there(context, [end], of_root, names=names) else None
    except KStoreError:
        return None


def read_small(path: str, env: Env) -> bytes | None:
    """Return all bytes of a .log, None of one that is larger than a header walk reads at once."""
    with env.open_read(path) as file:
        size = file.size()
        data = file.pread(size, position=0) if size <= HEADER_CHUNK_BYTES else b""
    return data if len(data) == size else None


def list_data(data: bytes, partition: PartitionDirectory, *, base_offset: int, path: str) -> Listing | None:
    """Return the Listing of a log of one segment, from all of its bytes; None unless they are whole batches, of which
    the first and the last hold data.

    Raises: CorruptRecordError and other errors for a first batch that can't be read.
    """
    size = len(data)
    walk = HeaderScan(
        position=0,
        end_position=size,
        base_offset=base_offset,
        max_batch_bytes=_CONFIG.max_batch_bytes,
        path=path,
    )
    walk.feed(data, 0)
    if walk.status != "end":
        return None
    end_offset = max(walk.last_offset + 1, base_offset)
    listing = Listing(partition.topic_partition, base_offset, end_offset, None, segments=1, size_in_bytes=size)
    if not walk.batch_count:
        return listing
    listing.add_walk(walk)
    first, last = read_header(data, position=0), read_header(data, walk.last_position, position=walk.last_position)
    if first.is_control or last.is_control:
        return None
    first_bytes = data[: first.size_in_bytes]
    check_crc(first_bytes, position=0, path=path)
    batch = RecordBatch(first_bytes, position=0, path=path, config=_CONFIG)
    record = next(iter(batch.records(verify=False, headers=False)), None)
    if record is None:
        return None
    listing.first_timestamp_ms, listing.last_timestamp_ms = record.timestamp_ms, last.max_timestamp_ms
    return listing


def list_log(log: Log, *, is_exact: bool) -> tuple[Listing, list[SegmentLast]]:
    """Return the Listing of one log, and the last batches of its segments.

    Cost: reads the first SAMPLE_BYTES of each segment, or all of it if is_exact, and the end of each.
    """
    listing = Listing(
        topic_partition=log.topic_partition,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset,
        segments=len(log.segments),
        size_in_bytes=log.size_in_bytes,
    )
    lasts = [last_of(segment) for segment in log.segments]
    for segment in log.segments:
        add_first_headers(listing, segment, limit_bytes=segment.size_in_bytes if is_exact else SAMPLE_BYTES)
    last = last_header(lasts) if log.log_start_offset < log.log_end_offset else None
    if last is not None:
        listing.add(last)
        listing.first_timestamp_ms = first_timestamp_ms(log)
        last_data = last_data_header(log) if last.is_control else last
        listing.last_timestamp_ms = None if last_data is None else last_data.max_timestamp_ms
    return listing, lasts


def add_first_headers(listing: Listing, segment: LogSegment, *, limit_bytes: int) -> None:
    """Add the batches in the first limit_bytes of a segment, at least the first one."""
    end_position = min(limit_bytes, segment.valid_end_position)
    walk = segment.records.walk(position=0, end_position=end_position)
    listing.add_walk(walk)
    if walk.batch_count:
        check_inside(segment, last_offset=walk.last_offset, end_position=walk.position)
    elif segment.valid_end_position > 0:
        first = segment.translate_offset(segment.base_offset)
        if first is not None:
            listing.add(first)


def check_inside(segment: LogSegment, *, last_offset: int, end_position: int) -> None:
    """Raise CorruptRecordError if batches up to last_offset, which ends at end_position, reach the next segment."""
    following = segment.next_base_offset
    if following is not None and last_offset >= following:
        walk = segment.records.walk(position=0, end_position=end_position, next_base_offset=following)
        segment.records.stopped_at(walk)


def last_header(lasts: Sequence[SegmentLast]) -> BatchHeader | None:
    """Return the header of a log's last batch, None if it has none.  Raises: why it is not known."""
    for segment, last, error in reversed(lasts):
        if error is not None:
            raise error
        if last is None:
            continue
        end_position = last.position + last.size_in_bytes
        check_inside(segment, last_offset=last.last_offset, end_position=end_position)
        if end_position < segment.valid_end_position:
            rest = segment.records.walk(
                position=end_position,
                end_position=segment.valid_end_position,
                previous_last_offset=last.last_offset,
            )
            segment.records.stopped_at(rest)
        return last
    return None


def last_data_header(log: Log) -> BatchHeader | None:
    """Return the header of the last batch that is no control batch, or None if there is none from the log start on.

    Cost: reads headers from the end, in parts that double; all of them if all are control batches.
    """
    for segment in reversed(log.segments):
        end_position = segment.valid_end_position
        index = segment.offset_index
        entries = 0 if index is None else index.entry_count
        step = 1
        while end_position > 0:
            entries = max(entries - step, 0)
            floor = None
            if index is not None and entries:
                floor = segment.verified_batch(index, entries, end_position=segment.valid_end_position)
            position = 0 if floor is None or floor.position >= end_position else floor.position
            last: BatchHeader | None = None
            for header, _ in segment.records.read_batches(position=position, end_position=end_position):
                last = last if header.is_control else header
            if last is not None:
                return last if last.last_offset >= log.log_start_offset else None
            end_position, step = position, 2 * step
    return None


def first_timestamp_ms(log: Log) -> int | None:
    """Return the timestamp of the first record at or after the log start offset, or None if there is none."""
    start_offset, end_offset = log.log_start_offset, log.log_end_offset
    parts = extents(log.segments, start_offset=start_offset, end_offset=end_offset, log_end_offset=end_offset)
    for segment, header, data in batches_of(parts, checks_crc=True, anchor=None):
        if header.is_control:
            continue
        batch = RecordBatch(data, position=header.position, path=segment.path, config=log.config)
        records = batch.records(verify=False, headers=False)
        timestamp_ms = next((record.timestamp_ms for record in records if record.offset >= start_offset), None)
        if timestamp_ms is not None:
            return timestamp_ms
    return None
