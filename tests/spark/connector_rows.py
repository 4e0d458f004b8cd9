"""What Spark's Kafka source answered to each batch input, on the broker whose directory the tests read.

Source: spark-sql-kafka-0-10 4.2.0 with pyspark 4.2.0 against a Kafka 4.1.0 broker. A result is
(topic, partition, rows, first offset, last offset) for each partition with rows. An error is
given by words of the connector's message, and by what kstore's message must match.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

Result = list[tuple[str, int, int, int, int]]
Split = list[tuple[int, int, int, int]]


@dataclass(frozen=True)
class Refused:
    """An error: words of the connector's message, and a pattern for kstore's where the words differ."""

    connector: str
    kstore: str | None = None

    @property
    def pattern(self) -> str:
        return re.escape(self.connector) if self.kstore is None else self.kstore


@dataclass(frozen=True)
class Row:
    """One line of the observations; `kstore` and `because` only where kstore differs on purpose."""

    name: str
    options: dict[str, str]
    observed: Result | Split | Refused
    kstore: Result | Split | Refused | None = None
    because: str | None = None

    def __post_init__(self) -> None:
        if (self.kstore is None) != (self.because is None):
            raise ValueError(f"{self.name}: a difference needs a reason, and a reason a difference")

    @property
    def expected(self) -> Result | Split | Refused:
        return self.observed if self.kstore is None else self.kstore


def small(**options: str) -> dict[str, str]:
    return {"subscribe": "f.small", **options}


def offsets(*by_number: Any, topic: str = "f.small") -> str:
    """JSON of values for partition 0, 1, ... of a topic."""
    return json.dumps({topic: {str(number): value for number, value in enumerate(by_number)}})


def f_small(*first_and_last: tuple[int, int]) -> Result:
    return [("f.small", number, last - first + 1, first, last) for number, (first, last) in enumerate(first_and_last)]


SMALL = f_small((0, 99), (0, 99))
FROM_50 = f_small((50, 99), (50, 99))
FROM_10_20 = f_small((10, 99), (20, 99))
FROM_0_20 = f_small((0, 99), (20, 99))
UP_TO_10_20 = f_small((0, 9), (0, 19))
OTHER = [("f.other", 0, 10, 0, 9)]
OTHER_AS_PACKED = [("f.other", 0, 20, 0, 19)]
PACKED_LATER = "the directory was packed after the sink's rows had added ten records to f.other"
EVERY_TOPIC = [
    ("f.back", 0, 5, 0, 4),
    ("f.grow", 0, 30, 0, 29),
    ("f.grow", 1, 20, 0, 19),
    ("f.logappend", 0, 5, 0, 4),
    *OTHER_AS_PACKED,
    ("f.skew", 0, 1000, 0, 999),
    ("f.skew", 1, 100, 0, 99),
    ("f.skew", 2, 10, 0, 9),
    ("f.skew", 3, 1, 0, 0),
    *SMALL,
    ("f.trimmed", 0, 60, 40, 99),
    ("f.trimmed", 1, 100, 0, 99),
    ("f.txn", 0, 26, 0, 28),
]
TRIMMED = [("f.trimmed", 0, 60, 40, 99), ("f.trimmed", 1, 100, 0, 99)]
BY_TIME_10_20 = offsets(1700000010000, 1700000020000)

UNKNOWN_TOPIC = "This server does not host this topic-partition"
ONE_OF = "One of the following options must be specified for Kafka source"
ONLY_ONE_OF = Refused(
    "Only one of the following options can be specified for Kafka source: subscribe, subscribepattern, assign",
    "Only one of the options subscribe, subscribePattern, assign can be specified",
)
OFFSETS_EXAMPLE = 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got '
ASSIGN_EXAMPLE = 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got '
NOT_ASSIGNED = Refused(
    "Partitions specified for Kafka start offsets don't match what are assigned",
    "Partitions specified in startingOffsets don't match what are assigned",
)
TIMES_NOT_ASSIGNED = Refused(
    "Partitions specified for Kafka timestamp based start offsets don't match what are assigned",
    "Partitions specified in startingOffsetsByTimestamp don't match what are assigned",
)
END_TIMES_NOT_ASSIGNED = Refused(
    "Partitions specified for Kafka timestamp based end offsets don't match what are assigned",
    "Partitions specified in endingOffsetsByTimestamp don't match what are assigned",
)
ENDS_NOT_ASSIGNED = Refused(
    "Partitions specified for Kafka start offsets don't match what are assigned",
    "Partitions specified in endingOffsets don't match what are assigned",
)
DATA_LOSS = "Some data may have been lost because they are not available"


def no_offset(timestamp_ms: int, partition: str = "[01]") -> Refused:
    """Which partition the connector names depends on its hash order; kstore names the first."""
    words = "No offset matched from request of topic-partition f.small-"
    return Refused(words, f"{words}{partition} and timestamp {timestamp_ms}")


TOPIC_ROWS = [
    Row("subscribe", {"subscribe": "f.small, f.other ,"}, OTHER + SMALL, OTHER_AS_PACKED + SMALL, PACKED_LATER),
    Row("subscribe", {"subscribe": "f.small,f.small"}, SMALL),
    Row("subscribe", {}, Refused(ONE_OF), EVERY_TOPIC, "a directory has an end: without a choice all of it is read"),
    Row("subscribe", {"subscribe": "f.missing"}, Refused(UNKNOWN_TOPIC, "not found: topic f.missing; searched /")),
    Row(
        "subscribe", {"subscribe": "f.small,f.missing"}, Refused(UNKNOWN_TOPIC, "not found: topic f.missing; searched")
    ),
    Row("subscribe", {"subscribe": "f.empty"}, []),
    Row(
        "subscribePattern",
        {"subscribePattern": r"f\.(small|other)"},
        OTHER + SMALL,
        OTHER_AS_PACKED + SMALL,
        PACKED_LATER,
    ),
    Row("subscribePattern", {"subscribePattern": "small"}, SMALL),
    Row("subscribePattern (no match)", {"subscribePattern": "nope.*"}, []),
    Row(
        "subscribePattern (bad regex)",
        {"subscribePattern": "f.("},
        Refused("Unclosed group near index 3", "subscribePattern is not a regular expression: .*unterminated"),
    ),
    Row("subscribePattern (internal)", {"subscribePattern": "__.*"}, []),
    Row("assign", {"assign": '{"f.small": [1]}'}, SMALL[1:]),
    Row(
        "assign",
        {"assign": '{"f.small": [0, 1], "f.other": [0]}'},
        OTHER + SMALL,
        OTHER_AS_PACKED + SMALL,
        PACKED_LATER,
    ),
    Row(
        "assign (unknown partition)",
        {"assign": '{"f.small": [0, 7]}'},
        SMALL[:1],
        Refused("", "not found: partition f.small-7; searched /"),
        "a partition that was asked for and is not there is an error, not silence",
    ),
    Row(
        "assign (missing topic)",
        {"assign": '{"f.missing": [0]}'},
        Refused(UNKNOWN_TOPIC, "not found: partition f.missing-0; searched /"),
    ),
    Row(
        "assign (bad JSON)",
        {"assign": "f.small:0"},
        Refused("No topicpartitions to assign", "No topicpartitions to assign.*'f.small:0'"),
    ),
    Row("assign (bad shape)", {"assign": '{"f.small": 0}'}, Refused(ASSIGN_EXAMPLE + '{"f.small": 0}')),
    Row("assign (string ids)", {"assign": '{"f.small": ["0"]}'}, Refused(ASSIGN_EXAMPLE + '{"f.small": ["0"]}')),
    Row("assign (empty)", {"assign": "{}"}, []),
    Row("subscribe + assign", small(assign='{"f.small": [0]}'), ONLY_ONE_OF),
    Row("subscribe + assign", small(assign="x"), ONLY_ONE_OF),
    Row("subscribe + subscribePattern", small(subscribePattern="f.*"), ONLY_ONE_OF),
    Row(
        "no topic option",
        {},
        Refused(ONE_OF),
        EVERY_TOPIC,
        "a directory has an end: without a choice all of it is read",
    ),
    Row(
        "no kafka.bootstrap.servers",
        small(),
        Refused("Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer"),
        SMALL,
        "the path stands in place of a broker",
    ),
    Row(
        "bootstrap unreachable",
        small(**{"kafka.bootstrap.servers": "127.0.0.1:20999"}),
        Refused("Timed out waiting for a node assignment"),
        SMALL,
        "no broker is asked",
    ),
    Row("option name case", {"SUBSCRIBE": "f.small", "STARTINGOFFSETS": offsets(10, 20)}, FROM_10_20),
    Row("topic name case", {"subscribe": "F.SMALL"}, Refused(UNKNOWN_TOPIC, "not found: topic F.SMALL")),
]

TIME_ROWS = [
    Row("startingTimestamp", small(startingTimestamp="1700000000000"), SMALL),
    Row("startingTimestamp", small(startingTimestamp="1700000050000"), FROM_50),
    Row("startingTimestamp", small(startingTimestamp="1700000050001"), f_small((51, 99), (51, 99))),
    Row("startingTimestamp", small(startingTimestamp="1700000099000"), f_small((99, 99), (99, 99))),
    Row("startingTimestamp", small(startingTimestamp="1700000099001"), no_offset(1700000099001)),
    Row("startingTimestamp", small(startingTimestamp="1699999000000"), SMALL),
    Row(
        "startingTimestamp",
        small(startingTimestamp="abc"),
        Refused("Expected a single long value, got abc", "Expected a single long value .*, got abc"),
    ),
    Row("startingTimestamp", small(startingTimestamp="-5"), no_offset(-5)),
    Row("startingTimestamp", small(startingTimestamp="0"), SMALL),
    Row(
        "startingTimestamp beyond end, strategy=latest",
        small(startingTimestamp="1701000000000", startingOffsetsByTimestampStrategy="latest"),
        [],
    ),
    Row(
        "strategy=error",
        small(startingTimestamp="1701000000000", startingOffsetsByTimestampStrategy="error"),
        no_offset(1701000000000),
    ),
    Row(
        "strategy=bad",
        small(startingTimestamp="1700000000000", startingOffsetsByTimestampStrategy="foo"),
        Refused("No value found for 'FOO'", "startingOffsetsByTimestampStrategy must be error or latest, got foo"),
    ),
    Row(
        "strategy=LATEST",
        small(startingTimestamp="1701000000000", startingOffsetsByTimestampStrategy="LATEST"),
        [],
    ),
    Row("startingOffsetsByTimestamp", small(startingOffsetsByTimestamp=BY_TIME_10_20), FROM_10_20),
    Row("startingOffsetsByTimestamp", small(startingOffsetsByTimestamp=offsets(1700000010000)), TIMES_NOT_ASSIGNED),
    Row("startingOffsetsByTimestamp", small(startingOffsetsByTimestamp=offsets(1700000000000)), TIMES_NOT_ASSIGNED),
    Row(
        "startingOffsetsByTimestamp",
        small(startingOffsetsByTimestamp=offsets(1701000000000, 1700000000000)),
        no_offset(1701000000000, partition="0"),
    ),
    Row("startingOffsetsByTimestamp", small(startingOffsetsByTimestamp=offsets(-1, 1700000000000)), SMALL[1:]),
    Row("startingOffsetsByTimestamp", small(startingOffsetsByTimestamp=offsets(-2, 1700000000000)), SMALL),
    Row(
        "startingOffsetsByTimestamp",
        small(startingOffsetsByTimestamp='{"f.small": {"0": 1700000000000, "1": 1700000000000, "5": 1700000000000}}'),
        TIMES_NOT_ASSIGNED,
    ),
    Row(
        "startingOffsetsByTimestamp (bad JSON)",
        small(startingOffsetsByTimestamp="xyz"),
        Refused('Expected e.g. {"topicA": {"0": 123456789', "Expected e.g. .*123456789.*, got xyz"),
    ),
    Row(
        "startingOffsetsByTimestamp beyond end, strategy latest",
        small(
            startingOffsetsByTimestamp=offsets(1701000000000, 1700000000000),
            startingOffsetsByTimestampStrategy="latest",
        ),
        SMALL[1:],
    ),
    Row("endingTimestamp", small(endingTimestamp="1700000050000"), f_small((0, 49), (0, 49))),
    Row("endingTimestamp", small(endingTimestamp="1700000050001"), f_small((0, 50), (0, 50))),
    Row("endingTimestamp", small(endingTimestamp="1699999999999"), []),
    Row("endingTimestamp", small(endingTimestamp="1701000000000"), SMALL),
    Row("endingOffsetsByTimestamp", small(endingOffsetsByTimestamp=BY_TIME_10_20), UP_TO_10_20),
    Row(
        "endingOffsetsByTimestamp partial",
        small(endingOffsetsByTimestamp=offsets(1700000010000)),
        END_TIMES_NOT_ASSIGNED,
    ),
    Row(
        "precedence: startingTimestamp + ByTimestamp + startingOffsets",
        small(
            startingTimestamp="1700000090000", startingOffsetsByTimestamp=BY_TIME_10_20, startingOffsets=offsets(5, 5)
        ),
        f_small((90, 99), (90, 99)),
    ),
    Row(
        "precedence: ByTimestamp + startingOffsets",
        small(startingOffsetsByTimestamp=BY_TIME_10_20, startingOffsets=offsets(5, 5)),
        FROM_10_20,
    ),
    Row(
        "startingTimestamp > endingTimestamp",
        small(startingTimestamp="1700000050000", endingTimestamp="1700000010000"),
        Refused(
            "The resolved start offset 50 is greater than the resolved end offset 10 for topic f.small",
            r"resolved start offset 50 is greater than the resolved end offset 10 for topic f\.small partition [01]",
        ),
    ),
    Row(
        "timestamps out of order (5,1,9,2,9 s): start 2 s",
        {"subscribe": "f.back", "startingTimestamp": "1700000002000"},
        [("f.back", 0, 5, 0, 4)],
    ),
    Row(
        "timestamps out of order: start 6 s",
        {"subscribe": "f.back", "startingTimestamp": "1700000006000"},
        [("f.back", 0, 3, 2, 4)],
    ),
    Row("timestamps out of order: end 2 s", {"subscribe": "f.back", "endingTimestamp": "1700000002000"}, []),
]

OFFSET_ROWS = [
    Row("startingOffsets", small(startingOffsets="earliest"), SMALL),
    Row("startingOffsets", small(startingOffsets="EARLIEST"), SMALL),
    Row("startingOffsets", small(startingOffsets=" earliest "), SMALL),
    Row("startingOffsets", small(startingOffsets="latest"), Refused("starting offset can't be latest")),
    Row("startingOffsets", small(startingOffsets="foo"), Refused(OFFSETS_EXAMPLE + "foo")),
    Row("endingOffsets", small(endingOffsets="latest"), SMALL),
    Row("endingOffsets", small(endingOffsets="earliest"), Refused("ending offset can't be earliest")),
    Row("endingOffsets", small(endingOffsets="LATEST"), SMALL),
    Row("endingOffsets", small(endingOffsets="foo"), Refused(OFFSETS_EXAMPLE + "foo")),
    Row("startingOffsets JSON", small(startingOffsets=offsets(10, 20)), FROM_10_20),
    Row("startingOffsets JSON", small(startingOffsets=offsets(-2, 20)), FROM_0_20),
    Row(
        "startingOffsets JSON",
        small(startingOffsets=offsets(-1, 20)),
        Refused("starting offset for f.small-0 can't be latest"),
    ),
    Row(
        "startingOffsets JSON",
        small(startingOffsets=offsets(-3, 20)),
        Refused("earliest offset -3 does not equal -2", r"startingOffsets for f\.small-0 is -3: expected"),
    ),
    Row("startingOffsets JSON", small(startingOffsets=offsets(10)), NOT_ASSIGNED),
    Row("startingOffsets JSON", small(startingOffsets=offsets(10, 20, 0)), NOT_ASSIGNED),
    Row("startingOffsets JSON", small(startingOffsets=offsets(1, topic="f.other")), NOT_ASSIGNED),
    Row(
        "startingOffsets JSON",
        small(startingOffsets='{"f.small": {"0": 10, "1": 20}, "f.other": {"0": 1}}'),
        NOT_ASSIGNED,
    ),
    Row(
        "startingOffsets JSON",
        small(startingOffsets=offsets(1000, 20)),
        Refused(
            "The resolved start offset 1000 is greater than the resolved end offset 100 for topic f.small partition 0"
        ),
    ),
    Row("startingOffsets JSON", small(startingOffsets=offsets(100, 100)), []),
    Row(
        "startingOffsets JSON",
        small(startingOffsets=offsets("10", "20")),
        Refused(OFFSETS_EXAMPLE + '{"f.small": {"0": "10", "1": "20"}}'),
    ),
    Row(
        "startingOffsets JSON",
        small(startingOffsets='{"f.small": "earliest"}'),
        Refused(OFFSETS_EXAMPLE + '{"f.small": "earliest"}'),
    ),
    Row("startingOffsets JSON", small(startingOffsets=offsets(10.5, 20)), FROM_10_20),
    Row(
        "startingOffsets (bad JSON)",
        small(startingOffsets='{"f.small":{"0":10,'),
        Refused(OFFSETS_EXAMPLE + '{"f.small":{"0":10,'),
    ),
    Row("startingOffsets (empty string)", small(startingOffsets=""), Refused(OFFSETS_EXAMPLE)),
    Row("startingOffsets (empty object)", small(startingOffsets="{}"), NOT_ASSIGNED),
    Row("endingOffsets JSON", small(endingOffsets=offsets(10, 20)), UP_TO_10_20),
    Row("endingOffsets JSON", small(endingOffsets=offsets(-1, 20)), f_small((0, 99), (0, 19))),
    Row(
        "endingOffsets JSON",
        small(endingOffsets=offsets(-2, 20)),
        Refused("ending offset for f.small-0 can't be earliest"),
    ),
    Row("endingOffsets JSON", small(endingOffsets=offsets(10)), ENDS_NOT_ASSIGNED),
    Row("endingOffsets JSON", small(endingOffsets=offsets(1000, 20)), Refused(DATA_LOSS)),
    Row("endingOffsets JSON", small(endingOffsets=offsets(0, 0)), []),
    Row(
        "endingOffsets 1000 beyond end, failOnDataLoss=false",
        small(endingOffsets=offsets(1000, 20), failOnDataLoss="false", **{"kafkaConsumer.pollTimeoutMs": "5000"}),
        f_small((0, 99), (0, 19)),
    ),
    Row(
        "ending before starting",
        small(startingOffsets=offsets(50, 50), endingOffsets=offsets(10, 60)),
        Refused("The specified start offset 50 is greater than the end offset 10 for topic f.small partition 0"),
    ),
    Row(
        "ending before starting, failOnDataLoss=false",
        small(startingOffsets=offsets(50, 50), endingOffsets=offsets(10, 60), failOnDataLoss="false"),
        Refused("The specified start offset 50 is greater than the end offset 10 for topic f.small partition 0"),
    ),
    Row(
        "ending = starting",
        small(startingOffsets=offsets(50, 50), endingOffsets=offsets(50, 60)),
        [("f.small", 1, 10, 50, 59)],
    ),
    Row("offset out of range (trimmed to 40)", {"subscribe": "f.trimmed"}, TRIMMED),
    Row(
        "out of range, failOnDataLoss=true",
        {"subscribe": "f.trimmed", "startingOffsets": offsets(10, 0, topic="f.trimmed")},
        Refused(DATA_LOSS, rf"{DATA_LOSS}.*\[10, 100\) of f\.trimmed-0.*set the option failOnDataLoss to false"),
    ),
    Row(
        "out of range, failOnDataLoss=false",
        {
            "subscribe": "f.trimmed",
            "startingOffsets": offsets(10, 0, topic="f.trimmed"),
            "failOnDataLoss": "false",
        },
        TRIMMED,
    ),
    Row(
        "range wholly trimmed, failOnDataLoss=false",
        {
            "subscribe": "f.trimmed",
            "startingOffsets": offsets(10, 0, topic="f.trimmed"),
            "endingOffsets": offsets(20, 5, topic="f.trimmed"),
            "failOnDataLoss": "false",
        },
        [("f.trimmed", 1, 5, 0, 4)],
    ),
    Row(
        "full text",
        small(startingOffsets=offsets(10)),
        Refused("", "specified: f.small-0; assigned: f.small-0, f.small-1"),
    ),
    Row(
        "full text",
        small(startingOffsets=offsets(1, 1), endingOffsets=offsets(10)),
        Refused("The specified start offset and end offset should have the same topic-partitions"),
    ),
]

OTHER_OPTION_ROWS = [
    Row("other option", small(maxOffsetsPerTrigger="10"), SMALL),
    Row("other option", small(maxOffsetsPerTrigger="5"), SMALL),
    Row("other option", small(minOffsetsPerTrigger="10"), SMALL),
    Row("other option", small(maxTriggerDelay="1s"), SMALL),
    Row(
        "other option",
        small(minOffsetsPerTrigger="20", maxOffsetsPerTrigger="10"),
        Refused(
            "The value of minOffsetPerTrigger(20) is higher than the maxOffsetsPerTrigger(10)",
            r"The value of minOffsetsPerTrigger \(20\) is higher than maxOffsetsPerTrigger \(10\)",
        ),
    ),
    Row(
        "other option",
        small(**{"kafka.auto.offset.reset": "latest"}),
        Refused(
            "Kafka option 'auto.offset.reset' is not supported. Instead set the source option 'startingoffsets'",
            "Kafka option 'auto.offset.reset' is not supported: set startingOffsets",
        ),
    ),
    Row(
        "other option",
        small(**{"kafka.key.deserializer": "x"}),
        Refused("Kafka option 'key.deserializer' is not supported"),
    ),
    Row(
        "other option",
        small(**{"kafka.value.deserializer": "x"}),
        Refused("Kafka option 'value.deserializer' is not supported"),
    ),
    Row(
        "other option",
        small(**{"kafka.enable.auto.commit": "true"}),
        Refused("Kafka option 'enable.auto.commit' is not supported"),
    ),
    Row(
        "other option",
        small(**{"kafka.interceptor.classes": "x"}),
        Refused("Kafka option 'interceptor.classes' is not supported"),
    ),
    Row("other option", small(**{"kafka.group.id": "g"}), SMALL),
    Row("other option", small(groupIdPrefix="p"), SMALL),
    Row("other option", small(groupIdPrefix="p", **{"kafka.group.id": "g"}), SMALL),
    Row("other option", small(**{"kafka.check.crcs": "false"}), SMALL),
    Row(
        "other option",
        small(unknownOption="1"),
        SMALL,
        kstore=Refused("", "unknown option unknownoption; "),
        because="a misspelt name would change what is read without a word",
    ),
    Row(
        "other option",
        small(includeHeaders="maybe"),
        Refused('For input string: "maybe"', 'includeHeaders must be true or false, got "maybe"'),
    ),
    Row(
        "other option",
        small(**{"kafkaConsumer.pollTimeoutMs": "x"}),
        Refused('For input string: "x"', 'kafkaConsumer.pollTimeoutMs must be a whole number.*got "x"'),
    ),
    Row(
        "other option",
        small(**{"fetchOffset.numRetries": "x"}),
        Refused('For input string: "x"', 'fetchOffset.numRetries must be a whole number.*got "x"'),
    ),
    Row(
        "failOnDataLoss bad value",
        small(failOnDataLoss="maybe"),
        Refused('For input string: "maybe"', 'failOnDataLoss must be true or false, got "maybe"'),
    ),
    Row(
        "kafka.isolation.level",
        {"subscribe": "f.txn", "kafka.isolation.level": "read_committed"},
        [("f.txn", 0, 20, 0, 26)],
    ),
    Row(
        "kafka.isolation.level",
        {"subscribe": "f.txn", "kafka.isolation.level": "foo"},
        Refused(
            "Invalid value foo for configuration isolation.level: String must be one of: read_committed",
            "Invalid value foo for kafka.isolation.level: must be one of read_committed, read_uncommitted",
        ),
    ),
]

READ_ROWS = [*TOPIC_ROWS, *TIME_ROWS, *OFFSET_ROWS, *OTHER_OPTION_ROWS]

PLAIN_SPLIT = [(0, 0, 0, 999), (1, 1, 0, 99), (2, 2, 0, 9), (3, 3, 0, 0)]
SMALL_TASKS = [(0, 2, 0, 9), (1, 1, 0, 99), (2, 3, 0, 0)]
WORKS_IN_BATCH = "maxRecordsPerPartition works in batch reads too"


def big_tasks(size: int) -> Split:
    """Partition 0 of f.skew cut evenly, after the three small tasks."""
    return [(3 + number, 0, first, first + size - 1) for number, first in enumerate(range(0, 1000, size))]


def at_most(size: int, *rest: tuple[int, int]) -> Split:
    """Even cuts in order of partition: partition 0 by size, then (partition, last offset) whole."""
    tasks = [(0, first, first + size - 1) for first in range(0, 1000, size)]
    tasks += [(partition, 0, last) for partition, last in rest]
    return [(number, *task) for number, task in enumerate(tasks)]


SPLIT_IN_34 = [29] * 20 + [30] * 14
SPLIT_30 = [
    *((0, sum(SPLIT_IN_34[:number]), sum(SPLIT_IN_34[: number + 1]) - 1) for number in range(34)),
    *((1, first, first + 24) for first in range(0, 100, 25)),
    (2, 0, 9),
    (3, 0, 0),
]

# (Spark partition, Kafka partition, first offset, last offset) of f.skew, which holds 1000, 100, 10 and 1 records.
SPLIT_ROWS = [
    Row("splitting", {}, PLAIN_SPLIT),
    Row("splitting", {"minPartitions": "1"}, PLAIN_SPLIT),
    Row("splitting", {"minPartitions": "4"}, PLAIN_SPLIT),
    Row("splitting", {"minPartitions": "5"}, SMALL_TASKS + big_tasks(500)),
    Row("splitting", {"minPartitions": "8"}, SMALL_TASKS + big_tasks(200)),
    Row("splitting", {"minPartitions": "0"}, Refused("minPartitions must be positive")),
    Row("splitting", {"minPartitions": "-1"}, Refused("minPartitions must be positive")),
    Row(
        "splitting",
        {"minPartitions": "x"},
        Refused('For input string: "x"', 'minPartitions must be a whole number.*got "x"'),
    ),
    Row(
        "splitting",
        {"maxRecordsPerPartition": "300"},
        PLAIN_SPLIT,
        at_most(250, (1, 99), (2, 9), (3, 0)),
        WORKS_IN_BATCH,
    ),
    Row(
        "splitting",
        {"maxRecordsPerPartition": "30"},
        PLAIN_SPLIT,
        [(number, *task) for number, task in enumerate(SPLIT_30)],
        WORKS_IN_BATCH,
    ),
    Row("splitting", {"maxRecordsPerPartition": "300", "minPartitions": "12"}, SMALL_TASKS + big_tasks(125)),
    Row(
        "splitting",
        {"maxRecordsPerPartition": "0"},
        Refused("maxrecordsperpartition must be positive", "maxRecordsPerPartition must be positive"),
    ),
    Row(
        "splitting",
        {"maxRecordsPerPartition": "x"},
        Refused('For input string: "x"', 'maxRecordsPerPartition must be a whole number.*got "x"'),
    ),
]
