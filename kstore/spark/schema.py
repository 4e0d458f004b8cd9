"""Columns of the Spark source, and which of them a user schema requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
_COLUMNS = {**_KAFKA_COLUMNS, "headers": _HEADERS_TYPE, **_METADATA_COLUMNS}
_TEXT_COLUMNS = ("key", "value")
_PER_RECORD_COLUMNS = frozenset(("key", "value", "headers", "timestamp"))
_BY_LOWER_NAME = {name.lower(): name for name in _COLUMNS}


def source_schema(*, include_headers: bool) -> StructType:
    """Return the schema of Spark's Kafka source. All columns are nullable."""
    columns = {**_KAFKA_COLUMNS, "headers": _HEADERS_TYPE} if include_headers else _KAFKA_COLUMNS
    return StructType([StructField(name, data_type) for name, data_type in columns.items()])


def record_type(fields: Sequence[str]) -> StructType:
    """Return the struct type of a record with these fields, all nullable. topic and partition are not available.

    Raises: ValueError for an unknown or repeated field, or no field.
    """
    known = {name: kind for name, kind in _COLUMNS.items() if name not in ("topic", "partition")}
    if not fields or len(set(fields)) < len(fields) or not set(fields) <= set(known):
        raise ValueError(f"fields must be some of {', '.join(known)}, each once; got {list(fields)}")
    return StructType([StructField(name, known[name]) for name in fields])


@dataclass(frozen=True, kw_only=True)
class UserSchema:
    """The columns to read and how the user schema declares them.

    columns: kstore's names, in the order of the schema. strings: those of type string instead of binary.
    names: the schema's names, which differ in case at most. not_null: columns declared NOT NULL.
    """

    columns: tuple[str, ...]
    strings: tuple[str, ...]
    names: tuple[str, ...]
    not_null: frozenset[str]

    @property
    def is_light(self) -> bool:
        """True if batch headers suffice for the columns, so that nothing is decompressed or decoded per record."""
        return _PER_RECORD_COLUMNS.isdisjoint(self.columns)

    @classmethod
    def of(cls, schema: StructType) -> UserSchema:
        """Return the columns of a user schema, after checking it against the available columns.

        Raises: ValueError for an unknown or repeated column or a wrong type, with the list of available columns.
        """
        columns = [_column_of(field) for field in schema.fields]
        if not columns or len(set(columns)) < len(columns):
            raise ValueError(f"schema {schema.simpleString()} must name at least one column and each only once")
        return cls(
            columns=tuple(columns),
            strings=tuple(
                column
                for column, field in zip(columns, schema.fields, strict=True)
                if column in _TEXT_COLUMNS and field.dataType == StringType()
            ),
            names=tuple(schema.names),
            not_null=frozenset(
                column for column, field in zip(columns, schema.fields, strict=True) if not field.nullable
            ),
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


def _column_of(field: StructField) -> str:
    column = _BY_LOWER_NAME.get(field.name.lower())
    allowed = {_COLUMNS[column]} if column else set()
    if column in _TEXT_COLUMNS:
        allowed.add(StringType())
    if column is None or field.dataType not in allowed:
        nested = " (NOT NULL inside it is not kept)" if field.dataType.simpleString() == _HEADERS_NAME else ""
        raise ValueError(
            f"schema: no column {field.name} of type {field.dataType.simpleString()}{nested}; "
            f"a schema can name these: {_described_columns()}"
        )
    return column


def _described_columns() -> str:
    return ", ".join(
        f"{name} {data_type.simpleString()}" + (" or string" if name in _TEXT_COLUMNS else "")
        for name, data_type in _COLUMNS.items()
    )
