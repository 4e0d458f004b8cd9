"""load_log: brings the files of a partition to a state that can be appended to, and reports what that took.

It plans by reading (recovery/plan.py, recovery/salvage.py), refuses if mode strict requires it (recovery/strict.py),
and only then changes files. load_producer_state rebuilds the producers. Takes no lock and leaves no file open.
Source: Kafka LogLoader.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from kstore._lazy import lazy_logger
from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV, Env
from kstore.log.damage import Damage, SuspectedLoss, size_of_file
from kstore.log.files.checkpoints import save_offset
from kstore.log.files.durable_point import DurablePoint, DurablePointFile
from kstore.log.files.names import (
    LOG_START_OFFSET_CHECKPOINT,
    PartitionDirectory,
)
from kstore.log.recovery.context import (
    LEFT_IN_PLACE,
    DamageOutcome,
    LoadedLog,
    LoadedSegment,
    RecoveryContext,
    RecoveryReport,
)
from kstore.log.recovery.evidence import Marks, high_watermark_of, is_of_log_start
from kstore.log.recovery.files import PartitionFiles, Quarantine, list_partition, settle_side_files
from kstore.log.recovery.foretold import ForetoldFiles
from kstore.log.recovery.modes import RecoveryMode, check_recovery
from kstore.log.recovery.plan import Planner, RecoveryPlan, SegmentPlan, carry_out, create_segment
from kstore.log.recovery.salvage import (
    SalvagedSegment,
    carry_out_salvage,
    losses_of_salvage,
    plan_salvage,
)
from kstore.log.recovery.side_files import recovered_epochs, remove_wrong_snapshots
from kstore.log.recovery.strict import find_refusal, losses_of_plan
from kstore.log.state.leader_epochs import LeaderEpochCache
from kstore.log.state.producer_append import ProducerStateBatch
from kstore.log.state.producer_state import ProducerStateManager, SegmentReplay

_logger = lazy_logger("kstore.log")
# Of damage that is in the RecoveryReport too, so that a caller that shows the report can leave these messages out.
DAMAGE_LOGGER = "kstore.log.damage"
_damage_logger = lazy_logger(DAMAGE_LOGGER)


def load_log(
    directory: PartitionDirectory,
    *,
    config: LogConfig,
    env: Env = DEFAULT_ENV,
    mode: RecoveryMode = "strict",
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    is_clean: bool = False,
    was_closed: bool = False,
    keeps_copies: bool = True,
    dry_run: bool = False,
    trusts_recovery_point: bool = False,
    on_read: Callable[[int], None] | None = None,
    durable_point: DurablePointFile | None = None,
) -> LoadedLog:
    """Load a partition, recovering what a crash may have left unfinished.

    Args: recovery_point, log_start_offset: from the root's checkpoints, None if they have no entry. is_clean: the root
        was shut down cleanly, so that only the end of the last segment, and files that the listing shows to be missing,
        are checked. was_closed: it was, though everything is to be checked. keeps_copies: copy removed data to the
        quarantine directory. dry_run: change nothing.
        trusts_recovery_point: after an unclean shutdown, leave the segments below it unread, as Kafka does; damage
        there surfaces when it is read. on_read: called with the number of bytes of each chunk of a .log that is read;
        in mode salvage the log is read twice. durable_point: that of the partition, if the caller goes on with it. The
        caller holds the lock.
    Raises: CorruptLogError in mode strict, with nothing changed; StorageError, after which the call can be repeated;
        ValueError for an unknown mode, or for salvage with trusts_recovery_point, since salvage reads everything.
    Cost: after an unclean shutdown one pass over the log, with trusts_recovery_point from that point on.
    """
    check_recovery(mode, trusts_recovery_point=trusts_recovery_point)
    context = RecoveryContext(directory, config, env, log_start_offset or 0, on_read)
    return _Loading(context, mode, durable_point, dry_run=dry_run).run(
        point=recovery_point or 0,
        is_clean=is_clean,
        was_closed=is_clean or was_closed,
        trusts_point=trusts_recovery_point,
        keeps_copies=keeps_copies,
        dry_run=dry_run,
    )


def _is_told(loss: SuspectedLoss, outcomes: list[DamageOutcome]) -> bool:
    """Whether a loss begins where damage is removed, whose outcome then ends where the loss does, or later."""
    for at, outcome in enumerate(outcomes):
        if outcome.lost_start_offset == loss.first_offset and outcome.action in ("removed", "truncated"):
            ends = [end for end in (outcome.lost_end_offset, loss.end_offset) if end is not None]
            outcomes[at] = outcome._replace(lost_end_offset=max(ends, default=None))
            return True
    return False


class _Loading:
    """One call of load_log."""

    def __init__(
        self, context: RecoveryContext, mode: RecoveryMode, durable_point: DurablePointFile | None, *, dry_run: bool
    ) -> None:
        self._durable_point = durable_point
        self._foretold = ForetoldFiles(context.env) if dry_run else None
        self._context = context if self._foretold is None else replace(context, env=self._foretold)
        self._mode = mode
        self._losses: list[SuspectedLoss] = []
        # The log start offset of the checkpoint if the log ends below it, and what was done about that.
        self._wrong_start: tuple[Damage, DamageOutcome] | None = None

    def run(
        self, *, point: int, is_clean: bool, was_closed: bool, trusts_point: bool, keeps_copies: bool, dry_run: bool
    ) -> LoadedLog:
        context = self._context
        quarantine = Quarantine(context.path, env=context.env, is_on=keeps_copies, dry_run=dry_run)
        salvaged: list[SalvagedSegment] = []
        with self._durable_point or DurablePointFile(context.path, context.env) as durable:
            noted = durable.read()
            # What wrote the log last and closed it may have been a broker, which does not know that file.
            noted_point = 0 if noted is None or was_closed else noted.offset
            marks = Marks(noted_point, point, high_watermark_of(self._context), was_closed)
            point = marks.point
            if self._mode == "salvage":
                is_clean = False
                salvaged = self._salvage(durable, quarantine, marks=marks, dry_run=dry_run)
                self._lower_log_start(salvaged, marks=marks, dry_run=dry_run)
            plan = self._plan(point, noted=noted, is_clean=is_clean, trusts_point=trusts_point)
            if self._mode != "salvage":
                self._losses = losses_of_plan(self._context, plan, marks=marks)
            refusal = find_refusal(self._context, plan, self._losses, point=point) if self._mode == "strict" else None
            if refusal is not None:
                raise refusal
            self._drop_below_log_start(plan)
            if not dry_run:
                durable.lower(self._durable_after(plan))
        carry_out(context, plan, quarantine=quarantine, dry_run=dry_run)
        snapshot_offsets = None if is_clean else remove_wrong_snapshots(context, plan, quarantine=quarantine)
        if not plan.segments:
            base = self._context.log_start_offset
            if not dry_run:
                create_segment(context, base)
            plan.segments.append(SegmentPlan(base, "", 0, 0, base, producers=(), epochs=()))
        log_start, log_end = max(self._context.log_start_offset, plan.segments[0].base_offset), plan.log_end_offset
        producers, epochs = self._states(plan, snapshot_offsets, log_start=log_start, dry_run=dry_run)
        return LoadedLog(
            segments=tuple(map(_loaded, plan.segments)),
            log_start_offset=log_start,
            log_end_offset=log_end,
            recovery_point=log_end if is_clean and not plan.truncations else min(point, log_end),
            leader_epochs=epochs,
            producer_state=producers,
            report=self._report(plan, salvaged, quarantine, log_start_offset=log_start),
        )

    def _salvage(
        self, durable: DurablePointFile, quarantine: Quarantine, *, marks: Marks, dry_run: bool
    ) -> list[SalvagedSegment]:
        """Rewrite damaged segments; a later walk finds no damage."""
        listed = self._listed()
        settle_side_files(self._context.path, listed, self._context.env, quarantine)
        salvaged = plan_salvage(self._context, self._listed().segments, point=marks.point)
        self._losses = losses_of_salvage(self._context, listed, salvaged, marks=marks)
        if any(segment.pieces is not None or segment.is_stray for segment in salvaged):
            if not dry_run:
                durable.lower(DurablePoint(0, 0, 0))
            carry_out_salvage(self._context, salvaged, quarantine=quarantine, foretold=self._foretold)
        return salvaged

    def _durable_after(self, plan: RecoveryPlan) -> DurablePoint:
        """Return the highest point that may still be true after the plan is carried out."""
        if not plan.segments:
            return DurablePoint(0, 0, 0)
        last = plan.segments[-1]
        return DurablePoint(last.next_offset, last.base_offset, last.end_position)

    def _plan(self, point: int, *, noted: DurablePoint | None, is_clean: bool, trusts_point: bool) -> RecoveryPlan:
        planner = Planner(self._context, self._listed(), point=point)
        return planner.plan_clean(noted) if is_clean else planner.plan_unclean(trusts_point=trusts_point)

    def _listed(self) -> PartitionFiles:
        return list_partition(self._context.path, env=self._context.env, end_offset_of=self._end_offset_of)

    def _end_offset_of(self, name: str, base_offset: int) -> int | None:
        walk = self._context.walk(name, base_offset=base_offset, next_base_offset=None)
        return walk.next_offset if walk.status == "end" else None

    def _lower_log_start(self, salvaged: list[SalvagedSegment], *, marks: Marks, dry_run: bool) -> None:
        """Start the log at its first segment if it ends below the log start offset, and no other checkpoint says that
        it ever reached that.

        If the recovery point or the high watermark reached it, what is below it was deleted, and what was above it is
        lost: then the log starts there without any record, as in the other modes.
        """
        context = self._context
        loss = next(filter(is_of_log_start, self._losses), None)
        if loss is None or max(marks.point, marks.high_watermark or 0) >= context.log_start_offset:
            return
        base_offset = next(segment.files.base_offset for segment in salvaged if not segment.is_stray)
        self._wrong_start = self._damage_of(loss), DamageOutcome("mended", base_offset, base_offset)
        self._context = replace(context, log_start_offset=base_offset)
        if not dry_run:
            root, partition = context.directory.root, context.topic_partition
            save_offset(root, LOG_START_OFFSET_CHECKPOINT, partition, base_offset, context.env)

    def _damage_of(self, loss: SuspectedLoss) -> Damage:
        """Return what a loss is as damage: of the checkpoint that contradicts the log, else no byte of the log."""
        if is_of_log_start(loss):
            return Damage(loss.path, 0, size_of_file(loss.path, self._context.env), loss.evidence)
        return Damage(loss.log_path, loss.position, 0, loss.evidence)

    def _drop_below_log_start(self, plan: RecoveryPlan) -> None:
        """Drop all segments if the log ends below its start offset."""
        if plan.segments and plan.log_end_offset < self._context.log_start_offset:
            loss = next(filter(is_of_log_start, self._losses), None)
            if loss is not None:
                lost = DamageOutcome("removed", plan.segments[0].base_offset, plan.log_end_offset)
                self._wrong_start = self._damage_of(loss), lost
            kept = {segment.base_offset for segment in plan.segments}
            plan.dropped = [files for files in plan.files.segments if files.base_offset in kept] + plan.dropped
            plan.segments, plan.truncations = [], []

    def _states(
        self, plan: RecoveryPlan, snapshot_offsets: Sequence[int] | None, *, log_start: int, dry_run: bool
    ) -> tuple[ProducerStateManager, LeaderEpochCache]:
        epochs = recovered_epochs(self._context, plan, log_start_offset=log_start, dry_run=dry_run)
        if dry_run:
            return self._context.producer_state(), epochs
        producers = load_producer_state(
            self._context,
            plan.segments,
            log_start_offset=log_start,
            log_end_offset=plan.log_end_offset,
            snapshot_offsets=snapshot_offsets,
        )
        return producers, epochs

    def _report(
        self,
        plan: RecoveryPlan,
        salvaged: list[SalvagedSegment],
        quarantine: Quarantine,
        *,
        log_start_offset: int,
    ) -> RecoveryReport:
        damage = [truncation.damage for truncation in [*plan.older, *plan.truncations]]
        outcomes = [DamageOutcome(LEFT_IN_PLACE, older.offset, older.damage_end_offset) for older in plan.older]
        outcomes += [
            DamageOutcome("truncated", truncation.offset, truncation.lost_end_offset) for truncation in plan.truncations
        ]
        truncated_bytes = sum(truncation.size_in_bytes for truncation in plan.truncations)
        for segment in salvaged:
            damage += segment.damage
            outcomes += segment.outcomes()
            truncated_bytes += segment.lost_bytes
        if self._wrong_start is not None:
            damage.append(self._wrong_start[0])
            outcomes.append(self._wrong_start[1])
        for loss in self._losses:
            if loss.is_proven and not is_of_log_start(loss) and not _is_told(loss, outcomes):
                damage.append(self._damage_of(loss))
                outcomes.append(DamageOutcome("missing", loss.first_offset, loss.end_offset))
        for damaged in damage:
            _damage_logger.warning("damage at position %d of %s: %s", damaged.position, damaged.path, damaged.reason)
        return RecoveryReport(
            log_start_offset=log_start_offset,
            log_end_offset=plan.log_end_offset,
            truncated_bytes=truncated_bytes,
            deleted_segments=tuple(
                sorted(
                    {files.base_offset for files in plan.dropped}
                    | {segment.files.base_offset for segment in salvaged if segment.is_stray}
                )
            ),
            rebuilt=tuple(plan.rebuilt),
            damage=tuple(damage),
            quarantined=tuple(quarantine.kept),
            outcomes=tuple(outcomes),
            losses=tuple(self._losses),
            preallocated_bytes=sum(
                loaded.size_in_bytes - loaded.end_position for loaded in plan.segments if loaded.is_padded
            ),
        )


def _loaded(segment: SegmentPlan) -> LoadedSegment:
    return LoadedSegment(
        segment.base_offset,
        segment.end_position,
        segment.next_offset,
        segment.max_timestamp_ms,
        segment.offset_of_max_timestamp,
    )


def load_producer_state(
    context: RecoveryContext,
    segments: Sequence[SegmentPlan],
    *,
    log_start_offset: int,
    log_end_offset: int,
    snapshot_offsets: Sequence[int] | None = None,
) -> ProducerStateManager:
    """Return the producer state at log_end_offset; snapshots are written at each recovered segment and at the log end.

    A snapshot at the base offset of the first segment is kept and used, unless the log starts after it: only it has the
    producers whose records retention removed. A broker uses it too, but drops it after its first recovery.
    Args: snapshot_offsets: as of ProducerStateManager.
    Raises: StorageError.
    """
    replay, env = _Replay(context, segments, log_start_offset=log_start_offset), context.env
    manager = context.producer_state(snapshot_offsets)
    recovered = [loaded for loaded in segments if loaded.is_recovered]
    last_two = {loaded.base_offset for loaded in segments[-2:]}
    following = {segment.base_offset: later.base_offset for segment, later in pairwise(segments)}
    retaken = {
        following.get(segment.base_offset, segment.next_offset)
        for segment in recovered
        if segment.next_offset > log_start_offset
    }
    replayed_to: int | None = None
    for segment in recovered:
        if replayed_to is not None and replayed_to <= log_start_offset:
            # No snapshot may exist at or below the log start, and without one Kafka starts each segment with empty
            # state.
            manager = context.producer_state(manager.snapshot_offsets)
        replay.rebuild(manager, segment.base_offset, snapshot_offsets={*last_two, segment.base_offset}, retaken=retaken)
        # Kafka reloads the snapshot at each segment's base offset.
        manager.reload_own(now_ms=env.wall_clock_ms())
        replay.run(manager, segment, end_offset=segment.next_offset)
        replayed_to = segment.next_offset
        if replayed_to <= log_start_offset:
            continue
        next_base_offset = following.get(segment.base_offset, segment.next_offset)
        if next_base_offset > segment.next_offset:
            # Kafka also takes a snapshot inside the gap and loads that one; here it would describe a segment that is
            # lost.
            manager.reload_own(now_ms=env.wall_clock_ms())
        manager.update_map_end_offset(next_base_offset)
        manager.take_snapshot()
    if recovered:
        # Reload, so that producers which have expired by now are left out.
        manager = context.producer_state(manager.snapshot_offsets)
    manager.remove_stray_snapshots(loaded.base_offset for loaded in segments)
    replay.rebuild(manager, log_end_offset, snapshot_offsets={*last_two, log_end_offset})
    # Again, for the snapshot that was the last one until now: loading again must change nothing.
    manager.remove_stray_snapshots(loaded.base_offset for loaded in segments)
    return manager


class _Replay:
    """Replays batches of the segments into a ProducerStateManager."""

    def __init__(self, context: RecoveryContext, segments: Sequence[SegmentPlan], *, log_start_offset: int) -> None:
        self._context = context
        self._segments = segments
        self._log_start_offset = log_start_offset
        self._keeps_first = bool(segments) and 0 < log_start_offset == segments[0].base_offset

    def rebuild(
        self,
        manager: ProducerStateManager,
        end_offset: int,
        *,
        snapshot_offsets: set[int],
        retaken: Container[int] = (),
    ) -> None:
        """Rebuild the state at end_offset."""
        manager.rebuild(
            (
                SegmentReplay(
                    segment.base_offset,
                    segment.next_offset,
                    partial(self._batches_from, segment=segment, end_offset=end_offset),
                )
                for segment in self._segments
            ),
            log_start_offset=self._log_start_offset,
            log_end_offset=end_offset,
            snapshot_offsets=snapshot_offsets,
            now_ms=self._context.env.wall_clock_ms(),
            keeps_first=self._keeps_first,
            retaken=retaken,
        )

    def run(self, manager: ProducerStateManager, segment: SegmentPlan, *, end_offset: int) -> None:
        """Replay the batches of a segment from map_end_offset on."""
        for batch in self._batches_from(manager.map_end_offset, segment=segment, end_offset=end_offset):
            manager.replay(batch)

    def _batches_from(self, start: int, *, segment: SegmentPlan, end_offset: int) -> Iterator[ProducerStateBatch]:
        for batch in self._batches(segment):
            if batch.base_offset >= end_offset:
                break
            if batch.last_offset >= start:
                yield batch

    def _batches(self, segment: SegmentPlan) -> Iterator[ProducerStateBatch]:
        producers = segment.producers
        if producers is None:
            walk = self._context.walk(segment.name, base_offset=segment.base_offset, next_base_offset=None)
            producers = walk.producers
        return iter(producers)
