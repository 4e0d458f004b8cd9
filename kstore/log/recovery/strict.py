"""What mode strict refuses: damage to durable data, and the proven loss of it, with its place."""

from __future__ import annotations

from collections.abc import Sequence

from kstore.errors import CorruptLogError
from kstore.log.damage import SuspectedLoss
from kstore.log.recovery.context import RecoveryContext
from kstore.log.recovery.evidence import HeldSegment, Marks, find_losses, is_of_log_start
from kstore.log.recovery.plan import RecoveryPlan


def losses_of_plan(context: RecoveryContext, plan: RecoveryPlan, *, marks: Marks) -> list[SuspectedLoss]:
    """Return what find_losses says of a log as a plan found it.  Raises: StorageError."""
    damaged = {truncation.base_offset for truncation in (*plan.older, *plan.truncations)}
    of_base = {segment.base_offset: segment for segment in plan.files.segments}
    of_name = {segment.log_name: segment for segment in plan.files.segments}
    last = plan.segments[-1].base_offset if plan.segments else None
    segments = [
        HeldSegment(
            of_base.get(segment.base_offset) or of_name[segment.log_name],
            segment.base_offset,
            segment.next_offset,
            segment.start_position + segment.end_position,
            start_position=segment.start_position,
            # The end of the last one is known after a clean shutdown too.
            is_read=segment.is_walked or segment.base_offset == last,
            is_walked=segment.is_recovered,
            is_damaged=segment.base_offset in damaged or (bool(plan.dropped) and segment.base_offset == last),
            is_split_off=segment.is_split_off,
        )
        for segment in plan.segments
    ]
    if not segments and plan.dropped:
        return []
    files = plan.files
    return find_losses(context, segments, orphans=files.orphans, snapshot_offsets=files.snapshot_offsets, marks=marks)


def find_refusal(
    context: RecoveryContext, plan: RecoveryPlan, losses: Sequence[SuspectedLoss], *, point: int
) -> CorruptLogError | None:
    """Return the error with which mode strict refuses: for the first damage below `point`, else for the first proven
    loss; None for neither.

    Args: point: the offset below which everything was durable.
    """
    durable = plan.older + [truncation for truncation in plan.truncations if truncation.offset < point]
    if durable:
        first = min(durable, key=lambda one: one.offset)
        return _refused(
            first.damage.path,
            first.damage.reason,
            position=first.damage.position,
            offset=first.offset,
            end_offset=first.damage_end_offset,
            point=point,
        )
    proven = next((loss for loss in losses if loss.is_proven), None)
    if proven is None:
        return None
    if is_of_log_start(proven):
        return _refused_start(context, proven)
    return _refused(
        proven.log_path,
        proven.evidence,
        position=proven.position,
        offset=proven.first_offset,
        end_offset=proven.end_offset,
        point=point,
    )


def _refused_start(context: RecoveryContext, loss: SuspectedLoss) -> CorruptLogError:
    """Return the error for a log that holds batches and ends below its log start offset: recovery would remove all of
    them.
    """
    return CorruptLogError(
        f"damage at position 0 of {loss.path}: {loss.evidence}, so that all records of {context.path} would be removed",
        path=loss.path,
        position=0,
        base_offset=loss.first_offset,
        reason=loss.evidence,
        expected=f"a log start offset up to {loss.first_offset}",
        found=context.log_start_offset,
    )


def _refused(
    path: str, reason: str, *, position: int, offset: int, end_offset: int | None, point: int
) -> CorruptLogError:
    if end_offset is None and offset < point:
        end_offset = point
    if end_offset is None:
        lost = f"offsets from {offset} on cannot be read"
    else:
        lost = f"offsets {offset} to {end_offset - 1} cannot be read" if end_offset > offset else "no offset is lost"
    error = CorruptLogError(
        f"damage at position {position} of {path}, at offset {offset} of a log that was durable up to offset "
        f"{point}: {reason}; {lost}",
        path=path,
        position=position,
        base_offset=offset,
        reason=reason,
        expected=f"whole batches up to offset {point}",
        found=reason,
    )
    error.lost_end_offset = end_offset
    return error
