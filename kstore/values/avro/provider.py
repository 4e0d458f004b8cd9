"""AvroProvider: schemas of Avro, as text, to columns and readers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from kstore.values.avro.columns import columns_of, unions_in
from kstore.values.avro.reader import AvroReader
from kstore.values.avro.schema import AvroType, parse_avro_schema
from kstore.values.avro.union import Variant, union_text
from kstore.values.decoded import Framing, Unions, ValueReader, Wanted
from kstore.values.header_ids import HeaderIds
from kstore.values.providers import SchemaProvider, SchemaSource, SchemaText, file_text

_KEPT_SCHEMAS = 1024


@dataclass(frozen=True)
class AvroProvider(SchemaProvider):
    """The SchemaProvider of Avro."""

    schema_type = "AVRO"

    def text_of(self, source: SchemaSource) -> str:
        if isinstance(source, (Mapping, list)):
            return json.dumps(source)
        if isinstance(source, str) and source.lstrip()[:1] in ("{", "[", '"'):
            return source
        return file_text(source)

    def reader_schema(self, schema: SchemaText) -> SchemaText:
        _parsed(schema)
        return schema

    def union(self, schemas: Sequence[tuple[SchemaText, str]]) -> SchemaText:
        return SchemaText(union_text([Variant(_parsed(schema), origin) for schema, origin in schemas]))

    def type(self, schema: SchemaText, wanted: Wanted) -> pa.DataType:
        return columns_of(_parsed(schema), wanted).arrow_type

    def unions(self, schema: SchemaText, wanted: Wanted) -> Unions:
        return unions_in(columns_of(_parsed(schema), wanted))

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
        return AvroReader(
            columns_of(_parsed(schema), wanted),
            lambda schema_id: _parsed(writer_of(schema_id)),
            framing=framing,
            most_bytes=most_bytes,
            header_ids=header_ids,
        )


@lru_cache(maxsize=_KEPT_SCHEMAS)
def _parsed(schema: SchemaText) -> AvroType:
    """Return the parsed schema, which is kept.  Raises: InvalidSchemaError."""
    return parse_avro_schema(schema.text, [reference.text for reference in schema.references])
