"""Goal: common calls stay short.
Method: count the Python frames and files of kstore that they enter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repo.flows import append, entered_by, scan_to_table

pytestmark = pytest.mark.traces


def test_common_append_enters_no_frame(tmp_path: Path) -> None:
    with append(tmp_path) as call:
        call()
        entered = entered_by(call)
    assert (entered.frames, entered.files) == (0, 0)


def test_scan_to_a_table_that_opens_the_log_enters_fewer_than_three_hundred_frames(tmp_path: Path) -> None:
    with scan_to_table(tmp_path) as call:
        call()
        assert entered_by(call).frames < 300
