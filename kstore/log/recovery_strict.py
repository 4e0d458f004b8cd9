"""What strict mode refuses: damage or loss of what was durable, with the place of it. Layer 5.

Batches that are damaged are seen by their CRC. Batches that are gone are seen only by what still speaks of them: an
index in order whose last entry lies behind the end of its log, a producer snapshot behind the log end, files of a
segment that has no .log, a recovery point between two batches. A recovery point alone is no witness: brokers write its
checkpoint after they truncate.
"""

from __future__ import annotations

from itertools import pairwise

from kstore._core import HeaderScan
from kstore.config import LogConfig
from kstore.errors import CorruptLogError
from kstore.log.env import Env, join_path
from kstore.log.filenames import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kstore.log.recovery_indexes import index_content, reaches_beyond
from kstore.log.recovery_plan import RecoveryPlan, SegmentPlan
from kstore.log.segment_tail import HEADER_CHUNK_BYTES


def find_refusal(path: str, plan: RecoveryPlan, *, point: int, config: LogConfig, env: Env) -> CorruptLogError | None:
    """Return why strict mode can't go on: the first damage below `point`, the offset up to which all was durable.

    Raises: StorageError.
    """
    for cut in plan.older + [cut for cut in plan.cuts if cut.offset < point]:
        damage = cut.damage
        return _refusal(damage.path, damage.position, cut.offset, damage.reason, point=point)
    for segment, following in pairwise(plan.segments):
        if segment.producers is not None or segment.epochs is not None:
            reason = _lost_between(segment, following, plan)
            if reason and segment.next_offset < point:
                place = join_path(path, segment.name)
                return _refusal(place, segment.end_position, segment.next_offset, reason, point=point)
    for segment in plan.segments:
        if segment.next_offset < point:
            reason = _lost_behind(path, segment, plan, env)
            if not reason and segment is plan.segments[-1]:
                reason = _lost_at_end(plan, point)
            if reason:
                place = join_path(path, segment.name)
                return _refusal(place, segment.end_position, segment.next_offset, reason, point=point)
    last = plan.segments[-1] if plan.segments else None
    if last is not None and last.is_recovered and last.base_offset < point < last.next_offset:
        return _gap_over(path, last, point=point, config=config, env=env)
    return None


def _lost_between(segment: SegmentPlan, following: SegmentPlan, plan: RecoveryPlan) -> str:
    """Return which file speaks of a segment between two neighbours."""
    bases = {one.base_offset for one in plan.segments}
    hole = range(segment.next_offset, following.base_offset)
    for offset in plan.files.snapshot_offsets:
        if offset in hole and offset not in bases:
            return f"segment {offset} is missing: its producer snapshot is there"
    for name in plan.files.orphans:
        if name.base_offset in hole:
            return f"segment {name.base_offset} is missing: its {name.suffix} file is there"
    return ""


def _lost_behind(path: str, segment: SegmentPlan, plan: RecoveryPlan, env: Env) -> str:
    """Return which index speaks of batches behind the end of a segment."""
    files = next((one for one in plan.files.segments if one.base_offset == segment.base_offset), None)
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        name = None if files is None else files.index_names.get(suffix)
        if name is not None and reaches_beyond(
            index_content(join_path(path, name), env),
            suffix=suffix,
            base_offset=segment.base_offset,
            end_position=segment.end_position,
            next_offset=segment.next_offset,
        ):
            return f"batches are missing: the last entry of {name} lies behind the end of the file"
    return ""


def _lost_at_end(plan: RecoveryPlan, point: int) -> str:
    end = plan.log_end_offset
    behind = [offset for offset in plan.files.snapshot_offsets if end < offset <= point]
    return f"batches are missing: there is a producer snapshot of offset {behind[-1]}" if behind else ""


def _gap_over(path: str, last: SegmentPlan, *, point: int, config: LogConfig, env: Env) -> CorruptLogError | None:
    """Return an error if the point lies strictly inside a gap of offsets: a log is flushed up to the end of a batch."""
    log_path, position = join_path(path, last.log_name), last.start_position
    end_position = position + last.end_position
    scan = HeaderScan(
        position=position,
        end_position=end_position,
        base_offset=last.base_offset,
        max_batch_bytes=config.max_batch_bytes,
        path=log_path,
        stop_offset=point,
    )
    with env.open_read(log_path) as file:
        while scan.status == "more":
            chunk = file.pread(min(HEADER_CHUNK_BYTES, end_position - position), position=position)
            position = scan.feed(chunk, position)
    found = scan.found
    if found is None or not found.has_base_offset:
        return None
    before = max(scan.last_offset + 1, last.base_offset)
    if not before < point < found.base_offset:
        return None
    reason = f"offsets jump over the recovery point: expected {before}, found {found.base_offset}"
    return _refusal(log_path, found.position, before, reason, point=point)


def _refusal(path: str, position: int, offset: int, reason: str, *, point: int) -> CorruptLogError:
    return CorruptLogError(
        f"damage at position {position} of {path}, at offset {offset} of a log that was durable up to offset {point}: "
        f"{reason}",
        path=path,
        position=position,
        base_offset=offset,
        reason=reason,
        expected=f"whole batches up to offset {point}",
        found=reason,
    )
