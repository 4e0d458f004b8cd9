"""Goal: the tutorial of FastAPI prints what it shows. tests/repo/test_snippets.py runs the other ones.
Method: its blocks in their order, in one process of this environment, which has FastAPI."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.repo.snippets import ROOT, RUNNER, difference, snippets_of


def test_tutorial_of_fastapi_prints_what_it_shows() -> None:
    pytest.importorskip("fastapi.testclient")
    snippets = snippets_of(ROOT / "docs" / "tutorials" / "fastapi.md")
    assert len(snippets) >= 5
    given = json.dumps([(snippet.kind, snippet.code) for snippet in snippets])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", RUNNER], input=given, env=environment, capture_output=True, text=True, check=True
    )
    results = json.loads(done.stdout.splitlines()[-1])
    assert [error for _, error in results if error] == []
    assert [difference(snippet, printed) for snippet, (printed, _) in zip(snippets, results, strict=True)] == [
        None
    ] * len(snippets)
