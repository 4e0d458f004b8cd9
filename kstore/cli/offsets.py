"""`kstore offsets`: the offset of each partition at a time, as a broker's ListOffsets returns it.

A module of its own, as all commands are: app.py imports only the command that runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kstore.cli import EXIT_FINE
from kstore.cli.arguments import WrongUseError, parse_timestamp_ms
from kstore.cli.output import Column
from kstore.cli.render import JSON_TEXT, time_text
from kstore.errors import KStoreError
from kstore.store.opening import open_found
from kstore.types import EARLIEST, LATEST, MAX_TIMESTAMP, NO_TIMESTAMP, OffsetAndTimestamp

if TYPE_CHECKING:
    from kstore.cli.arguments import PartitionSelection
    from kstore.cli.output import Output
    from kstore.log.log import Log

# Names of Kafka's tools, and numbers of ListOffsets, for its special timestamps.
SPECIAL_TIMES = {"latest": LATEST, "earliest": EARLIEST, "max-timestamp": MAX_TIMESTAMP}
UNKNOWN_OFFSET = -1
COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("offset", is_number=True),
    Column("timestamp"),
)


class OffsetQuery(NamedTuple):
    """The requested time: ms, or one of SPECIAL_TIMES. only_committed: the log ends at the last stable offset."""

    timestamp_ms: int
    only_committed: bool


def parse_time(text: str) -> int:
    """Return the timestamp in ms, or special timestamp, of the --time option.

    Raises: WrongUseError.
    """
    if text in SPECIAL_TIMES:
        return SPECIAL_TIMES[text]
    timestamp_ms = parse_timestamp_ms(text, option="--time")
    if timestamp_ms < MAX_TIMESTAMP:
        raise WrongUseError(f"--time must be a time, {', '.join(SPECIAL_TIMES)} or their numbers -1 to -3, got {text}")
    return timestamp_ms


def run(selection: PartitionSelection, wanted: OffsetQuery, out: Output, *, is_json: bool) -> int:
    """Print the offset of each selected partition and return the exit status.

    A partition that can't be read is reported and left out.
    """
    status = EXIT_FINE
    rows = []
    for partition in selection.find():
        topic, number = partition.topic_partition
        try:
            with open_found(partition) as log:
                offset, timestamp_ms = list_offset(log, wanted)
        except KStoreError as error:
            status = max(status, out.partition_failure(error, partition))
            continue
        if is_json:
            out.line(JSON_TEXT({"topic": topic, "partition": number, "offset": offset, "timestamp": timestamp_ms}))
        else:
            rows.append([topic, str(number), "-" if offset == UNKNOWN_OFFSET else str(offset), time_text(timestamp_ms)])
    if rows:
        out.table(COLUMNS, rows)
    return status


def list_offset(log: Log, wanted: OffsetQuery) -> OffsetAndTimestamp:
    """Return the offset and timestamp that a broker would return, -1 for one that does not exist.

    Cost: MAX_TIMESTAMP and only_committed walk the whole log.
    """
    unknown = OffsetAndTimestamp(UNKNOWN_OFFSET, NO_TIMESTAMP)
    if wanted.timestamp_ms == EARLIEST:
        return OffsetAndTimestamp(log.log_start_offset, NO_TIMESTAMP)
    end_offset = log.log_end_offset
    if wanted.only_committed:
        end_offset = min(end_offset, log.transactions().last_stable_offset)
    if wanted.timestamp_ms == LATEST:
        return OffsetAndTimestamp(end_offset, NO_TIMESTAMP)
    place = log.offset_for_timestamp(wanted.timestamp_ms)
    return place if place is not None and place.offset < end_offset else unknown
