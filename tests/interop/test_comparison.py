"""Goal: `make interop` cannot miss a difference, whichever side it is on.

Method: reports and bytes that are right but for one field go through the comparison; no Java is run.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop import comparison
from tests.interop.recipes import recipe
from tests.making import batches as builders
from tests.making.matrix import Case, cases
from tests.making.writing import write_case
from tests.reference.codec import write_batch

CASE = Case(magic=2, codec=1, timestamp_type=1, shape="headers")
PLAIN = Case(magic=2, codec=0, timestamp_type=0, shape="plain")
MESSAGES = Case(magic=1, codec=1, timestamp_type=1, shape="plain")
DATA = write_case("builder", CASE)


def right_lines() -> list[dict[str, Any]]:
    tail = {"valid_bytes": len(DATA)}
    return [comparison.expected_batch(CASE, DATA), *comparison.lines_of(CASE.expected), tail]


FIELDS = [(at, name) for at, line in enumerate(right_lines()) for name in line]


def test_right_report_has_no_problem() -> None:
    assert comparison.reading_problem(CASE, DATA, right_lines()) is None


@pytest.mark.parametrize(("at", "name"), FIELDS, ids=[f"line {at} {name}" for at, name in FIELDS])
def test_each_field_of_a_report_counts(at: int, name: str) -> None:
    lines = right_lines()
    lines[at][name] = "wrong"
    assert comparison.reading_problem(CASE, DATA, lines) is not None


@pytest.mark.parametrize("at", range(len(right_lines()) - 1))
def test_missing_line_of_a_report_is_a_problem(at: int) -> None:
    lines = right_lines()
    del lines[at]
    assert comparison.reading_problem(CASE, DATA, lines) is not None


def test_header_key_that_is_not_utf_8_may_be_any_text() -> None:
    records = [builders.record(0, headers=[(b"\xff", b"v"), (b"k", None)])]
    lines = comparison.lines_of(records)
    lines[0]["headers"][0][0] = "what Java made of it"
    assert comparison.records_difference(lines, records) is None
    for pair, at in ((0, 1), (1, 0), (1, 1)):
        other = comparison.lines_of(records)
        other[0]["headers"][pair][at] = "wrong"
        assert comparison.records_difference(other, records) is not None


def test_refusal_and_silence_are_problems() -> None:
    assert comparison.reading_problem(CASE, DATA, [{"error": "no"}]) == "no"
    assert comparison.reading_problem(CASE, DATA, []) is not None


@pytest.mark.parametrize(
    ("case", "writer"),
    [(CASE, "builder"), (PLAIN, "builder"), (MESSAGES, "message writer")],
    ids=["compressed", "plain", "wrapper"],
)
def test_bytes_differ_where_one_of_the_header_or_the_content_does(case: Case, writer: str) -> None:
    data = write_case(writer, case)
    assert comparison.bytes_problem(case, ours=data, theirs=data) is None
    other = data[:7] + bytes([data[7] ^ 1]) + data[8:]
    assert comparison.bytes_problem(case, ours=other, theirs=data) is not None
    longer = write_case(writer, case.at(case.base_offset + 1))
    assert comparison.bytes_problem(case, ours=longer, theirs=data) is not None


def test_decompressed_content_counts() -> None:
    other = write_batch(CASE.records[:-1], codec=CASE.codec, base_offset=CASE.base_offset)
    assert comparison.bytes_problem(CASE, ours=other, theirs=DATA) is not None


def test_records_that_kstore_reads_are_compared_with_the_case() -> None:
    assert comparison.records_problem(CASE, DATA) is None
    assert comparison.records_problem(PLAIN, DATA) is not None
    assert comparison.records_problem(CASE, b"") is not None


def test_names_of_cases_are_unique() -> None:
    names = [case.name for case in cases(0, 1, 2)]
    assert len(set(names)) == len(names)


def test_recipe_tells_the_fields_big_endian() -> None:
    head = bytes.fromhex("02 00 00 ffffffffffffffff 00000000000003e8 ffffffffffffffff ffff ffffffff 00 00 ffffffff")
    rows = recipe(Case(magic=2, codec=0, timestamp_type=0, shape="null-value"))
    assert rows[: len(head)] == head
    assert rows[len(head) :][:12] == bytes.fromhex("ffffffffffffffff 00000003")
    assert rows.endswith(bytes.fromhex("00000005") + b"key 2" + bytes.fromhex("ffffffff 00000000"))
