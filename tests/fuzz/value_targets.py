"""The invariants of decoding values: a row for each value, null with a reason or a value, and no other row changed.

Each target takes a mutator, makes one column of values and raises a Disagreement if an invariant is broken.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

import kstore
from kstore.env import DEFAULT_ENV
from kstore.values.decoded import ColumnFormat
from kstore.values.formats import Partitions, ValueFormat, format_for
from kstore.values.json_format.columns import TEXT
from kstore.values.registry import SchemaRegistry
from tests.fuzz.agreement import agree
from tests.fuzz.message_mutator import MessageMutator
from tests.fuzz.mutator import INTERESTING_64
from tests.golden.sets import unpack
from tests.golden.test_values import shown
from tests.golden.values.protobuf_schemas import KINDS as PROTOBUF_KINDS
from tests.golden.values.schemas import KINDS
from tests.making.json_values import BAD, expected_row
from tests.making.json_values import read as read_json
from tests.making.protobuf_values import plain
from tests.reference.codec import encode_varint

MOST_BYTES = 1 << 22
FRAME_BYTES = 5


class Golden(NamedTuple):
    """The golden values of a format. tree: where they are; shown: returns what a column holds, for comparisons."""

    name: str
    tree: str
    topics: tuple[str, ...]
    shown: Callable[[pa.Scalar], Any]


AVRO = Golden("avro", "trees", tuple(kind.name for kind in KINDS), shown)
PROTOBUF = Golden("protobuf", "protobuf", tuple(each.topic for each in PROTOBUF_KINDS if not each.has_headers), plain)
JSON_TYPE = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("legs", pa.list_(pa.struct([("gate", pa.string()), ("delay", pa.int8())]))),
        ("ratio", pa.float64()),
        ("is_late", pa.bool_()),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("rest", TEXT),
    ]
)
# What can be read of a record inside of itself.
WANTED = {"recursive": dict.fromkeys(("id", "note", "name", "tags"))}
MESSAGES = {kind.topic: kind.message for kind in PROTOBUF_KINDS}


@cache
def registry(golden: Golden) -> SchemaRegistry:
    return kstore.read_schemas(unpack("values", golden.tree) / "root")


@cache
def values_of(golden: Golden, topic: str) -> list[bytes]:
    """Return the golden values of a topic, without its tombstones."""
    root = unpack("values", golden.tree) / "root"
    column = kstore.scan(root, topics=topic, columns=["value"]).to_table()["value"]
    return [value for value in column.to_pylist() if value is not None]


@cache
def format_of(golden: Golden, topic: str) -> ColumnFormat:
    places = Partitions((topic,), None, DEFAULT_ENV, lambda *_: None)
    name = MESSAGES[topic] if golden is PROTOBUF else None
    return format_for(ValueFormat(golden.name, schemas=registry(golden), message_name=name), "value", places)


def decoded(golden: Golden, topic: str, values: list[bytes | None]) -> tuple[list[Any], list[int]]:
    """Return the rows of a column of values, as text since NaN is not NaN, and which are bad."""
    reader = format_of(golden, topic).reader(WANTED.get(topic), most_bytes=MOST_BYTES)
    rows: list[Any] = []
    bad: list[int] = []
    for part in reader.decode(pa.array(values, pa.binary())):
        part.values.validate(full=True)
        bad += [part.start + each.row for each in part.bad if each.reason]
        rows += [str(golden.shown(scalar)) if scalar.is_valid else None for scalar in part.values]
    return rows, bad


@cache
def row_of(golden: Golden, topic: str, value: bytes) -> Any:
    return decoded(golden, topic, [value])[0][0]


def damaged_case(mutator: MessageMutator, golden: Golden) -> None:
    """Damaged values between whole ones."""
    rng = mutator.random
    topic = rng.choice(golden.topics)
    whole = values_of(golden, topic)
    values: list[bytes | None] = []
    places: list[int] = []
    for _ in range(rng.choice([1, 3, 70])):
        values += [rng.choice(whole), None, damaged(mutator, golden, whole)]
        places.append(len(values) - 1)
    values.append(rng.choice(whole))
    rows, bad = decoded(golden, topic, values)
    data = b"|".join(value or b"" for value in values)
    agree(f"{golden.name} rows", data, found=len(rows), expected=len(values))
    agree(f"{golden.name} bad rows", data, found=[row for row in bad if rows[row] is not None], expected=[])
    expected = [
        row if number in places else None if value is None else row_of(golden, topic, value)
        for number, (row, value) in enumerate(zip(rows, values, strict=True))
    ]
    agree(f"{golden.name} values", data, found=rows, expected=expected)


def damaged(mutator: MessageMutator, golden: Golden, whole: list[bytes]) -> bytes:
    """Return a value that is flipped, cut off, joined with another one, or has a number or an id of a wrong size."""
    rng = mutator.random
    value = rng.choice(whole)
    at = rng.randrange(FRAME_BYTES, len(value) + 1)
    match rng.randrange(6):
        case 0 | 1:
            return value[:FRAME_BYTES] + mutator.raw(value[FRAME_BYTES:])
        case 2:
            return value[: rng.randrange(len(value))]
        case 3:
            other = rng.choice(values_of(golden, rng.choice(golden.topics)))
            return value[:at] + other[rng.randrange(len(other)) :]
        case 4:
            number = encode_varint(rng.choice(INTERESTING_64), size=rng.choice([0, 9, 10, 11]))
            return value[:at] + number + value[at + rng.choice([0, 1]) :]
    return b"\0" + rng.randrange(150).to_bytes(4, "big") + value[FRAME_BYTES:]


def json_case(mutator: MessageMutator) -> None:
    """Damaged values between whole ones; all of them are what Python's json reads."""
    rng = mutator.random
    values: list[bytes | None] = []
    for _ in range(rng.choice([1, 3, 70])):
        whole = [json_text(rng, JSON_TYPE).encode(), json_text(rng, JSON_TYPE).encode()]
        values += [whole[0], None, damaged_json(mutator, *whole), rng.choice([b"", b" ", b"null", b"{}"])]
    wanted = rng.choice([None, {"id": None}, {"legs": {"gate": None}, "name": None}])
    rows, bad = read_json(values, JSON_TYPE, wanted, most_bytes=MOST_BYTES)
    data = b"|".join(value or b"" for value in values)
    refused = {each.row for each in bad}
    expected = [expected_row(value, JSON_TYPE) for value in values]
    agree("json bad rows", data, found=sorted(refused), expected=[i for i, row in enumerate(expected) if row == BAD])
    agree("json rows", data, found=len(rows), expected=len(values))
    if wanted is None:
        found = [BAD if number in refused else row for number, row in enumerate(rows)]
        agree("json values", data, found=found, expected=expected)


def json_text(rng: Random, arrow_type: pa.DataType) -> str:
    """Return a value of a type, with blanks and escapes here and there."""
    blank = rng.choice(["", "", " ", "\n"])
    kinds = pa.types
    if rng.randrange(8) == 0:
        return blank + "null"
    if kinds.is_struct(arrow_type):
        fields = [(field.name, field.type) for field in arrow_type]
        rng.shuffle(fields)
        pairs = (f'{blank}"{name}"{blank}:{json_text(rng, each)}' for name, each in fields)
        return "{" + ",".join(pairs) + blank + "}"
    if kinds.is_map(arrow_type):
        pairs = (f'"{key}":{json_text(rng, arrow_type.item_type)}' for key in rng.sample("abc", rng.randrange(3)))
        return blank + "{" + ",".join(pairs) + "}"
    if kinds.is_list(arrow_type):
        return "[" + ",".join(json_text(rng, arrow_type.value_type) for _ in range(rng.randrange(3))) + blank + "]"
    if kinds.is_string(arrow_type):
        return json.dumps(
            rng.choice(["", "x", 'quote " and \\ backslash', "\u00e4\u20ac\U0001f600" * 3]),
            ensure_ascii=rng.random() < 0.5,
        )
    if kinds.is_boolean(arrow_type):
        return rng.choice(["true", "false"])
    return blank + rng.choice(["0", "-12", "3.0", "1e2", "127", "12345678901234567890", "1e400", "0.1"])


def damaged_json(mutator: MessageMutator, value: bytes, other: bytes) -> bytes:
    """Return a value that is flipped, cut off, joined with another one, or has a token where none may be."""
    rng = mutator.random
    at = rng.randrange(len(value) + 1)
    match rng.randrange(4):
        case 0:
            return mutator.raw(value)
        case 1:
            return value[:at]
        case 2:
            return value[:at] + rng.choice([b"", b",", b"\n", b"}"]) + other[rng.randrange(len(other)) :]
    token = rng.choice([b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\\u", b"1", b"e", b"\xff", b"\0", b"NaN"])
    return value[:at] + token + value[at + rng.choice([0, 1]) :]


VALUE_TARGETS: dict[str, Callable[[MessageMutator], None]] = {
    "avro": partial(damaged_case, golden=AVRO),
    "json": json_case,
    "protobuf": partial(damaged_case, golden=PROTOBUF),
}
