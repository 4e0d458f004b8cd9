"""replay: records of a root sent to a cluster that runs, partition by partition in their order; a run goes on where the
last one ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kstore._core import Record
from kstore._progress import Progress, ProgressBar
from kstore.env import StrPath
from kstore.env.process import SYSTEM_CLOCK
from kstore.errors import KStoreError, ReplayError
from kstore.log.log import Log
from kstore.replaying.arrived import find_arrived
from kstore.replaying.cluster import Cluster
from kstore.replaying.flow import Flow
from kstore.replaying.offsets import TranslatedOffset, commit, translate
from kstore.replaying.preparation import Preparation
from kstore.replaying.sending import Rehearsal, Sender, Sending
from kstore.replaying.state import StateFile
from kstore.replaying.wanted import ReplayArguments, ReplayWanted, replay_wanted
from kstore.store.opening import log_size_in_bytes, open_found
from kstore.types import MAX_OFFSET

if TYPE_CHECKING:
    from typing_extensions import Unpack

# How many records may have been sent that the state file does not know of; docs/replay.md.
MOST_UNRECORDED = 100_000
_RECORD_INTERVAL_MS = 1000
_MOST_OPEN_LOGS = 16
_POLL_S = 0.1


class ReplayedPartition(NamedTuple):
    """What a replay did with one partition.

    topic, partition: of the cluster; source_topic: its name in the source; start_offset, end_offset: of the source: all
    records from the one to the other that are sent at all are in the cluster; target_end_offset: where the cluster's
    partition goes on after them; record_count, size_in_bytes: sent by this call and acknowledged, and of keys and
    values that were sent; found_count: records of an earlier call that were found in the cluster.
    """

    topic: str
    partition: int
    source_topic: str
    start_offset: int
    end_offset: int
    target_end_offset: int
    record_count: int
    size_in_bytes: int
    found_count: int


class ReplaySummary(NamedTuple):
    """partitions, offsets: what was done, or for a dry run would be, by topic and number, and by group; created: topics
    that the cluster did not have, or not with so many partitions; is_dry_run: whether nothing was changed; is_complete:
    whether all records were sent and acknowledged.
    """

    partitions: tuple[ReplayedPartition, ...]
    offsets: tuple[TranslatedOffset, ...]
    created: tuple[str, ...]
    is_dry_run: bool
    is_complete: bool


def replay(
    source: StrPath,
    bootstrap_servers: str,
    *,
    dry_run: bool = False,
    progress: Progress = False,
    **options: Unpack[ReplayArguments],
) -> ReplaySummary:
    """Send records of a root to a cluster that runs, to the same partitions, with their keys, values, headers and
    timestamps, each partition in its order; by confluent-kafka.

    By an idempotent producer with acks=all. Control records are not sent; keys without a value are. With `state` a call
    goes on where the last one ended, also one that was killed, and sends nothing twice (docs/replay.md has the bounds).
    Args: source: a root, a partition, or a URL of one; bootstrap_servers: host:port, several with commas; options: see
        kstore.replaying.ReplayArguments. dry_run: change nothing, and return what would be done if nobody else wrote;
        reads all records. progress: as of kstore.verify.
    Raises: ModuleNotFoundError without confluent-kafka; ValueError, TypeError for wrong arguments; ReplayStateError for
        a state file that is malformed, in use, or of another source or cluster; ReplayError for what the cluster lacks
        or refuses, and if it does not answer; with the summary of what was done if that is anything. For the source
        CorruptionError, LogNotFoundError, LogReplacedError, StorageError, UnsupportedError.
    Threads: safe; a state file has one call at a time.
    Cost: reads the source once, twice for read_committed; memory for 100,000 records or 64 MiB that are on their way,
        and for a batch of each of 16 partitions.
    Source: Kafka MirrorSourceTask, MirrorCheckpointTask.
    """
    wanted = replay_wanted(source, bootstrap_servers, **options)
    with ProgressBar(progress, "replay") as bar:
        return carry_out(wanted, dry_run=dry_run, on_plan=bar.begin, on_bytes=bar.add)


def carry_out(
    wanted: ReplayWanted,
    *,
    dry_run: bool = False,
    on_plan: Callable[[int], None] = lambda _: None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> ReplaySummary:
    """Replay, or find out what a replay would do; see replay.

    Args: on_plan: called with the size of what is read, about; on_bytes: with that of each part.
    """
    directories = wanted.find()
    with StateFile.opened(wanted.state, is_read_only=dry_run) as state:
        cluster = Cluster(wanted.bootstrap_servers, wanted.client, timeout_s=wanted.timeout_s)
        failures: list[Flow] = []
        preparation = Preparation(wanted, directories, cluster, state, is_dry_run=dry_run)
        flows = preparation.flows(failures)
        sending: Sending = Rehearsal()
        if not dry_run:
            bounds = {"records_per_s": wanted.records_per_s, "bytes_per_s": wanted.bytes_per_s}
            sending = Sender(cluster, failures, **bounds, timeout_s=wanted.timeout_s, clock=SYSTEM_CLOCK)
        run = _Replay(wanted, preparation, flows, cluster, state, sending, on_bytes, is_dry_run=dry_run)
        on_plan(run.size_in_bytes())
        return run.carry_out()


class _Replay:
    """One run: what an earlier run sent is found in the cluster, records are sent, offsets are committed."""

    def __init__(
        self,
        wanted: ReplayWanted,
        preparation: Preparation,
        flows: Sequence[Flow],
        cluster: Cluster,
        state: StateFile,
        sending: Sending,
        on_bytes: Callable[[int], None],
        *,
        is_dry_run: bool,
    ) -> None:
        self._wanted = wanted
        self._preparation = preparation
        self._flows = flows
        self._cluster = cluster
        self._state = state
        self._sending = sending
        self._on_bytes = on_bytes
        self._is_dry_run = is_dry_run
        self._clock = SYSTEM_CLOCK
        self._has_begun = False
        self._sent_count = self._recorded_count = self._recorded_at_ms = 0

    def size_in_bytes(self) -> int:
        """Return the size of the segments that are read, about."""
        return sum(
            log_size_in_bytes(
                [flow.directory], start_offset=flow.start_offset, end_offset=MAX_OFFSET if end is None else end
            )
            for flow in self._flows
            for _, end in (self._wanted.bounds_of(flow.source),)
        )

    def carry_out(self) -> ReplaySummary:
        """Send what is to be sent, and commit offsets.

        Raises: ReplayError with what was done; its cause is the error, if that is another one.
        """
        groups = self._preparation.groups
        try:
            for flow in self._flows:
                self._find_arrived(flow)
            self._has_begun = True
            self._record(is_over=False)
            self._send_all()
            self._sending.wait()
            for flow in self._flows:
                flow.pass_over(flow.end_offset)
            self._record(is_over=True)
            offsets = translate(groups, self._flows, self._cluster)
            if not self._is_dry_run:
                offsets = commit(offsets, self._cluster)
        except ReplayError as error:
            self._give_up()
            error.summary = self._how_far()
            raise
        except KStoreError as error:
            # What is on its way is not at fault.
            with suppress(ReplayError):
                self._sending.wait()
            self._give_up()
            raise ReplayError(str(error), summary=self._how_far(), path=error.path) from error
        except BaseException:
            self._give_up()
            raise
        return self._summary(offsets, is_complete=not self._is_dry_run)

    def _find_arrived(self, flow: Flow) -> None:
        """Find what an earlier run sent that its state does not know of."""
        known = self._state.partition(flow.source)
        if known is None or known.is_settled:
            return
        with open_found(flow.directory, self._wanted.config) as log:
            find_arrived(
                self._cluster,
                flow,
                log,
                known.filter,
                target_end_offset=flow.target_start_offset,
                on_error=self._wanted.on_error,
            )

    def _send_all(self) -> None:
        """Send the records of all partitions, a part of each in turn."""
        waiting, active = deque(self._flows), deque[tuple[Flow, Iterator[tuple[list[Record], int]]]]()
        try:
            while waiting or active:
                while waiting and len(active) < _MOST_OPEN_LOGS:
                    active.append((waiting[0], self._parts(waiting.popleft())))
                flow, parts = active.popleft()
                part = next(parts, None)
                if part is None:
                    continue
                active.append((flow, parts))
                records, size = part
                self._make_room(len(records))
                self._sending.send(flow, records)
                self._sent_count += len(records)
                self._on_bytes(size)
        finally:
            active.clear()

    def _parts(self, flow: Flow) -> Iterator[tuple[list[Record], int]]:
        """Yield what is sent of a partition; see Filter.parts."""
        wanted = self._wanted
        asked_start, asked_end = wanted.bounds_of(flow.source)
        with open_found(flow.directory, wanted.config) as log:
            start = self._start(flow, log, asked_start)
            _, end = log._held_offsets(start, asked_end, isolation=wanted.filter.isolation, on_error=wanted.on_error)
            flow.end_offset = min(end, log.log_end_offset)
            yield from wanted.filter.parts(
                log, start_offset=start, end_offset=asked_end, on_error=wanted.on_error, on_skip=wanted.on_skip
            )

    def _start(self, flow: Flow, log: Log, asked_start: int) -> int:
        """Return the offset from which records are sent.

        Raises: ReplayError if the source does not hold all records from there on that an earlier run had not sent.
        """
        known = self._state.partition(flow.source)
        start = max(flow.next_offset, asked_start)
        if known is None:
            return start
        if log.log_end_offset < known.next_offset:
            raise self._state.refused(
                f"of a log {flow.source} with offsets up to {known.next_offset}, and {log.path} ends at "
                f"{log.log_end_offset}: it was truncated, or is another one"
            )
        if start < log.log_start_offset:
            raise ReplayError(
                f"{log.path} begins at offset {log.log_start_offset}, and offsets from {start} on were not replayed: "
                f"they were deleted since; to go on without them: --from {log.log_start_offset}",
                topic=flow.source.topic,
                partition=flow.source.partition,
                offset=start,
                path=log.path,
            )
        return start

    def _make_room(self, count: int) -> None:
        """Write the state file from time to time, and before more records were sent than it may not know of."""
        if self._state.path is None or self._is_dry_run:
            return
        if self._clock.monotonic_ms() - self._recorded_at_ms >= _RECORD_INTERVAL_MS:
            self._record(is_over=False)
        while self._sent_count + count - self._recorded_count > MOST_UNRECORDED:
            self._sending.poll(_POLL_S)
            self._record(is_over=False)

    def _record(self, *, is_over: bool) -> None:
        """Write the state file.  Args: is_over: whether nothing more is sent."""
        if self._is_dry_run or not self._has_begun:
            return
        count = sum(flow.acked_count for flow in self._flows)
        filter_ = self._wanted.filter
        states = [flow.state(filter_, is_settled=is_over and flow.is_settled) for flow in self._flows]
        self._state.write(states, **self._preparation.cluster_ids)
        self._recorded_count, self._recorded_at_ms = count, self._clock.monotonic_ms()

    def _give_up(self) -> None:
        self._sending.abandon()
        self._record(is_over=True)

    def _how_far(self) -> ReplaySummary | None:
        """Return how far a run came that ended early, None if it sent nothing."""
        return self._summary((), is_complete=False) if self._has_begun and not self._is_dry_run else None

    def _summary(self, offsets: Iterable[TranslatedOffset], *, is_complete: bool) -> ReplaySummary:
        partitions = [
            ReplayedPartition(
                *flow.target,
                flow.source.topic,
                flow.start_offset,
                flow.next_offset,
                flow.translated(flow.next_offset),
                flow.acked_count,
                flow.size_in_bytes,
                flow.found_count,
            )
            for flow in self._flows
        ]
        return ReplaySummary(
            tuple(sorted(partitions)), tuple(offsets), tuple(self._preparation.created), self._is_dry_run, is_complete
        )
