"""TypedTopic: the columns of a topic whose keys or values have a format, over all runs of an export."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kstore.archive.options import COLUMNS, DATE, ExportOptions
from kstore.errors import CorruptManifestError, ExportOptionsError, SchemaNotFoundError
from kstore.log.files.names import PartitionDirectory
from kstore.values.conversion import ConvertedFormat, common_field, is_json_text
from kstore.values.decoded import ColumnFormat, Origin
from kstore.values.formats import Partitions, SchemaTopics, format_for, text_columns
from kstore.values.json_format.provider import INFER
from kstore.values.registry import SCHEMAS_TOPIC
from kstore.values.typed import TypedRows

if TYPE_CHECKING:
    import pyarrow


class TypedTopic(NamedTuple):
    """The columns of a topic.  Picklable.

    rows: makes them, and offset and timestamp; strings: the columns that are read as text; schema: of the columns that
    are exported; types: of keys and values, by origin.
    """

    rows: TypedRows
    strings: tuple[str, ...]
    schema: pyarrow.Schema
    types: pyarrow.Schema

    def encoded_types(self) -> str:
        """Return the types as a manifest has them."""
        return base64.b64encode(self.types.serialize()).decode()

    def merged_with(self, table: pyarrow.Schema, place: str) -> TypedTopic:
        """Return the same for a table that has columns already.

        Raises: ExportOptionsError for a column of another type, with both.
        """
        import pyarrow as pa

        known = {field.name: field.with_type(_plain(field.type)) for field in table}
        fields = [_merged_field(known.get(field.name, field), field, f"{place}: {field.name}") for field in self.schema]
        return self._replace(schema=pa.schema(fields))

    def conformed(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """Return rows with the columns of the schema: those that they do not have, and fields of structs, are null."""
        import pyarrow as pa

        if batch.schema.equals(self.schema):
            return batch
        arrays = [
            batch.column(field.name).cast(field.type)
            if field.name in batch.schema.names
            else pa.nulls(batch.num_rows, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def typed_topics(
    options: ExportOptions,
    directories: Iterable[PartitionDirectory],
    known: Mapping[str, str],
    *,
    path: str,
) -> dict[str, TypedTopic]:
    """Return the columns of topics, by the schemas that they have now; not of `_schemas`, which stays as it is.

    Args: directories: of their partitions; known: the types of earlier runs; path: of the export, for errors.
    Raises: ExportOptionsError for a type that differs from that of an earlier run; SchemaNotFoundError for `_schemas`
        with columns of a schema; SchemaError; what reading `_schemas` raises.
    """
    by_topic: dict[str, list[PartitionDirectory]] = {}
    for directory in directories:
        by_topic.setdefault(directory.topic_partition.topic, []).append(directory)
    has_schemas = by_topic.pop(SCHEMAS_TOPIC, None) is not None
    with SchemaTopics() as schemas:
        typed = {
            topic: _typed(options, found, _decoded(known.get(topic), path), schemas, place=f"{path}: topic {topic}")
            for topic, found in by_topic.items()
        }
    if has_schemas:
        _check_schemas_topic(options)
    return typed


def _check_schemas_topic(options: ExportOptions) -> None:
    """Raise SchemaNotFoundError if the columns are not those of records without a format."""
    from kstore.arrow import schema

    try:
        schema(options.columns)
    except ValueError as error:
        raise SchemaNotFoundError(
            f"the topic {SCHEMAS_TOPIC} has no schema, and does not have all of the columns "
            f"{', '.join(options.columns)}: name the topics to export without it"
        ) from error


def typed_table(options: ExportOptions, directories: Sequence[PartitionDirectory]) -> TypedTopic:
    """Return the columns of a table that has all records, by the schemas that there are now.

    Raises: SchemaNotFoundError if the topic `_schemas` is among them; SchemaError; what reading it raises.
    """
    if any(directory.topic_partition.topic == SCHEMAS_TOPIC for directory in directories):
        raise SchemaNotFoundError(
            f"the topic {SCHEMAS_TOPIC} has no schema, and cannot be in a table that has a format: name the topics"
        )
    with SchemaTopics() as schemas:
        return _typed(options, directories, None, schemas, place="", more=("topic",), nearest=common_field)


def _typed(
    options: ExportOptions,
    directories: Sequence[PartitionDirectory],
    before: pyarrow.Schema | None,
    schemas: SchemaTopics,
    *,
    place: str,
    more: tuple[str, ...] = (),
    nearest: Callable[[str, pyarrow.DataType], pyarrow.Field] | None = None,
) -> TypedTopic:
    """Return the columns.

    Args: before: the types of an earlier run; more: columns before the others; nearest: returns the field that a target
        has for a name and a type, None if it has all types.
    """
    import pyarrow as pa

    from kstore.arrow import schema

    partitions = Partitions.of(directories, on_error=options.on_error)
    formats: dict[Origin, ColumnFormat] = {}
    types = []
    for origin, chosen in options.formats:
        if before is not None and chosen.schema == INFER:
            chosen = replace(chosen, schema=before.field(origin).type)
        inner = format_for(schemas.known(chosen, partitions), origin, partitions)
        now = inner.type(None)
        field = pa.field(origin, now) if nearest is None else nearest(origin, now)
        merged = field.type
        if before is not None:
            merged = merged_type(before.field(origin).type, merged, f"{place}: {origin}")
        formats[origin] = inner if merged == now else ConvertedFormat(inner, None, merged)
        types.append(field.with_type(merged))
    first = tuple(name for name in more if name not in options.columns)
    names = None if options.columns == COLUMNS else [*first, *options.columns]

    def rows_of(names: Sequence[str] | None) -> TypedRows:
        return TypedRows(
            formats,
            names=names,
            default=[*more, *COLUMNS],
            mode=options.mode,
            flatten=options.flatten,
            taken=("topic", DATE),
        )

    shown = rows_of(names).names
    rows = rows_of([*shown, *(name for name in ("offset", "timestamp") if name not in shown)])
    texts = text_columns(dict(options.formats), options.strings)
    strings = tuple(name for name in texts if name in rows.base_columns)
    whole = rows.schema(schema(rows.base_columns, strings=strings))
    made = {field.name: field.metadata for field in types}
    exported = [whole.field(name) for name in shown]
    # A key or value that is no struct is a field itself.
    exported = [field.with_metadata(made[field.name]) if made.get(field.name) else field for field in exported]
    return TypedTopic(rows, strings, pa.schema(exported), pa.schema(types))


def merged_type(before: pyarrow.DataType, now: pyarrow.DataType, place: str) -> pyarrow.DataType:
    """Return the type of both: that of before, with the fields that were added.

    Raises: ExportOptionsError, with both types.
    """
    import pyarrow as pa

    kinds = pa.types
    if before.equals(now, check_metadata=True):
        return before
    if kinds.is_struct(before) and kinds.is_struct(now):
        later = {field.name: field for field in now}
        fields = [_merged_field(field, later.pop(field.name, field), f"{place}.{field.name}") for field in before]
        return pa.struct([*fields, *later.values()])
    if kinds.is_list(before) and kinds.is_list(now):
        return pa.list_(pa.field("element", merged_type(before.value_type, now.value_type, f"{place}.element")))
    if kinds.is_map(before) and kinds.is_map(now) and before.key_type == now.key_type:
        return pa.map_(before.key_type, merged_type(before.item_type, now.item_type, f"{place}.value"))
    if before == now:
        return before
    raise _another_type(place, str(before), str(now))


def _merged_field(before: pyarrow.Field, now: pyarrow.Field, place: str) -> pyarrow.Field:
    """Return the field of both.  Raises: as merged_type; also if only one of them has JSON as text."""
    import pyarrow as pa

    merged = merged_type(before.type, now.type, place)
    if is_json_text(before) != is_json_text(now):
        texts = [f"{field.type} of {'JSON' if is_json_text(field) else 'plain text'}" for field in (before, now)]
        raise _another_type(place, *texts)
    # Without the ids of Iceberg, which new fields do not have.
    return pa.field(now.name, merged, metadata=now.metadata)


def _another_type(place: str, before: str, now: str) -> ExportOptionsError:
    return ExportOptionsError(
        f"{place} has another type now: {before} there, {now} by its schema: export into another target, or choose the "
        "schema that records are read as",
        differences={"schema": (before, now)},
        path=place,
    )


def _plain(arrow_type: pyarrow.DataType) -> pyarrow.DataType:
    """Return a type of a table without another layout of the same values."""
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_large_string(arrow_type) or kinds.is_string_view(arrow_type):
        return pa.string()
    if kinds.is_large_binary(arrow_type) or kinds.is_binary_view(arrow_type):
        return pa.binary()
    if kinds.is_struct(arrow_type):
        return pa.struct([field.with_type(_plain(field.type)) for field in arrow_type])
    if kinds.is_list(arrow_type) or kinds.is_large_list(arrow_type):
        return pa.list_(pa.field("element", _plain(arrow_type.value_type)))
    if kinds.is_map(arrow_type):
        return pa.map_(_plain(arrow_type.key_type), _plain(arrow_type.item_type))
    return arrow_type


def _decoded(types: str | None, place: str) -> pyarrow.Schema | None:
    """Return the types of a manifest, None for a topic that has none yet."""
    import pyarrow as pa

    if types is None:
        return None
    try:
        return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(types, validate=True)))
    except (ValueError, pa.ArrowException) as error:
        reason = f"the types of the columns are no schema of Arrow: {error}"
        raise CorruptManifestError(f"{place}: {reason}", path=place, reason=reason) from error
