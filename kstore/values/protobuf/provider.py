"""ProtobufProvider: schemas of Protobuf to columns and readers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from kstore.errors import InvalidSchemaError
from kstore.values.decoded import Framing, ValueReader, Wanted
from kstore.values.header_ids import HeaderIds
from kstore.values.providers import SchemaProvider, SchemaSource, SchemaText, registered_text
from kstore.values.registry import SchemaRegistry

if TYPE_CHECKING:
    from kstore.values.protobuf.schema import ProtobufSchema


@dataclass(frozen=True)
class ProtobufProvider(SchemaProvider):
    """The SchemaProvider of Protobuf. It imports google.protobuf when it is used.

    Raises: from its methods ModuleNotFoundError without it.
    """

    schema_type = "PROTOBUF"
    reads_views = False

    def text_of(self, source: SchemaSource) -> str:
        _check_installed()
        from kstore.values.protobuf.texts import text_of

        return text_of(source)

    def reader_schema(self, schema: SchemaText) -> SchemaText:
        _check_installed()
        from kstore.values.protobuf.schema import portable_text

        message_name = _schema_of(schema).named(schema.message_name).full_name
        return SchemaText(portable_text(schema), message_name=message_name)

    def union(self, schemas: Sequence[tuple[SchemaText, str]]) -> SchemaText:
        _check_installed()
        from kstore.values.protobuf.schema import name_in_package
        from kstore.values.protobuf.texts import text_of_files
        from kstore.values.protobuf.union import MessageVersion, union_file

        name = schemas[0][0].message_name
        newest = _schema_of(schemas[0][0]).named(name)
        versions = [MessageVersion(newest, schemas[0][1])]
        for schema, origin in schemas[1:]:
            message = _schema_of(schema).find(name_in_package(newest))
            if message is not None:
                versions.append(MessageVersion(message, origin))
            elif name is None:
                raise InvalidSchemaError(
                    f"the Protobuf schemas have no union: the value is {newest.full_name} in {schemas[0][1]}, which "
                    f"{origin} does not have: choose one by schema_id=, or say which message is read by message_name="
                )
        return SchemaText(text_of_files([union_file(versions)]), message_name=newest.full_name)

    def portable(self, registry: SchemaRegistry) -> SchemaRegistry:
        from kstore.values.protobuf.schema import portable_texts

        own = [schema for schema in registry.schemas if schema.schema_type == self.schema_type]
        texts = portable_texts([registered_text(schema, registry, self.schema_type) for schema in own])
        schemas = [
            schema if text is None else replace(schema, text=text, references=())
            for schema, text in zip(own, texts, strict=True)
        ]
        return SchemaRegistry(schemas)

    def type(self, schema: SchemaText, wanted: Wanted) -> pa.DataType:
        from kstore.values.protobuf.columns import columns_of

        return columns_of(_schema_of(schema).named(schema.message_name), wanted).arrow_type

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
        from kstore.values.protobuf.columns import columns_of
        from kstore.values.protobuf.reader import ProtobufReader

        expected = _schema_of(schema).named(schema.message_name)
        return ProtobufReader(
            columns_of(expected, wanted),
            expected,
            lambda schema_id: _schema_of(writer_of(schema_id)),
            framing=framing,
            most_bytes=most_bytes,
            header_ids=header_ids,
        )


def _schema_of(schema: SchemaText) -> ProtobufSchema:
    from kstore.values.protobuf.schema import schema_of

    return schema_of(schema._replace(message_name=None))


def _check_installed() -> None:
    try:
        has_protobuf = importlib.util.find_spec("google.protobuf") is not None
    except ModuleNotFoundError:
        has_protobuf = False
    if not has_protobuf:
        raise ModuleNotFoundError("the format protobuf needs the package protobuf: pip install 'kstore[protobuf]'")
