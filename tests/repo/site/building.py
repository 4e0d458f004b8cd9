"""The build: pages written to a directory, and made into HTML by Zensical, for which a warning is an error."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.repo.site import command, reference
from tests.repo.site.pages import write_pages
from tests.repo.site.searching import rank

HERE = Path(__file__).parent
CONFIGURATION = HERE / "zensical.toml"
# What goes beside the pages.
STYLES, SCRIPT, WORKER = HERE / "extra.css", HERE / "extra.js", HERE / "file-worker.js"
# What Zensical has pages fetch where a site is also to be read from files, in the place of which they get WORKER.
_SHIM = "https://unpkg.com/iframe-worker/shim"
# The corner of a table is no heading; Markdown has nothing else for it.
_EMPTY_HEADING = re.compile(r"<th([^>]*)></th>")
# A bar in the code of a table's cell is written as \|, which GitHub shows as a bar and Python-Markdown as it is.
_CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)


class BuildError(Exception):
    """The site could not be built, or not without a warning."""


def navigation(pages: Sequence[str], *, text: str) -> str:
    """Return the configuration, with each "FOLDER/*.md" of its navigation as the pages there that it does not name."""
    for line in text.splitlines():
        folder = line.strip().removesuffix('/*.md",').removeprefix('"')
        if line.strip() == f'"{folder}/*.md",':
            found = [page for page in pages if Path(page).parent.as_posix() == folder and f'"{page}"' not in text]
            text = text.replace(line.strip(), " ".join(f'"{page}",' for page in found))
    return text


def with_cells_as_on_github(page: str) -> str:
    """Return the HTML of a page, with no heading that is empty and no backslash before a bar in a table."""
    page = _EMPTY_HEADING.sub(r"<td\1></td>", page)
    return _CELL.sub(lambda cell: cell[0].replace("\\|", "|"), page)


def build(target: Path, scratch: Path) -> None:
    """Write the site to `target`; scratch: an empty directory for the pages.

    Raises: BuildError with what Zensical says.
    """
    pages = scratch / "pages"
    write_pages(pages)
    for name, text in {**reference.pages(), "command.md": command.page()}.items():
        (pages / "reference" / name).parent.mkdir(exist_ok=True)
        (pages / "reference" / name).write_text(text)
    for path in (STYLES, SCRIPT, WORKER):
        shutil.copy(path, pages)
    names = sorted(path.relative_to(pages).as_posix() for path in pages.rglob("*.md"))
    configuration = navigation(names, text=CONFIGURATION.read_text())
    if lost := [name for name in names if f'"{name}"' not in configuration]:
        raise BuildError(f"in no part of the navigation of {CONFIGURATION.name}: {', '.join(lost)}")
    (scratch / "zensical.toml").write_text(configuration)
    arguments = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(
        arguments,
        cwd=scratch,
        env={**os.environ, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode or "arning" in done.stdout:
        raise BuildError(done.stdout)
    for path in (scratch / "site").rglob("*.html"):
        base = os.path.relpath(scratch / "site", path.parent)
        text = path.read_text().replace(_SHIM, f"{base}/{WORKER.name}")
        path.write_text(with_cells_as_on_github(text))
    rank(scratch / "site")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(scratch / "site", target)
