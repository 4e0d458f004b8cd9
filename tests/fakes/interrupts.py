"""Signals, one at each place where the interpreter looks for them, instead of whenever somebody hits a key.

It looks for them behind calls, where a function begins and where a loop goes back. A traced run of a scenario finds
those places in the code that is watched; each later run gets its signal just before one of them, so that the handler
runs exactly there, or in what is called there.
"""

from __future__ import annotations

import _thread
import dis
import gc
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, NamedTuple

from kstore.errors import KStoreError

LOOKS_FOR_SIGNALS = frozenset(
    number
    for name, number in dis.opmap.items()
    if name.startswith(("CALL", "JUMP_BACKWARD", "POP_JUMP_BACKWARD", "JUMP_ABSOLUTE", "RESUME"))
)
WATCHED = ("/kstore/producer/", "/kstore/log/", "/threading.py", "/concurrent/futures/")


class Interrupted(KeyboardInterrupt):
    """What the handler raises."""


class Place(NamedTuple):
    """The visit of that number, from 1 on, of an instruction."""

    code: CodeType
    position: int
    visit: int

    def __str__(self) -> str:
        lines = (line for start, end, line in self.code.co_lines() if start <= self.position < end)
        return f"{self.code.co_filename}:{next(lines, None)} {self.code.co_name} +{self.position} visit {self.visit}"


class _Signal:
    """`+` sends the signal, and is no call, behind which the interpreter would look for it."""

    __pos__ = _thread.interrupt_main


_SIGNAL: Any = _Signal()


class Tracer:
    """Counts the places, and sends the signal at one of them.

    Attributes: places: those that were passed; has_sent.
    """

    def __init__(self, target: Place | None = None, *, watched: tuple[str, ...] = WATCHED) -> None:
        self._watched = watched
        self._target = target
        self._visits: Counter[tuple[CodeType, int]] = Counter()
        self.places: list[Place] = []
        self.has_sent = False

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "call":
            if not any(part in frame.f_code.co_filename for part in self._watched):
                return None
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
            return self
        if event == "opcode" and frame.f_code.co_code[frame.f_lasti] in LOOKS_FOR_SIGNALS:
            key = frame.f_code, frame.f_lasti
            self._visits[key] += 1
            place = Place(*key, self._visits[key])
            self.places.append(place)
            if place == self._target:
                self.has_sent = True
                _ = +_SIGNAL
                return self
        return self


@contextmanager
def handled_by(handler: Callable[[], object]) -> Iterator[None]:
    """Have the signal handled by that."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        handler()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def raise_interrupted() -> None:
    raise Interrupted


def traced(run: Callable[[], object], tracer: Tracer, *, handler: Callable[[], object] = raise_interrupted) -> bool:
    """Run with a tracer; return whether it was interrupted by its signal."""
    before = sys.gettrace()
    # What a finalizer raises is lost.
    gc.disable()
    with handled_by(handler):
        sys.settrace(tracer)
        try:
            run()
        except Interrupted:
            return True
        finally:
            sys.settrace(before)
            gc.enable()
    return False


def first_visits(tracer: Tracer) -> list[Place]:
    return [place for place in tracer.places if place.visit == 1]


def bounded(run: Callable[[], object], *, seconds: float = 30) -> BaseException | None:
    """Run in another thread and return the error that it raised.

    Raises: TimeoutError if it takes too long.
    """
    done: Future[None] = Future()

    def body() -> None:
        try:
            run()
        except (KStoreError, RuntimeError, ValueError) as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=body, daemon=True).start()
    return done.exception(seconds)
