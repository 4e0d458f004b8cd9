"""The API reference, made from the docstrings by pdoc: `python -m tests.repo.api_reference DIRECTORY` (make docs).

Its home is README's first screen. It has the names in `__all__` of each of MODULES, and nothing else. The command fails
if a public name or member has no line of documentation, or if a link of a page leads nowhere.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

import pdoc.doc
from pdoc import render

ROOT = Path(__file__).parents[2]
MODULES = ("kstore", "kstore.aio", "kstore.serializers", "kstore.serve", "kstore.spark", "kstore.testing")
# README up to this line is the home.
SECOND_SCREEN = "\n## Look at a directory"
PROJECT = "https://github.com/kstore-project/kstore"
_RELATIVE_LINK = re.compile(r"(!?\[[^\]]*\]\()(?!https?://|#)([^)]+)\)")
# Module, qualified name and text of a base class, as pdoc finds them.
Base: TypeAlias = tuple[str, str, str]
_BASES = pdoc.doc.Class.bases.func
_PART = re.compile(r"(?:^|(?<=\S)  )(Args|Attributes|Cost|Lifetime|Raises|Returns|Source|Threads):[ \n]", re.MULTILINE)
# What Markdown would take for emphasis, or for a tag, outside of code.
_MARKUP = re.compile(r"(`[^`]*`)|([*_<])")
# Members that hold a docstring of their own, besides functions; any other is a value, whose docstring is its type's.
_DOCUMENTED = (property, functools.cached_property, types.GetSetDescriptorType, classmethod, staticmethod)


def names_without_a_line() -> Iterator[str]:
    """Yield each public name, and each member of a public class, that neither it nor its class says anything of."""
    for module in map(import_module, MODULES):
        for name in _public_names_of(module):
            found = getattr(module, name)
            if not _line_of(found) and (inspect.isclass(found) or callable(found)):
                yield f"{module.__name__}.{name}"
            if inspect.isclass(found):
                yield from (f"{module.__name__}.{name}.{member}" for member in members_without_a_line(found))


def _public_names_of(module: types.ModuleType) -> Iterator[str]:
    """Yield those of `__all__`, or the ones that the module defines itself: what pdoc takes."""
    for name in getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]:
        if hasattr(module, "__all__") or getattr(getattr(module, name), "__module__", None) == module.__name__:
            yield name


def members_without_a_line(kind: type) -> Iterator[str]:
    """Yield the public members that kstore's classes of a class's MRO define, and none of their docstrings names."""
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == "kstore"]
    words = {word for base in bases for word in re.findall(r"\w+", _line_of(base))}
    members = {name for base in bases for name in (*vars(base), *vars(base).get("__annotations__", ()))}
    for name in sorted(members - words):
        member = inspect.getattr_static(kind, name, None)
        has_own = isinstance(member, _DOCUMENTED) or (callable(member) and not inspect.isclass(member))
        if not name.startswith("_") and not (has_own and _line_of(member)):
            yield name


def _line_of(found: object) -> str:
    return getattr(found, "__doc__", None) or ""


def in_parts(docstring: str) -> str:
    """Return a docstring as Markdown, with a paragraph for each of its parts, and a list of the arguments."""
    text = _MARKUP.sub(lambda found: found[1] or f"\\{found[2]}", docstring)
    text = re.sub(r"^    (?=[\w, \\]+: )", "\n- ", text, flags=re.MULTILINE)
    return _PART.sub(r"\n\n**\1:** ", text)


def _own_members(kind: pdoc.doc.Class) -> list[pdoc.doc.Doc]:
    """Return all members that classes of kstore define: pdoc leaves out those of bases that the reference has not."""
    by_origin = kind._members_by_origin.items()
    return [member for (module, _), members in by_origin if module.partition(".")[0] == "kstore" for member in members]


def _public_bases(kind: pdoc.doc.Class, bases: Callable[[pdoc.doc.Class], list[Base]]) -> list[Base]:
    public = {name for module in map(import_module, MODULES) for name in _public_names_of(module)}
    return [base for base in bases(kind) if base[0].partition(".")[0] != "kstore" or base[1] in public]


def write(target: Path) -> None:
    """Write the site to a directory."""
    first_screen = (ROOT / "README.md").read_text().partition(SECOND_SCREEN)[0]

    def absolute(link: re.Match[str]) -> str:
        place = "raw" if link[1].startswith("!") else "blob"
        return f"{link[1]}{PROJECT}/{place}/main/{link[2]})"

    shown = pdoc.doc.Class
    shown.own_members = property(_own_members)
    shown.bases = property(functools.partial(_public_bases, bases=_BASES))
    render.configure(template_directory=Path(__file__).with_name("site"), show_source=False, docformat="markdown")
    render.env.filters["in_parts"] = in_parts
    render.env.globals["home"] = _RELATIVE_LINK.sub(absolute, first_screen)
    modules = {name: pdoc.doc.Module.from_name(name) for name in MODULES}
    with warnings.catch_warnings():
        # Of types that only type checkers import: the reference shows their names.
        warnings.filterwarnings("ignore", message="Error parsing type annotation|Cannot determine where")
        pages = {
            f"{name.replace('.', '/')}.html": render.html_module(module, modules) for name, module in modules.items()
        }
    pages |= {"index.html": render.html_index(modules), "search.js": render.search_index(modules)}
    for name, text in pages.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text)


class _Page(HTMLParser):
    """The anchors of a page, and what it links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what one tag has of both."""
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value and tag != "link":
                self.links.add(value)


def broken_links(site: Path) -> list[str]:
    """Return the links that lead nowhere, each with its page: to other pages, to anchors, and into the project."""
    pages = {path: _Page(path.read_text()) for path in site.rglob("*.html")}
    return [
        f"{path.relative_to(site)}: {link}"
        for path, page in sorted(pages.items())
        for link in sorted(page.links)
        if not _leads_somewhere(link, path, pages)
    ]


def _leads_somewhere(link: str, page: Path, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(link)
    if link.startswith(PROJECT):
        inside = re.sub(r"^/kstore-project/kstore(/(blob|tree|raw)/main)?/?", "", parts.path)
        return (ROOT / inside).exists()
    if parts.scheme:
        return parts.scheme in ("https", "data")
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target not in pages:
        return target.exists()
    return not parts.fragment or unquote(parts.fragment) in pages[target].anchors


def main(directory: str) -> int:
    """Write the site, and print what is wrong with it; return 1 if anything is."""
    target = Path(directory).resolve()
    write(target)
    wrong = [f"says nothing: {name}" for name in names_without_a_line()]
    wrong += [f"leads nowhere: {link}" for link in broken_links(target)]
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    if not wrong:
        sys.stdout.write(f"{target / 'index.html'}\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
