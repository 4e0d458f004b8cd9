"""Goal: what docs/export.md says about reading an exported directory is so, in each engine and for each topic.
Method: the page's own snippets, run on exports whose topics look like numbers and dates and whose schema has grown."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import kstore
from tests.making.exporting import grow
from tests.making.rides import ROWS, V3, append_ride, write_rides
from tests.repo.snippets import ROOT, snippets_of

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")
TOPICS = ["1234", "007", "1.5", "1e3", "2024-01-01", "true", "null", "_hidden"]
HIVE = ds.partitioning(pa.schema([("topic", pa.string()), ("date", pa.date32())]), flavor="hive")
LAST = {"id": 7, "carrier": None, "delay": 1, "gate": "A1"}


def snippet(start: str) -> str:
    (found,) = [each.code for each in snippets_of(ROOT / "docs/export.md") if each.code.startswith(start)]
    return found


def ran(start: str, directory: Path, monkeypatch: pytest.MonkeyPatch, *, code: str | None = None) -> dict[str, Any]:
    """Run a snippet of the page, or `code` of it, in a directory and return its names."""
    monkeypatch.chdir(directory)
    names: dict[str, Any] = {}
    exec(compile(code or snippet(start), start, "exec"), names)
    return names


def polars_frame(directory: Path) -> Any:
    kinds = {"topic": pl.String, "date": pl.Date}
    scan = pl.scan_parquet(f"{directory}/archive/**/*.parquet", hive_partitioning=True, hive_schema=kinds)
    return scan.select("topic", "date", "timestamp").collect().to_arrow()


def duckdb_frame(directory: Path) -> Any:
    types = "hive_types={'topic': VARCHAR, 'date': DATE}"
    found = duckdb.sql(f"SELECT topic, date FROM read_parquet('{directory}/archive/**/*.parquet', {types})")
    return found.to_arrow_table()


def pyarrow_frame(directory: Path) -> Any:
    return ds.dataset(str(directory / "archive"), partitioning=HIVE).to_table(columns=["topic", "date"])


def pandas_frame(directory: Path) -> Any:
    frame = pd.read_parquet(directory / "archive", columns=["topic", "date"], partitioning=HIVE)
    return pa.Table.from_pandas(frame)


FRAMES = [polars_frame, duckdb_frame, pyarrow_frame, pandas_frame]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directories = {}
    for topic in TOPICS:
        directories[topic] = directory = tmp_path_factory.mktemp("reading")
        grow(directory / "source", 20, topic=topic)
        kstore.export(directory / "source", directory / "archive")
    return directories


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_is_text_and_a_date_a_date_whatever_they_look_like(
    exported: dict[str, Path], frame: Any, topic: str
) -> None:
    rows = frame(exported[topic])
    assert set(rows["topic"].to_pylist()) == {topic}
    dates = rows["date"].to_pylist()
    assert {type(day) for day in dates} == {date, type(None)}
    assert (len(dates), dates.count(None), min(filter(None, dates))) == (40, 2, date(2022, 1, 8))


@pytest.mark.parametrize(
    "start", ["import duckdb\n\nfiles", "import polars as pl\n\ndirectories", "import pandas as pd\n"]
)
def test_the_snippets_read_topics_that_look_like_numbers(
    exported: dict[str, Path], start: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(start, exported["007"], monkeypatch)
    assert capsys.readouterr().out


@pytest.fixture(params=[False, True])
def is_flat(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def rides(tmp_path: Path, is_flat: bool) -> Path:
    root = write_rides(tmp_path / "root")
    options: dict[str, Any] = {"topics": ["rides"], "value": "avro", "flatten": is_flat}
    kstore.export(root, tmp_path / "rides", **options)
    append_ride(root, 20, V3, id=7, delay=1, gate="A1")
    kstore.export(root, tmp_path / "rides", **options)
    return tmp_path


def check_values(rows: list[dict[str, Any]], is_flat: bool) -> None:
    if is_flat:
        assert [row["gate"] for row in rows] == [None] * 6 + ["A1"]
        assert [row["id"] for row in rows] == [1, 2, None, None, None, 4, 7]
    else:
        assert [row["value"] for row in rows] == [row and {**row, "gate": None} for row in ROWS] + [LAST]


def test_duckdb_joins_the_schemas_of_all_files(rides: Path, is_flat: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    code = snippet("import duckdb\n\nrides").partition("print")[0]
    names = ran("import duckdb", rides, monkeypatch, code=code)
    check_values(names["rides"].order('"offset"').to_arrow_table().to_pylist(), is_flat)


def test_pyarrow_pandas_and_polars_take_the_schema_of_all_files(
    rides: Path, is_flat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ran("from pathlib", rides, monkeypatch)
    check_values(names["dataset"].to_table().sort_by("offset").to_pylist(), is_flat)
    check_values(pa.Table.from_pandas(names["frame"]).sort_by("offset").to_pylist(), is_flat)
    check_values(names["lazy"].sort("offset").collect().to_arrow().to_pylist(), is_flat)
