"""The invariants of packing columns: the reference's batches up to the first wrong row, and an error that names it.

Each target takes a mutator, does one thing and raises a Disagreement if an invariant is broken.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

from kstore.compression import CompressionType
from kstore.record.packing import BinaryColumn, HeadersColumn, Int64Column, RecordColumns, pack_columns
from tests.fuzz.agreement import agree
from tests.fuzz.message_mutator import MessageMutator
from tests.fuzz.mutator import INTERESTING, INTERESTING_64
from tests.making.packing import TooShortError, columns_of, expected_batches, read_columns
from tests.reference import codec as reference
from tests.reference import messages as reference_messages

UNITS = (1, 1000, 1_000_000)
BATCH_BYTES = (1, 61, 90, 300, 16384, 2**31 - 1)


def packing_case(mutator: MessageMutator) -> None:
    """Columns with wild indexes, bits, sizes and numbers: what comes out before the error is what stood before it."""
    rng = mutator.random
    columns = wild_columns(mutator)
    options: dict[str, Any] = {"batch_bytes": rng.choice(BATCH_BYTES), "base_offset": rng.choice([0, 0, 0, 5, 2**40])}
    codec = rng.choice([0, 0, 0, 1, 2, 3, 4])
    run_bytes = rng.choice([1, 100, 1 << 20])
    found, problem = packed(columns, compression=CompressionType(codec), run_bytes=run_bytes, **options)
    if problem == "at once":
        check_refused_at_once(columns)
        return
    records, wrong_row = read_columns(columns, base_offset=options["base_offset"])
    expected = expected_batches(records, batch_bytes=options["batch_bytes"]) if records else []
    agree("packing", described(columns), found=problem, expected=wrong_row)
    if wrong_row is not None:
        expected = expected[: len(found)]
    if codec:
        found, expected = [b"".join(found)], [b"".join(expected)]
        agree("packing", described(columns), found=records_in(found), expected=records_in(expected))
    else:
        agree("packing", described(columns), found=found, expected=expected)


def packed(columns: RecordColumns, **options: Any) -> tuple[list[bytes], int | str | None]:
    """The batches, and the row of the error that ended them: None without one, "at once" before the first run."""
    out: list[bytes] = []
    try:
        runs = pack_columns(columns, partition_leader_epoch=0, **options)
    except (ValueError, OverflowError):
        return out, "at once"
    try:
        for run in runs:
            out += [bytes(batch) for batch in run.batches()]
    except ValueError as error:
        named = re.search(r"\brow (\d+)", str(error))
        return out, int(named[1]) if named else str(error)
    return out, None


def check_refused_at_once(columns: RecordColumns) -> None:
    """A column is too short for its rows, or has no width."""
    try:
        read_columns(columns)
    except TooShortError:
        return
    agree("packing", described(columns), found="refused at once", expected="packed")


def records_in(batches: list[bytes]) -> list[reference.Record]:
    return [record for batch in batches for record in reference_messages.read_all(batch)]


def described(columns: RecordColumns) -> bytes:
    """What a report shows: the columns themselves."""
    return repr(columns).encode()


def wild_columns(mutator: MessageMutator) -> RecordColumns:
    """The columns of a few records in any layout, with up to three fields wrong."""
    rng = mutator.random
    records = mutator.records(rng.choice([0, 5, 2**40]))
    if rng.random() < 0.1:
        records = []
    # Keys that an Arrow string column can hold, most of them.
    records = [
        record._replace(headers=tuple((key.hex().encode(), value) for key, value in record.headers))
        for record in records
    ]
    layout = {"padding": rng.choice([0, 0, 1, 9]), "offset_bytes": rng.choice([4, 8])}
    columns = columns_of(records, has_offsets=rng.random() < 0.5, **layout)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        columns = rng.choice(BREAKS)(mutator, columns)
    return columns


def break_binary(mutator: MessageMutator, columns: RecordColumns) -> RecordColumns:
    name = mutator.random.choice(["key", "value"])
    column = getattr(columns, name)
    return columns if column is None else columns._replace(**{name: broken_binary(mutator, column)})


def break_headers(mutator: MessageMutator, columns: RecordColumns) -> RecordColumns:
    headers = columns.headers
    if headers is None:
        return columns
    kind = mutator.random.randrange(3)
    if kind == 0:
        lists = BinaryColumn(headers.offsets, b"", headers.validity, headers.start, headers.offset_bytes)
        broken = broken_binary(mutator, lists)
        headers = HeadersColumn(
            broken.offsets, headers.keys, headers.values, broken.validity, broken.start, broken.offset_bytes
        )
    elif kind == 1:
        headers = headers._replace(keys=broken_binary(mutator, headers.keys))
    else:
        headers = headers._replace(values=broken_binary(mutator, headers.values))
    return columns._replace(headers=headers)


def break_numbers(mutator: MessageMutator, columns: RecordColumns) -> RecordColumns:
    rng = mutator.random
    name = rng.choice(["timestamp", "offset"])
    column = getattr(columns, name)
    if not isinstance(column, Int64Column):
        return columns
    kind = rng.randrange(4)
    if kind == 0:
        column = column._replace(start=max(column.start + rng.choice([-1, 1, 2]), -1))
    elif kind == 1:
        column = column._replace(validity=rng.randbytes(rng.randint(0, 3)))
    else:
        column = column._replace(data=broken_words(mutator, bytes(column.data), width=8))
    return columns._replace(**{name: column})


def break_table(mutator: MessageMutator, columns: RecordColumns) -> RecordColumns:
    """Another number of rows, a column less, other units, one timestamp for all."""
    rng = mutator.random
    changes: list[dict[str, Any]] = [
        {"row_count": columns.row_count + rng.choice([-1, 1, -2])},
        {rng.choice(["key", "value", "headers", "offset"]): None},
        {"units_per_ms": rng.choice(UNITS)},
        {"units_per_ms": rng.choice([0, -1, 7, 2**63 - 1])},
    ]
    if columns.row_count < 1 << 10:
        stamp = rng.choice([0, 5, -1, -2, -1000, -1001, 2**63 - 1, -(2**63)])
        changes += [{"timestamp": stamp}, {"timestamp": stamp, "units_per_ms": 1000}]
    if isinstance(columns.timestamp, Int64Column):
        changes += [{"row_count": rng.choice([0, 2**31, 2**63 - 1, -(2**63)])}]
    return columns._replace(**rng.choice(changes))


BREAKS: tuple[Callable[[MessageMutator, RecordColumns], RecordColumns], ...] = (
    break_binary,
    break_binary,
    break_headers,
    break_headers,
    break_numbers,
    break_table,
)


def broken_binary(mutator: MessageMutator, column: BinaryColumn) -> BinaryColumn:
    rng = mutator.random
    kind = rng.randrange(8)
    if kind == 0:
        return column._replace(start=column.start + rng.choice([-1, 1, 2, 2**31, 2**62]))
    if kind == 1:
        return column._replace(validity=rng.choice([None, rng.randbytes(rng.randint(0, 4))]))
    if kind == 2:
        return column._replace(data=bytes(column.data)[: -rng.randint(1, 9)])
    if kind == 3:
        return column._replace(data=mutator.raw(bytes(column.data)))
    if kind == 4:
        return column._replace(offset_bytes=rng.choice([4, 8, 0, 2, -8]))
    return column._replace(offsets=broken_words(mutator, bytes(column.offsets), width=column.offset_bytes))


def broken_words(mutator: MessageMutator, data: bytes, *, width: int) -> bytes:
    """One number replaced by one that is near or famous, or the end cut off."""
    rng = mutator.random
    if rng.random() < 0.15:
        return data[: -rng.randint(1, 9)]
    if width not in (4, 8) or len(data) < width:
        return data
    at = rng.randrange(len(data) // width) * width
    bits = 8 * width
    value = rng.choice(INTERESTING_64 if width == 8 else INTERESTING)
    if rng.random() < 0.6:
        value = int.from_bytes(data[at : at + width], sys.byteorder, signed=True) + rng.choice([-1, 1, 2, 9])
    low = -(1 << bits - 1)
    word = (value - low) % (1 << bits) + low
    return data[:at] + word.to_bytes(width, sys.byteorder, signed=True) + data[at + width :]


PACKING_TARGETS: dict[str, Callable[[MessageMutator], Any]] = {"packing": packing_case}
