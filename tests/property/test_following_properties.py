"""Goal: whatever a writer did between two looks, a follower has given each record that it should, once.
Method: random histories of a writer; followers in its process and of the directory, beside a model that knows only from
which offset on a follower has not given what is there: every truncation lowers that, and every look raises it to the
end."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kstore.config import LogConfig
from kstore.env import LocalEnv
from kstore.log.following.follower import Follower
from kstore.log.write.writable_log import WritableLog
from kstore.record import (
    AppendOrigin,
    ControlRecordType,
    EndTransactionMarker,
    MemoryRecordsBuilder,
    Record,
    with_end_transaction_marker,
)
from kstore.store.opening import open_log
from tests.making.strategies import examples

CONFIG = LogConfig(segment_bytes=600, segment_index_bytes=1000, index_interval_bytes=100)
COMPACT = LogConfig(segment_bytes=600, segment_index_bytes=1000, cleanup_policy="compact")
NOW_MS = 1_700_000_000_000
KEYS = 3
PRODUCERS = 2
OFFSETS = st.integers(min_value=0, max_value=60)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(min_value=1, max_value=4)),
        st.tuples(st.just("append"), st.integers(min_value=1, max_value=4)),
        st.tuples(st.just("append"), st.integers(min_value=1, max_value=4)),
        st.tuples(st.sampled_from(["truncate", "back", "delete", "restart", "roll"]), OFFSETS),
        st.tuples(st.just("look"), st.integers(min_value=0, max_value=3)),
        st.tuples(st.just("look"), st.integers(min_value=0, max_value=3)),
    ),
    min_size=4,
    max_size=40,
)
COMMITTED_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(min_value=1, max_value=2)),
        st.tuples(st.sampled_from(["begin", "commit", "abort"]), st.integers(min_value=0, max_value=PRODUCERS - 1)),
        st.tuples(st.sampled_from(["roll", "compact", "delete"]), OFFSETS),
        st.tuples(st.just("look"), st.integers(min_value=0, max_value=1)),
        st.tuples(st.just("look"), st.integers(min_value=0, max_value=1)),
    ),
    min_size=4,
    max_size=40,
)


class StandingEnv(LocalEnv):
    """An Env whose clock stands, so that no producer expires and no delete horizon passes."""

    def wall_clock_ms(self) -> int:
        return NOW_MS

    def sync_directory(self, path: str) -> None:
        """No power is cut here."""


class Looker:
    """A follower, and from which offset on it has not given what the log holds."""

    def __init__(self, follower: Follower[Record], log: WritableLog, *, is_committed: bool) -> None:
        self.follower = follower
        self._log = log
        self._is_committed = is_committed
        self._end = 0

    def truncated(self, offset: int) -> None:
        self._end = min(self._end, offset)

    def check(self) -> None:
        log = self._log
        isolation = "read_committed" if self._is_committed else "read_uncommitted"
        start = max(self._end, log.log_start_offset)
        end = log.last_stable_offset if self._is_committed else log.log_end_offset
        expected = [] if start >= end else [(one.offset, one.value) for one in log.read(start, isolation=isolation)]
        given = [(one.offset, one.value) for one in self.follower]
        assert given == expected, (start, end)
        self._end = max(end, log.log_start_offset)


class Writer:
    """Carries out the steps of a history."""

    def __init__(self, log: WritableLog, lookers: list[Looker]) -> None:
        self._log = log
        self._lookers = lookers
        self._count = 0
        self._sequences = dict.fromkeys(range(PRODUCERS), 0)

    def run(self, steps: list[tuple[str, int]]) -> None:
        for kind, number in steps:
            getattr(self, kind)(number)
        for looker in self._lookers:
            looker.check()

    def append(self, count: int) -> None:
        self._log.append([self._record(number) for number in range(count)])

    def _record(self, number: int) -> Record:
        self._count += 1
        return Record(offset=0, timestamp_ms=NOW_MS, key=b"%d" % (number % KEYS), value=b"%d" % self._count)

    def begin(self, producer_id: int) -> None:
        """Append a record of a transaction."""
        builder = MemoryRecordsBuilder(
            base_offset=0,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=self._sequences[producer_id],
            is_transactional=True,
        )
        one = self._record(producer_id)
        builder.append(offset=0, timestamp_ms=NOW_MS, key=one.key, value=one.value, headers=())
        self._log.append(builder.build())
        self._sequences[producer_id] += 1

    def _end(self, producer_id: int, kind: ControlRecordType) -> None:
        marker = EndTransactionMarker(control_type=kind, coordinator_epoch=0)
        batch = with_end_transaction_marker(marker, timestamp_ms=NOW_MS, producer_id=producer_id, producer_epoch=0)
        self._log.append(batch, origin=AppendOrigin.COORDINATOR)

    def commit(self, producer_id: int) -> None:
        self._end(producer_id, ControlRecordType.COMMIT)

    def abort(self, producer_id: int) -> None:
        self._end(producer_id, ControlRecordType.ABORT)

    def truncate(self, offset: int) -> None:
        if offset < self._log.log_end_offset:
            self._log.truncate_to(offset)
            for looker in self._lookers:
                looker.truncated(offset)

    def back(self, count: int) -> None:
        self.truncate(max(self._log.log_end_offset - count % 8, 0))

    def restart(self, offset: int) -> None:
        self._log.truncate_fully_and_start_at(offset)
        for looker in self._lookers:
            looker.truncated(0)

    def delete(self, offset: int) -> None:
        self._log.delete_records(min(offset, self._log.log_end_offset))

    def roll(self, _: int) -> None:
        self._log.roll()

    def compact(self, _: int) -> None:
        self._log.compact(is_forced=True, now_ms=NOW_MS)

    def look(self, number: int) -> None:
        if number < len(self._lookers):
            self._lookers[number].check()


def check(steps: list[tuple[str, int]], config: LogConfig, *, is_committed: bool) -> None:
    isolation = "read_committed" if is_committed else "read_uncommitted"
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        path = Path(directory) / "t-0"
        log = stack.enter_context(open_log(path, "a", config, env=StandingEnv()))
        reader = stack.enter_context(open_log(path, env=StandingEnv()))
        followers = [
            one.follow(timeout=0, isolation=isolation, auto_offset_reset="earliest") for one in (log, reader) * 2
        ]
        lookers = [Looker(stack.enter_context(one), log, is_committed=is_committed) for one in followers]
        Writer(log, lookers[: 2 if is_committed else 4]).run(steps)


@examples(30)
@given(STEPS)
def test_follower_gives_what_a_writer_leaves_once(steps: list[tuple[str, int]]) -> None:
    check(steps, CONFIG, is_committed=False)


@examples(30)
@given(COMMITTED_STEPS)
def test_follower_gives_what_is_committed_and_not_compacted_before_once(steps: list[tuple[str, int]]) -> None:
    check(steps, COMPACT, is_committed=True)
