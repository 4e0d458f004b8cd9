"""Goal: what README.md and docs tell people to type works once they installed what the page says, and prints what is
shown.
Method: install the wheel, once for each extra, into an empty environment that is not activated; there, on a copy of
examples, run each snippet of README.md by itself and those of another page in their order; compare the outputs. The
first page of the site is run in an empty directory."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest

from tests.conftest import SHORT_JVM
from tests.making.installing import Environments
from tests.repo.snippets import (
    NOT_RUN,
    PAGES,
    ROOT,
    Snippet,
    difference,
    run_commands,
    run_python,
    snippets_of,
)

pytestmark = [pytest.mark.build, pytest.mark.timeout(900)]

SNIPPETS = [snippet for path in PAGES for snippet in snippets_of(path)]
# The first page of the site is typed from top to bottom, commands and Python, with what its first lines install.
FIRST_PAGE, FIRST_PAGE_EXTRAS = "docs/index.md", "arrow,cli,spark"
MOST_CHARACTERS = 3000
# What saves time and does not change what a snippet prints.
SPARK_SETTINGS = """
spark.ui.enabled false
spark.ui.showConsoleProgress false
spark.sql.shuffle.partitions 1
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
"""


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """The directory in which a reader of the pages types."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a shell in which no environment is activated: its python3 has no kstore."""
    directory = tmp_path_factory.mktemp("shell")
    (directory / "spark-defaults.conf").write_text(SPARK_SETTINGS)
    base = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    (directory / "python3").symlink_to(base)
    dropped = ("PYTHON", "PYSPARK", "VIRTUAL_ENV", "SPARK", "KSTORE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    spark = {"SPARK_CONF_DIR": str(directory), "SPARK_SUBMIT_OPTS": SHORT_JVM, "SPARK_LAUNCHER_OPTS": SHORT_JVM}
    return {**kept, **spark, "PATH": f"{directory}{os.pathsep}{kept['PATH']}"}


def told(wrong: Sequence[str]) -> str:
    return "\n\n".join(text[:MOST_CHARACTERS] for text in wrong)


@pytest.mark.parametrize("extra", ["none", "arrow", pytest.param("spark", marks=pytest.mark.spark)])
def test_python_snippets_run_with_the_extra_they_need(
    environments: Environments, reader: Path, variables: dict[str, str], extra: str
) -> None:
    wrong = []
    for group in groups_of(extra):
        wrong += run_python(environments.python(extra), group, cwd=reader, environment=variables)
    assert not wrong, told(wrong)


def groups_of(extra: str) -> list[list[Snippet]]:
    """Return the snippets that share a process: each of README.md by itself, a page of docs as a whole.

    Those for Spark are one group, which starts one JVM; that of README.md comes first.
    """
    rank = ["none", "arrow", "spark"]
    pages: dict[str, list[Snippet]] = {}
    for snippet in SNIPPETS:
        if snippet.kind != "shell" and snippet.why_not_run is None and snippet.page != FIRST_PAGE:
            pages.setdefault(snippet.place if snippet.page == "README.md" else snippet.page, []).append(snippet)
    groups = [group for group in pages.values() if max(rank.index(found.extra) for found in group) == rank.index(extra)]
    return [[snippet for group in groups for snippet in group]] if extra == "spark" else groups


@pytest.mark.spark
def test_first_page_works_from_top_to_bottom_in_an_empty_directory(
    environments: Environments, tmp_path: Path, variables: dict[str, str]
) -> None:
    python = environments.python(FIRST_PAGE_EXTRAS)
    environment = {**variables, "PATH": f"{python.parent}{os.pathsep}{variables['PATH']}"}
    snippets = [snippet for snippet in SNIPPETS if snippet.page == FIRST_PAGE]
    assert {snippet.kind for snippet in snippets} == {"shell", "python"}
    wrong = []
    for kind, group in groupby(snippets, key=lambda snippet: snippet.kind):
        if kind == "shell":
            wrong += run_commands(list(group), cwd=tmp_path, environment=environment)
        else:
            wrong += run_python(python, list(group), cwd=tmp_path, environment=environment)
    assert not wrong, told(wrong)


@pytest.mark.parametrize(
    "page", sorted({snippet.page for snippet in SNIPPETS if snippet.kind == "shell"} - {FIRST_PAGE})
)
def test_commands_print_what_the_page_shows(
    environments: Environments, reader: Path, variables: dict[str, str], page: str
) -> None:
    shell = [snippet for snippet in SNIPPETS if (snippet.page, snippet.kind) == (page, "shell")]
    extras = ",".join(sorted({extra for snippet in shell for extra in snippet.extra.split(",")}))
    path = f"{environments.python(extras).parent}{os.pathsep}{variables['PATH']}"
    run = [snippet for snippet in shell if snippet.why_not_run is None]
    wrong = run_commands(run, cwd=reader, environment={**variables, "PATH": path})
    assert not wrong, told(wrong)


@pytest.mark.parametrize(("page", "start"), NOT_RUN)
def test_snippet_that_is_not_run_is_on_its_page(page: str, start: str) -> None:
    assert [snippet for snippet in SNIPPETS if snippet.is_at(page, start)]


def test_pages_have_snippets_of_every_kind() -> None:
    assert {(snippet.page, snippet.kind) for snippet in SNIPPETS} >= {
        ("README.md", "python"),
        ("README.md", "shell"),
        ("docs/cli.md", "shell"),
        ("docs/producer.md", "python"),
        ("docs/spark.md", "python"),
        ("docs/spark.md", "sql"),
    }
    assert {snippet.extra for snippet in SNIPPETS} == {"none", "arrow", "spark", "cli", "cli,arrow", "cli,delta"}


def test_output_is_compared_line_by_line_and_dots_stand_for_anything() -> None:
    snippet = Snippet("page", 1, "shell", "kstore x", "a  b\n/.../c\n")
    assert difference(snippet, "a  b\n/tmp/x/c\n") is None
    assert "+ a b" in (difference(snippet, "a b\n/tmp/x/c\n") or "")
    assert difference(snippet._replace(shown=None), "anything") is None
