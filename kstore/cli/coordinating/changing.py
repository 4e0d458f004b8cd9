"""`kstore groups --reset`, `--delete` and `--delete-offsets`: changes of groups without members."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from kstore.cli import EXIT_FINE
from kstore.cli.arguments import MILLISECOND, WrongUseError, parse_timestamp_ms
from kstore.cli.output import Column, printable
from kstore.cli.render import JSON_TEXT, plain_value
from kstore.consumer.groups import delete_group, delete_offsets, group_to_change, reset_offsets
from kstore.env import DEFAULT_ENV, lines_of, open_foreign, shown_path
from kstore.errors import GroupStateError, UnknownTopicOrPartitionError
from kstore.store.store import Store, WritableStore, open_store
from kstore.types import GROUP_OFFSETS_TOPIC, MAX_OFFSET, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kstore.cli.output import Output
    from kstore.coordinator.group.metadata import Group
    from kstore.log.log import Log

RESET, DELETE, DELETE_OFFSETS = "reset", "delete", "delete-offsets"
RESET_COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("partition", is_number=True),
    Column("committed", is_number=True),
    Column("new offset", is_number=True),
    Column("note", wraps=True),
)
DELETED_COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("partition", is_number=True),
    Column("committed", is_number=True),
)
_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>\d{1,18})D)?(?:T(?=.)(?:(?P<hours>\d{1,18})H)?(?:(?P<minutes>\d{1,18})M)?(?:(?P<seconds>\d{1,18}(?:\.\d+)?)S)?)?"
)
_TOPIC = re.compile(r"(?P<topic>[^:]+)(?::(?P<numbers>[0-9]{1,10}(?:,[0-9]{1,10})*))?")


@dataclass(frozen=True, kw_only=True)
class ResetTarget:
    """To where offsets are reset: exactly one of these, as kafka-consumer-groups.sh has them."""

    to_earliest: bool
    to_latest: bool
    to_current: bool
    to_offset: int | None
    to_datetime: str | None
    by_duration: str | None
    shift_by: int | None
    from_file: str | None

    @property
    def given(self) -> list[str]:
        """The options that were given."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        # 0 is an offset, and equals False.
        names = [name for name, value in values.items() if value is not None and value is not False]
        return [f"--{name.replace('_', '-')}" for name in names]

    def time_ms(self) -> int | None:
        """Return the time to which offsets are reset, None if it is no time.  Raises: WrongUseError."""
        if self.to_datetime is not None:
            return parse_timestamp_ms(self.to_datetime, option="--to-datetime")
        if self.by_duration is None:
            return None
        found = _DURATION.fullmatch(self.by_duration)
        if found is None:
            raise WrongUseError(
                f"--by-duration must be an ISO-8601 duration such as P1DT12H or PT30M, got {self.by_duration!r}"
            )
        given = {name: float(text) for name, text in found.groupdict().items() if text is not None}
        try:
            return DEFAULT_ENV.wall_clock_ms() - timedelta(**given) // MILLISECOND
        except OverflowError:
            raise WrongUseError(f"--by-duration is too long: {self.by_duration!r}") from None

    def offset_in(self, log: Log, committed: int | None, time_ms: int | None) -> int:
        """Return the offset in a log, which may be outside of it.  Raises: WrongUseError for a shift from nothing."""
        if self.to_earliest:
            return log.log_start_offset
        if self.to_offset is not None:
            return self.to_offset
        if self.shift_by is not None:
            if committed is None:
                raise WrongUseError(f"--shift-by: the group has committed no offset of {log.topic_partition}")
            return committed + self.shift_by
        if self.to_current and committed is not None:
            return committed
        place = None if time_ms is None else log.offset_for_timestamp(time_ms)
        return log.log_end_offset if place is None else place.offset


@dataclass(frozen=True, kw_only=True)
class ChangeWanted:
    """The options of a change of groups."""

    directory: str
    groups: tuple[str, ...]
    topics: tuple[str, ...]
    all_topics: bool
    action: str | None
    target: ResetTarget
    exports: bool
    is_dry: bool

    def check(self) -> None:
        """Raise WrongUseError for options that do not go together."""
        if not self.groups:
            raise WrongUseError(f"--{self.action} needs --group GROUP")
        if self.action != DELETE and len(self.groups) > 1:
            raise WrongUseError(f"--{self.action} takes one group")
        needs_topics = self.action == DELETE_OFFSETS or (self.action == RESET and self.target.from_file is None)
        if bool(self.topics) + self.all_topics != int(needs_topics):
            wanted = "one of --topic and --all-topics" if needs_topics else "neither --topic nor --all-topics"
            raise WrongUseError(f"--{self.action} takes {wanted} here")
        given = self.target.given
        if self.action == RESET and len(given) != 1:
            names = ", ".join(f"--{one.name.replace('_', '-')}" for one in fields(self.target))
            raise WrongUseError(f"--reset takes one of {names}; got {' and '.join(given) or 'none'}")
        if self.action != RESET and (given or self.exports):
            raise WrongUseError(f"{' and '.join([*given, *['--export'] * self.exports])} goes with --reset")

    def check_unused(self) -> None:
        """Raise WrongUseError if there is an option of a change, but no change."""
        unused = [*self.target.given, *["--topic"] * bool(self.topics), *["--all-topics"] * self.all_topics]
        unused += [*["--export"] * self.exports, *["--dry-run"] * self.is_dry]
        if unused:
            raise WrongUseError(f"{unused[0]} goes with --reset, --delete or --delete-offsets")


class PlannedOffset(NamedTuple):
    """A partition whose offset is reset: from `committed`, None for none, to `offset`; note: why that differs from what
    was asked for.
    """

    topic_partition: TopicPartition
    committed: int | None
    offset: int
    note: str


def action_of(*, reset: bool, delete: bool, delete_offsets: bool) -> str | None:
    """Return the change that is wanted, None for none.  Raises: WrongUseError for several."""
    chosen = [name for name, is_set in ((RESET, reset), (DELETE, delete), (DELETE_OFFSETS, delete_offsets)) if is_set]
    if len(chosen) > 1:
        raise WrongUseError(f"{' and '.join(f'--{name}' for name in chosen)} exclude each other")
    return chosen[0] if chosen else None


def run(wanted: ChangeWanted, out: Output, *, is_json: bool) -> int:
    """Change the groups, or show what would be changed, and return the exit status.

    All groups are checked before the first one is changed.
    """
    wanted.check()
    with open_store(wanted.directory) as store:
        if GROUP_OFFSETS_TOPIC not in store.topics:
            raise WrongUseError(
                f"{shown_path(wanted.directory)} has no topic {GROUP_OFFSETS_TOPIC}, which holds the groups"
            )
        if wanted.is_dry:
            _change(store, wanted, out, is_json=is_json)
    if wanted.is_dry:
        out.notice("dry run: nothing was changed")
        return EXIT_FINE
    with open_store(wanted.directory, "a") as writable:
        _change(writable, wanted, out, is_json=is_json)
    return EXIT_FINE


def _change(store: Store | WritableStore, wanted: ChangeWanted, out: Output, *, is_json: bool) -> None:
    try:
        found = {name: group_to_change(store, name) for name in wanted.groups}
    except (GroupStateError, UnknownTopicOrPartitionError, ValueError) as error:
        raise WrongUseError(str(error)) from error
    if wanted.action == RESET:
        (name,) = wanted.groups
        _reset(store, name, found[name], wanted, out, is_json=is_json)
        return
    missing = [name for name, group in found.items() if group is None]
    if missing:
        raise WrongUseError(f"no group {' or '.join(missing)} in {shown_path(wanted.directory)}")
    for name, group in found.items():
        if group is not None:
            _delete(store, name, group, wanted, out, is_json=is_json)


def _reset(
    store: Store | WritableStore, name: str, group: Group | None, wanted: ChangeWanted, out: Output, *, is_json: bool
) -> None:
    planned = planned_offsets(store, group, wanted)
    if isinstance(store, WritableStore):
        reset_offsets(store, name, {one.topic_partition: one.offset for one in planned})
    if group is None:
        out.notice(f"group {name} is new")
    if wanted.exports:
        for one in planned:
            topic, partition = one.topic_partition
            out.line(f"{printable(topic)},{partition},{one.offset}")
    elif is_json:
        for one in planned:
            out.line(_reset_json(name, one, is_dry=wanted.is_dry))
    else:
        out.table(RESET_COLUMNS, [_reset_row(name, one) for one in planned])


def planned_offsets(store: Store | WritableStore, group: Group | None, wanted: ChangeWanted) -> list[PlannedOffset]:
    """Return the offsets to which a group is reset, those outside of a log moved to its start or end, as Kafka does.

    Raises: WrongUseError for a partition that the root does not have, and a file that has other lines.
    """
    target, time_ms = wanted.target, wanted.target.time_ms()
    if target.from_file is None:
        asked: dict[TopicPartition, int | None] = dict.fromkeys(_partitions(store, group, wanted))
    else:
        asked = dict(_offsets_of_file(target.from_file))
    if not asked:
        raise WrongUseError("there is no partition to reset")
    planned = []
    for topic_partition, offset in sorted(asked.items()):
        _check_there(store, topic_partition, wanted)
        log = store.log(*topic_partition)
        known = None if group is None else group.offsets.get(topic_partition)
        committed = None if known is None else known.committed.offset
        chosen = target.offset_in(log, committed, time_ms) if offset is None else offset
        inside = min(max(chosen, log.log_start_offset), log.log_end_offset)
        note = "" if inside == chosen else f"{chosen} is {'below' if chosen < inside else 'above'} the log"
        planned.append(PlannedOffset(topic_partition, committed, inside, note))
    return planned


def _delete(
    store: Store | WritableStore, name: str, group: Group, wanted: ChangeWanted, out: Output, *, is_json: bool
) -> None:
    chosen = {one: offset.committed.offset for one, offset in group.offsets.items()}
    if wanted.action == DELETE_OFFSETS:
        partitions = set(_partitions(store, group, wanted))
        chosen = {one: offset for one, offset in chosen.items() if one in partitions}
        if not chosen:
            raise WrongUseError(f"group {name} has committed no offset of these partitions")
    if isinstance(store, WritableStore):
        if wanted.action == DELETE:
            delete_group(store, name)
        else:
            delete_offsets(store, name, chosen.keys())
    if is_json:
        offsets = [one._asdict() | {"offset": offset} for one, offset in chosen.items()]
        shown = {"group": name, "deleted": wanted.action == DELETE, "offsets": offsets, "written": not wanted.is_dry}
        out.line(JSON_TEXT(plain_value(shown)))
        return
    rows = [[printable(name), printable(one.topic), str(one.partition), str(offset)] for one, offset in chosen.items()]
    out.table(DELETED_COLUMNS, rows or [[printable(name), "-", "-", "-"]])


def _partitions(store: Store | WritableStore, group: Group | None, wanted: ChangeWanted) -> list[TopicPartition]:
    """Return the partitions that --topic or --all-topics names.  Raises: WrongUseError."""
    committed = [] if group is None else list(group.offsets)
    if wanted.all_topics:
        return committed
    chosen: list[TopicPartition] = []
    for text in wanted.topics:
        found = _TOPIC.fullmatch(text)
        if found is None:
            raise WrongUseError(f"--topic must be a topic, or topic:0,1,2 for some of its partitions, got {text!r}")
        topic, numbers = found["topic"], found["numbers"]
        known = sorted({one for one in (*store.partitions, *committed) if one.topic == topic})
        named = [TopicPartition(topic, int(number)) for number in numbers.split(",")] if numbers else known
        if not named:
            raise WrongUseError(f"no topic {topic} in {shown_path(wanted.directory)}")
        chosen += named
    return chosen


def _check_there(store: Store | WritableStore, topic_partition: TopicPartition, wanted: ChangeWanted) -> None:
    if topic_partition not in store.partitions:
        raise WrongUseError(f"no partition {topic_partition} in {shown_path(wanted.directory)}, where its log is read")


def _offsets_of_file(path: str) -> list[tuple[TopicPartition, int]]:
    """Return the offsets in a file of lines topic,partition,offset, in which a line wins over those before.

    Raises: WrongUseError for another line; StorageError.
    """
    found = []
    with open_foreign(path) as file:
        lines = (line.decode("utf-8", "surrogateescape") for line in lines_of(file, path))
        for number, row in enumerate(_rows(lines, path), 1):
            if not row:
                continue
            if len(row) != 3 or not all(_is_number(text.strip()) for text in row[1:]):
                raise WrongUseError(
                    f"line {number} of {path}: expected topic,partition,offset, got {','.join(row)[:80]!r}"
                )
            offset = int(row[2])
            if offset > MAX_OFFSET:
                raise WrongUseError(f"line {number} of {path}: the offset must be at most {MAX_OFFSET}, got {offset}")
            found.append((TopicPartition(row[0].strip(), int(row[1])), offset))
    return found


def _rows(lines: Iterable[str], path: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(lines)
    except csv.Error as error:
        raise WrongUseError(f"{path}: expected lines topic,partition,offset: {error}") from error


def _is_number(text: str) -> bool:
    """Whether a text is a number of at most 19 digits, as an int64 has."""
    return text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_OFFSET))


def _reset_row(name: str, one: PlannedOffset) -> list[str]:
    topic, partition = one.topic_partition
    committed = "-" if one.committed is None else str(one.committed)
    return [printable(name), printable(topic), str(partition), committed, str(one.offset), one.note]


def _reset_json(name: str, one: PlannedOffset, *, is_dry: bool) -> str:
    topic, partition = one.topic_partition
    shown = {
        "group": name,
        "topic": topic,
        "partition": partition,
        "committed": one.committed,
        "offset": one.offset,
        "note": one.note or None,
        "written": not is_dry,
    }
    return JSON_TEXT(plain_value(shown))
