"""Draws the chart of README.md as SVG: groups of horizontal bars, each with the spread of its samples.

The text has no fixed colour: a style sheet in the picture follows the reader's light or dark theme.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, LABELS, NUMBERS = 760, 210, 80
BAR, STEP, HEADING, MARGIN = 16, 24, 34, 12
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
.heading { font-weight: 600; }
.own { fill: #1f6feb; } .other { fill: #afb8c1; }
.spread { stroke: #57606a; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .other { fill: #59636e; } .spread { stroke: #c9d1d9; }
}
"""


class Bar(NamedTuple):
    """One bar: its name, the median, and the least and greatest sample. is_own: drawn in kstore's colour."""

    name: str
    value: float
    least: float
    greatest: float
    is_own: bool


class Group(NamedTuple):
    """A heading and its bars."""

    heading: str
    bars: Sequence[Bar]


def drawn(groups: Sequence[Group], *, title: str, unit: str) -> str:
    """Return the chart as text. All bars have one scale, which starts at 0."""
    greatest = max(bar.greatest for group in groups for bar in group.bars)
    scale = (WIDTH - LABELS - NUMBERS) / greatest
    lines: list[str] = []
    y = MARGIN
    for group in groups:
        lines.append(f'<text class="heading" x="{MARGIN}" y="{y + 16}">{escape(group.heading)}</text>')
        y += HEADING
        for bar in group.bars:
            lines += _bar(bar, y=y, scale=scale, unit=unit)
            y += STEP
        y += MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", *lines, "</svg>", ""])


def _bar(bar: Bar, *, y: int, scale: float, unit: str) -> list[str]:
    kind = "own" if bar.is_own else "other"
    left, right = LABELS + bar.least * scale, LABELS + bar.greatest * scale
    middle, baseline = y + BAR / 2, y + BAR - 3
    return [
        f'<text x="{LABELS - 8}" y="{baseline}" text-anchor="end">{escape(bar.name)}</text>',
        f'<rect class="{kind}" x="{LABELS}" y="{y}" width="{bar.value * scale:.1f}" height="{BAR}"/>',
        f'<line class="spread" x1="{left:.1f}" y1="{middle}" x2="{right:.1f}" y2="{middle}"/>',
        f'<text x="{right + 8:.1f}" y="{baseline}">{bar.value:.2f} {escape(unit)}</text>',
    ]
