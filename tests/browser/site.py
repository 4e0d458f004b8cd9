"""python -m tests.browser.site SITE [PAGE ...]: look at pages of a site that `make docs` wrote, in Chromium with axe.

Each is opened at three widths, in light and dark; the search, opened from the files without a server, is asked for a
name. Without pages, one of
each kind. --pictures OUT keeps a picture of each look. Exit status: 1 if a page has an error, a request to elsewhere, a
violation or is wider than its window; 77 where Chromium, playwright or axe-playwright-python are missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from tests.browser import MISSING, chromium

WIDTHS = {"phone": 390, "tablet": 820, "desktop": 1280}
KINDS = (
    "index",
    "tutorials/queue",
    "scan",
    "cli",
    "format",
    "glossary",
    "comparison",
    "figures",
    "design",
    "reference/index",
    "reference/command",
    "reference/kstore.Log",
)
SEARCHED = "Log.read"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve a directory on the loopback; yield the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    with server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def finds(opened, page: Path, *, timeout_ms: int) -> str:
    """Return where the first result of a search leads, asked for on a page that is opened from its file."""
    tab = opened.new_page(viewport={"width": 1280, "height": 900})
    tab.goto(page.resolve().as_uri())
    tab.keyboard.press("/")
    tab.keyboard.type(SEARCHED)
    link = tab.locator(f"a[href*='{SEARCHED}'], a[href*='kstore.Log.html']").first
    link.wait_for(timeout=timeout_ms)
    found = link.get_attribute("href")
    tab.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.browser.site", description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("pages", metavar="PAGE", nargs="*", default=KINDS)
    parser.add_argument("--pictures", metavar="OUT", type=Path)
    options = parser.parse_args()
    executable = chromium()
    if executable is None:
        return MISSING
    from tests.browser.looking import LONGEST_WAIT_MS, browser, look_at

    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
    status = 0
    with browser(executable) as opened, served(options.site) as address:
        for name in options.pages:
            for look in look_at(
                opened, f"{address}/{name}.html", pictures=options.pictures, whole=False, widths=WIDTHS
            ):
                is_good = not (look.errors or look.requests or look.violations or look.overflow > 0)
                sys.stdout.write(f"{'good' if is_good else 'bad'} {name} {look}\n")
                status |= not is_good
        first = options.site / "index.html"
        sys.stdout.write(f"good search for {SEARCHED}: {finds(opened, first, timeout_ms=LONGEST_WAIT_MS)}\n")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
