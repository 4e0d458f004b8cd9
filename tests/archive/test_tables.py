"""Goal: a table gets each record once, in as many runs as it takes, wherever one of them ends.
Method: Delta Lake and Iceberg (a SQL catalog on SQLite) in temporary directories; runs that fail before, in and after a
commit, and two at a time; the rows are counted and compared."""

from __future__ import annotations

import json
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kstore
from kstore.archive.options import export_options
from kstore.archive.tables import appending, stored
from kstore.archive.tables import rows as rows_of_tables
from kstore.archive.tables.appending import TableSummary, export_to_table
from kstore.errors import (
    CorruptRecordError,
    ExportError,
    ExportOptionsError,
    ExportSourceError,
    ExportTablesError,
    SchemaNotFoundError,
)
from kstore.types import MAX_OFFSET
from tests.cli.runner import runner
from tests.making.avro_values import encoded
from tests.making.exporting import Row, grow, rows_of_source
from tests.making.rides import ROWS, V3, append_ride, write_rides
from tests.values.test_resolution import record

deltalake = pytest.importorskip("deltalake")
pyiceberg = pytest.importorskip("pyiceberg")
Config = pytest.importorskip("pyiceberg.utils.config").Config
pytestmark = pytest.mark.filterwarnings("ignore")
REPOSITORY = Path(__file__).resolve().parents[2]
OPTIONS = export_options("parquet", file_bytes=4096)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    grow(root, 100)
    return root


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "delta":
        yield f"delta:{tmp_path / 'table'}"
        return
    for name, value in catalog_variables(tmp_path).items():
        monkeypatch.setenv(name, value)
    # It reads the variables once in a process.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    yield "iceberg:local.kafka.orders"


def catalog_variables(directory: Path) -> dict[str, str]:
    (directory / "warehouse").mkdir(exist_ok=True)
    prefix = "PYICEBERG_CATALOG__LOCAL__"
    return {
        f"{prefix}TYPE": "sql",
        f"{prefix}URI": f"sqlite:///{directory}/catalog.db",
        f"{prefix}WAREHOUSE": f"file://{directory}/warehouse",
    }


def arrow_of(table: str) -> Any:
    kind, _, name = table.partition(":")
    if kind == "delta":
        return deltalake.DeltaTable(name).to_pyarrow_table()
    from pyiceberg.catalog import load_catalog

    catalog, _, identifier = name.partition(".")
    return load_catalog(catalog).load_table(identifier).scan().to_arrow()


def rows_of(table: str) -> list[Row]:
    found = arrow_of(table)
    columns = [found.column(one).to_pylist() for one in ("topic", "partition", "offset", "value")]
    return sorted(Row(*row) for row in zip(*columns, strict=True))


def export(source: Path, table: str, **options: Any) -> TableSummary:
    return export_to_table(source, table, OPTIONS, **options)


def test_each_run_appends_what_is_new(source: Path, table: str) -> None:
    first = export(source, table)
    assert first.new_records == 200
    assert first.commits > 1
    assert rows_of(table) == rows_of_source(source)
    assert export(source, table).new_records == export(source, table).commits == 0
    for _ in range(2):
        grow(source, 30)
        assert export(source, table).new_records == 60
        assert rows_of(table) == rows_of_source(source)


@pytest.mark.parametrize("when", ["before", "in", "after"])
def test_run_that_ends_around_a_commit_is_continued(
    source: Path, table: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = stored._DeltaTable if table.startswith("delta") else stored._IcebergTable
    kept, calls = kind.append, 0

    def append(self: Any, rows: Any, ends: Any, **options: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2 and when == "before":
            raise ValueError("stopped")
        if calls == 2 and when == "in":
            rows = broken(rows)
        kept(self, rows, ends, **options)
        if calls == 2 and when == "after":
            raise ValueError("stopped")

    monkeypatch.setattr(kind, "append", append)
    with pytest.raises(Exception, match="stopped"):
        export(source, table)
    there = rows_of(table)
    assert 0 < len(there) < 200
    export(source, table)
    assert rows_of(table) == rows_of_source(source)


def broken(rows: Any) -> Any:
    import pyarrow as pa

    def batches() -> Iterator[Any]:
        yield rows.read_next_batch()
        raise ValueError("stopped")

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


def test_run_that_is_overtaken_after_one_of_its_commits_appends_no_record_twice(
    source: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if table.startswith("delta"):
        place, name = deltalake, "write_deltalake"
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        place, name = SqlCatalog, "commit_table"
    commit, commits = getattr(place, name), 0

    def overtaken(*args: Any, **options: Any) -> Any:
        nonlocal commits
        answer = commit(*args, **options)
        commits += 1
        # The first one of Iceberg creates the table.
        if commits == 2:
            export(source, table)
        return answer

    monkeypatch.setattr(place, name, overtaken)
    with pytest.raises(ExportError, match="another writer committed"):
        export(source, table)
    assert rows_of(table) == rows_of_source(source)


def test_run_that_is_overtaken_by_another_appends_nothing(
    source: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(source, table)
    grow(source, 20)
    kind = stored._DeltaTable if table.startswith("delta") else stored._IcebergTable
    kept = kind.append
    others: list[int] = []

    def append(self: Any, rows: Any, ends: Any, **options: Any) -> None:
        if not others:
            others.append(1)
            assert export(source, table).new_records == 40
        kept(self, rows, ends, **options)

    monkeypatch.setattr(kind, "append", append)
    with pytest.raises(ExportError, match="another writer committed"):
        export(source, table)
    assert rows_of(table) == rows_of_source(source)
    assert export(source, table).new_records == 0


def test_partition_of_another_source_is_refused(source: Path, table: str, tmp_path: Path) -> None:
    export(source, table)
    grow(tmp_path / "other", 120)
    with pytest.raises(ExportOptionsError, match=f"orders-0 of another source: '{source}' there") as refused:
        export(tmp_path / "other", table)
    assert refused.value.differences == {"source": (str(source), str(tmp_path / "other"))}
    shutil.rmtree(tmp_path / "other")
    grow(tmp_path / "other", 30, topic="payments")
    assert export(tmp_path / "other", table).new_records == 60
    assert rows_of(table) == rows_of_source(source) + rows_of_source(tmp_path / "other", topic="payments")


def test_topic_that_was_deleted_and_created_again_is_refused(source: Path, table: str) -> None:
    export(source, table)
    shutil.rmtree(source)
    grow(source, 150)
    with pytest.raises(ExportSourceError, match=r"go on at offset 100, the log holds 0 to 150: .* created again"):
        export(source, table)


def test_table_that_notes_no_sources_gets_them(source: Path, table: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored.Mark, "texts", {})
        export(source, table)
    grow(source, 30)
    assert export(source, table).new_records == 60
    with pytest.raises(ExportOptionsError):
        export(shutil.copytree(source, tmp_path / "other"), table)


def test_export_from_latest_begins_where_the_logs_end_at_the_first_run(source: Path, table: str) -> None:
    options = export_options("parquet", start_offset=MAX_OFFSET)
    assert export_to_table(source, table, options).new_records == 0
    grow(source, 30)
    assert export_to_table(source, table, options).new_records == 60
    assert rows_of(table) == rows_of_source(source, start=100)


def test_column_that_was_added_to_the_table_is_null_in_new_rows(source: Path, table: str) -> None:
    export(source, table)
    kind, _, name = table.partition(":")
    if kind == "delta":
        column = deltalake.Field("note", deltalake.schema.PrimitiveType("string"), nullable=True)
        deltalake.DeltaTable(name).alter.add_columns([column])
    else:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.types import StringType

        catalog, _, identifier = name.partition(".")
        with load_catalog(catalog).load_table(identifier).update_schema() as update:
            update.add_column("note", StringType())
    grow(source, 30)
    assert export(source, table).new_records == 60
    assert rows_of(table) == rows_of_source(source)


def test_other_columns_than_those_of_the_table_are_an_error(source: Path, tmp_path: Path) -> None:
    table = f"delta:{tmp_path / 'table'}"
    export(source, table)
    grow(source, 30)
    with pytest.raises(ExportError, match="SchemaMismatchError"):
        export_to_table(source, table, export_options("parquet", columns=["value"]))
    assert len(rows_of(table)) == 200


def test_damage_of_the_source_is_told_as_that(source: Path, table: str) -> None:
    path = sorted((source / "orders-0").glob("*.log"))[0]
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptRecordError) as damaged:
        export(source, table)
    assert damaged.value.path == str(path)


def test_interrupt_while_rows_are_read_is_told_as_that(source: Path, table: str) -> None:
    def interrupt(_size: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(source, table, on_bytes=interrupt)
    export(source, table)
    assert rows_of(table) == rows_of_source(source)


def test_errors_of_the_package_are_errors_of_the_export_in_one_line(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    for name in (f"delta:{tmp_path / 'file'}", "iceberg:missing.kafka.orders"):
        with pytest.raises(ExportError, match=f"cannot write {name}: ") as failed:
            export(source, name)
        assert failed.value.path == name
        assert not set(str(failed.value)) & {"\n", "\x1b"}


@pytest.mark.parametrize(("name", "message"), [("s3://x", "a table must be delta:URI"), ("iceberg:t", "NAMESPACE")])
def test_other_names_of_tables_are_refused(source: Path, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        export(source, name)


def test_batches_as_they_are_cannot_be_rows(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be written to a table"):
        export_to_table(source, f"delta:{tmp_path}/t", export_options("kstore"))


@pytest.mark.long
def test_command_killed_at_random_instants_appends_each_record_once(source: Path, table: str, tmp_path: Path) -> None:
    rng = random.Random(5)
    command = [sys.executable, "-m", "kstore", "export", str(source), "--to-table", table, "--file-bytes", "4096"]
    began = time.monotonic()
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    longest = time.monotonic() - began
    killed = 0
    for _ in range(20):
        grow(source, 40)
        with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                process.wait(rng.uniform(0.4, 1) * longest)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                killed += 1
        there = rows_of(table)
        assert there == sorted(set(there))
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    assert rows_of(table) == rows_of_source(source)
    assert killed > 5


@pytest.fixture
def rides(tmp_path: Path) -> Path:
    return write_rides(tmp_path / "rides")


TYPED = export_options("parquet", topics=["rides"], value="avro", key="avro")
OTHER = record(("id", "string"), ("carrier", "string"))


def values_of(table: str) -> list[Any]:
    values: list[Any] = arrow_of(table).sort_by("offset").column("value").to_pylist()
    return values


def test_values_are_columns_of_a_table_to_which_newer_schemas_add_fields(rides: Path, table: str) -> None:
    assert export_to_table(rides, table, TYPED).new_records == 6
    assert values_of(table) == ROWS
    reasons = arrow_of(table).sort_by("offset").column("_corrupt_value").to_pylist()
    assert [reason is not None for reason in reasons] == [False, False, False, True, True, False]
    append_ride(rides, 20, V3, id=7, delay=1, gate="A1")
    assert export_to_table(rides, table, TYPED).new_records == 1
    *before, last = values_of(table)
    assert last == {"id": 7, "carrier": None, "delay": 1, "gate": "A1"}
    assert before == [row and {**row, "gate": None} for row in ROWS]
    assert export_to_table(rides, table, TYPED).new_records == 0


def test_a_table_refuses_a_type_that_changed_with_both(rides: Path, table: str) -> None:
    export_to_table(rides, table, TYPED)
    append_ride(rides, 20, OTHER, id="x", carrier="AA")
    with pytest.raises(ExportOptionsError, match=r"value\.id has another type now: int64 there, string by its schema"):
        export_to_table(rides, table, TYPED)
    assert values_of(table) == ROWS


def test_types_that_tables_lack_are_those_nearest_to_them(tmp_path: Path, table: str) -> None:
    schema = record(
        ("stamp", {"type": "long", "logicalType": "timestamp-millis"}),
        ("time", {"type": "int", "logicalType": "time-millis"}),
        ("fixed", {"type": "fixed", "name": "F", "size": 2}),
        ("nothing", "null"),
    )
    fixed = {"type": "fixed", "name": "F", "size": 2}
    plain = record(("stamp", "long"), ("time", "int"), ("fixed", fixed), ("nothing", "null"))
    with kstore.open_store(tmp_path / "plain", "a") as store:
        store.create_topic("t", partitions=1)
    with kstore.open_store(tmp_path / "plain", "a") as store, kstore.Producer(store) as producer:
        producer.send("t", encoded(plain, {"stamp": 86_400_000, "time": 5, "fixed": b"ab", "nothing": None}))
    options = export_options("parquet", value="avro", schema=schema, flatten=True)
    export_to_table(tmp_path / "plain", table, options)
    (row,) = arrow_of(table).to_pylist()
    assert row["stamp"].isoformat() == "1970-01-02T00:00:00+00:00"
    assert (row["time"], row["fixed"], row["nothing"]) == (5, b"ab", None)


def test_a_table_with_a_format_has_no_rows_of_the_schemas(rides: Path, table: str) -> None:
    with pytest.raises(SchemaNotFoundError, match="_schemas has no schema, and cannot be in a table"):
        export_to_table(rides, table, export_options("parquet", value="avro"))


# Dates


def partitions_of(table: str) -> list[str]:
    kind, _, name = table.partition(":")
    if kind == "delta":
        return list(deltalake.DeltaTable(name).metadata().partition_columns)
    from pyiceberg.catalog import load_catalog

    catalog, _, identifier = name.partition(".")
    stored_table = load_catalog(catalog).load_table(identifier)
    return [stored_table.schema().find_column_name(field.source_id) for field in stored_table.spec().fields]


def test_a_new_table_is_partitioned_by_the_date_of_the_timestamp(source: Path, table: str) -> None:
    kstore.export(source, table=table)
    assert partitions_of(table) == ["date"]
    rows = arrow_of(table).select(["timestamp", "date"]).to_pylist()
    assert {row["date"] is None for row in rows} == {True, False}
    assert all(row["date"] == (row["timestamp"] and row["timestamp"].date()) for row in rows)


def test_a_table_has_the_date_of_rows_whose_columns_have_no_timestamp(source: Path, table: str) -> None:
    kstore.export(source, table=table, columns=["value"])
    assert sorted(arrow_of(table).column_names) == ["date", "topic", "value"]
    assert len(set(arrow_of(table).column("date").to_pylist())) == 4


@pytest.mark.parametrize("columns", [("topic", "date"), ("partition",), ()])
def test_a_table_is_partitioned_as_asked(source: Path, table: str, columns: tuple[str, ...]) -> None:
    kstore.export(source, table=table, partition_by=columns)
    grow(source, 30)
    kstore.export(source, table=table)
    assert partitions_of(table) == list(columns)
    assert ("date" in arrow_of(table).column_names) == ("date" in columns)
    assert rows_of(table) == rows_of_source(source)


def test_other_partitions_than_those_of_the_table_are_refused(source: Path, table: str) -> None:
    kstore.export(source, table=table, partition_by="partition")
    grow(source, 30)
    with pytest.raises(ExportOptionsError, match="partitioned by other columns") as refused:
        kstore.export(source, table=table, partition_by=["date"])
    assert refused.value.differences == {"partition_by": (["partition"], ["date"])}
    for wrong in (["nope"], ["date", "date"]):
        with pytest.raises(ValueError, match="partition_by must be some of the columns"):
            kstore.export(source, table=table, partition_by=wrong)


def test_a_stream_is_divided_for_tables_that_take_none(
    source: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_TABLE_BYTES", 6000)
    monkeypatch.setattr(rows_of_tables, "_BATCH_BYTES", 1000)
    kstore.export(source, table=table)
    assert rows_of(table) == rows_of_source(source)
    grow(source, 30)
    kstore.export(source, table=table)
    assert rows_of(table) == rows_of_source(source)


JSON_TYPES = {
    "whole": (pa.string(), pa.json_()),
    "field": (pa.struct([("a", pa.string())]), pa.struct([("a", pa.json_())])),
    "list": (pa.struct([("a", pa.list_(pa.string()))]), pa.struct([("a", pa.list_(pa.json_()))])),
    "deep": (
        pa.struct([("l", pa.list_(pa.struct([("a", pa.string())])))]),
        pa.struct([("l", pa.list_(pa.struct([("a", pa.json_())])))]),
    ),
}


@pytest.mark.parametrize(("kind", "flatten"), [("whole", False), ("field", True), ("list", True), ("deep", False)])
def test_plain_text_and_json_as_text_are_not_in_one_column_of_a_table(
    tmp_path: Path, table: str, kind: str, flatten: bool
) -> None:
    value = {"whole": "x", "field": {"a": "x"}, "list": {"a": ["x"]}, "deep": {"l": [{"a": "x"}]}}[kind]
    root = tmp_path / "json"

    def send() -> None:
        with kstore.open_store(root, "a") as store, kstore.Producer(store) as producer:
            producer.send("t", json.dumps(value).encode())

    with kstore.open_store(root, "a") as store:
        store.create_topic("t", partitions=1)
    plain, as_json = (
        export_options("parquet", value="json", schema=each, flatten=flatten) for each in JSON_TYPES[kind]
    )
    tables = {"plain": (table, plain, as_json), "json": (table + "2", as_json, plain)}
    for name, first, second in tables.values():
        for _ in range(2):
            send()
            assert export_to_table(root, name, first).new_records > 0
        before = arrow_of(name)
        send()
        with pytest.raises(ExportOptionsError, match=r"string.* of (JSON|plain text) there"):
            export_to_table(root, name, second)
        assert arrow_of(name) == before


# A table of each topic


@pytest.fixture
def per_topic(table: str) -> str:
    return table.replace("orders", "{topic}") if table.startswith("iceberg") else f"{table}/{{topic}}"


TOPICS = ("orders", "pay.ments", "re-funds_v1")


@pytest.fixture
def topics(source: Path) -> Path:
    for topic in TOPICS[1:]:
        grow(source, 30, topic=topic)
    return source


def stored_name(pattern: str, topic: str) -> str:
    return pattern.replace("{topic}", topic.replace(".", "_").replace("-", "_") if "iceberg" in pattern else topic)


def test_each_topic_has_a_table_of_its_own_that_later_runs_continue(topics: Path, per_topic: str) -> None:
    summary = kstore.export(topics, table=per_topic)
    assert summary.new_records == 320
    assert {place.topic: place.table for place in summary.partitions} == {
        topic: stored_name(per_topic, topic) for topic in TOPICS
    }
    assert kstore.export(topics, table=per_topic).commits == 0
    grow(topics, 20, topic="pay.ments")
    assert kstore.export(topics, table=per_topic, topics=["pay.ments"]).new_records == 40
    for topic in TOPICS:
        assert rows_of(stored_name(per_topic, topic)) == rows_of_source(topics, topic=topic)


def test_a_topic_may_vanish_and_another_one_appear(topics: Path, per_topic: str) -> None:
    kstore.export(topics, table=per_topic)
    before = rows_of(stored_name(per_topic, "orders"))
    for directory in topics.glob("orders-*"):
        shutil.rmtree(directory)
    grow(topics, 10, topic="late")
    assert kstore.export(topics, table=per_topic).new_records == 20
    assert rows_of(stored_name(per_topic, "orders")) == before
    assert rows_of(stored_name(per_topic, "late")) == rows_of_source(topics, topic="late")
    with pytest.raises(ValueError, match="topics not found: orders"):
        kstore.export(topics, table=per_topic, topics=["orders"])


def test_partitions_and_offsets_are_selected_among_all_topics(topics: Path, per_topic: str) -> None:
    shutil.rmtree(topics / "pay.ments-1")
    start = {kstore.TopicPartition("orders", 1): 95}
    summary = kstore.export(topics, table=per_topic, partitions=[0, 1], start_offset=start)
    assert summary.new_records == 100 + 5 + 30 + 60


def test_a_failure_of_one_table_leaves_the_others_written(topics: Path, per_topic: str) -> None:
    path = sorted((topics / "pay.ments-0").glob("*.log"))[0]
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        ExportTablesError, match=r"1 of 3 tables could not be written, the others were: .*ments"
    ) as told:
        kstore.export(topics, table=per_topic)
    (failure,) = told.value.failures.items()
    assert failure[0] == "pay.ments"
    assert isinstance(failure[1], CorruptRecordError)
    assert isinstance(told.value.summary, TableSummary)
    assert told.value.summary.new_records == 260
    again = pickle.loads(pickle.dumps(told.value))
    assert (str(again), again.summary) == (str(told.value), told.value.summary)
    for topic in ("orders", "re-funds_v1"):
        assert rows_of(stored_name(per_topic, topic)) == rows_of_source(topics, topic=topic)
    content[200] ^= 1
    path.write_bytes(content)
    assert kstore.export(topics, table=per_topic).new_records == 60


def test_topics_that_would_share_a_table_are_refused_before_anything_is_written(source: Path, per_topic: str) -> None:
    grow(source, 30, topic="a.b")
    grow(source, 30, topic="a-b")
    if per_topic.startswith("delta"):
        assert kstore.export(source, table=per_topic).new_records == 320
        return
    with pytest.raises(ExportError, match=r"the topics a-b and a\.b would both be in iceberg:local\.kafka\.a_b"):
        kstore.export(source, table=per_topic)
    from pyiceberg.catalog import load_catalog

    assert not load_catalog("local").namespace_exists("kafka")
    kstore.export(source, table=per_topic, topics=["a.b"])
    with pytest.raises(ExportTablesError, match=r"holds other topics than a-b: a\.b"):
        kstore.export(source, table=per_topic, topics=["a-b"])


@pytest.mark.parametrize("partition_by", [[], ["topic"]])
def test_a_table_that_holds_another_topic_is_refused_for_a_table_of_each_topic(
    topics: Path, per_topic: str, partition_by: list[str]
) -> None:
    table = stored_name(per_topic, "pay.ments")
    kstore.export(topics, table=table, topics=["orders"], partition_by=partition_by)
    before = rows_of(table)
    with pytest.raises(ExportTablesError, match=r"holds other topics than pay\.ments: orders"):
        kstore.export(topics, table=per_topic, topics=["pay.ments"])
    assert rows_of(table) == before


def test_a_topic_of_the_longest_name_is_no_other_topic(source: Path, per_topic: str) -> None:
    topic = "t" * 240
    for count in (10, 20):
        grow(source, 10, topic=topic)
        kstore.export(source, table=per_topic, topics=[topic], partition_by=[])
        assert len(rows_of(stored_name(per_topic, topic))) == 2 * count


@pytest.mark.parametrize("failure", [ModuleNotFoundError, NotImplementedError, MemoryError])
def test_a_package_or_memory_that_one_table_lacks_leaves_the_others_written(
    topics: Path, per_topic: str, failure: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = appending._appended

    def failing(work: appending.TableWork, *rest: Any) -> TableSummary:
        if work.topic == "orders":
            raise failure("not here")
        return kept(work, *rest)

    monkeypatch.setattr(appending, "_appended", failing)
    with pytest.raises(ExportTablesError, match="1 of 3 tables could not be written") as told:
        kstore.export(topics, table=per_topic)
    assert isinstance(told.value.failures["orders"], failure)
    assert told.value.summary.new_records == 120


def test_the_command_prints_the_tables_that_were_written_beside_one_that_failed(
    topics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = sorted((topics / "pay.ments-0").glob("*.log"))[0]
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    run = runner(monkeypatch, capsysbinary)
    command = ("export", topics, "--to-table", f"delta:{tmp_path}/tables/{{topic}}")
    printed = run(*command, "--json")
    assert printed.status != 0
    (summary,) = printed.objects()
    assert summary["new_records"] == 260
    printed = run(*command)
    assert printed.status != 0
    assert "re-funds_v1" in printed.out
    assert "1 of 3 tables could not be written" in printed.err


def test_the_topic_is_no_part_of_a_catalog(source: Path) -> None:
    with pytest.raises(ValueError, match="not in its catalog"):
        kstore.export(source, table="iceberg:{topic}.kafka.orders")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({}, "goes either to target, a directory, or to table; got neither"),
        ({"target": "out", "table": "delta:x"}, "got both"),
        ({"target": "out", "partition_by": "date"}, "partition_by is for tables"),
    ],
)
def test_an_export_goes_to_a_directory_or_to_a_table(source: Path, where: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kstore.export(source, **where)


def test_each_topic_with_a_schema_has_its_columns_and_the_schemas_stay_bytes(rides: Path, per_topic: str) -> None:
    assert kstore.export(rides, table=per_topic, value="avro", flatten=True).new_records == 9
    ride = stored_name(per_topic, "rides")
    assert arrow_of(ride).sort_by("offset").column("carrier").to_pylist() == ["AA", "UA", None, None, None, "DL"]
    schemas = arrow_of(stored_name(per_topic, "_schemas"))
    assert all(isinstance(value, bytes) for value in schemas.column("value").to_pylist())
    append_ride(rides, 20, V3, id=7, delay=1, gate="A1")
    assert kstore.export(rides, table=per_topic, value="avro", flatten=True).new_records == 2
    assert arrow_of(ride).sort_by("offset").column("gate").to_pylist() == [None] * 6 + ["A1"]


def test_a_field_named_as_the_date_gets_the_name_of_its_origin(rides: Path, table: str) -> None:
    schema = record(("id", "long"), ("date", "string"), ("topic", "string"))
    append_ride(rides, 20, schema, id=7, date="today", topic="x")
    kstore.export(rides, table=table, topics=["rides"], value="avro", flatten=True)
    last = arrow_of(table).sort_by("offset").to_pylist()[-1]
    assert (last["value_date"], last["value_topic"], last["topic"]) == ("today", "x", "rides")
    assert last["date"] == last["timestamp"].date()
