"""How the packages of kstore hang together: `python -m tests.repo.structure`.

For each package, wings included: modules, the most modules in one folder, floors (the longest chain of imports), arrows
(imports between modules of the package), circles (groups of modules that import each other), and modules of fewer than
150 lines that one other module imports. Imports under TYPE_CHECKING and inside of functions count too.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SHORT_LINES = 150

Arrows = Mapping[str, frozenset[str]]


class Structure(NamedTuple):
    """The figures of one package."""

    modules: int
    fullest_folder: int
    floors: int
    arrows: int
    circles: list[list[str]]
    short_with_one_importer: list[str]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def module_paths() -> dict[str, Path]:
    """Return every module of kstore and where it stands."""
    return {module_name(path): path for path in sorted((ROOT / "kstore").rglob("*.py"))}


@cache
def arrows_of(package: str) -> dict[str, frozenset[str]]:
    """Return the modules of a package that each of its modules imports; faces of packages (__init__) are left out."""
    paths = module_paths()
    modules = {
        name: path for name, path in paths.items() if name.startswith(f"{package}.") and path.name != "__init__.py"
    }
    found = {}
    for name, path in modules.items():
        targets = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                targets |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
            elif isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
        found[name] = frozenset(targets & modules.keys() - {name})
    return found


def circles_of(arrows: Arrows) -> list[list[str]]:
    """Return the groups of modules that reach each other."""
    reached = {name: reachable(arrows, name) for name in arrows}
    groups = {frozenset({name} | {other for other in reached[name] if name in reached[other]}) for name in arrows}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def reachable(arrows: Arrows, start: str) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        new = arrows[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def floors_of(arrows: Arrows) -> int:
    """Return how many modules the longest chain of imports has; a circle counts as one module."""
    group = {name: index for index, names in enumerate(circles_of(arrows)) for name in names}
    heights: dict[object, int] = {}

    def height(name: str) -> int:
        key: object = group.get(name, name)
        if key not in heights:
            members = [one for one in arrows if group.get(one, one) == key]
            below = {target for one in members for target in arrows[one] if group.get(target, target) != key}
            heights[key] = 1 + max((height(target) for target in below), default=0)
        return heights[key]

    return max((height(name) for name in arrows), default=0)


def structure_of(package: str) -> Structure:
    """Return the figures of a package."""
    arrows = arrows_of(package)
    paths = module_paths()
    importers = Counter(target for targets in arrows.values() for target in targets)
    folders = Counter(paths[name].parent for name in arrows)
    short = [name for name in arrows if importers[name] == 1 and line_count(paths[name]) < SHORT_LINES]
    return Structure(
        len(arrows),
        max(folders.values(), default=0),
        floors_of(arrows),
        sum(map(len, arrows.values())),
        circles_of(arrows),
        short,
    )


def line_count(path: Path) -> int:
    return len(path.read_text().splitlines())


def packages() -> list[str]:
    """Return the packages of Python modules directly below kstore."""
    folders = {path.parent.name for path in (ROOT / "kstore").glob("*/__init__.py")} - {"core"}
    return sorted(f"kstore.{name}" for name in folders)


if __name__ == "__main__":
    heads = ("package", "modules", "fullest folder", "floors", "arrows", "circles", "short, one importer")
    rows = [heads]
    for one in packages():
        modules, fullest, floors, arrow_count, circles, short_ones = structure_of(one)
        rows.append((one, *map(str, (modules, fullest, floors, arrow_count, len(circles), len(short_ones)))))
    sys.stdout.writelines(f"{row[0]:18}" + "".join(f"{cell:>21}" for cell in row[1:]) + "\n" for row in rows)
