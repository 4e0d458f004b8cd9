"""Spark functions for columns of raw record batches: unpack_batches, pack_batch, crc_ok, batch_info.

They are Arrow UDFs and work in classic sessions and under Spark Connect. kstore must be installed in the Python
environment of the executors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.pandas.functions import arrow_udf
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
)

from kstore.compression import CompressionType, level_of
from kstore.spark.schema import record_type
from kstore.spark.udfs import batch_arrays

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

Mode = Literal["FAILFAST", "PERMISSIVE"]

DEFAULT_FIELDS = ("key", "value", "offset", "timestamp", "timestampType", "headers")
_INFO_TYPES: dict[str, DataType] = {
    "magic": ByteType(),
    "size": IntegerType(),
    "baseOffset": LongType(),
    "lastOffset": LongType(),
    "count": IntegerType(),
    "codec": StringType(),
    "timestampType": IntegerType(),
    "baseTimestamp": LongType(),
    "maxTimestamp": LongType(),
    "producerId": LongType(),
    "producerEpoch": ShortType(),
    "baseSequence": IntegerType(),
    "isTransactional": BooleanType(),
    "isControl": BooleanType(),
    "leaderEpoch": IntegerType(),
    "crc": LongType(),
    "batches": IntegerType(),
}


def unpack_batches(column: Column | str, *, mode: Mode = "FAILFAST", fields: Sequence[str] = DEFAULT_FIELDS) -> Column:
    """Return the records of a binary column whose values each hold one or more whole record batches of any magic.

    FAILFAST returns an array of structs, and the first damaged value fails the query. PERMISSIVE returns a struct of
    `records`, that array, and `error`, a string: for a damaged value records is null and error gives the reason. For a
    null value both are null. CRCs are checked. Control batches give no records.
    Args: fields: the fields of a record: columns of format("kstore") except topic and partition.
    Raises: ValueError for an unknown mode or field.
    Cost: one pass, no Python object per record; if a value is damaged, a second pass value by value.
    """
    records = ArrayType(record_type(fields))
    is_permissive = _is_permissive(mode)
    error = StructField("error", StringType())
    result = StructType([StructField("records", records), error]) if is_permissive else records
    names = tuple(fields)

    def unpack(values: pa.Array) -> pa.Array:
        return batch_arrays.unpack(values, names, is_permissive=is_permissive)

    return _call("unpack_batches", unpack, result, column)


def crc_ok(column: Column | str) -> Column:
    """Return whether each value consists of whole batches whose stored CRC equals the computed one; null for null.

    Nothing else is checked and nothing is decompressed, so CRCs inside a wrapper of magic 0 or 1 are not checked.
    """
    return _call("crc_ok", batch_arrays.crc_ok, BooleanType(), column)


def batch_info(column: Column | str, *, mode: Mode = "FAILFAST") -> Column:
    """Return a struct of the header fields of the first batch in each value, and `batches`, the number of batches.

    Names are those of `kstore dump --json`; timestamps are long, in ms. No CRC is checked and nothing is decompressed.
    baseOffset and count are null for a wrapper of magic 0 or 1, since they are not in its header. A null and an empty
    value give null.
    PERMISSIVE adds the field `error`: if the value is not made of whole batches it gives the reason and all other
    fields are null. FAILFAST fails the query instead.
    Raises: ValueError for an unknown mode.
    """
    is_permissive = _is_permissive(mode)
    fields = [StructField(name, data_type) for name, data_type in _INFO_TYPES.items()]
    result = StructType([*fields, StructField("error", StringType())] if is_permissive else fields)

    def info(values: pa.Array) -> pa.Array:
        return batch_arrays.info(values, is_permissive=is_permissive)

    return _call("batch_info", info, result, column)


def pack_batch(
    column: Column | str,
    *,
    codec: str = "none",
    level: int | None = None,
    base_offset: int = 0,
) -> Column:
    """Return one record batch of magic 2 for each array of structs: null for null, an empty value for an empty array.

    These fields of a struct are used, all optional: key and value (binary or string), timestamp (timestamp, or long in
    ms), headers (array of structs of key and value), offset (long; by default counted up from base_offset).
    The query fails for a null record or header, for offsets that do not increase, and for values that a batch can't
    hold.
    Args: codec: a name of kstore.CompressionType; level: compression level, None for Kafka's default.
    Raises: ValueError for an unknown codec or level.
    """
    compression = CompressionType.for_name(codec)
    if level is not None:
        level_of(compression, level)

    def pack(values: pa.Array) -> pa.Array:
        return batch_arrays.pack(values, compression=codec, level=level, base_offset=base_offset)

    return _call("pack_batch", pack, BinaryType(), column)


def _is_permissive(mode: str) -> bool:
    if mode not in ("FAILFAST", "PERMISSIVE"):
        raise ValueError(f"mode must be FAILFAST or PERMISSIVE, got {mode!r}")
    return mode == "PERMISSIVE"


def _call(name: str, function: Callable[[pa.Array], pa.Array], result: DataType, column: Column | str) -> Column:
    import pyarrow as pa

    def named(values: pa.Array) -> pa.Array:
        return function(values)

    named.__name__ = name
    # Spark infers the kind of UDF from the annotations. They must be types: pyarrow is a local import, so Spark could
    # not resolve them as strings.
    named.__annotations__ = {"values": pa.Array, "return": pa.Array}
    make: Callable[..., Any] = arrow_udf
    called: Column = make(named, result)(column)
    return called
