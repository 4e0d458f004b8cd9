"""Goal: every way to read a log says the same of a control batch, however wrong it is inside.

Method: Hypothesis puts batches with random headers and contents, their CRC right or wrong, between good ones, in a
partition that is read as Records, as Arrow columns of both kinds, by `kstore cat` and by a consumer of fetched bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from kstore import MemoryRecords
from kstore.cli.printing.cat import CatOptions
from kstore.config import MAX_INT32
from kstore.errors import CorruptionError, UnsupportedError
from kstore.log.log import Log
from kstore.store.opening import open_log
from kstore.types import MAX_OFFSET
from tests.making.batches import batch, with_fields
from tests.making.cat_groups import groups
from tests.reference import codec as reference

FIRST_OFFSET = 3
NEXT_OFFSET = 9
CONTROL, TRANSACTIONAL = 0x20, 0x10
MARKER = {"timestamp_ms": 1000, "producer_id": 9, "producer_epoch": 0}

contents = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            reference.write_end_transaction_marker(FIRST_OFFSET, commit=commit, **MARKER)[reference.HEADER_BYTES :]
            for commit in (True, False)
        ]
    ),
    st.integers(1, 3).map(lambda count: batch(FIRST_OFFSET, count)[reference.HEADER_BYTES :]),
)
counts = st.integers(-2, 6) | st.sampled_from([2**31 - 1, -(2**31)])
headers = st.fixed_dictionaries(
    {
        "base_offset": st.just(FIRST_OFFSET) | st.integers(0, 8) | st.sampled_from([-1, 2**63 - 1, 2**63 - 2]),
        "attributes": st.integers(0, 0x7F).map(lambda bits: bits | CONTROL) | st.sampled_from([CONTROL, TRANSACTIONAL]),
        "record_count": counts,
        "last_offset_delta": st.integers(0, 5) | counts,
        "base_timestamp_ms": st.sampled_from([-1, 0, 1000, 2**63 - 1, -(2**63)]),
        "producer_id": st.sampled_from([-1, 9]),
    }
)


def control_batch(fields: dict[str, int], content: bytes, *, repair_crc: bool) -> bytes:
    header = reference.Header(base_offset=FIRST_OFFSET, batch_length=reference.HEADER_BYTES - 12 + len(content))
    return with_fields(header.pack() + content, fields, repair_crc=repair_crc)


def answer(read: Callable[[], Iterable[int]]) -> tuple[list[int], tuple[str, int | None] | None]:
    """The offsets that come, and the error that ends them with its position."""
    found: list[int] = []
    try:
        for offset in read():
            found.append(offset)
    except (CorruptionError, UnsupportedError) as error:
        return found, (type(error).__name__, error.position)
    return found, None


def by_arrow(log: Log, **options: Any) -> Iterable[int]:
    for table in log.to_arrow_batches(columns=["offset", "key", "value"], batch_bytes=1, **options):
        yield from table.column("offset").to_pylist()


def by_cat(log: Log) -> Iterable[int]:
    for group in groups(log, CatOptions(start_offset=0, end_offset=MAX_OFFSET)):
        yield from (record.offset for record in group.records)


def by_fetch(log: Log) -> Iterable[int]:
    for one in MemoryRecords(log.fetch(0, 1 << 20).records).batches():
        one.verify()
        if not one.is_control:
            yield from (record.offset for record in one.records(verify=False))


AT_THE_VERY_END = {
    "base_offset": MAX_OFFSET,
    "attributes": 32,
    "record_count": 0,
    "last_offset_delta": 0,
    "base_timestamp_ms": -1,
    "producer_id": -1,
}
# A reader skips this one, whose content is damaged too, and refuses the next one, whose offsets are lower.
ABOVE_THE_NEXT = {**AT_THE_VERY_END, "base_offset": FIRST_OFFSET, "last_offset_delta": MAX_INT32}


@example(fields=ABOVE_THE_NEXT, content=b"\0", repair_crc=True)
@example(fields=AT_THE_VERY_END, content=b"", repair_crc=True)
@given(fields=headers, content=contents, repair_crc=st.booleans())
def test_every_way_of_reading_skips_or_refuses_the_same_control_batch(
    fields: dict[str, int], content: bytes, repair_crc: bool
) -> None:
    hostile = control_batch(fields, content, repair_crc=repair_crc)
    with TemporaryDirectory() as parent:
        directory = Path(parent) / "t-0"
        directory.mkdir()
        (directory / f"{0:020d}.log").write_bytes(batch(0, FIRST_OFFSET) + hostile + batch(NEXT_OFFSET, 2))
        with open_log(directory) as log:
            expected = answer(lambda: (record.offset for record in log.read()))
            for binary in ("copy", "view"):
                offsets, error = answer(partial(by_arrow, log, binary=binary))
                # An error drops the rows of the table that was being filled.
                assert error == expected[1]
                assert offsets == (expected[0] if error is None else expected[0][: len(offsets)])
            assert answer(lambda: by_cat(log)) == expected
            if expected[1] is None:
                assert answer(lambda: by_fetch(log)) == expected
