"""Goal: an object of the core whose __init__ was not called raises errors or does nothing, and ends no process.
Method: tests/core/unmade.py calls every member of such objects; a subclass of a public class forgets its __init__."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kstore.producer import ProducerBatch
from tests.making.source_tree import ROOT


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)


def test_no_member_of_an_object_that_was_not_made_ends_the_process(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "tests.core.unmade")
    assert (done.returncode, done.stdout) == (0, "")


class Forgetful(ProducerBatch):
    def __init__(self) -> None:
        pass


def test_batch_whose_subclass_forgot_its_init_takes_no_records() -> None:
    batch = Forgetful()
    assert batch.try_append(1, None, b"v", (), None, 0) is None
    assert batch.is_full
    assert batch.record_count == 0
    assert "record_count=0" in repr(batch)
    with pytest.raises(ValueError, match="the batch is closed"):
        batch.set_producer_state(producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=False)
    with pytest.raises(ValueError, match="no records any more"):
        batch.seal()
    batch.abort_record_appends()
    batch.deallocate()
    assert Forgetful().record_count == 0
