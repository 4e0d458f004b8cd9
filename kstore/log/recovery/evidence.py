"""Evidence of lost records: what the segments of a partition hold, compared with the files beside them.

A damaged batch shows itself. Records that are gone as a whole are found only by what still refers to them: an index in
order whose last entry lies after the end of its log, a producer snapshot or an index without its .log, the durable
point, a checkpoint of the root, a leader epoch. `verify`, `recover`, `ls` and mode strict all ask find_losses.

When each is evidence: the durable point never leads the log. A broker writes the recovery point and the high watermark
after it truncates, and a power cut may take what the high watermark covered, so after a crash an offset of theirs above
the log end only makes a loss likely; after a clean shutdown the two prove one if they agree. One file alone may be a
stray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from kstore._core import HeaderScan
from kstore.env import Env, FileKind, join_path
from kstore.errors import CorruptCheckpointError, CorruptionError, StorageError, UnsupportedError
from kstore.log.damage import SuspectedLoss
from kstore.log.files.checkpoints import EpochEntry, checkpoints_of, read_leader_epoch_checkpoint
from kstore.log.files.durable_point import DurablePointFile
from kstore.log.files.names import (
    CLUSTER_METADATA_TOPIC,
    DELETED_STATE,
    DURABLE_POINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    TIME_INDEX_SUFFIX,
    SegmentName,
    base_offset_file_name,
    parse_segment_name,
)
from kstore.log.files.records import first_offset_in, scan_headers
from kstore.log.files.root_files import read_clean_shutdown
from kstore.log.recovery.context import RecoveryContext
from kstore.log.recovery.files import FILE_STATES, SegmentFiles, list_partition
from kstore.log.recovery.plan import index_content, reaches_beyond
from kstore.types import TopicPartition, parse_partition_directory_name

_CHECKPOINTS_OF_ENDS = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)


class HeldSegment(NamedTuple):
    """What a segment holds: the offset after its last batch, and the position after that batch in its .log.

    start_position: of its first batch, where it is split off from the .log of another segment. is_read: whether its
    end was read, so that next_offset is known; is_walked: whether all of its batches were. is_damaged: then what
    follows its last whole batch is damage, not loss.
    """

    files: SegmentFiles
    base_offset: int
    next_offset: int
    end_position: int
    start_position: int = 0
    is_read: bool = True
    is_walked: bool = True
    is_damaged: bool = False
    is_split_off: bool = False


class Marks(NamedTuple):
    """The offsets that a partition had reached: by its durable point (0 for none), and by the root's checkpoints (None
    for no entry). is_clean: the root was shut down cleanly, so that none of them should be above the log end.
    """

    noted_point: int = 0
    recovery_point: int | None = None
    high_watermark: int | None = None
    is_clean: bool = False

    @property
    def point(self) -> int:
        """The offset below which all records were durable."""
        return max(self.recovery_point or 0, self.noted_point)


def high_watermark_of(context: RecoveryContext) -> int | None:
    """Return the high watermark of a partition in its root's checkpoint, None without one."""
    return _offsets(context.directory.root, HIGH_WATERMARK_CHECKPOINT, context.env).get(context.topic_partition)


def _offsets(root: str, name: str, env: Env) -> Mapping[TopicPartition, int]:
    """Return the offsets in a checkpoint, none if it is missing or malformed: others report that."""
    try:
        return checkpoints_of(env).offsets(join_path(root, name)) or {}
    except CorruptCheckpointError:
        return {}


def find_losses(
    context: RecoveryContext,
    segments: Sequence[HeldSegment],
    *,
    orphans: Sequence[SegmentName],
    snapshot_offsets: Sequence[int],
    marks: Marks,
) -> list[SuspectedLoss]:
    """Return the losses that the files of a partition and of its root show, by offset.

    Args: segments: by base offset; orphans: index files without a .log; snapshot_offsets: of the producer snapshots.
    Raises: StorageError.
    Cost: reads the indexes of segments with a gap after them; of two segments around a gap, the headers.
    """
    held = _HeldLog(context, segments, orphans, snapshot_offsets, marks)
    return sorted(held.losses(), key=lambda loss: loss.first_offset)


class RootMarks(NamedTuple):
    """What a root says of its partitions: whether it was shut down cleanly, and the offsets in two checkpoints."""

    is_clean: bool
    recovery_points: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]


def marks_of_root(root: str, env: Env) -> RootMarks:
    """Read what a root says of its partitions; a malformed checkpoint counts as missing.  Raises: StorageError."""
    return RootMarks(
        read_clean_shutdown(root, env) is not None,
        _offsets(root, RECOVERY_POINT_CHECKPOINT, env),
        _offsets(root, HIGH_WATERMARK_CHECKPOINT, env),
    )


class SegmentEnd(NamedTuple):
    """What a reader found of a segment: the offset after its last batch, None if it did not look; the position after
    that batch; whether there is damage in the segment.
    """

    base_offset: int
    next_offset: int | None
    end_position: int
    is_damaged: bool


def losses_beside(
    context: RecoveryContext, ends: Sequence[SegmentEnd], of_root: RootMarks, *, is_live: Callable[[], bool]
) -> list[SuspectedLoss]:
    """Return what find_losses says of a log that was read, and not loaded for writing.

    Args: is_live: returns whether a writer may have the log open: then nothing is said of its end. It is called before
        the directory is listed, and only if something is amiss.
    Returns: nothing if the directory has other segments by now.
    Raises: StorageError.
    Cost: a listing, and a read of the leader epochs and of the durable point; if something is amiss, a second listing,
        a stat of each side file and then as find_losses.
    """
    if is_all_there(context, ends, of_root, names=context.env.listdir(context.path)):
        return []
    may_grow = is_live()
    env, path = context.env, context.path
    listed = list_partition(path, env=env, end_offset_of=lambda _name, _base_offset: None)
    if [files.base_offset for files in listed.segments] != [end.base_offset for end in ends]:
        return []
    if may_grow and not ends:
        return []
    segments = [
        HeldSegment(
            files,
            end.base_offset,
            end.base_offset if end.next_offset is None else end.next_offset,
            end.end_position,
            is_read=end.next_offset is not None and not (may_grow and files is listed.segments[-1]),
            is_damaged=end.is_damaged,
        )
        for files, end in zip(listed.segments, ends, strict=True)
    ]
    marks = _marks_of(context, of_root, is_noted=True)
    return find_losses(context, segments, orphans=listed.orphans, snapshot_offsets=listed.snapshot_offsets, marks=marks)


def _marks_of(context: RecoveryContext, of_root: RootMarks, *, is_noted: bool) -> Marks:
    """Return the marks of a partition. is_noted: whether there may be a durable point."""
    partition, is_clean = context.topic_partition, of_root.is_clean
    noted = DurablePointFile(context.path, context.env).read() if is_noted and not is_clean else None
    return Marks(
        0 if noted is None else noted.offset,
        of_root.recovery_points.get(partition),
        of_root.high_watermarks.get(partition),
        is_clean,
    )


def is_all_there(
    context: RecoveryContext, ends: Sequence[SegmentEnd], of_root: RootMarks, *, names: Sequence[str]
) -> bool:
    """Whether no gap is between segments and no file refers to records that are not in them: then nothing is lost.

    False also for what it does not look into: damage, and files of an interrupted change.
    Args: names: of the files in the directory.
    Cost: a read of the leader epochs, and of the durable point if there is one.
    """
    offsets = [end.next_offset for end in ends if end.next_offset is not None and not end.is_damaged]
    if not offsets or len(offsets) < len(ends) or offsets[-1] < context.log_start_offset:
        return False
    if any(offset < following.base_offset for offset, following in zip(offsets, ends[1:], strict=False)):
        return False
    bases, log_end_offset, log_count = {end.base_offset for end in ends}, offsets[-1], 0
    for name in names:
        segment_name = parse_segment_name(name)
        if segment_name is None:
            if name.endswith(FILE_STATES):
                return False
        elif segment_name.suffix == PRODUCER_SNAPSHOT_SUFFIX:
            if segment_name.base_offset > log_end_offset:
                return False
        elif segment_name.base_offset not in bases:
            return False
        else:
            log_count += segment_name.suffix == LOG_SUFFIX
    marks = _marks_of(context, of_root, is_noted=DURABLE_POINT in names)
    if log_count < len(ends) or max(marks.point, marks.high_watermark or 0) > log_end_offset:
        return False
    # A flush ends at the end of a batch, which takes a walk to find.
    if ends[-1].base_offset < marks.point < log_end_offset:
        return False
    epochs = _epochs_of(context) if LEADER_EPOCH_CHECKPOINT in names else []
    return all(entry.start_offset <= log_end_offset for entry in epochs)


def _epochs_of(context: RecoveryContext) -> list[EpochEntry]:
    try:
        return read_leader_epoch_checkpoint(context.path_of(LEADER_EPOCH_CHECKPOINT), context.env) or []
    except (CorruptCheckpointError, StorageError):
        # Something else in its place counts as missing.
        return []


class _Witness(NamedTuple):
    """A file that refers to records up to end_offset, which is None if it does not say."""

    path: str
    end_offset: int | None
    is_proof: bool
    text: str


@dataclass(frozen=True)
class _HeldLog:
    """The arguments of find_losses."""

    context: RecoveryContext
    segments: Sequence[HeldSegment]
    orphans: Sequence[SegmentName]
    snapshot_offsets: Sequence[int]
    marks: Marks

    def losses(self) -> Iterator[SuspectedLoss]:
        context = self.context
        if not self.segments:
            yield from self._lost_wholly()
            return
        for segment, following in pairwise(self.segments):
            # A crash in the middle of a deletion may leave any of the files that it removes.
            if following.base_offset > context.log_start_offset and segment.is_read and not segment.is_damaged:
                yield from self._lost_between(segment, following)
        last = self.segments[-1]
        if last.is_damaged:
            # What a damaged batch held, or how far it reached, is not known; what was proven to be there is.
            yield from (loss for loss in self._lost_at_end(last) if loss.is_proven and last.is_read)
            return
        if not last.is_read:
            return
        holds_batches = any(segment.end_position > segment.start_position for segment in self.segments)
        if last.next_offset < context.log_start_offset and holds_batches:
            path = join_path(context.directory.root, LOG_START_OFFSET_CHECKPOINT)
            reason = (
                f"log start offset {context.log_start_offset} of {context.topic_partition} is above the log end offset "
                f"{last.next_offset}"
            )
            yield self._loss(last, _Witness(path, context.log_start_offset, is_proof=True, text=reason))
        # What was below the log start was deleted.
        yield from self._lost_at_end(last._replace(next_offset=max(last.next_offset, context.log_start_offset)))
        if last.is_walked and last.base_offset < self.marks.point < last.next_offset:
            yield from self._gap_over_point(last)

    def _lost_wholly(self) -> Iterator[SuspectedLoss]:
        """Yield the loss of all segments, unless a deletion was interrupted, which leaves renamed files."""
        context = self.context
        if any(name.endswith(DELETED_STATE) for name in context.env.listdir(context.path)):
            return
        start = context.log_start_offset
        witnesses = [mark for mark in self._marks_above(start) if mark.end_offset is not None]
        if not witnesses:
            return
        proofs = [witness for witness in witnesses if witness.is_proof or witness.end_offset == self.marks.point]
        chosen = max(proofs or witnesses, key=lambda one: one.end_offset or 0)
        yield SuspectedLoss(
            context.topic_partition,
            start,
            None if chosen.end_offset is None else chosen.end_offset - 1,
            chosen.path,
            is_proven=bool(proofs),
            evidence=f"there is no .log, but {chosen.text}",
            log_path=context.path_of(base_offset_file_name(start, suffix=LOG_SUFFIX)),
            position=0,
        )

    def _lost_between(self, segment: HeldSegment, following: HeldSegment) -> Iterator[SuspectedLoss]:
        """Yield what is missing between two neighbours.

        Below the cleaner's checkpoint a file is no evidence: the snapshot of a clean shutdown in the middle of a
        segment remains when the cleaner removes everything around it.
        """
        hole = range(segment.next_offset, following.base_offset)
        if not hole:
            return
        is_durable = segment.next_offset < self.marks.point
        witness = self._witness_between(segment, following, hole)
        if witness is not None:
            yield self._loss(segment, witness._replace(is_proof=is_durable), end_offset=following.base_offset)
            return
        is_cleaned = hole[-1] < self.context.cleaned_below()
        if is_cleaned or self.context.topic_partition.topic == CLUSTER_METADATA_TOPIC:
            return
        if self._has_all_records(segment) and self._has_all_records(following):
            text = (
                f"segment {segment.base_offset} ends at offset {hole[0]} and the next one starts at {hole[-1] + 1}, "
                "though no offset is missing inside of them, as it is in a compacted topic"
            )
            log_path = self._log_path(segment)
            yield self._loss(
                segment, _Witness(log_path, None, is_proof=False, text=text), end_offset=following.base_offset
            )

    def _witness_between(self, segment: HeldSegment, following: HeldSegment, hole: range) -> _Witness | None:
        context = self.context
        if following.is_split_off:
            text = f"offsets jump: expected {segment.next_offset}, found {following.base_offset}"
            return _Witness(self._log_path(segment), None, is_proof=True, text=text)
        bases = {listed.base_offset for listed in self.segments}
        names = {offset: PRODUCER_SNAPSHOT_SUFFIX for offset in self.snapshot_offsets if offset not in bases}
        names = {name.base_offset: name.suffix for name in self.orphans} | names
        missing = max((offset for offset in names if offset in hole), default=None)
        if missing is not None and missing >= context.cleaned_below():
            suffix = names[missing]
            what = "producer snapshot" if suffix == PRODUCER_SNAPSHOT_SUFFIX else f"{suffix} file"
            path = context.path_of(base_offset_file_name(missing, suffix=suffix))
            return _Witness(path, None, is_proof=True, text=f"segment {missing} is missing, but its {what} exists")
        return self._index_beyond(segment, least_beyond=following.base_offset)

    def _index_beyond(self, segment: HeldSegment, *, least_beyond: int) -> _Witness | None:
        """Return the index that refers to batches after the end of a segment, None if none does."""
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            name = segment.files.index_names.get(suffix)
            if segment.files.base_offset != segment.base_offset:
                continue
            if name is not None and reaches_beyond(
                index_content(self.context, name),
                suffix=suffix,
                base_offset=segment.base_offset,
                end_position=segment.end_position,
                next_offset=segment.next_offset,
                least_beyond=least_beyond,
            ):
                text = f"batches are missing: the last entry of {name} points past the end of the file"
                return _Witness(self.context.path_of(name), None, is_proof=True, text=text)
        return None

    def _lost_at_end(self, last: HeldSegment) -> Iterator[SuspectedLoss]:
        """Yield what is missing after the last batch: one loss, by the files that prove it, or make it likely."""
        witnesses = list(self._witnesses_of_end(last))
        proofs = [witness for witness in witnesses if witness.is_proof]
        chosen = proofs or witnesses
        if not chosen:
            return
        ends = [choice.end_offset for choice in chosen if choice.end_offset is not None]
        if self.marks.point > last.next_offset:
            ends.append(self.marks.point)
        text = " and ".join(choice.text for choice in chosen)
        witness = _Witness(chosen[0].path, None, is_proof=bool(proofs), text=text)
        yield self._loss(last, witness, end_offset=max(ends, default=None))

    def _witnesses_of_end(self, last: HeldSegment) -> Iterator[_Witness]:
        context, marks, end = self.context, self.marks, last.next_offset
        if end < marks.point:
            beyond = self._index_beyond(last, least_beyond=marks.point)
            if beyond is not None:
                yield beyond
        yield from self._marks_above(end)
        above = [offset for offset in self.snapshot_offsets if offset > end]
        if above:
            durable = [offset for offset in above if offset <= marks.point]
            snapshot = max(durable or above)
            text = f"batches are missing: there is a producer snapshot of offset {snapshot}"
            path = context.path_of(base_offset_file_name(snapshot, suffix=PRODUCER_SNAPSHOT_SUFFIX))
            yield _Witness(path, snapshot, is_proof=bool(durable), text=text)
        orphan = max((name for name in self.orphans if name.base_offset >= end), default=None)
        if orphan is not None:
            base_offset, suffix = orphan
            text = f"segment {base_offset} is missing, but its {suffix} file exists"
            path = context.path_of(base_offset_file_name(base_offset, suffix=suffix))
            yield _Witness(path, None, is_proof=base_offset < marks.point, text=text)
        epoch = max((entry for entry in _epochs_of(self.context) if entry.start_offset > end), default=None)
        if epoch is not None:
            text = f"leader epoch {epoch.epoch} starts at offset {epoch.start_offset}, but the log ends at {end}"
            yield _Witness(context.path_of(LEADER_EPOCH_CHECKPOINT), epoch.start_offset, is_proof=False, text=text)

    def _marks_above(self, end: int) -> Iterator[_Witness]:
        context, marks = self.context, self.marks
        if marks.noted_point > end:
            text = f"batches are missing: the log was flushed up to offset {marks.noted_point}, but ends at {end}"
            yield _Witness(context.path_of(DURABLE_POINT), marks.noted_point, is_proof=True, text=text)
        above = [
            _Witness(
                join_path(context.directory.root, name),
                offset,
                is_proof=False,
                text=f"the {what} was {offset}, but the log ends at {end}",
            )
            for name, what, offset in (
                (RECOVERY_POINT_CHECKPOINT, "recovery point", marks.recovery_point),
                (HIGH_WATERMARK_CHECKPOINT, "high watermark", marks.high_watermark),
            )
            if offset is not None and offset > end
        ]
        for witness in above:
            yield witness._replace(is_proof=marks.is_clean and len(above) > 1)

    def _gap_over_point(self, last: HeldSegment) -> Iterator[SuspectedLoss]:
        """Yield a loss if the recovery point lies strictly inside a gap of offsets: a flush ends at the end of a batch.

        If a V0 or V1 wrapper cannot be decompressed, its first offset is unknown, and nothing is yielded.
        """
        config, position, point = self.context.config, last.start_position, self.marks.point
        log_path, end_position = self._log_path(last), last.end_position
        scan = HeaderScan(
            position=position,
            end_position=end_position,
            base_offset=last.base_offset,
            max_batch_bytes=config.max_batch_bytes,
            path=log_path,
            stop_offset=point,
        )
        with self.context.env.open_read(log_path) as file:
            header = scan_headers(file, scan, position=position, end_position=end_position).found
            if header is None:
                return
            data = file.pread(header.size_in_bytes, position=header.position)
        try:
            base_offset = first_offset_in(data, header, path=log_path, config=config)
        except (CorruptionError, UnsupportedError):
            return
        before = max(scan.last_offset + 1, last.base_offset)
        if before < point < base_offset:
            text = f"offsets jump over the recovery point: expected {before}, found {base_offset}"
            path = join_path(self.context.directory.root, RECOVERY_POINT_CHECKPOINT)
            partition = self.context.topic_partition
            yield SuspectedLoss(
                partition,
                before,
                base_offset - 1,
                path,
                is_proven=True,
                evidence=text,
                log_path=log_path,
                position=header.position,
            )

    def _has_all_records(self, segment: HeldSegment) -> bool:
        """Whether a segment has as many records as offsets, as no cleaner leaves it; an empty one tells nothing.

        The records in a compressed wrapper of magic 0 or 1 are not counted: False then.
        """
        log_path, position = self._log_path(segment), segment.start_position
        scan = HeaderScan(
            position=position,
            end_position=segment.end_position,
            base_offset=segment.base_offset,
            max_batch_bytes=self.context.config.max_batch_bytes,
            path=log_path,
        )
        with self.context.env.open_read(log_path) as file:
            scan_headers(file, scan, position=position, end_position=segment.end_position)
        return bool(scan.record_count == scan.last_offset + 1 - segment.base_offset > 0)

    def _log_path(self, segment: HeldSegment) -> str:
        return self.context.path_of(segment.files.log_name)

    def _loss(self, segment: HeldSegment, witness: _Witness, *, end_offset: int | None = None) -> SuspectedLoss:
        """Return the loss of what is missing after a segment, up to end_offset or what the witness says."""
        end = witness.end_offset if end_offset is None else end_offset
        return SuspectedLoss(
            self.context.topic_partition,
            segment.next_offset,
            None if end is None else end - 1,
            witness.path,
            witness.is_proof,
            witness.text,
            self._log_path(segment),
            segment.end_position,
        )


def is_of_log_start(loss: SuspectedLoss) -> bool:
    """Whether a loss is a log start offset above the log end: the records of the log are there, but not served."""
    return loss.path.endswith(LOG_START_OFFSET_CHECKPOINT)


def losses_of_root(
    root: str, env: Env, *, is_wanted: Callable[[TopicPartition], bool] = lambda _: True
) -> list[SuspectedLoss]:
    """Return what is lost with the partitions of a root that have no directory: those that only checkpoints know, and
    those whose directory is a link to nothing.

    Args: is_wanted: of which partitions; the others are not looked at.
    Raises: StorageError of the root itself.
    """
    names = env.listdir(root)
    # A partition that a broker deletes, or replaces, has another name for a while: topic-0.<id>-delete.
    present = {*names, *(name.rpartition(".")[0] for name in names)}
    starts = _offsets(root, LOG_START_OFFSET_CHECKPOINT, env)
    losses: dict[TopicPartition, SuspectedLoss] = {}
    for checkpoint in (HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        for partition, offset in _offsets(root, checkpoint, env).items():
            start, path = starts.get(partition, 0), join_path(root, str(partition))
            if offset <= start or str(partition) in present or not is_wanted(partition):
                continue
            losses[partition] = SuspectedLoss(
                partition,
                start,
                offset - 1,
                join_path(root, checkpoint),
                # A copy of some partitions of a root may come with the checkpoints of all.
                is_proven=False,
                evidence=f"{checkpoint} has offset {offset} of a partition that has no directory",
                log_path=path,
                position=0,
            )
    for name in names:
        linked, path = parse_partition_directory_name(name), join_path(root, name)
        if linked is None or not is_wanted(linked) or not _leads_nowhere(path, env):
            continue
        offset = max(_offsets(root, name, env).get(linked, 0) for name in _CHECKPOINTS_OF_ENDS)
        losses[linked] = SuspectedLoss(
            linked,
            starts.get(linked, 0),
            offset - 1 if offset else None,
            path,
            is_proven=True,
            evidence="the directory of the partition is a link to nothing",
            log_path=path,
            position=0,
        )
    return [losses[partition] for partition in sorted(losses)]


def _leads_nowhere(path: str, env: Env) -> bool:
    """Whether a path is a link to nothing. What can't be looked at says so where it is opened."""
    try:
        status = env.stat(path, follow_symlinks=False)
        return status is not None and status.kind is FileKind.OTHER and env.stat(path) is None
    except StorageError:
        return False
