"""python -m tests.browser: look at a report's page in Chromium, in light and dark, wide and narrow, with axe.

Exit status: 1 if it has an error, a request, a violation or is wider than its window; 77 where Chromium, playwright or
axe-playwright-python are missing.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from shutil import which

import kstore
from tests.making.batches import batch, flip_bit, write_root

MISSING = 77


def main() -> int:
    executable = which("chromium") or which("google-chrome")
    try:
        from tests.browser.looking import browser, look_at
    except ModuleNotFoundError as error:
        sys.stderr.write(f"needs {error.name}: pip install playwright axe-playwright-python\n")
        return MISSING
    if executable is None:
        sys.stderr.write("needs chromium\n")
        return MISSING
    status = 0
    with tempfile.TemporaryDirectory() as name, browser(executable) as opened:
        page = Path(name) / "report.html"
        kstore.report(_root(Path(name) / "logs")).save(page)
        for look in look_at(opened, page):
            is_good = not (look.errors or look.requests or look.violations or look.overflow > 0)
            sys.stdout.write(f"{'good' if is_good else 'bad'} {look}\n")
            status |= not is_good
    return int(status)


def _root(path: Path) -> Path:
    """Make a root of a sound and a damaged partition."""
    path.mkdir()
    root = write_root(
        path, {"sound-0": [[batch(0, 10), batch(12, 5)], [batch(17, 3)]], "damaged-0": [[batch(0, 10), batch(10, 5)]]}
    )
    flip_bit(next((path / "damaged-0").glob("*.log")), 100, bit=0)
    return root


if __name__ == "__main__":
    sys.exit(main())
