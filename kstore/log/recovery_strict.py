"""What strict mode refuses: damage or loss of what was durable, with the place of it. Layer 5.

Batches that are damaged are seen by their CRC. Batches that are gone are seen only by what still speaks of them: an
index in order whose last entry lies behind the end of its log, a producer snapshot behind the log end, files of a
segment that has no .log, a recovery point between two batches. A recovery point alone is no witness: brokers write its
checkpoint after they truncate.
"""

from __future__ import annotations

from collections.abc import Callable

from kstore._core import HeaderScan
from kstore.config import LogConfig
from kstore.errors import CorruptLogError
from kstore.log.env import Env, join_path
from kstore.log.filenames import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kstore.log.recovery_indexes import index_content, reaches_beyond
from kstore.log.recovery_plan import RecoveryPlan, SegmentPlan
from kstore.log.recovery_salvage import span_of_wrapper
from kstore.log.segment_records import scan_headers


def find_refusal(
    path: str,
    plan: RecoveryPlan,
    *,
    point: int,
    noted_point: int,
    cleaned_below: Callable[[], int],
    config: LogConfig,
    env: Env,
) -> CorruptLogError | None:
    """Return why strict mode can't go on: the first damage below `point`, the offset up to which all was durable.

    noted_point: what kstore itself noted of that, which is never beyond the truth, 0 if nothing. cleaned_below: tells
    the offset up to which a cleaner may have removed whole segments.

    Raises: StorageError.
    """
    durable = plan.older + [cut for cut in plan.cuts if cut.offset < point]
    if durable:
        damage = durable[0].damage
        return _refusal(damage.path, damage.reason, position=damage.position, offset=durable[0].offset, point=point)
    for slot, segment in enumerate(plan.segments):
        reason = ""
        if segment.next_offset < point and (segment.is_walked or slot + 1 == len(plan.segments)):
            reason = _lost(path, plan, slot, point=point, noted_point=noted_point, cleaned_below=cleaned_below, env=env)
        if reason:
            place = join_path(path, segment.name)
            return _refusal(place, reason, position=segment.end_position, offset=segment.next_offset, point=point)
    last = plan.segments[-1] if plan.segments else None
    if last is not None and last.is_recovered and last.base_offset < point < last.next_offset:
        return _gap_over(path, last, point=point, config=config, env=env)
    return None


def _lost(
    path: str,
    plan: RecoveryPlan,
    slot: int,
    *,
    point: int,
    noted_point: int,
    cleaned_below: Callable[[], int],
    env: Env,
) -> str:
    """Return why batches seem to be missing behind those of a segment, "" if nothing speaks of them."""
    segment = plan.segments[slot]
    if slot + 1 == len(plan.segments):
        reason = _lost_behind(path, segment, plan, env, least_beyond=point)
        return reason or _lost_at_end(plan, point, noted_point=noted_point)
    following = plan.segments[slot + 1]
    reason = _lost_between(segment, following, plan, cleaned_below)
    return reason or _lost_behind(path, segment, plan, env, least_beyond=following.base_offset)


def _lost_between(
    segment: SegmentPlan, following: SegmentPlan, plan: RecoveryPlan, cleaned_below: Callable[[], int]
) -> str:
    """Return which file speaks of a segment between two neighbours, or of what lay where the second is split off.

    Below the cleaner's checkpoint such a file is no evidence: the snapshot of a clean shutdown in the midst of a
    segment stays when the cleaner removes all around it.
    """
    if following.start_position:
        return f"offsets jump: expected {segment.next_offset}, found {following.base_offset}"
    bases = {one.base_offset for one in plan.segments}
    hole = range(segment.next_offset, following.base_offset)
    witnesses = {offset: "producer snapshot" for offset in plan.files.snapshot_offsets if offset not in bases}
    witnesses = {name.base_offset: f"{name.suffix} file" for name in plan.files.orphans} | witnesses
    missing = sorted(offset for offset in witnesses if offset in hole)
    if not missing or missing[-1] < cleaned_below():
        return ""
    return f"segment {missing[-1]} is missing: its {witnesses[missing[-1]]} is there"


def _lost_behind(path: str, segment: SegmentPlan, plan: RecoveryPlan, env: Env, *, least_beyond: int) -> str:
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
            least_beyond=least_beyond,
        ):
            return f"batches are missing: the last entry of {name} lies behind the end of the file"
    return ""


def _lost_at_end(plan: RecoveryPlan, point: int, *, noted_point: int) -> str:
    end = plan.log_end_offset
    if end < noted_point:
        return f"batches are missing: the log was flushed up to offset {noted_point}, and ends at {end}"
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
        found = scan_headers(file, scan, position=position, end_position=end_position).found
        if found is None:
            return None
        data = file.pread(found.size_in_bytes, position=found.position)
    base_offset = found.base_offset
    if not found.has_base_offset:
        base_offset = found.last_offset - span_of_wrapper(bytearray(data), config)
    before = max(scan.last_offset + 1, last.base_offset)
    if not before < point < base_offset:
        return None
    reason = f"offsets jump over the recovery point: expected {before}, found {base_offset}"
    return _refusal(log_path, reason, position=found.position, offset=before, point=point)


def _refusal(path: str, reason: str, *, position: int, offset: int, point: int) -> CorruptLogError:
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
