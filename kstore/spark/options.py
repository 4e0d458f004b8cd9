"""The options of a read, which have the names of Spark's Kafka source, and the settings of a session.

Opens no file and does not import Spark. Each invalid option is a ValueError with its name and its value, and what was
expected.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from kstore.config import MAX_INT32, MAX_INT64, MIB, LogConfig
from kstore.env import Env
from kstore.env.process import set_default_variable
from kstore.errors import checked_int
from kstore.spark.option_names import ISOLATION_LEVEL, TIER_KEY, VALUE_NAMES, check_names, checked_path
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kstore.log.damage import OnError
    from kstore.log.reads import Isolation
    from kstore.values.decoded import Origin
    from kstore.values.formats import ValueFormat
    from kstore.values.typed import ValueMode

# What configure() takes and returns.
_Spark = TypeVar("_Spark", "SparkSession", "SparkSession.Builder")

EARLIEST: Final = -2
LATEST: Final = -1
READ_UNCOMMITTED: Final[Isolation] = "read_uncommitted"
READ_COMMITTED: Final[Isolation] = "read_committed"

_OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMESTAMPS_EXAMPLE = '{"topicA":{"0":123456789,"1":123456789},"topicB":{"0":123456789,"1":123456789}}'
_ASSIGN_EXAMPLE = '{"topicA":[0,1],"topicB":[0,1]}'
_BYTE_UNITS = {"": 1, "b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30}
_REFUSED_CLIENT_OPTIONS = {
    "auto.offset.reset": "set startingOffsets to earliest, or to offsets per partition, instead",
    "key.deserializer": "keys are returned as bytes (or as text with a schema that says key STRING); "
    "deserialize them with DataFrame operations",
    "value.deserializer": "values are returned as bytes (or as text with a schema that says value STRING); "
    "deserialize them with DataFrame operations",
    "enable.auto.commit": "a read commits no offsets",
    "interceptor.classes": "no Kafka consumer is involved",
}
_IGNORED_INTEGER_OPTIONS = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
)
# Of the Arrow batches that Spark sends to Python.
_TARGET_BATCH_BYTES = 4 * MIB
_MOST_RECORDS = 10_000
_FEWEST_RECORDS = 1_000


@dataclass(frozen=True, kw_only=True)
class Subscribe:
    """All partitions of the named topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SubscribePattern:
    """All partitions of the non-internal topics whose name contains a match of the pattern (re.search)."""

    pattern: str


@dataclass(frozen=True, kw_only=True)
class Assign:
    """Exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, kw_only=True)
class EveryTopic:
    """All non-internal topics, and every partition directory that is itself one of the paths."""


TopicSelection = Subscribe | SubscribePattern | Assign | EveryTopic


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Where a read starts or ends: one value for all partitions, or one per partition.

    Values are offsets, EARLIEST or LATEST, or, if is_timestamp, milliseconds since the epoch.
    Exactly one of `everywhere` and `by_partition` is set. option: the name of the option, for error messages.
    """

    option: str
    is_timestamp: bool = False
    everywhere: int | None = None
    by_partition: Mapping[TopicPartition, int] | None = None


Mode: TypeAlias = Literal["FAILFAST", "PERMISSIVE"]


@dataclass(frozen=True, kw_only=True)
class ValueOptions:
    """How keys and values become columns. mode: what one does that cannot be decoded."""

    formats: Mapping[Origin, ValueFormat]
    mode: ValueMode

    @property
    def corrupt_columns(self) -> list[str]:
        """The columns that say why keys or values are null that could not be decoded."""
        return [f"_corrupt_{origin}" for origin in self.formats] if self.mode == "PERMISSIVE" else []


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """All options of a read, validated. gives_damage: the rows are the damaged ranges, not the records.

    values: None for keys and values as bytes. A stream has no ending offsets. tier: the path or URL of tiered storage,
    None without; tier_keys: (key id in lower case, path of a private key) each; tier_epoch: as of kstore.open_log;
    max_decrypted_bytes: as of LogConfig, None for its default.
    """

    paths: tuple[str, ...]
    topics: TopicSelection
    starting: Bound
    ending: Bound
    latest_if_no_timestamp: bool
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_partition_bytes: int | None
    fail_on_data_loss: bool
    isolation_level: Isolation
    push_filters: bool
    mode: Mode
    gives_damage: bool
    values: ValueOptions | None = None
    tier: str | None = None
    tier_keys: tuple[tuple[str, str], ...] = ()
    tier_epoch: int | None = None
    max_decrypted_bytes: int | None = None

    @property
    def env(self) -> Env | None:
        """The Env of the paths with their tier, as it is now; None without a tier."""
        if self.tier is None:
            return None
        from kstore.store.opening import tiered_env

        limit = self.max_decrypted_bytes
        config = None if limit is None else LogConfig(max_decrypted_bytes=limit)
        return tiered_env(self.paths, self.tier, keys=dict(self.tier_keys), epoch=self.tier_epoch, config=config)

    @property
    def on_error(self) -> OnError:
        """What a reader does about damage, as kstore.scan takes it."""
        return "skip" if self.mode == "PERMISSIVE" else "raise"


class OptionReader:
    """Typed, case-insensitive access to options by their documented names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def names(self) -> list[str]:
        return list(self._options)

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def boolean(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise ValueError(f'{name} must be true or false, got "{text}"')
        return text.lower() == "true"

    def integer(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or abs(int(text)) > MAX_INT64:
            raise ValueError(f'{name} must be a whole number of at most 64 bits, got "{text}"')
        return int(text)

    def positive_integer(self, name: str) -> int | None:
        value = self.integer(name)
        if value is not None and value <= 0:
            raise ValueError(f"{name} must be positive, got {value}")
        return value

    def size_in_bytes(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        match = re.fullmatch(r"([0-9]{1,12})([a-z]{0,2})", text.strip().lower())
        unit = _BYTE_UNITS.get(match[2]) if match else None
        if match is None or unit is None or not 0 < int(match[1]) * unit <= MAX_INT64:
            raise ValueError(f'{name} must be a positive number of bytes such as 134217728 or 128m, got "{text}"')
        return int(match[1]) * unit


def parse_read_options(options: Mapping[str, str], *, is_stream: bool = False) -> ReadOptions:
    """Parse and validate the options of a read. Kafka client options without a meaning here are ignored.

    Args: is_stream: a stream starts at the latest offset by default, and takes no ending.
    Raises: ValueError that names the option; for an unknown one also the nearest known name.
    """
    check_names(options, "readStream" if is_stream else "read")
    reader = OptionReader(options)
    _check_client_options(reader)
    if is_stream:
        _check_stream_options(reader)
    starting = _starting_bound(reader, is_stream=is_stream)
    ending = _ending_bound(reader)
    _check_same_partitions(starting, ending)
    return ReadOptions(
        paths=_paths(reader),
        topics=_topic_selection(reader),
        starting=starting,
        ending=ending,
        latest_if_no_timestamp=_latest_if_no_timestamp(reader),
        include_headers=reader.boolean("includeHeaders", default=False),
        min_partitions=reader.positive_integer("minPartitions"),
        max_records_per_partition=reader.positive_integer("maxRecordsPerPartition"),
        max_partition_bytes=reader.size_in_bytes("maxPartitionBytes"),
        fail_on_data_loss=reader.boolean("failOnDataLoss", default=True),
        isolation_level=_isolation_level(reader),
        push_filters=reader.boolean("pushFilters", default=False),
        mode=_mode(reader),
        gives_damage=_gives_damage(reader),
        values=_value_options(reader),
        tier=_tier(reader),
        tier_keys=_tier_keys(reader),
        tier_epoch=_number_of_tier(reader, "tierEpoch", reader.integer("tierEpoch"), least=0),
        max_decrypted_bytes=_number_of_tier(
            reader, "maxDecryptedBytes", reader.size_in_bytes("maxDecryptedBytes"), least=1
        ),
    )


def _tier(reader: OptionReader) -> str | None:
    tier = reader.text("tier")
    return None if tier is None else checked_path(tier)


def _tier_keys(reader: OptionReader) -> tuple[tuple[str, str], ...]:
    """Return the keys of the options tierKey.ID; Spark does not keep the case of ID."""
    prefix = TIER_KEY.lower()
    keys = [(name.removeprefix(prefix), reader.text(name) or "") for name in reader.names() if name.startswith(prefix)]
    if keys:
        _check_tier(reader, f"{TIER_KEY}{keys[0][0]}")
    return tuple(sorted((key_id, checked_path(path)) for key_id, path in keys))


def _number_of_tier(reader: OptionReader, option: str, number: int | None, *, least: int) -> int | None:
    if number is None:
        return None
    _check_tier(reader, option)
    return checked_int(option, number, least=least, greatest=MAX_INT32)


def _check_tier(reader: OptionReader, option: str) -> None:
    if reader.text("tier") is None:
        raise ValueError(f"{option} is of no use without tier, the path or URL of tiered storage")


def _paths(reader: OptionReader) -> tuple[str, ...]:
    path, paths = reader.text("path"), reader.text("paths")
    if path is not None and paths is not None:
        raise ValueError("only one of path and paths can be given")
    if path is not None:
        return (checked_path(path),)
    if paths is None:
        raise ValueError("path must be given: a partition directory, a log.dirs root, or a list of these")
    names = _json_value(paths)
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f'paths: expected a JSON list such as ["/data/a","/data/b"], got {paths}')
    return tuple(map(checked_path, names))


def _topic_selection(reader: OptionReader) -> TopicSelection:
    given = {
        name: text for name in ("subscribe", "subscribePattern", "assign") if (text := reader.text(name)) is not None
    }
    if len(given) > 1:
        raise ValueError(
            f"Only one of the options subscribe, subscribePattern, assign can be specified, got {', '.join(given)}"
        )
    if "subscribe" in given:
        topics = tuple(dict.fromkeys(name.strip() for name in given["subscribe"].split(",") if name.strip()))
        if not topics:
            raise ValueError(f"subscribe: no topics in '{given['subscribe']}'")
        return Subscribe(topics=topics)
    if "subscribePattern" in given:
        return SubscribePattern(pattern=_pattern(given["subscribePattern"]))
    if "assign" in given:
        return Assign(partitions=_assigned_partitions(given["assign"]))
    return EveryTopic()


def _pattern(text: str) -> str:
    if not text.strip():
        raise ValueError("subscribePattern must not be empty")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"subscribePattern is not a regular expression: {error}, in {text}") from error
    return text


def _assigned_partitions(text: str) -> tuple[TopicPartition, ...]:
    if not text.strip().startswith("{"):
        raise ValueError(f"No topicpartitions to assign: expected e.g. {_ASSIGN_EXAMPLE}, assign is '{text}'")
    problem = ValueError(f"assign: Expected e.g. {_ASSIGN_EXAMPLE}, got {text}")
    topics = _json_value(text)
    if not isinstance(topics, dict):
        raise problem
    partitions: dict[TopicPartition, None] = {}
    for topic, numbers in topics.items():
        if not isinstance(numbers, list):
            raise problem
        for number in numbers:
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MAX_INT32:
                raise problem
            partitions[TopicPartition(topic, number)] = None
    return tuple(partitions)


def _starting_bound(reader: OptionReader, *, is_stream: bool) -> Bound:
    if is_stream:
        return _bound(reader, "starting", default=LATEST)
    return _bound(reader, "starting", default=EARLIEST, refused=LATEST, word="latest")


def _ending_bound(reader: OptionReader) -> Bound:
    return _bound(reader, "ending", default=LATEST, refused=EARLIEST, word="earliest")


def _bound(reader: OptionReader, side: str, *, default: int, refused: int | None = None, word: str = "") -> Bound:
    timestamps = _timestamp_bound(reader, f"{side}Timestamp", f"{side}OffsetsByTimestamp")
    if timestamps is not None:
        return timestamps
    bound = _offset_bound(reader, f"{side}Offsets", default=default)
    if refused is None:
        return bound
    if bound.everywhere == refused:
        raise ValueError(f"{side}Offsets: the {side} offset can't be {word} in a batch read")
    for topic_partition, offset in (bound.by_partition or {}).items():
        if offset == refused:
            raise ValueError(
                f"{side}Offsets: the {side} offset for {topic_partition} can't be {word} ({refused}) in a batch read"
            )
    return bound


def _timestamp_bound(reader: OptionReader, name: str, name_by_partition: str) -> Bound | None:
    text = reader.text(name)
    if text is not None:
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or abs(int(text)) > MAX_INT64:
            raise ValueError(f"{name}: Expected a single long value (milliseconds), got {text}")
        return Bound(option=name, is_timestamp=True, everywhere=int(text))
    text = reader.text(name_by_partition)
    if text is None:
        return None
    values = _values_by_partition(text, name_by_partition, example=_TIMESTAMPS_EXAMPLE)
    return Bound(option=name_by_partition, is_timestamp=True, by_partition=values)


def _offset_bound(reader: OptionReader, name: str, default: int) -> Bound:
    text = reader.text(name)
    if text is None:
        return Bound(option=name, everywhere=default)
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Bound(option=name, everywhere=EARLIEST if word == "earliest" else LATEST)
    values = _values_by_partition(text, name, example=_OFFSETS_EXAMPLE)
    for topic_partition, offset in values.items():
        if offset < EARLIEST:
            raise ValueError(
                f"{name} for {topic_partition} is {offset}: "
                "expected an offset of 0 or more, -2 (earliest) or -1 (latest)"
            )
    return Bound(option=name, by_partition=values)


def _values_by_partition(text: str, name: str, *, example: str) -> dict[TopicPartition, int]:
    problem = ValueError(f"{name}: Expected e.g. {example}, got {text}")
    topics = _json_value(text)
    if not isinstance(topics, dict):
        raise problem
    values = {}
    for topic, by_number in topics.items():
        if not isinstance(by_number, dict):
            raise problem
        for number, value in by_number.items():
            if not re.fullmatch(r"[0-9]{1,10}", number) or int(number) > MAX_INT32:
                raise problem
            if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= MAX_INT64:
                raise problem
            values[TopicPartition(topic, int(number))] = int(value)
    return values


def _json_value(text: str) -> object:
    """Return the JSON value, or None for text that is not JSON, which NaN and Infinity are not."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def _check_same_partitions(starting: Bound, ending: Bound) -> None:
    starts, ends = starting.by_partition, ending.by_partition
    if starting.is_timestamp or ending.is_timestamp or starts is None or ends is None:
        return
    if starts.keys() != ends.keys():
        raise ValueError(
            "The specified start offset and end offset should have the same topic-partitions; "
            f"startingOffsets: {names(starts)}; endingOffsets: {names(ends)}"
        )
    for (topic, partition), start_offset in starts.items():
        end_offset = ends[TopicPartition(topic, partition)]
        if 0 <= end_offset < start_offset:
            raise ValueError(
                f"The specified start offset {start_offset} is greater than the end offset {end_offset} "
                f"for topic {topic} partition {partition}"
            )


def names(partitions: Iterable[TopicPartition]) -> str:
    """Return the sorted partitions as text for error messages."""
    return ", ".join(str(topic_partition) for topic_partition in sorted(partitions)) or "none"


def _latest_if_no_timestamp(reader: OptionReader) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    text = reader.text(name)
    if text is not None and text.lower() not in ("error", "latest"):
        raise ValueError(f"{name} must be error or latest, got {text}")
    return text is not None and text.lower() == "latest"


def _isolation_level(reader: OptionReader) -> Isolation:
    text = reader.text(ISOLATION_LEVEL)
    if text is None or text == READ_UNCOMMITTED:
        return READ_UNCOMMITTED
    if text == READ_COMMITTED:
        return READ_COMMITTED
    raise ValueError(f"Invalid value {text} for {ISOLATION_LEVEL}: must be one of {READ_COMMITTED}, {READ_UNCOMMITTED}")


def _mode(reader: OptionReader) -> Mode:
    text = reader.text("mode")
    if text is None or text.upper() == "FAILFAST":
        return "FAILFAST"
    if text.upper() == "PERMISSIVE":
        return "PERMISSIVE"
    raise ValueError(f"mode must be FAILFAST or PERMISSIVE, got {text}")


def _value_options(reader: OptionReader) -> ValueOptions | None:
    given = [name for name in (*VALUE_NAMES, "schemas", "valueMode") if reader.text(name) is not None]
    if not given:
        return None
    # Only here, since they import pyarrow.
    from kstore.values.formats import PROVIDERS, ValueFormat
    from kstore.values.typed import MODES

    formats: dict[Origin, ValueFormat] = {}
    schemas = reader.text("schemas")
    origins: tuple[Origin, ...] = ("value", "key")
    for origin in origins:
        name = reader.text(f"{origin}Format")
        if name is None:
            continue
        framing: Any = reader.text(f"{origin}Framing")
        try:
            formats[origin] = ValueFormat(
                name.lower(),
                schema=reader.text(f"{origin}Schema"),
                schemas=None if schemas is None or name.lower() not in PROVIDERS else checked_path(schemas),
                schema_id=reader.integer(f"{origin}SchemaId"),
                framing=None if framing is None else framing.lower(),
                message_name=reader.text(f"{origin}MessageName"),
            )
        except ValueError as error:
            raise ValueError(f"{origin}Format: {error}") from error
    for name in given:
        if not any(
            origin in formats for origin in origins if name in ("schemas", "valueMode") or name.startswith(origin)
        ):
            raise ValueError(f"{name} is of no use without {'keyFormat' if name.startswith('key') else 'valueFormat'}")
    mode: Any = (reader.text("valueMode") or "PERMISSIVE").upper()
    if mode not in MODES:
        raise ValueError(f"valueMode must be one of {', '.join(MODES)}, got {mode}")
    return ValueOptions(formats=formats, mode=mode)


def _gives_damage(reader: OptionReader) -> bool:
    text = reader.text("rows")
    if text is not None and text.lower() not in ("records", "damage"):
        raise ValueError(f"rows must be records or damage, got {text}")
    return text is not None and text.lower() == "damage"


def _check_client_options(reader: OptionReader) -> None:
    """Refuse the options that Spark's Kafka source refuses. Other Kafka client options have no effect here."""
    for name, instead in _REFUSED_CLIENT_OPTIONS.items():
        if reader.text("kafka." + name) is not None:
            raise ValueError(f"Kafka option '{name}' is not supported: {instead}")
    for name in _IGNORED_INTEGER_OPTIONS:
        reader.integer(name)
    least, most = reader.integer("minOffsetsPerTrigger"), reader.integer("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise ValueError(f"The value of minOffsetsPerTrigger ({least}) is higher than maxOffsetsPerTrigger ({most})")


def _check_stream_options(reader: OptionReader) -> None:
    """Refuse what only a batch read can do."""
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if reader.text(name) is not None:
            kind = "offset" if name == "endingOffsets" else "timestamp"
            raise ValueError(f"{name}: ending {kind} not valid in streaming queries")
    if _gives_damage(reader):
        raise ValueError("rows=damage is for batch reads: a stream in mode PERMISSIVE logs what it leaves out")


def configure(spark: _Spark, *, record_size_bytes: int = 0) -> _Spark:
    """Prepare Spark for kstore: choose the workers' Python, and the sizes of the batches that are sent to it.

    Given SparkSession.builder, before the first session of the process: sets the environment variable PYSPARK_PYTHON
    to the Python that runs now, unless it is set. Spark otherwise looks for `python3` on the PATH, which is another
    Python if the virtual environment is not activated, and then does not find the data source. The Python of a session
    that runs can't be changed any more. On a cluster, set PYSPARK_PYTHON to the path that is valid on its nodes.

    Of a builder or a session, sets the sizes of the Arrow batches that Spark sends to Python (mapInArrow, arrow_udf,
    Python sinks). Disables spark.sql.execution.arrow.maxBytesPerBatch: with it Spark measures the batch after every
    row, in time quadratic in the rows if a list column is null, as headers usually is. Instead, sets
    spark.sql.execution.arrow.maxRecordsPerBatch to 1,000 to 10,000 records, for batches of about 4 MiB.
    Reading does not need these sizes: the source limits the size of its batches itself.

    Args: spark: a SparkSession.Builder or a SparkSession; record_size_bytes: the typical size of a record; 0 for small
        records.
    Returns: spark, so that .getOrCreate() can follow.
    Raises: ValueError for a negative size.
    """
    if record_size_bytes < 0:
        raise ValueError(f"record_size_bytes must not be negative, got {record_size_bytes}")
    records = _TARGET_BATCH_BYTES // max(record_size_bytes, 1)
    sizes = {
        "spark.sql.execution.arrow.maxBytesPerBatch": str(MAX_INT32),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(min(max(records, _FEWEST_RECORDS), _MOST_RECORDS)),
    }
    target: Any = spark
    is_builder = hasattr(spark, "getOrCreate")
    if is_builder:
        set_default_variable("PYSPARK_PYTHON", sys.executable)
    set_one = target.config if is_builder else target.conf.set
    for name, value in sizes.items():
        set_one(name, value)
    return spark
