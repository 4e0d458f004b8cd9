"""What Spark's Kafka source answered to each input of a stream, on the broker whose directory the tests read.

Source: spark-sql-kafka-0-10 4.2.0 with pyspark 4.2.0 against a Kafka 4.1.0 broker. A result is a list of
micro-batches, each of (topic, partition, rows, first offset, last offset); the trigger is availableNow unless named.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.fakes.stream_query import Trigger
from tests.spark.connector_rows import (
    BY_TIME_10_20,
    DATA_LOSS,
    FROM_10_20,
    ONLY_ONE_OF,
    SMALL,
    Refused,
    Result,
    f_small,
    no_offset,
    offsets,
    small,
)

Batches = list[Result]


@dataclass(frozen=True)
class StreamRow:
    """One line of the observations; `kstore` and `because` only where kstore differs on purpose."""

    name: str
    options: dict[str, str]
    observed: Batches | Refused
    trigger: Trigger = "available now"
    kstore: Batches | Refused | None = None
    because: str | None = None

    def __post_init__(self) -> None:
        if (self.kstore is None) != (self.because is None):
            raise ValueError(f"{self.name}: a difference needs a reason, and a reason a difference")

    @property
    def expected(self) -> Batches | Refused:
        return self.observed if self.kstore is None else self.kstore


def earliest(**options: str) -> dict[str, str]:
    return {"startingOffsets": "earliest", "subscribe": "f.small", **options}


def skew(*bounds: tuple[int, int] | None) -> Result:
    """The first and last offset of partition 0, 1, ... of f.skew; None for no row."""
    return [
        ("f.skew", number, bound[1] - bound[0] + 1, *bound) for number, bound in enumerate(bounds) if bound is not None
    ]


FROM_90 = f_small((90, 99), (90, 99))
UNKNOWN_TOPIC = Refused("This server does not host this topic-partition", "not found: topic f.missing")
NOT_ALL = Refused(
    "If startingOffsets contains specific offsets, you must specify all TopicPartitions",
    "Partitions specified in startingOffsets don't match what are assigned; specified: f.small-0; assigned: f.small-0",
)
TIMES_NOT_ALL = Refused(
    "Partitions specified for Kafka timestamp based start offsets don't match what are assigned",
    "Partitions specified in startingOffsetsByTimestamp don't match what are assigned",
)
NO_ENDING_TIME = Refused("ending timestamp not valid in streaming queries")
BY_200 = [
    skew((0, 179), (0, 17), (0, 0), (0, 0)),
    skew((180, 359), (18, 35), (1, 1)),
    skew((360, 538), (36, 52), (2, 3)),
    skew((539, 717), (53, 70), (4, 5)),
    skew((718, 896), (71, 88), (6, 7)),
    skew((897, 999), (89, 99), (8, 9)),
]
BY_3 = [
    skew((980, 980), (90, 90), (5, 5), (0, 0)),
    skew((981, 981), (91, 91), (6, 6)),
    skew((982, 982), (92, 92), (7, 7)),
    skew((983, 983), (93, 93), (8, 8)),
    skew((984, 985), (94, 94), (9, 9)),
    skew((986, 987), (95, 95)),
    skew((988, 989), (96, 96)),
    skew((990, 991), (97, 97)),
    skew((992, 993), (98, 98)),
    skew((994, 995), (99, 99)),
    skew((996, 998)),
    skew((999, 999)),
]
ALL_SKEW = skew((0, 999), (0, 99), (0, 9), (0, 0))
MANY_SKEW = earliest(subscribe="f.skew")

STREAM_ROWS = [
    StreamRow("startingOffsets", earliest(), [SMALL]),
    StreamRow("startingOffsets default", small(), [[]]),
    StreamRow("startingOffsets", small(startingOffsets=offsets(90, -1)), [f_small((90, 99))]),
    StreamRow("startingOffsets", small(startingOffsets=offsets(90, -2)), [f_small((90, 99), (0, 99))]),
    StreamRow("startingOffsets partial", small(startingOffsets=offsets(90)), NOT_ALL),
    StreamRow("startingOffsets beyond end", small(startingOffsets=offsets(1000, 0)), Refused(DATA_LOSS)),
    StreamRow(
        "startingOffsets beyond end",
        small(startingOffsets=offsets(1000, 0), failOnDataLoss="false"),
        [[("f.small", 1, 100, 0, 99)]],
    ),
    StreamRow("startingTimestamp", small(startingTimestamp="1700000090000"), [FROM_90]),
    StreamRow("startingTimestamp beyond end", small(startingTimestamp="1701000000000"), no_offset(1701000000000)),
    StreamRow(
        "startingTimestamp beyond end",
        small(startingTimestamp="1701000000000", startingOffsetsByTimestampStrategy="latest"),
        [[]],
    ),
    StreamRow(
        "startingOffsetsByTimestamp",
        small(startingOffsetsByTimestamp=offsets(1700000098000, 1700000099000)),
        [f_small((98, 99), (99, 99))],
    ),
    StreamRow("startingOffsetsByTimestamp", small(startingOffsetsByTimestamp=BY_TIME_10_20), [FROM_10_20]),
    StreamRow("startingOffsetsByTimestamp partial", small(startingOffsetsByTimestamp=offsets(1)), TIMES_NOT_ALL),
    StreamRow("endingOffsets", small(endingOffsets="latest"), Refused("ending offset not valid in streaming queries")),
    StreamRow(
        "endingTimestamp",
        small(endingTimestamp="1700000000000"),
        [[]],
        kstore=NO_ENDING_TIME,
        because="an option that would change nothing is refused, as the two others for the end are",
    ),
    StreamRow("endingOffsetsByTimestamp", small(endingOffsetsByTimestamp=offsets(1, 1)), NO_ENDING_TIME),
    StreamRow("missing topic", earliest(subscribe="f.missing"), UNKNOWN_TOPIC),
    StreamRow("subscribe and assign", small(assign='{"f.small":[0]}'), ONLY_ONE_OF),
    StreamRow("group id", earliest(**{"kafka.group.id": "g1"}), [SMALL]),
    StreamRow("maxOffsetsPerTrigger", MANY_SKEW | {"maxOffsetsPerTrigger": "200"}, BY_200),
    StreamRow(
        "maxOffsetsPerTrigger",
        {
            "subscribe": "f.skew",
            "maxOffsetsPerTrigger": "3",
            "startingOffsets": offsets(980, 90, 5, 0, topic="f.skew"),
        },
        BY_3,
    ),
    StreamRow("maxOffsetsPerTrigger of 0", earliest(maxOffsetsPerTrigger="0"), [[]]),
    StreamRow(
        "maxOffsetsPerTrigger of x",
        earliest(maxOffsetsPerTrigger="x"),
        Refused('For input string: "x"', "maxOffsetsPerTrigger must be a whole number"),
    ),
    StreamRow("once", MANY_SKEW | {"maxOffsetsPerTrigger": "200"}, [ALL_SKEW], trigger="once"),
    StreamRow(
        "minimum above maximum",
        earliest(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="20"),
        Refused(
            "The value of minOffsetPerTrigger(20) is higher than the maxOffsetsPerTrigger(10)",
            r"The value of minOffsetsPerTrigger \(20\) is higher than maxOffsetsPerTrigger \(10\)",
        ),
    ),
    StreamRow("minOffsetsPerTrigger", earliest(minOffsetsPerTrigger="1000", maxTriggerDelay="5s"), [SMALL]),
    StreamRow(
        "maxTriggerDelay of foo",
        earliest(minOffsetsPerTrigger="1000", maxTriggerDelay="foo"),
        Refused("Time must be specified as seconds (s), milliseconds (ms), microseconds (us), minutes (m or min)"),
    ),
    StreamRow("maxRecordsPerPartition", MANY_SKEW | {"maxRecordsPerPartition": "300"}, [ALL_SKEW]),
    StreamRow(
        "startingTimestamp and startingOffsets",
        small(startingTimestamp="1700000090000", startingOffsets="earliest"),
        [FROM_90],
    ),
]

# The (partition, first offset, last offset) of the tasks of a stream over f.skew from its earliest offsets.
SPLITS = [
    ({"maxRecordsPerPartition": "300"}, [(0, 0, 249), (0, 250, 499), (0, 500, 749), (0, 750, 999)]),
    ({"minPartitions": "8"}, [(0, at, at + 199) for at in range(0, 1000, 200)]),
    ({"maxRecordsPerPartition": "300", "minPartitions": "12"}, [(0, at, at + 124) for at in range(0, 1000, 125)]),
]
SPLIT_REST = [(1, 0, 99), (2, 0, 9), (3, 0, 0)]
