"""Tables of docs/durability.md that tests read."""

from __future__ import annotations

from pathlib import Path

DURABILITY = Path(__file__).resolve().parents[2] / "docs" / "durability.md"


def rows_below(heading: str) -> list[tuple[str, ...]]:
    """Return the cells of the first table below a heading, without its head and without backticks.

    Raises: ValueError if there is no such heading.
    """
    text = DURABILITY.read_text()
    lines = text[text.index(f"\n{heading}\n") :].splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(tuple(cell.strip().replace("` `", ", ").replace("`", "") for cell in line.strip("|").split("|")))
    return rows
