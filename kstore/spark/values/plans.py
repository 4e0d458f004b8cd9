"""ValuePlans: what tasks need to decode keys and values, made on the driver, so that no task reads a schema."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.types import StringType, StructField, StructType

from kstore.arrow.columns import DEFAULT_COLUMNS
from kstore.config import LogConfig
from kstore.env import Closing
from kstore.errors import InvalidSchemaError
from kstore.log.files.names import PartitionDirectory
from kstore.spark.options import ReadOptions, ValueOptions
from kstore.spark.planning import ScanPartition, selected_partitions
from kstore.spark.schema import UserSchema, source_schema
from kstore.spark.values.types import spark_format, spark_type
from kstore.values.decoded import ColumnFormat, Origin
from kstore.values.formats import UNION, Partitions, SchemaTopics, format_for, is_chosen, text_columns
from kstore.values.json_format.provider import INFER
from kstore.values.providers import SchemaFormat
from kstore.values.typed import TypedRows, corrupt_column

if TYPE_CHECKING:
    import pyarrow as pa

# The ids of the schemas that records are read as, or their texts if they were inferred or are unions.
SchemaIds = dict[str, int | str]


class _Plan(NamedTuple):
    """What a task needs. strings: the columns that are read as text."""

    rows: TypedRows
    strings: tuple[str, ...]


class ValuePlans(Closing):
    """Makes plans for the tasks of a read.  Args: options: those of the read, with formats.

    Raises: from its methods SchemaNotFoundError, InvalidSchemaError; what reading `_schemas` raises.
    Lifetime: keeps the topic `_schemas` open until close(). Threads: not thread-safe.
    """

    def __init__(self, options: ReadOptions) -> None:
        if options.values is None:
            raise ValueError("expected options with a format")
        self._read = options
        self._options: ValueOptions = options.values
        self._schemas = SchemaTopics()
        self._known: dict[tuple[object, ...], bytes] = {}
        self._inferred: dict[str, str] = {}

    def __reduce__(self) -> tuple[object, ...]:
        # Tasks get the plans, and make none.
        return ValuePlans, (self._read,)

    def close(self) -> None:
        """Close the topics of schemas; the next call opens them again."""
        self._schemas.close()

    def schema(self, directories: Sequence[PartitionDirectory]) -> StructType:
        """Return the schema of the source, with the types of keys and values, and the reasons of bad ones."""
        formats = self._formats(directories, {})
        fields = [
            StructField(field.name, spark_type(formats[field.name])) if field.name in formats else field
            for field in source_schema(include_headers=self._read.include_headers).fields
        ]
        return StructType([*fields, *(StructField(name, StringType()) for name in self._options.corrupt_columns)])

    def schema_ids(self, directories: Sequence[PartitionDirectory], pinned: Mapping[str, int | str]) -> SchemaIds:
        """Return the ids of the schemas that records are read as, of formats that have ids; the texts of others.

        Args: pinned: those that are known; an option has precedence.
        """
        formats = self._formats(directories, pinned)
        ids = {
            origin: each.schema_id
            for origin, each in formats.items()
            if isinstance(each, SchemaFormat) and each.schema_id is not None
        }
        return ids | self._inferred

    def attached(
        self,
        tasks: Iterable[ScanPartition],
        schema: UserSchema,
        directories: Sequence[PartitionDirectory],
        pinned: Mapping[str, int | str] | None = None,
    ) -> list[ScanPartition]:
        """Return tasks with what they need; the schemas are those that are known now.

        Args: schema: the columns; pinned: as of schema_ids.
        Raises: also ValueError for a schema of other types.
        """
        self._schemas.ask_again()
        partitions = Partitions.of(directories, on_error=self._read.on_error)
        known = [self._schemas.known(each, partitions).schemas for each in self._options.formats.values()]
        key = (*known, *sorted((pinned or {}).items()))
        if key not in self._known:
            self._known = {key: self._packed(schema, directories, pinned or {})}
        return [replace(task, values=self._known[key]) for task in tasks]

    def _packed(
        self, schema: UserSchema, directories: Sequence[PartitionDirectory], pinned: Mapping[str, int | str]
    ) -> bytes:
        formats = {
            origin: spark_format(each, schema.declared.get(origin), origin)
            for origin, each in self._formats(directories, pinned).items()
            if origin in schema.columns or self._is_needed(origin, schema)
        }
        rows = TypedRows(formats, names=schema.columns, default=DEFAULT_COLUMNS, mode=self._options.mode, flatten=False)
        texts = text_columns(self._options.formats, schema.strings)
        return zlib.compress(pickle.dumps(_Plan(rows, tuple(name for name in texts if name in rows.base_columns))), 1)

    def _is_needed(self, origin: Origin, schema: UserSchema) -> bool:
        return corrupt_column(origin) in schema.columns or self._options.mode == "DROPMALFORMED"

    def _formats(
        self, directories: Sequence[PartitionDirectory], pinned: Mapping[str, int | str]
    ) -> dict[Origin, ColumnFormat]:
        partitions = Partitions.of(directories, on_error=self._read.on_error)
        formats: dict[Origin, ColumnFormat] = {}
        for origin, each in self._options.formats.items():
            chosen = self._schemas.known(each, partitions)
            before = pinned.get(origin, self._inferred.get(origin))
            is_made = isinstance(chosen.schema, str) and chosen.schema in (INFER, UNION)
            if is_made and isinstance(before, str):
                chosen = replace(chosen, schema=before)
                self._inferred[origin] = before
            elif chosen.schema_id is None and is_chosen(chosen) and isinstance(before, int):
                chosen = replace(chosen, schema_id=before)
            made = formats[origin] = format_for(chosen, origin, partitions)
            if is_made and isinstance(made, SchemaFormat):
                self._inferred[origin] = made.reader_schema.text
        return formats


def inferred_schema(options: ReadOptions) -> StructType:
    """Return the schema of a read whose keys or values have a format.

    Raises: as ValuePlans; as selected_partitions.
    """
    with ValuePlans(options) as plans:
        return selected_partitions(options, plans.schema)


def typed_batches(plan: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches of bytes, with the columns that base_columns returns, as batches with types.

    Raises: RecordDeserializationError with valueMode FAILFAST, after the rows before it.
    """
    return _unpacked(plan).rows.batches(batches, most_bytes=LogConfig().max_decompressed_bytes)


def base_columns(plan: bytes) -> tuple[list[str], tuple[str, ...]]:
    """Return the columns of bytes that a plan needs, and those of them that are read as text."""
    return _unpacked(plan).rows.base_columns, _unpacked(plan).strings


# A worker has the tasks of one read after another, whose schemas are then parsed once.
@lru_cache(maxsize=4)
def _unpacked(plan: bytes) -> _Plan:
    unpacked = pickle.loads(zlib.decompress(plan))
    if not isinstance(unpacked, _Plan):
        raise InvalidSchemaError("a task has no plan for its values")
    return unpacked
