"""The schemas of the golden values: for each topic three versions of a record, and values of each version."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple
from uuid import UUID


class Kind(NamedTuple):
    """A topic. types: of its field `x` in each version; value: returns one, of a version from 0 on."""

    name: str
    types: tuple[Any, Any, Any]
    value: Callable[[Random, int], Any]
    references: tuple[str, ...] = ()


ADDRESS = {
    "type": "record",
    "name": "Address",
    "namespace": "org.place",
    "fields": [
        {"name": "street", "type": "string"},
        {"name": "country", "type": {"type": "enum", "name": "Country", "symbols": ["DE", "FR"], "default": "DE"}},
    ],
}
PERSON = {
    "type": "record",
    "name": "Person",
    "namespace": "org.people",
    "fields": [{"name": "name", "type": "string"}, {"name": "home", "type": "org.place.Address"}],
}


def versions(kind: Kind) -> list[dict[str, Any]]:
    """Return the three records: fields are added with defaults, widened, moved, renamed by an alias, and dropped."""
    first, second, third = kind.types
    name = kind.name.title().replace("-", "")
    return [
        record(name, field("id", "int"), field("x", first), field("old", "string"), namespace="org.golden"),
        record(
            name,
            field("x", second),
            field("note", ["null", "string"], default=None),
            field("id", "long"),
            field("old", "string"),
            field("count", "int", default=7),
            namespace="org.golden",
        ),
        record(
            name,
            field("note", ["null", "string"], default=None),
            field("x2", third, aliases=["x"]),
            field("id", "double"),
            field("name", ["null", "string"], aliases=["old"]),
            field("tags", {"type": "array", "items": "string"}, default=["a", "b"]),
            namespace="org.golden",
        ),
    ]


def values(kind: Kind, version: int, random: Random, number: int) -> dict[str, Any]:
    """Return a value of a version."""
    x = kind.value(random, version)
    note = random.choice([None, "note", "ä\u20ac\U0001f600"])
    if version == 0:
        return {"id": number, "x": x, "old": f"name {number}"}
    if version == 1:
        return {"x": x, "note": note, "id": number + (1 << 40), "old": "", "count": -number}
    return {"note": note, "x2": x, "id": number / 3, "name": note, "tags": ["t"] * (number % 3)}


def record(name: str, *fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, schema: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": schema, **more}


def logical(base: Any, name: str, **more: Any) -> dict[str, Any]:
    return {**(base if isinstance(base, dict) else {"type": base}), "logicalType": name, **more}


def fixed(name: str, size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "Colour", "symbols": list(symbols), **more}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapped(of: Any) -> dict[str, Any]:
    return {"type": "map", "values": of}


def always(schema: Any) -> tuple[Any, Any, Any]:
    return schema, schema, schema


def _int(random: Random, _version: int) -> int:
    return random.choice([0, -1, 63, -64, 64, 2**31 - 1, -(2**31), random.randint(-9999, 9999)])


def _long(random: Random, _version: int) -> int:
    return random.choice([0, -1, 2**63 - 1, -(2**63), 2**53 + 1, random.randint(-(10**12), 10**12)])


def _small(random: Random, _version: int) -> int:
    return random.choice([0, -1, random.randint(-(10**9), 10**9)])


def _double(random: Random, _version: int) -> float:
    return random.choice([0.0, -0.0, 1.5, -2.25, float("inf"), random.random()])


def _text(random: Random, _version: int) -> str:
    return random.choice(["", "plain", "ä\u20ac\U0001f600", "x" * 300])


def _bytes(random: Random, _version: int) -> bytes:
    return random.choice([b"", b"abc", b"\x00\x01", "ä".encode(), b"y" * 200])


def _raw(size: int) -> Callable[[Random, int], bytes]:
    return lambda random, _version: random.randbytes(size)


def _decimal(precision: int, scale: int) -> Callable[[Random, int], Decimal]:
    def value(random: Random, _version: int) -> Decimal:
        number = random.choice([0, 1, -1, 127, 128, -128, -129, 10**precision - 1, 1 - 10**precision])
        digits = tuple(int(digit) for digit in str(abs(number)))[:precision]
        return Decimal((int(number < 0), digits, -scale))

    return value


def _either(*options: Callable[[Random, int], Any]) -> Callable[[Random, int], Any]:
    return lambda random, version: random.choice(options)(random, version)


def _none(_random: Random, _version: int) -> None:
    return None


def _list(item: Callable[[Random, int], Any]) -> Callable[[Random, int], Any]:
    return lambda random, version: [item(random, version) for _ in range(random.choice([0, 1, 3, 20]))]


def _map(item: Callable[[Random, int], Any]) -> Callable[[Random, int], Any]:
    return lambda random, version: {f"k{i}": item(random, version) for i in range(random.choice([0, 1, 4]))}


def _one_of(*by_version: list[Any]) -> Callable[[Random, int], Any]:
    return lambda random, version: random.choice(by_version[min(version, len(by_version) - 1)])


POINT = record("Point", field("lat", "int"), field("lon", "int"))
POINT_LATER = record(
    "Point", field("lon", "long"), field("lat", "double"), field("height", ["null", "int"], default=None)
)
POINT_LAST = record(
    "Place",
    field("latitude", "double", aliases=["lat"]),
    field("lon", "double"),
    field("label", record("Label", field("text", "string", default="none"), field("size", "int")), default={"size": 3}),
    aliases=["Point"],
)
CIRCLE = record("Circle", field("radius", "double"))
SQUARE = record("Square", field("side", "int"))
ROUND = record("Round", field("radius", "double"))
CUBE = record("Cube", field("side", "long"), field("deep", "int", default=1))
NODE = record("Node", field("v", "int"), field("next", ["null", "Node"], default=None))


def _point(random: Random, version: int) -> dict[str, Any]:
    lat, lon = random.randint(-90, 90), random.randint(-180, 180)
    if version == 0:
        return {"lat": lat, "lon": lon}
    if version == 1:
        return {"lat": lat + 0.5, "lon": lon, "height": random.choice([None, 5])}
    return {"latitude": lat + 0.25, "lon": lon / 8, "label": {"text": "t", "size": lat}}


def _shape(random: Random, version: int) -> Any:
    names = ("Circle", "Square") if version < 2 else ("Round", "Cube")
    if random.random() < 0.5:
        return f"org.golden.{names[0]}", {"radius": random.random()}
    return f"org.golden.{names[1]}", {"side": 4} if version < 2 else {"side": 4, "deep": 2}


def _node(random: Random, version: int) -> dict[str, Any]:
    return {"v": 1, "next": None if random.random() < 0.4 else _node(random, version)}


def _person(_random: Random, _version: int) -> dict[str, Any]:
    return {"name": "Ada", "home": {"street": "Road 1", "country": "FR"}}


_RED, _WIDER = enum("RED", "GREEN"), enum("BLUE", "RED", "GREEN", default="RED")
_MILLIS = _one_of([0, -1, 1_700_000_000_123, -62_135_596_800_000, 253_402_300_799_999])
_MICROS = _one_of([0, -1, 1_700_000_000_123_456, -62_135_596_800_000_000, 253_402_300_799_999_999])
_NANOS = _one_of([0, -1, 1_700_000_000_123_456_789, -(10**18)])
_UUIDS = [UUID(int=0), UUID("12345678-1234-5678-9abc-123456789abc"), UUID(int=2**128 - 1)]
_PERSON_REFERENCES = ("org.place.Address", "org.people.Person")

KINDS = (
    Kind("boolean", always("boolean"), _one_of([True, False])),
    Kind("int", ("int", "long", "double"), _int),
    Kind("int-float", ("int", "int", "float"), _int),
    Kind("long", ("long", "long", "float"), _long),
    Kind("long-double", ("long", "long", "double"), _long),
    Kind("float", ("float", "float", "double"), _double),
    Kind("string", ("string", "string", "bytes"), lambda r, v: _text(r, v) if v < 2 else _text(r, v).encode()),
    Kind("bytes", ("bytes", "bytes", "string"), lambda r, v: _bytes(r, v) if v < 2 else _text(r, v)),
    Kind("decimal", always(logical("bytes", "decimal", precision=10, scale=2)), _decimal(10, 2)),
    Kind("decimal-38", always(logical("bytes", "decimal", precision=38, scale=10)), _decimal(38, 10)),
    Kind("decimal-60", always(logical("bytes", "decimal", precision=60, scale=5)), _decimal(60, 5)),
    Kind("decimal-fixed", always(logical(fixed("Money", 8), "decimal", precision=18, scale=4)), _decimal(18, 4)),
    Kind("date", always(logical("int", "date")), _one_of([0, -1, 19_000, -719_162, 2_932_896])),
    Kind("time-millis", always(logical("int", "time-millis")), _one_of([0, 1, 86_399_999])),
    Kind("time-micros", always(logical("long", "time-micros")), _one_of([0, 1, 86_399_999_999])),
    Kind("timestamp-millis", always(logical("long", "timestamp-millis")), _MILLIS),
    Kind("timestamp-micros", always(logical("long", "timestamp-micros")), _MICROS),
    Kind("timestamp-nanos", always(logical("long", "timestamp-nanos")), _NANOS),
    Kind("local-millis", always(logical("long", "local-timestamp-millis")), _MILLIS),
    Kind("local-micros", always(logical("long", "local-timestamp-micros")), _MICROS),
    Kind("local-nanos", always(logical("long", "local-timestamp-nanos")), _NANOS),
    Kind("became-time", ("long", "long", logical("long", "timestamp-millis")), _MILLIS),
    Kind("uuid", always(logical("string", "uuid")), _one_of(list(map(str, _UUIDS)))),
    Kind("uuid-fixed", always(logical(fixed("Id", 16), "uuid")), _one_of([each.bytes for each in _UUIDS])),
    Kind("duration", always(logical(fixed("Span", 12), "duration")), _raw(12)),
    Kind("enum-grows", (_RED, _WIDER, _WIDER), _one_of(["RED", "GREEN"], ["BLUE"])),
    Kind("enum-shrinks", (_WIDER, _WIDER, enum("RED", default="RED")), _one_of(["BLUE", "GREEN"], ["BLUE"], ["RED"])),
    Kind("enum-lost", (_RED, _RED, enum("GREEN", "BLUE")), _one_of(["RED", "GREEN"], ["RED"], ["BLUE"])),
    # Java 1.12.0 rounds an int to a float on its way into an array of doubles: these are small enough.
    Kind("array", (array("int"), array("long"), array("double")), _list(_one_of([0, -1, 9999, -65_536]))),
    Kind("arrays", always(array(array(["null", "string"]))), _list(_list(_either(_none, _text)))),
    Kind("map", (mapped("int"), mapped("long"), mapped(["null", "long"])), _map(_small)),
    Kind(
        "map-of-records",
        (mapped(array(POINT)), mapped(array(POINT_LATER)), mapped(array(POINT_LAST))),
        _map(_list(_point)),
    ),
    Kind("nullable", always(["null", "int"]), _either(_none, _int)),
    Kind("null-last", (["int", "null"], ["int", "null"], ["long", "null"]), _either(_none, _int)),
    Kind("became-nullable", ("string", ["null", "string"], ["null", "string"]), _text),
    Kind(
        "no-more-nullable",
        (["null", "string"], ["null", "string"], "string"),
        lambda r, v: r.choice([None, "x"]) if v < 2 else "y",
    ),
    Kind("union", always(["null", "string", "int", array("int")]), _either(_none, _text, _small, _list(_small))),
    Kind("union-widens", (["int", "string"], ["string", "int"], ["null", "string", "double"]), _either(_small, _text)),
    Kind("union-of-numbers", always(["int", "long"]), _small),
    Kind("records-by-name", always([CIRCLE, SQUARE]), lambda r, v: _shape(r, min(v, 1))),
    Kind("records-by-fields", ([CIRCLE, SQUARE], [SQUARE, CIRCLE], [CUBE, ROUND]), _shape),
    Kind("record", (POINT, POINT_LATER, POINT_LAST), _point),
    Kind("fixed", (fixed("Old", 4), fixed("Old", 4), fixed("New", 4, aliases=["Old"])), _raw(4)),
    Kind("recursive", always(NODE), _node),
    Kind("reference", always("org.people.Person"), _person, _PERSON_REFERENCES),
)
