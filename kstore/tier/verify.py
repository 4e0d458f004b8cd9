"""verify_tier: the objects of a partition in a tier, checked against manifests, events and batches.

The bytes of its log are checked with the log; here is what a reader of the log does not look at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kstore.env import Env
from kstore.env.tiered import TieredEnv
from kstore.errors import CorruptionError
from kstore.log.damage import Damage
from kstore.log.files.checkpoints import EpochEntry
from kstore.log.files.names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    SEGMENT_INDEX_SUFFIXES,
    PartitionDirectory,
)
from kstore.tier.files import Resolved, TierFiles
from kstore.tier.lineage import RemoteSegment
from kstore.tier.listing import StoredSegment
from kstore.tier.objects import INDEXES_SUFFIX, MANIFEST_SUFFIX, manifest_of
from kstore.tier.stored import SegmentReader, side_file_view

_SIDE_FILES = (*SEGMENT_INDEX_SUFFIXES, PRODUCER_SNAPSHOT_SUFFIX, LEADER_EPOCH_CHECKPOINT)


class Orphan(NamedTuple):
    """Objects of one segment that the log does not need, their bytes, and why."""

    stem: str
    size_in_bytes: int
    reason: str


class TierReport(NamedTuple):
    """What is wrong with the objects of a partition's segments, and those that nothing needs."""

    damage: list[Damage]
    orphans: list[Orphan]


def verify_tier(directory: PartitionDirectory) -> TierReport:
    """Check the objects of a partition: sizes against manifests, the tags of side files; offsets, epochs and the
    largest timestamp of batches against manifests and events; and list objects that no reader of the log needs.

    Raises: StorageError; TierKeyError where a key is missing.
    Cost: a manifest, the side files and a header walk for each segment.
    """
    files = _files_of(directory.env)
    resolved = None if files is None else files.resolve(directory.path)
    if files is None or resolved is None:
        return TierReport([], [])
    stored = {one.segment_id: one for one in files.listing().of(resolved.partition)}
    reader = files.reader(directory.path, resolved)
    used = {piece.segment.segment_id for piece in resolved.pieces if piece.segment is not None}
    damage: list[Damage] = []
    for segment in resolved.segments:
        objects = stored.get(segment.segment_id)
        if objects is not None and objects.is_finished:
            check = _SegmentCheck(files, resolved, reader, objects, segment)
            damage += check.objects()
            if segment.segment_id in used:
                damage += check.batches()
    return TierReport(damage, list(_orphans(files, resolved, stored.values(), used)))


def _files_of(env: Env) -> TierFiles | None:
    return env.shown if isinstance(env, TieredEnv) and isinstance(env.shown, TierFiles) else None


class _SegmentCheck:
    """Checks one finished segment."""

    def __init__(
        self,
        files: TierFiles,
        resolved: Resolved,
        reader: SegmentReader,
        stored: StoredSegment,
        segment: RemoteSegment,
    ) -> None:
        self._files = files
        self._resolved = resolved
        self._reader = reader
        self._stored = stored
        self._segment = segment

    def objects(self) -> Iterator[Damage]:
        """Yield what is wrong with the sizes of objects, with the manifest and with side files."""
        stored, env = self._stored, self._files.env
        place = stored.place(self._files.keys)
        expected = self._segment.size_in_bytes
        if place.has_manifest:
            path = place.path(MANIFEST_SUFFIX)
            try:
                manifest = manifest_of(place, env)
            except CorruptionError as error:
                yield Damage(path, 0, self._size(MANIFEST_SUFFIX), error.reason)
                return
            expected = manifest.chunks.stored_bytes
            yield from self._against(path, manifest.chunks.file_bytes)
            ends = [one.position + one.size for one in (manifest.indexes or {}).values()]
            if manifest.indexes is not None and self._size(INDEXES_SUFFIX) != max(ends, default=0):
                yield self._wrong_size(INDEXES_SUFFIX, expected=max(ends, default=0))
        if self._size(LOG_SUFFIX) != expected:
            yield self._wrong_size(LOG_SUFFIX, expected=expected)
        for suffix in _SIDE_FILES:
            if stored.has_side_file(suffix):
                try:
                    side_file_view(stored, suffix, self._files.keys).read(env, stored.stem + suffix)
                except CorruptionError as error:
                    yield Damage(stored.stem + suffix, 0, 0, error.reason)

    def batches(self) -> Iterator[Damage]:
        """Yield where the batches do not have the offsets, epochs and largest timestamp of the metadata."""
        segment = self._segment
        try:
            found = self._reader.survey(self._stored, segment)
        except CorruptionError:
            # It is reported with the log.
            return
        epochs = [entry for entry in segment.epochs if entry.start_offset <= segment.end_offset]
        for what, expected, is_found in (
            ("offsets", (segment.start_offset, segment.end_offset), (found.first_offset, found.last_offset)),
            ("leader epochs", _texts(epochs), _texts(found.epochs)),
            ("largest timestamp", segment.max_timestamp_ms, found.max_timestamp_ms),
        ):
            if expected != is_found:
                reason = f"{what}: expected {expected} by the metadata, found {is_found} in the batches"
                yield Damage(self._stored.stem + LOG_SUFFIX, 0, segment.size_in_bytes, reason)

    def _against(self, path: str, file_bytes: int) -> Iterator[Damage]:
        """Yield where a manifest differs from the events of the metadata topic."""
        segment, written = self._segment, self._reader.describe(self._stored)
        if self._resolved.events is None or not isinstance(written, RemoteSegment):
            return
        known = segment._replace(custom_metadata=None)
        if written != known or file_bytes != segment.size_in_bytes:
            yield Damage(
                path, 0, self._size(MANIFEST_SUFFIX), f"expected {known} by the metadata topic, found {written}"
            )

    def _wrong_size(self, suffix: str, *, expected: int) -> Damage:
        found = self._size(suffix)
        reason = f"expected an object of {expected} bytes by the manifest, found {found}"
        return Damage(self._stored.stem + suffix, min(expected, found), abs(expected - found), reason)

    def _size(self, suffix: str) -> int:
        status = self._files.env.remote.stat(self._stored.stem + suffix)
        return 0 if status is None else status.size_in_bytes


def _orphans(files: TierFiles, resolved: Resolved, stored: Iterable[StoredSegment], used: set[str]) -> Iterator[Orphan]:
    remote = files.env.remote
    for one in stored:
        if one.segment_id in used:
            continue
        state = None if resolved.events is None else resolved.events.state_of(one.segment_id)
        if not one.is_finished:
            reason = "an upload that has not finished"
        elif resolved.events is not None and state is None:
            reason = "not in the metadata topic"
        elif state is not None and state.name != "COPY_SEGMENT_FINISHED":
            reason = f"its state is {state.name}"
        elif resolved.local_start is not None and one.start_offset >= resolved.local_start:
            continue
        else:
            reason = "not needed by the log: of another lineage, below its start, or uploaded twice"
        sizes = (remote.stat(one.stem + suffix) for suffix in one.suffixes)
        yield Orphan(one.stem, sum(size.size_in_bytes for size in sizes if size is not None), reason)


def _texts(epochs: Sequence[EpochEntry]) -> list[str]:
    return [f"{epoch} from {start}" for epoch, start in epochs]
