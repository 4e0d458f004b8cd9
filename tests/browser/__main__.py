"""python -m tests.browser [DIR ...]: look at the pages of reports in Chromium, in light and dark, wide and narrow, with
axe.

Without directories, the pages are those of a damaged root and of five that brokers wrote. --pictures OUT keeps a
picture of each look. Exit status: 1 if a page has an error, a request, a violation or is wider than its window; 77
where Chromium, playwright or axe-playwright-python are missing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import kstore
from tests.browser import MISSING, chromium
from tests.golden.sets import unpack
from tests.making.batches import batch, flip_bit, write_root

GOLDEN = (
    ("main-4.4.0", "data"),
    ("mixed-2.8.2", "data"),
    ("sigkill-4.4.0", "after-running"),
    ("cleaning-4.4.0", "after"),
    ("recovery-2.8.2", "before"),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.browser", description=__doc__)
    parser.add_argument("directories", metavar="DIR", nargs="*", type=Path)
    parser.add_argument("--pictures", metavar="OUT", type=Path)
    options = parser.parse_args()
    executable = chromium()
    if executable is None:
        return MISSING
    from tests.browser.looking import browser, look_at

    status = 0
    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, browser(executable) as opened:
        given = {directory.resolve().name: directory for directory in options.directories}
        for title, directory in (given or _roots(Path(name) / "damaged")).items():
            page = Path(name) / f"{title}.html"
            kstore.report(directory).save(page)
            for look in look_at(opened, page, pictures=options.pictures):
                is_good = not (look.errors or look.requests or look.violations or look.overflow > 0)
                sys.stdout.write(f"{'good' if is_good else 'bad'} {title} {look}\n")
                status |= not is_good
    return int(status)


def _roots(path: Path) -> dict[str, Path]:
    """Return roots by name: one that is made at `path`, of a sound and a damaged partition, and those of brokers."""
    path.mkdir()
    root = write_root(
        path, {"sound-0": [[batch(0, 10), batch(12, 5)], [batch(17, 3)]], "damaged-0": [[batch(0, 10), batch(10, 5)]]}
    )
    flip_bit(next((path / "damaged-0").glob("*.log")), 100, bit=0)
    return {"damaged": root} | {f"{name}-{tree}": unpack(name, "trees") / tree for name, tree in GOLDEN}


if __name__ == "__main__":
    sys.exit(main())
