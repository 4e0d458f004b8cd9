"""Functions for columns of raw record batches: unpack_batches, pack_batch, crc_ok, batch_info. Layer: spark.

Arrow UDFs over Spark's own columns, in classic sessions and under Spark Connect. kstore must be installed for the
Python of the executors.
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
from kstore.spark import batch_arrays
from kstore.spark.schema import record_type

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
    """Return the records of a binary column of which each value is one record batch or several, of any magic.

    FAILFAST: an array of structs; the first damaged value fails the query. PERMISSIVE: a struct of `records`, that
    array, and `error`, a string; of a damaged value records is null and error says why. Of a null both are null.
    Args: fields: the fields of a record, from the columns that format("kstore") has, but topic and partition.
    Raises: ValueError for another mode or field.
    Cost: one pass, CRCs checked, no Python object per record. Control batches have no records.
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
    """Return whether each value is a run of whole batches whose stored and computed CRC agree; null for null.

    Nothing else is looked at, nor is anything decompressed (of a wrapper, the CRCs inside are not looked at).
    """
    return _call("crc_ok", batch_arrays.crc_ok, BooleanType(), column)


def batch_info(column: Column | str, *, mode: Mode = "FAILFAST") -> Column:
    """Return a struct of what the header of the first batch in each value says, and of how many `batches` it has.

    Names are those of `kstore dump --json`; timestamps are long, in ms. No CRC is checked, nothing is decompressed.
    baseOffset and count are null for a wrapper of magic 0 or 1, whose first offset only its content tells.
    PERMISSIVE adds the field `error`: of a value whose framing is damaged all others are null. A null and an empty
    value give null.
    Raises: ValueError for another mode.
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
    """Return one record batch of magic 2 for each array of structs; null for null, no bytes for an empty array.

    Of a struct these fields are taken, by name, as far as they are there: key and value (binary or string), timestamp
    (timestamp or long ms), headers (array of structs of key and value), offset (long; else counted from base_offset).
    A query fails for a record or header that is null, offsets that do not rise, and what a batch can't hold.
    Args: codec: none, gzip, snappy, lz4 or zstd; level: None for Kafka's default.
    Raises: ValueError for another codec or level.
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
    # Spark tells the kinds of UDFs apart by these, and pyarrow is imported too late for it to resolve their names.
    named.__annotations__ = {"values": pa.Array, "return": pa.Array}
    make: Callable[..., Any] = arrow_udf
    called: Column = make(named, result)(column)
    return called
