"""Random Avro schemas with values of them, encoded by fastavro, and what a column should hold of each value."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import Any, NamedTuple
from uuid import UUID

import fastavro
from hypothesis import strategies as st

from tests.making.strategies import INT64

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NAIVE_EPOCH = datetime(1970, 1, 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
_DAYS = st.integers(min_value=-700_000, max_value=2_900_000)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
# Within what Python's datetime can show.
_MILLIS = st.integers(min_value=-62_000_000_000_000, max_value=253_000_000_000_000)


class Typed(NamedTuple):
    """A schema, a strategy for its values in the form that fastavro writes, and what a column holds of one."""

    schema: Any
    values: st.SearchStrategy[Any]
    shown: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _float32(value: float) -> Any:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def _primitive(schema: Any, values: st.SearchStrategy[Any], shown: Callable[[Any], Any] = _same) -> Typed:
    return Typed(schema, values, shown)


def _logical(base: Any, logical: str, **more: Any) -> Any:
    return {**(base if isinstance(base, dict) else {"type": base}), "logicalType": logical, **more}


LEAVES = {
    "boolean": _primitive("boolean", st.booleans()),
    "int": _primitive("int", INT32),
    "long": _primitive("long", INT64),
    "float": _primitive("float", st.floats(width=32, allow_nan=False), _float32),
    "double": _primitive("double", st.floats(allow_nan=False)),
    "bytes": _primitive("bytes", st.binary(max_size=12)),
    "string": _primitive("string", _TEXT),
    "date": _primitive(_logical("int", "date"), _DAYS, lambda days: date(1970, 1, 1) + timedelta(days)),
    "time-millis": _primitive(
        _logical("int", "time-millis"),
        st.integers(min_value=0, max_value=86_399_999),
        lambda ms: (_NAIVE_EPOCH + timedelta(milliseconds=ms)).time(),
    ),
    "time-micros": _primitive(
        _logical("long", "time-micros"),
        st.integers(min_value=0, max_value=86_399_999_999),
        lambda us: (_NAIVE_EPOCH + timedelta(microseconds=us)).time(),
    ),
    "timestamp-millis": _primitive(
        _logical("long", "timestamp-millis"), _MILLIS, lambda ms: _EPOCH + timedelta(milliseconds=ms)
    ),
    "timestamp-micros": _primitive(
        _logical("long", "timestamp-micros"), _MILLIS, lambda us: _EPOCH + timedelta(microseconds=us)
    ),
    "local-timestamp-millis": _primitive(
        _logical("long", "local-timestamp-millis"), _MILLIS, lambda ms: _NAIVE_EPOCH + timedelta(milliseconds=ms)
    ),
    "local-timestamp-micros": _primitive(
        _logical("long", "local-timestamp-micros"), _MILLIS, lambda us: _NAIVE_EPOCH + timedelta(microseconds=us)
    ),
    "uuid": _primitive(_logical("string", "uuid"), st.uuids().map(str)),
}


class _Names:
    """Gives each named type of a schema a name of its own."""

    def __init__(self) -> None:
        self._count = 0

    def next(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"


def _decimal(draw: st.DrawFn) -> Typed:
    precision = draw(st.integers(min_value=1, max_value=60))
    scale = draw(st.integers(min_value=0, max_value=precision))
    most = 10**precision - 1

    def shown(unscaled: bytes) -> Decimal:
        return Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(-scale, Context(prec=80))

    numbers = st.integers(min_value=-most, max_value=most)
    values = numbers.map(lambda number: number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))
    return Typed(_logical("bytes", "decimal", precision=precision, scale=scale), values, shown)


def _fixed(draw: st.DrawFn, names: _Names) -> Typed:
    size = draw(st.integers(min_value=0, max_value=20))
    schema = {"type": "fixed", "name": names.next("Fixed"), "size": size}
    kind = draw(st.sampled_from(["plain", "decimal", "uuid", "duration"]))
    if kind == "uuid":
        values = st.binary(min_size=16, max_size=16)
        return Typed(_logical({**schema, "size": 16}, "uuid"), values, lambda data: str(UUID(bytes=data)))
    if kind == "duration":
        names_of_fields = ("months", "days", "milliseconds")
        return Typed(
            _logical({**schema, "size": 12}, "duration"),
            st.binary(min_size=12, max_size=12),
            lambda data: dict(zip(names_of_fields, struct.unpack("<3I", data), strict=True)),
        )
    if kind == "decimal" and size > 0:
        precision = len(str(1 << (8 * size - 1))) - 1
        if precision:
            most = 10**precision - 1
            values = st.integers(min_value=-most, max_value=most).map(lambda n: n.to_bytes(size, "big", signed=True))
            return Typed(
                _logical(schema, "decimal", precision=precision),
                values,
                lambda data: Decimal(int.from_bytes(data, "big", signed=True)),
            )
    return Typed(schema, st.binary(min_size=size, max_size=size), _same)


def _enum(draw: st.DrawFn, names: _Names) -> Typed:
    symbols = [f"S{number}" for number in range(draw(st.integers(min_value=1, max_value=5)))]
    return _primitive({"type": "enum", "name": names.next("Enum"), "symbols": symbols}, st.sampled_from(symbols))


def _array(draw: st.DrawFn, names: _Names, depth: int) -> Typed:
    item = _typed(draw, names, depth - 1)
    values = st.lists(item.values, max_size=4)
    return Typed({"type": "array", "items": item.schema}, values, lambda items: [item.shown(each) for each in items])


def _map(draw: st.DrawFn, names: _Names, depth: int) -> Typed:
    value = _typed(draw, names, depth - 1)
    values = st.dictionaries(_TEXT, value.values, max_size=3)
    return Typed(
        {"type": "map", "values": value.schema},
        values,
        lambda entries: [(key, value.shown(each)) for key, each in entries.items()],
    )


def _nullable(draw: st.DrawFn, names: _Names, depth: int) -> Typed:
    inner = _typed(draw, names, depth - 1, is_branch=True)
    branches = draw(st.permutations(["null", inner.schema]))
    values = st.none() | inner.values
    return Typed(branches, values, lambda value: None if value is None else inner.shown(value))


def _record(draw: st.DrawFn, names: _Names, depth: int) -> Typed:
    name = names.next("Record")
    fields = [_typed(draw, names, depth - 1) for _ in range(draw(st.integers(min_value=0, max_value=5)))]
    schema = {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{number}", "type": each.schema} for number, each in enumerate(fields)],
    }
    values = st.fixed_dictionaries({f"f{number}": each.values for number, each in enumerate(fields)})
    return Typed(
        schema,
        values,
        lambda record: {f"f{number}": each.shown(record[f"f{number}"]) for number, each in enumerate(fields)},
    )


def _typed(draw: st.DrawFn, names: _Names, depth: int, *, is_branch: bool = False) -> Typed:
    kinds = [*LEAVES, "decimal", "fixed", "enum"]
    if depth > 0:
        kinds += ["array", "map", "record"] * 3 + ([] if is_branch else ["nullable"] * 4)
    kind = draw(st.sampled_from(kinds))
    if kind in LEAVES:
        return LEAVES[kind]
    made: dict[str, Callable[[], Typed]] = {
        "decimal": lambda: _decimal(draw),
        "fixed": lambda: _fixed(draw, names),
        "enum": lambda: _enum(draw, names),
        "array": lambda: _array(draw, names, depth),
        "map": lambda: _map(draw, names, depth),
        "record": lambda: _record(draw, names, depth),
        "nullable": lambda: _nullable(draw, names, depth),
    }
    return made[kind]()


@st.composite
def typed_values(draw: st.DrawFn) -> Typed:
    """A schema of a record, with all that can be in it."""
    return _record(draw, _Names(), 4)


def encoded(schema: Any, value: Any) -> bytes:
    """Return a value as fastavro writes it; what has a logical type is given as what is stored."""
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(_stored(schema)), value)
    return target.getvalue()


def _stored(schema: Any) -> Any:
    """Return a schema without its logical types."""
    if isinstance(schema, list):
        return [_stored(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: [{**each, "type": _stored(each["type"])} for each in value]
        if key == "fields"
        else _stored(value)
        if key in ("type", "items", "values")
        else value
        for key, value in schema.items()
        if key not in ("logicalType", "precision", "scale")
    }
