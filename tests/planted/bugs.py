"""The lists of planted bugs beside this file: one a room, each bug the lines it takes out of the sources and puts in.

    # the behaviour that breaks
    tests: paths or node ids that pytest runs, one of which has to fail
     a line before, where the lines below occur more than once
    -a line as it is
    +the line in its place

The lines before and the lines that go must occur exactly once in the packages, wherever that is; their indentation does
not count, and what comes in their place moves with it. So a list outlives moves of code, and names no file of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

LISTS = Path(__file__).parent
PACKAGES = ("kstore", "pyspark_kstore")
COMPILED = {".pyx", ".pxi", ".h"}
SOURCE_SUFFIXES = {".py", *COMPILED}
NOT_SOURCES = {"_core.c", "_core.html"}


@dataclass(frozen=True, kw_only=True)
class PlantedBug:
    """One bug: its lines before and after, and the tests that have to catch it."""

    room: str
    name: str
    tests: tuple[str, ...]
    lines: tuple[str, ...]
    replacement: tuple[str, ...]

    def place_in(self, sources: Sources) -> Planting:
        """Return the file of a tree with the bug in it.

        Raises: LookupError unless the lines occur exactly once.
        """
        places = sources.places_of(self.lines)
        if len(places) != 1:
            where = ", ".join(f"{path}:{at + 1}" for path, at in places) or "nowhere"
            raise LookupError(f"{self.room}: {self.name}: expected its lines exactly once, found them {where}")
        path, at = places[0]
        lines = sources.lines_of(path)
        shift = indentation(lines[at]) - indentation(self.lines[0])
        lines[at : at + len(self.lines)] = [shifted(line, shift) for line in self.replacement]
        return Planting(path, at + 1, "\n".join(lines) + "\n")


@dataclass(frozen=True)
class Planting:
    """A file with a bug in it, relative to its tree; the line at which the bug begins."""

    path: Path
    line_number: int
    text: str

    @property
    def is_compiled(self) -> bool:
        return self.path.suffix in COMPILED


class Sources:
    """The source files of a tree, as they are now; their paths are relative to it."""

    def __init__(self, tree: Path) -> None:
        paths = [path for name in PACKAGES for path in sorted((tree / name).rglob("*"))]
        self._lines = {
            path.relative_to(tree): path.read_text().splitlines()
            for path in paths
            if path.suffix in SOURCE_SUFFIXES and path.name not in NOT_SOURCES
        }
        self._bare = {path: [line.strip() for line in lines] for path, lines in self._lines.items()}
        self._places: dict[str, list[tuple[Path, int]]] = {}
        for path, lines in self._bare.items():
            for at, line in enumerate(lines):
                self._places.setdefault(line, []).append((path, at))

    def places_of(self, wanted: tuple[str, ...]) -> list[tuple[Path, int]]:
        """Return where a run of lines begins, as files and line numbers from 0, whatever the indentation."""
        needle = [line.strip() for line in wanted]
        starts = self._places.get(needle[0], [])
        return [(path, at) for path, at in starts if self._bare[path][at : at + len(needle)] == needle]

    def lines_of(self, path: Path) -> list[str]:
        return list(self._lines[path])


def indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def shifted(line: str, shift: int) -> str:
    return " " * (indentation(line) + shift) + line.lstrip() if line.strip() else ""


def rooms() -> list[str]:
    return sorted(path.stem for path in LISTS.glob("*.diff"))


def bugs_of(room: str) -> list[PlantedBug]:
    """Read the list of a room.

    Raises: ValueError for an entry that is not whole.
    """
    return parsed(room, (LISTS / f"{room}.diff").read_text())


def parsed(room: str, text: str) -> list[PlantedBug]:
    lines = [line for line in text.splitlines() if line.strip()]
    heads = [at for at, line in enumerate(lines) if line.startswith("#")]
    return [parsed_bug(room, lines[start:end]) for start, end in pairwise([*heads, len(lines)])]


def parsed_bug(room: str, entry: list[str]) -> PlantedBug:
    name = entry[0].lstrip("# ")
    marks = [mark for mark, _ in groupby(entry[2:], key=lambda line: line[0])]
    if len(entry) < 4 or not entry[1].startswith("tests: ") or not set(marks) <= set(" -+") or "-" not in marks:
        raise ValueError(f"{room}: {name}: expected tests, then the lines that go and those that come")
    before = tuple(line[1:] for line in entry[2:] if line[0] in " -")
    after = tuple(line[1:] for line in entry[2:] if line[0] in " +")
    return PlantedBug(room=room, name=name, tests=tuple(entry[1].split()[1:]), lines=before, replacement=after)
