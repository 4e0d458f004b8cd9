"""`kstore replay`: records of a root to a cluster that runs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from kstore.cli import EXIT_DAMAGE, EXIT_FINE
from kstore.cli.arguments import PartitionSelection, WrongUseError, parse_offset, parse_timestamp_ms
from kstore.cli.output import Column, Progress
from kstore.cli.render import JSON_TEXT
from kstore.env import DEFAULT_ENV, absolute_path
from kstore.errors import ReplayError
from kstore.log.files.checkpoints import read_text
from kstore.log.files.root_files import parse_properties
from kstore.replaying.cluster import CLIENT_LOGGER
from kstore.replaying.run import ReplaySummary, carry_out
from kstore.replaying.wanted import NAME_OF_SOURCE, Rename, ReplayWanted, replay_wanted
from kstore.types import INTERNAL_TOPICS, MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kstore.cli.output import Output
    from kstore.log.damage import OnSkip, SkippedRange

COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("source", rank=2),
    Column("start", is_number=True),
    Column("end", is_number=True),
    Column("target end", is_number=True),
    Column("records", is_number=True),
    Column("bytes", is_number=True, rank=1),
    Column("found", is_number=True, rank=3),
)
OFFSET_COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("partition", is_number=True),
    Column("source offset", is_number=True),
    Column("offset", is_number=True),
    Column("before", is_number=True, rank=1),
    Column("note", wraps=True),
)
_MOST_CONFIG_BYTES = 1 << 20


class Handling(NamedTuple):
    """How a replay is carried out and shown: the options that are not about what is sent, and where to."""

    timeout_s: float
    skips_damaged: bool
    is_dry_run: bool
    is_json: bool


class TypedOptions(NamedTuple):
    """The options of `replay` as they were typed."""

    directory: str
    bootstrap: str
    topic: list[str] | None
    partition: list[int] | None
    start: str
    end: str
    since: str | None
    until: str | None
    isolation: str
    rename: list[str] | None
    rate: float | None
    byte_rate: float | None
    create_topics: bool
    offsets: bool
    group: list[str] | None
    state: str | None
    producer_config: list[str] | None

    def checked(self, how: Handling, on_skip: OnSkip) -> ReplayWanted:
        """Return the arguments of the replay.  Raises: WrongUseError; as PartitionSelection.find."""
        start, end = parse_offset(self.start, option="--from"), parse_offset(self.end, option="--to")
        try:
            return replay_wanted(
                self.directory,
                self.bootstrap,
                topics=self._topics(),
                partitions=self.partition,
                start_offset=start or None,
                end_offset=None if end == MAX_OFFSET else end,
                since=None if self.since is None else parse_timestamp_ms(self.since, option="--since"),
                until=None if self.until is None else parse_timestamp_ms(self.until, option="--until"),
                rename=_rename(self.rename or ()),
                isolation="read_committed" if self.isolation == "read_committed" else "read_uncommitted",
                on_error="skip" if how.skips_damaged else "raise",
                on_skip=on_skip,
                create_topics=self.create_topics,
                groups=self.group or (["*"] if self.offsets else None),
                state=self.state,
                records_per_s=self.rate,
                bytes_per_s=self.byte_rate,
                timeout=how.timeout_s,
                client=_client(self.producer_config or ()),
            )
        except ValueError as error:
            raise WrongUseError(str(error)) from error

    def _topics(self) -> list[str] | None:
        """Return the names of the topics that names and patterns select, None for all that are not internal."""
        if not self.topic:
            return None
        selection = PartitionSelection(
            directory=self.directory, topics=tuple(self.topic), partitions=tuple(self.partition or ())
        )
        found = {partition.topic_partition.topic for partition in selection.find()}
        return sorted(topic for topic in found if topic in self.topic or topic not in INTERNAL_TOPICS)


def _rename(texts: Iterable[str]) -> Rename | None:
    """Return new names by the old ones, or a rule.  Raises: WrongUseError for both, and for two of one topic."""
    renames: dict[str, str] = {}
    rules: list[str] = []
    for text in texts:
        old, equals, new = text.partition("=")
        if not equals and NAME_OF_SOURCE in text:
            rules.append(text)
        elif not old or not new:
            raise WrongUseError(f"--rename must be OLD=NEW, or a rule as old.{NAME_OF_SOURCE}, got {text!r}")
        elif renames.setdefault(old, new) != new:
            raise WrongUseError(f"--rename gives {old} two names: {renames[old]} and {new}")
    if len(rules) > 1 or (rules and renames):
        raise WrongUseError(
            f"--rename is one rule, or names one by one, got {len(rules)} rules and {len(renames)} names"
        )
    return rules[0] if rules else renames


def _client(texts: Iterable[str]) -> dict[str, str]:
    """Return settings of librdkafka: each text is NAME=VALUE, or a properties file; of two the last one counts.

    Raises: WrongUseError.
    """
    settings: dict[str, str] = {}
    for text in texts:
        setting, equals, value = text.partition("=")
        if equals:
            settings[setting] = value
            continue
        content = read_text(absolute_path(text), DEFAULT_ENV, max_bytes=_MOST_CONFIG_BYTES)
        if content is None:
            raise WrongUseError(f"--producer-config must be NAME=VALUE or a file, and there is no file {text}")
        settings.update(parse_properties(content))
    return settings


def run(typed: TypedOptions, how: Handling, out: Output) -> int:
    """Replay, print what was done with each partition and group, and return the exit status."""
    status = EXIT_FINE

    def report(skipped: SkippedRange) -> None:
        nonlocal status
        status = EXIT_DAMAGE
        out.notice(skipped)

    out.hidden_loggers.add(CLIENT_LOGGER)
    wanted = typed.checked(how, report)
    progress = Progress(label=typed.bootstrap)
    try:
        with ExitStack() as stack:

            def begin(total_bytes: int) -> None:
                stack.enter_context(out.progress(progress, total_bytes=lambda: total_bytes))

            def add(size: int) -> None:
                progress.done_bytes += size

            summary = carry_out(wanted, dry_run=how.is_dry_run, on_plan=begin, on_bytes=add)
    except ValueError as error:
        raise WrongUseError(str(error)) from error
    except ReplayError as error:
        if error.summary is not None:
            _show(error.summary, out, is_json=how.is_json)
            if wanted.state is not None:
                out.notice("the same command goes on where each partition ends")
        raise
    _show(summary, out, is_json=how.is_json)
    return status


def _show(summary: ReplaySummary, out: Output, *, is_json: bool) -> None:
    if summary.created:
        out.notice(f"{'to be created' if summary.is_dry_run else 'created'}: {', '.join(summary.created)}")
    if is_json:
        for fields in (*(each._asdict() for each in summary.partitions), *(each._asdict() for each in summary.offsets)):
            out.line(JSON_TEXT({**fields, "is_dry_run": summary.is_dry_run}))
        return
    rows = [
        [
            partition.topic,
            str(partition.partition),
            partition.source_topic,
            *map(str, (partition.start_offset, partition.end_offset, partition.target_end_offset)),
            *map(str, (partition.record_count, partition.size_in_bytes, partition.found_count)),
        ]
        for partition in summary.partitions
    ]
    out.table(COLUMNS, rows)
    if summary.offsets:
        out.line("")
        offsets = [
            [
                offset.group,
                offset.topic,
                str(offset.partition),
                str(offset.source_offset),
                str(offset.offset),
                "-" if offset.committed is None else str(offset.committed),
                offset.note or "",
            ]
            for offset in summary.offsets
        ]
        out.table(OFFSET_COLUMNS, offsets)
