"""What loading a log gives: LoadedLog with its RecoveryReport, and the modes of recovery. Layer 5."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

from kstore.log.damage import Damage
from kstore.log.leader_epochs import LeaderEpochCache
from kstore.log.producer_state import ProducerStateManager

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
