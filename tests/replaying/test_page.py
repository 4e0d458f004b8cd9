"""Goal: the page about replays says what happens.
Method: its snippets are run, and their output is compared with the page's."""

from __future__ import annotations

import contextlib
import io

import pytest

from tests.repo.snippets import ROOT, Snippet, difference, snippets_of

SNIPPETS = [each for each in snippets_of(ROOT / "docs" / "replay.md") if each.kind == "python"]


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: str(snippet.line))
def test_a_snippet_of_the_page_prints_what_the_page_shows(snippet: Snippet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(snippet.code, "<snippet>", "exec"), {})
    assert difference(snippet, printed.getvalue()) is None


def test_the_page_has_snippets() -> None:
    assert SNIPPETS
