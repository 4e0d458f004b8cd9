"""The recipe for conda-forge, with the version and the checksum of the sdist of a release."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from packaging.utils import parse_sdist_filename

RECIPE = Path(__file__).resolve().parents[3] / "examples" / "conda" / "recipe.yaml"


def recipe_of(sdist: Path) -> str:
    """Return the text of the recipe for an sdist."""
    _, version = parse_sdist_filename(sdist.name)
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    lines = [line for line in RECIPE.read_text().splitlines(keepends=True) if not line.startswith("#")]
    text = re.sub(r'^  version: "[^"]*"$', f'  version: "{version}"', "".join(lines), count=1, flags=re.MULTILINE)
    return re.sub(r'^  sha256: "[^"]*"$', f'  sha256: "{digest}"', text, count=1, flags=re.MULTILINE)
