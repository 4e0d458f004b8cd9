"""Where the links of a site lead, and which hosts its pages ask for a part of themselves."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.repo.site.pages import PROJECT, ROOT

# The elements that a browser fetches by itself, and the attribute with the address.
_FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data", "link": "href"}
# Relations of <link> that are only said, not fetched.
_SAID = {"canonical", "alternate", "next", "prev", "author", "license"}
_OF_STYLES = re.compile(r"(?:@import\s+|url\()[\"']?((?:https?:)?//[^\"')\s]+)")


class _Page(HTMLParser):
    """The anchors of a page, what it links to, and what it is made of: each an address."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.parts: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what one tag has of each."""
        values = {name: value for name, value in attrs if value}
        if "id" in values:
            self.anchors.add(values["id"])
        if tag != "link":
            self.links.update(values[name] for name in ("href", "src") if name in values)
        if tag in _FETCHED and _FETCHED[tag] in values and values.get("rel") not in _SAID:
            self.parts.add(values[_FETCHED[tag]])


def pages_of(site: Path) -> dict[Path, _Page]:
    return {path: _Page(path.read_text()) for path in site.rglob("*.html")}


def broken_links(site: Path) -> list[str]:
    """Return the links that lead nowhere, each with its page: to other pages, to anchors, and into the project."""
    pages = pages_of(site)
    return [
        f"{path.relative_to(site)}: {link}"
        for path, page in sorted(pages.items())
        for link in sorted(page.links)
        if not _leads_somewhere(link, path, pages, site=site)
    ]


def _leads_somewhere(link: str, page: Path, pages: dict[Path, _Page], *, site: Path) -> bool:
    parts = urlsplit(link)
    if link.startswith(PROJECT):
        inside = re.sub(r"^/kstore-project/kstore(/(blob|tree|raw)/main)?/?", "", parts.path)
        return (ROOT / inside).exists()
    if parts.scheme:
        return parts.scheme in ("https", "data")
    # What stands at an address that is not there, 404.html, has its links from the root of the site.
    base, path = (site, parts.path[1:]) if parts.path.startswith("/") else (page.parent, parts.path)
    target = (base / unquote(path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if target not in pages:
        return target.exists()
    return not parts.fragment or unquote(parts.fragment) in pages[target].anchors


def requested_hosts(site: Path) -> list[str]:
    """Return what pages and style sheets fetch from elsewhere, each with its file."""
    found = [
        f"{path.relative_to(site)}: {part}"
        for path, page in sorted(pages_of(site).items())
        for part in sorted(page.parts)
        if part.startswith(("http:", "https:", "//"))
    ]
    for path in sorted(site.rglob("*.css")):
        found += [f"{path.relative_to(site)}: {address}" for address in _OF_STYLES.findall(path.read_text())]
    return found
