"""Goal: what kstore writes is read back by everyone as it was written, over the whole matrix of formats.

Method: making/matrix.py says what to write and to find. kstore writes each case; kstore (records and columns), the
reference, aiokafka and kafka-python read it; bytes that the format fixes are compared with the reference's.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kstore.record import MemoryRecords
from tests.differential.rivals import RIVALS, Seen, read, seen, stand_in_for_packages
from tests.making import columns, matrix
from tests.making.collecting import over
from tests.making.matrix import Case
from tests.making.messages import packed_entry
from tests.making.writing import WRITTEN_MAGICS, write_case
from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference import messages as reference_messages
from tests.reference.verdicts import as_reference

READ_MAGICS = (0, 1, 2)
WRITTEN = [(writer, case) for writer, magics in WRITTEN_MAGICS.items() for case in matrix.cases(*magics)]
READ = [(writer, case) for writer, case in WRITTEN if case.magic in READ_MAGICS]


_written: dict[tuple[str, str], bytes] = {}


def written(writer: str, case: Case) -> bytes:
    """Return what kstore writes of a case, which all readers get."""
    key = writer, case.name
    if key not in _written:
        _written[key] = bytes(write_case(writer, case))
    return _written[key]


def over_cases(rows: list[tuple[str, Case]]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """One test per writer and magic."""
    return over(
        "writer, case", rows, by=lambda row: f"{row[0]} v{row[1].magic}", label=lambda row: f"{row[0]} {row[1].name}"
    )


@over_cases(READ)
def test_kstore_reads_back_the_records_it_wrote(writer: str, case: Case) -> None:
    assert [as_reference(record) for record in MemoryRecords(written(writer, case))] == case.expected


@over_cases(READ)
def test_kstore_reads_back_the_columns_of_the_records_it_wrote(writer: str, case: Case) -> None:
    assert columns.decode_table(written(writer, case)).rows == columns.expected_rows(case.expected)


@over_cases(WRITTEN)
def test_reference_reads_what_kstore_wrote(writer: str, case: Case) -> None:
    assert reference_messages.read_all(written(writer, case)) == case.expected


UNCOMPRESSED = [(writer, case) for writer, case in WRITTEN if case.codec == codecs.NONE]


@over_cases(UNCOMPRESSED)
def test_uncompressed_bytes_are_those_of_the_reference(writer: str, case: Case) -> None:
    assert written(writer, case) == reference_bytes(case)


def reference_bytes(case: Case) -> bytes:
    if case.magic < 2:
        attributes = reference.TIMESTAMP_TYPE_BIT if case.timestamp_type == reference.LOG_APPEND_TIME else 0
        fields = {"magic": case.magic, "attributes": attributes}
        return b"".join(
            packed_entry(row.value, row.key, offset=row.offset, timestamp_ms=row.timestamp_ms, **fields)
            for row in case.expected
        )
    options = {"partition_leader_epoch": -1} | case.options
    return reference.write_batch(case.records, base_offset=case.base_offset, **options)


# aiokafka refuses lz4 in V0.
RIVAL_ROWS = [
    (name, writer, case)
    for name in RIVALS
    for writer, case in WRITTEN
    if (case.magic, case.codec) != (0, codecs.LZ4) or name == "kafka-python"
]


@over(
    "name, writer, case",
    RIVAL_ROWS,
    by=lambda row: f"{row[0]} {row[1]} v{row[2].magic}",
    label=lambda row: f"{row[0]} {row[1]} {row[2].name}",
)
def test_rivals_read_what_kstore_wrote(monkeypatch: pytest.MonkeyPatch, name: str, writer: str, case: Case) -> None:
    stand_in_for_packages(monkeypatch)
    expected = [seen(record) for record in case.expected]
    if case.magic == 1 and name != "kafka-python":
        expected = [as_aiokafka_shows(record) for record in expected]
    assert read(RIVALS[name], written(writer, case)) == expected


def as_aiokafka_shows(record: Seen) -> Seen:
    """A V1 record without a timestamp has no timestamp type either."""
    return record._replace(timestamp_type=-1) if record.timestamp_ms == -1 else record
