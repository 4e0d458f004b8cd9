"""Which figures moved by more than their spread since the results before, printed by `python -m bench report`.

The results before a file of bench/results are those of the last commit in which it had another content.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """A figure of one run, and its least and greatest round. is_cost: whether less is better."""

    value: float
    least: float
    greatest: float
    is_cost: bool

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.least:.3g}-{self.greatest:.3g}]"


class Move(NamedTuple):
    """A figure that moved: which, what it was, what it is now, and whether another processor measured it."""

    workload: str
    case: str
    name: str
    before: Figure
    now: Figure
    is_elsewhere: bool

    @property
    def is_better(self) -> bool:
        return (self.now.value < self.before.value) is self.now.is_cost

    def __str__(self) -> str:
        verdict = "better" if self.is_better else "WORSE"
        where = " (another processor)" if self.is_elsewhere else ""
        return f"{verdict}  {self.workload}: {self.case}: {self.name}: {self.before} -> {self.now}{where}"


def _ratios(case: dict[str, Any]) -> Iterator[tuple[str, Figure]]:
    by_name = {samples["contestant"]: samples for samples in case["samples"]}
    for ratio in case["ratios"]:
        clock = ratio.get("by", "wall")
        of, to = (by_name[ratio[part]][clock] for part in ("of", "to"))
        rounds = [a / b for a, b in zip(of, to, strict=True)]
        value = ratio["cpu_ratio" if clock == "cpu" else "ratio"]
        yield f"{ratio['of']} / {ratio['to']}", Figure(value, min(rounds), max(rounds), is_cost=False)


def _bounds(case: dict[str, Any]) -> Iterator[tuple[str, Figure]]:
    for bound in case["bounds"]:
        values = bound["values"]
        name = f"{bound['name']}, {bound['unit']}"
        yield name, Figure(median(values), min(values), max(values), is_cost=True)


def figures_of(content: dict[str, Any]) -> dict[tuple[str, str], Figure]:
    """Return the figures of a file of results by case and name."""
    return {
        (case["title"].split(":")[0], name): figure
        for case in content["cases"]
        for name, figure in (*_ratios(case), *_bounds(case))
    }


def moves(workload: str, before: dict[str, Any], now: dict[str, Any]) -> list[Move]:
    """Return the figures of both runs of which neither value lies within the rounds of the other run."""
    found, known = [], figures_of(before)
    is_elsewhere = any(before["machine"][fact] != now["machine"][fact] for fact in ("processor", "caches"))
    for (case, name), figure in figures_of(now).items():
        old = known.get((case, name))
        if old is None or old.least <= figure.value <= old.greatest or figure.least <= old.value <= figure.greatest:
            continue
        found.append(Move(workload, case, name, old, figure, is_elsewhere))
    return found


def _git(path: Path, *arguments: str) -> str:
    command = ["git", "-C", str(path.parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def content_before(path: Path) -> dict[str, Any] | None:
    """Return what a file of results had before; None without a repository or an earlier content."""
    try:
        commits = _git(path, "log", "--format=%H", "--", path.name).split()
        for commit in commits:
            text = _git(path, "show", f"{commit}:./{path.name}")
            if text != path.read_text():
                found: dict[str, Any] = json.loads(text)
                return found
    except (OSError, subprocess.CalledProcessError):
        return None
    return None


def report(directory: Path) -> list[str]:
    """Return lines that say what moved in each file of results, worst first."""
    found: list[Move] = []
    compared = 0
    for path in sorted(directory.glob("*.json")):
        before = content_before(path)
        if before is not None:
            compared += 1
            found += moves(path.stem, before, json.loads(path.read_text()))
    heading = f"{len(found)} figures of {compared} workloads moved by more than their spread since the results before"
    return [heading, *(f"  {move}" for move in sorted(found, key=lambda move: move.is_better))]
