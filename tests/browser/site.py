"""python -m tests.browser.site SITE [PAGE ...]: look at pages of a site that `make docs` wrote, in Chromium with axe.

Each is opened at three widths, in light and dark; without pages, one of each kind, with --all every one. Then the
search is asked what users look for, from a server and from the files without one. --pictures OUT keeps a picture of
each look. Exit status: 1 if a page has an error, a request to elsewhere, a violation or is wider than its window, or if
the three first results of a search are not what is looked for; 77 where Chromium, playwright or axe-playwright-python
are missing.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import quote_plus

from tests.browser import MISSING, chromium

WIDTHS = {"phone": 390, "tablet": 820, "desktop": 1440}
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
# What a user types, and one of the three first results.
SEARCHES = {
    "restore from tiered storage": "tiers.html#restore-from-tiered-storage",
    "__consumer_offsets": "consumer.html#2-the-topic-__consumer_offsets",
    "truncate": "reference/kstore.WritableLog.html#WritableLog.truncate_to",
    "createTopics": "store.html#1-topics",
    "CRC": "format.html#crc",
    "recover": "reference/kstore.html#recover",
    "delta lake": "export.html#6-tables-of-delta-lake-and-iceberg",
    "Log.read": "reference/kstore.Log.html#Log.read",
}
FIRST_RESULTS = 3


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


def found(opened, site: str, words: str, *, timeout_ms: int) -> list[str]:
    """Return where the first results of a search lead, asked for on the first page of a site at an address."""
    tab = opened.new_page(viewport={"width": WIDTHS["desktop"], "height": 900})
    tab.set_default_timeout(timeout_ms)
    tab.goto(f"{site}/index.html")
    tab.keyboard.press("/")
    tab.get_by_placeholder("Search").last.fill(words)
    # A link has the words that it was found by.
    links = tab.locator(f"a[href*='?h={quote_plus(words)}#'], a[href$='?h={quote_plus(words)}']")
    links.first.wait_for()
    targets = links.evaluate_all("links => links.map(link => link.href)")
    tab.close()
    return [re.sub(r"\?h=[^#]*", "", target.removeprefix(f"{site}/")) for target in targets[:FIRST_RESULTS]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.browser.site", description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("pages", metavar="PAGE", nargs="*", default=KINDS)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--pictures", metavar="OUT", type=Path)
    options = parser.parse_args()
    executable = chromium()
    if executable is None:
        return MISSING
    from tests.browser.looking import LONGEST_WAIT_MS, browser, look_at

    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
    status = 0
    every = (str(path.relative_to(options.site).with_suffix("")) for path in sorted(options.site.rglob("*.html")))
    with browser(executable) as opened, served(options.site) as address:
        for name in every if options.all else options.pages:
            for look in look_at(
                opened, f"{address}/{name}.html", pictures=options.pictures, whole=False, widths=WIDTHS
            ):
                is_good = not (look.errors or look.requests or look.violations or look.overflow > 0)
                sys.stdout.write(f"{'good' if is_good else 'bad'} {name} {look}\n")
                status |= not is_good
        for site in (address, options.site.resolve().as_uri()):
            for words, wanted in SEARCHES.items():
                results = found(opened, site, words, timeout_ms=LONGEST_WAIT_MS)
                is_good = wanted in results
                sys.stdout.write(f"{'good' if is_good else 'bad'} search for {words} at {site}: {', '.join(results)}\n")
                status |= not is_good
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
