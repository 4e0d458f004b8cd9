"""Goal: each public name of kstore stands on a page for users, or is not public.
Method: the names without a page, against a list of those that have none yet, which may only get shorter."""

from __future__ import annotations

from pathlib import Path

from tests.repo.public_pages import ROOT, names_without_page

LISTED = Path(__file__).with_name("without_page.txt")


def test_public_names_have_a_page() -> None:
    listed, missing = LISTED.read_text().splitlines(), list(names_without_page())
    assert sorted(set(missing) - set(listed)) == [], "say what it is on a page of docs/, or make it private"
    assert sorted(set(listed) - set(missing)) == [], "has a page now: take it out of the list"


def test_each_page_about_skipping_says_that_its_names_are_one_thing() -> None:
    sentence = (
        '`on_error="skip"` in Python, `mode=PERMISSIVE` in Spark and `--skip-damaged` of the command are one thing: '
        "damaged batches are left out and reported, and the records after them are read"
    )
    for page in ("cli.md", "durability.md", "export.md", "log.md", "scan.md", "spark.md"):
        assert sentence in " ".join((ROOT / "docs" / page).read_text().split()), page
