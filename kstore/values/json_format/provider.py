"""JsonProvider: schemas of JSON, which are types of Arrow or JSON Schema, to columns and readers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from kstore.values.decoded import Framing, ValueReader, Wanted
from kstore.values.header_ids import HeaderIds
from kstore.values.json_format.columns import is_text_of_type, nodes_of, text_of_type, type_of_text
from kstore.values.json_format.json_schema import type_of_json_schema
from kstore.values.json_format.reader import JsonReader
from kstore.values.json_format.union import TypedVersion, union_type
from kstore.values.providers import SchemaProvider, SchemaSource, SchemaText, file_text
from kstore.values.registry import SchemaRegistry

INFER = "infer"


@dataclass(frozen=True)
class JsonProvider(SchemaProvider):
    """The SchemaProvider of JSON. A reader's schema is the text of a type of Arrow, whatever it was made from."""

    schema_type = "JSON"
    uses_writers = False

    def text_of(self, source: SchemaSource) -> str:
        if isinstance(source, pa.Schema):
            return text_of_type(pa.struct(list(source)))
        if isinstance(source, pa.DataType):
            return text_of_type(source)
        if isinstance(source, (Mapping, list)):
            return json.dumps(source)
        if isinstance(source, str) and (source == INFER or is_text_of_type(source) or source.lstrip()[:1] == "{"):
            return source
        return file_text(source)

    def reader_schema(self, schema: SchemaText) -> SchemaText:
        if not is_text_of_type(schema.text):
            schema = SchemaText(text_of_type(type_of_json_schema(schema.text, schema.references)))
        self.type(schema, None)
        return schema

    def union(self, schemas: Sequence[tuple[SchemaText, str]]) -> SchemaText:
        versions = [
            TypedVersion(type_of_json_schema(schema.text, schema.references), origin) for schema, origin in schemas
        ]
        return SchemaText(text_of_type(union_type(versions)))

    def portable(self, registry: SchemaRegistry) -> SchemaRegistry:
        # Values describe themselves: a schema that one was written with only has to exist.
        return SchemaRegistry(replace(schema, text="", references=()) for schema in registry.schemas)

    def type(self, schema: SchemaText, wanted: Wanted) -> pa.DataType:
        return nodes_of(type_of_text(schema.text), wanted).arrow_type

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
        root = nodes_of(type_of_text(schema.text), wanted)
        return JsonReader(root, writer_of, framing=framing, most_bytes=most_bytes, header_ids=header_ids)
