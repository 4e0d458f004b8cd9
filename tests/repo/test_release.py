"""Goal: a tag that does not fit the tree, or files that are not those of its version, stop a release; its version is in
one place, and the recipe asks for what the wheel asks for.
Method: trees, lists of files and an sdist that are made here; the recipe and the project's own files read."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import kstore
from tests.making.collecting import over
from tests.making.installing import Environments, run
from tests.repo.release.__main__ import FLIGHTS, SMOKE, main
from tests.repo.release.files import platform_of, wrong_files
from tests.repo.release.recipe import RECIPE, recipe_of
from tests.repo.release.version import left_to_do, version_of

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

pytestmark = pytest.mark.build

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Names of conda-forge that are not those of the index.
NAMES_OF_CONDA = {"python-isal": "isal", "python-confluent-kafka": "confluent-kafka"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree that is ready for v1.2.0."""
    (tmp_path / "kstore").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "kstore" / "__init__.py").write_text('"""kstore."""\n\n__version__ = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## 1.2.0 (2026-12-01)\n\n## 1.1.0 (2026-11-01)\n")
    (tmp_path / "README.md").write_text("pip install kstore\n")
    (tmp_path / "docs" / "index.md").write_text("pip install kstore\n")
    return tmp_path


def test_version_is_written_in_one_place() -> None:
    assert version_of(ROOT) == kstore.__version__
    assert "version" not in PROJECT["project"]
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "kstore.__version__"}
    others = [*ROOT.glob("*.toml"), ROOT / "setup.py", RECIPE, ROOT / "README.md", ROOT / "docs" / "index.md"]
    assert [path.name for path in others if kstore.__version__ in path.read_text()] == []


def test_tag_that_fits_the_tree_leaves_nothing_to_do(tree: Path) -> None:
    assert left_to_do(tree, "v1.2.0") == []


@over("tag", ["v1.2.1", "1.2.0", "v1.2"])
def test_tag_of_another_version_is_refused(tree: Path, tag: str) -> None:
    assert left_to_do(tree, tag) == [f"kstore/__init__.py: expected the version of the tag {tag}, found 1.2.0"]


def test_changelog_without_the_version_and_its_date_is_refused(tree: Path) -> None:
    for heading in ("## 1.2.0 (unreleased)", "## 1.1.0 (2026-11-01)"):
        (tree / "CHANGELOG.md").write_text(f"# Changes\n\n{heading}\n")
        assert left_to_do(tree, "v1.2.0") == [
            f"CHANGELOG.md: expected '## 1.2.0 (YYYY-MM-DD)' as the first heading, found '{heading}'"
        ]


def test_page_that_still_says_that_there_is_no_release_is_refused(tree: Path) -> None:
    (tree / "README.md").write_text("kstore is not on a package index yet.\n")
    assert left_to_do(tree, "v1.2.0") == ["README.md: says 'not on a package index yet'"]


def test_release_of_a_tag_that_does_not_fit_ends_before_anything_is_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--tag", "v0.0.0", "--out", str(tmp_path / "out")]) == 1
    assert "expected the version of the tag v0.0.0" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def files(*names: str) -> list[Path]:
    return [Path(name) for name in names]


WHEELS = [
    f"kstore-1.2.0-{python}-{abi}-{platform}.whl"
    for python, abi in (("cp310", "cp310"), ("cp314", "cp314"), ("cp314", "cp314t"))
    for platform in ("manylinux_2_17_x86_64.manylinux2014_x86_64", "macosx_11_0_arm64")
]


def test_files_of_one_version_for_each_python_on_each_platform_are_a_release() -> None:
    assert wrong_files(files("kstore-1.2.0.tar.gz", *WHEELS), "1.2.0") == []


def test_file_of_another_version_or_kind_is_refused() -> None:
    more = files("kstore-1.1.0-cp310-cp310-macosx_11_0_arm64.whl", "kstore.whl", "notes.txt")
    assert wrong_files([*files("kstore-1.2.0.tar.gz", *WHEELS), *more], "1.2.0") == [
        "kstore-1.1.0-cp310-cp310-macosx_11_0_arm64.whl: expected kstore 1.2.0",
        "kstore.whl: expected a wheel or an sdist",
        "notes.txt: expected a wheel or an sdist",
    ]


def test_wheel_that_one_platform_lacks_is_named() -> None:
    found = wrong_files(files("kstore-1.2.0.tar.gz", *WHEELS[:-1]), "1.2.0")
    assert found == ["no wheel of cp314t for macosx_arm64"]


def test_release_has_one_sdist_and_wheels() -> None:
    assert wrong_files(files(*WHEELS), "1.2.0") == ["expected one sdist, found 0"]
    assert wrong_files(files("kstore-1.2.0.tar.gz"), "1.2.0") == ["no wheel"]


@over(
    "tag, expected",
    [
        ("manylinux2014_x86_64", "manylinux_x86_64"),
        ("manylinux_2_28_aarch64", "manylinux_aarch64"),
        ("musllinux_1_2_x86_64", "musllinux_x86_64"),
        ("macosx_14_0_arm64", "macosx_arm64"),
        ("win_amd64", "win_amd64"),
        ("linux_x86_64", "linux_x86_64"),
    ],
)
def test_platform_has_no_version_of_its_system(tag: str, expected: str) -> None:
    assert platform_of(tag) == expected


def test_recipe_has_version_and_checksum_of_the_sdist(tmp_path: Path) -> None:
    sdist = tmp_path / "kstore-1.2.0.tar.gz"
    sdist.write_bytes(b"source")
    recipe = yaml.safe_load(recipe_of(sdist))
    assert recipe["context"]["version"] == "1.2.0"
    assert recipe["source"]["sha256"] == "41cf6794ba4200b839c53531555f0f3998df4cbb01a4d5cb0b94e3ca5e23947d"


def requirements(lines: list[str]) -> dict[str, str]:
    """Return versions by name as the index has it; those of lines of a recipe, or of pyproject.toml."""
    parsed = [Requirement(line.replace("python ", "python", 1)) for line in lines]
    return {str(canonicalize_name(NAMES_OF_CONDA.get(one.name, one.name))): str(one.specifier) for one in parsed}


def test_recipe_asks_for_what_the_wheel_and_its_extras_ask_for() -> None:
    recipe = yaml.safe_load(RECIPE.read_text())["requirements"]
    extras = PROJECT["project"]["optional-dependencies"]
    run = requirements(recipe["run"])
    assert run.pop("python") == ""
    assert run == requirements([*PROJECT["project"]["dependencies"], *extras["cli"]])
    others = [line for name, lines in extras.items() if name not in ("cli", "bench") for line in lines]
    assert requirements(recipe["run_constraints"]) == requirements(others)
    host = requirements(recipe["host"])
    assert {name: host[name] for name in ("setuptools", "cython")} == requirements(PROJECT["build-system"]["requires"])


@pytest.mark.timeout(900)
def test_recipe_imports_and_runs_what_its_own_requirements_bring(environments: Environments, tmp_path: Path) -> None:
    recipe = yaml.safe_load(RECIPE.read_text())
    python = environments.python("cli")
    imports, script = (test.get("python", test) for test in recipe["tests"])
    run(python, "-c", f"import {', '.join(imports['imports'])}", cwd=tmp_path)
    for source in script["files"]["source"]:
        shutil.copytree(ROOT / source, tmp_path / source)
    for line in script["script"]:
        run(python.parent / line.split()[0], *line.split()[1:], cwd=tmp_path)


def test_smoke_of_a_release_reads_each_partition_that_it_is_given(tmp_path: Path) -> None:
    for partition in FLIGHTS.glob("flights-lz4-*"):
        assert '"records"' in run(sys.executable, SMOKE, partition, cwd=tmp_path, PYTHONPATH=str(ROOT))


def test_tools_of_a_release_are_pinned() -> None:
    lines = (ROOT / "tests" / "repo" / "release" / "tools.txt").read_text().splitlines()
    assert {line for line in lines if not re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line)} == set()
