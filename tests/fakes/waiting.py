"""wait_until: the one way in which a test waits for what another thread does without telling."""

from __future__ import annotations

import threading
from collections.abc import Callable

_STEPS = 10_000
_STEP_S = 0.002


def wait_until(condition: Callable[[], object]) -> None:
    """Return when a condition holds; fail if it does not within some twenty seconds of looks."""
    pause = threading.Event()
    for _ in range(_STEPS):
        if condition():
            return
        pause.wait(_STEP_S)
    raise AssertionError(f"never came true: {condition}")
