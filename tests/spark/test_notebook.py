"""Goal: the notebook of examples/notebooks that uses Spark runs from top to bottom and shows what it says.
Method: its cells are run in order in the session of the tests, which stays open."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.making.notebooks import PLACE, outputs_of

pytestmark = pytest.mark.spark


def test_notebook_reads_and_writes_with_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PLACE)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    counts, written, shown, _ = outputs_of("spark")
    assert "36097" in counts
    assert written == ""
    assert "|N713MQ|  261|" in shown
    assert shown.count("\n|") == 11
