"""Types of Spark for the columns of keys and values."""

from __future__ import annotations

from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from kstore.values.conversion import ConvertedFormat, common_type
from kstore.values.decoded import ColumnFormat, Wanted


def spark_format(inner: ColumnFormat, declared: DataType | None, name: str) -> ConvertedFormat:
    """Return a format whose columns Spark can take.

    Args: declared: the type that a user schema gives the column, None without one; name: of the column, for errors.
    Raises: ValueError for another type than that of the schema, or a part of it; InvalidSchemaError.
    """
    wanted = _wanted_of(declared)
    there = spark_type(inner, wanted)
    problem = None if declared is None else _difference(declared, there, name)
    if problem:
        raise ValueError(f"schema: {problem}; {name} is {there.simpleString()}")
    return ConvertedFormat(inner, wanted, to_arrow_type(there if declared is None else declared, timezone="UTC"))


def spark_type(inner: ColumnFormat, wanted: Wanted = None) -> DataType:
    """Return the type that a column of a format has in Spark.  Raises: InvalidSchemaError."""
    return from_arrow_type(common_type(inner.type(wanted)), prefer_timestamp_ntz=True)


def _wanted_of(declared: DataType | None) -> Wanted:
    match declared:
        case StructType():
            return {field.name: _wanted_of(field.dataType) for field in declared.fields}
        case ArrayType():
            return _wanted_of(declared.elementType)
        case MapType():
            return _wanted_of(declared.valueType)
    return None


def _difference(declared: DataType, there: DataType, path: str) -> str | None:
    """Return what a user schema asks for that a column does not have."""
    if isinstance(declared, StructType) and isinstance(there, StructType):
        types = {field.name: field.dataType for field in there.fields}
        for field in declared.fields:
            inner = f"{path}.{field.name}"
            if field.name not in types:
                return f"no field {inner}"
            if not field.nullable:
                return f"{inner} is NOT NULL, which is checked of whole columns only"
            problem = _difference(field.dataType, types[field.name], inner)
            if problem:
                return problem
        return None
    if isinstance(declared, ArrayType) and isinstance(there, ArrayType) and declared.containsNull:
        return _difference(declared.elementType, there.elementType, f"{path}.element")
    if isinstance(declared, MapType) and isinstance(there, MapType) and declared.valueContainsNull:
        problem = _difference(declared.keyType, there.keyType, f"{path}.key")
        return problem or _difference(declared.valueType, there.valueType, f"{path}.value")
    if declared == there:
        return None
    return f"{path} is of type {there.simpleString()}, not {declared.simpleString()}"
