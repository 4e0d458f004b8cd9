"""Goal: the options of a stream mean what they mean in Spark's Kafka source, and mistakes are named.
Method: tables of option texts against the parsed value or the message; no Spark, no file."""

from __future__ import annotations

import pytest

from kstore.spark.options import EARLIEST, LATEST, Bound, parse_read_options
from kstore.spark.stream.options import StreamOptions, parse_stream_options
from kstore.types import TopicPartition


def parse(**options: str) -> StreamOptions:
    return parse_stream_options({"path": "/data", **{name.replace("__", "."): text for name, text in options.items()}})


def test_stream_starts_at_the_latest_offset_and_has_no_limit() -> None:
    options = parse()
    assert options.read.starting == Bound(option="startingOffsets", everywhere=LATEST)
    assert (options.max_offsets, options.min_offsets, options.end_offsets) == (None, None, "written")
    assert options.max_trigger_delay_ms == 15 * 60 * 1000


def test_options_of_batch_reads_mean_the_same() -> None:
    given = {
        "subscribe": "a,b",
        "failOnDataLoss": "false",
        "kafka.isolation.level": "read_committed",
        "mode": "permissive",
    }
    batch = parse_read_options({"path": "/data", **given, "startingOffsets": "earliest"})
    assert parse_stream_options({"path": "/data", **given, "startingOffsets": "earliest"}).read == batch


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("earliest", Bound(option="startingOffsets", everywhere=EARLIEST)),
        ("Latest", Bound(option="startingOffsets", everywhere=LATEST)),
        (
            '{"t":{"0":-1,"1":-2,"2":7}}',
            Bound(
                option="startingOffsets", by_partition={TopicPartition("t", n): v for n, v in enumerate((-1, -2, 7))}
            ),
        ),
    ],
)
def test_stream_may_start_at_the_latest_offsets(text: str, bound: Bound) -> None:
    assert parse(startingOffsets=text).read.starting == bound


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        *(("8s", 8000), ("250us", 0), ("3000us", 3), ("100", 100), ("100ms", 100), ("5m", 300_000), ("5min", 300_000)),
        *(("1h", 3_600_000), (" 1D ", 86_400_000), ("0", 0), ("999999999999999999d", 2**63 - 1)),
    ],
)
def test_delay_has_the_units_of_spark(text: str, delay_ms: int) -> None:
    assert parse(maxTriggerDelay=text).max_trigger_delay_ms == delay_ms


def test_limits_of_a_micro_batch() -> None:
    options = parse(maxOffsetsPerTrigger="200", minOffsetsPerTrigger="0", endOffsets="Flushed")
    assert (options.max_offsets, options.min_offsets, options.end_offsets) == (200, 0, "flushed")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets: ending offset not valid in streaming queries"),
        ({"endingTimestamp": "1"}, "endingTimestamp: ending timestamp not valid in streaming queries"),
        (
            {"endingOffsetsByTimestamp": "{}"},
            "endingOffsetsByTimestamp: ending timestamp not valid in streaming queries",
        ),
        ({"rows": "damage"}, "rows=damage is for batch reads"),
        ({"maxOffsetsPerTrigger": "x"}, 'maxOffsetsPerTrigger must be a whole number of at most 64 bits, got "x"'),
        ({"maxOffsetsPerTrigger": "-1"}, "maxOffsetsPerTrigger must not be negative, got -1"),
        ({"minOffsetsPerTrigger": "-1"}, "minOffsetsPerTrigger must not be negative, got -1"),
        (
            {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "10"},
            r"minOffsetsPerTrigger \(20\) is higher than maxOffsetsPerTrigger \(10\)",
        ),
        ({"maxTriggerDelay": "foo"}, 'maxTriggerDelay: got "foo". Time must be specified as seconds'),
        ({"maxTriggerDelay": "-5s"}, 'maxTriggerDelay: got "-5s"'),
        ({"maxTriggerDelay": "5 weeks"}, "Time must be specified"),
        ({"endOffsets": "latest"}, "endOffsets must be written or flushed, got latest"),
        ({"maxOffsetPerTrigger": "5"}, "unknown option maxOffsetPerTrigger; did you mean maxOffsetsPerTrigger?"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "Only one of the options"),
        ({"kafka__auto__offset__reset": "latest"}, "'auto.offset.reset' is not supported"),
    ],
)
def test_mistakes_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(**options)


def test_end_offsets_of_streams_are_no_option_of_a_batch_read() -> None:
    with pytest.raises(ValueError, match="unknown option endOffsets; did you mean endingOffsets"):
        parse_read_options({"path": "/data", "endOffsets": "flushed"})
