"""Goal: the tables of other libraries have the rows of the log, and their queries read only what they need.
Method: random filters through Polars and DuckDB against the same filter over all rows; what is planned for a query;
expressions that look like others; files that change between planning and a query."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.arrow import Scan, scan
from kstore.arrow.frames import NO_BOUNDS, Bounds, bounds_of_arrow, bounds_of_polars
from kstore.config import LogConfig
from kstore.errors import LogReplacedError
from kstore.record import MemoryRecords, Record
from kstore.store.opening import open_log
from tests.making.batches import FIRST_TIMESTAMP_MS, batches, write_root

COUNT = 40
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SOME_TOPICS = ("orders", "clicks")
INTERVAL = LogConfig(index_interval_bytes=0)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics of two partitions with forty records each, in segments of ten."""
    path = tmp_path_factory.mktemp("frames")
    segments = [batches(first, 10, value_bytes=50) for first in range(0, COUNT, 10)]
    write_root(path, {f"{topic}-{number}": segments for topic in SOME_TOPICS for number in range(2)})
    return path


@pytest.fixture(scope="module")
def scanned(root: Path) -> Scan:
    return scan(root)


@pytest.fixture(scope="module")
def rows(scanned: Scan) -> pl.DataFrame:
    return scanned.to_polars()


def time(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


def size_within(part: Scan) -> int:
    return sum(one.size_in_bytes for one in part.ranges)


# Whole tables


def test_polars_and_pandas_have_the_rows_of_the_scan(scanned: Scan) -> None:
    expected = scanned.to_table()
    assert expected.num_rows == 4 * COUNT
    assert scanned.to_polars().to_arrow().equals(pl.DataFrame(expected).to_arrow())
    pd.testing.assert_frame_equal(scanned.to_pandas(), expected.to_pandas())
    assert scanned.to_pandas()["value"].tolist() == expected["value"].to_pylist()


def test_pandas_keeps_arrows_types_where_it_is_told_to(scanned: Scan) -> None:
    kept = scanned.to_pandas(types_mapper=pd.ArrowDtype)
    assert [str(kept.dtypes[name]) for name in ("value", "offset")] == ["binary[pyarrow]", "int64[pyarrow]"]


# Queries

OFFSETS = st.integers(-2, COUNT + 2)
TIMES = st.integers(FIRST_TIMESTAMP_MS - 5, FIRST_TIMESTAMP_MS + COUNT + 5).map(time)


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[pl.Expr, str]:
    """The same comparison for Polars and in SQL."""
    operator = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "<>"]))
    name, literal = draw(
        st.one_of(
            st.tuples(st.just("offset"), OFFSETS),
            st.tuples(st.just("partition"), st.integers(0, 2)),
            st.tuples(st.just("timestamp"), TIMES),
            st.tuples(st.just("topic"), st.sampled_from([*SOME_TOPICS, "none", 'a" and (offset >= 39) and "', "a'b"])),
        )
    )
    column, value = pl.col(name), pl.lit(literal)
    if isinstance(literal, datetime):
        text = f"TIMESTAMPTZ '{literal.isoformat()}'"
    else:
        text = "'" + literal.replace("'", "''") + "'" if isinstance(literal, str) else str(literal)
    expression = {
        "=": column == value,
        "<": column < value,
        "<=": column <= value,
        ">": column > value,
        ">=": column >= value,
        "<>": column != value,
    }[operator]
    if draw(st.booleans()):
        mirrored = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<>": "<>"}[operator]
        return expression, f'{text} {mirrored} "{name}"'
    return expression, f'"{name}" {operator} {text}'


def joined(conditions: st.SearchStrategy[tuple[pl.Expr, str]]) -> st.SearchStrategy[tuple[pl.Expr, str]]:
    both = st.tuples(conditions, conditions)
    return st.one_of(
        both.map(lambda two: (two[0][0] & two[1][0], f"({two[0][1]} AND {two[1][1]})")),
        both.map(lambda two: (two[0][0] | two[1][0], f"({two[0][1]} OR {two[1][1]})")),
        conditions.map(lambda one: (~one[0], f"(NOT {one[1]})")),
        st.tuples(OFFSETS, OFFSETS).map(
            lambda two: (pl.col("offset").is_between(*two), f'"offset" BETWEEN {two[0]} AND {two[1]}')
        ),
    )


@given(condition=st.recursive(comparisons(), joined, max_leaves=4))
def test_query_gives_the_rows_that_the_filter_leaves(
    scanned: Scan, rows: pl.DataFrame, condition: tuple[pl.Expr, str]
) -> None:
    expression, text = condition
    expected = rows.filter(expression).select("topic", "partition", "offset")
    lazy = scanned.to_polars_lazy().filter(expression).select("topic", "partition", "offset")
    assert lazy.collect().rows() == expected.rows()
    with duckdb.connect() as connection:
        scanned.to_duckdb(connection, "records")
        query = f'SELECT topic, "partition", "offset" FROM records WHERE {text}'
        assert sorted(connection.sql(query).fetchall()) == sorted(expected.rows())


def test_query_for_no_column_counts_the_rows(scanned: Scan) -> None:
    assert scanned.to_polars_lazy().select(pl.len()).collect().item() == 4 * COUNT
    with duckdb.connect() as connection:
        assert scanned.to_duckdb(connection, "records").aggregate("count(*)").fetchall() == [(4 * COUNT,)]


@pytest.mark.parametrize("count", [0, 1, 39, 41, 1000])
def test_first_rows_are_those_of_the_scan(scanned: Scan, rows: pl.DataFrame, count: int) -> None:
    assert scanned.to_polars_lazy().head(count).collect().equals(rows.head(count))
    late = pl.col("offset") >= 30
    assert scanned.to_polars_lazy().head(count).filter(late).collect().equals(rows.head(count).filter(late))
    assert scanned.to_polars_lazy().filter(late).head(count).collect().equals(rows.filter(late).head(count))


@pytest.mark.parametrize("query", ['SELECT topic, "offset" FROM t LIMIT 3', "FROM t"])
def test_process_ends_after_a_query_that_duckdb_did_not_read_to_its_end(tmp_path: Path, query: str) -> None:
    """A reader that was left would keep threads that call Python while the interpreter ends."""
    directory = tmp_path / "t-0"
    with open_log(directory, "a") as log:
        # Far more than any reader reads ahead.
        for _ in range(120):
            log.append([Record(value=bytes(1000), timestamp_ms=0)] * 500)
    lines = [
        "import duckdb, kstore",
        "connection = duckdb.connect()",
        f"kstore.scan({str(directory)!r}).to_duckdb(connection, 't')",
        f"print(len(str(connection.sql({query!r}))))",
    ]
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_query_reads_the_columns_that_it_needs(scanned: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    narrowed = Scan._narrowed

    def noted(self: Scan, *arguments: Any, **options: Any) -> Scan:
        part = narrowed(self, *arguments, **options)
        asked.append(part.schema.names)
        return part

    monkeypatch.setattr(Scan, "_narrowed", noted)
    scanned.to_polars_lazy().filter(pl.col("offset") > 5).select("key").collect()
    with duckdb.connect() as connection:
        scanned.to_duckdb(connection, "records").filter("\"offset\" > 5 AND topic = 'clicks'").project("key").fetchall()
    assert [sorted(names) for names in asked] == [["key", "offset"], ["key", "offset", "topic"]]


def test_scans_with_views_and_texts_can_be_queried_too(root: Path) -> None:
    scanned = scan(root, binary="view", strings=["key"])
    expected = [f"key {number}" for number in range(3)]
    assert all(isinstance(key, str) for key in scanned.to_polars()["key"])
    with duckdb.connect() as connection:
        relation = scanned.to_duckdb(connection, "records")
        found = relation.filter('"offset" < 3 AND topic = \'clicks\' AND "partition" = 1').project("key, value")
        table = found.fetchall()
    assert len(table) == len(expected)
    assert all(isinstance(key, str) and isinstance(value, bytes) for key, value in table)


# What is planned


@pytest.mark.parametrize(
    ("bounds", "share", "count"),
    [
        (NO_BOUNDS, 1.0, 160),
        (Bounds(topic="clicks"), 0.5, 80),
        (Bounds(partition=1), 0.5, 80),
        (Bounds(topic="none"), 0.0, 0),
        (Bounds(start_offset=30), 0.26, 40),
        (Bounds(end_offset=10), 0.26, 40),
        (Bounds(start_offset=12, end_offset=13), 0.26, 4),
        (Bounds(since_ms=FIRST_TIMESTAMP_MS + 30_000), 0.26, 40),
        # Without indexes the end of the log is not known before it is read.
        (Bounds(start_offset=COUNT), 0.26, 40),
    ],
)
def test_bounds_leave_out_partitions_and_segments(scanned: Scan, bounds: Bounds, share: float, count: int) -> None:
    part = scanned._narrowed(["offset"], bounds)
    assert size_within(part) <= share * size_within(scanned)
    assert part.to_table().num_rows == count


@pytest.mark.parametrize(
    ("bounds", "offsets"),
    [
        (Bounds(start_offset=30), range(30, 40)),
        (Bounds(end_offset=11), range(11)),
        (Bounds(start_offset=12, end_offset=13), range(12, 13)),
        (Bounds(since_ms=FIRST_TIMESTAMP_MS + 25), range(25, 40)),
        (Bounds(start_offset=COUNT), range(0)),
    ],
)
def test_bounds_leave_out_what_the_indexes_lead_past(tmp_path: Path, bounds: Bounds, offsets: range) -> None:
    made = batches(0, COUNT, value_bytes=50)
    with open_log(tmp_path / "t-0", "a", INTERVAL) as log:
        log.append_as_follower(MemoryRecords(b"".join(made)))
    scanned = scan(tmp_path)
    part = scanned._narrowed(["offset"], bounds)
    assert part.to_table()["offset"].to_pylist() == list(offsets)
    assert size_within(part) == sum(len(made[offset]) for offset in offsets)


def test_planned_ranges_are_left_out_whole(root: Path) -> None:
    with open_log(root / "orders-0") as log:
        ranges = log.plan(max_bytes=1)
    part = scan(ranges)._narrowed(["offset"], Bounds(start_offset=35))
    assert set(part.ranges) < set(ranges)
    assert part.to_table()["offset"].to_pylist()[-5:] == list(range(35, 40))


def test_query_sees_no_record_that_was_appended_after_the_scan_was_planned(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    with open_log(directory, "a", INTERVAL) as log:
        log.append_as_follower(MemoryRecords(b"".join(batches(0, 10))))
        scanned = scan(directory)
        log.append_as_follower(MemoryRecords(b"".join(batches(10, 10))))
        found = scanned.to_polars_lazy().filter(pl.col("offset") >= 5).select("offset").collect()
    assert found["offset"].to_list() == list(range(5, 10))


def test_query_over_files_that_were_replaced_is_an_error(tmp_path: Path) -> None:
    for name, size in (("one", 50), ("other", 60)):
        (tmp_path / name).mkdir()
        with open_log(tmp_path / name / "t-0", "a", INTERVAL) as log:
            log.append_as_follower(MemoryRecords(b"".join(batches(0, 10, value_bytes=size))))
    scanned = scan(tmp_path / "one")
    for file in (tmp_path / "other" / "t-0").glob("0*"):
        file.replace(tmp_path / "one" / "t-0" / file.name)
    with pytest.raises(LogReplacedError, match="was replaced since the scan was planned"):
        scanned._narrowed(["offset"], Bounds(start_offset=5))


# Expressions


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (pc.field("offset") >= 5, Bounds(start_offset=5)),
        (pc.field("offset") == 5, Bounds(start_offset=5, end_offset=6)),
        (pc.field("offset") < -1, Bounds(end_offset=0)),
        (pc.field("offset") > 2**63 - 1, Bounds(start_offset=2**63 - 1)),
        ((pc.field("offset") > 5) & (pc.field("offset") <= 9), Bounds(start_offset=6, end_offset=10)),
        ((pc.field("offset") > 5) | (pc.field("offset") <= 9), NO_BOUNDS),
        (~(pc.field("offset") > 5), NO_BOUNDS),
        (pc.field("offset") != 5, NO_BOUNDS),
        (pc.field("partition") == 1, Bounds(partition=1)),
        (pc.field("partition") > 1, NO_BOUNDS),
        (pc.field("topic") == "clicks", Bounds(topic="clicks")),
        (pc.field("topic") == 'a" and (offset >= 9) and "b', NO_BOUNDS),
        (pc.field("topic") == 'a\\" and (offset >= 9) and \\"b', NO_BOUNDS),
        (pc.field("key") == "clicks", NO_BOUNDS),
        (pc.field("timestamp") >= pa.scalar(time(1_700_000_000_999)), Bounds(since_ms=1_700_000_000_000)),
        (pc.field("timestamp") < pa.scalar(time(1_700_000_000_999)), NO_BOUNDS),
        (pc.field("timestamp") >= pa.scalar(time(-5000)), NO_BOUNDS),
        (pc.is_in(pc.field("offset"), pa.array([3, 4])), NO_BOUNDS),
    ],
)
def test_bounds_of_an_arrow_expression_are_those_of_its_conditions(expression: Any, expected: Bounds) -> None:
    assert bounds_of_arrow(str(expression)) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (pl.col("offset") >= 5, Bounds(start_offset=5)),
        (pl.lit(5) >= pl.col("offset"), Bounds(end_offset=6)),
        (pl.col("offset").is_between(3, 7), Bounds(start_offset=3, end_offset=8)),
        ((pl.col("offset") > 5) | (pl.col("offset") <= 9), NO_BOUNDS),
        (pl.col("offset") > pl.col("partition"), NO_BOUNDS),
        (pl.col("offset") > 5.5, NO_BOUNDS),
        (pl.col("offset").map_batches(lambda offsets: offsets > 5, pl.Boolean), NO_BOUNDS),
        (pl.col("topic") == "clicks", Bounds(topic="clicks")),
        (pl.col("timestamp") >= time(1_700_000_000_999), Bounds(since_ms=1_700_000_000_999)),
        (pl.col("timestamp") >= time(-5000), NO_BOUNDS),
    ],
)
def test_bounds_of_a_polars_expression_are_those_of_its_conditions(expression: pl.Expr, expected: Bounds) -> None:
    assert bounds_of_polars(expression) == expected
