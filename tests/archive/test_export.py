"""Goal: each run adds what is new, once, in files of the promised names, dates and sizes, or says what is wrong.
Method: small roots that grow; the files are read back and compared with the logs and the manifest."""

from __future__ import annotations

import errno
import json
import shutil
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import kstore
from kstore.archive import columns, export, plan, read_manifest
from kstore.archive.columns import directory_of, escaped, rows_by_day
from kstore.archive.manifest import MANIFEST_FILE
from kstore.archive.options import export_options
from kstore.archive.parts import PartResult, Work
from kstore.archive.plan import Source
from kstore.archive.run import local_export, run_export
from kstore.archive.target import STAGING_DIRECTORY
from kstore.archive.tasks import Job, run_part
from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV, Env
from kstore.errors import (
    CorruptManifestError,
    CorruptRecordError,
    ExportError,
    ExportOptionsError,
    ExportSourceError,
    LogLockedError,
    StorageError,
    UnsupportedError,
)
from kstore.log.files.names import PartitionDirectory
from kstore.record import Record
from kstore.store.opening import open_log
from kstore.store.store import open_store
from kstore.types import MAX_OFFSET, TopicPartition
from tests.fakes.faults import Fault, FaultyEnv
from tests.fakes.full_disk import FullEnv
from tests.making.exporting import (
    DAY_MS,
    START_MS,
    TOPIC,
    checked_manifest,
    grow,
    partition_of,
    rows_of_export,
    rows_of_source,
    table_of,
)

FORMATS = ("parquet", "arrow", "kstore")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    grow(root, 200)
    return root


@pytest.mark.parametrize("format", FORMATS)
def test_each_run_adds_what_is_new_and_nothing_twice(source: Path, tmp_path: Path, format: str) -> None:
    target = tmp_path / "out"
    first = export(source, target, format, file_bytes=8192)
    assert (first.new_records, first.was_resumed) == (400, False)
    assert rows_of_export(target) == rows_of_source(source)
    again = export(source, target, format, file_bytes=8192)
    assert (again.new_records, again.new_files, again.record_count) == (0, 0, 400)
    for round_number in range(4):
        grow(source, 30)
        more = export(source, target, format, file_bytes=8192)
        assert (more.new_records, more.record_count) == (60, 400 + 60 * (round_number + 1))
        assert rows_of_export(target) == rows_of_source(source)


@pytest.mark.parametrize("format", FORMATS)
def test_small_files_of_earlier_runs_are_joined(tmp_path: Path, format: str) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    counts, joined = [], 0
    for _ in range(12):
        grow(source, 10, days=0, config=LogConfig())
        joined += export(source, target, format).joined_files
        counts.append(len(checked_manifest(target).files))
    assert rows_of_export(target) == rows_of_source(source)
    assert joined > 0
    # Two partitions, with and without timestamps: log2 of the runs each, and the one of the last run.
    assert max(counts) <= (2 if format == "kstore" else 4) * 5


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_files_without_offsets_and_times_are_joined(tmp_path: Path, format: str) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    joined = 0
    for _ in range(5):
        grow(source, 40)
        joined += export(source, target, format, columns=["value"], row_group_rows=7, file_bytes=20_000).joined_files
    assert joined > 0
    values = []
    whole = {row.offset: row for row in rows_of_source(source) if row.partition == 0}
    for file in checked_manifest(target).files:
        found = table_of(target / file.path).column("value").to_pylist()
        assert len(found) == file.record_count
        assert found[0] == whole[file.first_offset].value.replace(b"/0/", b"/%d/" % file.partition, 1)
        assert found[-1] == whole[file.last_offset].value.replace(b"/0/", b"/%d/" % file.partition, 1)
        values += found
    assert sorted(values) == sorted(row.value for row in rows_of_source(source))


def test_files_are_joined_up_to_the_target_size_only(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    for _ in range(9):
        grow(source, 40, days=0)
        export(source, target, file_bytes=20_000, codec="none")
    sizes = [file.size_in_bytes for file in checked_manifest(target).files]
    assert 10_000 < max(sizes) <= 20_000
    assert rows_of_export(target) == rows_of_source(source)


def test_files_are_in_directories_of_topic_and_date(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(source, target)
    for file in checked_manifest(target).files:
        topic, date, name = file.path.split("/")
        assert topic == f"topic={TOPIC}"
        assert name == f"{TOPIC}-{file.partition}-{file.first_offset:020d}-{file.last_offset:020d}.parquet"
        stamps = table_of(target / file.path).column("timestamp").to_pylist()
        if date == "date=__HIVE_DEFAULT_PARTITION__":
            assert set(stamps) == {None}
            assert file.min_timestamp_ms is file.max_timestamp_ms is None
        else:
            assert {f"date={stamp:%Y-%m-%d}" for stamp in stamps} == {date}
            times = [round(stamp.timestamp() * 1000) for stamp in stamps]
            assert (min(times), max(times)) == (file.min_timestamp_ms, file.max_timestamp_ms)


def test_pyarrow_reads_the_directory_as_a_hive_dataset(source: Path, tmp_path: Path) -> None:
    export(source, tmp_path / "out")
    table = ds.dataset(tmp_path / "out", format="parquet", partitioning="hive").to_table()
    assert table.num_rows == 400
    assert set(table.column("topic").to_pylist()) == {TOPIC}


@pytest.mark.parametrize("topic", ["_schemas", ".hidden", "t" * 249])
def test_readers_of_the_directory_see_topics_of_every_name(tmp_path: Path, topic: str) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    grow(source, 20, topic=topic)
    grow(source, 20)
    export(source, target)
    export(source, target)
    assert rows_of_export(target) == sorted(rows_of_source(source) + rows_of_source(source, topic=topic))
    table = ds.dataset(target, format="parquet", partitioning="hive").to_table()
    assert table.column("topic").to_pylist().count(topic) == table.num_rows // 2 == 40


def test_timestamps_in_any_order_open_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    with open_store(source, "a") as store:
        store.create_topic(TOPIC, 2)
        log = store.log(TOPIC, 0)
        for at in range(60):
            log.append(Record(offset=0, timestamp_ms=START_MS + (at * 7 % 12) * DAY_MS, key=None, value=b"%d" % at))
    opened: list[int] = []
    most = columns.MOST_OPEN_FILES
    kept = columns._DatedFiles.add

    def add(self: columns._DatedFiles, rows: Sequence[columns._Rows]) -> int:
        last = kept(self, rows)
        opened.append(len(self._open))
        return last

    monkeypatch.setattr(columns._DatedFiles, "add", add)
    export(source, target)
    assert max(opened) == most < 12
    assert rows_of_export(target) == rows_of_source(source)


def test_rows_are_divided_by_day_with_nulls_apart_and_in_order() -> None:
    stamps = [0, None, DAY_MS * 1000, 5, None, -1, DAY_MS * 1000 - 1]
    batch = pa.record_batch(
        [pa.array(range(7), pa.int64()), pa.array(stamps, pa.timestamp("us", "UTC"))], names=["offset", "timestamp"]
    )
    found = {rows.day: rows.batch.column("offset").to_pylist() for rows in rows_by_day(batch)}
    assert found == {None: [1, 4], 0: [0, 3, 6], 1: [2], -1: [5]}


def test_names_that_hive_escapes_are_escaped() -> None:
    assert escaped("a=b/c%d e\n") == "a%3Db%2Fc%25d e%0A"
    assert directory_of("orders.v-1_x", None) == "topic=orders.v-1_x/date=__HIVE_DEFAULT_PARTITION__"


def test_row_groups_and_columns_are_as_asked(source: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    target = tmp_path / "out"
    export(source, target, columns=["value", "offset"], strings=["value"], row_group_rows=7, codec="zstd", topics=TOPIC)
    for file in checked_manifest(target).files:
        found = pq.ParquetFile(target / file.path)
        assert found.schema_arrow.names == ["value", "offset"]
        assert found.schema_arrow.field("value").type == pa.string()
        sizes = [found.metadata.row_group(number).num_rows for number in range(found.num_row_groups)]
        assert all(size == 7 for size in sizes[:-1])
        assert sizes[-1] <= 7
        assert found.metadata.row_group(0).column(0).compression == "ZSTD"
    assert len(rows_of_export(target)) == 400


def test_bounds_of_offsets_and_times_select_records(source: Path, tmp_path: Path) -> None:
    since, until = START_MS + DAY_MS, START_MS + 2 * DAY_MS
    summary = export(source, tmp_path / "times", since=since, until=until)
    rows = rows_of_export(tmp_path / "times")
    expected = [row for row in rows_of_source(source) if row.offset % 16 != 15]
    times = {row: START_MS + row.offset * 3 * DAY_MS // 200 for row in expected}
    assert [row for row in expected if since <= times[row] < until] == rows
    assert summary.record_count == len(rows)
    bounds = {TopicPartition(TOPIC, 1): 40}
    export(source, tmp_path / "offsets", start_offset=20, end_offset=bounds)
    found = rows_of_export(tmp_path / "offsets")
    assert found == [
        row for row in rows_of_source(source) if row.offset >= 20 and (row.partition == 0 or row.offset < 40)
    ]


def test_other_options_are_refused_with_what_differs(source: Path, tmp_path: Path) -> None:
    export(source, tmp_path / "out")
    with pytest.raises(ExportOptionsError, match="codec: 'snappy' there, 'zstd' asked for") as refused:
        export(source, tmp_path / "out", codec="zstd")
    assert refused.value.differences == {"codec": ("snappy", "zstd")}
    with pytest.raises(ExportOptionsError, match="format: 'parquet' there, 'arrow' asked for"):
        export(source, tmp_path / "out", "arrow", codec="lz4")
    grow(tmp_path / "other", 10)
    with pytest.raises(ExportOptionsError, match="source: "):
        export(tmp_path / "other", tmp_path / "out")
    assert rows_of_export(tmp_path / "out") == rows_of_source(source)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "csv"}, "format must be one of parquet, arrow, kstore, got 'csv'"),
        ({"codec": "lzo"}, 'codec of format "parquet" must be one of'),
        ({"format": "arrow", "codec": "snappy"}, "none, lz4, zstd, got 'snappy'"),
        ({"format": "kstore", "codec": "zstd"}, "codec cannot be chosen"),
        ({"format": "kstore", "isolation": "read_committed"}, "isolation cannot be chosen"),
        ({"last_batch": "drop"}, "are options of format"),
        ({"format": "kstore", "last_batch": "half"}, 'must be "keep" or "drop"'),
        ({"since": 5, "until": 4}, "since must not be after until"),
        ({"columns": ["nothing"]}, "columns must be some of"),
        ({"row_group_rows": 0}, "row_group_rows must be from 1"),
        ({"file_bytes": 1}, "file_bytes must be from 4096"),
        ({"isolation": "dirty"}, "isolation must be"),
        ({"format": "kstore", "topic_ids": {"t": "short"}}, "an id must be 22 characters"),
        ({"format": "kstore", "topic_ids": {"t": "A" * 22}}, "the id of topic t must not be zero"),
        ({"format": "kstore", "topic_ids": {"t": uuid.UUID(int=0)}}, "the id of topic t must not be zero"),
    ],
)
def test_options_are_checked_before_anything_is_made(
    options: dict[str, object], message: str, source: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        export(source, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_target_that_is_no_export_is_refused_and_left_alone(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    with pytest.raises(ExportError, match=r"is no export: .* found notes\.txt"):
        export(source, target)
    assert [path.name for path in target.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "table", ["delta:rows", "iceberg:catalog.space.rows", "Delta:rows", " DELTA:rows", "hudi:rows"]
)
def test_a_table_is_no_directory(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UnsupportedError, match=f"cannot write files to {table}: .* --to-table") as caught:
        export(source, table)
    assert caught.value.path == table
    assert sorted(tmp_path.iterdir()) == before
    export(source, f"./{table}")
    assert (tmp_path / table).is_dir()


def test_polars_finds_topic_and_date_in_the_names_of_directories(source: Path, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    export(source, tmp_path / "out")
    expected = [
        (TOPIC, partition, offset)
        for partition, offset in sorted(
            polars.read_parquet(tmp_path / "out" / "**" / "*.parquet").select("partition", "offset").rows()
        )
    ]
    # As docs/export.md has them: Polars refuses a directory with other files, unless it is told to pass over them.
    for frame in (
        polars.scan_parquet(tmp_path / "out" / "**" / "*.parquet", hive_partitioning=True),
        polars.scan_parquet(tmp_path / "out", hidden_file_prefix="_"),
    ):
        assert sorted(frame.select("topic", "partition", "offset").collect().rows()) == expected
        assert frame.select("date").collect().schema["date"] == polars.Date


def test_urls_with_secrets_are_refused_as_targets_without_showing_them(source: Path) -> None:
    with pytest.raises(ValueError, match="s3://bucket/out: expected a URL without options and keys") as caught:
        export(source, "s3://key:secret@bucket/out?region=x")
    assert "secret" not in str(caught.value)


def test_file_urls_are_local_sources_and_targets(source: Path, tmp_path: Path) -> None:
    export(source.as_uri(), (tmp_path / "an out").as_uri())
    assert read_manifest(tmp_path / "an out") is not None


@pytest.mark.parametrize("format", FORMATS)
def test_second_run_at_the_same_time_is_refused(source: Path, tmp_path: Path, format: str) -> None:
    target = tmp_path / "out"
    export(source, target, format)
    seen: list[type[BaseException]] = []

    def again(_size: int) -> None:
        if not seen:
            with pytest.raises(LogLockedError):
                export(source, target, format)
            seen.append(LogLockedError)

    grow(source, 10)
    local_export(source, target, export_options(format), on_bytes=again, threads=1)
    assert seen


def test_records_deleted_before_they_were_exported_are_an_error_or_listed(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(source, target)
    grow(source, 100)
    with open_store(source, "a") as store:
        store.log(TOPIC, 0).delete_records(250)
    with pytest.raises(ExportSourceError, match="go on at offset 200, the log holds 250 to 300") as lost:
        export(source, target)
    assert (lost.value.offset, lost.value.log_start_offset, lost.value.log_end_offset) == (200, 250, 300)
    export(source, target, fail_on_data_loss=False)
    manifest = checked_manifest(target)
    assert partition_of(manifest, 0).missing == ((200, 250),)
    assert partition_of(manifest, 1).missing == ()
    offsets = [row.offset for row in rows_of_export(target) if row.partition == 0]
    assert offsets == [*range(200), *range(250, 300)]


def test_source_that_was_truncated_below_what_was_exported_is_refused(source: Path, tmp_path: Path) -> None:
    export(source, tmp_path / "out")
    with open_store(source, "a") as store:
        store.log(TOPIC, 1).truncate_to(150)
    with pytest.raises(ExportSourceError, match=f"{TOPIC}-1 .* go on at offset 200, the log holds 0 to 150"):
        export(source, tmp_path / "out")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("has_ids", [True, False])
def test_topic_that_was_deleted_and_created_again_is_refused(tmp_path: Path, format: str, has_ids: bool) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    for count in (50, 80):
        shutil.rmtree(source, ignore_errors=True)
        grow(source, count)
        if not has_ids:
            for path in source.rglob("partition.metadata"):
                path.unlink()
        if count == 50:
            export(source, target, format)
    why = "created again, its id was" if has_ids else "the last exported batch had offsets 40 to 49"
    with pytest.raises(ExportSourceError, match=f"go on at offset 50, the log holds 0 to 80: .*{why}"):
        export(source, target, format, fail_on_data_loss=False)
    assert len(rows_of_export(target)) == 100


@pytest.mark.parametrize("format", FORMATS)
def test_run_that_was_interrupted_does_not_go_on_with_another_topic_of_the_name(tmp_path: Path, format: str) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    grow(source, 50)
    interrupt_at(source, target, format, partition=1)
    shutil.rmtree(source)
    grow(source, 80)
    with pytest.raises(ExportSourceError, match="deleted and created again"):
        export(source, target, format)
    assert read_manifest(target) is None


def test_export_goes_on_after_a_cleaner_removed_records_of_its_last_batch(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    cleaned = LogConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, file_delete_delay_ms=0)
    grow(source, 20, config=cleaned)
    export(source, target)
    last = partition_of(checked_manifest(target), 0).last_batch
    assert last is not None
    with open_store(source, "a", cleaned) as store:
        log = store.log(TOPIC, 0)
        log.append(Record(offset=0, key=b"1", value=b"new"))
        log.append(Record(offset=0, key=b"0", value=b"new"))
        log.roll()
        log.compact()
        (header,) = [batch.header for batch in log.batches() if batch.header.last_offset == 19]
    assert 0 < (header.record_count or 0) < last["record_count"]
    assert export(source, target).new_records == 2


def test_manifest_without_ids_and_batches_is_read_and_gets_them(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(source, target)
    path = target / MANIFEST_FILE
    fields = json.loads(path.read_text())
    for one in fields["partitions"]:
        assert one.pop("topic_id")
        assert one.pop("last_batch")["last_offset"] == 199
    # Nor did earlier versions write a checksum.
    assert fields.pop("crc32c")
    path.write_text(json.dumps(fields))
    assert export(source, target).new_records == 0
    assert partition_of(checked_manifest(target), 0).topic_id is not None


def interrupt_at(source: Path, target: Path, format: str, *, partition: int) -> None:
    """Export up to the parts of a partition, and end there."""

    def run(todo: Sequence[Work], job: Job) -> Iterator[PartResult]:
        for work in todo:
            if work.part.partition == partition:
                raise KeyboardInterrupt
            yield run_part(work, job)

    with pytest.raises(KeyboardInterrupt):
        run_export(Source(source, LogConfig(), DEFAULT_ENV), target, export_options(format), run, tasks=1)


@pytest.mark.parametrize("format", FORMATS)
def test_partition_that_was_deleted_before_it_was_exported_is_an_error_or_listed(
    source: Path, tmp_path: Path, format: str
) -> None:
    target = tmp_path / "out"
    interrupt_at(source, target, format, partition=1)
    shutil.rmtree(source / f"{TOPIC}-1")
    for _ in range(2):
        with pytest.raises(ExportSourceError, match=f"{TOPIC}-1 in .* was deleted before all of it was exported"):
            export(source, target, format)
    export(source, target, format, fail_on_data_loss=False)
    gone = partition_of(checked_manifest(target), 1)
    assert (gone.start_offset, gone.end_offset) == (0, 200)
    assert sorted(gone.missing)[0][0] == 0
    assert sum(end - first for first, end in gone.missing) == 200
    assert {row.partition for row in rows_of_export(target)} == {0}
    assert export(source, target, format).new_records == 0


@pytest.mark.parametrize("format", FORMATS)
def test_export_from_latest_begins_where_the_logs_end_at_the_first_run(
    source: Path, tmp_path: Path, format: str
) -> None:
    target = tmp_path / "out"
    assert export(source, target, format, start_offset=MAX_OFFSET).new_records == 0
    assert [(one.start_offset, one.end_offset) for one in checked_manifest(target).partitions] == [(200, 200)] * 2
    grow(source, 30)
    grow(source, 10, topic="later")
    assert export(source, target, format, start_offset=MAX_OFFSET).new_records == 80
    expected = [row for row in rows_of_source(source) if row.offset >= 200]
    assert rows_of_export(target) == sorted(expected + rows_of_source(source, topic="later"))


def test_export_from_latest_takes_the_whole_of_the_first_topic_of_a_root(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    with open_store(source, "a") as store:
        store.create_topic("__transaction_state", 2)
    export(source, target, start_offset=MAX_OFFSET)
    grow(source, 30)
    assert export(source, target, start_offset=MAX_OFFSET).new_records == 60


@pytest.mark.parametrize("format", FORMATS)
def test_export_from_an_offset_above_the_end_waits_for_it(source: Path, tmp_path: Path, format: str) -> None:
    target = tmp_path / "out"
    with open_store(source, "a") as store:
        store.log(TOPIC, 1).truncate_to(100)
    for _ in range(3):
        export(source, target, format, start_offset=155)
        assert rows_of_export(target) == [row for row in rows_of_source(source) if row.offset >= 155]
        grow(source, 40)
    begun = partition_of(checked_manifest(target), 1)
    assert (begun.start_offset, begun.end_offset, begun.missing) == (155, 180, ())


def test_manifest_that_is_damaged_is_refused(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert read_manifest(tmp_path) is None
    export(source, target)
    path = target / MANIFEST_FILE
    whole = path.read_bytes()
    for content in (
        whole[:-20],
        b"[]",
        whole.replace(b'"format_version": 1', b'"format_version": 9'),
        b'{"format_version": 1}',
    ):
        path.write_bytes(content)
        with pytest.raises(CorruptManifestError):
            export(source, target)


def test_file_that_was_changed_is_not_joined(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    for _ in range(2):
        grow(source, 10, days=0)
        export(source, target)
    file = read_manifest(target).files[0]
    content = bytearray((target / file.path).read_bytes())
    content[50] ^= 1
    (target / file.path).write_bytes(content)
    with pytest.raises(CorruptManifestError, match="differs from the manifest"):
        export(source, target)


@pytest.mark.parametrize("format", FORMATS)
def test_damage_that_ends_a_plain_read_is_left_out_again_and_again(tmp_path: Path, format: str) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    grow(source, 30, config=LogConfig())
    path = source / f"{TOPIC}-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    with open_log(path.parent) as log:
        content[next(batch.position for batch in log.batches(10)) + 16] = 79
    path.write_bytes(content)
    for _ in range(2):
        export(source, target, format, on_error="skip")
        assert [row.offset for row in rows_of_export(target) if row.partition == 0] == [
            *range(10),
            *range(20, 30),
        ]


@pytest.mark.parametrize("format", FORMATS)
def test_last_batch_with_an_offset_that_its_segment_cannot_hold_is_damage(tmp_path: Path, format: str) -> None:
    source, target = tmp_path / "source", tmp_path / "out"
    grow(source, 30, config=LogConfig())
    path = source / f"{TOPIC}-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    with open_log(path.parent) as log:
        last = next(batch.position for batch in log.batches(20))
    content[last] = 0x71
    path.write_bytes(content)
    with pytest.raises(CorruptRecordError, match=f"too far above .* at position {last} of {path}"):
        export(source, target, format)
    summary = export(source, target, format, on_error="skip")
    assert [(one["position"], one["first_missing_offset"]) for one in summary.damage] == [(last, 20)]
    assert [row.offset for row in rows_of_export(target) if row.partition == 0] == list(range(20))
    grow(tmp_path / "later", 10, topic="later")
    for directory in (tmp_path / "later").glob("later-*"):
        directory.rename(source / directory.name)
    again = export(source, target, format, on_error="skip")
    assert (again.new_records, again.damage, again.partitions[-2:]) == (20, (), summary.partitions)


def test_damage_is_raised_or_left_out_and_listed(source: Path, tmp_path: Path) -> None:
    path = sorted((source / f"{TOPIC}-0").glob("*.log"))[1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    for format in FORMATS:
        with pytest.raises(CorruptRecordError):
            export(source, tmp_path / f"raised-{format}", format)
        summary = export(source, tmp_path / format, format, on_error="skip")
        (left_out,) = summary.damage
        assert left_out["path"] == str(path)
        gone = range(left_out["first_missing_offset"], left_out["last_missing_offset"] + 1)
        assert len(gone) == 10
        assert partition_of(checked_manifest(tmp_path / format), 0).damage[0]["position"] == left_out["position"]
        with open_store(source) as store:
            expected = [record.offset for record in store.log(TOPIC, 0).read(on_error="skip", on_skip=lambda _: None)]
        assert [row.offset for row in rows_of_export(tmp_path / format) if row.partition == 0] == expected
        assert export(source, tmp_path / format, format, on_error="skip").damage == ()


@pytest.mark.parametrize("format", FORMATS)
def test_full_disk_is_an_error_after_which_the_same_call_goes_on(source: Path, tmp_path: Path, format: str) -> None:
    target, env = tmp_path / "out", FullEnv()
    options = export_options(format, file_bytes=8192)
    env.full = (f".{'log' if format == 'kstore' else format}", "log.1")
    with pytest.raises(StorageError) as full:
        local_export(source, target, options, target_env=env)
    assert full.value.errno == errno.ENOSPC
    assert read_manifest(target) is None
    env.full = (MANIFEST_FILE + ".tmp",)
    with pytest.raises(StorageError):
        local_export(source, target, options, target_env=env)
    assert read_manifest(target) is None
    env.full = ("nothing",)
    assert local_export(source, target, options, target_env=env).was_resumed
    assert rows_of_export(target) == rows_of_source(source)


@pytest.mark.parametrize("format", FORMATS)
def test_any_call_that_fails_leaves_what_the_next_run_makes_whole(tmp_path: Path, format: str) -> None:
    """The run joins files of an earlier one, so that all steps of a commit are among the calls."""
    source, begun, options = tmp_path / "source", tmp_path / "begun", export_options(format)
    for count in (10, 20):
        grow(source, count, days=0, config=LogConfig())
        local_export(source, begun, options)
    grow(source, 10, days=0, config=LogConfig())
    counting = FaultyEnv()
    shutil.copytree(begun, tmp_path / "counted")
    assert local_export(source, tmp_path / "counted", options, target_env=counting, threads=1).joined_files > 0
    failed = 0
    for number in range(counting.calls, 0, -4):
        target = shutil.copytree(begun, tmp_path / f"out-{number}")
        env = FaultyEnv(Fault(number, "EIO", is_for_good=False))
        try:
            local_export(source, target, options, target_env=env, threads=1)
        except StorageError:
            failed += 1
        local_export(source, target, options, threads=1)
        assert rows_of_export(target) == rows_of_source(source), number
    assert failed > 10


def test_interrupt_leaves_finished_parts_for_the_same_call(source: Path, tmp_path: Path) -> None:
    target, options = tmp_path / "out", export_options("parquet", file_bytes=4096)
    reached = 0

    def interrupt(size: int) -> None:
        nonlocal reached
        reached += size
        if reached > 10_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        local_export(source, target, options, threads=1, on_bytes=interrupt)
    assert read_manifest(target) is None
    done = len(list((target / STAGING_DIRECTORY).glob("part-*.json")))
    assert done > 0
    totals: list[int] = []
    assert local_export(source, target, options, on_plan=totals.append).was_resumed
    assert totals[0] < sum(path.stat().st_size for path in source.rglob("*.log"))
    assert rows_of_export(target) == rows_of_source(source)


def test_parts_are_of_the_size_of_a_file_and_small_logs_are_not_split(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = plan.Source(source, LogConfig(), DEFAULT_ENV)
    whole = plan.make_plan(found, export_options("parquet"), None, tasks=8)
    assert [(part.partition, part.start_offset, part.end_offset) for part in whole.parts] == [(0, 0, 200), (1, 0, 200)]
    split = plan.make_plan(found, export_options("parquet", file_bytes=6000), None, tasks=1)
    sizes = [part.size_in_bytes for part in split.parts if part.partition == 0]
    assert len(sizes) > 2
    assert max(sizes) <= 6000
    bounds = [(part.start_offset, part.end_offset) for part in split.parts if part.partition == 0]
    assert bounds[0][0] == 0
    assert all(one[1] == two[0] for one, two in pairwise(bounds))
    monkeypatch.setattr(plan, "_LEAST_PART_BYTES", 1000)
    assert len(plan.make_plan(found, export_options("parquet"), None, tasks=8).parts) > 4


def test_logs_are_looked_at_by_as_many_threads_as_there_are_tasks(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, options = plan.Source(source, LogConfig(), DEFAULT_ENV), export_options("kstore")
    alone = plan.make_plan(found, options, None, tasks=1)
    together, topic_id_of = Barrier(2, timeout=20), plan.topic_id_of

    def met(directory: PartitionDirectory, env: Env) -> str | None:
        together.wait()
        return topic_id_of(directory, env)

    monkeypatch.setattr(plan, "topic_id_of", met)
    planned = plan.make_plan(found, options, None, tasks=2)
    assert planned._replace(run_id=alone.run_id) == alone


@pytest.mark.parametrize("format", FORMATS)
def test_parts_that_run_twice_at_once_are_there_once(source: Path, tmp_path: Path, format: str) -> None:
    """As Spark's speculation does it: of two attempts, one is told to the driver, either may be noted last."""
    target = tmp_path / "out"

    def twice(todo: Sequence[Work], job: Job) -> Iterator[PartResult]:
        with ThreadPoolExecutor(4) as pool:
            attempts = [[pool.submit(run_part, one, job) for _ in range(2)] for one in todo]
            yield from (pair[number % 2].result() for number, pair in enumerate(attempts))

    found = Source(source, LogConfig(), DEFAULT_ENV)
    run_export(found, target, export_options(format, file_bytes=4096), twice, tasks=2)
    assert rows_of_export(target) == rows_of_source(source)


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_memory_does_not_grow_with_the_partition(tmp_path: Path, format: str) -> None:
    source = tmp_path / "source"
    with open_store(source, "a") as store:
        store.create_topic(TOPIC, 1)
        log = store.log(TOPIC, 0)
        values = pa.array([bytes([number % 251]) * 1000 for number in range(4000)], pa.binary())
        stamps = pa.array([START_MS] * 4000, pa.int64())
        batch = pa.record_batch([values, stamps], names=["value", "timestamp"])
        for _ in range(15):
            for run in kstore.pack_record_batch(batch, base_offset=log.log_end_offset, compression="zstd"):
                log.append_as_follower(run)
    before = pa.total_allocated_bytes()
    peak = 0

    def watch(_size: int) -> None:
        nonlocal peak
        peak = max(peak, pa.total_allocated_bytes() - before)

    options = export_options(format, row_group_rows=2000)
    local_export(source, tmp_path / "out", options, threads=1, on_bytes=watch)
    assert partition_of(checked_manifest(tmp_path / "out"), 0).record_count == 60_000
    assert peak < 20_000_000
