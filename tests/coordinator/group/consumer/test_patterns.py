"""Goal: a pattern matches what RE2 matches, and takes no more time than the name is long.
Method: tables, random expressions against Python's re, expressions on which re would hang."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.coordinator.group.consumer.patterns import Pattern, PatternError

MATCHES = [
    ("orders", "orders", "orders2"),
    ("(^re.*)", "rex-a", "are"),
    ("(^a.*)|(^b$)", "b", "bb"),
    ("^(?:a|b)+$", "abba", "abc"),
    ("a{2}", "aa", "aaa"),
    ("a{2,}", "aaaa", "a"),
    ("(ab){1,2}?", "abab", "ababab"),
    ("a{,2}", "a{,2}", "aa"),
    ("x{", "x{", "x"),
    ("[a-c_-]+", "a-_c", "d"),
    ("[^a-c]", "d", "a"),
    ("[]a]+", "]a", "b"),
    ("[^]]", "a", "]"),
    ("[[:alpha:][:digit:]]+", "a1", "-"),
    ("[[:^alpha:]]", "1", "a"),
    (r"[\d.]+", "1.2", "a"),
    (r"\w+\.\S", "a_1.x", "a.x "),
    (r"\D\W", "a-", "1a"),
    (r"\Qa.b\Ec", "a.bc", "axbc"),
    (r"\x41\x{42}", "AB", "ab"),
    (r"\Aa\z", "a", "aa"),
    ("(?i)Orders-[a-c]", "ORDERS-B", "orders-d"),
    ("(?i:a)b", "Ab", "AB"),
    ("a(?i)b|c", "aB", "Ab"),
    (r"a.c", "abc", "a\nc"),
    (r"(?s)a.c", "a\nc", "ac"),
    ("(?P<one>a)(?<two>b)", "ab", "ba"),
    ("", "", "a"),
    ("a||b", "", "c"),
    ("a^b|a$", "a", "ab"),
    ("a$b|c$", "c", "ab"),
    ("é+", "éé", "e"),
]
REFUSED = [
    *("(", ")", "a)", "[", "[a", "[a-", "[b-a]", r"[a-\d]", "[[:no:]]", "*a", "a**", "a{2}{3}", "a{2,1}", "a{1001}"),
    *("\\", r"\p{L}", r"\b", r"\1", r"\C", r"\xg0", r"\x{110000}"),
    *("(?", "(?=a)", "(?<!a)", "(?P<>a)", "(?P<a-b>c)", "(?m)a"),
]


@pytest.mark.parametrize(("source", "text", "other"), MATCHES)
def test_a_pattern_matches_whole_names(source, text, other):
    pattern = Pattern(source)
    assert pattern.matches(text)
    assert not pattern.matches(other)


@pytest.mark.parametrize("source", REFUSED)
def test_what_is_no_expression_or_not_known_is_refused(source):
    with pytest.raises(PatternError):
        Pattern(source)


@pytest.mark.parametrize("source", ["(a{1000}){1000}", "((){1000}){1000}", "(" * 200 + ")" * 200, "a" * 3000])
def test_an_expression_that_would_grow_too_large_is_refused(source):
    with pytest.raises(PatternError):
        Pattern(source)


@pytest.mark.parametrize("source", ["(a*)*b", "(a|a)*b", "(a|aa)+b", "(.*)(.*)(.*)(.*)(.*)b", "(a?){100}a{100}b"])
def test_no_expression_takes_exponential_time(source):
    assert not Pattern(source).matches("a" * 249)


atoms = st.sampled_from(["a", "b", "-", ".", "[ab]", "[^a]", r"\w", r"\d", r"\."])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}"])).map(
            lambda one: f"(?:{one[0]}){one[1]}"
        ),
        inner.map(lambda part: f"^{part}"),
        inner.map(lambda part: f"{part}$"),
    ),
    max_leaves=8,
)


@given(patterns, st.lists(st.text("ab-.1", max_size=6), max_size=8))
def test_a_pattern_matches_as_python_does(source, texts):
    pattern = Pattern(source)
    for text in texts:
        assert pattern.matches(text) == bool(re.fullmatch(source.replace("$", r"\Z"), text)), (source, text)
