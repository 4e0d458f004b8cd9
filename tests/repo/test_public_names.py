"""Goal: no public name of kstore goes, and none comes unnoticed.
Method: the names and parameters that the package has, against the list that users may rely on."""

from __future__ import annotations

from pathlib import Path

from tests.repo.public_names import public_names

LISTED = Path(__file__).with_name("public_names.txt")


def test_public_names_and_their_parameters_are_those_listed() -> None:
    listed, found = LISTED.read_text().splitlines(), list(public_names())
    assert sorted(set(listed) - set(found)) == [], "went, or has other parameters"
    assert sorted(set(found) - set(listed)) == [], "came: add it to the list (python -m tests.repo.public_names)"
