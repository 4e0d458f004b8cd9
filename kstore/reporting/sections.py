"""The sections of the page: each a title, sentences, figures and their tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kstore.reporting.charts import MAPPED, TIMED, Figure, figure_of, segment_chart, sizes_chart, time_chart
from kstore.reporting.collecting import name_of
from kstore.reporting.units import number_text, size_text, span_text, time_text

_LEGEND = (
    ("segments, alternately", "--mark"),
    ("next segment", "--mark-2"),
    ("damage", "--bad"),
    ("aborted transaction", "--warn"),
    ("open transaction", "--text"),
)
Partitions = Sequence[Mapping[str, Any]]


class Column(NamedTuple):
    """A column of a table; is_long: of texts that wrap."""

    name: str
    is_number: bool = False
    is_long: bool = False


class Cell(NamedTuple):
    """A cell; share: of a bar under the number, from 0 to 1; is_one_line: it does not wrap."""

    text: str
    share: float | None = None
    is_one_line: bool = False


class Table(NamedTuple):
    """A table; is_folded: not shown until it is opened."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    is_folded: bool


@dataclass
class Section:
    """A section of the page."""

    id: str
    title: str
    texts: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    legend: Sequence[tuple[str, str]] = ()
    tables: list[Table] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.texts or self.figures or self.tables)

    def add(
        self,
        caption: str,
        names: Sequence[str],
        rows: Iterable[Sequence[str | Cell]],
        *,
        numbers: Sequence[int] = (),
        long: Sequence[int] = (),
        is_folded: bool = False,
    ) -> None:
        """Add a table, unless it has no rows.  Args: numbers, long: which columns are numbers, or long texts."""
        cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
        columns = [Column(name, place in numbers, place in long) for place, name in enumerate(names)]
        if cells:
            self.tables.append(Table(caption, columns, cells, is_folded))


def sections_of(report: Mapping[str, Any]) -> list[Section]:
    """Return the sections, of damage first; some may be empty."""
    partitions = [partition for partition in report["partitions"] if partition["error"] is None]
    return [
        _damage(report, partitions),
        _topics(partitions),
        _codecs(report, partitions),
        _timestamps(partitions),
        _segments(partitions),
        _transactions(partitions),
        _groups(report),
        _epochs(partitions),
        _outlook(report, partitions),
        _keys(partitions),
        _files(report, partitions),
    ]


def _damage(report: Mapping[str, Any], partitions: Partitions) -> Section:
    section = Section("damage", "Damage and losses")
    unread = [(name_of(p), p["error"]) for p in report["partitions"] if p["error"] is not None]
    section.add("Partitions that cannot be read", ("Partition", "Why"), unread, long=(1,))
    damage = [(name_of(p), one) for p in partitions for one in p["damage"]]
    damage += [("root", one) for one in report["root_damage"]]
    rows = [
        (name, _file(one["file"]), number_text(one["position"]), number_text(one["size_in_bytes"]), one["reason"])
        for name, one in damage
    ]
    names = ("Partition", "File", "Position", "Bytes", "What is wrong")
    section.add("Damaged ranges", names, rows, numbers=(2, 3), long=(4,))
    losses = [(name_of(p), loss) for p in partitions for loss in p["losses"]]
    losses += [(loss["partition"], loss) for loss in report["losses_without_directory"]]
    lost = [
        (
            name,
            number_text(loss["first_offset"]),
            "unknown" if loss["last_offset"] is None else number_text(loss["last_offset"]),
            "proven" if loss["is_proven"] else "likely",
            loss["evidence"],
        )
        for name, loss in losses
    ]
    section.add(
        "Records that are gone without damage",
        ("Partition", "First offset", "Last offset", "Certainty", "Evidence"),
        lost,
        numbers=(1, 2),
        long=(4,),
    )
    section.add("Groups that cannot be read", ("Error",), [(error,) for error in report["group_errors"]])
    if section.tables:
        section.texts.append(
            "kstore verify names the same ranges; kstore recover DIR --mode salvage --dry-run shows what can be kept, "
            "and changes nothing."
        )
    return section


def _topics(partitions: Partitions) -> Section:
    section = Section("partitions", "Topics and partitions")
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    records: dict[str, int | None] = {}
    for partition in partitions:
        topic, known = partition["topic"], records.get(partition["topic"], 0)
        sizes[topic] += partition["size_in_bytes"]
        counts[topic] += 1
        records[topic] = None if known is None or partition["records"] is None else known + partition["records"]
    largest = max(sizes.values(), default=0)
    if len(sizes) > 1:
        rows = [
            (topic, number_text(counts[topic]), number_text(records[topic]), _bar(size_text(size), size, largest))
            for topic, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
        ]
        section.add("Topics by size", ("Topic", "Partitions", "Records", "Size"), rows, numbers=(1, 2, 3))
    largest = max((partition["size_in_bytes"] for partition in partitions), default=0)
    section.add(
        "Partitions by size",
        (
            "Partition",
            "Size",
            "Records",
            "Log start",
            "Log end",
            "Segments",
            "Batches",
            "Records/s",
            "Format",
            "Newest",
        ),
        [
            (
                name_of(partition),
                _bar(size_text(partition["size_in_bytes"]), partition["size_in_bytes"], largest),
                number_text(partition["records"]),
                number_text(partition["log_start_offset"]),
                number_text(partition["log_end_offset"]),
                number_text(len(partition["segments"])),
                number_text(partition["batches"]),
                number_text(_per_second(partition)),
                "/".join(f"V{magic}" for magic in partition["magics"]) or "-",
                _time(partition["last_timestamp"]),
            )
            for partition in _largest_first(partitions)
        ],
        numbers=(1, 2, 3, 4, 5, 6, 7),
    )
    if any(partition["records"] is None for partition in partitions):
        section.texts.append("V0 and V1 headers have no record counts: - where only --deep would count.")
    return section


def _codecs(report: Mapping[str, Any], partitions: Partitions) -> Section:
    section = Section("codecs", "Codecs and sizes")
    by_codec: dict[str, list[float]] = {}
    for partition in partitions:
        for codec in partition["codecs"]:
            total = by_codec.setdefault(codec["codec"], [0, 0, 0, 0])
            total[0] += codec["batches"]
            total[1] += codec["size_in_bytes"]
            if codec["ratio"]:
                total[2] += codec["size_in_bytes"]
                total[3] += codec["size_in_bytes"] / codec["ratio"]
    largest = max((size for _, size, _, _ in by_codec.values()), default=0)
    rows = [
        (
            name,
            number_text(batches),
            _bar(size_text(size), size, largest),
            number_text(stored / plain if plain else None),
        )
        for name, (batches, size, stored, plain) in sorted(by_codec.items(), key=lambda item: -item[1][1])
    ]
    section.add("Codecs", ("Codec", "Batches", "Size", "Ratio"), rows, numbers=(1, 2, 3))
    if rows:
        known = "Ratio: stored size / size before compression."
        section.texts.append(known if report["is_deep"] else f"{known} It needs --deep, which decodes records.")
    histograms = [("batch_sizes", "Batches by size", "batches")]
    histograms += (
        [("record_sizes", "Records by the size of key and value", "records")]
        if report["is_deep"]
        else [("stored_record_sizes", "Records by their share of their batch, as stored", "records")]
    )
    for name, label, unit in histograms:
        bars = _added(partition[name] for partition in partitions)
        if bars:
            section.figures.append(
                figure_of(label, sizes_chart([(size_text(size), count) for size, count in bars], of=unit))
            )
            most = max(count for _, count in bars)
            shown = [(f"from {size_text(size)}", _bar(number_text(count), count, most)) for size, count in bars]
            section.add(label, ("Size", unit.capitalize()), shown, numbers=(1,), is_folded=True)
    return section


def _timestamps(partitions: Partitions) -> Section:
    section = Section("timestamps", "Timestamps")
    timed = [partition for partition in _worst_times_first(partitions) if partition["timestamps"]["by_offset"]]
    if timed:
        section.texts.append(
            "Late: the largest timestamp of a batch is below that of an earlier batch. Future: more than 1 h after "
            "this report, which a broker refuses by default."
        )
        label = "Timestamps (up) by offset (right): from the least to the largest of the batches in 1/64 of the offsets"
        more = f", of {TIMED} of {len(timed):,} partitions" if len(timed) > TIMED else ""
        section.figures.append(figure_of(label + more, time_chart(timed[:TIMED])))
    section.add(
        "Timestamps by partition",
        ("Partition", "Oldest", "Newest", "Late batches", "Late by at most", "Future batches", "Without timestamp"),
        [
            (
                name_of(partition),
                _time(partition["first_timestamp"]),
                _time(partition["last_timestamp"]),
                number_text(partition["timestamps"]["late_batches"]),
                span_text(partition["timestamps"]["late_by_at_most_ms"] or None),
                number_text(partition["timestamps"]["future_batches"]),
                number_text(partition["timestamps"]["batches_without"]),
            )
            for partition in _worst_times_first(partitions)
            if partition["batches"]
        ],
        numbers=(3, 4, 5, 6),
    )
    return section


def _segments(partitions: Partitions) -> Section:
    section = Section("segments", "Segments")
    mapped = [partition for partition in _worst_first(partitions) if partition["segments"]]
    filled = [
        partition for partition in mapped if partition["log_end_offset"] > partition["segments"][0]["base_offset"]
    ]
    if filled:
        more = f", of {MAPPED} of {len(filled):,} partitions, damaged ones first" if len(filled) > MAPPED else ""
        label = f"Each log from its first offset to its end{more}"
        section.figures.append(figure_of(label, segment_chart(filled[:MAPPED])))
        section.legend = _LEGEND
    section.add(
        "Offsets without a record",
        ("Partition", "Gaps between batches", "Offsets in them", "Removed inside of batches", "First gap"),
        [
            (
                name_of(partition),
                number_text(gaps["count"]),
                number_text(gaps["offsets"]),
                number_text(gaps["removed_in_batches"]),
                f"{gaps['first'][0][0]:,} to {gaps['first'][0][1] - 1:,}" if gaps["first"] else "-",
            )
            for partition in mapped
            if (gaps := partition["gaps"])["count"] or gaps["removed_in_batches"]
        ],
        numbers=(1, 2, 3),
    )
    if section.tables:
        section.texts.append(
            "Compaction leaves offsets without a record; elsewhere they are a sign that batches are gone."
        )
    section.add(
        "Segments by partition",
        ("Segment", "Base offset", "End offset", "Size", "Batches", "Records", "Newest", "Damaged bytes"),
        [
            (
                f"{name_of(partition)}: {segment['base_offset']:020d}",
                number_text(segment["base_offset"]),
                number_text(segment["end_offset"]),
                size_text(segment["size_in_bytes"]),
                number_text(segment["batches"]),
                number_text(segment["records"]),
                _time(segment["max_timestamp_ms"]),
                number_text(segment["damaged_bytes"]),
            )
            for partition in mapped
            for segment in partition["segments"]
        ][:5000],
        numbers=(1, 2, 3, 4, 5, 7),
        is_folded=True,
    )
    return section


def _transactions(partitions: Partitions) -> Section:
    section = Section("transactions", "Transactions and producers")
    opened = [(name_of(p), p["last_stable_offset"], one) for p in partitions for one in p["transactions"]["open"]]
    section.add(
        "Open transactions",
        ("Partition", "Producer id", "First offset", "Last stable offset", "Since", "Age"),
        [
            (
                name,
                str(one["producer_id"]),
                number_text(one["first_offset"]),
                number_text(stable),
                _time(one["first_timestamp"]),
                span_text(one["age_ms"]),
            )
            for name, stable, one in sorted(opened, key=lambda item: -(item[2]["age_ms"] or 0))
        ],
        numbers=(1, 2, 3, 5),
    )
    section.add(
        "Transactions by partition",
        ("Partition", "Committed", "Aborted", "Open"),
        [
            (
                name_of(p),
                number_text(ended["committed"]),
                number_text(ended["aborted"]),
                number_text(ended["open_count"]),
            )
            for p in partitions
            if any((ended := p["transactions"])[name] for name in ("committed", "aborted", "open_count"))
        ],
        numbers=(1, 2, 3),
    )
    section.add(
        "Aborted transactions",
        ("Partition", "Producer id", "First offset", "Marker's offset"),
        [
            (name_of(p), str(producer_id), number_text(first), number_text(last))
            for p in partitions
            for producer_id, first, last in p["transactions"]["aborted_first"]
        ],
        numbers=(1, 2, 3),
        is_folded=True,
    )
    section.add(
        "Producers by their last batch",
        ("Partition", "Producer id", "Epoch", "Batches", "Records", "Last sequence", "Last offset", "Last timestamp"),
        [
            (
                name_of(partition),
                str(one["producer_id"]),
                *map(
                    number_text,
                    (one["epoch"], one["batches"], one["records"], one["last_sequence"], one["last_offset"]),
                ),
                _time(one["last_timestamp_ms"]),
            )
            for partition in partitions
            for one in partition["producers"]["latest"]
        ],
        numbers=(1, 2, 3, 4, 5, 6),
    )
    return section


def _groups(report: Mapping[str, Any]) -> Section:
    section = Section("groups", "Consumer groups")
    groups = sorted(report["groups"], key=lambda group: (-group["lag"], group["group"]))
    most = max((group["lag"] for group in groups), default=0)
    section.add(
        "Groups by lag",
        ("Group", "Type", "State", "Members", "Partitions", "Lag"),
        [
            (
                group["group"],
                group["type"],
                group["state"],
                number_text(group["members"]),
                number_text(len(group["offsets"])),
                _bar(number_text(group["lag"]), group["lag"], most),
            )
            for group in groups
        ],
        numbers=(3, 4, 5),
    )
    section.add(
        "Committed offsets",
        ("Group", "Partition", "Committed offset", "Log end", "Lag", "Committed at"),
        [
            (
                group["group"],
                offset["partition"],
                *map(number_text, (offset["offset"], offset["log_end_offset"], offset["lag"])),
                _time(offset["committed"] if (offset["committed"] or 0) > 0 else None),
            )
            for group in groups
            for offset in group["offsets"]
        ],
        numbers=(2, 3, 4),
        is_folded=True,
    )
    if section.tables:
        section.texts.append("Lag: log end offset minus committed offset. Not every offset in between has a record.")
    return section


def _epochs(partitions: Partitions) -> Section:
    section = Section("epochs", "Leader epochs")
    rows = []
    for partition in partitions:
        in_file = dict(partition["leader_epoch_checkpoint"] or ())
        in_log = dict(partition["leader_epochs"])
        for epoch in sorted(in_log.keys() | in_file.keys()):
            starts = number_text(in_log.get(epoch)), number_text(in_file.get(epoch))
            rows.append((name_of(partition), number_text(epoch), *starts))
    section.add(
        "Where each leader epoch starts: by the batches, and by leader-epoch-checkpoint",
        ("Partition", "Epoch", "First batch at", "Checkpoint says"),
        rows,
        numbers=(1, 2, 3),
    )
    return section


def _outlook(report: Mapping[str, Any], partitions: Partitions) -> Section:
    section = Section("outlook", "Retention and compaction")
    errors = {partition["outlook"]["error"] for partition in partitions}
    common = errors.pop() if len(errors) == 1 and len(partitions) > 1 else None
    if common is not None:
        section.texts.append(f"Of all partitions: {common}.")
    rows = []
    for partition in partitions:
        outlook, savings = partition["outlook"], partition["compaction"]
        retention, cleanable = outlook["retention"], outlook["cleanable"]
        saved = None
        if savings and "error" not in savings and not partition["records_without_key"]:
            saved = savings["bytes_before"] - savings["bytes_after"]
        rows.append(
            (
                name_of(partition),
                "-" if retention is None else size_text(retention["due_bytes"]),
                "-" if cleanable is None else size_text(cleanable["cleanable_bytes"]),
                "-" if cleanable is None else f"{100 * cleanable['dirty_ratio']:.0f} %",
                size_text(saved),
                outlook["policy"] if outlook["error"] in (None, common) else outlook["error"],
            )
        )
    section.add(
        "What retention would remove and compaction could clean now",
        ("Partition", "Retention is due", "Cleanable", "Dirty", "Compaction saves", "By which settings"),
        rows,
        numbers=(1, 2, 3, 4),
        long=(5,),
    )
    if rows and not report["is_deep"]:
        section.texts.append("What compaction saves needs --deep, which reads the keys.")
    return section


def _keys(partitions: Partitions) -> Section:
    section = Section("keys", "Largest keys")
    keyed = [(name_of(p), key) for p in partitions for key in p["largest_keys"] or ()]
    section.add(
        "Keys whose records take the most bytes, of each partition",
        ("Partition", "Key", "Records", "Bytes of keys and values"),
        [
            (name, key["key"], number_text(key["records"]), size_text(key["bytes"]))
            for name, key in sorted(keyed, key=lambda item: -item[1]["bytes"])
        ],
        numbers=(2, 3),
        long=(1,),
    )
    return section


def _files(report: Mapping[str, Any], partitions: Partitions) -> Section:
    section = Section("files", "Other files")
    rows = [(name_of(p), name) for p in partitions for name in p["unknown_files"]]
    section.add("Files that neither Kafka nor kstore writes", ("Partition", "File"), rows, long=(1,))
    retired = [(name,) for name in report["root"]["retired"]] if report["is_root"] else []
    section.add("Directories that a broker deletes, moves or does not know", ("Directory",), retired)
    return section


def _time(timestamp_ms: int | None) -> Cell:
    return Cell(time_text(timestamp_ms), is_one_line=True)


def _bar(text: str, value: float, largest: float) -> Cell:
    return Cell(text, value / largest if largest else 0.0)


def _file(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


def _per_second(partition: Mapping[str, Any]) -> float | None:
    first, last, records = partition["first_timestamp"], partition["last_timestamp"], partition["records"]
    return None if records is None or first is None or last <= first else records * 1000 / (last - first)


def _largest_first(partitions: Partitions) -> list[Mapping[str, Any]]:
    return sorted(partitions, key=lambda p: (-p["size_in_bytes"], p["topic"], p["partition"]))


def _worst_first(partitions: Partitions) -> list[Mapping[str, Any]]:
    """Return the partitions with damage first, then those with open transactions, gaps, and by size."""
    return sorted(
        _largest_first(partitions),
        key=lambda p: (
            -len(p["damage"]) - len(p["losses"]),
            -p["transactions"]["open_count"],
            -p["transactions"]["aborted"],
        ),
    )


def _worst_times_first(partitions: Partitions) -> list[Mapping[str, Any]]:
    def oddities(partition: Mapping[str, Any]) -> int:
        times = partition["timestamps"]
        return -int(times["future_batches"] + times["batches_without"] + times["late_batches"])

    return sorted(_largest_first(partitions), key=oddities)


def _added(histograms: Iterable[Sequence[Sequence[int]] | None]) -> list[tuple[int, int]]:
    total: Counter[int] = Counter()
    for histogram in histograms:
        for size, count in histogram or ():
            total[size] += count
    return [(size, total[size]) for size in sorted(total)]
