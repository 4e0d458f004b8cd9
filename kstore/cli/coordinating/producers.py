"""`kstore transactions --producers`: the producers of partitions, as kafka-transactions.sh describe-producers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.cli import EXIT_FINE
from kstore.cli.arguments import WrongUseError
from kstore.cli.output import Column, printable
from kstore.cli.render import JSON_TEXT, time_text
from kstore.env import DEFAULT_ENV
from kstore.errors import KStoreError
from kstore.log.files.names import CLUSTER_METADATA_TOPIC
from kstore.log.state.producers import active_producers
from kstore.store.opening import open_found
from kstore.types import NO_OFFSET

if TYPE_CHECKING:
    from kstore.cli.coordinating.transactions import TransactionsWanted
    from kstore.cli.output import Output
    from kstore.log.files.names import PartitionDirectory
    from kstore.log.files.snapshots import ProducerSnapshotEntry
    from kstore.types import TopicPartition

COLUMNS = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("producer", is_number=True),
    Column("epoch", is_number=True),
    Column("coordinator epoch", is_number=True, rank=2),
    Column("last sequence", is_number=True, rank=1),
    Column("last timestamp"),
    Column("open from", is_number=True),
)


def run(wanted: TransactionsWanted, out: Output, *, is_json: bool) -> int:
    """Show the producers of the selected partitions and return the exit status.

    A partition that can't be read is reported and left out.
    """
    if wanted.aborts or wanted.shows_ids or wanted.only_hanging or wanted.transactional_ids:
        raise WrongUseError("--producers goes with --topic, --partition, --producer-id, --now and --json")
    now_ms = DEFAULT_ENV.wall_clock_ms() if wanted.now_ms is None else wanted.now_ms
    status, rows = EXIT_FINE, []
    for directory in wanted.selection.find():
        if directory.topic_partition.topic == CLUSTER_METADATA_TOPIC:
            continue
        try:
            found = _producers_of(directory, now_ms)
        except KStoreError as error:
            status = max(status, out.partition_failure(error, directory))
            continue
        for producer in found:
            if wanted.producer_ids and producer.producer_id not in wanted.producer_ids:
                continue
            if is_json:
                out.line(json_of(directory.topic_partition, producer))
            else:
                rows.append(_row(directory.topic_partition, producer))
    if rows:
        out.table(COLUMNS, rows)
    elif not is_json:
        out.notice(f"no producer that a broker would know of at {time_text(now_ms)}")
    return status


def _producers_of(directory: PartitionDirectory, now_ms: int) -> list[ProducerSnapshotEntry]:
    with open_found(directory) as log:
        return active_producers(
            directory,
            log.segments,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            now_ms=now_ms,
            config=log.config,
            env=directory.env,
        )


def json_of(topic_partition: TopicPartition, producer: ProducerSnapshotEntry) -> str:
    """Return the JSON object of a producer."""
    first = producer.current_txn_first_offset
    return JSON_TEXT(
        {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "last_sequence": producer.last_sequence,
            "last_timestamp": producer.timestamp_ms,
            "first_offset": None if first == NO_OFFSET else first,
        }
    )


def _row(topic_partition: TopicPartition, producer: ProducerSnapshotEntry) -> list[str]:
    first = producer.current_txn_first_offset
    numbers = (producer.producer_id, producer.producer_epoch, producer.coordinator_epoch, producer.last_sequence)
    return [
        printable(topic_partition.topic),
        str(topic_partition.partition),
        *map(str, numbers),
        time_text(producer.timestamp_ms),
        "-" if first == NO_OFFSET else str(first),
    ]
