"""RecoveryMode: what a recovery does about damage, chosen when a log, a store or a recovery begins."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

RecoveryMode: TypeAlias = Literal["strict", "point_in_time", "salvage"]
_MODES = get_args(RecoveryMode)


def check_recovery(mode: object, *, trusts_recovery_point: bool) -> None:
    """Raise ValueError for an unknown mode, and for salvage combined with segments that are not to be read."""
    if mode not in _MODES:
        raise ValueError(f"recovery must be one of {', '.join(_MODES)}, got {mode!r}")
    if mode == "salvage" and trusts_recovery_point:
        raise ValueError("salvage reads every segment: expected trusts_recovery_point to be False")
