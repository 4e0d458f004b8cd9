"""JSON values decoded by kstore, and what Python's json module says that the rows should be."""

from __future__ import annotations

import json
import math
import re
import struct
from typing import Any, NoReturn

import pyarrow as pa

from kstore.errors import SchemaNotFoundError
from kstore.values.decoded import BadValue, Framing, Wanted
from kstore.values.json_format.columns import TEXT, nodes_of
from kstore.values.json_format.reader import JsonReader

MOST_BYTES = 1 << 24
BAD = "bad"
# Of the integer part of a number that may be an integer with a fraction or an exponent.
_MOST_DIGITS = 25
_LIMITS = {
    f"{sign}int{bits}": range(-(2 ** (bits - 1)) if not sign else 0, 2 ** (bits - (not sign)))
    for bits in (8, 16, 32, 64)
    for sign in ("", "u")
}
_SURROGATE = re.compile("[\ud800-\udfff]")


def read(
    values: list[bytes | None],
    arrow_type: pa.DataType,
    wanted: Wanted = None,
    *,
    framing: Framing = "none",
    known_ids: set[int] | None = None,
    most_bytes: int = MOST_BYTES,
) -> tuple[list[Any], list[BadValue]]:
    """Return the rows of values, and the bad ones by row."""

    def check_id(schema_id: int) -> None:
        if known_ids is not None and schema_id not in known_ids:
            raise SchemaNotFoundError(f"the registry has no schema of id {schema_id}")

    reader = JsonReader(nodes_of(arrow_type, wanted), check_id, framing=framing, most_bytes=most_bytes)
    rows: list[Any] = []
    bad: list[BadValue] = []
    for part in reader.decode(pa.array(values, pa.binary())):
        part.values.validate(full=True)
        assert part.start == len(rows)
        bad += [each._replace(row=part.start + each.row) for each in part.bad]
        rows += part.values.to_pylist()
    return rows, bad


class BadJson(Exception):
    """A value is no JSON, or of another type."""


def expected_row(value: bytes | None, arrow_type: pa.DataType) -> Any:
    """Return the row of a value by Python's json; BAD for one that is refused."""
    if value is None:
        return None
    try:
        text = value.removeprefix(b"\xef\xbb\xbf").decode()
        parsed = json.loads(
            text, parse_constant=_refuse, object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number
        )
        return shown(parsed, arrow_type, text)
    except (BadJson, ValueError, OverflowError):
        return BAD


class _Pairs(list[Any]):
    """An object, with the fields that it repeats."""


class _Number(str):
    """A number, as it is written."""


def _refuse(name: str) -> NoReturn:
    raise BadJson(name)


def shown(value: Any, arrow_type: pa.DataType, text: str = "") -> Any:
    """Return what a column of a type has of a parsed value.  Raises: BadJson."""
    kinds = pa.types
    if value is None:
        return None
    if arrow_type == TEXT:
        return Text(value)
    if kinds.is_struct(arrow_type) and isinstance(value, _Pairs):
        names = {field.name: field.type for field in arrow_type}
        # Each of several fields of a name is checked, and the last one counts.
        fields = [(_text(name), shown(each, names.get(_text(name), TEXT))) for name, each in value]
        return dict.fromkeys(names) | {name: each for name, each in fields if name in names}
    if kinds.is_map(arrow_type) and isinstance(value, _Pairs):
        return [(_text(name), shown(each, arrow_type.item_type)) for name, each in value]
    if kinds.is_list(arrow_type) and isinstance(value, list) and not isinstance(value, _Pairs):
        return [shown(each, arrow_type.value_type) for each in value]
    if kinds.is_boolean(arrow_type) and isinstance(value, bool):
        return value
    if kinds.is_string(arrow_type) and isinstance(value, str) and not isinstance(value, _Number):
        return _text(value)
    if isinstance(value, _Number) and kinds.is_floating(arrow_type):
        number = float(value)
        single = struct.unpack("<f", struct.pack("<f", number))[0] if arrow_type == pa.float32() else number
        if math.isinf(single):
            raise BadJson(value)
        return single
    if isinstance(value, _Number) and kinds.is_integer(arrow_type):
        return _integer(value, _LIMITS[str(arrow_type)])
    raise BadJson(f"{value!r} for {arrow_type}")


class Text:
    """What equals each text of the same JSON."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        kinds = {"object_pairs_hook": _Pairs, "parse_int": _Number, "parse_float": _Number}
        return isinstance(other, str) and bool(json.loads(other, **kinds) == self._value)  # type: ignore[arg-type]

    __hash__ = None  # type: ignore[assignment]


def _integer(value: str, limits: range) -> int:
    whole, _, exponent = value.lower().partition("e")
    before, _, after = whole.partition(".")
    digits = int(before + after)
    if not digits:
        return 0
    power = int(exponent or 0) - len(after)
    # Python would write out the digits of a large exponent.
    if power > _MOST_DIGITS or -power > len(whole) or (power < 0 and digits % 10**-power):
        raise BadJson(value)
    number = digits * 10**power if power >= 0 else digits // 10**-power
    if number not in limits:
        raise BadJson(value)
    return number


def _text(value: str) -> str:
    return _SURROGATE.sub("\ufffd", value)
