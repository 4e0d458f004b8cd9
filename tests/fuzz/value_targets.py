"""The invariants of decoding values: a row for each value, null with a reason or a value, and no other row changed.

Each target takes a mutator, makes one column of values and raises a Disagreement if an invariant is broken.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa

import kstore
from kstore.env import DEFAULT_ENV
from kstore.values.decoded import ColumnFormat
from kstore.values.formats import Partitions, ValueFormat, format_for
from kstore.values.registry import SchemaRegistry
from tests.fuzz.agreement import agree
from tests.fuzz.message_mutator import MessageMutator
from tests.fuzz.mutator import INTERESTING_64
from tests.golden.sets import unpack
from tests.golden.test_values import shown
from tests.golden.values.schemas import KINDS
from tests.reference.codec import encode_varint

MOST_BYTES = 1 << 22
FRAME_BYTES = 5
TOPICS = [kind.name for kind in KINDS]
# What can be read of a record inside of itself.
WANTED = {"recursive": dict.fromkeys(("id", "note", "name", "tags"))}


@cache
def registry() -> SchemaRegistry:
    return kstore.read_schemas(unpack("values", "trees") / "root")


@cache
def values_of(topic: str) -> list[bytes]:
    """Return the golden values of a topic, without its tombstones."""
    column = kstore.scan(unpack("values", "trees") / "root", topics=topic, columns=["value"]).to_table()["value"]
    return [value for value in column.to_pylist() if value is not None]


@cache
def format_of(topic: str) -> ColumnFormat:
    places = Partitions((topic,), None, DEFAULT_ENV, lambda _: None)
    return format_for(ValueFormat("avro", schemas=registry()), "value", places)


def decoded(topic: str, values: list[bytes | None]) -> tuple[list[Any], list[int]]:
    """Return the rows of a column of values, as text since NaN is not NaN, and which are bad."""
    reader = format_of(topic).reader(WANTED.get(topic), most_bytes=MOST_BYTES)
    rows: list[Any] = []
    bad: list[int] = []
    for part in reader.decode(pa.array(values, pa.binary())):
        part.values.validate(full=True)
        bad += [part.start + each.row for each in part.bad if each.reason]
        rows += [str(shown(scalar)) if scalar.is_valid else None for scalar in part.values]
    return rows, bad


@cache
def row_of(topic: str, value: bytes) -> Any:
    return decoded(topic, [value])[0][0]


def avro_case(mutator: MessageMutator) -> None:
    """Damaged values between whole ones."""
    rng = mutator.random
    topic = rng.choice(TOPICS)
    whole = values_of(topic)
    values: list[bytes | None] = []
    places: list[int] = []
    for _ in range(rng.choice([1, 3, 70])):
        values += [rng.choice(whole), None, damaged(mutator, whole)]
        places.append(len(values) - 1)
    values.append(rng.choice(whole))
    rows, bad = decoded(topic, values)
    data = b"|".join(value or b"" for value in values)
    agree("avro rows", data, found=len(rows), expected=len(values))
    agree("avro bad rows", data, found=[row for row in bad if rows[row] is not None], expected=[])
    expected = [
        row if number in places else None if value is None else row_of(topic, value)
        for number, (row, value) in enumerate(zip(rows, values, strict=True))
    ]
    agree("avro values", data, found=rows, expected=expected)


def damaged(mutator: MessageMutator, whole: list[bytes]) -> bytes:
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
            other = rng.choice(values_of(rng.choice(TOPICS)))
            return value[:at] + other[rng.randrange(len(other)) :]
        case 4:
            number = encode_varint(rng.choice(INTERESTING_64), size=rng.choice([0, 9, 10, 11]))
            return value[:at] + number + value[at + rng.choice([0, 1]) :]
    return b"\0" + rng.randrange(150).to_bytes(4, "big") + value[FRAME_BYTES:]


VALUE_TARGETS: dict[str, Callable[[MessageMutator], None]] = {"avro": avro_case}
