"""Sender: records to the cluster by librdkafka's producer, with bounds on memory, on speed and on silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from kstore._core import Record
from kstore.env.process import SystemClock
from kstore.errors import ReplayError
from kstore.replaying.cluster import Cluster
from kstore.replaying.flow import Flow
from kstore.replaying.pace import Pace
from kstore.types import TopicPartition

_POLL_S = 0.1
# Not in librdkafka, where an interrupt would wait, and be lost.
_PAUSE_MS = 2
_NUL = "\0"
# How long a replay that ends early waits for answers to what it has sent.
_LAST_ANSWERS_S = 5.0


class Sending(Protocol):
    """Where the records of a run go."""

    def send(self, flow: Flow, records: Sequence[Record]) -> None:
        """Send records of one partition, in their order."""

    def poll(self, timeout_s: float) -> None:
        """Take the reports that there are, or wait a little for one."""

    def wait(self) -> None:
        """Wait until all is acknowledged."""

    def abandon(self) -> None:
        """Wait a little for answers, and send nothing more."""


class Sender:
    """Sends records by an idempotent producer.

    Args: failures: the Failures that the flows share.
    Attributes: sent_count.
    Raises: ReplayError with the place of a record, for one that the cluster or librdkafka refuses, and if nothing is
        acknowledged for timeout_s.
    Threads: not thread-safe.
    """

    def __init__(
        self,
        cluster: Cluster,
        failures: Sequence[Flow],
        *,
        records_per_s: float | None,
        bytes_per_s: float | None,
        timeout_s: float,
        clock: SystemClock,
    ) -> None:
        self._cluster = cluster
        self._failures = failures
        self._timeout_s = timeout_s
        self._clock = clock
        self._producer = cluster.producer()
        self._pace = Pace(records_per_s=records_per_s, bytes_per_s=bytes_per_s, clock=clock, wait=self.poll)
        self._fatal: Any = None
        self._answered_count = 0
        self._answered_at_ms = clock.monotonic_ms()
        self.sent_count = 0

    def send(self, flow: Flow, records: Sequence[Record]) -> None:
        """Send records of one partition; wait while the producer's queue is full, and for the bounds on speed."""
        begin, is_bounded = flow.begin, self._pace.is_bounded
        for record in records:
            key, value = record.key, record.value
            size = (0 if key is None else len(key)) + (0 if value is None else len(value))
            if is_bounded:
                self._pace.before(size)
            begin(record)
            self._produce(flow, record, key, value)
            self.sent_count += 1
            flow.size_in_bytes += size
            if not flow.is_known:
                self._wait_for_first(flow)
        self.poll(0)

    def _wait_for_first(self, flow: Flow) -> None:
        """Wait until the first record of a partition is acknowledged.

        A broker that knows the producer refuses what does not follow its last batch, and so whatever is on its way
        beside a batch that fails. It takes the first batch of a producer with any sequence.
        """
        while not flow.is_settled:
            self.poll(_POLL_S)
        flow.is_known = True

    def _produce(self, flow: Flow, record: Record, key: bytes | None, value: bytes | None) -> None:
        timestamp_ms = record.timestamp_ms
        if not timestamp_ms:
            raise _refused(flow, record.offset, "librdkafka would write the time of sending in place of timestamp 0")
        topic, partition = flow.target
        headers = list(record.headers) if record.headers else None
        if headers and any(_NUL in name for name, _ in headers):
            raise _refused(flow, record.offset, "librdkafka would cut the name of a header at its NUL character")
        while True:
            try:
                self._producer.produce(
                    topic, value, key, partition, on_delivery=flow.report, timestamp=timestamp_ms, headers=headers
                )
            except BufferError as error:
                if not len(self._producer):
                    reason = "the record is larger than queue.buffering.max.kbytes of the producer"
                    raise _refused(flow, record.offset, reason) from error
                self.poll(_POLL_S)
            except self._cluster.client_error as error:
                self._poll(_POLL_S)
                self._check()
                raise _refused(flow, record.offset, error.args[0].str(), code=error.args[0].code()) from error
            else:
                return

    def poll(self, timeout_s: float) -> None:
        """Take the reports that there are, or wait a little for one.

        Raises: ReplayError for a record that failed, and if nothing was acknowledged for too long.
        """
        self._poll(min(timeout_s, _POLL_S))
        self._check()
        waiting, now_ms = len(self._producer), self._clock.monotonic_ms()
        answered = self.sent_count - waiting
        if not waiting or answered != self._answered_count:
            self._answered_count, self._answered_at_ms = answered, now_ms
        elif now_ms - self._answered_at_ms > 1000 * self._timeout_s:
            raise ReplayError(
                f"{self._cluster.bootstrap_servers} acknowledged nothing for {self._timeout_s:g} s, and {waiting} "
                f"records wait for it{self._cluster.because()}"
            )

    def wait(self) -> None:
        """Wait until all is acknowledged.  Raises: as poll."""
        while len(self._producer):
            self.poll(_POLL_S)
        self._check()

    def abandon(self) -> None:
        """Send nothing more, and wait a little for the answers to what was sent."""
        self._producer.purge(in_queue=True, in_flight=False, blocking=False)
        self._take_reports(_LAST_ANSWERS_S)
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        self._take_reports(_POLL_S)

    def _take_reports(self, timeout_s: float) -> None:
        until_ms = self._clock.monotonic_ms() + 1000 * timeout_s
        while len(self._producer) and self._clock.monotonic_ms() < until_ms:
            self._poll(_POLL_S)

    def _poll(self, timeout_s: float) -> None:
        """Take the reports that there are, or wait for one. A fatal error is kept: the reports on the records that
        failed come after it.
        """
        until_ms = self._clock.monotonic_ms() + 1000 * timeout_s
        while True:
            try:
                has_any = self._producer.poll(0)
            except self._cluster.client_error as error:
                self._fatal = error.args[0]
                return
            except SystemError as error:
                # confluent-kafka 2.16 loses what a signal handler raises while it makes a report.
                raise KeyboardInterrupt from error
            left_ms = until_ms - self._clock.monotonic_ms()
            if has_any or left_ms <= 0:
                return
            self._clock.sleep_ms(min(left_ms, _PAUSE_MS))

    def _check(self) -> None:
        if self._fatal is not None and not self._failures:
            self._take_reports(_LAST_ANSWERS_S)
        if self._failures:
            flow = self._failures[0]
            failure = flow.failure
            if failure is not None:
                raise _refused(flow, failure.offset, failure.error.str(), code=failure.error.code())
        if self._fatal is not None:
            raise self._cluster.error(self._fatal, "take any more records")


class Rehearsal:
    """Sends nothing: each record is acknowledged at once, at the offset that it would get if nobody else wrote."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, int] = {}

    def send(self, flow: Flow, records: Sequence[Record]) -> None:
        end = self._ends.get(flow.target, flow.target_start_offset)
        for at, record in enumerate(records, end):
            flow.begin(record)
            flow.report(None, _Placed(at))
            flow.size_in_bytes += len(record.key or b"") + len(record.value or b"")
        self._ends[flow.target] = end + len(records)

    def poll(self, timeout_s: float) -> None:  # as of Sending
        """Return: nothing is on its way."""

    def wait(self) -> None:
        """Return: nothing is on its way."""

    def abandon(self) -> None:
        """Return: nothing is on its way."""


class _Placed(NamedTuple):
    """Stands for the message of a report."""

    at: int

    def offset(self) -> int:
        return self.at


def _refused(flow: Flow, offset: int, reason: str, *, code: int = 0) -> ReplayError:
    """Return the error for a record of the source. code: Kafka's, or a negative one of librdkafka."""
    place = f"{flow.source} at offset {offset}"
    to = "" if flow.source == flow.target else f" to {flow.target}"
    return ReplayError(
        f"the record of {place} was not written{to}: {reason}",
        topic=flow.source.topic,
        partition=flow.source.partition,
        offset=offset,
        kafka_code=code if code > 0 else None,
        path=flow.directory.path,
    )
