"""Damage: one damaged range of a file, as verify reports it. Layer 5."""

from __future__ import annotations

from typing import NamedTuple


class Damage(NamedTuple):
    """The bytes [position, position + size_in_bytes) of a file that are wrong, and why."""

    path: str
    position: int
    size_in_bytes: int
    reason: str
