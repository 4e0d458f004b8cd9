"""SchemaFormat: values whose schemas a registry may have, and what their formats, as Avro, do with schemas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias

import pyarrow as pa

from kstore.env import StrPath, locate
from kstore.errors import InvalidSchemaError, SchemaNotFoundError
from kstore.values.decoded import UNFRAMED, Framing, Origin, Unions, ValueReader, Wanted
from kstore.values.header_ids import HEADER_OF, HeaderIds
from kstore.values.registry import RegisteredSchema, SchemaRegistry, SchemaType, in_context_of, label_of

SchemaSource: TypeAlias = StrPath | bytes | Mapping[str, Any] | list[Any] | pa.Schema | pa.DataType
_MOST_SCHEMA_BYTES = 16 << 20


class NamedSchema(NamedTuple):
    """The text of a schema, and what another one calls it."""

    name: str
    text: str


class SchemaText(NamedTuple):
    """A schema as text.

    references: the schemas that it names, each after those that it names itself. message_name: of Protobuf, the message
    that values are read as, None for the first one.
    """

    text: str
    references: tuple[NamedSchema, ...] = ()
    message_name: str | None = None


class SchemaProvider(ABC):
    """What a format does with its schemas. Without state, and pickled with formats. Thread-safe.

    Attributes: schema_type: what a registry calls schemas of the format; uses_writers: whether a value is read by the
    schema that it was written with, or only has to have one; reads_views: whether readers take arrays of views, too.
    """

    schema_type: ClassVar[SchemaType]
    uses_writers: ClassVar[bool] = True
    reads_views: ClassVar[bool] = True

    @abstractmethod
    def text_of(self, source: SchemaSource) -> str:
        """Return a schema that a user gives as text.  Raises: what reading a file raises."""

    @abstractmethod
    def reader_schema(self, schema: SchemaText) -> SchemaText:
        """Return a schema for values to be read as, checked.  Raises: InvalidSchemaError."""

    @abstractmethod
    def type(self, schema: SchemaText, wanted: Wanted) -> pa.DataType:
        """Return the Arrow type of what is wanted of values.  Raises: InvalidSchemaError."""

    @abstractmethod
    def reader(
        self,
        schema: SchemaText,
        wanted: Wanted,
        writer_of: Callable[[int], SchemaText],
        *,
        framing: Framing,
        most_bytes: int,
        header_ids: HeaderIds | None,
    ) -> ValueReader:
        """Return a new reader.

        Args: schema: that values are read as; writer_of: returns the schema that values of an id were written with, or
            raises SchemaError; it is asked once for each id, and again where many have none; framing: what values
            begin with; most_bytes: the memory that the columns of an array may take before it is returned in parts, and
            that one value may take; header_ids: finds ids in the headers of records; None: only frames have them.
        """

    def union(self, schemas: Sequence[tuple[SchemaText, str]]) -> SchemaText:
        """Return a schema as which values of all schemas can be read, with the fields of all of them.

        Args: schemas: newest first, each with what an error calls it.
        Raises: InvalidSchemaError if they have no union, or the format makes none.
        """
        raise InvalidSchemaError(f"{len(schemas)} schemas of type {self.schema_type} have no union")

    def portable(self, registry: SchemaRegistry) -> SchemaRegistry:
        """Return schemas in a form that needs nothing but what decoding does."""
        return registry

    def unions(self, schema: SchemaText, wanted: Wanted) -> Unions:
        """Return which structs of the type are unions.  Raises: InvalidSchemaError."""
        del schema, wanted
        return frozenset()


@dataclass(frozen=True, slots=True)
class SchemaFormat:
    """Values of a format that has schemas.

    reader_schema: what they are read as; schema_id: its id, None if it was given as such. registry: has the schemas
    that they were written with, in the context of subject; None: all were written with reader_schema. origin: in whose
    headers ids are looked for, if the registry has GUIDs.
    """

    provider: SchemaProvider
    reader_schema: SchemaText
    schema_id: int | None
    registry: SchemaRegistry | None
    subject: str
    framing: Framing
    origin: Origin

    def __reduce__(self) -> tuple[object, ...]:
        registry = self.registry
        if registry is not None:
            registry = self.provider.portable(in_context_of(registry, self.subject, self.provider.schema_type))
        parts = self.provider, self.reader_schema, self.schema_id, registry, self.subject, self.framing, self.origin
        return SchemaFormat, parts

    @property
    def reads_headers(self) -> bool:
        return self.registry is not None and any(schema.guid is not None for schema in self.registry.schemas)

    @property
    def reads_views(self) -> bool:
        return self.provider.reads_views

    def type(self, wanted: Wanted) -> pa.DataType:
        return self.provider.type(self.reader_schema, wanted)

    def unions(self, wanted: Wanted) -> Unions:
        return self.provider.unions(self.reader_schema, wanted)

    def reader(self, wanted: Wanted, *, most_bytes: int) -> ValueReader:
        header_ids = HeaderIds(HEADER_OF[self.origin]) if self.reads_headers else None
        return self.provider.reader(
            self.reader_schema,
            wanted,
            partial(self._writer, header_ids),
            framing=self.framing,
            most_bytes=most_bytes,
            header_ids=header_ids,
        )

    def _writer(self, header_ids: HeaderIds | None, schema_id: int) -> SchemaText:
        """Return the schema that values of an id were written with."""
        if self.registry is None:
            return self.reader_schema
        if schema_id == UNFRAMED:
            raise SchemaNotFoundError("the value has no schema id")
        known = schema_id if header_ids is None else header_ids.schema(schema_id)
        written = self.registry.by_guid(known) if isinstance(known, str) else self.registry.by_id(known, self.subject)
        if not self.provider.uses_writers:
            check_schema_type(written, self.provider.schema_type)
            return self.reader_schema
        return registered_text(written, self.registry, self.provider.schema_type)


def check_schema_type(schema: RegisteredSchema, expected: SchemaType) -> None:
    """Refuse a schema of another type.  Raises: InvalidSchemaError."""
    if schema.schema_type != expected:
        raise InvalidSchemaError(f"{label_of(schema)} is a schema of type {schema.schema_type}, expected {expected}")


def registered_text(schema: RegisteredSchema, registry: SchemaRegistry, expected: SchemaType) -> SchemaText:
    """Return a schema of a registry with those that it refers to.

    Raises: InvalidSchemaError for one of another type; SchemaNotFoundError if one that it refers to is missing.
    """
    check_schema_type(schema, expected)
    targets = registry.referenced(schema)
    names: dict[tuple[str, int], dict[str, None]] = {}
    for naming in (schema, *targets):
        for reference in naming.references:
            target = registry.target(naming, reference)
            if target is not None:
                names.setdefault((target.subject, target.version), {})[reference.name] = None
    named = (NamedSchema(name, each.text) for each in targets for name in names[each.subject, each.version])
    return SchemaText(schema.text, tuple(named))


def file_text(source: StrPath | bytes) -> str:
    """Return the text of a schema that is given as bytes or as the path of a file.  Raises: OSError."""
    return (source if isinstance(source, bytes) else file_bytes(source)).decode("utf-8", "replace")


def file_bytes(source: StrPath) -> bytes:
    """Return the content of a file with a schema.  Raises: OSError."""
    env, path = locate(source)
    return env.read_file(path, max_bytes=_MOST_SCHEMA_BYTES)
