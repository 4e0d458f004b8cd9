"""Goal: the records that may hold some bytes, or end where they begin, are found whatever is damaged before them."""

from __future__ import annotations

import random

import pytest

from kstore._core import find_last_record, find_record_around
from tests.making.batches import record
from tests.making.messages import packed_entry
from tests.reference.codec import Header, Record, encode_record

HEADER = Header(base_offset=0)
INSIDE = b"<the bytes that a search found>"


def encoded(*records: Record) -> list[bytes]:
    return [encode_record(one, HEADER) for one in records]


def holders() -> dict[str, Record]:
    """A record that holds INSIDE in each of its fields."""
    return {
        "value": record(3, b"upload:" + INSIDE + b":end"),
        "end of the value": record(3, INSIDE),
        "key": record(3, b"v", INSIDE),
        "header": record(3, b"v", headers=[(b"a", b"b"), (b"h", INSIDE)]),
    }


@pytest.mark.parametrize("field", holders())
@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("size", [10, 500, 40_000])
def test_record_around_is_found_by_the_records_that_lead_from_it_to_the_end(field: str, after: int, size: int) -> None:
    holder, *others = encoded(holders()[field], *(record(4 + n, b"w" * size) for n in range(after)))
    data = random.Random(field).randbytes(70) + holder + b"".join(others)
    start = data.index(INSIDE)
    end = 70 + len(holder)
    assert find_record_around(data, start=start, end=start + len(INSIDE), ends=[len(data)]) == end
    assert find_record_around(data, start=start, end=start + len(INSIDE), ends=[end]) == end
    assert find_record_around(data + b"x", start=start, end=start + len(INSIDE), ends=[len(data) + 1]) == -1


def test_bytes_after_a_record_or_across_its_fields_are_in_none() -> None:
    (first, second) = encoded(record(3, b"a" * 50, b"k" * 50), record(4, b"b" * 50))
    data = first + INSIDE + second
    start = len(first)
    assert find_record_around(data, start=start, end=start + len(INSIDE), ends=[len(data)]) == -1
    key = first.index(b"k")
    assert find_record_around(first, start=key + 10, end=key + 60, ends=[len(first)]) == -1


@pytest.mark.parametrize("magic", [0, 1])
def test_value_of_a_message_around_bytes_is_found_if_it_ends_where_a_batch_may_end(magic: int) -> None:
    data = packed_entry(b"upload:" + INSIDE, b"k", offset=3, magic=magic)
    start = data.index(INSIDE)
    assert find_record_around(data, start=start, end=len(data), ends=[len(data)], messages=True) == len(data)
    assert find_record_around(data, start=start, end=len(data), ends=[len(data)]) == -1
    assert find_record_around(data + b"x", start=start, end=len(data), ends=[len(data) + 1], messages=True) == -1


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_last_record_is_that_which_ends_where_the_bytes_end(damaged: int) -> None:
    records = encoded(*(record(n, b"value %d" % n, b"key") for n in range(5)))
    data = b"\xee" * 40 + b"".join(records[damaged:])
    assert find_last_record(data, len(data)) == 4
    assert find_last_record(data + b"\xee", len(data) + 1) is None
    assert find_last_record(data, len(data) - len(records[4])) is None
    assert find_last_record(data[: -len(records[4])], len(data) - len(records[4])) == 3


def test_random_bytes_hold_no_records_and_no_size_reads_past_them() -> None:
    rng = random.Random(1)
    found = 0
    for _ in range(300):
        data = rng.randbytes(rng.randrange(1, 3000))
        start = rng.randrange(len(data))
        end = rng.randrange(start + 1, len(data) + 1)
        found += find_record_around(data, start=start, end=end, ends=[len(data)], messages=True) >= 0
        found += find_last_record(data, len(data)) is not None
    assert found <= 2


@pytest.mark.parametrize(
    ("start", "end", "ends"), [(-1, 2, [5]), (2, 2, [5]), (3, 2, [5]), (0, 6, [5]), (0, 2, [1]), (0, 2, [6])]
)
def test_places_outside_of_the_bytes_are_refused(start: int, end: int, ends: list[int]) -> None:
    with pytest.raises(ValueError, match="expected"):
        find_record_around(b"12345", start=start, end=end, ends=ends)
    with pytest.raises(ValueError, match="before"):
        find_last_record(b"12345", 6)
