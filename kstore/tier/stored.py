"""What the objects of a tier say of a segment: its offsets and epochs where no metadata topic does, the lineage that
was uploaded with it, the position of an offset.
"""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from typing import NamedTuple

from kstore.config import LogConfig
from kstore.env import split_path
from kstore.env.tiered import TieredEnv, View
from kstore.errors import CorruptCheckpointError, CorruptionError, CorruptManifestError
from kstore.log.directory_source import DirectorySource
from kstore.log.files.checkpoints import EpochEntry, read_leader_epoch_checkpoint
from kstore.log.files.names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PartitionDirectory,
    base_offset_file_name,
)
from kstore.log.files.root_files import id_text
from kstore.tier.keys import KeyRing
from kstore.tier.lineage import RemoteSegment, epochs_within
from kstore.tier.listing import StoredSegment, TieredPartition
from kstore.tier.objects import MANIFEST_SUFFIX, LogView, SideFileView, manifest_of
from kstore.types import MAGIC_V2, MAX_OFFSET, NO_TIMESTAMP


class UnreadableSegment(NamedTuple):
    """A finished segment whose objects do not say what it is, and why."""

    stored: StoredSegment
    reason: str


class SegmentReader:
    """Reads what the objects of segments of one partition say.

    Args: directory: under which the partition is shown; env: the tier's.
    Raises: StorageError from every method; TierKeyError where what is read is encrypted.
    Threads: thread-safe.
    """

    def __init__(
        self,
        directory: PartitionDirectory,
        partition: TieredPartition,
        *,
        keys: KeyRing,
        env: TieredEnv,
        config: LogConfig,
    ) -> None:
        self._directory = directory
        self._partition = partition
        self._keys = keys
        self._env = env
        self._config = config

    def describe(self, stored: StoredSegment) -> RemoteSegment | UnreadableSegment:
        """Return what a finished segment is, or why that is not known.

        Cost: a manifest; without one, or with one from before September 2023, also the epochs and the last batch.
        """
        place = stored.place(self._keys)
        try:
            if not place.has_manifest:
                status = self._env.remote.stat(place.path(LOG_SUFFIX))
                return self._described(stored, size_in_bytes=0 if status is None else status.size_in_bytes)
            manifest = manifest_of(place, self._env)
            written = manifest.segment
            if written is None:
                return self._described(stored, size_in_bytes=manifest.chunks.file_bytes)
            expected = id_text(self._partition.topic_id), self._partition.partition, stored.segment_id
            found = written.topic_id, written.partition, written.segment_id
            if (*expected, stored.start_offset) != (*found, written.start_offset):
                raise _foreign(place.path(MANIFEST_SUFFIX), f"expected a segment {expected}, found {found}")
            if written.end_offset < written.start_offset or not written.epochs:
                raise _foreign(place.path(MANIFEST_SUFFIX), f"expected offsets and epochs, found {written}")
        except CorruptionError as error:
            return UnreadableSegment(stored, str(error))
        return RemoteSegment(
            stored.segment_id,
            written.start_offset,
            written.end_offset,
            written.epochs,
            manifest.chunks.file_bytes,
            written.max_timestamp_ms,
        )

    def lineage(self, stored: StoredSegment) -> list[EpochEntry]:
        """Return the leader epochs that were uploaded with a segment: all of its log up to its end.

        Raises: also CorruptionError.
        """
        view = side_file_view(stored, LEADER_EPOCH_CHECKPOINT, self._keys)
        # Under a path that names the segment, for errors.
        path = stored.stem + stored.object_suffix(LEADER_EPOCH_CHECKPOINT)
        directory, name = split_path(path)
        env = self._env.showing(directory, {name: view})
        entries = read_leader_epoch_checkpoint(path, env) or []
        if any(one.epoch >= two.epoch or one.start_offset >= two.start_offset for one, two in pairwise(entries)):
            reason = f"expected leader epochs that rise, found {entries}"
            raise CorruptCheckpointError(f"{path}: {reason}", path=path, position=0, reason=reason)
        return entries

    def position_of(self, stored: StoredSegment, segment: RemoteSegment, offset: int) -> CutPosition:
        """Return where in the log the first batch with offsets from `offset` on starts.

        Raises: also CorruptionError for damage on the way there.
        Cost: the offset index and about a chunk.
        """
        with closing(self._opened(stored, segment)) as log:
            batch = log.segments[0].translate_offset(offset)
            if batch is None:
                return CutPosition(segment.size_in_bytes, offset)
            return CutPosition(batch.position, log.segments[0].records.first_offset(batch))

    def survey(self, stored: StoredSegment, segment: RemoteSegment) -> SurveyedSegment:
        """Return what the headers of a segment's batches say.

        Raises: also CorruptionError.
        Cost: a header walk over the segment.
        """
        first, last, timestamp = -1, -1, NO_TIMESTAMP
        epochs: list[EpochEntry] = []
        with closing(self._opened(stored, segment)) as log:
            records = log.segments[0].records
            for header, _ in records.read_batches(position=0, end_position=segment.size_in_bytes):
                first = header.base_offset if first < 0 else first
                last, timestamp = header.last_offset, max(timestamp, header.max_timestamp_ms)
                if header.magic == MAGIC_V2 and (not epochs or epochs[-1].epoch != header.partition_leader_epoch):
                    epochs.append(EpochEntry(header.partition_leader_epoch, header.base_offset))
        return SurveyedSegment(first, last, timestamp, tuple(epochs))

    def _described(self, stored: StoredSegment, *, size_in_bytes: int) -> RemoteSegment:
        """Return what a segment is by its batches and the epochs beside it."""
        unknown = RemoteSegment(stored.segment_id, stored.start_offset, MAX_OFFSET - 1, (), size_in_bytes, NO_TIMESTAMP)
        with closing(self._opened(stored, unknown)) as log:
            end = log.segments[0].tail.last_offset
        if end < stored.start_offset:
            raise _foreign(stored.stem + LOG_SUFFIX, "expected batches, found none")
        epochs = epochs_within(self.lineage(stored), start_offset=stored.start_offset, end_offset=end)
        if not epochs:
            raise _foreign(stored.stem, f"expected leader epochs of offsets {stored.start_offset} to {end}, found none")
        return unknown._replace(end_offset=end, epochs=epochs)

    def _opened(self, stored: StoredSegment, segment: RemoteSegment) -> DirectorySource:
        views: dict[str, View] = {
            base_offset_file_name(stored.start_offset, suffix=LOG_SUFFIX): log_view(stored, segment, self._keys),
            base_offset_file_name(stored.start_offset, suffix=OFFSET_INDEX_SUFFIX): side_file_view(
                stored, OFFSET_INDEX_SUFFIX, self._keys
            ),
        }
        env = self._env.showing(self._directory.path, views)
        return DirectorySource(self._directory._replace(env=env), config=self._config)


class SurveyedSegment(NamedTuple):
    """What the batches of a segment have: offsets, both inclusive, -1 without any; epochs with their first offsets."""

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    epochs: tuple[EpochEntry, ...]


class CutPosition(NamedTuple):
    """Where a batch starts in a log, and its first offset."""

    position: int
    first_offset: int


def log_view(
    stored: StoredSegment, segment: RemoteSegment, keys: KeyRing, *, start: int = 0, end: int | None = None
) -> LogView:
    """Return the view of a segment's log, or of the bytes [start, end) of it."""
    place = stored.place(keys)
    return LogView(place, segment.size_in_bytes, segment.start_offset, segment.end_offset, start, end)


def side_file_view(stored: StoredSegment, suffix: str, keys: KeyRing) -> SideFileView:
    """Return the view of a segment's side file.  Args: suffix: as of a broker's file, or its name."""
    return SideFileView(stored.place(keys), suffix, stored.object_suffix(suffix))


def _foreign(path: str, reason: str) -> CorruptManifestError:
    return CorruptManifestError(f"{path}: {reason}", path=path, position=0, reason=reason)
