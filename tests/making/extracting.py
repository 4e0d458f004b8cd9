"""Unpacks the archives of the tests, also where Python has no extraction filters yet (before 3.10.12 and 3.11.4)."""

from __future__ import annotations

import tarfile
from pathlib import Path


def extract(packed: Path, target: Path) -> None:
    """Unpack an archive, in whatever codec, into a directory."""
    with tarfile.open(packed) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(target, filter="data")
        else:
            archive.extractall(target)
