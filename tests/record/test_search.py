"""Goal: a search finds what its expression matches; the bytes that it looks for in whole batches are in each match.
Method: tables of expressions; what matches an expression, made by hypothesis, has its required bytes."""

from __future__ import annotations

import random
import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from kstore._core import RecordMatcher
from kstore.record import RecordBatch, RecordSearch
from kstore.record.automaton import table_of
from kstore.record.search import required_bytes
from tests.making.batches import batch, batches, record, write_partition
from tests.making.strategies import examples
from tests.reference.codec import write_batch


@pytest.mark.parametrize(
    ("expression", "required"),
    [
        ("abc", b"abc"),
        ("ab*c", b"a"),
        ("abc?", b"ab"),
        ("ab+c", b"ab"),
        ("ab{0,2}cd", b"cd"),
        ("a{,2}b", b"b"),
        ("foo.*barbaz", b"barbaz"),
        ("(abc)?de", b"de"),
        ("[]a]zz", b"zz"),
        (r"[^\]a]yy", b"yy"),
        (r"[\]b]c", b"c"),
        (r"[^\]b]c", b"c"),
        ("{[})](ab)?c", b"c"),
        ("x{ab", b"ab"),
        (r"\d+order-\d", b"order-"),
        (r"a\.b", b"a.b"),
        (r"a\*?b", b"a"),
        (r"\x41bc", b"bc"),
        ("é.*", "é".encode()),
        ("a|b", None),
        ("(?i)abc", None),
        (r"(a)\1", None),
        ("^$", None),
        ("", None),
        (r"[\]ab]c", b"c"),
        (r"[^\]ab]c", b"c"),
        ("[]ab]c", b"c"),
        ("a{x[}b]c", b"x"),
        ("a{1,2,}[}bc]", b"1,2,"),
        (None, None),
    ],
)
def test_required_bytes_are_those_of_each_match(expression, required):
    assert required_bytes(expression) == required


PIECES = st.sampled_from(
    [
        "a",
        "bc",
        "b*",
        "c+",
        "a?",
        "(ab)",
        "(a)*",
        "[ab]",
        "[^]b]",
        r"[\]ab]",
        "{c[}b]",
        ".",
        r"\.",
        r"\d",
        "a{0,1}",
        "b{2}",
    ]
)


@examples(50)
@given(expression=st.lists(PIECES, max_size=6).map("".join), data=st.data())
def test_what_matches_has_the_required_bytes(expression, data):
    matched = data.draw(st.from_regex(expression, fullmatch=True))
    assert re.search(expression, matched)
    assert (required_bytes(expression) or b"") in matched.encode()


# Expressions are of these at random; some are none.
PARTS = (
    *(
        "a",
        "b",
        "ab",
        "c",
        "é",
        "-",
        ".",
        "^",
        "$",
        "|",
        "(",
        ")",
        "(a|)",
        "(?:",
        "(?i)",
        "(?s)",
        "(?=",
        "(?!",
        "(?<=a)",
    ),
    *(
        "{",
        "}",
        "{2}",
        "{0,1}",
        "{,2}",
        "{0}",
        "{a}",
        "*",
        "+",
        "?",
        "*?",
        "++",
        "[",
        "]",
        "[ab]",
        "[^a]",
        "[]a]",
        "[})]",
    ),
    *(
        "[(]",
        r"[\]b]",
        r"[^\]b]",
        "{[})](ab)?",
        r"\.",
        r"\(",
        r"\[",
        r"\{",
        r"\d",
        r"\w",
        r"\b",
        r"\x61",
        r"\n",
        r"\1",
        r"\A",
    ),
)
CHARACTERS = "abcé{}()[]\\.-\n012AB"


def compiled(expression: str) -> re.Pattern | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return re.compile(expression)
        except (re.error, OverflowError):
            return None


def test_a_literal_that_is_looked_for_is_in_what_any_expression_matches():
    chosen = random.Random(5)
    count = 0
    while count < 5000:
        expression = "".join(chosen.choices(PARTS, k=chosen.randrange(1, 7)))
        required = required_bytes(expression)
        pattern = compiled(expression)
        if pattern is None:
            continue
        count += 1
        for _ in range(12 if required else 0):
            text = "".join(chosen.choices(CHARACTERS, k=chosen.randrange(9)))
            if pattern.search(text):
                assert required in text.encode(), (expression, text)


# For the automaton, which knows what is in most expressions, and must leave the others to `re`.
ATOMS = (
    *(
        "a",
        "b",
        "c",
        "A",
        "x",
        "0",
        r"\n",
        "[ab]",
        "[^b]",
        "[^a-b]",
        "[A-c]",
        r"[\d_]",
        r"[^\w]",
        ".",
        r"\d",
        r"\W",
        r"\S",
    ),
    *(
        "(ab)",
        "(?:a|bc)",
        "(a|b|)",
        "(?i:aB)",
        "(?s:.)",
        "(?-i:a)",
        "(?=a)",
        "(?<!b)",
        r"\b",
        "^",
        "$",
        r"\Z",
        r"(a)\1",
    ),
)
REPEATS = ("", "", "", "*", "+", "?", "{2}", "{1,3}", "*?", "{,2}", "{0}", "{2,}")


def drawn_expression(chosen: random.Random) -> str:
    expression = "".join(chosen.choice(ATOMS) + chosen.choice(REPEATS) for _ in range(chosen.randrange(1, 6)))
    if chosen.random() < 0.2:
        expression += "|" + chosen.choice(ATOMS) + chosen.choice(ATOMS)
    return chosen.choice(("", "", "", "(?i)", "(?s)", "(?m)")) + expression


def test_a_search_finds_what_re_finds():
    chosen = random.Random(7)
    values = [bytes(chosen.choices(b"abcABC01x\n_ \xff", k=size % 12)) for size in range(60)]
    found_by = RecordBatch(write_batch([record(offset, value=value) for offset, value in enumerate(values)]))
    count = with_table = 0
    while count < 5000:
        expression = drawn_expression(chosen)
        pattern = compiled(expression)
        if pattern is None:
            continue
        count += 1
        with_table += table_of(expression.encode()) is not None
        search = re.compile(expression.encode()).search
        expected = [offset for offset, value in enumerate(values) if search(value)]
        found = [one.offset for part in RecordSearch(value_regex=expression).records(found_by) for one in part]
        assert found == expected, expression
    assert with_table > 1500


@pytest.mark.parametrize(
    "expression", ["a*", "^a", "a$", r"\ba", r"(a)\1", "(?=a)b", "a.{300}", "[ab].{9}[ab]", "", "(?L)a"]
)
def test_expression_that_is_no_small_regular_language_has_no_table(expression):
    assert table_of(expression.encode()) is None


def test_match_at_each_place_of_values_of_each_size_is_found():
    search = RecordSearch(value_regex="[xy][0-9]z")
    for size in range(3, 20):
        for at in range(size - 2):
            value = b"." * at + b"y7z" + b"." * (size - at - 3)
            miss = b"." * at + b"y7." + b"." * (size - at - 3)
            data = RecordBatch(write_batch([record(0, value=miss), record(1, value=value), record(2, value=None)]))
            assert [one.offset for part in search.records(data) for one in part] == [1]


def test_match_across_two_records_is_none():
    data = RecordBatch(write_batch([record(0, key=b"k", value=b"ab"), record(1, key=b"cd", value=b"ef")]))
    assert not list(RecordSearch(value_regex="b[^q]*c").records(data))
    assert not list(RecordSearch(key_regex="[e]f").records(data))
    assert [one.offset for (one,) in RecordSearch(key_regex="[c]d").records(data)] == [1]


@pytest.mark.parametrize("table", [b"", bytes(256), bytes(700), bytes([2]) * 512, bytes(257 * 256)])
def test_table_that_leads_out_of_itself_is_refused(table):
    with pytest.raises(ValueError, match="table"):
        RecordMatcher(value_table=table)


def test_an_empty_expression_matches_all_but_null(tmp_path):
    data = write_batch([record(0, b"v", b""), record(1, b"v", None), record(2, None, b"k")])
    with kstore.open_log(write_partition(tmp_path, [[data]])) as log:
        assert [found.offset for found in log.find(kstore.RecordSearch(key_regex=""))] == [0, 2]
        assert [found.offset for found in log.find(kstore.RecordSearch(value_regex=""))] == [0, 1]


def test_log_finds_records_by_their_conditions(tmp_path):
    parts = batches(0, 4, records_per_batch=5)
    with kstore.open_log(write_partition(tmp_path, [parts[:2], parts[2:]])) as log:
        search = kstore.RecordSearch(key_regex="k1[0-9]", headers={"h": None})
        assert [found.offset for found in log.find(search)] == [12, 15, 18]
        assert [found.offset for found in log.find(search, 13, 18)] == [15]
        assert [found.value for found in log.find(kstore.RecordSearch(key=b"k7"))] == [b"v7"]
        assert next(log.find(kstore.RecordSearch(key=b"k6"))).headers == (("h", b"6"),)


def test_records_are_found_beyond_one_part(tmp_path, monkeypatch):
    monkeypatch.setattr("kstore.record.search._MOST_RECORDS", 3)
    with kstore.open_log(write_partition(tmp_path, [[batch(0, 10)]])) as log:
        assert [found.offset for found in log.find(kstore.RecordSearch(key_regex="k"))] == [*range(10)]


def test_messages_that_do_not_match_take_no_room(tmp_path, monkeypatch):
    monkeypatch.setattr("kstore.record.search._MOST_BYTES", 1)
    with kstore.open_log(write_partition(tmp_path, [[batch(0, 10)]])) as log:
        assert [found.offset for found in log.find(kstore.RecordSearch(key_regex="k[5-9]"))] == [*range(5, 10)]


def test_header_of_one_record_is_not_found_in_another(tmp_path):
    data = write_batch([record(0, headers=[(b"a", b"1")]), record(1, headers=[(b"b", b"2")])])
    with kstore.open_log(write_partition(tmp_path, [[data]])) as log:
        assert not [*log.find(kstore.RecordSearch(headers={"a": b"2"}))]
        assert not [*log.find(kstore.RecordSearch(headers={"a": None, "b": None}))]


def test_a_null_matches_no_expression(tmp_path):
    part = write_batch([record(0, None), record(1, b"", b"")])
    with kstore.open_log(write_partition(tmp_path, [[part]])) as log:
        for search in (kstore.RecordSearch(key_regex=""), kstore.RecordSearch(value_regex="")):
            assert [found.offset for found in log.find(search)] == [1]


def test_search_that_is_wrong_is_refused():
    with pytest.raises(ValueError, match="value_regex is no regular expression"):
        kstore.RecordSearch(value_regex="[")
    with pytest.raises(TypeError, match="key must be bytes or None, got str"):
        kstore.RecordSearch(key="text")
