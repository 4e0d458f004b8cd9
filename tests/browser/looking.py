"""Open a page in Chromium: console errors, requests, axe, and screenshots, in light and dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import NamedTuple
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, sync_playwright

WIDTHS = {"desktop": 1200, "phone": 390}
THEMES = ("light", "dark")
# On a machine with other work.
LONGEST_WAIT_MS = 180_000


class Look(NamedTuple):
    """What a browser says of a page; overflow: how many pixels it is wider than the window."""

    width: str
    theme: str
    errors: tuple[str, ...]
    requests: tuple[str, ...]
    violations: tuple[str, ...]
    overflow: int


@contextmanager
def browser(executable: str) -> Iterator[object]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        try:
            yield opened
        finally:
            opened.close()


def look_at(
    opened, place: Path | str, *, pictures: Path | None = None, whole: bool = True, widths: Mapping[str, int] = WIDTHS
) -> list[Look]:
    """Look at a page in each theme and width, with all of its folds open for axe; save a picture of each if asked.

    place: a file, which may request nothing, or the address of a page, which may request what its server has.
    """
    address = place.resolve().as_uri() if isinstance(place, Path) else place
    own = address if isinstance(place, Path) else f"{address.partition('//')[0]}//{urlsplit(address).netloc}/"
    title = PurePath(urlsplit(address).path).stem
    looks = []
    for theme in THEMES:
        for name, width in widths.items():
            page: Page = opened.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
            page.set_default_timeout(LONGEST_WAIT_MS)
            errors: list[str] = []
            requests: list[str] = []
            page.on("console", lambda message, to=errors: to.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error, to=errors: to.append(str(error)))
            page.on("request", lambda request, to=requests: to.append(request.url))
            page.goto(address)
            if pictures is not None:
                page.screenshot(path=pictures / f"{title}-{name}-{theme}.png", full_page=whole)
            overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
            violations = [
                f"{found['id']}: {found['nodes'][0]['html'][:200]}" for found in Axe().run(page).response["violations"]
            ]
            page.close()
            looks.append(
                Look(
                    name,
                    theme,
                    tuple(errors),
                    tuple(url for url in requests if not url.startswith((own, "data:"))),
                    tuple(violations),
                    overflow,
                )
            )
    return looks
