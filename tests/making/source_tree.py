"""A copy of what a build reads, for tests that build."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE")
PACKAGES = ("kstore", "pyspark_kstore")
BUILT = ("*.so", "*.c", "*.html", "__pycache__")


def copy_sources(target: Path) -> Path:
    """Copy the sources into a new directory, without anything that was built, and return it."""
    target.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, target / name)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns(*BUILT))
    return target
