"""Notebooks of examples/notebooks, run cell by cell without a kernel."""

from __future__ import annotations

import ast
import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

PLACE = Path(__file__).parents[2] / "examples" / "notebooks"
NAMES = sorted(path.stem for path in PLACE.glob("*.ipynb"))


def cells_of(name: str) -> list[dict[str, Any]]:
    """Return the cells of a notebook, as its format 4.5 has them."""
    cells: list[dict[str, Any]] = json.loads((PLACE / f"{name}.ipynb").read_text())["cells"]
    return cells


def outputs_of(name: str) -> list[str]:
    """Run a notebook in the current directory; return what each cell of code prints and shows, as HTML if it can."""
    names: dict[str, Any] = {}
    return [_shown("".join(cell["source"]), names) for cell in cells_of(name) if cell["cell_type"] == "code"]


def _shown(source: str, names: dict[str, Any]) -> str:
    tree, value = ast.parse(source), None
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(StringIO()) as printed:
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    as_html = getattr(value, "_repr_html_", lambda: None)()
    return printed.getvalue() + ("" if value is None else as_html or repr(value))
