"""The steps that carry out a RecoveryPlan, each durable before the next.

Layer 5. Cut at any point, the next recovery finds either the old state of a step or the new one, and ends with the same
bytes: segments behind a cut go before the cut is made, from the last one backwards, so that none can be left behind it.
"""

from __future__ import annotations

from kstore.log.atomic_file import replace_file
from kstore.log.env import Env
from kstore.log.filenames import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_INDEX_SUFFIXES,
    SWAP_STATE,
    TIME_INDEX_SUFFIX,
    base_offset_file_name,
    segment_path,
)
from kstore.log.partition_files import SegmentFiles, settle_side_files
from kstore.log.quarantine import Quarantine
from kstore.log.recovery_context import RecoveryContext
from kstore.log.recovery_plan import RecoveryPlan, SegmentPlan


def carry_out(context: RecoveryContext, plan: RecoveryPlan, *, quarantine: Quarantine) -> None:
    """Bring the files of a partition to what the plan says.

    Raises: StorageError; then carrying out a new plan goes on where this one stopped.
    """
    env = context.env
    settle_side_files(context.path, plan.files, env, quarantine)
    for files in reversed(plan.dropped):
        drop_segment(files, quarantine=quarantine)
    for segment in plan.segments:
        if segment.is_split_off:
            _split_off(context, segment)
    copied = {cut.damage.path.removesuffix(SWAP_STATE): cut for cut in plan.cuts}
    for segment in plan.segments:
        if not segment.is_split_off and segment.end_position < segment.size_in_bytes:
            log_path = context.path_of(segment.name)
            if log_path in copied:
                cut = copied[log_path]
                quarantine.keep_range(log_path, position=cut.damage.position, size_in_bytes=cut.size_in_bytes)
            is_in_place = segment.is_padded or segment is plan.segments[-1]
            _cut_short(log_path, segment.end_position, env, is_in_place=is_in_place)
    for segment in plan.segments:
        for suffix, content in segment.indexes.items():
            replace_file(segment_path(context.path, segment.base_offset, suffix=suffix), content, env)
    _sync_recovered(context, plan)


def _sync_recovered(context: RecoveryContext, plan: RecoveryPlan) -> None:
    """Make durable what a killed broker may not have synced: its later segments, of which the writer syncs the last."""
    recovered = [segment for segment in plan.segments if segment.is_recovered]
    for segment in recovered[:-1]:
        with context.env.open_write(context.path_of(segment.name)) as file:
            file.sync()
    if recovered:
        context.env.sync_directory(context.path)


def drop_segment(files: SegmentFiles, *, quarantine: Quarantine) -> None:
    """Take all files of a segment out of the partition, its .log first, so that what is left are orphans.

    Raises: StorageError.
    """
    suffixes = [LOG_SUFFIX, *(suffix for suffix in SEGMENT_INDEX_SUFFIXES if suffix in files.index_names)]
    quarantine.take(base_offset_file_name(files.base_offset, suffix=suffix) for suffix in suffixes)


def create_segment(context: RecoveryContext, base_offset: int) -> None:
    """Make the empty files of a first segment, durably.

    Raises: StorageError.
    """
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
        with context.env.open_write(segment_path(context.path, base_offset, suffix=suffix)) as file:
            file.truncate(0)
            file.sync()
    context.env.sync_directory(context.path)


def _split_off(context: RecoveryContext, segment: SegmentPlan) -> None:
    """Copy the part of a .log that is to be a segment of its own; the file it comes from is cut afterwards."""
    source = context.path_of(segment.log_name.removesuffix(SWAP_STATE))
    target = context.path_of(segment.name)
    with context.env.open_read(source) as file:
        replace_file(target, file.chunks(segment.end_position, position=segment.start_position), context.env)


def _cut_short(path: str, end_position: int, env: Env, *, is_in_place: bool) -> None:
    """Truncate a .log, durably.

    Where damage goes and segments follow, by a copy: a truncation that is itself torn may leave zeros, and those
    segments would be taken for what follows damage. Of preallocated space it only leaves less.
    """
    if not is_in_place:
        with env.open_read(path) as source:
            replace_file(path, source.chunks(end_position, position=0), env)
        return
    with env.open_write(path) as file:
        file.truncate(end_position)
        file.sync()
