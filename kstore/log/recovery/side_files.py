"""Leader epochs and producer snapshots as recovery leaves them: what contradicts the batches is rebuilt."""

from __future__ import annotations

import logging
from itertools import pairwise

from kstore.errors import CorruptCheckpointError, CorruptSnapshotError
from kstore.log.files.checkpoints import EpochEntry, read_leader_epoch_checkpoint
from kstore.log.files.names import (
    LEADER_EPOCH_CHECKPOINT,
    PRODUCER_SNAPSHOT_SUFFIX,
    base_offset_file_name,
    segment_path,
)
from kstore.log.files.snapshots import contradiction_in, read_snapshot
from kstore.log.recovery.context import RecoveryContext
from kstore.log.recovery.files import Quarantine
from kstore.log.recovery.plan import RecoveryPlan
from kstore.log.recovery.walk import EpochRun
from kstore.log.state.leader_epochs import LeaderEpochCache, epoch_of_offset, rises
from kstore.types import NO_PARTITION_LEADER_EPOCH

_logger = logging.getLogger("kstore.log")


def recovered_epochs(context: RecoveryContext, plan: RecoveryPlan, *, dry_run: bool) -> LeaderEpochCache:
    """Return the leader epochs of a log, and note in the plan if the checkpoint is rebuilt from the batches.

    That is done if it is missing, malformed or not in order, or if it contradicts the batches that were walked. The
    file is written unless it is a dry run.
    Raises: StorageError.
    """
    path, env = context.path_of(LEADER_EPOCH_CHECKPOINT), context.env
    runs = [run for segment in plan.segments for run in segment.epochs or ()]
    stored, problem = None, ""
    try:
        stored = read_leader_epoch_checkpoint(path, env)
    except CorruptCheckpointError as error:
        problem = str(error)
    else:
        problem = _problem_of(stored or [], runs)
    # An empty file has the name, but not the content, that a crash left of a new one.
    is_rebuilt = bool(problem) or not stored
    if problem:
        _logger.warning("rebuilding the leader epochs from the log: %s: %s", path, problem)
    cache = LeaderEpochCache(None, env)
    if not is_rebuilt:
        cache.restore(tuple(stored or ()))
    elif not all(segment.is_walked for segment in plan.segments):
        for epoch, start_offset in stored or ():
            cache.assign(epoch, start_offset=start_offset)
    cache.truncate_from_end(plan.log_end_offset)
    for segment in plan.segments:
        for run in segment.epochs or ():
            if (segment.is_recovered or is_rebuilt) and run.epoch > cache.latest_epoch:
                cache.assign(run.epoch, start_offset=run.start_offset)
    if is_rebuilt and (problem or cache.entries):
        plan.rebuilt.append(LEADER_EPOCH_CHECKPOINT)
    # In this order, loading again changes nothing.
    cache.truncate_from_start(context.log_start_offset)
    cache.truncate_from_end(plan.log_end_offset)
    if not dry_run:
        is_stored = not problem and cache.entries == tuple(stored or ())
        cache.store_at(path, is_stored=is_stored)
    return cache


def _problem_of(entries: list[EpochEntry], runs: list[EpochRun]) -> str:
    """Return why the entries of a checkpoint can't be right, "" if they can."""
    for before, after in pairwise(entries):
        if not rises(before, after):
            return f"epochs or their start offsets do not increase: {tuple(before)}, then {tuple(after)}"
    if any(before.epoch > after.epoch for before, after in pairwise(runs)):
        # It is the batches that can't be right.
        return ""
    for epoch, start_offset, last_base_offset in runs:
        for offset in (start_offset, last_base_offset):
            expected = epoch_of_offset(entries, offset)
            if epoch != NO_PARTITION_LEADER_EPOCH and expected not in (None, epoch):
                return f"epoch {expected} at offset {offset}, which has epoch {epoch} in the log"
    return ""


def remove_wrong_snapshots(context: RecoveryContext, plan: RecoveryPlan, *, quarantine: Quarantine) -> None:
    """Take away the producer snapshots that can't be read, or that say what can't be; the log has what they say.

    Raises: StorageError.
    """
    wrong = []
    for offset in plan.files.snapshot_offsets:
        path = segment_path(context.path, offset, suffix=PRODUCER_SNAPSHOT_SUFFIX)
        if context.env.stat(path) is None:
            continue
        try:
            found = (contradiction_in(entry, offset) for entry in read_snapshot(path, context.env))
            problem = next(filter(None, found), None)
        except CorruptSnapshotError as error:
            problem = str(error)
        if problem is not None:
            _logger.warning("removing a producer snapshot: %s: %s", path, problem)
            wrong.append(base_offset_file_name(offset, suffix=PRODUCER_SNAPSHOT_SUFFIX))
    quarantine.take(wrong)
