"""Goal: each row of the hostile tables is refused with bounded work and bounded memory of the process.

Method: work is counted in calls of functions, memory is the resident size of a child per row; what that takes in ms is
printed by `python -m tests.fuzz.hostile_report` and asserted nowhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.fuzz import hostile_report
from tests.hostile.test_input import LIMIT
from tests.reference.verdicts import Refused, column_verdict, core_batch_verdict

ROOT = Path(__file__).parents[2]
# A thousand gzip members, the most without content, at eight calls each, and room for those with content.
MOST_CALLS = 10_000
COSTS = "import json; from tests.fuzz.hostile_report import costs; print(json.dumps(dict(costs(rounds=1))))"


def calls_of(work: Callable[..., Any], *arguments: Any) -> int:
    """The calls of functions, those of the codec packages too."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work(*arguments)
    finally:
        sys.setprofile(before)
    return count


def test_calls_are_counted() -> None:
    assert calls_of(lambda: [abs(number) for number in range(50)]) >= 50


def test_each_row_is_refused_with_bounded_work() -> None:
    for name, data in hostile_report.rows():
        assert calls_of(refuse, core_batch_verdict, data) < MOST_CALLS, name
        assert calls_of(refuse, column_verdict, data) < MOST_CALLS, name


def refuse(read: Callable[..., object], data: bytes) -> None:
    assert isinstance(read(data, limit=LIMIT), Refused)


@pytest.mark.timeout(300)
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer keeps freed memory")
def test_resident_memory_stays_bounded_row_by_row() -> None:
    done = subprocess.run([sys.executable, "-c", COSTS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {name: hostile_report.Cost(*cost) for name, cost in json.loads(done.stdout).items()}
    assert len(rows) > 200
    for name, cost in rows.items():
        assert "crashed" not in cost.errors, name
        assert cost.grown_bytes <= cost.most_bytes, name
