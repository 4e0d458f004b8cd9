"""Goal: a producer before a slow sink takes no more memory than it was given, and send() gives up when it was told to.
Method: a process of its own that sends without a pause; its own measure of its memory and of the longest send()."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crash.slow_sink_producer import BUFFER_MEMORY, MAX_BLOCK_MS

ROOT = Path(__file__).resolve().parents[2]
ALLOWED_BYTES = BUFFER_MEMORY + 32 * 1024 * 1024
ALLOWED_MS = MAX_BLOCK_MS + 50

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")


def slow_sink(seconds: float) -> dict[str, Any]:
    command = (sys.executable, "-m", "tests.crash.slow_sink_producer", str(seconds))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_memory_stays_within_the_buffer_and_send_is_refused_in_place_of_more() -> None:
    found = slow_sink(2)
    assert found["held"] > BUFFER_MEMORY * 0.9
    assert found["grown"] < ALLOWED_BYTES
    assert found["refused"] > 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_memory_and_blocking_stay_within_their_bounds_for_ten_minutes() -> None:
    found = slow_sink(600)
    assert found["grown"] < ALLOWED_BYTES
    assert found["refused"] > 0
    assert found["longest_ms"] < ALLOWED_MS
