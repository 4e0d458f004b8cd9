"""What kstore does otherwise than Kafka on purpose: docs/durability.md has each rule, in sections 5 and 8.

A rule says what Kafka's answer, state or file is instead, from kstore's and what was appended, or ends the history.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from kstore._core import BatchHeader
from kstore.config import LogConfig
from kstore.env import LocalEnv
from kstore.log.files.checkpoints import EpochEntry
from kstore.log.files.root_files import CleanShutdown, write_clean_shutdown
from kstore.log.files.snapshots import encode_snapshot
from kstore.log.files.transaction_index import decode_aborted_txns
from kstore.log.segment.segment import LogSegment
from kstore.log.state.leader_epochs import LeaderEpochCache
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords
from kstore.store.opening import open_log
from tests.interop.histories.answers import Answer, state_of
from tests.reference.messages import MAGIC_AT, read_all

RECORD_BATCH_MAGIC = 2
EMPTY_SNAPSHOT = encode_snapshot([])


class Parted(Exception):
    """From here on the two logs differ, as docs/durability.md says, so that the history ends."""


def part_at_full_index(answer: Answer) -> None:
    """End the history where Kafka fails because the batches of one append, or of a recovered segment, fill an index."""
    if "append to a full" in answer.get("message", ""):
        raise Parted


def part_where_a_forgotten_transaction_began(answer: Answer, log: WritableLog, *, log_start_offset: int) -> None:
    """End the history where Kafka does not start a recovered log with segments that begin below its start.

    LogSegment.recover replays what lies below the log start too, and so the start of a transaction that the log had
    forgotten when its producer wrote without one.
    """
    if answer.get("error") == "InvalidTxnStateException" and log.segments[0].base_offset < log_start_offset:
        raise Parted


def part_below_segments(log: WritableLog) -> None:
    """End the history before a log is cleaned that starts below its first segment.

    LocalLog.collectAbortedTransactions then finds none, since no segment holds the start, so that the Cleaner takes
    the data of aborted transactions for that of committed ones.
    """
    if log.log_start_offset < log.segments[0].base_offset:
        raise Parted


def part_at_invisible_batches(
    ours: bytes, theirs: bytes, *, base_offset: int, log_start_offset: int, end_offset: int
) -> None:
    """End the history where two logs differ, after a cleaning up to end_offset, in what no consumer can see.

    For the Cleaner a transaction that was aborted below the log start is not aborted, so that a later marker of its
    producer may get no delete horizon, or one too soon. The batch that ends at end_offset stays, if need be empty
    (KAFKA-17076; from 4.4 on only if it ends at the high watermark, KAFKA-20452).
    Args: base_offset: of the first segment.
    """

    def shown(header: BatchHeader, data: bytes) -> object:
        if header.is_control and base_offset < log_start_offset:
            return header.base_offset, header.producer_id
        return data[header.position : header.position + header.size_in_bytes]

    def visible(data: bytes) -> list[object]:
        headers = [one.header for one in MemoryRecords(data).batches() if one.last_offset >= log_start_offset]
        if headers and headers[-1].last_offset + 1 == end_offset and headers[-1].record_count == 0:
            headers.pop()
        return [shown(one, data) for one in headers]

    if ours != theirs and visible(ours) == visible(theirs):
        raise Parted


def part_at_open_transaction(log: WritableLog, theirs: Answer) -> None:
    """End the history where retention removed records from the last stable offset on, which kstore keeps."""
    if theirs["log_start_offset"] > log.last_stable_offset >= log.log_start_offset:
        raise Parted


# Answers


def first_offset_of(data: bytes, answer: Answer) -> int:
    """The first offset of an append: UnifiedLog.analyzeAndValidateRecords sets it for magic 2 only."""
    if answer["base_offset"] == -1 and data[MAGIC_AT] < RECORD_BATCH_MAGIC:
        return int.from_bytes(data[:8], "big")
    return int(answer["base_offset"])


def untimed(producers: Answer) -> Answer:
    return {name: [*one[:-1], [batch[:-1] for batch in one[-1]]] for name, one in producers.items()}


def part_after_a_gap(ours: Answer, theirs: Answer) -> None:
    """End the history where two logs that ended in a gap were closed and opened, and know the same of producers.

    Kafka then has a snapshot at the log end, which is above the end that LogLoader finds, and so replays the records
    from the log start on; kstore has one where the batches end, with the last batch of each producer.
    """
    # Their order shows in snapshots.
    if [*ours.items()] != [*theirs.items()] and knows_as_much(ours, theirs, more_before=True):
        raise Parted


def part_after_a_cleaning(ours: Answer, theirs: Answer) -> None:
    """End the history where Kafka forgot batches of producers that kstore knows, and both know the same otherwise.

    A snapshot inside of a cleaned segment is from before the cleaning: Kafka loads it, and replays what is left of the
    records after it; kstore has one from after it.
    """
    if ours != theirs and knows_as_much(ours, theirs, more_before=False):
        raise Parted


def knows_as_much(ours: Answer, theirs: Answer, *, more_before: bool) -> bool:
    """Whether kstore has every producer and batch that Kafka has, without their times.

    Args: more_before: Kafka may have more batches of a producer before the last one.
    """

    def batches(one: list[Any]) -> list[list[int]]:
        return [batch[:-1] for batch in one[-1]]

    def others(producers: Answer) -> Answer:
        return {name: [*one[:2], one[3]] for name, one in producers.items()}

    def has_as_many(one: list[Any], other: list[Any]) -> bool:
        mine, known = batches(one), batches(other)
        return all(batch in mine for batch in (known[-1:] if more_before else known))

    return others(ours) == others(theirs) and all(has_as_many(ours[name], one) for name, one in theirs.items())


def has_records(log: WritableLog, start_offset: int, end_offset: int) -> bool:
    least, most = max(log.log_start_offset, start_offset), min(log.log_end_offset, end_offset)
    return least < most and any(
        batch.last_offset >= least for batch in log.batches(least, most) if batch.base_offset < most
    )


def end_of_lookup(log: WritableLog, timestamp_ms: int) -> int:
    """The offset after the one segment in which Kafka looks for a timestamp.

    UnifiedLog.fetchOffsetByTimestamp takes the first whose largest timestamp is not below that, even if it belongs to a
    record below the log start, or to those that a cleaner removed from a batch. LogSegment.largestTimestamp takes the
    time of the file, which is later than any that is asked for, for that of a segment with messages of magic 0 only.
    """
    for segment, following in pairwise(log.segments):
        data = bytes_of(segment)
        emptied = (one.header for one in MemoryRecords(data).batches() if one.header.record_count == 0)
        times = [*(one.timestamp_ms for one in read_all(data)), *(one.max_timestamp_ms for one in emptied)]
        largest = max(times, default=-1)
        if largest >= timestamp_ms or largest < 0:
            return following.base_offset
    return log.log_end_offset


def first_record_from(log: WritableLog, timestamp_ms: int) -> Answer:
    """The first record at or above the log start that is not earlier, from the bytes of the segments."""
    data = b"".join(map(bytes_of, log.segments))
    found = (one for one in read_all(data) if one.offset >= log.log_start_offset and one.timestamp_ms >= timestamp_ms)
    one = next(found, None)
    return (
        {"offset": -1, "timestamp_ms": -1} if one is None else {"offset": one.offset, "timestamp_ms": one.timestamp_ms}
    )


def largest_timestamp(log: WritableLog) -> Answer:
    """The first record with the largest timestamp at or above the log start, from the bytes of the segments.

    UnifiedLog.fetchOffsetByTimestamp takes the largest timestamp of whole segments, without the log start, and finds no
    record if it is that of a batch whose records a cleaner removed.
    """
    data = b"".join(map(bytes_of, log.segments))
    times = [
        (one.timestamp_ms, -one.offset)
        for one in read_all(data)
        if one.offset >= log.log_start_offset and one.timestamp_ms >= 0
    ]
    largest, offset = max(times, default=(-1, 1))
    return {"offset": -offset, "timestamp_ms": largest}


def bytes_of(segment: LogSegment) -> bytes:
    """The batches of a segment, without preallocated space."""
    return Path(segment.path).read_bytes()[: segment.size_in_bytes]


# State


def epochs_of_a_refused_append(
    entries: Sequence[EpochEntry], data: bytes, *, epoch: int, base_offset: int | None
) -> tuple[EpochEntry, ...]:
    """The leader epochs that Kafka has after an append that it then refused, or knew already.

    UnifiedLog.append assigns them to the LeaderEpochFileCache after validating the records, but before it compares
    their size with that of a segment, and before it asks the ProducerStateManager.
    Args: epoch, base_offset: what a leader assigns; base_offset None for the epochs and offsets that the batches have.
    """
    cache = LeaderEpochCache(None)
    cache.restore(tuple(entries))
    for batch in MemoryRecords(data).batches():
        if batch.magic < RECORD_BATCH_MAGIC:
            cache.clear()
        elif base_offset is not None:
            cache.assign(epoch, start_offset=base_offset)
        else:
            cache.assign(batch.partition_leader_epoch, start_offset=batch.base_offset)
    return cache.entries


def epochs_of_a_recovery(
    log: WritableLog, noted: Sequence[EpochEntry], *, recovery_point: int
) -> tuple[EpochEntry, ...] | None:
    """The leader epochs that Kafka has after the recovery of a log that starts at its end, or of which none were noted,
    or whose epochs, as they were noted, did not end with its records; None for another log.

    LogSegment.recover notes the epochs of batches above the latest one that is known, and only then LogLoader.load
    truncates the LeaderEpochFileCache, from the end first. So an epoch at the log end hides those of recovered
    batches, in an empty log the last epoch moves to the log start, and of a log without epochs those of older segments
    stay unknown, which kstore notes too.
    """
    start, end = log.log_start_offset, log.log_end_offset
    if noted and start < end and all(one.start_offset < end for one in noted):
        return None
    cache = LeaderEpochCache(None)
    cache.restore(tuple(noted))
    first = max((one.base_offset for one in log.segments if one.base_offset <= recovery_point), default=0)
    for segment in log.segments:
        for batch in MemoryRecords(bytes_of(segment)).batches() if segment.base_offset >= first else ():
            if batch.partition_leader_epoch > cache.latest_epoch:
                cache.assign(batch.partition_leader_epoch, start_offset=batch.base_offset)
    cache.truncate_from_end(end)
    cache.truncate_from_start(start)
    return cache.entries


def producers_without_first_snapshots(
    root: Path, partition: str, *, config: LogConfig, env: LocalEnv, log_start_offset: int
) -> Answer | None:
    """What a log knows that drops the snapshots at and below its start when it is opened; None if there are none.

    ProducerStateManager.truncateAndReload removes those before it looks for one to load; kstore keeps one at the base
    of the first segment.
    """
    names = [path.name for path in (root / partition).glob("*.snapshot") if int(path.stem) <= log_start_offset]
    if not names:
        return None
    with tempfile.TemporaryDirectory() as work:
        copy = Path(shutil.copytree(root, Path(work) / "root")) / partition
        for name in names:
            (copy / name).unlink()
        with open_log(copy, "a", config, env=env) as log:
            found: Answer = state_of(log)["producers"]
    return found


def forgets_at_magic_0_or_1(log: WritableLog, *, recovery_point: int) -> bool:
    """Whether Kafka, having recovered the first segment of a log, forgets the producers that it found there.

    The snapshot that LogLoader.recoverSegment takes is at the end of the producers (see end_of_producers). If that is
    not above the log start, ProducerStateManager.truncateAndReload removes it.
    """
    first = log.segments[0]
    end = log.segments[1].base_offset if len(log.segments) > 1 else log.log_end_offset
    return recovery_point < end and end_of_producers(first) <= log.log_start_offset < end


def end_of_producers(segment: LogSegment) -> int:
    """Where LogSegment.recover leaves the end of the ProducerStateManager: after the last batch of magic 2, since it
    shows it no messages of magic 0 or 1.
    """
    batches = MemoryRecords(bytes_of(segment)).batches()
    return max((one.last_offset + 1 for one in batches if one.magic == RECORD_BATCH_MAGIC), default=segment.base_offset)


def producers_from_log_start(root: Path, partition: str, *, config: LogConfig, env: LocalEnv) -> Answer:
    """What a closed copy of a log knows without any snapshot."""
    with tempfile.TemporaryDirectory() as work:
        copy = Path(shutil.copytree(root, Path(work) / "root"))
        write_clean_shutdown(str(copy), CleanShutdown(), env)
        for path in (copy / partition).glob("*.snapshot"):
            path.unlink()
        with open_log(copy / partition, "a", config, env=env) as log:
            found: Answer = state_of(log)["producers"]
    return found


# Files


def snapshots_of_an_opening(
    log: WritableLog, ours: Mapping[int, bytes], theirs: Mapping[int, bytes], *, is_clean: bool, had_none: bool
) -> dict[int, bytes | None]:
    """The snapshots, by offset, that Kafka has instead of kstore's after an opening; None for one that it removed.

    Args: had_none: whether kstore had no snapshot before.
    """
    start, end, last = log.log_start_offset, log.log_end_offset, log.segments[-1]
    found: dict[int, bytes | None] = {}
    first = log.segments[0].base_offset
    if first == start and first in ours.keys() - theirs.keys():
        # ProducerStateManager.truncateAndReload removes it, and loads another one or replays the records.
        found[first] = None
    if is_clean and had_none:
        # UnifiedLog.rebuildProducerState takes empty ones at the last two segments and at the log end.
        empty = {*(one.base_offset for one in log.segments[-2:]), end}
        found |= {one: EMPTY_SNAPSHOT for one in empty if theirs.get(one) == EMPTY_SNAPSHOT}
    at = end_of_producers(last)
    if not is_clean and start < at < end and at in theirs and theirs[at] == ours.get(end):
        # LogLoader.recoverSegment takes one there, and rebuildProducerState another one at the log end.
        found[at] = theirs[at]
    return found


def is_known_file(
    name: str,
    ours: bytes | None,
    theirs: bytes | None,
    *,
    log_start_offset: int,
    rebuilt: set[str],
    gaps: set[int],
    end_of_batches: int | None = None,
    cleaned_offset: int = 0,
    in_transactions: Sequence[tuple[int, int]] = (),
) -> bool:
    """Whether docs/durability.md says why a file differs.

    Args: rebuilt: names of indexes that kstore rebuilt at an opening; gaps: see gaps_before_segments;
        end_of_batches: where the last batch ends, if the log end is after that; cleaned_offset: what is below it was
        compacted, and snapshots in it went;
        in_transactions: producer id and base offset of the transactional data from the log start on.
    """
    if name.endswith(".txnindex"):
        return name in rebuilt and is_known_transaction_index(
            ours or b"", theirs or b"", log_start_offset=log_start_offset, in_transactions=in_transactions
        )
    if name.endswith("index"):
        # Kafka makes the indexes of a segment when they are first used, and leaves those without entries as they are.
        return not theirs and (not ours or name in rebuilt)
    if not name.endswith(".snapshot"):
        return False
    # Kafka keeps a snapshot in such a gap until the next opening; kstore removes it when it rolls or closes the log.
    offset = int(name.split(".")[0])
    is_gone = offset in gaps or offset < cleaned_offset
    return (ours is None and is_gone) or (theirs is None and offset == end_of_batches)


def gaps_before_segments(log: WritableLog) -> set[int]:
    """The offsets after the last batch of a segment and before the next segment."""
    gaps: set[int] = set()
    for segment, following in pairwise(log.segments):
        gaps |= set(range(end_of_batches(segment), following.base_offset))
    return gaps


def end_of_batches(segment: LogSegment) -> int:
    """The offset after the last batch; the base offset if there is none."""
    batches = MemoryRecords(bytes_of(segment)).batches()
    return max((one.last_offset + 1 for one in batches), default=segment.base_offset)


def is_known_transaction_index(
    ours: bytes, theirs: bytes, *, log_start_offset: int, in_transactions: Sequence[tuple[int, int]]
) -> bool:
    """Whether two transaction indexes differ only in transactions that began below the log start.

    kstore, which replays all records of a segment, has their first offsets, and also those that have no data from the
    log start on. UnifiedLog.rebuildProducerState reads from there when it truncates, so that Kafka then knew of no
    transaction that the marker could end.
    """
    mine, others = ([*decode_aborted_txns(one, base_offset=0, path="")] for one in (ours, theirs))
    for one in mine:
        began_below = one.first_offset < log_start_offset
        if others and (one == others[0] or (began_below and one == others[0]._replace(first_offset=one.first_offset))):
            del others[0]
        elif not began_below or any(
            producer_id == one.producer_id and one.first_offset <= offset < one.last_offset
            for producer_id, offset in in_transactions
        ):
            return False
    return not others
