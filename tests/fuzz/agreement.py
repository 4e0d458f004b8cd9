"""What a fuzz target raises when two sides that must agree do not, and what targets count of their cases."""

from __future__ import annotations

from collections import Counter

# Said at the end of a run of `python -m tests.fuzz`.
COUNTS: Counter[str] = Counter()


class Disagreement(AssertionError):
    """The two sides see or make different things of the same bytes."""

    def __init__(self, target: str, data: bytes, found: object, expected: object) -> None:
        super().__init__(f"{target}: found {repr(found)[:400]}, expected {repr(expected)[:400]} in {data.hex()}")
        self.target = target
        self.data = data


def agree(target: str, data: bytes, *, found: object, expected: object) -> None:
    if found != expected:
        raise Disagreement(target, data, found, expected)
