"""Where in a partition's files two readings differ, for the messages of failed comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from tests.golden.oracle import find_batch
from tests.golden.sets import GoldenPartition

MISSING = "nothing"


def place_of(partition: GoldenPartition, offset: int) -> str:
    """Return offset, file and position of the batch that holds the offset."""
    found = find_batch(partition, offset)
    if found is None:
        return f"offset {offset}, after the last batch"
    return f"offset {offset}, in the batch at {found.batch.position} of {found.log.name}"


def offset_of(item: Any) -> int:
    """Return the offset of an item: a record, a batch's fields, a row that begins with it, or the number itself."""
    if isinstance(item, Mapping):
        return item["base_offset"]
    if hasattr(item, "offset"):
        return item.offset
    return item[0] if isinstance(item, tuple) else item


def difference(partition: GoldenPartition, found: Iterable[Any], expected: Iterable[Any]) -> str:
    """Name the first item in which two sequences differ, and its place by the offset in it."""
    for number, (one, other) in enumerate(zip_longest(found, expected, fillvalue=MISSING)):
        if one != other:
            offset = offset_of(one if other is MISSING else other)
            return f"item {number}, {place_of(partition, offset)}: expected {other}, found {one}"
    return "no difference"


def column_difference(
    partition: GoldenPartition, found: Mapping[str, Sequence[Any]], expected: Mapping[str, Sequence[Any]]
) -> str:
    """Name the first column and row in which tables differ, and the row's place if the offset column is there."""
    for name, column in expected.items():
        for row, (one, other) in enumerate(zip_longest(found[name], column, fillvalue=MISSING)):
            if one != other:
                offsets = expected["offset"] if row < len(expected.get("offset", ())) else found.get("offset", ())
                place = place_of(partition, offsets[row]) if row < len(offsets) else "no offset column"
                return f"column {name}, row {row}, {place}: expected {other}, found {one}"
    return "no difference"
