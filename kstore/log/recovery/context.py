"""RecoveryContext: the partition that is recovered, as every step of recovery asks for it. Layer 5."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

from kstore.config import MAX_INT64, LogConfig
from kstore.log.damage import Damage
from kstore.log.env import Env, OpenFiles, join_path
from kstore.log.files.checkpoints import read_checkpoint
from kstore.log.files.names import CLEANER_CHECKPOINT, PartitionDirectory
from kstore.log.recovery.files import SegmentFiles
from kstore.log.recovery.walk import SegmentWalk, walk_segment
from kstore.log.segment.check import SegmentCheck
from kstore.log.segment.records import SegmentRecords
from kstore.log.state.leader_epochs import LeaderEpochCache
from kstore.log.state.producer_state import ProducerStateManager
from kstore.types import TopicPartition

RecoveryMode: TypeAlias = Literal["strict", "point_in_time", "salvage"]


def check_recovery(mode: object, *, trusts_recovery_point: bool) -> None:
    """Raise ValueError for a mode that there is not, and for salvage of segments that it must not read."""
    if mode not in get_args(RecoveryMode):
        raise ValueError(f"recovery must be one of {', '.join(get_args(RecoveryMode))}, got {mode!r}")
    if mode == "salvage" and trusts_recovery_point:
        raise ValueError("salvage reads every segment: expected trusts_recovery_point to be False")


class LoadedSegment(NamedTuple):
    """One segment: the bytes of its .log, the offset behind its last batch, its largest timestamp.

    max_timestamp_ms, offset_of_max_timestamp: -1 without timestamps, and where the segment was not read. next_offset:
    of a segment that was not read the base offset of the one behind it.
    """

    base_offset: int
    size_in_bytes: int
    next_offset: int
    max_timestamp_ms: int = -1
    offset_of_max_timestamp: int = -1


class RecoveryReport(NamedTuple):
    """What loading did to the files, or in a dry run would do.

    truncated_bytes: cut off the end of .log files, or out of them by salvage, but for preallocated space between
    segments; deleted_segments: base offsets of those that went as a whole, whose bytes count no further; rebuilt: names
    of index files and checkpoints that were written anew because they were missing or wrong; damage: what was found, as
    large as it is (point_in_time cuts all that comes after the first as well); quarantined: paths of the copies.
    """

    log_start_offset: int
    log_end_offset: int
    truncated_bytes: int
    deleted_segments: tuple[int, ...]
    rebuilt: tuple[str, ...]
    damage: tuple[Damage, ...]
    quarantined: tuple[str, ...]

    @property
    def is_unharmed(self) -> bool:
        """Whether nothing was cut, deleted or found damaged."""
        return not (self.truncated_bytes or self.deleted_segments or self.damage)


class LoadedLog(NamedTuple):
    """A log ready to be opened: segments by base offset, at least one; no file is left open.

    recovery_point: up to where the log needs no flush. producer_state is that at log_end_offset; after a dry run it and
    leader_epochs are empty.
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
    """Where the partition lies, its settings, and the system that its files are read and changed by.

    log_start_offset: of the root's checkpoint, 0 where that names none.
    """

    directory: PartitionDirectory
    config: LogConfig
    env: Env
    log_start_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        return self.directory.topic_partition

    @property
    def path(self) -> str:
        return self.directory.path

    def path_of(self, name: str) -> str:
        """Return the path of a name in the partition's directory."""
        return join_path(self.path, name)

    def walk(
        self, name: str, *, base_offset: int, next_base_offset: int | None, start_position: int = 0
    ) -> SegmentWalk:
        """Walk the .log of that name; see walk_segment."""
        return walk_segment(
            self.path_of(name),
            base_offset=base_offset,
            next_base_offset=next_base_offset,
            config=self.config,
            env=self.env,
            start_position=start_position,
        )

    def producer_state(self) -> ProducerStateManager:
        """Return the producers of the partition, none of them loaded."""
        return ProducerStateManager(self.topic_partition, self.path, config=self.config, env=self.env)

    @contextmanager
    def check_of(self, files: SegmentFiles, *, next_base_offset: int | None) -> Iterator[SegmentCheck]:
        """Give the walk over a segment that goes on behind damage, which looks at no record."""
        with OpenFiles(self.env) as open_files:
            records = SegmentRecords(
                open_files,
                path=self.path_of(files.log_name),
                base_offset=files.base_offset,
                next_base_offset=next_base_offset,
                size_in_bytes=files.size_in_bytes,
                config=self.config,
            )
            yield SegmentCheck(records, topic_partition=self.topic_partition, config=self.config, is_deep=False)

    def cleaned_below(self) -> int:
        """Return the offset up to which a cleaner has been over the log, or may have been by the settings."""
        if self.config.is_compacted:
            return MAX_INT64
        offsets = read_checkpoint(self.directory.root, CLEANER_CHECKPOINT, self.env)
        return offsets.get(self.topic_partition, 0)
