"""Columns of the Spark source, and which of them a user schema requests."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kstore.spark.options import ValueOptions

if TYPE_CHECKING:
    import pyarrow as pa

_HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_HEADERS_NAME = _HEADERS_TYPE.simpleString()
_KAFKA_COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}
_METADATA_COLUMNS: dict[str, DataType] = {
    "magic": ByteType(),
    "codec": StringType(),
    "leaderEpoch": IntegerType(),
    "producerId": LongType(),
    "producerEpoch": ShortType(),
    "sequence": IntegerType(),
    "isTransactional": BooleanType(),
    "isControl": BooleanType(),
    "position": LongType(),
}
COLUMN_TYPES = {**_KAFKA_COLUMNS, "headers": _HEADERS_TYPE, **_METADATA_COLUMNS}
_TEXT_COLUMNS = ("key", "value")
_PER_RECORD_COLUMNS = frozenset(("key", "value", "headers", "timestamp"))
_BY_LOWER_NAME = {name.lower(): name for name in COLUMN_TYPES}


def source_schema(*, include_headers: bool) -> StructType:
    """Return the schema of Spark's Kafka source. All columns are nullable."""
    columns = {**_KAFKA_COLUMNS, "headers": _HEADERS_TYPE} if include_headers else _KAFKA_COLUMNS
    return StructType([StructField(name, data_type) for name, data_type in columns.items()])


def record_type(fields: Sequence[str]) -> StructType:
    """Return the struct type of a record with these fields, all nullable. topic and partition are not available.

    Raises: ValueError for an unknown or repeated field, or no field.
    """
    known = {name: kind for name, kind in COLUMN_TYPES.items() if name not in ("topic", "partition")}
    if not fields or len(set(fields)) < len(fields) or not set(fields) <= set(known):
        raise ValueError(f"fields must be some of {', '.join(known)}, each once; got {list(fields)}")
    return StructType([StructField(name, known[name]) for name in fields])


@dataclass(frozen=True, kw_only=True)
class UserSchema:
    """The columns to read and how the user schema declares them.

    columns: kstore's names, in the order of the schema. strings: those of type string instead of binary.
    names: the schema's names, which differ in case at most. not_null: columns declared NOT NULL. declared: the types of
    keys and values that have a format, by name; whether they are right is known when their schema is.
    """

    columns: tuple[str, ...]
    strings: tuple[str, ...]
    names: tuple[str, ...]
    not_null: frozenset[str]
    declared: Mapping[str, DataType] = dataclasses.field(default_factory=dict)

    @property
    def is_light(self) -> bool:
        """True if batch headers suffice for the columns, so that nothing is decompressed or decoded per record."""
        return _PER_RECORD_COLUMNS.isdisjoint(self.columns)

    @classmethod
    def of(cls, schema: StructType, values: ValueOptions | None = None) -> UserSchema:
        """Return the columns of a user schema, after checking it against the available columns.

        Args: values: the formats of keys and values, None for bytes.
        Raises: ValueError for an unknown or repeated column or a wrong type, with the list of available columns.
        """
        typed = {} if values is None else values.formats
        reasons = [] if values is None else values.corrupt_columns
        columns = [_column_of(each, typed, reasons) for each in schema.fields]
        if not columns or len(set(columns)) < len(columns):
            raise ValueError(f"schema {schema.simpleString()} must name at least one column and each only once")
        types = {column: each.dataType for column, each in zip(columns, schema.fields, strict=True)}
        texts = [name for name in _TEXT_COLUMNS if types.get(name) == StringType() and name not in typed]
        return cls(
            columns=tuple(columns),
            strings=tuple(column for column in columns if column in texts),
            names=tuple(schema.names),
            not_null=frozenset(
                column for column, each in zip(columns, schema.fields, strict=True) if not each.nullable
            ),
            declared={column: data_type for column, data_type in types.items() if column in typed},
        )

    def conform(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the batches with the names and nullability of the schema, without copying columns.

        Raises: ValueError, while iterating, for a null in a NOT NULL column.
        """
        if self.names == self.columns and not self.not_null:
            return batches
        return map(self._conform_batch, batches)

    def _conform_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        fields = []
        for column, name, values, field in zip(self.columns, self.names, batch.columns, batch.schema, strict=True):
            is_nullable = column not in self.not_null
            if values.null_count and not is_nullable:
                raise ValueError(f"schema: column {name} is NOT NULL, but the log holds a record where it is null")
            fields.append(field.with_name(name).with_nullable(is_nullable))
        return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))


def _column_of(declared: StructField, typed: Collection[str], reasons: Sequence[str]) -> str:
    name = declared.name.lower()
    column = _BY_LOWER_NAME.get(name, name if name in reasons else None)
    if column is not None and column in typed:
        return column
    allowed = {COLUMN_TYPES.get(column, StringType())} if column else set()
    if column in _TEXT_COLUMNS:
        allowed.add(StringType())
    if column is None or declared.dataType not in allowed:
        nested = " (NOT NULL inside it is not kept)" if declared.dataType.simpleString() == _HEADERS_NAME else ""
        more = "".join(f", {reason} string" for reason in reasons)
        raise ValueError(
            f"schema: no column {declared.name} of type {declared.dataType.simpleString()}{nested}; "
            f"a schema can name these: {_described_columns(typed)}{more}"
        )
    return column


def _described_columns(typed: Collection[str]) -> str:
    return ", ".join(
        f"{name} of its format"
        if name in typed
        else f"{name} {data_type.simpleString()}" + (" or string" if name in _TEXT_COLUMNS else "")
        for name, data_type in COLUMN_TYPES.items()
    )
