"""`kstore restore`: partitions of a root, up to an offset or a time, into another root."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from kstore.archive.restoring.plan import OpenTransactions, Times
from kstore.archive.restoring.run import RestoredPartition, RestoreSummary, carry_out, restore_wanted
from kstore.cli import EXIT_FINE
from kstore.cli.arguments import WrongUseError, parse_offset, parse_timestamp_ms
from kstore.cli.output import Column, Progress
from kstore.cli.render import JSON_TEXT
from kstore.errors import RestoreError
from kstore.log.files.selection import Offsets, Selection
from kstore.types import MAX_OFFSET, TopicPartition, parse_partition_directory_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kstore.archive.restoring.plan import RestoreWanted
    from kstore.cli.output import Output
    from kstore.log.files.names import PartitionDirectory

COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("start", is_number=True),
    Column("end", is_number=True),
    Column("from", is_number=True),
    Column("records", is_number=True),
    Column("bytes", is_number=True),
)


class TypedOptions(NamedTuple):
    """The options of `restore` as they were typed."""

    source: str
    target: str
    topic: list[str] | None = None
    partition: list[int] | None = None
    to: list[str] | None = None
    until: list[str] | None = None
    rename: list[str] | None = None
    topic_as: str | None = None
    open_transactions: OpenTransactions = "keep"

    def checked(self) -> RestoreWanted:
        """Return the arguments of the restore.  Raises: WrongUseError; as Selection.find."""
        selection = self._selection()
        ends: Offsets | None
        times: Times | None
        try:
            if any("=" in text for text in (*(self.to or ()), *(self.until or ()))):
                found = selection.find(self.source)
                ends = _by_partition(self.to, "--to", _end_offset, found)
                times = _by_partition(self.until, "--until", _time_ms, found)
            else:
                ends, times = _single(self.to, "--to", _end_offset), _single(self.until, "--until", _time_ms)
            return restore_wanted(
                self.source,
                self.target,
                selection=Selection.of(
                    topics=self.topic, partitions=self.partition, start_offset=None, end_offset=ends
                ),
                until=times,
                rename=_renames(self.rename or ()),
                topic_as=self.topic_as,
                open_transactions=self.open_transactions,
            )
        except ValueError as error:
            raise WrongUseError(str(error)) from error

    def _selection(self) -> Selection:
        return Selection.of(topics=self.topic, partitions=self.partition, start_offset=None, end_offset=None)


def _end_offset(text: str, option: str) -> int | None:
    offset = parse_offset(text, option=option)
    return None if offset == MAX_OFFSET else offset


def _time_ms(text: str, option: str) -> int:
    return parse_timestamp_ms(text, option=option)


def _single(texts: list[str] | None, option: str, parse: Callable[[str, str], int | None]) -> int | None:
    if texts and len(texts) > 1:
        raise WrongUseError(f"{option} is given {len(texts)} times: for one partition of several, write TOPIC-N=...")
    return parse(texts[0], option) if texts else None


def _by_partition(
    texts: list[str] | None,
    option: str,
    parse: Callable[[str, str], int | None],
    found: list[PartitionDirectory],
) -> dict[TopicPartition, int] | None:
    """Return the bounds by partition: those that are named, and the one without a name for all others."""
    named: dict[TopicPartition, int | None] = {}
    others: list[str] = []
    for text in texts or ():
        name, equals, value = text.rpartition("=")
        if not equals:
            others.append(text)
            continue
        topic_partition = parse_partition_directory_name(name)
        if topic_partition is None:
            raise WrongUseError(f"{option} must be a bound, or TOPIC-N=BOUND for one partition, got {text!r}")
        named[topic_partition] = parse(value, option)
    rest = _single(others, option, parse)
    there = {directory.topic_partition for directory in found}
    if unknown := sorted(set(named) - there):
        raise WrongUseError(f"{option} names partitions that are not restored: {', '.join(map(str, unknown))}")
    bounds = {name: named.get(name, rest) for name in there}
    return {name: bound for name, bound in bounds.items() if bound is not None} or None


def _renames(texts: Iterable[str]) -> dict[str, str]:
    """Return the new names by the old.  Raises: WrongUseError for two of one topic."""
    renames: dict[str, str] = {}
    for text in texts:
        old, new = _renamed(text)
        if renames.setdefault(old, new) != new:
            raise WrongUseError(f"--rename gives {old} two names: {renames[old]} and {new}")
    return renames


def _renamed(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not equals or not old or not new:
        raise WrongUseError(f"--rename must have the form OLD=NEW, got {text!r}")
    return old, new


def run(typed: TypedOptions, out: Output, *, is_dry_run: bool, is_json: bool) -> int:
    """Restore, print what each partition of the target holds, and return the exit status."""
    try:
        summary = _carried_out(typed, out, is_dry_run=is_dry_run)
    except ValueError as error:
        raise WrongUseError(str(error)) from error
    except RestoreError as error:
        if error.summary is not None:
            _show(error.summary, out, is_json=is_json)
        raise
    _show(summary, out, is_json=is_json)
    return EXIT_FINE


def _carried_out(typed: TypedOptions, out: Output, *, is_dry_run: bool) -> RestoreSummary:
    progress = Progress(label=typed.target)
    with ExitStack() as stack:

        def begin(total_bytes: int) -> None:
            stack.enter_context(out.progress(progress, total_bytes=lambda: total_bytes))

        def add(size: int) -> None:
            progress.done_bytes += size

        return carry_out(typed.checked(), dry_run=is_dry_run, on_plan=begin, on_bytes=add)


def _show(summary: RestoreSummary, out: Output, *, is_json: bool) -> None:
    for restored in summary.partitions:
        for text in _remarks(restored, is_complete=summary.is_complete or summary.is_dry_run):
            out.notice(text)
    if is_json:
        for restored in summary.partitions:
            fields = restored._asdict()
            fields["open_transactions"] = [
                {"producer_id": producer_id, "first_offset": first_offset}
                for producer_id, first_offset in restored.open_transactions
            ]
            out.line(JSON_TEXT({**fields, "is_dry_run": summary.is_dry_run}))
    elif summary.partitions:
        rows = [[restored.topic, *map(str, _numbers(restored))] for restored in summary.partitions]
        out.table(COLUMNS, rows)


def _numbers(restored: RestoredPartition) -> tuple[int, ...]:
    bounds = restored.start_offset, restored.end_offset, restored.from_offset
    return (restored.partition, *bounds, restored.record_count, restored.size_in_bytes)


def _remarks(restored: RestoredPartition, *, is_complete: bool) -> list[str]:
    """Return what has to be said of a partition besides its row."""
    name = f"{restored.topic}-{restored.partition}"
    remarks = []
    if restored.waited_from is not None:
        remarks.append(
            f"{name} ends at {restored.end_offset} in place of {restored.waited_from}: transactions are open there; "
            "--open-transactions keep restores them too"
        )
    elif is_complete and restored.asked_offset is not None and restored.end_offset < restored.asked_offset:
        remarks.append(f"{name} ends at {restored.end_offset}: the source has no batch from there to the end asked for")
    if restored.is_cut:
        remarks.append(f"the last batch of {name} was rebuilt to end at {restored.end_offset}")
    for producer_id, first_offset in restored.open_transactions:
        remarks.append(f"{name} has an open transaction of producer {producer_id} from offset {first_offset} on")
    return remarks
