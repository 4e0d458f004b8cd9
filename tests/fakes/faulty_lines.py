"""Errors at one place after another: the n-th line of a call that can fail raises an exception.

What is left out: lines without a call, since neither a signal nor a lack of memory can arrive there; the end of a
`with` block, and a lock's release(), which take no memory and are over when the interpreter looks for signals.
"""

from __future__ import annotations

import dis
import linecache
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any

from tests.fakes.interrupts import Place

_LEFT_OUT = (".release()",)


class FailingLine:
    """A trace function that counts the lines that can fail, and raises an error at one of them.

    Args: error: what is raised; at: the number of the line at which it is, from 0 on, None for nowhere; watched: parts
        of the paths of the files that are looked at.
    Attributes: places: where the lines are that were counted; has_raised.
    """

    def __init__(self, error: type[BaseException], at: int | None = None, *, watched: str = "/kstore/") -> None:
        self._error = error
        self._at = at
        self._watched = watched
        self._visits: Counter[tuple[CodeType, int]] = Counter()
        self.places: list[Place] = []
        self.has_raised = False

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "call":
            name = frame.f_code.co_filename
            return self if self._watched in name and "/tests/" not in name else None
        if event == "line" and frame.f_lasti in _starts_that_can_fail(frame.f_code):
            key = frame.f_code, frame.f_lasti
            self._visits[key] += 1
            self.places.append(Place(*key, self._visits[key]))
            if len(self.places) - 1 == self._at:
                self.has_raised = True
                raise self._error
        return self

    def run(self, call: Callable[[], object]) -> BaseException | None:
        """Make a call, and return the error that ended it, if it is the one that was raised here."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            call()
        except BaseException as error:
            if not self.has_raised:
                raise
            return error
        finally:
            sys.settrace(before)
        return None


@cache
def _starts_that_can_fail(code: CodeType) -> frozenset[int]:
    """Return the positions at which a line begins that has a call, or the end of a loop."""
    instructions = list(dis.get_instructions(code))
    starts = [number for number, one in enumerate(instructions) if one.starts_line is not None]
    found = set()
    for number, end in zip(starts, [*starts[1:], len(instructions)], strict=True):
        line = instructions[number:end]
        names = [one.opname for one in line]
        if not any(name.startswith(("CALL", "JUMP_BACKWARD", "BUILD", "FOR_ITER")) for name in names):
            continue
        # The value of a `return` is below the arguments of __exit__.
        steps = [(one.opname, one.argval) for one in line if one.opname not in ("SWAP", "NOP")]
        is_exit = steps[:3] == [("LOAD_CONST", None)] * 3
        text = linecache.getline(code.co_filename, line[0].starts_line or 0).strip()
        if not is_exit and not text.endswith(_LEFT_OUT):
            found.add(line[0].offset)
    return frozenset(found)
