"""TierFiles: which files of a tier are shown in which partition directory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from kstore._core import RECORD_BATCH_OVERHEAD
from kstore.config import LogConfig
from kstore.env import Env, FileStatus, join_path, split_path
from kstore.env.tiered import ShownDirectory, TieredEnv, View, env_of
from kstore.errors import CorruptionError, LogNotFoundError, TierEpochError
from kstore.log.files.checkpoints import (
    CHECKPOINT_VERSION,
    EpochEntry,
    read_checkpoint,
    read_leader_epoch_checkpoint,
)
from kstore.log.files.names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    REMOTE_LOG_METADATA_TOPIC,
    SEGMENT_INDEX_SUFFIXES,
    PartitionDirectory,
    base_offset_file_name,
    parse_segment_name,
)
from kstore.log.files.root_files import id_text, read_partition_metadata
from kstore.tier.events import PartitionEvents, replay_events
from kstore.tier.keys import KeyRing
from kstore.tier.lineage import Piece, RemoteSegment, as_of_epoch, choose_pieces, epochs_beside, heads_of
from kstore.tier.listing import StoredSegment, TieredPartition, TierListing, list_directories, list_tier
from kstore.tier.objects import AbsentView, LogView, SideFileView, TextView
from kstore.tier.stored import SegmentReader, UnreadableSegment, log_view
from kstore.types import MAX_OFFSET, TopicPartition, parse_partition_directory_name
from kstore.waiting import results_in_threads

_logger = logging.getLogger("kstore.log")
_GAP = "no finished segment of the tier has them, and they are not in the local log"
_GONE = "the metadata topic has their segment as finished, and its objects are not in the tier"
_ICEBERG = "their segment was written as an Iceberg table (segment.format=iceberg), from which no batches can be read"
_UNALIGNED = "two segments with them have different batches"


class Resolved(NamedTuple):
    """What a partition of a tier is: the pieces of its log, the segments they were chosen from, its lineage.

    unreadable: finished segments whose objects do not say what they are; local_start: the base offset of the first
    local segment, None if there is none; events: None if no metadata topic has any.
    """

    partition: TieredPartition
    pieces: list[Piece]
    segments: list[RemoteSegment]
    unreadable: list[UnreadableSegment]
    lineage: Sequence[EpochEntry]
    local_start: int | None
    events: PartitionEvents | None


class TierFiles:
    """The ShownFiles of a tier.

    Args: base: of the roots whose partitions have more segments in the tier, None for the tier alone; tier: where the
        tier is in `remote`; roots: with partitions of `__remote_log_metadata`, as paths of base; epoch: the leader
        epoch of the lineage to read where no root says one, None for that of the newest segment; carried: what another
        process has found out of the partitions that are shown.
    Attributes: env (shows these files), keys.
    Threads: thread-safe.
    """

    def __init__(
        self,
        base: Env | None,
        remote: Env,
        *,
        tier: str,
        roots: Sequence[str],
        keys: KeyRing,
        config: LogConfig,
        epoch: int | None = None,
        carried: CarriedTier | None = None,
    ) -> None:
        self.env = TieredEnv(base, remote, self)
        self._base = base
        self._remote = remote
        self._tier = tier
        self._roots = tuple(roots)
        self.keys = keys
        self._config = config
        self._epoch = epoch
        self._lock = threading.RLock()
        self._listing: TierListing | None = None
        self._carried = carried
        self._events: Mapping[TieredPartition, PartitionEvents] = {} if carried is None else carried.events
        self._event_files: tuple[object, ...] | None = None
        self._is_events_checked = carried is not None
        self._directories: dict[str, ShownDirectory | None] = {}

    def directories(self, path: str) -> Collection[str]:
        if self._base is not None or path != self._tier:
            return ()
        return self.listing().names

    def is_partition(self, path: str) -> bool:
        directory, name = split_path(path)
        if self._base is not None:
            return first_local_offset(path, self._base) is not None
        return name in self.directories(directory)

    def directory(self, path: str) -> ShownDirectory | None:
        with self._lock:
            if path in self._directories:
                return self._directories[path]
        if parse_partition_directory_name(split_path(path)[1]) is None:
            return None
        resolved = self.resolve(path)
        shown = None if resolved is None else self._shown(path, resolved)
        with self._lock:
            return self._directories.setdefault(path, shown)

    def forget(self, path: str) -> None:
        with self._lock:
            self._directories = {at: shown for at, shown in self._directories.items() if not _is_at(at, path)}
            name = parse_partition_directory_name(split_path(path)[1])
            partition = None if name is None or self._listing is None else self._partition_of(path, name)
            if self._listing is not None and name is not None and partition is not None:
                self._listing = self._listing.relisted(partition, name.topic, self._remote)
            else:
                self._listing = None
                self._remote.invalidate_listing(self._tier)
            self._is_events_checked = False

    def carried(self, paths: Iterable[str]) -> CarriedTier:
        partitions = [partition for path in paths for partition in self._partitions_at(path)]
        events = {partition: self.events()[partition] for partition in partitions if partition in self.events()}
        segment_ids = {segment.segment_id for found in events.values() for segment in found.finished}
        return CarriedTier(
            None if self._base is None else self._base.url,
            self._remote.url,
            self._tier,
            self._roots,
            self.keys,
            self._config,
            self._epoch,
            tuple(sorted(set().union(*map(self.listing().directories_of, partitions)))),
            self.listing().iceberg_ids & segment_ids,
            events,
            is_alone=self._base is None,
        )

    def _partitions_at(self, path: str) -> list[TieredPartition]:
        name = parse_partition_directory_name(split_path(path)[1])
        partition = None if name is None else self._partition_of(path, name)
        return [] if partition is None else [partition]

    def listing(self) -> TierListing:
        """Return the objects of the tier, listed once until forget().

        Raises: LogNotFoundError if none is a segment; StorageError.
        """
        with self._lock:
            if self._listing is None:
                self._listing = self._listed()
            return self._listing

    def _listed(self) -> TierListing:
        if self._carried is not None:
            return list_directories(self._remote, self._carried.directories, self._carried.iceberg_ids)
        listing = list_tier(self._remote, self._tier)
        if not listing and self._base is None:
            raise LogNotFoundError(
                f"{self._tier} holds no tiered segments: expected objects named <topic>-<topic id>/<partition>/"
                "<offset>-<segment id>.log (Aiven's plugin) or <topic>-<partition>-<topic id>/<offset>-"
                "<segment id>.log (LocalTieredStorage), found none",
                path=self._tier,
            )
        return listing

    def events(self) -> Mapping[TieredPartition, PartitionEvents]:
        """Return what the metadata topic in the roots says, replayed again after forget() if it has grown.

        Raises: as replay_events.
        """
        with self._lock:
            if not self._is_events_checked:
                base = self._base
                directories = [] if base is None else _metadata_partitions(self._roots, base)
                files = tuple(_log_files(directory) for directory in directories)
                if files != self._event_files:
                    self._events = replay_events(directories, self._config)
                    self._event_files = files
                self._is_events_checked = True
            return self._events

    def resolve(self, path: str) -> Resolved | None:
        """Return what the tier has of the partition in a directory, None if it has nothing.

        Raises: CorruptionError, StorageError, TierKeyError.
        Cost: with events of the metadata topic none beyond the listing; else a manifest for each segment.
        """
        name = parse_partition_directory_name(split_path(path)[1])
        partition = None if name is None else self._partition_of(path, name)
        if name is None or partition is None:
            return None
        stored = self.listing().of(partition)
        events = self.events().get(partition)
        if not stored and events is None:
            return None
        reader = self._reader(path, name, partition)
        segments, unreadable = self._segments(stored, events, reader)
        lineage, start, local_start = self._bounds(path, name, segments, stored, reader)
        pieces = choose_pieces(segments, lineage, start_offset=start, end_offset=local_start)
        return Resolved(partition, pieces, segments, unreadable, lineage, local_start, events)

    def reader(self, path: str, resolved: Resolved) -> SegmentReader:
        """Return what reads the objects of the partition that is shown in a directory."""
        name = parse_partition_directory_name(split_path(path)[1]) or TopicPartition("", 0)
        return self._reader(path, name, resolved.partition)

    def _partition_of(self, path: str, name: TopicPartition) -> TieredPartition | None:
        """Return which partition of the tier is shown in a directory."""
        if self._base is not None:
            topic_id = read_partition_metadata(path, self._base) if self._base.is_directory(path) else None
            return None if topic_id is None else TieredPartition(topic_id, name.partition)
        if split_path(path)[0] != self._tier:
            return None
        found = self.listing().by_name.get(name, [])
        if len(found) > 1:
            chosen = max(found, key=self._newest)
            others = ", ".join(id_text(one.topic_id) for one in found if one is not chosen)
            _logger.warning(
                "%s: the tier has several topics of this name; that with the newest object, %s, is read, not %s",
                path,
                id_text(chosen.topic_id),
                others,
            )
            return chosen
        return found[0] if found else None

    def _newest(self, partition: TieredPartition) -> int:
        """Return when the newest object of a partition was written, in ns."""
        statuses = (
            self._remote.stat(one.stem + suffix) for one in self.listing().of(partition) for suffix in one.suffixes
        )
        return max((status.identity[2] for status in statuses if status is not None), default=0)

    def _reader(self, path: str, name: TopicPartition, partition: TieredPartition) -> SegmentReader:
        directory = PartitionDirectory(name, path, split_path(path)[0], self.env)
        return SegmentReader(directory, partition, keys=self.keys, env=self.env, config=self._config)

    def _segments(
        self, stored: Sequence[StoredSegment], events: PartitionEvents | None, reader: SegmentReader
    ) -> tuple[list[RemoteSegment], list[UnreadableSegment]]:
        """Return the finished segments, by events if there are any, else by their objects."""
        if events is not None:
            return events.finished, []
        finished = [one for one in stored if one.is_finished]
        if len(finished) < len(stored):
            _logger.warning(
                "%s: %d uploads have not finished and are left out",
                split_path(stored[0].stem)[0],
                len(stored) - len(finished),
            )
        threads = self._remote.parallel_requests
        described = list(results_in_threads(reader.describe, finished, threads=threads, name="kstore-manifest"))
        return (
            [one for one in described if isinstance(one, RemoteSegment)],
            [one for one in described if isinstance(one, UnreadableSegment)],
        )

    def _bounds(
        self,
        path: str,
        name: TopicPartition,
        segments: Sequence[RemoteSegment],
        stored: Sequence[StoredSegment],
        reader: SegmentReader,
    ) -> tuple[Sequence[EpochEntry], int, int | None]:
        """Return the log's lineage, its start offset, and where its local segments begin, None without any."""
        base = self._base
        lineage: Sequence[EpochEntry] = ()
        start, local_start = 0, None
        if base is not None:
            lineage = read_leader_epoch_checkpoint(join_path(path, LEADER_EPOCH_CHECKPOINT), base) or ()
            start = read_checkpoint(split_path(path)[0], LOG_START_OFFSET_CHECKPOINT, base).get(name, 0)
            local_start = first_local_offset(path, base)
        if lineage and self._epoch is not None:
            raise TierEpochError(
                f"tier_epoch is for partitions whose leader epochs nothing says: {path} has them in its "
                f"{LEADER_EPOCH_CHECKPOINT}",
                path=path,
                epoch=self._epoch,
                known=tuple(entry.epoch for entry in lineage),
            )
        if not lineage:
            lineage = _lineage_by_objects(segments, stored, reader, epoch=self._epoch, path=path)
        first = lineage[0].start_offset if lineage else 0
        return lineage, max(start, first), local_start

    def _shown(self, path: str, resolved: Resolved) -> ShownDirectory:
        stored = {one.segment_id: one for one in self.listing().of(resolved.partition)}
        pieces = PieceViews(stored, self.listing().iceberg_ids, self.keys, self.reader(path, resolved))
        views: dict[str, View] = {}
        all_pieces = with_unreadable(resolved)
        for piece in all_pieces:
            views |= pieces.of(piece, is_first=piece is all_pieces[0])
        if self._base is None:
            views[LEADER_EPOCH_CHECKPOINT] = TextView(_checkpoint_text(resolved.lineage))
            metadata = f"version: 0\ntopic_id: {id_text(resolved.partition.topic_id)}"
            views[PARTITION_METADATA] = TextView(metadata.encode())
        return ShownDirectory(views, all_pieces[0].first if all_pieces else 0)


class CarriedTier(NamedTuple):
    """What another process needs to show partitions of a tier: where the roots and the tier are, as URLs with their
    options, which may be secret, None for local files; the paths of keys; and what was found out already, where the
    objects of these partitions are and the events of the metadata topic.
    """

    base: str | None
    remote: str | None
    tier: str
    roots: tuple[str, ...]
    keys: KeyRing
    config: LogConfig
    epoch: int | None
    directories: tuple[str, ...]
    iceberg_ids: frozenset[str]
    events: Mapping[TieredPartition, PartitionEvents]
    is_alone: bool

    def env(self) -> Env:
        """Return an Env that shows these partitions."""
        return TierFiles(
            None if self.is_alone else env_of(self.base),
            env_of(self.remote),
            tier=self.tier,
            roots=self.roots,
            keys=self.keys,
            config=self.config,
            epoch=self.epoch,
            carried=self,
        ).env

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.directories)} directories)"


def with_unreadable(resolved: Resolved) -> list[Piece]:
    """Return the pieces of a log with a gap, and why, for each segment that is there and does not say what it is."""
    pieces = list(resolved.pieces)
    for stored, reason in resolved.unreadable:
        start = stored.start_offset
        if resolved.local_start is not None and start >= resolved.local_start:
            continue
        at = next((at for at, piece in enumerate(pieces) if start <= piece.last), len(pieces))
        found = pieces[at] if at < len(pieces) else None
        if found is None:
            end = MAX_OFFSET - 1 if resolved.local_start is None else resolved.local_start - 1
            pieces.append(Piece(None, start, end, reason))
        elif start < found.first:
            pieces.insert(at, Piece(None, start, found.first - 1, reason))
        elif found.segment is None:
            pieces[at] = found._replace(reason=reason)
    return pieces


def _lineage_by_objects(
    segments: Sequence[RemoteSegment],
    stored: Sequence[StoredSegment],
    reader: SegmentReader,
    *,
    epoch: int | None,
    path: str,
) -> list[EpochEntry]:
    """Return the lineage up to a leader epoch, None for that of the head of a tier, by what was uploaded; if there are
    others beside that of the head, say so.

    Raises: TierEpochError if no segment has records of the epoch; as _lineage_by_heads.
    """
    by_id = {one.segment_id: one for one in stored}
    if epoch is not None:
        of_epoch = as_of_epoch(segments, epoch)
        if not of_epoch:
            known = sorted({entry.epoch for segment in segments for entry in segment.epochs})
            raise TierEpochError(
                f"tier_epoch {epoch}: no segment of {path} has records of this leader epoch, expected one of "
                f"{', '.join(map(str, known)) or 'none'}",
                path=path,
                epoch=epoch,
                known=tuple(known),
            )
        return [entry for entry in _lineage_by_heads(of_epoch, by_id, reader) if entry.epoch <= epoch]
    lineage = _lineage_by_heads(segments, by_id, reader)
    beside = epochs_beside(segments, lineage)
    if beside:
        _logger.warning(
            "%s: the tier has several lineages; that of leader epoch %d is read, and with tier_epoch that of %s",
            path,
            lineage[-1].epoch if lineage else -1,
            " or ".join(map(str, beside)),
        )
    return lineage


def _lineage_by_heads(
    heads: Sequence[RemoteSegment], stored: Mapping[str, StoredSegment], reader: SegmentReader
) -> list[EpochEntry]:
    """Return the lineage that was uploaded with the head of a tier; if that is damaged, with the next best one, and
    what the better ones say of themselves.

    Raises: CorruptionError if it is damaged everywhere.
    """
    later: list[EpochEntry] = []
    fault: CorruptionError | None = None
    for segment in heads_of(segment for segment in heads if segment.segment_id in stored):
        try:
            lineage = reader.lineage(stored[segment.segment_id])
        except CorruptionError as error:
            _logger.warning("the leader epochs are taken from another segment: %s", error)
            fault = fault or error
            later = [*segment.epochs, *(entry for entry in later if entry.epoch > segment.epochs[-1].epoch)]
            continue
        known = lineage[-1].epoch if lineage else -1
        return [*lineage, *(entry for entry in later if entry.epoch > known)]
    if fault is not None:
        raise fault
    return []


class PieceViews:
    """Makes the views of the pieces of one partition."""

    def __init__(
        self,
        stored: Mapping[str, StoredSegment],
        iceberg_ids: frozenset[str],
        keys: KeyRing,
        reader: SegmentReader,
    ) -> None:
        self._stored = stored
        self._iceberg_ids = iceberg_ids
        self._keys = keys
        self._reader = reader

    def of(self, piece: Piece, *, is_first: bool) -> dict[str, View]:
        """Return the files of a piece, by name.

        A piece that is only a part of its segment has no side files. The first one is shown whole from its start on:
        what is below the log start is not read.
        """
        segment = piece.segment
        if segment is None:
            return _absent(piece.reason or _GAP, piece)
        stored = self._stored.get(segment.segment_id)
        if stored is None or not stored.is_finished:
            reason = _ICEBERG if segment.segment_id in self._iceberg_ids else _GONE
            return _absent(reason, piece, size_in_bytes=segment.size_in_bytes)
        if (is_first or piece.first == segment.start_offset) and piece.last == segment.end_offset:
            return self._whole(stored, segment)
        try:
            return self._part(stored, segment, piece, is_first=is_first)
        except CorruptionError as error:
            return _absent(error.reason, piece, size_in_bytes=segment.size_in_bytes)

    def _whole(self, stored: StoredSegment, segment: RemoteSegment) -> dict[str, View]:
        place = stored.place(self._keys)
        start = base_offset_file_name(segment.start_offset, suffix="")
        # Taken at the segment's end, though the object has the name of its start.
        end = base_offset_file_name(segment.end_offset + 1, suffix=PRODUCER_SNAPSHOT_SUFFIX)
        names = [(start + suffix, suffix) for suffix in SEGMENT_INDEX_SUFFIXES]
        views: dict[str, View] = {
            name: SideFileView(place, suffix, stored.object_suffix(suffix))
            for name, suffix in (*names, (end, PRODUCER_SNAPSHOT_SUFFIX))
            if stored.has_side_file(suffix)
        }
        views[start + LOG_SUFFIX] = LogView(place, segment.size_in_bytes, segment.start_offset, segment.end_offset)
        return views

    def _part(self, stored: StoredSegment, segment: RemoteSegment, piece: Piece, *, is_first: bool) -> dict[str, View]:
        start, first = 0, segment.start_offset
        if piece.first != segment.start_offset and not is_first:
            start, first = self._reader.position_of(stored, segment, piece.first).position, piece.first
        end, after = None, piece.last + 1
        if piece.last < segment.end_offset:
            end, after = self._reader.position_of(stored, segment, piece.last + 1)
        views: dict[str, View] = {
            base_offset_file_name(first, suffix=LOG_SUFFIX): log_view(stored, segment, self._keys, start=start, end=end)
        }
        if after <= piece.last:
            # The batch at the cut begins below it.
            views |= _absent(_UNALIGNED, piece._replace(first=after))
        return views


def _absent(reason: str, piece: Piece, *, size_in_bytes: int = 0) -> dict[str, View]:
    name = base_offset_file_name(piece.first, suffix=LOG_SUFFIX)
    return {name: AbsentView(reason, piece.first, piece.last, max(size_in_bytes, RECORD_BATCH_OVERHEAD))}


def first_local_offset(path: str, base: Env) -> int | None:
    """Return the base offset of the first segment that is in a directory itself."""
    names = (parse_segment_name(name) for name in base.listdir(path))
    return min((name.base_offset for name in names if name is not None and name.suffix == LOG_SUFFIX), default=None)


def _metadata_partitions(roots: Sequence[str], base: Env) -> list[PartitionDirectory]:
    """Return the partitions of `__remote_log_metadata` in roots; of one that several have, that of the first."""
    found: dict[TopicPartition, PartitionDirectory] = {}
    for root in roots:
        for name in base.listdir(root):
            named = parse_partition_directory_name(name)
            if named is not None and named.topic == REMOTE_LOG_METADATA_TOPIC:
                found.setdefault(named, PartitionDirectory(named, join_path(root, name), root, base))
    return list(found.values())


def _log_files(directory: PartitionDirectory) -> list[tuple[str, FileStatus | None]]:
    """Return the segments of a partition as they are now."""
    env = directory.env
    env.invalidate_listing(directory.path)
    paths = (join_path(directory.path, name) for name in env.listdir(directory.path) if name.endswith(LOG_SUFFIX))
    return [(path, env.stat(path)) for path in paths]


def _checkpoint_text(lineage: Sequence[EpochEntry]) -> bytes:
    lines = (str(CHECKPOINT_VERSION), str(len(lineage)), *(f"{epoch} {start}" for epoch, start in lineage))
    return "".join(f"{line}\n" for line in lines).encode()


def _is_at(path: str, above: str) -> bool:
    return f"{path}/".startswith(f"{above}/")
