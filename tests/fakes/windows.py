"""Windows between two threads, each forced in turn: at a line of one thread's call, another thread makes its own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType
from typing import Any

_PATIENCE_S = 20.0


class _Window:
    """Makes the other call at the n-th line of the watched functions, in another thread that ends first."""

    def __init__(
        self,
        functions: tuple[Callable[..., object], ...],
        other: Callable[[], object],
        at: int,
        is_excluded: Callable[[], bool],
    ) -> None:
        self._codes = {getattr(one, "__wrapped__", one).__code__ for one in functions if isinstance(one, FunctionType)}
        self._other = other
        self._at = at
        self._is_excluded = is_excluded
        self._count = 0
        self.has_come = self.has_called = False

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "call":
            return self if frame.f_code in self._codes else None
        if event == "line":
            if self._count == self._at:
                self.has_come = True
                if self._is_excluded():
                    return self
                self.has_called = True
                thread = threading.Thread(target=self._other, daemon=True)
                thread.start()
                thread.join(_PATIENCE_S)
                if thread.is_alive():
                    raise AssertionError(f"the other thread waits at line {frame.f_lineno}")
            self._count += 1
        return self


def each_window(
    functions: tuple[Callable[..., object], ...],
    make: Callable[[], tuple[Callable[[], object], Callable[[], object]]],
    *,
    is_excluded: Callable[[], bool] = lambda: False,
) -> Iterator[int]:
    """Make a call once for each line of the functions that it passes, with the other call made just before that line.

    Args: make: returns the call and the other call, of new objects each time; is_excluded: asked at a line: whether the
        other thread would have to wait there, for a lock.
    Yields: the number of each line, after both calls, unless it is excluded.
    """
    at = 0
    while True:
        call, other = make()
        window = _Window(functions, other, at, is_excluded)
        before = sys.gettrace()
        sys.settrace(window)
        try:
            call()
        finally:
            sys.settrace(before)
        if not window.has_come:
            assert at, "no line of the functions was passed"
            return
        if window.has_called:
            yield at
        at += 1
