"""Goal: a stream reads what is appended, each record once, over restarts, crashes, limits, new and lost partitions.
Method: the calls of Spark's driver and workers made in this process, on logs that change between them; no JVM."""

from __future__ import annotations

import json
import logging
import pickle
import sys
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow

from kstore.errors import CorruptRecordError, LogNotFoundError, OffsetOutOfRangeError, UnsupportedError
from kstore.producer.producer import Producer
from kstore.record import Record
from kstore.spark import KStoreDataSource
from kstore.spark.readers import task_bytes
from kstore.store.store import open_store
from tests.fakes.stream_query import SCHEMA, Killed, StreamQuery
from tests.making.batches import flip_bit
from tests.making.growing import GrowingRoot

RECORD = Record(value=b"x", timestamp_ms=0)
LOSS = "Some data may have been lost because they are not available any more"


@pytest.fixture
def root(tmp_path: Path) -> GrowingRoot:
    """t-0 has three records, t-1 none."""
    found = GrowingRoot(tmp_path / "root")
    found.append("t-0", 3)
    found.append("t-1", 0)
    return found


def query_of(root: GrowingRoot, **options: str) -> StreamQuery:
    return StreamQuery(root.path, **options)


def from_earliest(root: GrowingRoot, **options: str) -> StreamQuery:
    return query_of(root, startingOffsets="earliest", **options)


def test_stream_from_the_latest_offsets_reads_what_is_appended_later(root: GrowingRoot) -> None:
    query = query_of(root)
    (first,) = query.run()
    assert first.rows == []
    root.append("t-0", 5)
    root.append("t-1", 1)
    (second,) = query.run()
    assert second.offsets() == [("t", 0, 5, 3, 7), ("t", 1, 1, 0, 0)]
    assert query.run() == []


def test_query_goes_on_where_it_was_whatever_its_options_say_about_the_start(root: GrowingRoot) -> None:
    query = from_earliest(root)
    assert query.run()[0].offsets() == [("t", 0, 3, 0, 2)]
    root.append("t-0", 2)
    root.append("t-1", 1)
    query.options["startingOffsets"] = '{"t":{"0":0}}'
    query.start()
    assert query.run()[0].offsets() == [("t", 0, 2, 3, 4), ("t", 1, 1, 0, 0)]
    root.append("t-2", 4)
    query.start()
    assert query.run()[0].offsets() == [("t", 2, 4, 0, 3)]


def test_partition_that_is_added_to_a_running_query_is_read_from_its_start(root: GrowingRoot) -> None:
    query = query_of(root)
    query.micro_batch()
    root.append("t-0", 1)
    root.append("t-2", 4)
    assert query.micro_batch()
    assert query.batches[-1].offsets() == [("t", 0, 1, 3, 3), ("t", 2, 4, 0, 3)]


def test_topic_that_appears_later_is_read_if_the_pattern_matches(root: GrowingRoot) -> None:
    query = query_of(root, subscribePattern="^p")
    query.micro_batch()
    assert query.position() == {"kstore:start": {}}
    root.append("p.b-0", 3)
    root.append("q-0", 3)
    query.micro_batch()
    assert query.batches[-1].offsets() == [("p.b", 0, 3, 0, 2)]


@pytest.mark.parametrize("crash", ["before offsets", "before read", "before commit"])
def test_start_of_a_query_that_died_in_its_first_micro_batch(root: GrowingRoot, crash: str) -> None:
    """It is where it was found first, if Spark had written the end of the micro-batch."""
    query = query_of(root)
    with pytest.raises(Killed):
        query.run(crash=crash)  # type: ignore[arg-type]
    root.append("t-0", 2)
    query.start()
    query.run()
    expected = [] if crash == "before offsets" else [("t", 0, 2, 3, 4)]
    assert [found for batch in query.batches for found in batch.offsets()] == expected


def test_start_in_the_first_offsets_counts_more_than_one_that_moved(root: GrowingRoot) -> None:
    query = query_of(root, maxOffsetsPerTrigger="2")
    query.reader.initialOffset()
    root.append("t-0", 4)
    with pytest.raises(Killed):
        query.micro_batch(crash="before read")
    assert query.position() == {"t": {"0": 5, "1": 0}, "kstore:start": {"t": {"0": 3, "1": 0}}}
    root.append("t-0", 4)
    query.start()
    query.run()
    assert [row[2] for row in query.rows()] == [*range(3, 11)]


def test_start_is_told_in_the_first_micro_batch_with_rows_and_no_later_one(root: GrowingRoot) -> None:
    query = query_of(root)
    query.micro_batch()
    assert query.position()["kstore:start"] == {"t": {"0": 3, "1": 0}}
    root.append("t-0", 1)
    query.micro_batch()
    root.append("t-0", 1)
    query.micro_batch()
    assert query.position() == {"t": {"0": 5, "1": 0}}
    assert [row[2] for row in query.rows()] == [3, 4]


def test_nothing_new_is_the_very_same_text(root: GrowingRoot) -> None:
    query = from_earliest(root)
    query.micro_batch()
    assert not query.micro_batch()
    start = json.loads(query.offsets[-1])
    assert query.reader.latestOffset(start, ReadAllAvailable()) is start


def test_ends_of_available_now_are_those_at_its_start(root: GrowingRoot) -> None:
    root.append("t-0", 27)
    query = from_earliest(root, maxOffsetsPerTrigger="7")
    query.reader.prepareForTriggerAvailableNow()
    assert query.micro_batch()
    root.append("t-0", 10)
    root.append("t-2", 10)
    while query.micro_batch():
        pass
    assert [len(batch.rows) for batch in query.batches] == [7, 7, 7, 7, 2]
    assert query.reader.reportLatestOffset() == {"t": {"0": 30, "1": 0}}


def test_once_ignores_the_limit(root: GrowingRoot) -> None:
    root.append("t-0", 27)
    query = from_earliest(root, maxOffsetsPerTrigger="7")
    assert [len(batch.rows) for batch in query.run("once")] == [30]


def test_limit_that_spark_is_told(root: GrowingRoot) -> None:
    assert query_of(root).reader.getDefaultReadLimit() == ReadAllAvailable()
    assert query_of(root, maxOffsetsPerTrigger="5").reader.getDefaultReadLimit() == ReadMaxRows(5)
    assert query_of(root, minOffsetsPerTrigger="5").reader.getDefaultReadLimit() == ReadMinRows(5)
    both = query_of(root, minOffsetsPerTrigger="2", maxOffsetsPerTrigger="5")
    assert both.reader.getDefaultReadLimit() == ReadMaxRows(5)
    assert isinstance(both.reader, SupportsTriggerAvailableNow)


@pytest.mark.parametrize("limits", [{}, {"maxOffsetsPerTrigger": "50"}], ids=["alone", "with a maximum"])
def test_few_records_wait_until_there_are_more(root: GrowingRoot, limits: dict[str, str]) -> None:
    query = from_earliest(root, minOffsetsPerTrigger="5", **limits)
    assert query.micro_batch()
    root.append("t-0", 4)
    assert not query.micro_batch()
    root.append("t-1", 1)
    assert query.micro_batch()
    assert query.batches[-1].offsets() == [("t", 0, 4, 3, 6), ("t", 1, 1, 0, 0)]


def test_available_now_and_the_end_of_the_delay_wait_for_nothing(root: GrowingRoot) -> None:
    query = from_earliest(root, minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5")
    query.run()
    root.append("t-0", 6)
    query.start()
    assert [len(batch.rows) for batch in query.run()] == [5, 1]
    at_once = from_earliest(root, minOffsetsPerTrigger="100", maxTriggerDelay="0s")
    at_once.micro_batch()
    root.append("t-0", 1)
    assert at_once.micro_batch()


def test_records_that_retention_took_are_lost_data(root: GrowingRoot) -> None:
    query = from_earliest(root, failOnDataLoss="false")
    query.run()
    root.append("t-0", 7)
    root.delete_records("t-0", 8)
    careful = from_earliest(root)
    careful.offsets, careful.commits = query.offsets[:], query.commits
    careful.start()
    with pytest.raises(
        OffsetOutOfRangeError, match=rf"{LOSS}: offsets \[3, 10\) of t-0 were requested.*failOnDataLoss"
    ):
        careful.run()
    assert query.run()[0].offsets() == [("t", 0, 2, 8, 9)]


def test_log_that_ends_below_what_was_read_is_lost_data(root: GrowingRoot, caplog: pytest.LogCaptureFixture) -> None:
    query = from_earliest(root, failOnDataLoss="false")
    query.run()
    careful = from_earliest(root)
    careful.run()
    root.truncate("t-0", 1)
    with pytest.raises(
        OffsetOutOfRangeError, match=f"{LOSS}: the end of t-0 was at offset 3 or above, and is at 1 now"
    ):
        careful.run()
    with caplog.at_level(logging.WARNING, "kstore.spark"):
        assert [batch.rows for batch in query.run()] == [[]]
    assert f"{LOSS}: the end of t-0 was at offset 3 or above, and is at 1 now" in caplog.text
    root.append("t-0", 1)
    assert query.run()[0].offsets() == [("t", 0, 1, 1, 1)]


def test_partition_that_is_gone_is_lost_data(root: GrowingRoot, caplog: pytest.LogCaptureFixture) -> None:
    query, careful = from_earliest(root, failOnDataLoss="false"), from_earliest(root)
    query.run()
    careful.run()
    root.remove("t-1")
    root.append("t-0", 1)
    with pytest.raises(OffsetOutOfRangeError, match=f"{LOSS}: partitions t-1 are gone; .*failOnDataLoss"):
        careful.run()
    with caplog.at_level(logging.WARNING, "kstore.spark"):
        assert query.run()[0].offsets() == [("t", 0, 1, 3, 3)]
    assert f"{LOSS}: partitions t-1 are gone" in caplog.text
    assert query.position() == {"t": {"0": 4}}


def test_partition_that_goes_between_offsets_and_plan_is_lost_data(root: GrowingRoot) -> None:
    query, careful = from_earliest(root, failOnDataLoss="false"), from_earliest(root)
    root.append("t-1", 2)
    for one in (query, careful):
        with pytest.raises(Killed):
            one.micro_batch(crash="before read")
    root.remove("t-1")
    with pytest.raises(OffsetOutOfRangeError, match=f"{LOSS}: partitions t-1 are gone"):
        careful.micro_batch()
    query.micro_batch()
    assert query.batches[-1].offsets() == [("t", 0, 3, 0, 2)]


def test_new_partition_that_does_not_start_at_zero_is_lost_data(root: GrowingRoot) -> None:
    query, careful = from_earliest(root, failOnDataLoss="false"), from_earliest(root)
    query.run()
    careful.run()
    root.append("t-2", 5)
    root.delete_records("t-2", 2)
    with pytest.raises(OffsetOutOfRangeError, match="the new partition t-2 starts at offset 2 instead of 0"):
        careful.run()
    assert query.run()[0].offsets() == [("t", 2, 3, 2, 4)]


def test_topic_that_was_deleted_is_an_error_whatever_loss_is_taken(root: GrowingRoot) -> None:
    query = from_earliest(root, subscribe="t", failOnDataLoss="false")
    query.run()
    root.append("u-0", 1)
    root.remove("t-0")
    root.remove("t-1")
    with pytest.raises(LogNotFoundError, match="not found: topic t"):
        query.run()


def test_topic_that_was_made_again_with_fewer_records_is_lost_data(root: GrowingRoot) -> None:
    root.append("t-0", 47)
    query, careful = from_earliest(root, failOnDataLoss="false"), from_earliest(root)
    query.run()
    careful.run()
    root.remove("t-0")
    root.append("t-0", 10)
    with pytest.raises(OffsetOutOfRangeError, match=LOSS):
        careful.run()
    assert [batch.rows for batch in query.run()] == [[]]
    assert query.position() == {"t": {"0": 10, "1": 0}}


def test_segments_that_are_deleted_between_plan_and_task_are_lost_data(root: GrowingRoot) -> None:
    root.roll("t-0")
    root.append("t-0", 3)
    for loss, error in (("true", OffsetOutOfRangeError), ("false", None)):
        query = from_earliest(root, failOnDataLoss=loss)
        start = query.reader.initialOffset()
        end = query.reader.latestOffset(start, ReadAllAvailable())
        tasks = query.reader.partitions(start, end)
        for path in (root.path / "t-0").glob(f"{0:020d}.*"):
            path.rename(path.with_name(f"{path.name}.{loss}"))
        if error is None:
            rows = [row for task in tasks for batch in query.reader.read(task) for row in batch.to_pylist()]
            assert [row["offset"] for row in rows] == [3, 4, 5]
        else:
            with pytest.raises(error, match="was deleted since the read was planned"):
                list(query.reader.read(tasks[0]))
        for path in (root.path / "t-0").glob(f"*.{loss}"):
            path.rename(path.with_suffix(""))


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"startingOffsets": '{"t":{"0":1}}'}, "Partitions specified in startingOffsets don't match what are assigned"),
        (
            {"startingOffsets": '{"t":{"0":9,"1":0}}'},
            rf"{LOSS}: t-0 was to be read from offset 9, the log holds \[0, 3\]",
        ),
        ({"startingTimestamp": "99999"}, "No offset matched from request of topic-partition t-0 and timestamp 99999"),
        ({"subscribe": "missing"}, "not found: topic missing"),
        ({"assign": '{"t":[7]}'}, "not found: partition t-7"),
    ],
)
def test_start_that_cannot_be_is_an_error(root: GrowingRoot, options: dict[str, str], pattern: str) -> None:
    with pytest.raises((ValueError, OffsetOutOfRangeError, LogNotFoundError), match=pattern):
        query_of(root, **options).run()


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({"startingOffsets": '{"t":{"0":-1,"1":-2}}'}, [7]),
        ({"startingOffsets": '{"t":{"0":-2,"1":-2}}'}, [0, 1, 2, 7]),
        ({"startingOffsets": '{"t":{"0":2,"1":0}}'}, [2, 7]),
        ({"startingOffsets": '{"t":{"0":9,"1":0}}', "failOnDataLoss": "false"}, [7]),
        ({"startingOffsetsByTimestamp": '{"t":{"0":0,"1":-1}}'}, [0, 1, 2, 7]),
        ({"startingTimestamp": "99999", "startingOffsetsByTimestampStrategy": "latest"}, [7]),
    ],
)
def test_start_by_offset_or_time(root: GrowingRoot, options: dict[str, str], offsets: list[int]) -> None:
    query = query_of(root, **options)
    query.run()
    root.append("t-0", 4)
    query.run()
    assert [row[2] for row in query.rows() if row[2] not in (3, 4, 5, 6)] + [7] == offsets
    assert [row[2] for row in query.rows()][-4:] == [3, 4, 5, 6]


def test_only_what_survives_a_power_cut_is_read_if_asked_for(root: GrowingRoot) -> None:
    flushed, written = from_earliest(root, endOffsets="flushed"), from_earliest(root)
    log = root.open("t-0")
    log.append([RECORD], ack="written")
    flushed.run()
    written.run()
    assert [row[2] for row in flushed.rows()] == [0, 1, 2]
    assert [row[2] for row in written.rows()] == [0, 1, 2, 3]
    log.flush()
    flushed.run()
    assert [row[2] for row in flushed.rows()] == [0, 1, 2, 3]
    log.close()


def test_change_of_end_offsets_is_no_loss(root: GrowingRoot) -> None:
    query = from_earliest(root)
    with root.open("t-0") as log:
        log.append([RECORD], ack="written")
        query.run()
        query.options["endOffsets"] = "flushed"
        query.start()
        assert query.run() == []


def test_committed_transactions_are_read_up_to_the_first_open_one(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with open_store(root, "a") as store:
        store.create_topic("t", 1)
        query = StreamQuery(root, startingOffsets="earliest", kafka__isolation__level="read_committed", subscribe="t")
        everything = StreamQuery(root, startingOffsets="earliest", subscribe="t")
        with Producer(store, transactional_id="a") as first, Producer(store, transactional_id="b") as second:
            first.init_transactions()
            second.init_transactions()
            for commits in (True, False, True):
                first.begin_transaction()
                for number in range(3):
                    first.send("t", b"%d" % number, partition=0)
                first.flush()
                if commits:
                    first.commit_transaction()
                else:
                    first.abort_transaction()
            second.begin_transaction()
            second.send("t", b"open", partition=0)
            second.flush()
            first.begin_transaction()
            first.send("t", b"later", partition=0)
            first.commit_transaction()
            assert [row[2] for batch in query.run() for row in batch.rows] == [0, 1, 2, 8, 9, 10]
            assert query.position()["t"] == {"0": 12}
            assert len(everything.run()[0].rows) == 11
            assert query.run() == []
            second.commit_transaction()
            assert [row[3] for batch in query.run() for row in batch.rows] == [b"open", b"later"]


def test_damage_fails_the_micro_batch_or_is_passed_over(root: GrowingRoot) -> None:
    root.append("t-0", 20)
    flip_bit(root.path / "t-0" / f"{0:020d}.log", 400, bit=0)
    strict, permissive = from_earliest(root), from_earliest(root, mode="PERMISSIVE")
    with pytest.raises(CorruptRecordError):
        strict.run()
    (batch,) = permissive.run()
    assert len(batch.rows) == 22


def test_damage_at_the_end_of_a_log_is_no_end_that_a_stream_goes_beyond(root: GrowingRoot) -> None:
    """A recovery may truncate it and put other records there."""
    with (root.path / "t-0" / f"{0:020d}.log").open("ab") as file:
        file.write(b"\x7f" * 100)
    query = from_earliest(root, mode="PERMISSIVE")
    query.run()
    assert query.position()["t"] == {"0": 3, "1": 0}


def test_tasks_are_split_as_those_of_batch_reads(root: GrowingRoot) -> None:
    root.append("t-0", 7)
    root.append("t-1", 3)
    (batch,) = from_earliest(root, maxRecordsPerPartition="4").run()
    assert sorted(batch.splits) == [(0, 0, 2), (0, 3, 5), (0, 6, 9), (1, 0, 2)]
    (batch,) = from_earliest(root, minPartitions="5").run()
    assert len(batch.splits) == 5


def test_reader_is_sent_to_tasks_without_what_the_driver_knows(root: GrowingRoot) -> None:
    query = from_earliest(root)
    fresh = len(pickle.dumps(query.reader))
    assert fresh < 2000
    assert task_bytes(query.reader._options.read, query.reader._user_schema) == 128 * 2**20


def test_stop_closes_the_logs(root: GrowingRoot) -> None:
    query = from_earliest(root)
    query.run()
    query.reader.stop()
    root.append("t-0", 1)
    assert query.run()[0].offsets() == [("t", 0, 1, 3, 3)]


def test_checkpoint_of_another_source_is_refused(root: GrowingRoot) -> None:
    query = from_earliest(root)
    with pytest.raises(ValueError, match="was the checkpoint made with another source"):
        query.reader.latestOffset({"logOffset": 3}, ReadAllAvailable())


def test_spark_that_asks_for_no_limited_micro_batches_is_named(
    root: GrowingRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "kstore.spark.stream.reader")
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    source = KStoreDataSource(CaseInsensitiveDict({"path": str(root.path)}))
    reader = source.streamReader(SCHEMA)
    for call in (
        reader.initialOffset,
        reader.latestOffset,
        lambda: reader.partitions({}, {}),
        lambda: reader.read(None),
    ):
        with pytest.raises(
            UnsupportedError, match=r'streams that read format\("kstore"\) need Spark 4\.2 or later, found'
        ):
            call()
