"""Goal: pages that need FastAPI or confluent-kafka print what they show. tests/repo/test_snippets.py runs the others.
Method: the blocks of each in their order, in one process of this environment, which has what they need; the tests that
a page shows, in a file of their own with pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.snippets import ROOT, RUNNER, difference, snippets_of

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize(
    ("page", "needed", "least"),
    [
        ("tutorials/fastapi.md", "fastapi.testclient", 5),
        ("tutorials/serve.md", "confluent_kafka", 5),
        ("testing.md", "confluent_kafka", 2),
    ],
)
def test_page_prints_what_it_shows(page: str, needed: str, least: int) -> None:
    pytest.importorskip(needed)
    snippets = [snippet for snippet in snippets_of(ROOT / "docs" / page) if snippet.kind == "python"]
    assert len(snippets) >= least
    given = json.dumps([(snippet.kind, snippet.code) for snippet in snippets])
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=given,
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    results = json.loads(done.stdout.splitlines()[-1])
    assert [error for _, error in results if error] == []
    assert [difference(snippet, printed) for snippet, (printed, _) in zip(snippets, results, strict=True)] == [
        None
    ] * len(snippets)


def test_tests_that_a_tutorial_shows_pass(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    blocks = [snippet.code for snippet in snippets_of(ROOT / "docs" / "tutorials" / "serve.md")]
    shown = [code for code in blocks if "def publish(" in code or "def test_" in code]
    (tmp_path / "test_orders.py").write_text("\n".join(["from confluent_kafka import Producer\n", *shown]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_orders.py"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
