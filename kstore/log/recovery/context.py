"""RecoveryContext, the partition as every step of recovery needs it, and the types that loading returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from kstore._html import fields_html, table_html
from kstore.config import MAX_INT64, LogConfig
from kstore.env import Env, OpenFiles, join_path
from kstore.log.damage import Damage, LostOffsets, SuspectedLoss, joined_ranges
from kstore.log.damaged.check import SegmentCheck
from kstore.log.damaged.sound import read_offset_index
from kstore.log.files.checkpoints import read_checkpoint
from kstore.log.files.names import CLEANER_CHECKPOINT, PartitionDirectory
from kstore.log.files.records import SegmentRecords
from kstore.log.recovery.files import SegmentFiles
from kstore.log.recovery.walk import SegmentWalk, walk_segment
from kstore.log.state.leader_epochs import LeaderEpochCache
from kstore.log.state.producer_state import ProducerStateManager
from kstore.types import TopicPartition

LEFT_IN_PLACE = "left in place"


class DamageOutcome(NamedTuple):
    """What recovery did about one damaged range of a RecoveryReport, and which offsets are lost with it.

    action: "left in place" (nothing was changed, reads of these offsets fail), "truncated" (the log ends there now),
    "removed" (the bytes are gone, the batches after them stay), "mended" (the batch stays, or a log start offset above
    the log end was lowered) or "missing" (the records were gone before: another file proves it).
    lost_start_offset, lost_end_offset: the lost offsets, up to and not including the latter, which is None if the
    damage does not show where they end; equal if none is lost.
    """

    action: str
    lost_start_offset: int
    lost_end_offset: int | None


class LoadedSegment(NamedTuple):
    """One segment: the size of its .log in bytes, the offset after its last batch, its largest timestamp.

    max_timestamp_ms, offset_of_max_timestamp: -1 if the segment has no timestamps or was not read. next_offset: if the
    segment was not read, the base offset of the next segment.
    """

    base_offset: int
    size_in_bytes: int
    next_offset: int
    max_timestamp_ms: int = -1
    offset_of_max_timestamp: int = -1


class RecoveryReport(NamedTuple):
    """What loading did to the files, or would do in a dry run.

    log_start_offset, log_end_offset: of the log after it.
    truncated_bytes: removed from the end of .log files, or from anywhere in them by salvage; preallocated space
    does not count. deleted_segments: base offsets of segments removed entirely; their bytes are not in
    truncated_bytes. rebuilt: names of index files and checkpoints rewritten because they were missing or wrong. damage:
    each damaged range in its real size (point_in_time also truncates everything after the first one). quarantined:
    paths of the copies. outcomes: of each damaged range, in the order of `damage`. losses: what files beside the log
    show to be gone; those that are proven are in `damage` too. preallocated_bytes: zeros after the last batch of a
    .log, which are removed: space that a writer reserved (or batches that were never flushed, lost in a power cut).
    """

    log_start_offset: int
    log_end_offset: int
    truncated_bytes: int
    deleted_segments: tuple[int, ...]
    rebuilt: tuple[str, ...]
    damage: tuple[Damage, ...]
    quarantined: tuple[str, ...]
    outcomes: tuple[DamageOutcome, ...] = ()
    losses: tuple[SuspectedLoss, ...] = ()
    preallocated_bytes: int = 0

    @property
    def is_unharmed(self) -> bool:
        """Whether nothing was truncated, deleted or found damaged."""
        return not (self.truncated_bytes or self.deleted_segments or self.damage)

    @property
    def lost(self) -> tuple[LostOffsets, ...]:
        """The offsets that no read gets any more, as separate ranges in rising order: those of `outcomes`."""
        return joined_ranges(LostOffsets(start, end) for _, start, end in self.outcomes)

    def _repr_html_(self) -> str:
        """Return what was done, and about which damage, as tables, for notebooks."""
        counts = {name: value if isinstance(value, int) else len(value) for name, value in self._asdict().items()}
        counts["lost ranges of offsets"] = len(self.lost)
        del counts["outcomes"]
        verdict = "unharmed" if self.is_unharmed else "damaged"
        fields = fields_html(f"RecoveryReport: {verdict}", counts.items())
        if not self.damage:
            return fields
        outcomes = self.outcomes or (DamageOutcome("-", 0, 0),) * len(self.damage)
        rows = (
            (*damage, outcome.action, *((None, None) if outcome.action == "-" else outcome[1:]))
            for damage, outcome in zip(self.damage, outcomes, strict=True)
        )
        names = (*Damage._fields, *DamageOutcome._fields)
        return fields + table_html("Damage", names, rows, count=len(self.damage))


class LoadedLog(NamedTuple):
    """A log ready to be opened: its segments by base offset, at least one. No file is left open.

    recovery_point: the offset below which the log needs no flush. producer_state is the state at log_end_offset, empty
    after a dry run.
    """

    segments: tuple[LoadedSegment, ...]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    leader_epochs: LeaderEpochCache
    producer_state: ProducerStateManager
    report: RecoveryReport


@dataclass(frozen=True)
class RecoveryContext:
    """The partition's directory, its configuration, and the Env that reads and changes its files.

    log_start_offset: from the root's checkpoint, 0 if it has no entry. on_read: called with the number of bytes of each
    chunk of a .log that a walk reads.
    """

    directory: PartitionDirectory
    config: LogConfig
    env: Env
    log_start_offset: int
    on_read: Callable[[int], None] | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return self.directory.topic_partition

    @property
    def path(self) -> str:
        return self.directory.path

    def path_of(self, name: str) -> str:
        """Return the path of a file in the partition's directory."""
        return join_path(self.path, name)

    def walk(
        self, name: str, *, base_offset: int, next_base_offset: int | None, start_position: int = 0
    ) -> SegmentWalk:
        """Walk the .log with this name; see walk_segment."""
        return walk_segment(
            self.path_of(name),
            base_offset=base_offset,
            next_base_offset=next_base_offset,
            config=self.config,
            env=self.env,
            start_position=start_position,
            on_read=self.on_read,
        )

    def producer_state(self, snapshot_offsets: Sequence[int] | None = None) -> ProducerStateManager:
        """Return an empty producer state of the partition.  Args: as of ProducerStateManager."""
        return ProducerStateManager(
            self.topic_partition, self.path, config=self.config, env=self.env, snapshot_offsets=snapshot_offsets
        )

    @contextmanager
    def check_of(self, files: SegmentFiles, *, next_base_offset: int | None) -> Iterator[SegmentCheck]:
        """Context manager: a check of one segment's batches that continues after damage and does not read records."""
        with OpenFiles(self.env) as open_files:
            records = SegmentRecords(
                open_files,
                path=self.path_of(files.log_name),
                base_offset=files.base_offset,
                next_base_offset=next_base_offset,
                size_in_bytes=files.size_in_bytes,
                config=self.config,
            )
            yield SegmentCheck(
                records,
                find_index=partial(read_offset_index, records.path, base_offset=files.base_offset, env=self.env),
                topic_partition=self.topic_partition,
                config=self.config,
                is_deep=False,
            )

    def cleaned_below(self) -> int:
        """Return the offset below which a cleaner has cleaned the log, or may have by its configuration."""
        if self.config.is_compacted:
            return MAX_INT64
        offsets = read_checkpoint(self.directory.root, CLEANER_CHECKPOINT, self.env)
        return offsets.get(self.topic_partition, 0)
