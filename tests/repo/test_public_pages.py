"""Goal: each public name of kstore stands on a page for users, or is not public.
Method: the names without a page, against a list of those that have none yet, which may only get shorter."""

from __future__ import annotations

from pathlib import Path

from tests.repo.public_pages import names_without_page

LISTED = Path(__file__).with_name("without_page.txt")


def test_public_names_have_a_page() -> None:
    listed, missing = LISTED.read_text().splitlines(), list(names_without_page())
    assert sorted(set(missing) - set(listed)) == [], "say what it is on a page of docs/, or make it private"
    assert sorted(set(listed) - set(missing)) == [], "has a page now: take it out of the list"
