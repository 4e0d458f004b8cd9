"""TypedRows: record batches in which keys and values are columns of their own types, in place of bytes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

import pyarrow as pa
import pyarrow.compute as pc

from kstore.errors import InvalidSchemaError, RecordDeserializationError
from kstore.values.decoded import (
    BadValue,
    ColumnFormat,
    Origin,
    ValueReader,
    Wanted,
    column_and_path,
    wanted_of,
)
from kstore.values.formats import Partitions, SchemaTopics, ValueFormat, format_for

ValueMode: TypeAlias = Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"]
MODES: tuple[ValueMode, ...] = get_args(ValueMode)
_ORIGINS: tuple[Origin, ...] = ("key", "value")
# What an error says of the record.
_PLACE = ("topic", "partition", "offset", "timestamp")

_logger = logging.getLogger("kstore.values")


def corrupt_column(origin: Origin) -> str:
    """Return the name of the column that says why keys or values are null that could not be decoded."""
    return f"_corrupt_{origin}"


class Output(NamedTuple):
    """A column of the result.

    origin: the key or value that it is made of, None for a column that is passed on. path: the fields that lead to it,
    none for the whole of it; None for the reasons of bad values.
    """

    name: str
    origin: Origin | None
    path: tuple[str, ...] | None = ()


class TypedRows:
    """What record batches become if keys or values have a format.

    Args: formats: of keys and values; names: the columns, of which "value.NAME" is a field of a value; None = `default`
        with types, and the reasons of bad values in mode PERMISSIVE; default: the columns of a scan without formats;
        mode: what a bad value does: FAILFAST ends the read with an error; PERMISSIVE gives null, and the reason in
        _corrupt_value or _corrupt_key; DROPMALFORMED leaves its row out. flatten: whether the fields of a record stand
        as columns in the place of value or key, under their names; one that is taken gets "value_" or "key_" in front.
        taken: more names that are taken.
    Attributes: mode; names; outputs: what each column is made of; base_columns: the columns of bytes that batches() has
        to be given; with_headers: the origins whose readers take headers.
    Raises: ValueError for an unknown column; InvalidSchemaError.
    Threads: thread-safe.
    """

    def __init__(
        self,
        formats: Mapping[Origin, ColumnFormat],
        *,
        names: Sequence[str] | None,
        default: Sequence[str],
        mode: ValueMode,
        flatten: bool,
        taken: Sequence[str] = (),
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        self._formats = dict(formats)
        self.mode = mode
        self._flatten = flatten
        self._default = tuple(default)
        self._taken = frozenset((*default, *taken, *map(corrupt_column, formats)))
        available = self._available()
        wanted = list(available) if names is None else list(names)
        self.outputs = [self._output(name, available) for name in wanted]
        if not wanted or len(set(wanted)) != len(wanted):
            raise ValueError(f"columns must be at least one, each once; got {wanted}")
        self.names = wanted
        self._wanted = {origin: self._wanted_of(origin) for origin in self._formats if self._is_read(origin)}
        self._types = {origin: self._formats[origin].type(wanted) for origin, wanted in self._wanted.items()}
        passed_on = [output.name for output in self.outputs if output.origin is None]
        self.with_headers = {origin for origin in self._wanted if self._formats[origin].reads_headers}
        headers = ["headers"] if self.with_headers else []
        self.base_columns = list(dict.fromkeys([*passed_on, *self._wanted, *headers, *_PLACE]))

    @property
    def reads_views(self) -> bool:
        """Whether the keys and values of base_columns are all decoded by readers that take views."""
        return all(name in self._wanted and self.reads_views_of(name) for name in _ORIGINS if name in self.base_columns)

    def reads_views_of(self, origin: Origin) -> bool:
        return self._formats[origin].reads_views

    def narrowed(self, names: Sequence[str]) -> TypedRows:
        """Return the same with these of the columns only."""
        return TypedRows(
            self._formats,
            names=names,
            default=self._default,
            mode=self.mode,
            flatten=self._flatten,
            taken=tuple(self._taken),
        )

    def schema(self, base: pa.Schema) -> pa.Schema:
        """Return the schema of the result.  Args: base: that of the batches of bytes."""
        return pa.schema([self._field(output, base) for output in self.outputs])

    def batches(self, batches: Iterable[pa.RecordBatch], *, most_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield batches of bytes as batches with types.

        Args: batches: with base_columns; most_bytes: the memory that decoded columns of a batch may take.
        Raises: RecordDeserializationError with mode FAILFAST, after the rows before it.
        """
        readers = {
            origin: self._formats[origin].reader(wanted, most_bytes=most_bytes)
            for origin, wanted in self._wanted.items()
        }
        typing = _Typing(self, readers)
        for batch in batches:
            yield from typing.typed(batch)

    # Columns

    def _available(self) -> dict[str, Output]:
        """Return the columns that there are without naming fields, in their order."""
        columns: dict[str, Output] = {}
        for name in self._default:
            if name not in self._formats:
                columns[name] = Output(name, None)
                continue
            origin = name
            fields = self._fields_of(origin) if self._flatten else []
            if not fields:
                columns[name] = Output(name, origin)
            for each in fields:
                free = each if each not in columns and each not in self._taken else f"{origin}_{each}"
                if free in columns or free in self._taken:
                    raise InvalidSchemaError(
                        f"the field {each!r} of {origin} has no name of its own: {free!r} is taken"
                    )
                columns[free] = Output(free, origin, (each,))
        if self.mode == "PERMISSIVE":
            for origin in self._formats:
                columns[corrupt_column(origin)] = Output(corrupt_column(origin), origin, None)
        return columns

    def _fields_of(self, origin: Origin) -> list[str]:
        arrow_type = self._formats[origin].type(None)
        return [each.name for each in arrow_type] if pa.types.is_struct(arrow_type) else []

    def _output(self, name: str, available: Mapping[str, Output]) -> Output:
        if name in available:
            return available[name]
        column, path = column_and_path(name)
        for origin in self._formats:
            if column == origin:
                return Output(name, origin, path)
        for each in self._formats:
            if name == corrupt_column(each):
                return Output(name, each, None)
        return Output(name, None)

    def _is_read(self, origin: Origin) -> bool:
        return any(output.origin == origin for output in self.outputs) or self.mode == "DROPMALFORMED"

    def _wanted_of(self, origin: Origin) -> Wanted:
        """Return which fields the columns need; reasons are those of what is read, and alone of a whole value."""
        return wanted_of(output.path for output in self.outputs if output.origin == origin and output.path is not None)

    def _field(self, output: Output, base: pa.Schema) -> pa.Field:
        if output.origin is None:
            return base.field(output.name)
        if output.path is None:
            return pa.field(output.name, pa.string())
        arrow_type, metadata = self._types[output.origin], None
        for name in output.path:
            if not pa.types.is_struct(arrow_type) or arrow_type.get_field_index(name) < 0:
                raise ValueError(f"columns: {output.name!r} is no field of {output.origin}, which is {arrow_type}")
            field = arrow_type.field(name)
            arrow_type, metadata = field.type, field.metadata
        return pa.field(output.name, arrow_type, metadata=metadata)


def typed_rows(
    formats: Mapping[Origin, ValueFormat],
    partitions: Partitions,
    *,
    names: Sequence[str] | None,
    default: Sequence[str],
    mode: ValueMode,
    flatten: bool,
) -> TypedRows:
    """Return the TypedRows for formats of partitions, whose schemas are looked up.

    Args: as of TypedRows.  Raises: also SchemaNotFoundError; what reading `_schemas` raises.
    """
    with SchemaTopics() as topics:
        resolved = {
            origin: format_for(topics.known(each, partitions), origin, partitions) for origin, each in formats.items()
        }
    return TypedRows(resolved, names=names, default=default, mode=mode, flatten=flatten)


class _Typing:
    """One pass of TypedRows over batches."""

    def __init__(self, rows: TypedRows, readers: Mapping[Origin, ValueReader]) -> None:
        self._rows = rows
        self._readers = readers
        self._mode = rows.mode
        self._has_warned = False
        self._fields: list[pa.Field] | None = None

    def typed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for rows, columns, bad in self._decoded(batch, list(self._readers)):
            yield from self._with_bad(rows, columns, bad)

    def _decoded(
        self, batch: pa.RecordBatch, origins: list[Origin]
    ) -> Iterator[tuple[pa.RecordBatch, dict[Origin, pa.Array], dict[Origin, list[BadValue]]]]:
        """Yield parts of a batch with what their keys and values are, decoded."""
        if not origins:
            yield batch, {}, {}
            return
        origin, *others = origins
        headers = batch.column("headers") if origin in self._rows.with_headers else None
        column = batch.column(origin)
        if pa.types.is_binary_view(column.type) and not self._rows.reads_views_of(origin):
            column = column.cast(pa.binary())
        for part in self._readers[origin].decode(column, headers):
            rows = batch.slice(part.start, len(part.values))
            at = 0
            for inner, columns, bad in self._decoded(rows, others):
                count = inner.num_rows
                columns[origin] = part.values.slice(at, count)
                bad[origin] = [each._replace(row=each.row - at) for each in part.bad if at <= each.row < at + count]
                at += count
                yield inner, columns, bad

    def _with_bad(
        self, rows: pa.RecordBatch, columns: dict[Origin, pa.Array], bad: dict[Origin, list[BadValue]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows, and do what the mode says about bad values among them."""
        first = min(((each.row, origin) for origin in _ORIGINS for each in bad.get(origin, ())), default=None)
        if first is None:
            yield self._made(rows, columns, bad)
            return
        row, origin = first
        error = self._error(rows, row, origin, next(each for each in bad[origin] if each.row == row))
        if self._mode == "FAILFAST":
            if row > 0:
                before = {name: column.slice(0, row) for name, column in columns.items()}
                yield self._made(rows.slice(0, row), before, {})
            raise error
        self._warn(error)
        if self._mode == "PERMISSIVE":
            yield self._made(rows, columns, bad)
            return
        made, start = self._made(rows, columns, {}), 0
        for number in sorted({each.row for reasons in bad.values() for each in reasons} | {rows.num_rows}):
            if number > start:
                yield made.slice(start, number - start)
            start = number + 1

    def _made(
        self, rows: pa.RecordBatch, columns: Mapping[Origin, pa.Array], bad: Mapping[Origin, list[BadValue]]
    ) -> pa.RecordBatch:
        if self._fields is None:
            self._fields = list(self._rows.schema(rows.schema))
        arrays = [self._array(output, rows, columns, bad) for output in self._rows.outputs]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(self._fields))

    def _array(
        self,
        output: Output,
        rows: pa.RecordBatch,
        columns: Mapping[Origin, pa.Array],
        bad: Mapping[Origin, list[BadValue]],
    ) -> pa.Array:
        if output.origin is None:
            return rows.column(output.name)
        if output.path is None:
            return _reasons(bad.get(output.origin, []), rows.num_rows)
        column = columns[output.origin]
        for number, name in enumerate(output.path):
            if column.null_count:
                return pc.struct_field(column, list(output.path[number:]))
            column = column.field(name)
        return column

    def _error(self, rows: pa.RecordBatch, row: int, origin: Origin, bad: BadValue) -> RecordDeserializationError:
        topic, partition, offset, timestamp = (rows.column(name)[row] for name in _PLACE)
        return RecordDeserializationError(
            f"the {origin} of the record at offset {offset.as_py()} of {topic.as_py()}-{partition.as_py()} cannot be "
            f"decoded: {bad.reason}",
            topic=topic.as_py(),
            partition=partition.as_py(),
            offset=offset.as_py(),
            timestamp_ms=-1 if timestamp.value is None else timestamp.value // 1000,
            origin=origin,
        )

    def _warn(self, error: RecordDeserializationError) -> None:
        """Log the first bad value of a pass."""
        if self._has_warned:
            return
        self._has_warned = True
        done = "is null" if self._mode == "PERMISSIVE" else "is left out"
        _logger.warning("%s; it %s, and so are later ones, without a warning", error, done)


def _reasons(bad: Sequence[BadValue], count: int) -> pa.Array:
    if not bad:
        return pa.nulls(count, pa.string())
    reasons: list[str | None] = [None] * count
    for each in bad:
        reasons[each.row] = each.reason
    return pa.array(reasons, pa.string())
