"""Goal: a log that is written has one last stable offset, Kafka's: property, fetch, read and plan tell the same.
Method: random histories of transactions, marks, deletions and truncations, beside a model that knows only which
transactions there are, where they began and ended, and how far the high watermark has been since."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kstore.config import LogConfig
from kstore.env import LocalEnv
from kstore.log.write.writable_log import WritableLog
from kstore.record import (
    AppendOrigin,
    ControlRecordType,
    EndTransactionMarker,
    MemoryRecords,
    with_end_transaction_marker,
)
from kstore.store.opening import open_log
from tests.making.batches import FIRST_TIMESTAMP_MS, record
from tests.reference.codec import write_batch

PRODUCERS = 3
OFFSETS = st.integers(min_value=0, max_value=40)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.integers(min_value=0, max_value=PRODUCERS)),
        st.tuples(st.just("data"), st.integers(min_value=0, max_value=PRODUCERS)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.integers(min_value=1, max_value=PRODUCERS)),
        st.tuples(st.sampled_from(["mark", "mark", "delete", "truncate", "restart", "roll", "reopen"]), OFFSETS),
    ),
    max_size=24,
)


class EarlyEnv(LocalEnv):
    """An Env whose clock stands at the time of the records, so that no producer expires."""

    def wall_clock_ms(self) -> int:
        return FIRST_TIMESTAMP_MS


@dataclass
class Transaction:
    producer_id: int
    offsets: list[int]
    marker_offset: int | None = None
    is_abort: bool = False
    is_replicated: bool = False


class Model:
    """Transactions by their first offsets, and the offsets of plain data."""

    def __init__(self) -> None:
        self.transactions: list[Transaction] = []
        self.plain: list[int] = []
        # Behind a deletion a truncation forgets what began below the log start: then only agreement is asked for.
        self.is_exact = True
        self.was_deleted = False

    def last_stable_offset(self, *, high_watermark: int, log_start_offset: int) -> int:
        unstable = [one.offsets[0] for one in self.transactions if not one.is_replicated]
        return max(min([high_watermark, *unstable]), log_start_offset)

    def note_mark(self, high_watermark: int) -> None:
        for one in self.transactions:
            if one.marker_offset is not None and one.marker_offset < high_watermark:
                one.is_replicated = True

    def truncate(self, offset: int) -> None:
        # As in Kafka a snapshot that is loaded again says nothing of markers the high watermark has not passed.
        unreplicated = any(one.marker_offset is not None and not one.is_replicated for one in self.transactions)
        self.is_exact = self.is_exact and not self.was_deleted and not unreplicated
        self.plain = [one for one in self.plain if one < offset]
        self.transactions = [one for one in self.transactions if one.offsets[0] < offset]
        for one in self.transactions:
            one.offsets = [offset_ for offset_ in one.offsets if offset_ < offset]
            if one.marker_offset is not None and one.marker_offset >= offset:
                one.marker_offset, one.is_replicated = None, False

    def committed(self, last_stable_offset: int, log_start_offset: int) -> list[int]:
        decided = [offset for one in self.transactions if not one.is_abort for offset in one.offsets]
        return sorted(one for one in self.plain + decided if log_start_offset <= one < last_stable_offset)


def data(producer_id: int, sequence: int) -> MemoryRecords:
    options: dict[str, Any] = {}
    if producer_id:
        options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    return MemoryRecords(write_batch([record(0, b"v%d" % sequence)], **options))


def take(log: WritableLog, model: Model, step: tuple[str, int], managed: bool) -> None:
    kind, number = step
    if kind == "data":
        offset = log.append(data(number, number), origin=AppendOrigin.COORDINATOR).base_offset
        open_ones = [one for one in model.transactions if one.producer_id == number and one.marker_offset is None]
        if not number:
            model.plain.append(offset)
        elif open_ones:
            open_ones[0].offsets.append(offset)
        else:
            model.transactions.append(Transaction(number, [offset]))
    elif kind in ("commit", "abort"):
        control_type = ControlRecordType.ABORT if kind == "abort" else ControlRecordType.COMMIT
        marker = EndTransactionMarker(control_type=control_type, coordinator_epoch=0)
        batch = with_end_transaction_marker(
            marker, timestamp_ms=FIRST_TIMESTAMP_MS, producer_id=number, producer_epoch=0
        )
        offset = log.append(batch, origin=AppendOrigin.COORDINATOR).base_offset
        for one in model.transactions:
            if one.producer_id == number and one.marker_offset is None:
                one.marker_offset, one.is_abort = offset, kind == "abort"
    elif kind == "mark" and managed:
        log.update_high_watermark(number)
    elif kind == "delete":
        log.delete_records(min(number, log.high_watermark))
        model.was_deleted = log.log_start_offset > 0
    elif kind == "truncate":
        # A broker never truncates below its high watermark.
        offset = max(number, log.high_watermark) if managed else number
        if offset < log.log_end_offset:
            log.truncate_to(offset)
            model.truncate(offset)
    elif kind == "restart" and number % 5 == 0:
        log.truncate_fully_and_start_at(number)
        model.__init__()  # type: ignore[misc]
    elif kind == "roll":
        log.roll()
    model.note_mark(log.high_watermark)


def check(log: WritableLog, model: Model) -> None:
    stable, start = log.last_stable_offset, log.log_start_offset
    assert log.transactions().last_stable_offset == stable
    assert start <= stable <= log.high_watermark
    if model.is_exact:
        assert stable == model.last_stable_offset(high_watermark=log.high_watermark, log_start_offset=start)
    found = [one.offset for one in log.read(isolation="read_committed")]
    assert found == model.committed(stable, start)
    fetched, offset = [], start
    while True:
        answer = log.fetch(offset, 1, isolation="read_committed")
        assert answer.last_stable_offset == stable
        if not answer.records:
            assert answer.aborted == ()
            break
        (batch,) = MemoryRecords(answer.records).batches()
        aborted = {one.producer_id for one in answer.aborted if one.first_offset <= batch.base_offset}
        if not batch.is_control and batch.producer_id not in aborted:
            fetched.append(batch.base_offset)
        offset = batch.last_offset + 1
    assert fetched == found
    ranges = log.plan(isolation="read_committed")
    assert [(one.start_offset, one.end_offset) for one in ranges] == ([(start, stable)] if stable > start else [])


@given(steps=STEPS, managed=st.booleans())
def test_property_fetch_read_and_plan_tell_one_last_stable_offset(steps: list[tuple[str, int]], managed: bool) -> None:
    model = Model()
    with tempfile.TemporaryDirectory() as root:
        directory = Path(root) / "t-0"
        log = open_log(directory, "a", LogConfig(segment_bytes=400), env=EarlyEnv())
        try:
            if managed:
                log.update_high_watermark(0)
            for step in steps:
                if step[0] == "reopen":
                    mark = log.high_watermark
                    log.close()
                    log = open_log(directory, "a", LogConfig(segment_bytes=400), env=EarlyEnv())
                    if managed:
                        log.update_high_watermark(mark)
                    model.note_mark(log.high_watermark)
                    # Opened again, a log knows only what its last snapshot and its records tell.
                    for one in model.transactions:
                        one.is_replicated = one.is_replicated or one.marker_offset is not None
                else:
                    take(log, model, step, managed)
                check(log, model)
            batches = log.to_arrow_batches(columns=["offset"], isolation="read_committed")
            rows = [offset for batch in batches for offset in batch["offset"].to_pylist()]
            assert rows == model.committed(log.last_stable_offset, log.log_start_offset)
        finally:
            log.close()
