"""Goal: a stream beside a writer that never rests reads every record once, and takes no more memory and descriptors
with time. Method: long_stream.py for some seconds; for an hour by `python -m tests.spark.stream.long_stream`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.stream.long_stream import run_for


@pytest.mark.parametrize(
    ("seconds", "seed"),
    [(3, 1), pytest.param(300, 2, marks=pytest.mark.long), pytest.param(300, 3, marks=pytest.mark.long)],
)
def test_stream_beside_a_writer_reads_every_record_once(tmp_path: Path, seconds: float, seed: int) -> None:
    outcome = run_for(seconds, seed=seed, directory=tmp_path / "root")
    assert outcome.errors == []
    assert outcome.micro_batches > 0 < outcome.records
