"""Formats of keys and values: what a column of bytes becomes, and from which schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from kstore.env import DEFAULT_ENV, Closing, Env, StrPath, locate
from kstore.errors import InvalidSchemaError, SchemaNotFoundError
from kstore.log.damage import OnError
from kstore.log.files.names import PartitionDirectory
from kstore.store.opening import open_found
from kstore.values.avro.columns import Wanted, columns_of
from kstore.values.avro.reader import AvroReader, Framing
from kstore.values.avro.schema import AvroType, parse_avro_schema
from kstore.values.decoded import UNFRAMED, ValueReader
from kstore.values.header_ids import HEADER_OF, HeaderIds
from kstore.values.primitives import PRIMITIVE_TYPES, PrimitiveReader
from kstore.values.registry import RegisteredSchema, SchemaRegistry, SchemaTopic, in_context_of, read_schemas

Origin: TypeAlias = Literal["key", "value"]
SchemaSource: TypeAlias = StrPath | Mapping[str, Any] | list[Any]
FORMATS = ("avro", *PRIMITIVE_TYPES)
_MOST_SCHEMA_BYTES = 16 << 20
_KEPT_SCHEMAS = 1024


class Partitions(NamedTuple):
    """The partitions whose keys or values are read, as far as their schema depends on it.

    topics: their topics; root, env: where a registry's topic may be, root None without such a place. first: returns the
    first of their keys or values that is not null.
    """

    topics: tuple[str, ...]
    root: str | None
    env: Env
    first: Callable[[Origin], bytes | None]

    @classmethod
    def of(cls, directories: Sequence[PartitionDirectory], *, on_error: OnError = "raise") -> Partitions:
        """Return those in directories, of which the first says where the topic of a registry may be."""

        def first(origin: Origin) -> bytes | None:
            for directory in directories:
                with open_found(directory) as log:
                    for record in log.read(on_error=on_error):
                        data: bytes | None = record.value if origin == "value" else record.key
                        if data is not None:
                            return data
            return None

        topics = dict.fromkeys(directory.topic_partition.topic for directory in directories)
        root, env = (directories[0].root, directories[0].env) if directories else (None, DEFAULT_ENV)
        return cls(tuple(topics), root, env, first)


class ColumnFormat(Protocol):
    """What a column of bytes becomes; with all schemas that it takes, so that a pickled copy opens no file.

    Threads: thread-safe; each reader belongs to one thread.
    """

    @property
    def reads_headers(self) -> bool:
        """Whether readers take the headers of the records, where ids of schemas may be."""
        ...

    def type(self, wanted: Wanted) -> pa.DataType:
        """Return the Arrow type.  Args: wanted: the fields of a record that are read.  Raises: InvalidSchemaError."""
        ...

    def reader(self, wanted: Wanted, *, most_bytes: int) -> ValueReader:
        """Return a new reader.  Args: most_bytes: the memory that decoded columns may take, and that a value may."""
        ...


@dataclass(frozen=True, slots=True)
class PrimitiveFormat:
    """Values that one of Kafka's own serializers wrote."""

    name: str

    @property
    def reads_headers(self) -> bool:
        return False

    def type(self, _wanted: Wanted) -> pa.DataType:
        return PRIMITIVE_TYPES[self.name]

    def reader(self, _wanted: Wanted, *, most_bytes: int) -> ValueReader:
        del most_bytes
        return PrimitiveReader(self.name)


class SchemaText(NamedTuple):
    """An Avro schema as text. references: the texts of schemas that it names, each after those that it names itself."""

    text: str
    references: tuple[str, ...] = ()

    def type(self) -> AvroType:
        """Return the parsed schema, which is kept.  Raises: InvalidSchemaError."""
        return _parsed(self)


@lru_cache(maxsize=_KEPT_SCHEMAS)
def _parsed(schema: SchemaText) -> AvroType:
    return parse_avro_schema(schema.text, schema.references)


@dataclass(frozen=True, slots=True)
class AvroFormat:
    """Avro values.

    reader_schema: what they are read as; schema_id: its id, None if it was given as such. registry: has the schemas
    that they were written with, in the context of subject; None: all were written with reader_schema. origin: in whose
    headers ids are looked for, if the registry has GUIDs.
    """

    reader_schema: SchemaText
    schema_id: int | None
    registry: SchemaRegistry | None
    subject: str
    framing: Framing
    origin: Origin

    def __reduce__(self) -> tuple[object, ...]:
        registry = None if self.registry is None else in_context_of(self.registry, self.subject, "AVRO")
        return AvroFormat, (self.reader_schema, self.schema_id, registry, self.subject, self.framing, self.origin)

    @property
    def reads_headers(self) -> bool:
        return self.registry is not None and any(schema.guid is not None for schema in self.registry.schemas)

    def type(self, wanted: Wanted) -> pa.DataType:
        return columns_of(self.reader_schema.type(), wanted).arrow_type

    def reader(self, wanted: Wanted, *, most_bytes: int) -> ValueReader:
        columns = columns_of(self.reader_schema.type(), wanted)
        header_ids = HeaderIds(HEADER_OF[self.origin]) if self.reads_headers else None
        writer_of = partial(self._writer, header_ids)
        return AvroReader(columns, writer_of, framing=self.framing, most_bytes=most_bytes, header_ids=header_ids)

    def _writer(self, header_ids: HeaderIds | None, schema_id: int) -> AvroType:
        """Return the schema that values of an id were written with."""
        if self.registry is None:
            return self.reader_schema.type()
        if schema_id == UNFRAMED:
            raise SchemaNotFoundError("the value has no schema id")
        guid = None if header_ids is None else header_ids.guid(schema_id)
        if guid is not None:
            return _schema_text_of(self.registry.by_guid(guid), self.registry).type()
        return _schema_text_of(self.registry.by_id(schema_id, self.subject), self.registry).type()


@dataclass(frozen=True)
class ValueFormat:
    """How keys or values are read.

    Args: name: one of FORMATS. schema: an Avro schema as JSON text, as parsed JSON, or as the path of a file: what
        records are read as. schemas: a root, a partition or a URL of one, with the topic `_schemas`, or a
        SchemaRegistry: where schemas of framed values are looked up; None: the root of the partitions, unless
        schema is given. schema_id: which of them records are read as; None: the newest version of the subject.
        framing: what each value begins with; None: "confluent" with a registry, else "none".
    """

    name: str
    _: KW_ONLY
    schema: SchemaSource | None = None
    schemas: StrPath | SchemaRegistry | None = None
    schema_id: int | None = None
    framing: Framing | None = None

    def __post_init__(self) -> None:
        if self.name not in FORMATS:
            raise ValueError(f"expected one of the formats {', '.join(FORMATS)}, got {self.name!r}")
        if self.framing not in (None, "none", "confluent", "apicurio"):
            raise ValueError(f'framing must be "none", "confluent" or "apicurio", got {self.framing!r}')


class SchemaTopics(Closing):
    """The topics of schemas that formats need, each read once, and again after it grew.

    Lifetime: keeps them open until close(). Threads: not thread-safe.
    """

    def __init__(self) -> None:
        self._topics: dict[str, SchemaTopic] = {}

    def known(self, options: ValueFormat, partitions: Partitions) -> ValueFormat:
        """Return a format with the registry that it needs, as that is now; the format itself if it needs none.

        Raises: SchemaNotFoundError; as SchemaTopic.read.
        """
        needs_one = options.name == "avro" and (options.schema is None or options.schemas is not None)
        if not needs_one or isinstance(options.schemas, SchemaRegistry):
            return options
        place, env = (partitions.root, partitions.env) if options.schemas is None else (options.schemas, None)
        if place is None:
            return options
        topic = self._topics.get(str(place))
        if topic is None:
            topic = self._topics[str(place)] = SchemaTopic(place, env)
        return replace(options, schemas=topic.read())

    def close(self) -> None:
        """Close the topics; the next call opens them again."""
        for topic in self._topics.values():
            topic.close()


def text_columns(formats: Mapping[Origin, ValueFormat], strings: Iterable[str] = ()) -> list[str]:
    """Return the columns that are read as text: those of `strings`, and keys or values of the format "string"."""
    named = [strings] if isinstance(strings, str) else list(strings)
    return [*named, *(origin for origin, each in formats.items() if each.name == "string")]


def format_for(options: ValueFormat, origin: Origin, partitions: Partitions) -> ColumnFormat:
    """Return the format for the keys or values of partitions.

    Raises: SchemaNotFoundError, InvalidSchemaError; what reading `_schemas` raises.
    """
    if options.name in PRIMITIVE_TYPES:
        return PrimitiveFormat(options.name)
    return _avro_format(options, origin, partitions)


def formats_of(
    *,
    value: ValueFormat | str | None,
    key: ValueFormat | str | None,
    schema: SchemaSource | None = None,
    schemas: StrPath | SchemaRegistry | None = None,
) -> dict[Origin, ValueFormat]:
    """Return the formats of values and keys that are given as such or by name.

    Args: schema: that of values whose format is given by name; schemas: of both.
    Raises: ValueError for an unknown format, or a schema that no format takes.
    """
    if (schema is not None and not isinstance(value, str)) or (schemas is not None and value is key is None):
        raise ValueError('schema and schemas are for a format of values that is given by its name, as value="avro"')
    formats: dict[Origin, ValueFormat] = {}
    if value is not None:
        formats["value"] = ValueFormat(value, schema=schema, schemas=schemas) if isinstance(value, str) else value
    if key is not None:
        formats["key"] = ValueFormat(key, schemas=schemas) if isinstance(key, str) else key
    return formats


def _avro_format(options: ValueFormat, origin: Origin, partitions: Partitions) -> AvroFormat:
    given = None if options.schema is None else SchemaText(schema_text(options.schema))
    if given is not None:
        given.type()
        if options.schemas is None:
            return AvroFormat(given, None, None, "", options.framing or "none", origin)
    registry, subject = _registry(options, origin, partitions), _subject(origin, partitions)
    framing: Framing = options.framing or "confluent"
    if given is not None:
        return AvroFormat(given, None, registry, subject, framing, origin)
    chosen = _chosen(options, origin, partitions, registry)
    return AvroFormat(_schema_text_of(chosen, registry), chosen.schema_id, registry, subject, framing, origin)


def _registry(options: ValueFormat, origin: Origin, partitions: Partitions) -> SchemaRegistry:
    if isinstance(options.schemas, SchemaRegistry):
        return options.schemas
    if options.schemas is not None:
        return read_schemas(options.schemas)
    if partitions.root is None:
        raise SchemaNotFoundError(
            f"no place is known where the schemas of {origin}s are: pass schema=, or schemas= with the root of a "
            "registry's topic"
        )
    return read_schemas(partitions.root, partitions.env)


def _subject(origin: Origin, partitions: Partitions) -> str:
    """Return the subject of the topic, as Confluent's TopicNameStrategy names it."""
    return f"{partitions.topics[0]}-{origin}" if partitions.topics else ""


def _chosen(options: ValueFormat, origin: Origin, partitions: Partitions, registry: SchemaRegistry) -> RegisteredSchema:
    """Return the schema that records are read as."""
    subjects = [f"{topic}-{origin}" for topic in partitions.topics]
    if options.schema_id is not None:
        return registry.by_id(options.schema_id, subjects[0] if subjects else "")
    known = [subject for subject in subjects if subject in registry.subjects]
    latest = {registry.latest(subject).schema_id: registry.latest(subject) for subject in known}
    if len(latest) > 1:
        raise SchemaNotFoundError(
            f"the topics {', '.join(partitions.topics)} have different schemas: read them one by one, or choose one "
            "by schema= or schema_id="
        )
    if latest:
        return next(iter(latest.values()))
    first = partitions.first(origin)
    if first is None or len(first) < 5 or first[0] != 0:
        raise SchemaNotFoundError(
            f"the registry has no subject {' or '.join(subjects) or 'for these records'}, and the first {origin} has "
            "no schema id in front: pass schema= or schema_id="
        )
    return registry.latest(registry.by_id(int.from_bytes(first[1:5], "big")).subject)


def _schema_text_of(schema: RegisteredSchema, registry: SchemaRegistry) -> SchemaText:
    if schema.schema_type != "AVRO":
        raise InvalidSchemaError(
            f"version {schema.version} of {schema.subject!r} is a schema of type {schema.schema_type}, expected AVRO"
        )
    return SchemaText(schema.text, tuple(reference.text for reference in registry.referenced(schema)))


def schema_text(schema: SchemaSource) -> str:
    """Return the text of a schema that is given as text, as parsed JSON or as the path of a file."""
    if isinstance(schema, (Mapping, list)):
        return json.dumps(schema)
    if isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"'):
        return schema
    env, path = locate(schema)
    return env.read_file(path, max_bytes=_MOST_SCHEMA_BYTES).decode("utf-8", "replace")
