"""Leader epochs and producer snapshots as recovery leaves them: what contradicts the batches is rebuilt."""

from __future__ import annotations

from itertools import pairwise

from kstore._lazy import lazy_logger
from kstore.env import ENOENT
from kstore.errors import CorruptCheckpointError, CorruptSnapshotError, StorageError
from kstore.log.files.checkpoints import EpochEntry, read_leader_epoch_checkpoint
from kstore.log.files.names import (
    LEADER_EPOCH_CHECKPOINT,
    PRODUCER_SNAPSHOT_SUFFIX,
    base_offset_file_name,
    segment_path,
)
from kstore.log.files.snapshots import contradiction_in, read_snapshot
from kstore.log.recovery.context import RecoveryContext
from kstore.log.recovery.files import Quarantine, SegmentFiles
from kstore.log.recovery.plan import RecoveryPlan, SegmentPlan
from kstore.log.state.leader_epochs import LeaderEpochCache, epoch_of_offset, rises
from kstore.types import NO_PARTITION_LEADER_EPOCH

_logger = lazy_logger("kstore.log")


def recovered_epochs(
    context: RecoveryContext, plan: RecoveryPlan, *, log_start_offset: int, dry_run: bool
) -> LeaderEpochCache:
    """Return the leader epochs of a log, and note in the plan if the checkpoint is rebuilt from the batches.

    That is done if it is missing, malformed or not in order, or if it contradicts the batches that were walked. The
    file is written unless it is a dry run.
    Raises: StorageError.
    """
    path, env = context.path_of(LEADER_EPOCH_CHECKPOINT), context.env
    stored, problem = None, ""
    try:
        stored = read_leader_epoch_checkpoint(path, env)
    except CorruptCheckpointError as error:
        problem = str(error)
    else:
        problem = _problem_of(context, plan, stored or [], dry_run=dry_run)
    is_rebuilt = bool(problem)
    if problem:
        _logger.warning("rebuilding the leader epochs from the log: %s: %s", path, problem)
    cache = LeaderEpochCache(None, env)
    if not is_rebuilt:
        cache.restore(tuple(stored or ()))
    elif not all(segment.is_walked for segment in plan.segments):
        for epoch, start_offset in stored or ():
            cache.assign(epoch, start_offset=start_offset)
    cache.truncate_from_end(plan.log_end_offset)
    # A missing file, an empty one, as a crash leaves of a new one, and one of which nothing is left are alike.
    is_rebuilt = is_rebuilt or not cache.entries
    for segment in plan.segments:
        for epoch, start_offset in segment.epochs or ():
            if (segment.is_recovered or is_rebuilt) and epoch > cache.latest_epoch:
                cache.assign(epoch, start_offset=start_offset)
    if is_rebuilt and (problem or cache.entries):
        plan.rebuilt.append(LEADER_EPOCH_CHECKPOINT)
    # In this order, and from where the log starts if segments below that are gone, loading again changes nothing.
    cache.truncate_from_start(log_start_offset)
    cache.truncate_from_end(plan.log_end_offset)
    if not dry_run:
        is_stored = not problem and cache.entries == tuple(stored or ())
        cache.store_at(path, is_stored=is_stored)
    return cache


def _problem_of(context: RecoveryContext, plan: RecoveryPlan, entries: list[EpochEntry], *, dry_run: bool) -> str:
    """Return why the entries of a checkpoint can't be right, "" if they can.

    Cost: reads a segment again if an epoch begins between two batches that have the same one.
    """
    for before, after in pairwise(entries):
        if not rises(before, after):
            return f"epochs or their start offsets do not increase: {tuple(before)}, then {tuple(after)}"
    walked = [(segment, run) for segment in plan.segments for run in segment.epochs or ()]
    if any(before.epoch > after.epoch for (_, before), (_, after) in pairwise(walked)):
        # It is the batches that can't be right.
        return ""
    ends = [*(run.start_offset for _, run in walked), plan.log_end_offset][1:]
    for (segment, run), end_offset in zip(walked, ends, strict=True):
        places = [run.start_offset]
        if any(run.start_offset < entry.start_offset < end_offset for entry in entries):
            bases = _base_offsets(context, segment, is_in_place=not dry_run)
            places = [offset for offset in bases if run.start_offset <= offset < end_offset]
        for offset in places:
            expected = epoch_of_offset(entries, offset)
            if run.epoch != NO_PARTITION_LEADER_EPOCH and expected not in (None, run.epoch):
                return f"epoch {expected} at offset {offset}, which has epoch {run.epoch} in the log"
    return ""


def _base_offsets(context: RecoveryContext, segment: SegmentPlan, *, is_in_place: bool) -> list[int]:
    """Return the base offsets of the batches of a segment. is_in_place: whether the plan was carried out."""
    start = 0 if is_in_place else segment.start_position
    name = segment.name if is_in_place else segment.log_name
    files = SegmentFiles(segment.base_offset, name, start + segment.end_position, {}, {})
    with context.check_of(files, next_base_offset=None) as check:
        headers = (step.header for step in check.steps(start, least_offset=segment.base_offset))
        return [header.base_offset for header in headers if header is not None]


def remove_wrong_snapshots(context: RecoveryContext, plan: RecoveryPlan, *, quarantine: Quarantine) -> list[int]:
    """Take away the producer snapshots that can't be read, or that say what can't be; the log has what they say.

    Returns: the offsets of those that stay, in rising order.
    Raises: StorageError.
    """
    wrong, kept = [], []
    for offset in plan.files.snapshot_offsets:
        path = segment_path(context.path, offset, suffix=PRODUCER_SNAPSHOT_SUFFIX)
        try:
            contradictions = (contradiction_in(entry, offset) for entry in read_snapshot(path, context.env))
            problem = next(filter(None, contradictions), None)
        except CorruptSnapshotError as error:
            problem = str(error)
        except StorageError as error:
            if error.errno != ENOENT:
                raise
            continue
        if problem is None:
            kept.append(offset)
        else:
            _logger.warning("removing a producer snapshot: %s: %s", path, problem)
            wrong.append(base_offset_file_name(offset, suffix=PRODUCER_SNAPSHOT_SUFFIX))
    quarantine.take(wrong)
    return kept
