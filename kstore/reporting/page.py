"""page_of: the facts of a report as one HTML page that loads nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kstore.reporting.charts import figure_of, rates_of, volume_chart
from kstore.reporting.collecting import name_of
from kstore.reporting.sections import Section, sections_of
from kstore.reporting.units import number_text, size_text, span_text, time_text

MOST_ROWS = 20
_MOST_HOLDS = 4


class Line(NamedTuple):
    """A statement of the first screen."""

    text: str
    is_bad: bool = False


class Verdict(NamedTuple):
    """The verdict on all of it; kind: of the CSS."""

    text: str
    kind: str


def page_of(report: Mapping[str, Any]) -> str:
    """Return the page.

    Raises: ModuleNotFoundError without the packages of the extra `report`.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("kstore.reporting", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    place = report["place"]
    deep = "Batch headers, checksums and records" if report["is_deep"] else "Batch headers and checksums"
    damage, *others = sections_of(report)
    sections = [damage, _volume(report), *others]
    return environment.get_template("report.html.j2").render(
        title=f"kstore report: {place}",
        heading=place,
        made=f"kstore report, {time_text(report['made_at_ms'])}. {deep} were read. Times are UTC; 1 kB is 1,000 bytes.",
        verdict=_verdict(report["health"]),
        contents=_contents(report),
        health=_health(report),
        holds=_holds(report) or [Line("Nothing: no open transaction, no lag, nothing due.")],
        sections=[section for section in sections if section is not None and not section.is_empty],
        most_rows=MOST_ROWS,
    )


def readable(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the partitions that could be read."""
    return [partition for partition in report["partitions"] if partition["error"] is None]


def _verdict(health: Mapping[str, Any]) -> Verdict:
    parts = []
    if health["damaged_ranges"]:
        where = _count(health["damaged_partitions"], "partition")
        parts.append(f"{_count(health['damaged_ranges'], 'damaged range')} in {where}")
    if health["proven_losses"]:
        parts.append(_count(health["proven_losses"], "proven loss", "proven losses"))
    if health["unreadable_partitions"]:
        parts.append(f"{_count(health['unreadable_partitions'], 'partition')} that cannot be read")
    if parts:
        return Verdict(f"Damaged: {', '.join(parts)}.", "bad")
    if not health["is_unharmed"]:
        return Verdict("Some groups cannot be read.", "bad")
    if health["likely_losses"]:
        return Verdict(f"No damage, but {_count(health['likely_losses'], 'likely loss', 'likely losses')}.", "warn")
    return Verdict("No damage found.", "good")


def _contents(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    partitions = readable(report)
    records = [partition["records"] for partition in partitions]
    counted = sum(count for count in records if count is not None)
    firsts = [partition["first_timestamp"] for partition in partitions if partition["first_timestamp"] is not None]
    lasts = [partition["last_timestamp"] for partition in partitions if partition["last_timestamp"] is not None]
    return [
        ("Topics", number_text(len({partition["topic"] for partition in report["partitions"]}))),
        ("Partitions", number_text(len(report["partitions"]))),
        ("Segments", number_text(sum(len(partition["segments"]) for partition in partitions))),
        ("Size", size_text(sum(partition["size_in_bytes"] for partition in partitions))),
        ("Records", ("at least " if None in records else "") + number_text(counted)),
        ("Oldest record", time_text(min(firsts, default=None))),
        ("Newest record", time_text(max(lasts, default=None))),
        ("Time between", span_text(max(lasts) - min(firsts)) if firsts else "-"),
    ]


def _health(report: Mapping[str, Any]) -> list[Line]:
    health, partitions = report["health"], readable(report)
    lines = [
        _line(health["damaged_ranges"], "damaged range", none="No damaged range"),
        _line(health["proven_losses"], "proven loss", "proven losses", none="No proven loss of records"),
    ]
    if health["likely_losses"]:
        lines.append(
            Line(f"{_count(health['likely_losses'], 'likely loss', 'likely losses')}: a crash can look like this")
        )
    if health["unreadable_partitions"]:
        lines.append(_line(health["unreadable_partitions"], "partition cannot be read", "partitions cannot be read"))
    if report["is_root"] and report["root"]["is_clean"] is not None:
        lines.append(Line("Shut down cleanly" if report["root"]["is_clean"] else "Not shut down cleanly, or in use"))
    future = sum(partition["timestamps"]["future_batches"] for partition in partitions)
    if future:
        lines.append(Line(f"{_count(future, 'batch', 'batches')} from the future: more than 1 h after this report"))
    without = sum(partition["timestamps"]["batches_without"] for partition in partitions)
    if without:
        lines.append(Line(f"{_count(without, 'batch', 'batches')} without a timestamp"))
    unknown = sum(len(partition["unknown_files"]) for partition in partitions)
    if unknown:
        lines.append(Line(f"{_count(unknown, 'file')} that neither Kafka nor kstore writes"))
    return lines


def _holds(report: Mapping[str, Any]) -> list[Line]:
    partitions, lines = readable(report), []
    opened = [
        (transaction["age_ms"] or 0, name_of(partition), transaction)
        for partition in partitions
        for transaction in partition["transactions"]["open"]
    ]
    for _, name, transaction in sorted(opened, key=lambda item: -item[0])[:_MOST_HOLDS]:
        lines.append(
            Line(
                f"{name}: producer {transaction['producer_id']} has had a transaction open for "
                f"{span_text(transaction['age_ms'])}; read_committed stops at offset {transaction['first_offset']:,}"
            )
        )
    if len(opened) > _MOST_HOLDS:
        lines.append(Line(f"{len(opened) - _MOST_HOLDS:,} more open transactions"))
    lagging = sorted((group for group in report["groups"] if group["lag"]), key=lambda group: -group["lag"])
    lines += [
        Line(f"Group {group['group']} ({group['state']}) lags {_count(group['lag'], 'offset')}")
        for group in lagging[:_MOST_HOLDS]
    ]
    outlooks = [partition["outlook"] for partition in partitions]
    due = sum(outlook["retention"]["due_bytes"] for outlook in outlooks if outlook["retention"])
    if due:
        lines.append(Line(f"Retention is due to remove {size_text(due)}"))
    dirty = [outlook for outlook in outlooks if outlook["cleanable"] and outlook["cleanable"]["is_due"]]
    if dirty:
        lines.append(Line(f"{_count(len(dirty), 'partition is', 'partitions are')} due for compaction"))
    return lines


def _volume(report: Mapping[str, Any]) -> Section | None:
    rates = rates_of(readable(report))
    if not rates.buckets:
        return None
    seconds = rates.bucket_ms / 1000
    rows = [
        (
            time_text(start),
            number_text(records),
            number_text(records / seconds),
            size_text(size),
            size_text(size / seconds),
        )
        for start, (records, size) in sorted(rates.buckets.items())
    ]
    span = span_text(rates.bucket_ms)
    texts = [f"By the largest timestamp of each batch, in intervals of {span}, as stored (compressed)."]
    names = ("From", "Records", "Records/s", "Size", "Size/s")
    figure = figure_of(f"Bytes per second over time, in intervals of {span}", volume_chart(rates))
    section = Section("volume", "Volume over time", texts, figures=[figure])
    section.add("Records and bytes by interval", names, rows, numbers=(1, 2, 3, 4), is_folded=True)
    return section


def _line(count: int, one: str, many: str | None = None, *, none: str = "") -> Line:
    return Line(_count(count, one, many), is_bad=True) if count else Line(none)


def _count(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
