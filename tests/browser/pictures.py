"""python -m tests.browser.pictures [NAME=DIR ...]: draw docs/pictures/report-*.png, the pictures of docs/report.md.

The pages are those of roots that brokers wrote, and of the roots that are named: what a reader sees of each first, on a
desktop and on a phone, in light and dark. Exit status: 77 where Chromium, playwright or axe-playwright-python are
missing.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import kstore
from tests.browser import MISSING, chromium
from tests.golden.sets import unpack

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
# The name of the picture, the set and the root in it.
GOLDEN = {"transactions": ("main-4.4.0", "data"), "crash": ("sigkill-4.4.0", "after-running")}
# The root that is drawn in each look; the others are drawn in the first one.
WHOLE = "transactions"


class Look(NamedTuple):
    """How a page is looked at: the window, in pixels, and the theme."""

    name: str
    width: int
    height: int
    theme: str


LOOKS = (Look("light", 1200, 1900, "light"), Look("dark", 1200, 1900, "dark"), Look("phone", 390, 1500, "light"))


def draw(opened, page: Path, looks: Sequence[Look]) -> None:
    """Save what a reader sees of a page first, in each look."""
    for look in looks:
        tab = opened.new_page(viewport={"width": look.width, "height": look.height}, color_scheme=look.theme)
        tab.goto(page.as_uri())
        target = PICTURES / f"report-{page.stem}-{look.name}.png"
        tab.screenshot(path=target)
        sys.stdout.write(f"{target.name}: {target.stat().st_size:,} bytes\n")
        tab.close()


def main() -> int:
    executable = chromium()
    if executable is None:
        return MISSING
    from tests.browser.looking import browser

    roots = {name: unpack(title, "trees") / inner for name, (title, inner) in GOLDEN.items()}
    roots |= {name: Path(directory).resolve() for name, _, directory in (word.partition("=") for word in sys.argv[1:])}
    with tempfile.TemporaryDirectory() as scratch, browser(executable) as opened:
        for name, root in roots.items():
            page = Path(scratch) / f"{name}.html"
            page.write_text(kstore.report(root).html.replace(str(root), f"/var/lib/{name}"))
            draw(opened, page, LOOKS if name == WHOLE else LOOKS[:1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
