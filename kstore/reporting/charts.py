"""Charts of a report as SVG, by Vega-Lite (vl-convert-python) without a browser.

Colours are CSS variables of the page, so that a chart follows light and dark. Each is made for a wide page and for a
narrow one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kstore.reporting.collecting import name_of
from kstore.reporting.statistics import Rates

Spec = dict[str, Any]
WIDE, NARROW = 1040, 330
MAPPED = 16
TIMED = 6
_MOST_RECTS = 200
# So many that a bar is a few pixels wide.
_MOST_INTERVALS = 128
# Of ECMAScript's Date, which the charts use.
_TIMES_MS = range(-8_640_000_000_000_000, 8_640_000_000_000_001)
_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
_AXIS = {
    "labelColor": "var(--muted)",
    "titleColor": "var(--muted)",
    "gridColor": "var(--line)",
    "domainColor": "var(--line)",
    "tickColor": "var(--line)",
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
    "titlePadding": 14,
}
# Of an axis, by what a tick begins: 24 hours instead of AM and PM.
_TIME_FORMATS = {
    "milliseconds": "%H:%M:%S.%L",
    "seconds": "%H:%M:%S",
    "minutes": "%H:%M",
    "hours": "%H:%M",
    "date": "%b %d",
    "week": "%b %d",
    "month": "%b",
    "quarter": "%b",
    "year": "%Y",
}
# The m of milli would be read as mega.
_RATE_LABEL = "format(datum.value, datum.value < 1 ? '~g' : '~s')"
_CONFIG: Spec = {
    "aria": False,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": _AXIS,
    "header": {"labelColor": "var(--text)", "labelFontSize": 12, "labelAnchor": "start", "labelLimit": 220},
}


class Figure(NamedTuple):
    """A chart in two widths; label: what it shows, for those who do not see it."""

    label: str
    wide: str
    narrow: str


def figure_of(label: str, spec: Callable[[int], Spec]) -> Figure:
    """Return the figure of a spec, a function of the width in pixels.

    Raises: ModuleNotFoundError without vl-convert-python.
    """
    return Figure(label, _svg(spec(WIDE)), _svg(spec(NARROW)))


def _svg(spec: Spec) -> str:
    import vl_convert

    whole = {"$schema": _SCHEMA, "background": None, "config": _CONFIG, **spec}
    text: str = vl_convert.vegalite_to_svg(whole)
    return text.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)


def rates_of(partitions: Sequence[Mapping[str, Any]]) -> Rates:
    """Return the records and bytes of all partitions over time, in intervals that are long enough for a chart."""
    total = Rates()
    total.bucket_ms = max((partition["rates"]["bucket_ms"] for partition in partitions), default=total.bucket_ms)
    for partition in partitions:
        for start, records, size in partition["rates"]["buckets"]:
            total.add(start, records=records, size_in_bytes=size)
    total.widen(_MOST_INTERVALS, within=_TIMES_MS)
    return total


def volume_chart(rates: Rates) -> Callable[[int], Spec]:
    """Bytes per second over time."""
    seconds = rates.bucket_ms / 1000
    values = [
        {"from": start, "to": start + rates.bucket_ms, "rate": size / seconds}
        for start, (_, size) in sorted(rates.buckets.items())
        if start in _TIMES_MS and start + rates.bucket_ms in _TIMES_MS
    ]
    return lambda width: {
        "width": width - 70,
        "height": 180,
        "data": {"values": values},
        "mark": {"type": "rect", "color": "var(--mark)"},
        "encoding": {
            "x": {
                "field": "from",
                "type": "temporal",
                "scale": {"type": "utc"},
                "axis": {
                    "title": None,
                    "grid": False,
                    "tickCount": width // 120,
                    "format": _TIME_FORMATS,
                    "labelOverlap": True,
                },
            },
            "x2": {"field": "to"},
            "y": {
                "field": "rate",
                "type": "quantitative",
                "axis": {"title": "bytes per second", "labelExpr": _RATE_LABEL, "tickCount": 4, "domain": False},
            },
            "y2": {"datum": 0},
        },
    }


def sizes_chart(bars: Sequence[tuple[str, int]], *, of: str) -> Callable[[int], Spec]:
    """Counts by size."""
    values = [{"size": name, "count": count} for name, count in bars]
    return lambda width: {
        "width": width - 70,
        "height": 140,
        "data": {"values": values},
        "mark": {"type": "bar", "color": "var(--mark)"},
        "encoding": {
            "x": {
                "field": "size",
                "type": "ordinal",
                "sort": None,
                "axis": {
                    "title": "bytes, at least",
                    "labelAngle": 0,
                    "labelOverlap": "greedy",
                    "labelSeparation": 12,
                    "grid": False,
                },
            },
            "y": {
                "field": "count",
                "type": "quantitative",
                "axis": {"title": of, "format": "~s", "tickCount": 3, "domain": False},
            },
        },
    }


def time_chart(partitions: Sequence[Mapping[str, Any]]) -> Callable[[int], Spec]:
    """Least and largest timestamp by offset, of a few partitions."""
    values = [
        {"partition": name_of(partition), "offset": offset, "least": least, "largest": largest}
        for partition in partitions
        for offset, least, largest in partition["timestamps"]["by_offset"]
        if least in _TIMES_MS and largest in _TIMES_MS
    ]
    x = {
        "field": "offset",
        "type": "quantitative",
        "scale": {"zero": False, "nice": False},
        "axis": {"title": None, "format": "~s", "tickCount": 3, "grid": False},
    }
    y = {
        "type": "temporal",
        "scale": {"type": "utc", "zero": False, "nice": False},
        "axis": {"title": None, "tickCount": 3, "format": _TIME_FORMATS},
    }

    def spec(width: int) -> Spec:
        columns = 3 if width == WIDE else 1
        return {
            "data": {"values": values},
            "facet": {"field": "partition", "type": "nominal", "title": None, "sort": None},
            "columns": columns,
            "resolve": {"scale": {"x": "independent", "y": "independent"}},
            "spec": {
                "width": width // columns - 85,
                "height": 90,
                "layer": [
                    {
                        "mark": {"type": "rule", "color": "var(--mark)", "strokeWidth": 3},
                        "encoding": {"x": x, "y": {**y, "field": "least"}, "y2": {"field": "largest"}},
                    },
                    {
                        "mark": {"type": "point", "color": "var(--mark)", "filled": True, "size": 14, "opacity": 1},
                        "encoding": {"x": x, "y": {**y, "field": "largest"}},
                    },
                ],
            },
        }

    return spec


def segment_chart(partitions: Sequence[Mapping[str, Any]]) -> Callable[[int], Spec]:
    """A row for each partition, from its log start offset to its end: segments, gaps, damage, transactions."""
    rects: list[Spec] = []
    for partition in partitions:
        rects += _rects(partition)
    names = [name_of(partition) for partition in partitions]
    colours = {
        "segment": "var(--mark)",
        "next": "var(--mark-2)",
        "damage": "var(--bad)",
        "aborted": "var(--warn)",
        "open": "var(--text)",
    }
    lanes = {"aborted": 9, "open": 9}

    def spec(width: int) -> Spec:
        label = 190 if width == WIDE else 110
        y: Spec = {
            "field": "row",
            "type": "ordinal",
            "sort": None,
            "scale": {"domain": names, "paddingInner": 0, "paddingOuter": 0},
            "axis": {
                "title": None,
                "labelLimit": label,
                "domain": False,
                "ticks": False,
                "labelPadding": 8,
                "labelColor": "var(--text)",
            },
        }
        x = {"field": "x", "type": "quantitative", "scale": {"domain": [0, 1]}, "axis": None}
        layers = [
            {
                "transform": [{"filter": f"datum.kind == '{kind}'"}],
                "mark": {
                    "type": "bar",
                    "color": colour,
                    "height": 4 if kind in lanes else 22 if kind == "damage" else 12,
                    "yOffset": lanes.get(kind, 0),
                    "cornerRadius": 0,
                },
                "encoding": {"x": x, "x2": {"field": "x2"}, "y": y},
            }
            for kind, colour in colours.items()
        ]
        return {
            "width": width - label - 40,
            "height": 30 * len(names),
            # A browser's font may be wider than the one that labels were measured in.
            "padding": {"left": 25, "top": 5, "right": 5, "bottom": 5},
            "data": {"values": rects},
            "layer": layers,
        }

    return spec


def _rects(partition: Mapping[str, Any]) -> list[Spec]:
    """Return the marks of a partition; of segments that are too many to be seen each, runs."""
    segments, gaps = partition["segments"], partition["gaps"]["first"]
    bounds = [partition["log_start_offset"], partition["log_end_offset"], *(s["end_offset"] for s in segments)]
    start, end = min(bounds), max(bounds)
    span = max(end - start, 1)
    least = 1 / _MOST_RECTS

    def rect(offsets: tuple[int, int], kind: str, width: float) -> Spec:
        first, last = offsets
        left = min(max((first - start) / span, 0), 1 - width)
        return {
            "row": name_of(partition),
            "x": left,
            "x2": max(min((last - start) / span, 1), left + width),
            "kind": kind,
        }

    run = max(1, -(-len(segments) // _MOST_RECTS))
    rects = []
    for number, at in enumerate(range(0, len(segments), run)):
        group = segments[at : at + run]
        first, last = max(group[0]["base_offset"], start), group[-1]["end_offset"]
        for piece in _without((first, last), gaps, span * least):
            rects.append(rect(piece, "next" if number % 2 else "segment", 0.0))
    rects += [rect((first, last), "damage", least) for first, last in partition["damaged_offsets"][:_MOST_RECTS]]
    if partition["damage"] and not partition["damaged_offsets"]:
        rects.append(rect((end, end), "damage", least))
    transactions = partition["transactions"]
    rects += [rect((first, last), "aborted", least) for _, first, last in transactions["aborted_first"]]
    rects += [rect((opened["first_offset"], end), "open", least) for opened in transactions["open"][:1]]
    return rects


def _without(offsets: tuple[int, int], gaps: Sequence[Sequence[int]], least: float) -> list[tuple[int, int]]:
    """Return a range of offsets without the gaps that are wide enough to be seen."""
    first, end = offsets
    pieces = []
    for gap_start, gap_end in gaps:
        if gap_end - gap_start >= least and first < gap_end and gap_start < end:
            if gap_start > first:
                pieces.append((first, gap_start))
            first = max(first, gap_end)
    return [*pieces, (first, end)] if first < end else pieces
