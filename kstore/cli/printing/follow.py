"""`kstore cat --follow`: the records of the selected partitions, and new ones as they are appended."""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING

from kstore.cli import EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.printing.cat import Printer
from kstore.errors import KStoreError, LogNotFoundError
from kstore.log.following.follower import Feed
from kstore.log.following.partitions import ManyLogs
from kstore.log.following.tail import FollowOptions, LogTail
from kstore.store.opening import open_found

if TYPE_CHECKING:
    from collections.abc import Set

    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.cli.printing.cat import CatOptions
    from kstore.cli.printing.formats import RecordFormat
    from kstore.env import Arrivals
    from kstore.log.files.names import PartitionDirectory
    from kstore.types import TopicPartition


def run(selection: PartitionSelection, wanted: CatOptions, record_format: RecordFormat, out: Output) -> int:
    """Print the selected records, and new ones, until the limit or an interrupt; return the exit status.

    A partition that can't be opened is reported and left out. If a log is truncated, or loses records before they are
    printed, a warning says so and the command continues.
    """
    partitions = _followed(selection)
    status, unreadable = EXIT_FINE, set()
    for partition in partitions:
        try:
            open_found(partition).close()
        except KStoreError as error:
            failure = out.partition_failure(error, partition)
            if failure != EXIT_FINE:
                unreadable.add(partition.topic_partition)
            status = max(status, failure)
    if len(unreadable) == len(partitions):
        return status
    env = partitions[0].env
    arrivals = env.watch()
    parts = ManyLogs(
        partitions[0].root,
        find=partial(_present_partitions, selection, unreadable),
        open_tail=partial(_tail, wanted=wanted, arrivals=arrivals),
        arrivals=arrivals,
        from_offset=wanted.start_offset,
        sees_root=False,
        other_roots={partition.root for partition in partitions},
    )
    feed = Feed(parts, arrivals, timeout_s=None, clock=env)
    printer = Printer(wanted, record_format, out)
    decoding = wanted.decoding
    if decoding is not None:
        decoding.begin(lambda: [*_present_partitions(selection, unreadable).values()], is_live=True)
    try:
        while printer.left != 0:
            if not feed.read():
                out.flush()
                feed.wait()
            if feed.unmade:
                batch, start_offset = feed.unmade.popleft()
                if batch.topic_partition is not None:
                    printer.show(batch, batch.topic_partition, start_offset=start_offset)
    finally:
        feed.close()
    return status if decoding is None else max(status, decoding.finish(out))


def _followed(selection: PartitionSelection) -> list[PartitionDirectory]:
    try:
        return selection.find()
    except LogNotFoundError as error:
        if error.errno == errno.ENOENT:
            raise
        raise WrongUseError(f"--follow goes on with a partition directory or a log.dirs root: {error}") from error


def _present_partitions(
    selection: PartitionSelection, unreadable: Set[TopicPartition]
) -> dict[TopicPartition, PartitionDirectory]:
    try:
        return {
            partition.topic_partition: partition
            for partition in selection.find()
            if partition.topic_partition not in unreadable
        }
    except (LogNotFoundError, WrongUseError):
        return {}


def _tail(directory: PartitionDirectory, offset: int | None, *, wanted: CatOptions, arrivals: Arrivals) -> LogTail:
    """Return the tail of a log; offset: None for a partition that was added later, which is read from its start."""
    options = FollowOptions(
        isolation="read_committed" if wanted.only_committed else "read_uncommitted", auto_offset_reset="earliest"
    )
    with open_found(directory) as log:
        start = None
        if offset is not None:
            wanted = wanted.resolved(log)
            end = log._readable_end(isolation=options.isolation).offset
            start, _ = log._held_offsets(wanted.start_offset, since_ms=wanted.since_ms, isolation=options.isolation)
            start = min(start, max(end, log.log_start_offset))
        # The tail uses a log of its own, which outlives this call.
        return open_found(directory)._tail(start, options=options, arrivals=arrivals)[0]
