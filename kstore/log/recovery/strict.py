"""What mode strict refuses: damage to or loss of durable data, with its place.

Damaged batches are found by their CRC. Missing batches are found only by what still refers to them: an index in order
whose last entry lies after the end of its log, a producer snapshot above the log end, files of a segment that has no
.log, a recovery point between two batches. A recovery point on its own proves nothing: brokers write that checkpoint
after they truncate.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from kstore._core import HeaderScan
from kstore.errors import CorruptionError, CorruptLogError, UnsupportedError
from kstore.log.env import join_path
from kstore.log.files.names import LOG_START_OFFSET_CHECKPOINT, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kstore.log.recovery.context import RecoveryContext
from kstore.log.recovery.plan import RecoveryPlan, SegmentPlan, index_content, reaches_beyond
from kstore.log.segment.records import first_offset_in, scan_headers


def find_refusal(
    context: RecoveryContext, plan: RecoveryPlan, *, point: int, noted_point: int
) -> CorruptLogError | None:
    """Return the error with which mode strict refuses, for the first damage below `point`, or None.

    Args: point: the offset below which everything was durable; noted_point: the same as recorded by kstore itself,
        which is never too high; 0 if there is no record.
    Raises: StorageError.
    """
    return _Strict(context=context, plan=plan, point=point, noted_point=noted_point).refusal()


def refusal_of_log_start(context: RecoveryContext, *, log_end_offset: int) -> CorruptLogError:
    """Return the error for a log that holds batches and ends below its log start offset: recovery would remove all of
    them.
    """
    path = join_path(context.directory.root, LOG_START_OFFSET_CHECKPOINT)
    reason = above_the_end(context, log_end_offset=log_end_offset)
    return CorruptLogError(
        f"damage at position 0 of {path}: {reason}, so that all records of {context.path} would be removed",
        path=path,
        position=0,
        base_offset=log_end_offset,
        reason=reason,
        expected=f"a log start offset up to {log_end_offset}",
        found=context.log_start_offset,
    )


def above_the_end(context: RecoveryContext, *, log_end_offset: int) -> str:
    """Return what is wrong with the log start offset of a log that ends below it."""
    return (
        f"log start offset {context.log_start_offset} of {context.topic_partition} is above the log end offset "
        f"{log_end_offset}"
    )


@dataclass(frozen=True, kw_only=True)
class _Strict:
    """Compares one plan with what was durable."""

    context: RecoveryContext
    plan: RecoveryPlan
    point: int
    noted_point: int

    def refusal(self) -> CorruptLogError | None:
        segments = self.plan.segments
        durable = self.plan.older + [one for one in self.plan.truncations if one.offset < self.point]
        if durable:
            first = durable[0]
            return self._refused(
                first.damage.path,
                first.damage.reason,
                position=first.damage.position,
                offset=first.offset,
                end_offset=first.damage_end_offset,
            )
        for segment, following in zip_longest(segments, segments[1:]):
            if following is not None and following.base_offset <= self.context.log_start_offset:
                # A crash in the middle of a deletion may leave any of the files that it removes.
                continue
            if segment.next_offset < self.point and (segment.is_walked or following is None):
                reason = self._lost(segment, following)
                if reason:
                    place = self.context.path_of(segment.name)
                    return self._refused(
                        place,
                        reason,
                        position=segment.end_position,
                        offset=segment.next_offset,
                        end_offset=None if following is None else following.base_offset,
                    )
        last = segments[-1] if segments else None
        if last is not None and last.is_recovered and last.base_offset < self.point < last.next_offset:
            return self._gap_over(last)
        return None

    def _lost(self, segment: SegmentPlan, following: SegmentPlan | None) -> str:
        """Return why batches seem to be missing after those of a segment, "" if nothing refers to any."""
        if following is None:
            return self._lost_after(segment, least_beyond=self.point) or self._lost_at_end()
        reason = self._lost_between(segment, following)
        return reason or self._lost_after(segment, least_beyond=following.base_offset)

    def _lost_between(self, segment: SegmentPlan, following: SegmentPlan) -> str:
        """Return which file refers to a segment between two neighbours, or to data before a split-off one; "" if none
        does.

        Below the cleaner's checkpoint such a file is no evidence: the snapshot of a clean shutdown in the middle of a
        segment remains when the cleaner removes everything around it.
        """
        if following.is_split_off:
            return f"offsets jump: expected {segment.next_offset}, found {following.base_offset}"
        files = self.plan.files
        bases = {one.base_offset for one in self.plan.segments}
        hole = range(segment.next_offset, following.base_offset)
        witnesses = {offset: "producer snapshot" for offset in files.snapshot_offsets if offset not in bases}
        witnesses = {name.base_offset: f"{name.suffix} file" for name in files.orphans} | witnesses
        missing = sorted(offset for offset in witnesses if offset in hole)
        if not missing or missing[-1] < self.context.cleaned_below():
            return ""
        return f"segment {missing[-1]} is missing, but its {witnesses[missing[-1]]} exists"

    def _lost_after(self, segment: SegmentPlan, *, least_beyond: int) -> str:
        """Return which index refers to batches after the end of a segment, "" if none does."""
        files = next((one for one in self.plan.files.segments if one.base_offset == segment.base_offset), None)
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            name = None if files is None else files.index_names.get(suffix)
            if name is not None and reaches_beyond(
                index_content(self.context, name),
                suffix=suffix,
                base_offset=segment.base_offset,
                end_position=segment.end_position,
                next_offset=segment.next_offset,
                least_beyond=least_beyond,
            ):
                return f"batches are missing: the last entry of {name} points past the end of the file"
        return ""

    def _lost_at_end(self) -> str:
        end = self.plan.log_end_offset
        if end < self.noted_point:
            return f"batches are missing: the log was flushed up to offset {self.noted_point}, but ends at {end}"
        snapshots = [offset for offset in self.plan.files.snapshot_offsets if end < offset <= self.point]
        return f"batches are missing: there is a producer snapshot of offset {snapshots[-1]}" if snapshots else ""

    def _gap_over(self, last: SegmentPlan) -> CorruptLogError | None:
        """Return an error if the recovery point lies strictly inside a gap of offsets: a flush ends at the end of a
        batch.

        If a V0 or V1 wrapper cannot be decompressed, its first offset is unknown, and None is returned.
        """
        config, position = self.context.config, last.start_position
        log_path, end_position = self.context.path_of(last.log_name), position + last.end_position
        scan = HeaderScan(
            position=position,
            end_position=end_position,
            base_offset=last.base_offset,
            max_batch_bytes=config.max_batch_bytes,
            path=log_path,
            stop_offset=self.point,
        )
        with self.context.env.open_read(log_path) as file:
            found = scan_headers(file, scan, position=position, end_position=end_position).found
            if found is None:
                return None
            data = file.pread(found.size_in_bytes, position=found.position)
        try:
            base_offset = first_offset_in(data, found, path=log_path, config=config)
        except (CorruptionError, UnsupportedError):
            return None
        before = max(scan.last_offset + 1, last.base_offset)
        if not before < self.point < base_offset:
            return None
        reason = f"offsets jump over the recovery point: expected {before}, found {base_offset}"
        return self._refused(log_path, reason, position=found.position, offset=before, end_offset=base_offset)

    def _refused(
        self, path: str, reason: str, *, position: int, offset: int, end_offset: int | None
    ) -> CorruptLogError:
        if end_offset is None and offset < self.point:
            end_offset = self.point
        if end_offset is None:
            lost = f"offsets from {offset} on cannot be read"
        else:
            lost = (
                f"offsets {offset} to {end_offset - 1} cannot be read" if end_offset > offset else "no offset is lost"
            )
        error = CorruptLogError(
            f"damage at position {position} of {path}, at offset {offset} of a log that was durable up to offset "
            f"{self.point}: {reason}; {lost}",
            path=path,
            position=position,
            base_offset=offset,
            reason=reason,
            expected=f"whole batches up to offset {self.point}",
            found=reason,
        )
        error.lost_end_offset = end_offset
        return error
