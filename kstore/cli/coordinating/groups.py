"""`kstore groups`: the groups of a root, their members, committed offsets and lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.cli import EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.output import Column, printable
from kstore.cli.printing.watching import Order
from kstore.cli.render import JSON_TEXT, plain_value, time_text
from kstore.consumer.groups import read_groups
from kstore.coordinator.group.metadata import STATES, TYPES
from kstore.env import shown_path
from kstore.naming import did_you_mean
from kstore.store.store import open_store
from kstore.types import GROUP_OFFSETS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kstore.cli.output import Output
    from kstore.coordinator.group.metadata import Group, GroupMember, GroupOffset
    from kstore.errors import KStoreError
    from kstore.types import OffsetAndMetadata, TopicPartition

COLUMNS = (
    Column("group"),
    Column("state"),
    Column("topic"),
    Column("partition", is_number=True),
    Column("offset", is_number=True),
    Column("log end", is_number=True),
    Column("lag", is_number=True),
    Column("committed", rank=2),
    Column("member", rank=1),
    Column("host", rank=3),
)
LIST_COLUMNS = (
    Column("group"),
    Column("type"),
    Column("state"),
    Column("epoch", is_number=True),
    Column("members", is_number=True),
    Column("partitions", is_number=True),
    Column("lag", is_number=True),
)


class GroupsWanted(NamedTuple):
    """Which groups are shown, empty for all: by id, state and type in any case; lists: a row for each; order: by
    SORT_KEYS.
    """

    groups: Sequence[str] = ()
    states: Sequence[str] = ()
    types: Sequence[str] = ()
    lists: bool = False
    order: Order = Order()

    def check(self) -> None:
        """Raise WrongUseError for a state or type that does not exist."""
        for option, given, known in (("--state", self.states, STATES), ("--type", self.types, TYPES)):
            names = {name.casefold() for name in known}
            for text in given:
                if text.casefold() not in names:
                    raise WrongUseError(f"{option} must be one of {', '.join(known)}, got {text!r}")

    def selects(self, group: Group) -> bool:
        return (not self.states or group.state.casefold() in {one.casefold() for one in self.states}) and (
            not self.types or group.type.casefold() in {one.casefold() for one in self.types}
        )


def run(directory: str, wanted: GroupsWanted, out: Output, *, is_json: bool) -> int:
    """Show the groups of a root and return the exit status.

    A partition that can't be read is reported, and its groups are left out.
    """
    wanted.check()
    groups = wanted.groups
    status = EXIT_FINE

    def on_error(error: KStoreError) -> None:
        nonlocal status
        status = max(status, out.failure(error))

    with open_store(directory) as store:
        if GROUP_OFFSETS_TOPIC not in store.topics:
            raise WrongUseError(f"{shown_path(directory)} has no topic {GROUP_OFFSETS_TOPIC}, which holds the groups")
        found_groups = read_groups(store, groups=groups or None, on_error=on_error)
        close = ""
        if set(groups) - {group.group_id for group in found_groups}:
            close = did_you_mean(groups, (group.group_id for group in read_groups(store, on_error=lambda _: None)))
    missing = sorted(set(groups) - {group.group_id for group in found_groups})
    chosen = wanted.order.apply(filter(wanted.selects, found_groups), SORT_KEYS)
    if is_json:
        for group in chosen:
            out.line(json_of(group))
    elif chosen and wanted.lists:
        out.table(LIST_COLUMNS, [list_row(group) for group in chosen])
    elif chosen:
        out.table(COLUMNS, [row for group in chosen for row in rows_of(group)])
        for group in chosen:
            for partition, offset in group.offsets.items():
                if offset.problem is not None:
                    place = f"{group.group_id}, {partition}"
                    out.notice(
                        f"{place}: at the offset {offset.committed.offset} no consumer goes on: {offset.problem}"
                    )
    if missing:
        raise WrongUseError(f"no group {' or '.join(missing)} in {shown_path(directory)}{close}")
    return status


def lag_of(group: Group) -> int | None:
    """Return the lag of all partitions that the root has, None if it has none of them."""
    lags = [offset.lag for offset in group.offsets.values() if offset.lag is not None]
    return sum(lags) if lags else None


# What `--sort` sorts by.
SORT_KEYS: dict[str, Callable[[Group], Any]] = {
    "name": lambda group: group.group_id,
    "state": lambda group: group.state,
    "members": lambda group: len(group.members),
    "lag": lag_of,
}


def list_row(group: Group) -> list[str]:
    """Return the table cells of a group, in the order of LIST_COLUMNS; lag: of the partitions that the root has."""
    total = lag_of(group)
    numbers = (len(group.members), len(group.offsets))
    epoch = "-" if group.epoch is None else str(group.epoch)
    lag = "-" if total is None else str(total)
    return [printable(group.group_id), group.type, group.state, epoch, *map(str, numbers), lag]


def rows_of(group: Group) -> list[list[str]]:
    """Return the table cells of a group, in the order of COLUMNS: a row for each offset and assigned partition."""
    owners = {partition: member for member in group.members for partition in member.assignment}
    idle = [member for member in group.members if not member.assignment]
    partitions = sorted(group.offsets.keys() | group.pending.keys() | owners.keys())
    rows = [_row(group, partition, group.offsets.get(partition), owners.get(partition)) for partition in partitions]
    rows += [_row(group, None, None, member) for member in idle]
    return rows or [_row(group, None, None, None)]


def _row(
    group: Group, partition: TopicPartition | None, offset: GroupOffset | None, member: GroupMember | None
) -> list[str]:
    place = ["-", "-"] if partition is None else [printable(partition.topic), str(partition.partition)]
    numbers = ["-"] * 4
    if offset is not None:
        numbers = [
            str(offset.committed.offset),
            "-" if offset.log_end_offset is None else str(offset.log_end_offset),
            "-" if offset.lag is None else str(offset.lag),
            time_text(offset.committed.commit_timestamp_ms),
        ]
    who = ["-", "-"] if member is None else [printable(member.member_id), printable(member.host)]
    return [printable(group.group_id), group.state, *place, *numbers, *who]


def json_of(group: Group) -> str:
    """Return the JSON object of a group."""
    shown = {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "leader": group.leader,
        "epoch": group.epoch,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "epoch": member.epoch,
                "topics": member.topics,
                "assignment": [partition._asdict() for partition in member.assignment],
            }
            for member in group.members
        ],
        "offsets": [
            _offset(partition, offset.committed)
            | {
                "log_end_offset": offset.log_end_offset,
                "lag": offset.lag,
                "log_start_offset": offset.log_start_offset,
                "problem": offset.problem,
            }
            for partition, offset in group.offsets.items()
        ],
        "pending": [_offset(partition, offset) for partition, offset in group.pending.items()],
    }
    # Names from the files need not be UTF-8.
    return JSON_TEXT(plain_value(shown))


def _offset(partition: TopicPartition, offset: OffsetAndMetadata) -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": offset.offset,
        "leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
        "commit_timestamp": offset.commit_timestamp_ms,
        "expire_timestamp": offset.expire_timestamp_ms,
    }
