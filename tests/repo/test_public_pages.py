"""Goal: each public name of kstore stands on a page for users, or is not public.
Method: the names of the package against the words in the code of the pages."""

from __future__ import annotations

from tests.repo.public_pages import ROOT, names_without_page


def test_public_names_have_a_page() -> None:
    assert list(names_without_page()) == [], "say what it is on a page of docs/, or make it private"


def test_each_page_about_skipping_says_that_its_names_are_one_thing() -> None:
    sentence = (
        '`on_error="skip"` in Python, `mode=PERMISSIVE` in Spark and `--skip-damaged` of the command are one thing: '
        "damaged batches are left out and reported, and the records after them are read"
    )
    for page in ("cli.md", "durability.md", "export.md", "log.md", "scan.md", "spark.md"):
        assert sentence in " ".join((ROOT / "docs" / page).read_text().split()), page
