"""Goal: the notebooks of examples/notebooks run from top to bottom and show what they say.
Method: their cells are run in order, and what the last line of each shows is looked at; tests/spark has the third."""

from __future__ import annotations

import pytest

from tests.making.notebooks import NAMES, PLACE, cells_of, outputs_of

RECORDS = "36097"


@pytest.fixture(autouse=True)
def in_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PLACE)


@pytest.mark.parametrize("name", NAMES)
def test_notebook_is_kept_without_outputs(name: str) -> None:
    first, *cells = cells_of(name)
    assert first["source"][0].startswith("# ")
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []


def test_notebook_explores_a_disk(capsys: pytest.CaptureFixture[str]) -> None:
    store, log, scan, rows, by_partition, health = outputs_of("explore")
    assert "flights-lz4" in store
    assert RECORDS in log.replace(",", "")
    assert "<table" in scan
    assert int(rows) > 0
    assert by_partition.count("offset_count") == 3
    assert "<table" in health
    assert "verify: 100%" in capsys.readouterr().err


def test_notebook_finds_and_salvages_damage() -> None:
    before, damaged, refused, foretold, recovered, after, _ = outputs_of("salvage")
    assert before == RECORDS
    assert "<table" in damaged
    assert "CRC" in refused
    assert foretold.count("<table") == recovered.count("<table") >= 1
    lost, count = (int(word) for word in after.split()[:4] if word.isdigit())
    assert 0 < lost < count == int(RECORDS)
