"""Copies of what a build reads, and of the rest of the tree, for tests that build."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE", "docs/kstore.1")
PACKAGES = ("kstore", "pyspark_kstore")
REST = ("tests", "docs", "examples", "bench")
NOT_SOURCES = ("__pycache__", ".work", ".rivals", "data", "*.so")
BUILT = ("*.so", "*.c", "*.html", "__pycache__")


def copy_sources(target: Path) -> Path:
    """Copy the sources into a new directory, without anything that was built, and return it."""
    target.mkdir()
    for name in FILES:
        (target / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, target / name)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns(*BUILT))
    return target


def copy_rest(tree: Path) -> Path:
    """Copy into a copy of the sources what an sdist has besides them, and return it."""
    for name in REST:
        ignore = shutil.ignore_patterns(*NOT_SOURCES)
        shutil.copytree(ROOT / name, tree / name, ignore=ignore, dirs_exist_ok=True)
    for name in ("Makefile", "CONTRIBUTING.md", "SECURITY.md", "requirements-dev.txt", "wheels.yml"):
        shutil.copy(ROOT / name, tree / name)
    return tree


def rest_of_tree() -> set[str]:
    """Return the names of all files of the folders of tests, docs, examples and benches."""
    paths = (path for name in REST for path in (ROOT / name).rglob("*") if path.is_file())
    inner = (path.relative_to(ROOT) for path in paths)
    return {path.as_posix() for path in inner if not set(path.parts) & set(NOT_SOURCES) and path.suffix != ".so"}
