"""Commands on what coordinators keep: transactions, groups."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from kstore.cli.app import command
from kstore.cli.arguments import WrongUseError
from kstore.cli.commands.options import Directory, Json, Partitions, Reverse, Topics, Watch, selection_of
from kstore.cli.output import Output

_MINUTE_MS = 60_000
GroupNames = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="GROUP", help="Only this group; repeatable."),
]
GroupStates = Annotated[
    list[str] | None, typer.Option("--state", metavar="STATE", help="Only groups in this state; repeatable.")
]
GroupTypes = Annotated[
    list[str] | None, typer.Option("--type", metavar="TYPE", help="Only groups of this type; repeatable.")
]


@command("transactions")
def show_transactions(
    out: Output,
    directory: Directory,
    topic: Topics = None,
    partition: Partitions = None,
    hanging: Annotated[
        bool, typer.Option("--hanging", help="Only those that no coordinator will end (KIP-664).")
    ] = False,
    transactional_id: Annotated[
        list[str] | None, typer.Option("--transactional-id", metavar="ID", help="Only this id's; repeatable.")
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", metavar="N", min=0, help="Only this producer's; repeatable.")
    ] = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", metavar="N", min=0, help="Only those that start here.")
    ] = None,
    ids: Annotated[bool, typer.Option("--ids", help="List all transactional ids with their states instead.")] = False,
    producers: Annotated[
        bool, typer.Option("--producers", help="List the producers of each partition instead, those without too.")
    ] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Write the ABORT markers of the selected ones.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, show what --abort would write.")] = False,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="Ages are as of this time: epoch ms or ISO-8601; default: now.")
    ] = None,
    max_transaction_timeout: Annotated[
        int, typer.Option(metavar="MINUTES", min=0, help="The brokers' transaction.max.timeout.ms, in minutes.")
    ] = 15,
    json: Json = False,
) -> int:
    """Show open transactions, who holds readers back, and abort."""
    from kstore.cli.arguments import parse_timestamp_ms
    from kstore.cli.coordinating import transactions

    wanted = transactions.TransactionsWanted(
        selection=selection_of(directory, topic, partition),
        producer_ids=tuple(producer_id or ()),
        transactional_ids=tuple(transactional_id or ()),
        start_offset=start_offset,
        only_hanging=hanging,
        shows_ids=ids,
        aborts=abort,
        is_dry=dry_run,
        now_ms=None if now is None else parse_timestamp_ms(now, option="--now"),
        max_timeout_ms=max_transaction_timeout * _MINUTE_MS,
    )
    if producers:
        from kstore.cli.coordinating import producers as describing

        return describing.run(wanted, out, is_json=json)
    return transactions.run(wanted, out, is_json=json)


ToTime = Annotated[
    str | None, typer.Option("--to-datetime", metavar="TIME", help="The first offset at or after a time.")
]
ByDuration = Annotated[
    str | None, typer.Option("--by-duration", metavar="PnDTnHnMnS", help="The first offset so long ago.")
]
ShiftBy = Annotated[
    int | None, typer.Option("--shift-by", metavar="N", help="So many offsets on, or back if negative.")
]
FromFile = Annotated[str | None, typer.Option("--from-file", metavar="CSV", help="Lines of topic,partition,offset.")]
ChangedTopics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="T[:P,...]", help="What --reset and --delete-offsets change; repeatable."),
]
AllTopics = Annotated[bool, typer.Option("--all-topics", help="All partitions for which the group has committed.")]


class GroupOrder(str, Enum):
    """What `groups` sorts by."""

    NAME = "name"
    STATE = "state"
    MEMBERS = "members"
    LAG = "lag"


@command("groups")
def show_groups(
    out: Output,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A log.dirs root.")],
    group: GroupNames = None,
    state: GroupStates = None,
    type_: GroupTypes = None,
    list_: Annotated[bool, typer.Option("--list", help="One row per group: type, state, members, lag.")] = False,
    topic: ChangedTopics = None,
    all_topics: AllTopics = False,
    reset: Annotated[bool, typer.Option("--reset", help="Commit other offsets, chosen by one of the next.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="The log start.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="The log end.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="What is committed, or the log end.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", metavar="N", min=0, help="This offset.")] = None,
    to_datetime: ToTime = None,
    by_duration: ByDuration = None,
    shift_by: ShiftBy = None,
    from_file: FromFile = None,
    export: Annotated[bool, typer.Option("--export", help="Print what is reset as lines for --from-file.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the groups, with their offsets.")] = False,
    delete_offsets: Annotated[bool, typer.Option("--delete-offsets", help="Remove the offsets of the topics.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, show what would be changed.")] = False,
    sort: Annotated[GroupOrder | None, typer.Option(help="Sort the groups by this; lag: of all partitions.")] = None,
    reverse: Reverse = False,
    watch: Watch = None,
    json: Json = False,
) -> int:
    """Show consumer groups and their lag; reset, delete them."""
    from kstore.cli.coordinating import changing, groups
    from kstore.cli.printing.watching import Order, watched

    target = changing.ResetTarget(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        to_datetime=to_datetime,
        by_duration=by_duration,
        shift_by=shift_by,
        from_file=from_file,
    )
    wanted = changing.ChangeWanted(
        directory=directory,
        groups=tuple(group or ()),
        topics=tuple(topic or ()),
        all_topics=all_topics,
        action=changing.action_of(reset=reset, delete=delete, delete_offsets=delete_offsets),
        target=target,
        exports=export,
        is_dry=dry_run,
    )
    if wanted.action is not None:
        if watch is not None:
            raise WrongUseError("--watch shows groups; it goes with no option that changes them")
        return changing.run(wanted, out, is_json=json)
    wanted.check_unused()
    order = Order.of(sort, is_reversed=reverse)
    shown = groups.GroupsWanted(wanted.groups, state or (), type_ or (), list_, order)
    return watched(lambda: groups.run(directory, shown, out, is_json=json), out, interval_s=watch, is_json=json)
