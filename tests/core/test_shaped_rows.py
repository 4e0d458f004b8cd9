"""Goal: records of one size in a row, which the decoder tells by their first bytes, are read as if one by one.
Method: seeded histories of runs of alike records with deltas, sizes and attributes around each bound; and each byte of
a record in the middle of a run changed, both against the reference."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.making import batches as builders
from tests.making.batches import FIRST_TIMESTAMP_MS, record
from tests.making.columns import Wanted, decode_table, expected_rows
from tests.reference import codec as reference
from tests.reference.codec import Header, Record
from tests.reference.verdicts import Refused, column_verdict, expected_column_verdict

FOLLOWING = builders.batch(1 << 20, 3, value_bytes=40)
HISTORIES = 60
SIZES = (None, 0, 1, 7, 8, 11, 12, 13, 31, 32, 33, 62, 63, 64, 65, 127, 128, 300)
STEPS_MS = (0, 0, 1, 63, 64, 65, -1, -64, -65, 8000, -4000)


def alike_runs(generator: random.Random) -> list[Record]:
    """Runs of 1 to 30 records with keys and values of one size, in offsets with gaps and with times that go back."""
    made: list[Record] = []
    offset, timestamp_ms = generator.randrange(1000), FIRST_TIMESTAMP_MS
    for _ in range(generator.randrange(1, 8)):
        key_size, value_size = generator.choice(SIZES[:-2]), generator.choice(SIZES)
        step = generator.choice((1, 1, 1, 2, 40))
        for _ in range(generator.randrange(1, 31)):
            key = None if key_size is None else generator.randbytes(key_size)
            value = None if value_size is None else generator.randbytes(value_size)
            headers = [(b"h", b"v")] if generator.random() < 0.02 else ()
            made.append(record(offset, value, key, timestamp_ms=timestamp_ms, headers=headers))
            offset += step
            timestamp_ms = max(FIRST_TIMESTAMP_MS - 4000, timestamp_ms + generator.choice(STEPS_MS))
    return made


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_runs_of_alike_records_are_read_as_they_were_written(seed: int) -> None:
    generator = random.Random(seed)
    batches = [alike_runs(generator) for _ in range(3)]
    appended = FIRST_TIMESTAMP_MS if generator.random() < 0.2 else None
    data, offset, records = b"", 0, []
    for made in batches:
        moved = [each._replace(offset=each.offset + offset) for each in made]
        offset = moved[-1].offset + 1
        attributes = generator.choice((0, 0, 255))
        data += reference.write_batch(moved, record_attributes=attributes, log_append_time_ms=appended)
        records += [each._replace(timestamp_ms=appended) for each in moved] if appended is not None else moved
    for key in ("copy", "view", None):
        for value in ("copy", "view", None):
            wanted = Wanted(key=key, value=value, headers=generator.random() < 0.5, batch_bytes=1 << 15)
            assert decode_table(data + FOLLOWING, wanted).rows[: len(records)] == expected_rows(records, wanted)


# More than the bytes of a record before its value in these runs.
PREFIX_SIZE = 16
# A run whose records 0 to 5 are alike; the fourth is changed, which the decoder reads by its shape.
ALIKE = [record(number, b"v" * 40, b"k%05d" % number, timestamp_ms=FIRST_TIMESTAMP_MS + number) for number in range(6)]
LONG = [
    record(100 * number, b"v" * 90, b"k" * 5, timestamp_ms=FIRST_TIMESTAMP_MS + 100 * number) for number in range(6)
]


@pytest.mark.parametrize("records", [ALIKE, LONG], ids=["deltas of a byte", "deltas and sizes of two bytes"])
def test_each_byte_of_a_record_in_a_run_is_checked(records: list[Record]) -> None:
    whole = reference.write_batch(records)
    header = Header.unpack(whole)
    parts = [reference.encode_record(each, header) for each in records]
    assert len({len(part) for part in parts[2:]}) == 1
    changed = 4
    for at in range(len(parts[changed])):
        is_content = PREFIX_SIZE < at < len(parts[changed]) - 2
        for value in (0, 255) if is_content else range(256):
            part = parts[changed][:at] + bytes([value]) + parts[changed][at + 1 :]
            payload = b"".join([*parts[:changed], part, *parts[changed + 1 :]])
            data = reference.seal(replace(header, crc=0), payload) + FOLLOWING
            assert column_verdict(data) == expected_column_verdict(data), (at, value)


def test_a_run_ends_with_its_batch() -> None:
    """The last record of the batch claims to be as long as those before it, which is further than the batch."""
    whole = reference.write_batch(ALIKE)
    header = Header.unpack(whole)
    payload = b"".join(reference.encode_record(each, header) for each in ALIKE)
    data = reference.seal(header, payload[:-3]) + FOLLOWING
    assert column_verdict(data) == expected_column_verdict(data)
    assert isinstance(column_verdict(data), Refused)
