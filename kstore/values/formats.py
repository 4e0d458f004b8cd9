"""Formats of keys and values: what a column of bytes becomes, and from which schema."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, fields, replace
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from kstore.env import DEFAULT_ENV, Closing, Env, StrPath, shown_path
from kstore.errors import SchemaNotFoundError
from kstore.log.damage import OnError
from kstore.log.files.names import PartitionDirectory
from kstore.store.opening import open_found
from kstore.values.avro.provider import AvroProvider
from kstore.values.decoded import (
    CONFLUENT_FRAME_BYTES,
    FRAME_BYTES,
    ColumnFormat,
    Framing,
    Origin,
    Unions,
    ValueReader,
    Wanted,
)
from kstore.values.json_format.inference import inferred_type, json_schema_of
from kstore.values.json_format.provider import INFER, JsonProvider
from kstore.values.primitives import PRIMITIVE_TYPES, PrimitiveReader
from kstore.values.protobuf.provider import ProtobufProvider
from kstore.values.providers import SchemaFormat, SchemaProvider, SchemaSource, SchemaText, registered_text
from kstore.values.registry import SCHEMAS_TOPIC, RegisteredSchema, SchemaRegistry, label_of
from kstore.values.sources import RestRegistry, SchemasSource, check_place, is_registry, schemas_source

# Of formats with schemas.
PROVIDERS: dict[str, SchemaProvider] = {
    "avro": AvroProvider(),
    "json": JsonProvider(),
    "protobuf": ProtobufProvider(),
}
FORMATS = (*PROVIDERS, *PRIMITIVE_TYPES)
# What a schema is inferred from: the first records of each partition, as far as these numbers go.
SAMPLED_RECORDS, SAMPLED_RECORDS_OF_PARTITION = 10_000, 1_000
SAMPLED_BYTES = 16 << 20
# Records without a value are passed over, so many for each that is looked for.
_PASSED_FOR_EACH_SAMPLED = 100
# What `schema` says of those that a registry has: the newest one of a subject, or one that has the fields of all.
LATEST, UNION = "latest", "union"

_logger = logging.getLogger("kstore.values")


class Partitions(NamedTuple):
    """The partitions whose keys or values are read, as far as their schema depends on it.

    topics: their topics; root, env: where a registry's topic may be, root None without such a place. first: returns the
    first key or value of a topic that is not null. sample: yields those among their first records.
    """

    topics: tuple[str, ...]
    root: str | None
    env: Env
    first: Callable[[Origin, str], bytes | None]
    sample: Callable[[Origin], Iterator[bytes]] = lambda _: iter(())

    @classmethod
    def of(cls, directories: Sequence[PartitionDirectory], *, on_error: OnError = "raise") -> Partitions:
        """Return those in directories, of which the first says where the topic of a registry may be."""

        def first(origin: Origin, topic: str) -> bytes | None:
            for directory in directories:
                if directory.topic_partition.topic != topic:
                    continue
                with open_found(directory) as log:
                    for record in log.read(on_error=on_error):
                        data: bytes | None = record.value if origin == "value" else record.key
                        if data is not None:
                            return data
            return None

        def sample(origin: Origin) -> Iterator[bytes]:
            share = max(1, len(directories))
            records = max(1, min(SAMPLED_RECORDS_OF_PARTITION, SAMPLED_RECORDS // share))
            taken = 0
            for number, directory in enumerate(directories[:SAMPLED_RECORDS], 1):
                if taken >= SAMPLED_BYTES:
                    break
                with open_found(directory) as log:
                    read = islice(log.read(on_error=on_error), records * _PASSED_FOR_EACH_SAMPLED)
                    values = (record.value if origin == "value" else record.key for record in read)
                    for data in islice((each for each in values if each is not None), records):
                        yield data
                        taken += len(data)
                        if taken >= number * SAMPLED_BYTES // share:
                            break

        topics = dict.fromkeys(directory.topic_partition.topic for directory in directories)
        root, env = (directories[0].root, directories[0].env) if directories else (None, DEFAULT_ENV)
        return cls(tuple(topics), root, env, first, sample)


@dataclass(frozen=True, slots=True)
class PrimitiveFormat:
    """Values that one of Kafka's own serializers wrote."""

    name: str

    @property
    def reads_headers(self) -> bool:
        return False

    @property
    def reads_views(self) -> bool:
        return False

    def type(self, _wanted: Wanted) -> pa.DataType:
        return PRIMITIVE_TYPES[self.name]

    def unions(self, _wanted: Wanted) -> Unions:
        return frozenset()

    def reader(self, _wanted: Wanted, *, most_bytes: int) -> ValueReader:
        del most_bytes
        return PrimitiveReader(self.name)


@dataclass(frozen=True)
class ValueFormat:
    """How keys or values are read.

    Args: name: one of FORMATS. schema: what records are read as: a schema of Avro or a JSON Schema, as JSON text, as
        parsed JSON, or as the path of a file. For JSON also a pyarrow.Schema or pyarrow.DataType, or "infer": the type
        that a sample of the values has. "latest": the newest version of the subject in a registry, as without a schema;
        "union": a schema with the fields of all of its versions, deleted ones too. schemas: a root, a partition or a
        URL of one, with the topic `_schemas`, the URL of a registry, or a SchemaRegistry: where schemas of framed
        values are looked up; None: the root of the partitions, unless schema is given. schema_id: which of them records
        are read as. framing: what each value begins with; None: "confluent" with a registry, else "none".
        message_name: of Protobuf, the message that values are, with or without its package; None: the first one of the
        schema.
    """

    name: str
    _: KW_ONLY
    schema: SchemaSource | None = None
    schemas: StrPath | SchemaRegistry | None = None
    schema_id: int | None = None
    framing: Framing | None = None
    message_name: str | None = None

    def __repr__(self) -> str:
        """Return the arguments; of a URL neither the user nor the options, which may be secret."""
        given = {each.name: getattr(self, each.name) for each in fields(self)[1:]}
        if isinstance(self.schemas, str):
            given["schemas"] = shown_path(self.schemas)
        return f"ValueFormat({', '.join([repr(self.name), *(f'{name}={value!r}' for name, value in given.items())])})"

    def __post_init__(self) -> None:
        check_place(self.schemas)
        if self.name not in FORMATS:
            raise ValueError(f"expected one of the formats {', '.join(FORMATS)}, got {self.name!r}")
        if self.schema is not None and self.name not in PROVIDERS:
            raise ValueError(f"the format {self.name!r} takes no schema")
        self._check_choice()
        if self.framing not in (None, "none", "confluent", "apicurio"):
            raise ValueError(f'framing must be "none", "confluent" or "apicurio", got {self.framing!r}')
        if self.name == "protobuf" and self.framing == "apicurio":
            raise ValueError('framing of the format "protobuf" must be "none" or "confluent", got "apicurio"')
        if self.framing == "apicurio" and is_registry(self.schemas):
            raise ValueError(
                'framing="apicurio" takes no URL of a registry, as values may have global ids where it has content '
                "ids: pass schemas= a SchemaRegistry with the ids that they have, or read_schemas(URL) if it has these"
            )
        if self.name != "protobuf" and self.message_name is not None:
            raise ValueError(f"the format {self.name!r} takes no message_name")

    def _check_choice(self) -> None:
        """Raise ValueError for a choice of a schema that the format does not have, or two of them."""
        if isinstance(self.schema, str) and self.schema == INFER and self.name != "json":
            raise ValueError(f'schema="{INFER}" is for the format json, got {self.name!r}')
        if self.schema_id is not None and self.schema is not None:
            raise ValueError(f"expected schema={str(self.schema)[:80]!r} or schema_id={self.schema_id}, got both")
        if self.name not in PROVIDERS:
            for option, given in (("schemas", self.schemas), ("schema_id", self.schema_id), ("framing", self.framing)):
                if given is not None:
                    raise ValueError(f"the format {self.name!r} takes no {option}")


def is_chosen(options: ValueFormat) -> bool:
    """Whether the schema that records are read as is one that a registry has, or the union of some."""
    return options.schema is None or (isinstance(options.schema, str) and options.schema in (LATEST, UNION))


class SchemaTopics(Closing):
    """The topics of schemas that formats need, each read once, and again after it grew.

    A registry over HTTP is asked once, and again by ask_again().

    Lifetime: keeps them open until close(). Threads: not thread-safe.
    """

    def __init__(self) -> None:
        self._topics: dict[str, SchemasSource] = {}
        self._answers: dict[str, SchemaRegistry] = {}

    @property
    def has_answers(self) -> bool:
        """Whether a registry was asked."""
        return bool(self._answers)

    def ask_again(self) -> None:
        """Ask the registries that were asked.

        Raises: as RestRegistry.read; what they answered before stays known then.
        """
        for place in self._answers:
            self._answers[place] = self._topics[place].read()

    def known(self, options: ValueFormat, partitions: Partitions) -> ValueFormat:
        """Return a format with the registry that it needs, as that is now; the format itself if it needs none.

        Raises: SchemaNotFoundError; what reading it raises.
        """
        needs_one = options.name in PROVIDERS and (is_chosen(options) or options.schemas is not None)
        if not needs_one or isinstance(options.schemas, SchemaRegistry):
            return options
        place, env = (partitions.root, partitions.env) if options.schemas is None else (options.schemas, None)
        if place is None:
            return options
        with _naming_choices(options):
            registry = self._answers.get(str(place))
            if registry is None:
                topic = self._topics.get(str(place))
                if topic is None:
                    topic = self._topics[str(place)] = schemas_source(place, env)
                registry = topic.read()
                if isinstance(topic, RestRegistry):
                    self._answers[str(place)] = registry
            return replace(options, schemas=registry)

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
    return _schema_format(options, origin, partitions)


def formats_of(
    *,
    value: ValueFormat | str | None,
    key: ValueFormat | str | None,
    schema: SchemaSource | None = None,
    schemas: StrPath | SchemaRegistry | None = None,
) -> dict[Origin, ValueFormat]:
    """Return the formats of values and keys that are given as such or by name.

    Args: schema: that of values whose format is given by name; schemas: of the formats of both that have schemas.
    Raises: ValueError for an unknown format, or a schema that no format takes.
    """
    taking = [each for each in (value, key) if isinstance(each, str) and each not in PRIMITIVE_TYPES]
    if (schema is not None and not isinstance(value, str)) or (schemas is not None and not taking):
        raise ValueError('schema and schemas are for a format of values that is given by its name, as value="avro"')
    formats: dict[Origin, ValueFormat] = {}
    if value is not None:
        place = schemas if value in taking else None
        formats["value"] = ValueFormat(value, schema=schema, schemas=place) if isinstance(value, str) else value
    if key is not None:
        place = schemas if key in taking else None
        formats["key"] = ValueFormat(key, schemas=place) if isinstance(key, str) else key
    return formats


def _schema_format(options: ValueFormat, origin: Origin, partitions: Partitions) -> SchemaFormat:
    provider = PROVIDERS[options.name]
    text = None if is_chosen(options) else schema_text(options)
    if text == INFER:
        text = _inferred(options, origin, partitions)
    given = None if text is None else provider.reader_schema(SchemaText(text, message_name=options.message_name))
    if given is not None and options.schemas is None:
        return SchemaFormat(provider, given, None, None, "", options.framing or "none", origin)
    registry, subject = _registry(options, origin, partitions), _subject(origin, partitions)
    framing: Framing = options.framing or "confluent"
    if given is not None:
        return SchemaFormat(provider, given, None, registry, subject, framing, origin)
    if options.schema == UNION:
        versions = _versions(framing, origin, partitions, registry)
        texts = [registered_text(each, registry, provider.schema_type) for each in versions]
        named = [text._replace(message_name=options.message_name) for text in texts]
        schema = provider.union(list(zip(named, map(label_of, versions), strict=True)))
        schema = provider.reader_schema(schema)
        return SchemaFormat(provider, schema, None, registry, subject, framing, origin)
    with _naming_choices(options):
        chosen = _chosen(options, origin, partitions, registry)
    written = registered_text(chosen, registry, provider.schema_type)
    schema = provider.reader_schema(written._replace(message_name=options.message_name))
    return SchemaFormat(provider, schema, chosen.schema_id, registry, subject, framing, origin)


def _inferred(options: ValueFormat, origin: Origin, partitions: Partitions) -> str:
    """Return the schema that a sample of values has.  Raises: SchemaNotFoundError if it has none."""
    framing = options.framing or ("none" if options.schemas is None else "confluent")
    # JSON does not begin with the byte 0 of a frame; where ids are in headers, values have no frame.
    frame = FRAME_BYTES[framing]
    sample = [data[frame:] if data[:1] == b"\0" else data for data in partitions.sample(origin)]
    arrow_type = inferred_type(sample)
    topics = ", ".join(partitions.topics)
    if not sample:
        raise SchemaNotFoundError(
            f"no {origin} among the first records of {topics} from which a schema could be inferred: pass schema="
        )
    if arrow_type is None:
        raise SchemaNotFoundError(
            f"none of the first {len(sample)} {origin}s of {topics} is JSON from which a schema could be inferred, "
            f'with framing "{framing}": pass schema='
        )
    shown = json.dumps(json_schema_of(arrow_type), ensure_ascii=False)
    _logger.info("schema of the %ss of %s, inferred from %d of them: %s", origin, topics, len(sample), shown)
    return PROVIDERS["json"].text_of(arrow_type)


@contextmanager
def _naming_choices(options: ValueFormat) -> Iterator[None]:
    """Say, where no schema is found, that JSON can do without a registry."""
    try:
        yield
    except SchemaNotFoundError as error:
        if options.name != "json" or options.schema is not None:
            raise
        raise SchemaNotFoundError(
            f'{error}. JSON needs no registry: pass schema= (a type of Arrow or a JSON Schema), or schema="infer"'
        ) from error


def _registry(options: ValueFormat, origin: Origin, partitions: Partitions) -> SchemaRegistry:
    with SchemaTopics() as topics:
        registry = topics.known(options, partitions).schemas
    if isinstance(registry, SchemaRegistry):
        return registry
    with _naming_choices(options):
        raise SchemaNotFoundError(
            f"no place is known where the schemas of {origin}s are: pass schema=, or schemas= with the root of a "
            "registry's topic"
        )


def _subject(origin: Origin, partitions: Partitions) -> str:
    """Return the subject of the topic, as Confluent's TopicNameStrategy names it."""
    return f"{partitions.topics[0]}-{origin}" if partitions.topics else ""


def _chosen(options: ValueFormat, origin: Origin, partitions: Partitions, registry: SchemaRegistry) -> RegisteredSchema:
    """Return the schema that records are read as."""
    if options.schema_id is not None:
        return registry.by_id(options.schema_id, _subject(origin, partitions))
    subjects = _known_subjects(options.framing or "confluent", origin, partitions, registry)
    latest = {registry.latest(subject).schema_id: registry.latest(subject) for subject in subjects}
    if len(latest) > 1:
        raise SchemaNotFoundError(
            f"the topics {', '.join(partitions.topics)} have different schemas: read them one by one, or choose one "
            'by schema= or schema_id=, or all by schema="union"'
        )
    return next(iter(latest.values()))


def _versions(
    framing: Framing, origin: Origin, partitions: Partitions, registry: SchemaRegistry
) -> list[RegisteredSchema]:
    """Return the versions of the subjects of partitions, those that are deleted softly too: the newest first."""
    subjects = _known_subjects(framing, origin, partitions, registry)
    versions = [each for subject in subjects for each in reversed(registry.versions(subject))]
    return sorted(versions, key=lambda schema: schema.is_deleted)


def _known_subjects(framing: Framing, origin: Origin, partitions: Partitions, registry: SchemaRegistry) -> list[str]:
    """Return the subjects of the topics: that of a topic's name, or else that of its first record.

    `_schemas`, and topics that have neither a subject of their name nor a record, are left out.
    Raises: SchemaNotFoundError if a topic that has records has no subject, or none has one.
    """
    known: dict[str, None] = {}
    subjects = set(registry.subjects)
    for topic in partitions.topics:
        if topic == SCHEMAS_TOPIC:
            continue
        subject: str | None = f"{topic}-{origin}"
        if subject not in subjects:
            subject = _subject_of_first(framing, origin, topic, partitions, registry)
        if subject is not None:
            known[subject] = None
    if not known:
        names = " or ".join(f"{topic}-{origin}" for topic in partitions.topics)
        raise SchemaNotFoundError(
            f"the registry has no subject {names or 'for these records'}, and there is no {origin} with a schema id in "
            "front: pass schema= or schema_id="
        )
    return list(known)


def _subject_of_first(
    framing: Framing, origin: Origin, topic: str, partitions: Partitions, registry: SchemaRegistry
) -> str | None:
    """Return the subject of the first key or value of a topic, None without one.  Raises: SchemaNotFoundError."""
    first = partitions.first(origin, topic)
    if first is None:
        return None
    frame = FRAME_BYTES[framing] or CONFLUENT_FRAME_BYTES
    if len(first) < frame or first[0] != 0:
        reason = f"the first {origin} of {topic} has no schema id in front"
    else:
        schema_id = int.from_bytes(first[1:frame], "big")
        try:
            return registry.by_id(schema_id).subject
        except SchemaNotFoundError:
            reason = f"no schema of id {schema_id}, which the first {origin} of {topic} has"
    raise SchemaNotFoundError(
        f"the registry has no subject {topic}-{origin}, and {reason}: pass schema= or schema_id=, or "
        f"read {topic} by itself"
    )


def schema_text(options: ValueFormat) -> str | None:
    """Return the schema that is given, as text; None without one, and a choice as it is."""
    if is_chosen(options):
        return options.schema if isinstance(options.schema, str) else None
    return None if options.schema is None else PROVIDERS[options.name].text_of(options.schema)
