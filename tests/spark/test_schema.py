"""Goal: a schema given to the Spark source is a user_schema of its columns; anything else is refused by name.
Method: StructTypes against projections, and Arrow batches against what Spark demands of them; no JVM."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from kstore.spark.schema import UserSchema, source_schema

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def schema_of(*fields: tuple[str, DataType] | tuple[str, DataType, bool]) -> StructType:
    return StructType([StructField(*field) for field in fields])


def test_default_schema_has_the_seven_nullable_columns_of_the_kafka_source() -> None:
    assert source_schema(include_headers=False) == schema_of(
        ("key", BinaryType()),
        ("value", BinaryType()),
        ("topic", StringType()),
        ("partition", IntegerType()),
        ("offset", LongType()),
        ("timestamp", TimestampType()),
        ("timestampType", IntegerType()),
    )


def test_headers_come_last_when_asked_for() -> None:
    with_headers = source_schema(include_headers=True)
    assert with_headers.fields[:-1] == source_schema(include_headers=False).fields
    assert with_headers.fields[-1] == StructField("headers", HEADERS, True)


def test_default_schema_is_its_own_projection() -> None:
    schema = source_schema(include_headers=True)
    user_schema = UserSchema.of(schema)
    assert user_schema.columns == user_schema.names == tuple(schema.names)
    assert (user_schema.strings, user_schema.not_null) == ((), frozenset())


def test_schema_chooses_and_orders_columns() -> None:
    user_schema = UserSchema.of(schema_of(("value", StringType()), ("offset", LongType()), ("key", StringType())))
    assert user_schema.columns == ("value", "offset", "key")
    assert user_schema.strings == ("value", "key")


def test_topic_is_text_without_being_asked_for_as_text() -> None:
    assert UserSchema.of(schema_of(("topic", StringType()), ("codec", StringType()))).strings == ()


def test_metadata_columns_are_there_by_name() -> None:
    schema = schema_of(
        ("magic", ByteType()),
        ("codec", StringType()),
        ("leaderEpoch", IntegerType()),
        ("producerId", LongType()),
        ("producerEpoch", ShortType()),
        ("sequence", IntegerType()),
        ("isTransactional", BooleanType()),
        ("isControl", BooleanType()),
        ("position", LongType()),
    )
    assert UserSchema.of(schema).columns == tuple(schema.names)


@pytest.mark.parametrize(
    ("name", "data_type", "named"),
    [
        pytest.param("valeu", BinaryType(), "no column valeu of type binary", id="unknown"),
        pytest.param("_metadata", StringType(), "no column _metadata of type string", id="metadata"),
        pytest.param("offset", IntegerType(), "no column offset of type int", id="narrower"),
        pytest.param("partition", LongType(), "no column partition of type bigint", id="wider"),
        pytest.param("offset", DecimalType(20, 0), r"no column offset of type decimal\(20,0\)", id="decimal"),
        pytest.param("timestamp", TimestampNTZType(), "no column timestamp of type timestamp_ntz", id="no-zone"),
        pytest.param("topic", BinaryType(), "no column topic of type binary", id="topic-bytes"),
        pytest.param("value", VarcharType(10), r"no column value of type varchar\(10\)", id="varchar"),
        pytest.param("headers", ArrayType(StringType()), "no column headers of type array<string>", id="headers"),
        pytest.param(
            "headers",
            ArrayType(HEADERS.elementType, False),
            r"no column headers .* \(NOT NULL inside.*\)",
            id="not-null",
        ),
    ],
)
def test_columns_that_a_log_does_not_have_are_refused_with_the_list_of_those_it_has(
    name: str, data_type: DataType, named: str
) -> None:
    listed = "key binary or string, value binary or string, topic string, partition int, offset bigint, timestamp t"
    with pytest.raises(ValueError, match=f"{named}; a schema can name these: {listed}"):
        UserSchema.of(schema_of(("offset", LongType()), (name, data_type)))


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param((), id="none"),
        pytest.param((("offset", LongType()), ("offset", LongType())), id="twice"),
        pytest.param((("offset", LongType()), ("OFFSET", LongType())), id="twice-in-another-case"),
    ],
)
def test_each_column_is_named_once(fields: tuple[tuple[str, DataType], ...]) -> None:
    with pytest.raises(ValueError, match="at least one column and each only once"):
        UserSchema.of(schema_of(*fields))


def offsets_and_values(values: list[bytes | None]) -> pa.RecordBatch:
    return pa.record_batch({"offset": pa.array(range(len(values)), pa.int64()), "value": pa.array(values, pa.binary())})


def test_batches_of_a_plain_schema_pass_unchanged() -> None:
    batch = offsets_and_values([b"a", None])
    user_schema = UserSchema.of(schema_of(("offset", LongType()), ("value", BinaryType())))
    assert next(user_schema.conform(iter([batch]))) is batch


def test_batches_take_the_case_and_nullability_of_the_schema() -> None:
    user_schema = UserSchema.of(schema_of(("OFFSET", LongType(), False), ("Value", BinaryType())))
    (batch,) = user_schema.conform(iter([offsets_and_values([b"a", None])]))
    assert batch.schema == pa.schema([pa.field("OFFSET", pa.int64(), False), pa.field("Value", pa.binary(), True)])
    assert batch.column("Value").to_pylist() == [b"a", None]


def test_null_in_a_not_null_column_is_an_error_not_a_wrong_row() -> None:
    user_schema = UserSchema.of(schema_of(("offset", LongType()), ("value", BinaryType(), False)))
    with pytest.raises(ValueError, match="column value is NOT NULL"):
        list(user_schema.conform(iter([offsets_and_values([b"a", None])])))
