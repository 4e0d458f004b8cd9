"""Keys and values by a format, for `kstore cat`: what they are as JSON and as text, beside their bytes.

Names of Kafka's deserializers need no pyarrow. Formats with schemas are decoded by the columns of kstore.values.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kstore.cli import EXIT_DAMAGE, EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.handed import env_of_root
from kstore.cli.render import JSON_TEXT, escaped_text, header_key_text, json_bytes, plain_value
from kstore.config import MIB, LogConfig
from kstore.env.process import SYSTEM_CLOCK
from kstore.errors import KStoreError, RecordDeserializationError, SchemaNotFoundError
from kstore.record.decoding import deserializer_of
from kstore.serializers import FloatDeserializer, JSONDeserializer, StringDeserializer, plain_single

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from typing_extensions import Buffer

    from kstore._core import Record
    from kstore.cli.output import Output
    from kstore.log.damage import OnError
    from kstore.log.files.names import PartitionDirectory
    from kstore.serializers import Deserializer
    from kstore.types import TopicPartition
    from kstore.values.decoded import Origin, Unions, ValueReader
    from kstore.values.formats import SchemaTopics, ValueFormat

    Decode = Callable[[Sequence[Record]], "DecodedColumn"]

_ORIGINS: tuple[Origin, ...] = ("key", "value")
PERMISSIVE, DROPMALFORMED, FAILFAST = "PERMISSIVE", "DROPMALFORMED", "FAILFAST"
# Bounds on records whose values are Python objects at a time.
_MOST_RECORDS = 4096
_MOST_BYTES = MIB
# Of a registry over HTTP, while records are followed.
_ASK_EVERY_MS = 3000


class FormatOptions(NamedTuple):
    """The options of formats, as they were typed. schema, schema_id, message: of values."""

    value: str | None
    key: str | None
    schemas: str | None
    schema: str | None
    schema_id: int | None
    message: str | None

    def made(self) -> dict[Origin, ValueFormat]:
        """Return the formats.

        Raises: ValueError for an unknown format, or options that no format takes; ModuleNotFoundError without pyarrow.
        """
        if all(option is None for option in self):
            return {}
        from kstore.values.formats import PROVIDERS, formats_of

        formats = formats_of(value=self.value, key=self.key, schema=self.schema, schemas=self.schemas)
        if self.schema_id is not None or self.message is not None:
            if self.value not in PROVIDERS:
                raise ValueError(f"--schema-id and --message are for values of the formats {', '.join(PROVIDERS)}")
            formats["value"] = replace(formats["value"], schema_id=self.schema_id, message_name=self.message)
        return formats


class DecodedColumn(NamedTuple):
    """Decoded keys or values of records.

    values: for each record what JSON takes, or bytes; None for null and for bad ones. bad: why some cannot be decoded,
    by their place.
    """

    values: list[object]
    bad: dict[int, str]

    def of_rows(self, rows: Sequence[int]) -> DecodedColumn:
        """Return some of them, none of which is bad."""
        return DecodedColumn([self.values[row] for row in rows], {})


class DecodedRecords(NamedTuple):
    """Records and what their keys and values are, by origin."""

    records: list[Record]
    columns: dict[Origin, DecodedColumn]

    def of_rows(self, rows: Sequence[int]) -> DecodedRecords:
        """Return some of them, none of which is bad."""
        columns = {origin: column.of_rows(rows) for origin, column in self.columns.items()}
        return DecodedRecords([self.records[row] for row in rows], columns)

    def json_fields(self, row: int) -> str:
        """Return the JSON fields of a record, each after a comma."""
        decoded = [
            f'"decoded{origin.capitalize()}":{_json_of(column.values[row])}' for origin, column in self.columns.items()
        ]
        reasons = [
            f'"{origin}Error":{JSON_TEXT(column.bad[row])}'
            for origin, column in self.columns.items()
            if row in column.bad
        ]
        return "".join(f",{field}" for field in decoded + reasons)

    def text(self, row: int, origin: Origin) -> str | None:
        """Return a key or value as JSON, or as escaped text if it is a text, or None if its bytes are to be shown."""
        value = self.plain(row, origin)
        return escaped_text(value) if value is not None and self._is_text(row, origin) else value

    def _is_text(self, row: int, origin: Origin) -> bool:
        return isinstance(self.columns[origin].values[row], str)

    def plain(self, row: int, origin: Origin) -> str | None:
        """Return a key or value as JSON, or as it is if it is a text, or None if its bytes are to be shown instead."""
        column = self.columns.get(origin)
        if column is None or row in column.bad:
            return None
        value, data = column.values[row], getattr(self.records[row], origin)
        if isinstance(value, bytes) or not data:
            return None
        return value if isinstance(value, str) and value else JSON_TEXT(value)

    def error(self, row: int, topic_partition: TopicPartition) -> RecordDeserializationError:
        """Return what a bad key or value of a record raises."""
        origin, reason = next((origin, column.bad[row]) for origin, column in self.columns.items() if row in column.bad)
        record = self.records[row]
        return RecordDeserializationError(
            f"the {origin} of the record at offset {record.offset} of {topic_partition} cannot be decoded: {reason}",
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            origin=origin,
        )


class ValueDecoding:
    """Decodes keys and values of the records of a run by the formats of their options.

    Args: options, mode: as typed.
    Raises: WrongUseError; ModuleNotFoundError if a format needs pyarrow.
    Lifetime: until finish(). Threads: not thread-safe.
    """

    def __init__(self, options: FormatOptions, mode: str) -> None:
        self.mode = mode
        self._bad_count = 0
        self._functions: dict[Origin, Deserializer] = {}
        self._find: Callable[[], list[PartitionDirectory]] = list
        self._directories: list[PartitionDirectory] = []
        self._topics: SchemaTopics | None = None
        self._on_error: OnError = "raise"
        self._is_live = False
        self._next_ask_ms = 0
        self._current: TopicPartition | None = None
        self._decoders: Mapping[Origin, Decode] = {}
        self._made: dict[str, tuple[Mapping[Origin, ValueFormat], dict[Origin, Decode]]] = {}
        if options.key is options.value is None:
            raise WrongUseError("--schemas, --schema, --schema-id, --message and --mode need --value or --key")
        for origin in _ORIGINS:
            function = _function_of(getattr(options, origin))
            if function is not None:
                self._functions[origin] = function
        options = options._replace(**dict.fromkeys(self._functions))
        if options.key is options.value is None:
            options = options._replace(schemas=None)
        try:
            self._formats = options.made()
        except ValueError as error:
            raise WrongUseError(str(error)) from error

    @classmethod
    def of(cls, options: FormatOptions, mode: str) -> ValueDecoding | None:
        """Return what the options ask for, None if none is given."""
        return None if mode == PERMISSIVE and all(option is None for option in options) else cls(options, mode)

    def begin(
        self, find: Callable[[], list[PartitionDirectory]], *, on_error: OnError = "raise", is_live: bool = False
    ) -> None:
        """Set what returns the partitions whose records are decoded.

        Args: on_error: what damage does to the look for a first record; is_live: whether schemas are looked up for each
            batch, and not only as a partition begins; a registry over HTTP is asked again after a bad key or value.
        """
        self._find, self._on_error, self._is_live = find, on_error, is_live

    def finish(self, out: Output) -> int:
        """Close the topics of schemas, say how many keys and values were bad, and return the exit status."""
        if self._topics is not None:
            self._topics.close()
        if self._bad_count > 1:
            more = self._bad_count - 1
            out.notice(f"{more} more record{'' if more == 1 else 's'} with a key or value that cannot be decoded")
        return EXIT_DAMAGE if self._bad_count else EXIT_FINE

    def decoded(
        self, records: Sequence[Record], topic_partition: TopicPartition, out: Output, *, limit: int | None
    ) -> Iterator[DecodedRecords]:
        """Yield records with their keys and values, in parts, at most `limit` records if it is given.

        Those that the mode leaves out are left out. A notice names the first bad key or value of a run.
        Raises: RecordDeserializationError with FAILFAST, after the records before it; SchemaError; what reading the
            schemas raises.
        """
        if self._is_live or topic_partition != self._current:
            self._decoders = self._decoders_of(topic_partition, out)
            self._current = topic_partition
        decoders = self._decoders
        left = len(records) if limit is None else limit
        for part in _parts(records if self.mode == DROPMALFORMED else records[:left]):
            if not left:
                return
            columns = _columns(decoders, part)
            if any(column.bad for column in columns.values()) and self._asks_again(out):
                decoders = self._decoders = self._decoders_now(topic_partition)
                columns = _columns(decoders, part)
            shown = DecodedRecords(part, columns)
            bad = sorted({row for column in columns.values() for row in column.bad})
            if self.mode == FAILFAST and bad:
                yield shown.of_rows(range(bad[0]))
                raise shown.error(bad[0], topic_partition)
            if self.mode == DROPMALFORMED:
                left_out = set(bad)
                kept = [row for row in range(len(part)) if row not in left_out][:left]
                left -= len(kept)
                bad = bad if left else [row for row in bad if row < kept[-1]]
                shown = shown if len(kept) == len(part) else shown.of_rows(kept)
            for row in bad:
                self._note(DecodedRecords(part, columns), row, topic_partition, out)
            yield shown

    def _note(self, shown: DecodedRecords, row: int, topic_partition: TopicPartition, out: Output) -> None:
        """Count a record that has a bad key or value; the first one of a run is a notice."""
        if not self._bad_count:
            out.notice(shown.error(row, topic_partition))
        self._bad_count += 1

    def _decoders_of(self, topic_partition: TopicPartition, out: Output) -> Mapping[Origin, Decode]:
        """Return what decodes keys and values of a topic, which a registry may have since it was asked."""
        try:
            return self._decoders_now(topic_partition)
        except SchemaNotFoundError:
            if not self._asks_again(out, is_urgent=True):
                raise
            return self._decoders_now(topic_partition)

    def _asks_again(self, out: Output, *, is_urgent: bool = False) -> bool:
        """Ask a registry over HTTP for newer schemas, and return whether it answered; a failure is a notice.

        Args: is_urgent: whether it does not count when it was last asked.
        """
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        if not self._is_live or self._topics is None or not self._topics.has_answers:
            return False
        if now_ms < self._next_ask_ms and not is_urgent:
            return False
        self._next_ask_ms = now_ms + _ASK_EVERY_MS
        try:
            self._topics.ask_again()
        except KStoreError as error:
            out.notice(error)
            return False
        return True

    def _decoders_now(self, topic_partition: TopicPartition) -> Mapping[Origin, Decode]:
        """Return what decodes keys and values of a topic, by the schemas that there are now."""
        functions: dict[Origin, Decode] = {
            origin: partial(_by_function, function, origin) for origin, function in self._functions.items()
        }
        if not self._formats:
            return functions
        from kstore.values.formats import Partitions, SchemaTopics, format_for
        from kstore.values.registry import SCHEMAS_TOPIC

        topic = topic_partition.topic
        if topic == SCHEMAS_TOPIC:
            return functions
        directories = self._directories_of(topic)
        partitions = Partitions.of(directories, on_error=self._on_error)
        if directories:
            partitions = partitions._replace(env=env_of_root(directories[0]))
        if self._topics is None:
            self._topics = SchemaTopics()
        known = {origin: self._topics.known(each, partitions) for origin, each in self._formats.items()}
        before, decoders = self._made.get(topic, (None, {}))
        if before != known:
            decoders = dict(functions)
            for origin, each in known.items():
                chosen = format_for(each, origin, partitions)
                reader = chosen.reader(None, most_bytes=LogConfig().max_decompressed_bytes)
                decoders[origin] = partial(
                    _by_columns, reader, origin, chosen.unions(None), reads_headers=chosen.reads_headers
                )
            self._made[topic] = known, decoders
        return decoders

    def _directories_of(self, topic: str) -> list[PartitionDirectory]:
        if not any(each.topic_partition.topic == topic for each in self._directories):
            self._directories = self._find()
        return [each for each in self._directories if each.topic_partition.topic == topic]


def _columns(decoders: Mapping[Origin, Decode], records: Sequence[Record]) -> dict[Origin, DecodedColumn]:
    return {origin: decoders[origin](records) for origin in _ORIGINS if origin in decoders}


def _function_of(name: str | None) -> Deserializer | None:
    """Return the function of one of Kafka's deserializers, None for another format; "string" refuses no bytes."""
    try:
        function = deserializer_of(name)
    except ValueError:
        return None
    if isinstance(function, JSONDeserializer):
        # The format of this name, whose values have a type.
        return None
    if isinstance(function, FloatDeserializer):
        return partial(_single, function)
    return _text if isinstance(function, StringDeserializer) else function


def _single(function: FloatDeserializer, data: Buffer | None) -> float | str | None:
    number = function(data)
    return None if number is None else plain_single(number)


# Half of a UTF-16 pair, which Java decodes to one U+FFFD, and Python to one for each byte.
_HALF_PAIR = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def _text(data: Buffer | None) -> str:
    """Return text as Kafka's StringDeserializer, with U+FFFD for what is not UTF-8."""
    found = bytes(data or b"")
    try:
        return found.decode("utf-8")
    except UnicodeDecodeError:
        return _HALF_PAIR.sub("\ufffd".encode(), found).decode("utf-8", "replace")


def _parts(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Yield records in lists of bounded size."""
    part: list[Record] = []
    size = 0
    for record in records:
        part.append(record)
        size += len(record.key or b"") + len(record.value or b"")
        if size >= _MOST_BYTES or len(part) == _MOST_RECORDS:
            yield part
            part, size = [], 0
    if part:
        yield part


def _by_function(function: Deserializer, origin: Origin, records: Sequence[Record]) -> DecodedColumn:
    values: list[object] = []
    bad: dict[int, str] = {}
    for row, record in enumerate(records):
        data = getattr(record, origin)
        value = None
        try:
            value = None if data is None else function(data)
        except KStoreError as error:
            bad[row] = str(error)
        if isinstance(value, memoryview):
            value = bytes(value)
        values.append(value if isinstance(value, bytes) else plain(value))
    return DecodedColumn(values, bad)


def plain(value: object) -> object:
    """Return a decoded value in a form that JSON can hold: a UUID as 36 characters, anything else as plain_value."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, memoryview):
        return plain_value(bytes(value))
    return str(value) if isinstance(value, UUID) else plain_value(value)


def _by_columns(
    reader: ValueReader, origin: Origin, unions: Unions, records: Sequence[Record], *, reads_headers: bool
) -> DecodedColumn:
    import pyarrow as pa

    from kstore.values.plain import is_bytes, plain_values

    array = pa.array([getattr(record, origin) for record in records], pa.binary())
    values: list[object] = []
    bad: dict[int, str] = {}
    for part in reader.decode(array, _headers_of(records) if reads_headers else None):
        bad.update((part.start + each.row, each.reason) for each in part.bad)
        values += part.values.to_pylist() if is_bytes(part.values.type) else plain_values(part.values, unions)
    return DecodedColumn(values, bad)


def _headers_of(records: Sequence[Record]) -> pa.ListArray:
    import pyarrow as pa

    from kstore.arrow import schema

    headers = [[{"key": header_key_text(key), "value": value} for key, value in record.headers] for record in records]
    return pa.array(headers, schema(["headers"]).field("headers").type)


def _json_of(value: object) -> str:
    return json_bytes(value) if isinstance(value, bytes) else JSON_TEXT(value)
